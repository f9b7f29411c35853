"""What Spark's own CSV reader makes of a file: what it infers, and its three modes."""

from __future__ import annotations

from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from ingest.inspection.findings import dataset
from ingest.inspection.subject import CORRUPT, Subject
from ingest.transform import CONDITION


def infer(spark: SparkSession, subject: Subject, path: Path) -> StructType:
    """The schema that Spark infers; its columns are in the file's order.

    Args:
        spark: The session.
        subject: The file.
        path: Where Spark can read it, see ``write_readable``.
    """
    return spark.read.options(**subject.read_options, inferSchema="true").csv(str(path)).schema


def write_permissive(spark: SparkSession, subject: Subject, path: Path, out: Path) -> None:
    """Write every record as PERMISSIVE reads it, with the text of those that it cannot read.

    The column for that text is part of the schema: else Spark does not keep it.
    """
    frame = (
        spark.read.options(**subject.read_options, mode="PERMISSIVE", columnNameOfCorruptRecord=CORRUPT)
        .schema(f"{subject.ddl}, {CORRUPT} STRING")
        .csv(str(path))
    )
    frame.write.parquet(str(out))


def write_dropped(spark: SparkSession, subject: Subject, path: Path, out: Path) -> dict[str, int]:
    """Write what DROPMALFORMED leaves.

    Returns:
        ``count_only``: what ``count()`` says of the same reading. It needs no column, so that Spark
        parses none and finds no value that does not fit. ``written``: rows that were written.
    """
    frame = (
        spark.read.options(**subject.read_options, mode="DROPMALFORMED")
        .schema(subject.ddl)
        .csv(str(path))
    )
    count_only = frame.count()
    frame.write.parquet(str(out))
    return {"count_only": count_only, "written": dataset(out).count_rows()}


def fail_fast(spark: SparkSession, subject: Subject, path: Path, scratch: Path) -> str | None:
    """Write with FAILFAST.

    Args:
        spark: The session.
        subject: The file.
        path: Where Spark can read it.
        scratch: Where to write; what is there after a failure is of no use.

    Returns:
        Name of the condition on which it failed; None where every record could be read.
    """
    frame = spark.read.options(**subject.read_options, mode="FAILFAST").schema(subject.ddl)
    # What is expected need not be told on standard error with all its traces.
    spark.sparkContext.setLogLevel("OFF")
    try:
        frame.csv(str(path)).write.parquet(str(scratch))
    except (PySparkException, Py4JJavaError) as error:
        # Python gets the outermost failure, of the file; the parser's stands among its causes.
        names: list[str] = CONDITION.findall(str(error))
        for name in names:
            if name.startswith("MALFORMED_"):
                return name
        raise
    finally:
        spark.sparkContext.setLogLevel("ERROR")
    return None
