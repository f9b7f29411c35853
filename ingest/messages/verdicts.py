"""The one verdict on rows of a target that has rules, for the stream and for a batch over its history.

Clean rows and refused ones are told apart by what this verdict says and by nothing else, so that each
row is in one of the two.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark's own examples use)
from pyspark.sql.types import ArrayType, StringType, StructField, StructType, TimestampType

from ingest.contracts import Rule
from ingest.errors import ContractError
from ingest.messages.schemas import FAILURE_REASONS, OUR_COLUMNS, PAYLOAD, with_ours
from ingest.messages.targets import Target


def failure_reasons(rules: Sequence[Rule]) -> Column:
    """The codes of the rules that a row breaks, in the rules' order; never null.

    A predicate that is null says what its rule's ``on_null`` says.
    """
    codes = [
        # A newline ends what may be a comment.
        F.when(
            F.coalesce(F.expr(f"(\n{rule.when}\n)"), F.lit(rule.on_null == "refuse")), F.lit(rule.code)
        )
        for rule in rules
    ]
    return F.array_compact(F.array(*codes)) if codes else F.array().cast("array<string>")


def judged(rows: DataFrame, target: Target) -> DataFrame:
    """Judge rows of a target by its rules.

    Args:
        rows: Typed, with the job's own columns.
        target: Whose rules.

    Returns:
        The rows with ``FAILURE_REASONS``.
    """
    return rows.withColumn(FAILURE_REASONS, failure_reasons(target.rules))


def clean(rows: DataFrame) -> DataFrame:
    """Of rows that were judged, those that break no rule, as the target's table has them."""
    return rows.where(F.size(FAILURE_REASONS) == 0).drop(FAILURE_REASONS, PAYLOAD)


def refused(rows: DataFrame, target: Target, pipeline_version: str) -> DataFrame:
    """Of rows that were judged, those that break a rule, as the quarantine's table has them.

    Args:
        rows: With ``PAYLOAD``.
        target: Whose rules.
        pipeline_version: Of this package.
    """
    first = F.element_at(FAILURE_REASONS, 1)
    reason = F.lit("unknown")
    for rule in target.rules:
        reason = F.when(first == rule.code, F.lit(rule.reason)).otherwise(reason)
    data = [c for c in rows.columns if c not in {*OUR_COLUMNS, PAYLOAD, FAILURE_REASONS}]
    return rows.where(F.size(FAILURE_REASONS) > 0).select(
        *OUR_COLUMNS,
        F.struct(*(F.col(f"`{name}`") for name in data)).alias("data"),
        reason.alias("reason"),
        F.col(FAILURE_REASONS).alias("failure_reasons"),
        F.col("_landed_at").alias("detected_at"),
        F.lit(target.verdict_contract).alias("_verdict_contract"),
        F.lit(pipeline_version).alias("_pipeline_version"),
        F.col(PAYLOAD).alias("payload"),
    )


def quarantine_schema(schema: StructType) -> StructType:
    """The schema of the table that ``refused`` gives rows of.

    Args:
        schema: Of the target, without the job's own columns. It stands in one column, so that no name
            of a message's can be one of the others.
    """
    return StructType(
        [
            *with_ours(StructType([])).fields,
            StructField("data", schema),
            StructField("reason", StringType()),
            StructField("failure_reasons", ArrayType(StringType())),
            StructField("detected_at", TimestampType()),
            StructField("_verdict_contract", StringType()),
            StructField("_pipeline_version", StringType()),
            StructField("payload", StringType()),
        ]
    )


def vet_rules(spark: SparkSession, target: Target, schema: StructType) -> None:
    """Ask Spark whether a target's rules can work, before any row moves.

    Raises:
        ContractError: One cannot. It is named.
    """
    empty = spark.createDataFrame([], with_ours(schema))
    for rule in target.rules:
        place = f"target {target.name}, rule {rule.code}: when "
        try:
            asked = empty.selectExpr(f"(\n{rule.when}\n) as said")
            is_sound = asked._jdf.queryExecution().analyzed().deterministic()
        except (AnalysisException, ParseException) as error:
            said = str(error).strip().splitlines()[0]
            raise ContractError(
                f"{place}is no working SQL over the columns of the target: {said}. Correct it."
            ) from error
        if asked.schema["said"].dataType.simpleString() != "boolean":
            raise ContractError(f"{place}must say yes or no. Write a condition.")
        if not is_sound:
            raise ContractError(
                f"{place}is not deterministic; judged again it would say something else."
            )
