"""The tables of the messages job in the lake, and how a target's table follows its recorded schema."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from delta.tables import DeltaTable as SparkTable
from deltalake import CommitProperties, DeltaTable, Schema, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark's own examples use)
from pyspark.sql.types import StructType

from ingest.errors import ContractError, LakeInUseError
from ingest.lake import Lake, is_table
from ingest.messages.fitting import Plan
from ingest.messages.judging import Refused
from ingest.messages.receiving import RECEIVED_DDL
from ingest.messages.schemas import (
    changes,
    columns_written,
    merge,
    parse_type,
    plain,
    with_ours,
    written,
)
from ingest.messages.targets import QUARANTINE, Target
from ingest.messages.verdicts import quarantine_schema
from ingest.messages.windows import Window, window_of

MESSAGES_DDL = (
    f"{RECEIVED_DDL}, is_repeat BOOLEAN, processed_timestamp TIMESTAMP, receipt BIGINT, "
    "_pipeline_version STRING"
)
WAITING_DDL = (
    "_message_id STRING, _record_id STRING, target STRING, key STRING, event_ts TIMESTAMP, "
    "processed_timestamp TIMESTAMP, retry_number INT, error STRING, tried_at TIMESTAMP, payload STRING, "
    "_attempt INT, _source_file STRING, _file_sha256 STRING, _position BIGINT"
)
BAD_DATA_DDL = (
    "bad_data STRING, target_dest STRING, error STRING, insert_time TIMESTAMP, retry_number INT, "
    "key STRING, event_ts TIMESTAMP, processed_timestamp TIMESTAMP, _message_id STRING, "
    "_record_id STRING, _attempt INT, _source_file STRING, _file_sha256 STRING, _position BIGINT, "
    "_pipeline_version STRING"
)
_INSTANT = pa.timestamp("us", tz="UTC")
_CHANGES = pa.schema(
    [
        ("change_id", pa.string()),
        ("target", pa.string()),
        ("window_start", _INSTANT),
        ("window_end", _INSTANT),
        ("outcome", pa.string()),
        ("before", pa.string()),
        ("after", pa.string()),
        ("changes", pa.list_(pa.string())),
        ("why", pa.string()),
        ("messages", pa.int64()),
        ("message_ids", pa.list_(pa.string())),
        ("applied_at", _INSTANT),
        ("pipeline_version", pa.string()),
    ]
)
_FILES = pa.schema(
    [
        ("file_sha256", pa.string()),
        ("source_file", pa.string()),
        ("receipt", pa.int64()),
        ("lines", pa.int64()),
        ("repeats", pa.int64()),
        ("refused", pa.int64()),
        ("received_at", _INSTANT),
        ("pipeline_version", pa.string()),
    ]
)
_WITHOUT_SPARK = {"schema_changes": _CHANGES, "message_files": _FILES}
# Statistics stand in Delta's log for good, so no column that holds a message's values has any, but for
# event_ts: by it a run finds the few files in which what it received may have been told before.
_STATISTICS = {
    "messages": "_record_id,_message_id,receipt,processed_timestamp,event_ts,_file_sha256,_position",
    "messages_waiting": "_message_id,_record_id,processed_timestamp,retry_number",
    "bad_data": "_message_id,_record_id,processed_timestamp,insert_time",
}
_APPEND_ONLY = {"messages", "bad_data"}
TARGET_PROPERTIES = {
    # Columns are widened in place; a date into a time without a zone among them.
    "delta.enableTypeWidening": "true",
    "delta.feature.timestampNtz": "supported",
    "delta.dataSkippingStatsColumns": "_message_id,_record_id,_processed_timestamp,_landed_at",
}


@dataclass(frozen=True)
class Receipts:
    """What was received so far.

    Attributes:
        contents: sha256 of the contents.
        last: Number of the last receipt, 0 before the first.
        lines: Lines.
        repeats: Of these, lines that repeat a message.
        refused: Messages refused at once.
    """

    contents: frozenset[str]
    last: int
    lines: int
    repeats: int
    refused: int


@dataclass(frozen=True)
class Span:
    """From the first to the last instant at which some messages were received, both part of it."""

    first: datetime
    last: datetime

    def holds(self, column: Column) -> Column:
        """Whether an instant is in it."""
        # As SQL, because Spark takes instants of Python before 1582 for days of another calendar.
        first, last = (at.isoformat(timespec="microseconds") for at in (self.first, self.last))
        return column.between(F.expr(f"timestamp'{first}'"), F.expr(f"timestamp'{last}'"))


class Tables:
    """The job's tables in one lake."""

    def __init__(self, spark: SparkSession, lake: Lake, pipeline_version: str) -> None:
        self._spark = spark
        self._lake = lake
        self._version = pipeline_version

    def create(self) -> None:
        """Create the job's own tables that are not there yet, empty."""
        for name, ddl in (
            ("messages", MESSAGES_DDL),
            ("messages_waiting", WAITING_DDL),
            ("bad_data", BAD_DATA_DDL),
        ):
            properties = {"delta.dataSkippingStatsColumns": _STATISTICS[name]}
            if name in _APPEND_ONLY:
                properties["delta.appendOnly"] = "true"
            self._create("bronze", name, ddl, properties)
        self.create_history()

    def create_history(self) -> None:
        """Create the tables that need no Spark if they are not there yet."""
        for name, schema in _WITHOUT_SPARK.items():
            path = self._lake.table_path("bronze", name)
            if not is_table(path):
                path.mkdir(parents=True, exist_ok=True)
                DeltaTable.create(
                    str(path),
                    Schema.from_arrow(schema),
                    mode="ignore",
                    configuration={"delta.appendOnly": "true"},
                )

    def create_target(self, target: Target, now: datetime) -> None:
        """Create a target's tables, or let them follow what was added to the target's contract.

        Raises:
            ContractError: The contract conflicts with what the target has become.
        """
        last = self._last(target.name)
        schema = self.recorded(target)
        if last is None:
            self._note(target, "created", StructType([]), schema, now)
        elif conflicts := merge(last, target.schema).conflicts:
            raise ContractError(
                f"the contract of target {target.name} and what its messages made of it conflict: "
                f"{conflicts[0]}. Its messages wait. Give the column the type it has, or another name; "
                f"bronze.schema_changes says what the target is."
            )
        for name in target.tables:
            if not is_table(self._lake.table_path("silver", name)):
                ddl = columns_written(_table_schema(target, name, schema))
                self._create("silver", name, ddl, TARGET_PROPERTIES)
        self.migrate(target, schema)
        if last is not None and schema != last:
            self._note(target, "contract", last, schema, now)

    def _create(self, schema: str, name: str, ddl: str, properties: Mapping[str, str]) -> None:
        path = self._lake.table_path(schema, name)
        if is_table(path):
            return
        told = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        where = str(path).replace("`", "``")
        self._spark.sql(f"create table delta.`{where}` ({ddl}) using delta tblproperties ({told})")

    def read(self, schema: str, name: str) -> DataFrame:
        """A table as it is now."""
        return self._spark.read.format("delta").load(str(self._lake.table_path(schema, name)))

    def has(self, schema: str, name: str) -> bool:
        """Whether a table is there."""
        return is_table(self._lake.table_path(schema, name))

    def receipts(self) -> Receipts:
        """What was received, as far as ``note_receipts`` has come."""
        rows = self._read_small(
            "message_files", ["file_sha256", "receipt", "lines", "repeats", "refused"]
        )
        return Receipts(
            frozenset(row["file_sha256"] for row in rows),
            max((row["receipt"] for row in rows), default=0),
            sum(row["lines"] for row in rows),
            sum(row["repeats"] for row in rows),
            sum(row["refused"] for row in rows),
        )

    def receive(self, rows: DataFrame, receipt: int) -> None:
        """Append the lines of a receipt, all or none, and once.

        A process that was killed may leave a JVM that commits a moment later: of two commits of one
        receipt Delta takes the first.
        """
        path = str(self._lake.table_path("bronze", "messages"))
        writer = rows.write.format("delta").mode("append")
        writer = writer.option("txnAppId", "messages").option("txnVersion", str(receipt))
        writer.save(path)

    def note_receipts(self, now: datetime, empty: Mapping[str, str]) -> Receipts:
        """Write down the files of receipts that are not written down yet.

        The lines of a receipt come in one commit, so a content is known whole or not at all.

        Args:
            now: When.
            empty: Contents without a line, name by sha256.
        """
        noted = self.receipts()
        found = (
            self.read("bronze", "messages")
            .where(F.col("receipt") > noted.last)
            .groupBy("_file_sha256", "receipt")
            .agg(
                F.min("_source_file").alias("source_file"),
                F.count("*").alias("lines"),
                F.count_if("is_repeat").alias("repeats"),
                F.count_if(F.expr("stage is not null and not is_repeat")).alias("refused"),
            )
            .collect()
        )
        rows = [
            {
                "file_sha256": row["_file_sha256"],
                "source_file": row["source_file"],
                "receipt": row["receipt"],
                "lines": row["lines"],
                "repeats": row["repeats"],
                "refused": row["refused"],
                "received_at": now,
                "pipeline_version": self._version,
            }
            for row in found
        ]
        last = max((row["receipt"] for row in rows), default=noted.last)
        nothing = {"lines": 0, "repeats": 0, "refused": 0, "received_at": now}
        for digest, name in empty.items():
            if digest not in noted.contents:
                row = {"file_sha256": digest, "source_file": name, "receipt": last}
                rows.append({**row, **nothing, "pipeline_version": self._version})
        if not rows:
            return noted
        # A partition of Kafka is received again and again.
        self._append("message_files", ("file_sha256", "receipt"), rows)
        return self.receipts()

    def read_up_to(self, identities: Collection[str]) -> dict[str, int]:
        """How far partitions of Kafka were received.

        Only the last receipt of each is looked at.

        Args:
            identities: Of partitions, see ``Stretch``.

        Returns:
            By identity the offset behind the last record; those are left out of which nothing was
            received.
        """
        last: dict[str, int] = {}
        for row in self._read_small("message_files", ["file_sha256", "receipt"]):
            if row["file_sha256"] in identities:
                last[row["file_sha256"]] = max(row["receipt"], last.get(row["file_sha256"], 0))
        if not last:
            return {}
        found = (
            self.read("bronze", "messages")
            .where(F.col("receipt").isin(sorted(set(last.values()))))
            .where(F.col("_file_sha256").isin(sorted(last)))
            .groupBy("_file_sha256")
            .agg(F.max("_position").alias("position"))
        )
        return {row["_file_sha256"]: row["position"] + 1 for row in found.collect()}

    def insert(self, schema: str, name: str, rows: DataFrame, received: str, span: Span) -> None:
        """Write the messages that are not there yet, in one commit.

        By MERGE also where nothing can be there: a process that was killed may leave a JVM that commits
        a moment later, and Delta then refuses the second of the two commits. Only files with messages
        of the same span of time are looked at.

        Args:
            schema: Of the table.
            name: Of the table.
            rows: With ``_message_id``.
            received: The column that says when a message was received.
            span: From the first to the last of these instants.
        """
        table = SparkTable.forPath(self._spark, str(self._lake.table_path(schema, name)))
        values = {f"`{column}`": f"s.`{column}`" for column in rows.columns}
        is_same = F.expr("t._message_id = s._message_id") & span.holds(F.col(f"t.{received}"))
        merging = table.alias("t").merge(rows.alias("s"), is_same)
        merging.whenNotMatchedInsert(values=values).execute()  # type: ignore[arg-type]

    def target_names(self, targets: Collection[str]) -> list[str]:
        """Targets that have a table, configured or no longer."""
        rows = self._read_small("schema_changes", ["target"])
        names = sorted({row["target"] for row in rows} | set(targets))
        return [name for name in names if self.has("silver", name)]

    def placed(self, target: str, span: Span) -> DataFrame:
        """Ids of the messages in a target's tables that were received in a span of time."""
        found = None
        for name in (target, f"{target}{QUARANTINE}"):
            if self.has("silver", name):
                rows = self.read("silver", name).where(span.holds(F.col("_processed_timestamp")))
                rows = rows.select("_message_id")
                found = rows if found is None else found.unionByName(rows)
        assert found is not None
        return found

    def given_up(self, span: Span) -> DataFrame:
        """Ids of the messages in ``bad_data`` that were received in a span of time."""
        rows = self.read("bronze", "bad_data").where(span.holds(F.col("processed_timestamp")))
        return rows.select("_message_id")

    def update_waiting(self, rows: DataFrame) -> None:
        """Bring the waiting messages up to date: rows with ``waits`` stay or come, others go."""
        table = SparkTable.forPath(self._spark, str(self._lake.table_path("bronze", "messages_waiting")))
        tried = {column: f"s.{column}" for column in ("retry_number", "error", "tried_at")}
        every = {f"`{column}`": f"s.`{column}`" for column in rows.columns if column != "waits"}
        merging = table.alias("t").merge(rows.alias("s"), "t._message_id = s._message_id")
        merging = merging.whenMatchedDelete("not s.waits").whenMatchedUpdate(set=tried)  # type: ignore[arg-type]
        merging.whenNotMatchedInsert("s.waits", every).execute()  # type: ignore[arg-type]

    def forget_waiting(self, ids: DataFrame) -> None:
        """Take messages by their ids from those that wait."""
        table = SparkTable.forPath(self._spark, str(self._lake.table_path("bronze", "messages_waiting")))
        merging = table.alias("t").merge(ids.alias("s"), "t._message_id = s._message_id")
        merging.whenMatchedDelete().execute()

    # -- schemas of targets

    def recorded(self, target: Target) -> StructType:
        """The schema that history and contract say a target has, without the job's own columns.

        They are what counts. The table may be ahead of them, if a run was killed between the two.
        """
        last = self._last(target.name)
        if last is None:
            return target.schema
        # What the contract was given since. Where the two conflict, the history stays.
        merged = merge(last, target.schema).schema
        assert isinstance(merged, StructType)
        return merged

    def _last(self, target: str) -> StructType | None:
        """What the history says a target is; None if it says nothing of it."""
        rows = self._read_small(
            "schema_changes", ["target", "outcome", "applied_at", "window_start", "after"]
        )
        found = sorted(
            (row["applied_at"], row["window_start"], row["after"])
            for row in rows
            if row["target"] == target and row["outcome"] != "refused"
        )
        if not found:
            return None
        # A schema only grows, so all of them together are the last one, whatever the clock did.
        schema = StructType([])
        for _, _, after in found:
            # A contract may have no column, and no other type has so few.
            then = schema if after == written(StructType([])) else parse_type(after)
            assert isinstance(then, StructType)
            merged = merge(schema, then).schema
            assert isinstance(merged, StructType)
            schema = merged
        return schema

    def was_changed_in(self, target: Target, window: Window) -> bool:
        """Whether a target was altered at that window's end already."""
        return _change_id(target.name, window, "") in self._change_ids()

    def migrate(self, target: Target, schema: StructType) -> None:
        """Let a target's table hold a schema, in one commit; none where it does already.

        Raises:
            LakeInUseError: Somebody else gave the table a column that conflicts with the history.
        """
        for name in target.tables:
            have = plain(self.read("silver", name).schema)
            assert isinstance(have, StructType)
            merged = merge(have, _table_schema(target, name, schema))
            if merged.conflicts:
                raise LakeInUseError(
                    f"silver.{name} has a column that its history in bronze.schema_changes does not: "
                    f"{merged.conflicts[0]}. Its messages wait. Alter the table back, and run again."
                )
            if merged.schema == have:
                continue
            # An empty append that may change the schema is the one statement that adds and widens,
            # also inside objects and lists, in a single commit.
            assert isinstance(merged.schema, StructType)
            empty = self._spark.createDataFrame([], merged.schema)
            path = str(self._lake.table_path("silver", name))
            empty.write.format("delta").mode("append").option("mergeSchema", "true").save(path)

    def _note(
        self, target: Target, outcome: str, before: StructType, after: StructType, now: datetime
    ) -> None:
        """Write into the history what no window's end changed."""
        row = self._change(target.name, Window(now, now), outcome, before, after, now)
        self._append("schema_changes", ("change_id",), [row])

    def record(self, target: Target, window: Window, plan: Plan, now: datetime) -> None:
        """Write into the history what a window's end changed."""
        row = {
            **self._change(target.name, window, "applied", plan.before, plan.after, now),
            "change_id": _change_id(target.name, window, ""),
            "messages": sum(request.messages for request in plan.granted),
            "message_ids": [i for request in plan.granted for i in request.examples],
        }
        self._append("schema_changes", ("change_id",), [row])

    def record_refusals(
        self,
        targets: Mapping[str, Target],
        schemas: Mapping[str, StructType],
        refused: Sequence[Refused],
        now: datetime,
    ) -> None:
        """Write into the history why messages cannot be helped; once for each window and reason."""
        rows = []
        for item in refused:
            width = targets[item.target].schema_window_minutes
            window = window_of(item.window_start, width)
            schema = schemas[item.target]
            rows.append(
                {
                    **self._change(item.target, window, "refused", schema, schema, now),
                    "change_id": _change_id(item.target, window, item.why),
                    "why": item.why,
                    "messages": item.messages,
                    "message_ids": list(item.examples),
                }
            )
        self._append("schema_changes", ("change_id",), rows)

    def _change(
        self,
        target: str,
        window: Window,
        outcome: str,
        before: StructType,
        after: StructType,
        now: datetime,
    ) -> dict[str, Any]:
        """A row of the history for which no message asked."""
        return {
            "change_id": _change_id(target, window, outcome),
            "target": target,
            "window_start": window.start,
            "window_end": window.end,
            "outcome": outcome,
            "before": written(before),
            "after": written(after),
            "changes": changes(before, after),
            "messages": 0,
            "message_ids": [],
            "applied_at": now,
            "pipeline_version": self._version,
        }

    def _change_ids(self) -> set[str]:
        return {row["change_id"] for row in self._read_small("schema_changes", ["change_id"])}

    def _read_small(self, name: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Rows of one of the tables that need no Spark; none where it is not there yet."""
        path = self._lake.table_path("bronze", name)
        if not is_table(path):
            return []
        table = DeltaTable(str(path)).to_pyarrow_dataset().to_table(columns=list(columns))
        rows: list[dict[str, Any]] = table.to_pylist()
        return rows

    def _append(self, name: str, key: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        """Append those rows whose key is not there yet, in one commit."""
        path = str(self._lake.table_path("bronze", name))
        version = DeltaTable(path).version()
        known = {tuple(row[part] for part in key) for row in self._read_small(name, key)}
        new = [row for row in rows if tuple(row[part] for part in key) not in known]
        if not new:
            return
        try:
            write_deltalake(
                DeltaTable(path, version=version),
                pa.Table.from_pylist(new, _WITHOUT_SPARK[name]),
                mode="append",
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except CommitFailedError as error:
            raise LakeInUseError(
                f"{path} was written by somebody else at the same moment. Nothing is lost; run again."
            ) from error


def _table_schema(target: Target, name: str, schema: StructType) -> StructType:
    """The schema of one of a target's tables."""
    return with_ours(schema) if name == target.name else quarantine_schema(schema)


def _change_id(target: str, window: Window, what: str) -> str:
    text = f"{target}|{window.start.isoformat()}|{window.end.isoformat()}|{what}"
    return hashlib.sha256(text.encode()).hexdigest()
