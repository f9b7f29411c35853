"""Capture: one Spark job per record type cuts files into records, parses them and appends to Bronze.

Workers read the files themselves: Spark's own listing hides ``_name`` and ``.name``, stumbles over
``:`` and ``%20``, and cannot see into a ZIP.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark's own examples use)

from ingest.capture import csv, xml
from ingest.capture.records import Record
from ingest.capture.streams import ByteStream, Limited
from ingest.contracts import Contract
from ingest.errors import FileReadError
from ingest.lake import Lake, is_table
from ingest.schema import LINEAGE_DDL, parse_ddl
from ingest.session import CORES, register_table
from ingest.sources import ProbedFile, Source, csv_format, xml_format

# A worker hands over records in batches of about this many bytes.
BATCH_BYTES = 4_000_000
# Files are grouped into tasks of about this many bytes. Each task writes a file of hundreds of columns:
# many small tasks cost more than is won when the cores end together.
TASK_BYTES = 32_000_000

_ERROR = "error_class STRING, message STRING, line INT, column INT"
_CUT_DDL = (
    "payload STRING, payload_bytes BINARY, parse_text STRING, position INT, byte_offset BIGINT, "
    f"byte_length BIGINT, error STRUCT<{_ERROR}>, unparsed ARRAY<STRING>, file INT"
)
_CUT_SCHEMA = pa.schema(
    [
        ("payload", pa.string()),
        ("payload_bytes", pa.binary()),
        ("parse_text", pa.string()),
        ("position", pa.int32()),
        ("byte_offset", pa.int64()),
        ("byte_length", pa.int64()),
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
        ("file", pa.int32()),
    ]
)
# What is one text for all records of a file is joined in Spark by the file's number: sent with every
# record it would be several times what the record itself is.
_FILE_DDL = (
    "source_file STRING, file_sha256 STRING, dataset STRING, encoding STRING, identity STRING, "
    "reentries MAP<STRING, STRUCT<supersedes: STRING, attempt: INT>>"
)
_DELTA_TYPES = {"STRING": "string", "INT": "integer", "BIGINT": "long", "TIMESTAMP": "timestamp"}
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
    number: int
    source: Source
    file_sha256: str
    header: csv.Header | None
    span: csv.Span | None


def table_ddl(contract: Contract) -> str:
    """Columns of a record type's Bronze table: lineage first, then evidence, then parsed fields."""
    error = ", ".join(f"{n}: {t}" for n, t in (p.split() for p in _ERROR.split(", ")))
    return (
        f"{LINEAGE_DDL}, _corrupt_record STRING, _parse_error STRUCT<{error}>, "
        f"_unparsed ARRAY<STRING>, payload STRING, _payload_bytes BINARY, {contract.schema_ddl}"
    )


def create_table(spark: SparkSession, lake: Lake, contract: Contract) -> None:
    """Create the Bronze table of a record type where it is not there yet, and tell the catalog of it."""
    path = lake.table_path("bronze", contract.record_type)
    if not is_table(path):
        # Spark's own CREATE TABLE takes seconds when it is the first that Delta does in a process.
        schema = spark.createDataFrame([], table_ddl(contract)).schema
        path.mkdir(parents=True, exist_ok=True)
        DeltaTable.create(
            str(path),
            Schema.from_json(schema.json()),
            mode="ignore",
            configuration={
                "delta.appendOnly": "true",
                "delta.dataSkippingStatsColumns": _STATISTICS,
            },
        )
    else:
        add_lineage(lake, contract)
    register_table(spark, lake, "bronze", contract.record_type)


def add_lineage(lake: Lake, contract: Contract) -> None:
    """Add the lineage columns that a Bronze table of an earlier version lacks; models read them."""
    path = lake.table_path("bronze", contract.record_type)
    if not is_table(path):
        return
    table = DeltaTable(str(path))
    have = {field.name for field in table.schema().fields}
    columns = (text.split() for text in LINEAGE_DDL.split(", "))
    lacking = [
        Field(name, PrimitiveType(_DELTA_TYPES[kind])) for name, kind in columns if name not in have
    ]
    if lacking:
        table.alter.add_columns(lacking)


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
    rows = records_of(_told_apart_by_case(spark), contract, files, batch)
    if rows is None:
        return
    (
        rows.write.format("delta")
        .mode("append")
        # A contract may have gained columns since the table was made.
        .option("mergeSchema", "true")
        .save(str(lake.table_path("bronze", contract.record_type)))
    )


