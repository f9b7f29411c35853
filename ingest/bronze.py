"""Capture: one Spark job per record type cuts files into records, parses them and appends to Bronze.

Workers read the files themselves: Spark's own listing hides ``_name`` and ``.name``, stumbles over
``:`` and ``%20``, and cannot see into a ZIP.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark's own examples use)

from ingest.capture import csv, xml
from ingest.capture.records import Record
from ingest.contracts import Contract
from ingest.errors import FileReadError
from ingest.lake import Lake
from ingest.sources import ProbedFile, Source, csv_format, xml_format

# A worker hands over records in batches of about this many bytes.
BATCH_BYTES = 4_000_000
# Files are grouped into tasks of about this many bytes: enough to be worth a task's start.
TASK_BYTES = 32_000_000

_ERROR = "error_class STRING, message STRING, line INT, column INT"
_CUT_DDL = (
    "payload STRING, payload_bytes BINARY, payload_sha256 STRING, parse_text STRING, "
    f"position INT, byte_offset BIGINT, byte_length BIGINT, encoding STRING, error STRUCT<{_ERROR}>, "
    "unparsed ARRAY<STRING>, record_id STRING, source_file STRING, file_sha256 STRING, dataset STRING"
)
_CUT_SCHEMA = pa.schema(
    [
        ("payload", pa.string()),
        ("payload_bytes", pa.binary()),
        ("payload_sha256", pa.string()),
        ("parse_text", pa.string()),
        ("position", pa.int32()),
        ("byte_offset", pa.int64()),
        ("byte_length", pa.int64()),
        ("encoding", pa.string()),
        (
            "error",
            pa.struct(
                [
                    ("error_class", pa.string()),
                    ("message", pa.string()),
                    ("line", pa.int32()),
                    ("column", pa.int32()),
                ]
            ),
        ),
        ("unparsed", pa.list_(pa.string())),
        ("record_id", pa.string()),
        ("source_file", pa.string()),
        ("file_sha256", pa.string()),
        ("dataset", pa.string()),
    ]
)
LINEAGE_DDL = (
    "_record_id STRING, _dataset STRING, _batch_id STRING, _source_file STRING, "
    "_file_sha256 STRING, _position INT, _byte_offset BIGINT, _byte_length BIGINT, "
    "_encoding STRING, _ingested_at TIMESTAMP, _payload_sha256 STRING, _read_contract STRING, "
    "_pipeline_version STRING"
)
# Statistics stand in Delta's log for good, so no column that holds a record's text may have any.
_STATISTICS = "_record_id,_dataset,_batch_id,_source_file,_file_sha256,_position"


@dataclass(frozen=True)
class Batch:
    """One run of ingest over its new files."""

    batch_id: str
    started_at: datetime
    pipeline_version: str


@dataclass(frozen=True)
class _CutTask:
    source: Source
    file_sha256: str
    dataset: str
    header: csv.Header | None


def table_ddl(contract: Contract) -> str:
    """Columns of a record type's Bronze table: lineage first, then evidence, then parsed fields."""
    error = ", ".join(f"{n}: {t}" for n, t in (p.split() for p in _ERROR.split(", ")))
    return (
        f"{LINEAGE_DDL}, _corrupt_record STRING, _parse_error STRUCT<{error}>, "
        f"_unparsed ARRAY<STRING>, payload STRING, _payload_bytes BINARY, {contract.schema_ddl}"
    )


def create_table(spark: SparkSession, lake: Lake, contract: Contract) -> None:
    """Create the Bronze table of a record type where it is not there yet."""
    location = str(lake.table_path("bronze", contract.record_type))
    location = location.replace("\\", "\\\\").replace("'", "\\'")
    spark.sql(
        f"create table if not exists bronze.{contract.record_type} ({table_ddl(contract)}) "
        f"using delta location '{location}' tblproperties ("
        f"'delta.appendOnly' = 'true', 'delta.dataSkippingStatsColumns' = '{_STATISTICS}')"
    )


def capture(
    spark: SparkSession,
    lake: Lake,
    contract: Contract,
    files: Sequence[ProbedFile],
    batch: Batch,
) -> None:
    """Append the records of files to the Bronze table of one record type, in one commit.

    Args:
        spark: The session.
        lake: Where to.
        contract: What the records are.
        files: Files that hold records of this type; the content must still be what was probed.
        batch: The batch they are of.
    """
    rows: DataFrame | None = None
    for headers, group in _by_header(files).items():
        cut = spark.range(0, len(group), 1, len(group)).mapInArrow(
            _cutter(contract, group),
            _CUT_DDL,
        )
        # The files of one batch may lack different columns; with lineage, all rows have one shape.
        piece = _with_lineage(_parse(cut, contract, headers), contract, batch)
        rows = piece if rows is None else rows.unionByName(piece)
    if rows is None:
        return
    (
        rows.write.format("delta")
        .mode("append")
        # A contract may have gained columns since the table was made.
        .option("mergeSchema", "true")
        .save(str(lake.table_path("bronze", contract.record_type)))
    )


