"""The tables of the messages job in the lake, and how a target's table follows its recorded schema."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
from delta.tables import DeltaTable as SparkTable
from deltalake import CommitProperties, DeltaTable, Schema, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ingest.errors import LakeInUseError
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
from ingest.messages.targets import Target
from ingest.messages.windows import Window, window_of

MESSAGES_DDL = (
    f"{RECEIVED_DDL}, is_repeat BOOLEAN, processed_timestamp TIMESTAMP, receipt BIGINT, "
    "_pipeline_version STRING"
)
WAITING_DDL = (
    "_message_id STRING, _record_id STRING, target STRING, key STRING, event_ts TIMESTAMP, "
    "processed_timestamp TIMESTAMP, retry_number INT, error STRING, tried_at TIMESTAMP, payload STRING, "
    "_source_file STRING, _file_sha256 STRING, _position BIGINT"
)
BAD_DATA_DDL = (
    "bad_data STRING, target_dest STRING, error STRING, insert_time TIMESTAMP, retry_number INT, "
    "key STRING, event_ts TIMESTAMP, processed_timestamp TIMESTAMP, _message_id STRING, "
    "_record_id STRING, _source_file STRING, _file_sha256 STRING, _position BIGINT, "
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
# Statistics stand in Delta's log for good, so no column that holds a message's values has any.
_STATISTICS = {
    "messages": "_record_id,_message_id,receipt,processed_timestamp,_file_sha256,_position",
    "messages_waiting": "_message_id,_record_id,processed_timestamp,retry_number",
    "bad_data": "_message_id,_record_id,insert_time",
}
_APPEND_ONLY = {"messages", "bad_data"}
TARGET_PROPERTIES = {
    # Columns are widened in place; a date into a time without a zone among them.
    "delta.enableTypeWidening": "true",
    "delta.feature.timestampNtz": "supported",
    "delta.dataSkippingStatsColumns": "_message_id,_record_id,_processed_timestamp,_landed_at",
}


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
        """Create the history of schemas if it is not there yet; no Spark is needed for it."""
        path = self._lake.table_path("bronze", "schema_changes")
        if not is_table(path):
            path.mkdir(parents=True, exist_ok=True)
            DeltaTable.create(
                str(path),
                Schema.from_arrow(_CHANGES),
                mode="ignore",
                configuration={"delta.appendOnly": "true"},
            )

    def create_target(self, target: Target) -> None:
        """Create a target's table, or let it follow what was added to the target's contract."""
        if is_table(self._lake.table_path("silver", target.name)):
            self.migrate(target, self.recorded(target))
        else:
            ddl = columns_written(with_ours(self.recorded(target)))
            self._create("silver", target.name, ddl, TARGET_PROPERTIES)

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

    def known_files(self) -> set[str]:
        """sha256 of the contents that were received: what a receipt's commit brought, whole."""
        if not is_table(self._lake.table_path("bronze", "messages")):
            return set()
        rows = self.read("bronze", "messages").select("_file_sha256").distinct().collect()
        return {row[0] for row in rows}

    def insert(self, schema: str, name: str, rows: DataFrame, key: str) -> None:
        """Write the rows whose key is not there yet, in one commit.

        By MERGE also where nothing can be there: a process that was killed may leave a JVM that commits
        a moment later, and Delta then refuses the second of the two commits.
        """
        table = SparkTable.forPath(self._spark, str(self._lake.table_path(schema, name)))
        values = {f"`{column}`": f"s.`{column}`" for column in rows.columns}
        merging = table.alias("t").merge(rows.alias("s"), f"t.`{key}` = s.`{key}`")
        merging.whenNotMatchedInsert(values=values).execute()  # type: ignore[arg-type]

    def target_names(self) -> list[str]:
        """Targets that any message was received for, configured or no longer, and that have a table."""
        rows = (
            self.read("bronze", "messages").where("stage is null").select("target").distinct().collect()
        )
        names = sorted(row[0] for row in rows)
        return [name for name in names if is_table(self._lake.table_path("silver", name))]

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
        path = self._lake.table_path("bronze", "schema_changes")
        found = []
        if is_table(path):
            rows = (
                DeltaTable(str(path))
                .to_pyarrow_dataset()
                .to_table(columns=["target", "outcome", "window_start", "after"])
            )
            found = [
                (row["window_start"], row["after"])
                for row in rows.to_pylist()
                if row["target"] == target.name and row["outcome"] == "applied"
            ]
        if not found:
            return target.schema
        last = parse_type(max(found)[1])
        assert isinstance(last, StructType)
        # What the contract was given since. Where the two conflict, the history stays.
        merged = merge(last, target.schema).schema
        assert isinstance(merged, StructType)
        return merged

    def was_changed_in(self, target: Target, window: Window) -> bool:
        """Whether a target was altered at that window's end already."""
        return _change_id(target.name, window, "") in self._change_ids()

    def migrate(self, target: Target, schema: StructType) -> None:
        """Let a target's table hold a schema, in one commit; none where it does already.

        Raises:
            LakeInUseError: Somebody else gave the table a column that conflicts with the history.
        """
        have = plain(self.read("silver", target.name).schema)
        assert isinstance(have, StructType)
        merged = merge(have, with_ours(schema))
        if merged.conflicts:
            raise LakeInUseError(
                f"silver.{target.name} has a column that its history in bronze.schema_changes does not: "
                f"{merged.conflicts[0]}. Its messages wait. Alter the table back, and run again."
            )
        if merged.schema == have:
            return
        # An empty append that may change the schema is the one statement that adds and widens, also
        # inside objects and lists, in a single commit.
        assert isinstance(merged.schema, StructType)
        empty = self._spark.createDataFrame([], merged.schema)
        path = str(self._lake.table_path("silver", target.name))
        empty.write.format("delta").mode("append").option("mergeSchema", "true").save(path)

    def record(self, target: Target, window: Window, plan: Plan, now: datetime) -> None:
        """Write into the history what a window's end changed."""
        row = {
            "change_id": _change_id(target.name, window, ""),
            "target": target.name,
            "window_start": window.start,
            "window_end": window.end,
            "outcome": "applied",
            "before": written(plan.before),
            "after": written(plan.after),
            "changes": changes(plan.before, plan.after),
            "messages": sum(request.messages for request in plan.granted),
            "message_ids": [i for request in plan.granted for i in request.examples],
            "applied_at": now,
            "pipeline_version": self._version,
        }
        self._append_changes([row])

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
            schema = written(schemas[item.target])
            rows.append(
                {
                    "change_id": _change_id(item.target, window, item.why),
                    "target": item.target,
                    "window_start": window.start,
                    "window_end": window.end,
                    "outcome": "refused",
                    "before": schema,
                    "after": schema,
                    "changes": [],
                    "why": item.why,
                    "messages": item.messages,
                    "message_ids": list(item.examples),
                    "applied_at": now,
                    "pipeline_version": self._version,
                }
            )
        self._append_changes(rows)

    def _change_ids(self) -> set[str]:
        path = self._lake.table_path("bronze", "schema_changes")
        table = DeltaTable(str(path)).to_pyarrow_dataset().to_table(columns=["change_id"])
        return set(table.column("change_id").to_pylist())

    def _append_changes(self, rows: Sequence[Mapping[str, Any]]) -> None:
        path = str(self._lake.table_path("bronze", "schema_changes"))
        version = DeltaTable(path).version()
        known = self._change_ids()
        new = [row for row in rows if row["change_id"] not in known]
        if not new:
            return
        try:
            write_deltalake(
                DeltaTable(path, version=version),
                pa.Table.from_pylist(new, _CHANGES),
                mode="append",
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except CommitFailedError as error:
            raise LakeInUseError(
                f"{path} was written by somebody else at the same moment. Nothing is lost; run again."
            ) from error


def _change_id(target: str, window: Window, what: str) -> str:
    text = f"{target}|{window.start.isoformat()}|{window.end.isoformat()}|{what}"
    return hashlib.sha256(text.encode()).hexdigest()
