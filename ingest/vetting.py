"""Asking Spark whether the rules of a contract can work, before any row moves."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from ingest.bronze import LINEAGE_DDL, table_ddl
from ingest.contracts import Contract
from ingest.errors import ContractError


def vet(spark: SparkSession, contracts: dict[str, Contract]) -> None:
    """Check that every expression and predicate parses, finds its columns and is deterministic.

    Raises:
        ContractError: Some cannot work. Each is named with the contract's file and line.
    """
    faults = [fault for contract in contracts.values() for fault in _faults(spark, contract)]
    if faults:
        raise ContractError("Contracts that cannot work:\n  " + "\n  ".join(faults))


def _faults(spark: SparkSession, contract: Contract) -> Iterator[str]:
    bronze = spark.createDataFrame([], table_ddl(contract))
    columns = [LINEAGE_DDL, "_corrupt_record STRING", "_unparsed ARRAY<STRING>"]
    for field in contract.fields:
        place = f"{contract.path}:{field.line}: {contract.record_type}, field {field.name}"
        try:
            found = bronze.selectExpr(f"({field.expression}) as value")
        except (AnalysisException, ParseException) as error:
            yield f"{place}: from is no working SQL over the Bronze columns: {_words(error)}"
            continue
        if not _is_deterministic(found):
            yield f"{place}: from is not deterministic; judged again it would say something else."
        text_type = "ARRAY<STRING>" if field.type.startswith("array<") else "STRING"
        actual = found.schema["value"].dataType.simpleString()
        if field.type == "native":
            columns.append(f"`{field.name}` {actual}")
            continue
        if actual.upper() != text_type:
            yield f"{place}: from gives {actual}, but a {field.type} is made from {text_type}."
        columns.append(f"`{field.name}` {field.spark_type}")
        columns.append(f"`raw_{field.name}` {text_type}")
    typed = spark.createDataFrame([], ", ".join(columns))
    for rule in contract.rules:
        if rule.when is None:
            continue
        place = f"{contract.path}:{rule.line}: {contract.record_type}, rule {rule.code}"
        try:
            found = typed.selectExpr(f"(\n{rule.when}\n) as fault")
        except (AnalysisException, ParseException) as error:
            yield f"{place}: when is no working SQL: {_words(error)}"
            continue
        if found.schema["fault"].dataType.simpleString() != "boolean":
            yield f"{place}: when must say yes or no, and gives {found.schema['fault'].dataType}."
        if not _is_deterministic(found):
            yield f"{place}: when is not deterministic; judged again it would say something else."


def _is_deterministic(frame: DataFrame) -> bool:
    plan = frame._jdf.queryExecution().analyzed()
    return bool(plan.deterministic())


def _words(error: AnalysisException | ParseException) -> str:
    return str(error).strip().splitlines()[0]