def _by_header(
    files: Sequence[ProbedFile],
) -> dict[tuple[str, ...] | None, list[list[_CutTask]]]:
    """Group files whose columns stand in one order, and within these into tasks by size."""
    groups: dict[tuple[str, ...] | None, list[ProbedFile]] = {}
    for file in files:
        key = _parse_columns(file.header) if file.header else None
        groups.setdefault(key, []).append(file)
    return {key: _tasks(group) for key, group in groups.items()}


def _parse_columns(header: csv.Header) -> tuple[str, ...]:
    """Names to parse a file's values with, in their order; what the contract lacks is named apart."""
    return tuple(
        name if name is not None else f"_extra_{number}"
        for number, name in enumerate(header.columns, start=1)
    )


def _tasks(files: Sequence[ProbedFile]) -> list[list[_CutTask]]:
    total = sum(file.size_bytes for file in files)
    # At least two tasks a core where there are files enough, so that both cores end together.
    wanted = max(1, min(len(files), max(4, total // TASK_BYTES)))
    tasks: list[list[_CutTask]] = [[] for _ in range(wanted)]
    loads = [0] * wanted
    for file in sorted(files, key=lambda f: (-f.size_bytes, f.source.name)):
        lightest = loads.index(min(loads))
        loads[lightest] += file.size_bytes + 100_000
        tasks[lightest].append(_CutTask(file.source, file.file_sha256, file.dataset or "", file.header))
    return tasks


def _cutter(
    contract: Contract, tasks: list[list[_CutTask]]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that a worker runs: task numbers in, cut records out."""
    record_type = contract.record_type
    records_of: Callable[[_CutTask], Iterator[tuple[Record, str]]]
    if contract.format == "xml":
        xml_shape = xml_format(contract)

        def records_of(task: _CutTask) -> Iterator[tuple[Record, str]]:
            data = task.source.read()
            # What changed since it was probed is not what `files` says it is. It yields nothing,
            # and the missing records make the file a failed one.
            if hashlib.sha256(data).hexdigest() == task.file_sha256:
                encoding = xml.encoding_of(data)
                for record in xml.cut(data, xml_shape):
                    yield record, encoding
    else:
        csv_shape = csv_format(contract)

        def records_of(task: _CutTask) -> Iterator[tuple[Record, str]]:
            assert task.header is not None
            digest = hashlib.sha256()
            with task.source.open() as stream:
                while chunk := stream.read(1 << 20):
                    digest.update(chunk)
            if digest.hexdigest() == task.file_sha256:
                with task.source.open() as stream:
                    for record in csv.cut(stream, csv_shape, task.header):
                        yield record, task.header.encoding

    def cut(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for task in tasks[number]:
                    yield from _cut_file(record_type, task, records_of)

    return cut


def _cut_file(
    record_type: str,
    task: _CutTask,
    records_of: Callable[[_CutTask], Iterator[tuple[Record, str]]],
) -> Iterator[pa.RecordBatch]:
    identity = "|".join((record_type, task.dataset, task.file_sha256, task.source.member or ""))
    rows: list[tuple[Any, ...]] = []
    size = 0
    try:
        for record, encoding in records_of(task):
            raw = record.payload_bytes
            text = record.payload.encode("utf-8") if raw is None else raw
            rows.append(
                (
                    record.payload,
                    raw,
                    hashlib.sha256(text).hexdigest(),
                    record.parse_text,
                    record.position,
                    record.byte_offset,
                    record.byte_length,
                    encoding,
                    None if record.error is None else record.error._asdict(),
                    list(record.unparsed),
                    hashlib.sha256(f"{identity}|{record.position}".encode()).hexdigest(),
                    task.source.name,
                    task.file_sha256,
                    task.dataset,
                )
            )
            size += len(text) + 300
            if size > BATCH_BYTES:
                yield _record_batch(rows)
                rows, size = [], 0
    except (FileReadError, OSError):
        # It could be read when it was probed. What it did not yield makes it a failed file.
        return
    if rows:
        yield _record_batch(rows)


def _record_batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = [
        pa.array(column, type=field.type)
        for column, field in zip(zip(*rows, strict=True), _CUT_SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_CUT_SCHEMA)


def _parse(cut: DataFrame, contract: Contract, headers: tuple[str, ...] | None) -> DataFrame:
    """Parse each record's text PERMISSIVE against the contract's schema, every leaf a string."""
    text = F.coalesce(F.col("parse_text"), F.col("payload"))
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": "_corrupt_record",
        "nullValue": "",
    }
    if contract.format == "xml":
        schema = f"{contract.schema_ddl}, _corrupt_record STRING"
        # One record a text: the parser that loses a file's rest after a fault has no rest to lose.
        parsed = F.from_xml(text, schema, {**options, "ignoreNamespace": "true"})
    else:
        assert headers is not None
        names = ", ".join(f"`{name}` STRING" for name in headers)
        feed = contract.feed
        parsed = F.from_csv(
            text,
            f"{names}, _corrupt_record STRING",
            {
                **options,
                "sep": feed.get("delimiter", ","),
                "quote": feed.get("quote", '"'),
                "escape": feed.get("escape", feed.get("quote", '"')),
                "emptyValue": "",
                "maxCharsPerColumn": "-1",
                "maxColumns": "20480",
                # Else the parser ends a record at the first line break inside quotes.
                "lineSep": "\u0000",
                "multiLine": "true",
            },
        )
    return cut.withColumn("parsed", parsed)


def _with_lineage(parsed: DataFrame, contract: Contract, batch: Batch) -> DataFrame:
    corrupt = F.coalesce(
        F.col("parsed._corrupt_record"), F.when(F.col("error").isNotNull(), F.col("payload"))
    )
    refused_by_spark = F.when(
        F.col("parsed._corrupt_record").isNotNull(),
        F.struct(
            F.lit("SparkParser").alias("error_class"),
            F.lit("Spark's parser refuses the record and does not say why").alias("message"),
            F.lit(None).cast("int").alias("line"),
            F.lit(None).cast("int").alias("column"),
        ),
    )

    def sound(column: Column) -> Column:
        # A corrupt record has no fields: what the parser made of its sound parts is a guess.
        return F.when(F.col("_is_sound"), column)

    fields = _columns_of(contract)
    have = set(parsed.select("parsed.*").columns)
    return parsed.withColumn(
        "_is_sound", F.col("parsed._corrupt_record").isNull() & F.col("error").isNull()
    ).select(
        F.col("record_id").alias("_record_id"),
        F.col("dataset").alias("_dataset"),
        F.lit(batch.batch_id).alias("_batch_id"),
        F.col("source_file").alias("_source_file"),
        F.col("file_sha256").alias("_file_sha256"),
        F.col("position").alias("_position"),
        F.col("byte_offset").alias("_byte_offset"),
        F.col("byte_length").alias("_byte_length"),
        F.col("encoding").alias("_encoding"),
        F.lit(batch.started_at).alias("_ingested_at"),
        F.col("payload_sha256").alias("_payload_sha256"),
        F.lit(contract.read_contract).alias("_read_contract"),
        F.lit(batch.pipeline_version).alias("_pipeline_version"),
        corrupt.alias("_corrupt_record"),
        F.coalesce(F.col("error"), refused_by_spark).alias("_parse_error"),
        F.col("unparsed").alias("_unparsed"),
        F.col("payload"),
        F.col("payload_bytes").alias("_payload_bytes"),
        *(
            (sound(F.col(f"parsed.`{name}`")) if name in have else F.lit(None).cast("string")).alias(
                name
            )
            for name in fields
        ),
    )


def _columns_of(contract: Contract) -> list[str]:
    from ingest.schema import parse_ddl

    root = parse_ddl(contract.schema_ddl)
    return [*root.children, *(f"_{name}" for name in sorted(root.attributes))]


def captured(lake: Lake, contract: Contract, batch: Batch) -> dict[str, tuple[int, int]]:
    """Count what a batch left in a Bronze table, read from the table itself and without Spark.

    Returns:
        Per source file: records, and how many of these are corrupt.
    """
    import pyarrow.compute as pc
    from deltalake import DeltaTable

    path = lake.table_path("bronze", contract.record_type)
    if not (path / "_delta_log").is_dir():
        return {}
    table = (
        DeltaTable(str(path))
        .to_pyarrow_dataset()
        .to_table(
            columns={
                "source_file": pc.field("_source_file"),
                "corrupt": pc.field("_corrupt_record").is_valid(),
            },
            filter=pc.field("_batch_id") == batch.batch_id,
        )
    )
    counts: dict[str, tuple[int, int]] = {}
    for name, corrupt in zip(
        table.column("source_file").to_pylist(), table.column("corrupt").to_pylist(), strict=True
    ):
        records, damaged = counts.get(name, (0, 0))
        counts[name] = (records + 1, damaged + bool(corrupt))
    return counts