def _told_apart_by_case(spark: SparkSession) -> SparkSession:
    """A session of the same Spark to which names of different case are different names, as in XML.

    Else its parser takes ``<ID>`` for ``<id>``: the last of them wins, and the key of a record is gone.
    """
    session = spark.newSession()
    session.conf.set("spark.sql.caseSensitive", "true")
    return session


def records_of(
    spark: SparkSession, contract: Contract, files: Sequence[ProbedFile], batch: Batch
) -> DataFrame | None:
    """The records of files as rows of the Bronze table; None where there are no files.

    Args:
        spark: The session.
        contract: What the records are.
        files: Files that hold records of this type; a file whose content is no longer what was
            probed gives no row.
        batch: The batch they are of.
    """
    numbers = {file.source: number for number, file in enumerate(files)}
    rows: DataFrame | None = None
    for headers, group in _by_header(files, numbers).items():
        cut = spark.range(0, len(group), 1, len(group)).mapInArrow(_cutter(contract, group), _CUT_DDL)
        # The files of one batch may lack different columns; with lineage, all rows have one shape.
        parsed = _with_file(_parse(cut, contract, headers), contract, files)
        piece = _with_lineage(parsed, contract, batch)
        rows = piece if rows is None else rows.unionByName(piece)
    return rows


def _by_header(
    files: Sequence[ProbedFile], numbers: Mapping[Source, int]
) -> dict[tuple[str, ...] | None, list[list[_CutTask]]]:
    """Group files whose columns stand in one order, and within these into tasks by size."""
    groups: dict[tuple[str, ...] | None, list[ProbedFile]] = {}
    for file in files:
        key = parse_columns(file.header) if file.header else None
        groups.setdefault(key, []).append(file)
    return {key: _tasks(group, numbers) for key, group in groups.items()}


def parse_columns(header: csv.Header) -> tuple[str, ...]:
    """Names to parse a file's values with, in their order; what the contract lacks is named apart."""
    return tuple(
        name if name is not None else f"_extra_{number}"
        for number, name in enumerate(header.columns, start=1)
    )


