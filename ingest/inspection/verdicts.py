"""What the contract makes of a file's records: cut and judged as in a run of the main job."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark's own examples use)
from pyspark.sql.types import StructType

from ingest.bronze import Batch, parse_columns, parse_csv, records_of
from ingest.capture.csv_format import LINE_END, CsvFormat
from ingest.environment import pipeline_version
from ingest.inspection.judging import Judge
from ingest.inspection.subject import EVIDENCE, FileColumn, Subject, changed

_VIEW = "inspected_records"


def write_records(spark: SparkSession, subject: Subject, started_at: datetime, out: Path) -> None:
    """Cut the file and write its records as Bronze has them, with ``_fields``.

    ``_fields`` is how many fields a record has, quotes minded.

    Raises:
        InputError: The file changed since it was looked at.
    """
    batch = Batch("inspection", started_at, pipeline_version())
    rows = records_of(spark, subject.contract, [subject.file], batch)
    assert rows is not None
    is_corrupt = F.col("_corrupt_record").isNotNull()
    fmt = subject.format

    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for each in batches:
            counts = [field_count(text.encode(), fmt) for text in each.column(1).to_pylist()]
            yield pa.RecordBatch.from_arrays(
                [each.column(0), pa.array(counts, pa.int32())], names=["_position", "_corrupt_fields"]
            )

    # A sound record has as many as the header; only the others need a look.
    rows.write.parquet(str(out / "cut"))
    rows = spark.read.parquet(str(out / "cut"))
    corrupt = rows.where(is_corrupt).select("_position", "payload")
    fields = corrupt.mapInArrow(counted, "_position INT, _corrupt_fields INT")
    (
        rows.join(fields, "_position", "left")
        .withColumn("_fields", F.coalesce("_corrupt_fields", F.lit(len(subject.header.names))))
        .drop("_corrupt_fields")
        .write.parquet(str(out / "records"))
    )
    if spark.read.parquet(str(out / "records")).count() != subject.records_found:
        raise changed(subject)


def widths(
    spark: SparkSession, subject: Subject, records: Path
) -> tuple[dict[str, int], dict[str, int]]:
    """Count lines by their number of fields.

    Args:
        spark: The session.
        subject: The file.
        records: What ``write_records`` wrote.

    Returns:
        Records by their fields, quotes minded; and lines by what stands between delimiters, as
        whoever does not know of quotes would count. Keys are numbers of fields, in their order.
    """
    rows = spark.read.parquet(str(records))
    line = F.explode(F.split("payload", LINE_END.pattern.decode(), -1))
    delimiters = F.lit(subject.format.delimiter)
    naive = rows.select(line.alias("line")).select(
        (F.length("line") - F.length(F.replace("line", delimiters)) + 1).alias("_fields")
    )
    return _counted(rows), _counted(naive)


def _counted(rows: DataFrame) -> dict[str, int]:
    counts = rows.groupBy("_fields").agg(F.count("*").alias("lines")).collect()
    return {str(row["_fields"]): row["lines"] for row in sorted(counts, key=lambda r: r["_fields"])}


def field_count(raw: bytes, fmt: CsvFormat) -> int:
    """How many fields a record has. A quote that is never closed is text from there on.

    Args:
        raw: The record's text in an encoding in which the delimiter is one byte.
        fmt: How the feed writes its CSV.
    """
    found = fmt.fields(raw)
    # Behind the last field and its delimiter: at most the end of the text, where all were read.
    rest = raw[sum(map(len, found)) + len(found) :]
    return len(found) + (1 + rest.count(fmt.delimiter.encode()) if rest or not found else 0)


def write_verdicts(
    spark: SparkSession, subject: Subject, records: Path, judged_at: datetime, work: Path, out: Path
) -> None:
    """Judge the records by the contract, and write ``clean/`` and ``quarantine/`` of that one verdict.

    Args:
        spark: The session.
        subject: The file.
        records: What ``write_records`` wrote.
        judged_at: The instant of the verdict, in UTC.
        work: Folder for the verdicts.
        out: Folder that gets both.
    """
    rows = spark.read.parquet(str(records))
    rows.createOrReplaceTempView(_VIEW)
    judge = Judge(subject.contract, _VIEW, judged_at)
    judged = work / "judged"
    spark.sql(judge.verdicts()).write.parquet(str(judged))
    spark.catalog.dropTempView(_VIEW)
    # Both sides of what is stored: a verdict that is asked twice may be two.
    verdicts = spark.read.parquet(str(judged))
    fields = [F.col(f"`{field.name}`") for field in subject.contract.fields]
    is_refused = F.size("failure_reasons") > 0
    verdicts.where(~is_refused).select(*fields).write.parquet(str(out / "clean"))
    (
        verdicts.where(is_refused)
        .withColumn("reason", F.expr(judge.reason("failure_reasons")))
        .join(rows.select("_position", "_fields", "payload"), "_position")
        .select(*fields, *EVIDENCE)
        .write.parquet(str(out / "quarantine"))
    )


def write_inference(
    spark: SparkSession,
    subject: Subject,
    inferred: StructType,
    records: Path,
    judged_at: datetime,
    out: Path,
) -> None:
    """Write the values for which a column was inferred as another type than agreed.

    A row each: ``column``, ``_position``, ``value``. Of a column that is agreed to be text, those that
    the inferred type would change, as it does with zeros in front; of others, those that are no value
    of the agreed type. Records whose fields are shifted count too: inference reads them as well.
    """
    rows = spark.read.parquet(str(records)).select("_position", "payload")
    names = parse_columns(subject.header)
    parsed = parse_csv(rows, subject.contract, names)
    judge = Judge(subject.contract, _VIEW, judged_at)
    found = spark.createDataFrame([], "column STRING, _position INT, value STRING")
    for name, column, kind in zip(names, subject.columns, inferred, strict=False):
        type_name = kind.dataType.simpleString()
        if column.field is None or type_name == column.agreed_type:
            continue
        values = parsed.select(
            F.lit(column.name).alias("column"), "_position", F.col(f"parsed.`{name}`").alias("value")
        )
        found = found.union(values.where(_is_at_fault(judge, column, type_name)))
    found.write.parquet(str(out))


def _is_at_fault(judge: Judge, column: FileColumn, inferred: str) -> Column:
    assert column.field is not None
    if column.agreed_type == "string":
        return F.expr(
            f"trim(value) <> '' and not (cast(try_cast(value as {inferred}) as string) <=> value)"
        )
    return F.expr(f"trim(value) <> '' and ({judge.typed('value', column.field)}) is null")
