"""Workers that compare messages with their targets' schemas, and that type those that fit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark's own examples use)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from ingest.messages.envelope import parse
from ingest.messages.fitting import Request, ask, value_as
from ingest.messages.schemas import OUR_COLUMNS, PAYLOAD, with_ours
from ingest.messages.targets import Target
from ingest.messages.windows import from_micros, is_past_retry, retry_number, window_of

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

VERDICT_DDL = (
    "_message_id STRING, fits BOOLEAN, wanted STRING, error STRING, retry_number INT, "
    "is_past_retry BOOLEAN, window_start TIMESTAMP, window_has_ended BOOLEAN"
)
_VERDICT = pa.schema(
    [
        ("_message_id", pa.string()),
        ("fits", pa.bool_()),
        # The fields that lack or must be wider, as Spark's JSON; null where a conflict makes it idle.
        ("wanted", pa.string()),
        ("error", pa.string()),
        ("retry_number", pa.int32()),
        ("is_past_retry", pa.bool_()),
        # The window in which the message came.
        ("window_start", pa.timestamp("us", tz="UTC")),
        ("window_has_ended", pa.bool_()),
    ]
)
# How many ids of messages the history keeps for each shape.
EXAMPLES = 20


@dataclass(frozen=True)
class Judge:
    """What messages of one target are compared with, and how long they may wait."""

    schema: StructType
    target: Target

    def verdict(self, row: Mapping[str, Any], now: datetime) -> dict[str, Any]:
        """Compare one message.

        Args:
            row: With _message_id, payload and processed_timestamp.
            now: When it is tried.

        Returns:
            A row of VERDICT_DDL.
        """
        found = ask(self.schema, parse(row["payload"])["data"], self.target.max_columns)
        came, width = row["processed_timestamp"], self.target.schema_window_minutes
        window = window_of(came, width)
        return {
            "_message_id": row["_message_id"],
            "fits": found.fits,
            "wanted": found.wanted.json() if found.wanted.fields and not found.conflicts else None,
            "error": None if found.fits else found.error(self.schema),
            "retry_number": retry_number(came, now, width),
            "is_past_retry": is_past_retry(came, now, self.target.retry_minutes),
            "window_start": window.start,
            "window_has_ended": window.end <= now,
        }


def judge(messages: DataFrame, judges: Mapping[str, Judge], now: datetime) -> DataFrame:
    """Compare messages with the schemas of their targets.

    Args:
        messages: With _message_id, target, payload and processed_timestamp.
        judges: By target. Messages for others do not fit.
        now: When they are tried.

    Returns:
        The messages with the columns of VERDICT_DDL.
    """
    looked_at = messages.select("_message_id", "target", "payload", "processed_timestamp")
    return messages.join(looked_at.mapInArrow(judging(judges, now), VERDICT_DDL), "_message_id")


def judging(judges: Mapping[str, Judge], now: datetime) -> Batches:
    """Make what a worker runs: messages in, rows of VERDICT_DDL out."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [_verdict(judges.get(row["target"]), row, now) for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, _VERDICT)

    return run


def _verdict(by: Judge | None, row: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    if by is not None:
        return by.verdict(row, now)
    return {
        "_message_id": row["_message_id"],
        "fits": False,
        "wanted": None,
        "error": f"TARGET_OUT: target {row['target']} is not configured any more",
        "retry_number": 0,
        "is_past_retry": False,
        "window_start": row["processed_timestamp"],
        "window_has_ended": False,
    }


def _of_one_kind(judged: DataFrame, *columns: str) -> DataFrame:
    """Messages that do not fit and whose window has ended, by what they have in common."""
    return (
        judged.where("not fits and window_has_ended")
        .groupBy("target", *columns)
        .agg(
            F.min(F.struct("processed_timestamp", "_source_file", "_position")).alias("first"),
            F.count("*").alias("messages"),
            F.slice(F.sort_array(F.collect_list("_message_id")), 1, EXAMPLES).alias("examples"),
        )
        .orderBy("target", "first", *columns)
        .drop("first")
    )


def requests(judged: DataFrame) -> dict[str, list[Request]]:
    """What messages ask for that could be granted, by target, in the order in which each shape came."""
    found: dict[str, list[Request]] = {}
    for row in _of_one_kind(judged.where("wanted is not null"), "wanted").collect():
        wanted = StructType.fromJson(json.loads(row["wanted"]))
        request = Request(wanted, row["messages"], tuple(row["examples"]))
        found.setdefault(row["target"], []).append(request)
    return found


@dataclass(frozen=True)
class Refused:
    """Why messages of one target that came in one window fit no schema that it could get."""

    target: str
    window_start: datetime
    why: str
    messages: int
    examples: tuple[str, ...]


def refusals(judged: DataFrame) -> list[Refused]:
    """The reasons of messages that no change of a schema helps, by target and window."""
    judged = judged.where("wanted is null").withColumn("began", F.unix_micros("window_start"))
    rows = _of_one_kind(judged, "began", "error").collect()
    return [
        Refused(
            row["target"],
            from_micros(row["began"]),
            row["error"],
            row["messages"],
            tuple(row["examples"]),
        )
        for row in rows
    ]


def typed(messages: DataFrame, schema: StructType) -> DataFrame:
    """Give the rows of a target that messages make which fit its schema, and their text as ``PAYLOAD``.

    Args:
        messages: With the job's own columns of a target, and payload.
        schema: Without the job's own columns.
    """
    return messages.select(*OUR_COLUMNS, "payload").mapInArrow(typing(schema), _with_payload(schema))


def _with_payload(schema: StructType) -> StructType:
    return StructType([*with_ours(schema).fields, StructField(PAYLOAD, StringType())])


def typing(schema: StructType) -> Batches:
    """Make what a worker runs: messages that fit in, rows of a target out."""
    out = _with_payload(schema)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrow = to_arrow_schema(out, timezone="UTC")
        for batch in batches:
            rows = []
            for row in batch.to_pylist():
                text = row.pop("payload")
                rows.append({**row, **value_as(parse(text)["data"], schema), PAYLOAD: text})
            yield pa.RecordBatch.from_pylist(rows, arrow)

    return run