def _tasks(files: Sequence[ProbedFile], numbers: Mapping[Source, int]) -> list[list[_CutTask]]:
    units = []
    for file in files:
        # One span is the whole file, and that is known by a better sum.
        spans: list[csv.Span | None] = [None]
        if len(file.spans) > 1:
            spans = [*file.spans]
        for span in spans:
            task = _CutTask(numbers[file.source], file.source, file.file_sha256, file.header, span)
            units.append((span.length if span else file.size_bytes, task))
    total = sum(size for size, _ in units)
    wanted = max(1, min(len(units), max(CORES, total // TASK_BYTES)))
    tasks: list[list[_CutTask]] = [[] for _ in range(wanted)]
    loads = [0] * wanted
    for size, task in sorted(units, key=lambda unit: (-unit[0], unit[1].source.name)):
        lightest = loads.index(min(loads))
        loads[lightest] += size + 100_000
        tasks[lightest].append(task)
    return tasks


def _cutter(
    contract: Contract, tasks: list[list[_CutTask]]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that a worker runs: task numbers in, cut records out."""
    pieces_of: Callable[[_CutTask], Iterator[tuple[csv.Block | None, Iterable[Record]]]]
    if contract.format == "xml":
        xml_shape = xml_format(contract)

        def pieces_of(task: _CutTask) -> Iterator[tuple[csv.Block | None, Iterable[Record]]]:
            data = task.source.read()
            # What changed since it was probed is not what `files` says it is. It yields nothing,
            # and the missing records make the file a failed one.
            if hashlib.sha256(data).hexdigest() == task.file_sha256:
                for record in xml.cut(data, xml_shape):
                    yield None, (record,)
    else:
        csv_shape = csv_format(contract)

        def pieces_of(task: _CutTask) -> Iterator[tuple[csv.Block | None, Iterable[Record]]]:
            assert task.header is not None
            if task.span is not None:
                with task.source.open() as stream:
                    stream.seek(task.span.offset)
                    if _crc32(stream, task.span.length) == task.span.crc32:
                        stream.seek(task.span.offset)
                        yield from csv.pieces(stream, csv_shape, task.header, task.span)
                return
            digest = hashlib.sha256()
            with task.source.open() as stream:
                while chunk := stream.read(1 << 20):
                    digest.update(chunk)
            if digest.hexdigest() == task.file_sha256:
                with task.source.open() as stream:
                    yield from csv.pieces(stream, csv_shape, task.header)

    def cut(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for task in tasks[number]:
                    yield from _cut_file(task, pieces_of)

    return cut


def _crc32(stream: ByteStream, size: int) -> int:
    part = Limited(stream, size)
    crc = 0
    while chunk := part.read(1 << 20):
        crc = zlib.crc32(chunk, crc)
    return crc


def _cut_file(
    task: _CutTask,
    pieces_of: Callable[[_CutTask], Iterator[tuple[csv.Block | None, Iterable[Record]]]],
) -> Iterator[pa.RecordBatch]:
    rows: list[tuple[Any, ...]] = []
    size = 0
    try:
        for block, records in pieces_of(task):
            if block is not None and len(block.positions):
                yield _block_batch(block, task.number)
            for record in records:
                rows.append(
                    (
                        record.payload,
                        record.payload_bytes,
                        record.parse_text,
                        record.position,
                        record.byte_offset,
                        record.byte_length,
                        None if record.error is None else record.error._asdict(),
                        list(record.unparsed),
                        task.number,
                    )
                )
                size += record.byte_length + 300
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


def _block_batch(block: csv.Block, file: int) -> pa.RecordBatch:
    """A block's records as columns, without a look at each."""
    rows = len(block.positions)
    payload = pa.StringArray.from_buffers(
        rows, pa.py_buffer(block.bounds.astype(np.int32)), pa.py_buffer(block.text)
    )
    if block.unparsed is None:
        nothing = _numbers(np.zeros(rows + 1, dtype=np.int32), pa.int32())
        unparsed = pa.ListArray.from_arrays(nothing, pa.nulls(0, pa.string()))
    else:
        unparsed = pa.array(map(list, block.unparsed), type=pa.list_(pa.string()))
    return pa.RecordBatch.from_arrays(
        [
            payload,
            pa.nulls(rows, pa.binary()),
            pa.nulls(rows, pa.string()),
            _numbers(block.positions.astype(np.int32), pa.int32()),
            _numbers(block.offsets, pa.int64()),
            _numbers(block.lengths, pa.int64()),
            pa.nulls(rows, _CUT_SCHEMA.field("error").type),
            unparsed,
            _numbers(np.full(rows, file, dtype=np.int32), pa.int32()),
        ],
        schema=_CUT_SCHEMA,
    )


def _numbers(values: npt.NDArray[Any], type_: pa.DataType) -> pa.Array:
    # pa.array would import pandas first, which takes most of a second.
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _with_file(parsed: DataFrame, contract: Contract, files: Sequence[ProbedFile]) -> DataFrame:
    """Add what is the same for all records of a file, found by the file's number."""
    known = [
        {
            "source_file": file.source.name,
            "file_sha256": file.file_sha256,
            "dataset": file.dataset or "",
            "encoding": file.encoding,
            "identity": "|".join(
                (contract.record_type, file.dataset or "", file.file_sha256, file.source.member or "")
            ),
            "reentries": {
                str(position): {"supersedes": record_id, "attempt": attempt}
                for position, (record_id, attempt) in file.reentries.items()
            },
        }
        for file in files
    ]
    # One literal, worked out once when the statement is planned.
    literal = F.from_json(F.lit(json.dumps(known)), f"ARRAY<STRUCT<{_FILE_DDL}>>")
    return parsed.withColumn("file", F.get(literal, F.col("file")))


_PARSE_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "_corrupt_record",
    "nullValue": "",
}


def _parse(cut: DataFrame, contract: Contract, headers: tuple[str, ...] | None) -> DataFrame:
    """Parse each record's text PERMISSIVE against the contract's schema, every leaf a string."""
    text = F.coalesce(F.col("parse_text"), F.col("payload"))
    if contract.format == "xml":
        schema = f"{contract.schema_ddl}, _corrupt_record STRING"
        # One record a text: the parser that loses a file's rest after a fault has no rest to lose.
        parsed = F.from_xml(text, schema, {**_PARSE_OPTIONS, "ignoreNamespace": "true"})
    else:
        assert headers is not None
        return parse_csv(cut, contract, headers)
    return cut.withColumn("parsed", parsed)


def parse_csv(cut: DataFrame, contract: Contract, headers: tuple[str, ...]) -> DataFrame:
    """Parse CSV records; those without a quote need no parser, and splitting is twice as quick."""
    fmt = csv_format(contract)
    names = ", ".join(f"`{name}` STRING" for name in headers)
    parsed = F.from_csv(
        "payload",
        f"{names}, _corrupt_record STRING",
        {
            **_PARSE_OPTIONS,
            "sep": fmt.delimiter,
            "quote": fmt.quote,
            "escape": fmt.escape,
            "emptyValue": "",
            "maxCharsPerColumn": "-1",
            "maxColumns": "20480",
            # Else the parser ends a record at the first line break inside quotes.
            "lineSep": "\u0000",
            "multiLine": "true",
        },
    )
    cells = F.split("payload", re.escape(fmt.delimiter), -1)
    if fmt.quote:
        cells = F.when(~F.col("payload").contains(fmt.quote), cells)
    split = F.struct(
        *(
            F.nullif(F.get(F.col("cells"), F.lit(i)), F.lit("")).alias(name)
            for i, name in enumerate(headers)
        ),
        F.lit(None).cast("string").alias("_corrupt_record"),
    )
    return (
        cut.withColumn("cells", cells)
        .withColumn("parsed", F.when(F.col("cells").isNull(), parsed).otherwise(split))
        .drop("cells")
    )


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

    reentry = F.try_element_at("file.reentries", F.col("position").cast("string"))
    fields = _columns_of(contract)
    have = set(parsed.select("parsed.*").columns)
    return parsed.withColumn(
        "_is_sound", F.col("parsed._corrupt_record").isNull() & F.col("error").isNull()
    ).select(
        F.sha2(F.concat("file.identity", F.lit("|"), F.col("position")), 256).alias("_record_id"),
        F.col("file.dataset").alias("_dataset"),
        F.lit(batch.batch_id).alias("_batch_id"),
        F.col("file.source_file").alias("_source_file"),
        F.col("file.file_sha256").alias("_file_sha256"),
        F.col("position").alias("_position"),
        F.col("byte_offset").alias("_byte_offset"),
        F.col("byte_length").alias("_byte_length"),
        F.col("file.encoding").alias("_encoding"),
        F.lit(batch.started_at).alias("_ingested_at"),
        F.sha2(F.coalesce("payload_bytes", F.col("payload").cast("binary")), 256).alias(
            "_payload_sha256"
        ),
        F.lit(contract.read_contract).alias("_read_contract"),
        F.lit(batch.pipeline_version).alias("_pipeline_version"),
        reentry["supersedes"].alias("_supersedes"),
        F.coalesce(reentry["attempt"], F.lit(1)).alias("_attempt"),
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
    root = parse_ddl(contract.schema_ddl)
    return [*root.children, *(f"_{name}" for name in sorted(root.attributes))]


def captured(lake: Lake, contract: Contract, batch: Batch) -> dict[str, tuple[int, int]]:
    """Count what a batch left in a Bronze table, read from the table itself and without Spark.

    Returns:
        Per source file: records, and how many of these are corrupt.
    """
    path = lake.table_path("bronze", contract.record_type)
    if not is_table(path):
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
