"""A lake's folders and the small tables that ingest keeps in them without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from arro3.core import Array, DataType, Table
from deltalake import CommitProperties, DeltaTable, Schema, write_deltalake
from deltalake.exceptions import DeltaError

SCHEMAS = ("bronze", "silver", "marts")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_INSTANT = pa.timestamp("us", tz="UTC")

FILES = pa.schema(
    [
        ("source_file", pa.string()),
        ("file_sha256", pa.string()),
        ("size_bytes", pa.int64()),
        ("modified_at", _INSTANT),
        ("dataset", pa.string()),
        ("record_type", pa.string()),
        ("batch_id", pa.string()),
        ("ingested_at", _INSTANT),
        ("records_found", pa.int64()),
        ("records", pa.int64()),
        ("corrupt_records", pa.int64()),
        ("status", pa.string()),
        ("error_type", pa.string()),
        ("error_message", pa.string()),
    ]
)
BATCHES = pa.schema(
    [
        ("batch_id", pa.string()),
        ("started_at", _INSTANT),
        ("finished_at", _INSTANT),
        ("command", pa.string()),
        ("pipeline_version", pa.string()),
        ("files_ingested", pa.int64()),
        ("files_failed", pa.int64()),
        ("files_ignored", pa.int64()),
        ("records", pa.int64()),
        ("corrupt_records", pa.int64()),
        ("status", pa.string()),
    ]
)
RUN_FAILURES = pa.schema(
    [
        ("failure_id", pa.string()),
        ("run_id", pa.string()),
        ("node", pa.string()),
        ("stage", pa.string()),
        ("error_type", pa.string()),
        ("error_message", pa.string()),
        ("failed_at", _INSTANT),
        ("pipeline_version", pa.string()),
        ("source_file", pa.string()),
        ("file_sha256", pa.string()),
    ]
)
QUARANTINE_EVENTS = pa.schema(
    [
        ("event_id", pa.string()),
        ("record_id", pa.string()),
        ("record_type", pa.string()),
        ("dataset", pa.string()),
        ("event_type", pa.string()),
        ("actor", pa.string()),
        ("reason", pa.string()),
        ("evidence", pa.string()),
        ("at", _INSTANT),
        ("attempt", pa.int32()),
        ("corrected_payload", pa.string()),
        ("corrected_sha256", pa.string()),
        ("batch_id", pa.string()),
        ("pipeline_version", pa.string()),
    ]
)
BATCH_RELEASES = pa.schema(
    [
        ("record_type", pa.string()),
        ("dataset", pa.string()),
        ("batch_id", pa.string()),
        ("actor", pa.string()),
        ("reason", pa.string()),
        ("at", _INSTANT),
        ("pipeline_version", pa.string()),
    ]
)
ALERT_EVENTS = pa.schema(
    [
        ("event_id", pa.string()),
        ("alert_id", pa.string()),
        ("event_type", pa.string()),
        ("kind", pa.string()),
        ("record_type", pa.string()),
        ("dataset", pa.string()),
        ("subject", pa.string()),
        ("owner", pa.string()),
        ("value", pa.float64()),
        ("threshold", pa.float64()),
        ("unit", pa.string()),
        ("details", pa.list_(pa.string())),
        ("message", pa.string()),
        ("at", _INSTANT),
        ("receiver", pa.string()),
        ("about", pa.list_(pa.string())),
        ("pipeline_version", pa.string()),
    ]
)
FEED_PAGES = pa.schema(
    [
        ("source_file", pa.string()),
        ("file_sha256", pa.string()),
        ("dataset", pa.string()),
        ("batch_id", pa.string()),
        ("feed_id", pa.string()),
        ("feed_updated", _INSTANT),
        ("self_url", pa.string()),
        ("first_url", pa.string()),
        ("prev_url", pa.string()),
        ("next_url", pa.string()),
        ("entries", pa.int64()),
        ("tombstones", pa.int64()),
    ]
)
CODICE_CODES = pa.schema(
    [
        ("list_id", pa.string()),
        ("list_version", pa.string()),
        ("cited_as", pa.string()),
        ("list_uri", pa.string()),
        ("canonical_uri", pa.string()),
        ("canonical_version_uri", pa.string()),
        ("code", pa.string()),
        ("name_es", pa.string()),
        ("name_en", pa.string()),
        ("names", pa.map_(pa.string(), pa.string())),
        ("row_values", pa.map_(pa.string(), pa.string())),
        ("position", pa.int32()),
        ("source_file", pa.string()),
        ("file_sha256", pa.string()),
        ("load_id", pa.string()),
        ("loaded_at", _INSTANT),
        ("pipeline_version", pa.string()),
    ]
)
_OPERATIONS = {
    "files": FILES,
    "batches": BATCHES,
    "run_failures": RUN_FAILURES,
    "quarantine_events": QUARANTINE_EVENTS,
    "feed_pages": FEED_PAGES,
    "codice_codes": CODICE_CODES,
    "alert_events": ALERT_EVENTS,
    "batch_releases": BATCH_RELEASES,
}
# No model reads these, so that a commit to one brings no model anything.
_READ_BY_NO_MODEL = {"bronze.alert_events"}
# Statistics stand in Delta's log for good, so no column that may hold personal data has any.
_STATISTICS = {"quarantine_events": "event_id,record_id,record_type,dataset,event_type,at"}


def is_table(path: Path) -> bool:
    """Whether a Delta table lies there. A log without a commit is what a killed run began to make."""
    return any((path / "_delta_log").glob("*.json"))


class Lake:
    """The folder of a lake: ``<path>/<schema>/<table>`` are Delta tables, ``<path>/_state`` is ours."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def state(self) -> Path:
        """What is about the lake and not in it: the lock, dbt's logs, the state of the last run."""
        return self.path / "_state"

    @property
    def reentry_files(self) -> Path:
        """Where records that are sent again are written, a folder for each record type."""
        return self.path / "replay"

    def table_path(self, schema: str, table: str) -> Path:
        """Where a table lies, whether it is there or not."""
        return self.path / schema / table

    def size(self, enough: int) -> int:
        """Bytes of the tables' files, counted no further than to ``enough``."""
        found = 0
        for schema in SCHEMAS:
            for file in (self.path / schema).rglob("*.parquet"):
                # A file that another process deletes meanwhile has no size.
                with suppress(FileNotFoundError):
                    found += file.stat().st_size
                if found >= enough:
                    return found
        return found

    def tables(self) -> list[tuple[str, str]]:
        """The Delta tables that lie in the lake, as (schema, table), sorted."""
        return sorted(
            (log.parent.parent.name, log.parent.name)
            for schema in SCHEMAS
            for log in (self.path / schema).glob("*/_delta_log")
            if is_table(log.parent)
        )

    def create_operations(self) -> None:
        """Create the tables that ingest writes without Spark, where they are not there yet.

        Columns that came with a later version are added to tables of an earlier one.
        """
        for name, schema in _OPERATIONS.items():
            path = self.table_path("bronze", name)
            if not is_table(path):
                path.mkdir(parents=True, exist_ok=True)
                configuration = {"delta.appendOnly": "true"}
                if name in _STATISTICS:
                    configuration["delta.dataSkippingStatsColumns"] = _STATISTICS[name]
                DeltaTable.create(str(path), schema, mode="ignore", configuration=configuration)
                continue
            table = DeltaTable(str(path))
            have = {field.name for field in table.schema().fields}
            lacking = [f for f in Schema.from_arrow(schema).fields if f.name not in have]
            if lacking:
                table.alter.add_columns(lacking)

    def append(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows to one of the operational tables, in one commit; none for no rows."""
        if rows:
            write_deltalake(str(self.table_path("bronze", table)), _arrow(table, rows), mode="append")

    def version(self, table: str) -> int:
        """The version of an operational table that is there: what a later append builds on."""
        return int(DeltaTable(str(self.table_path("bronze", table))).version())

    def append_at(self, table: str, rows: Sequence[Mapping[str, Any]], version: int) -> bool:
        """Append rows in one commit, but only to the version that the caller has read.

        Delta itself settles who comes first, so this holds between processes and machines.

        Returns:
            False if another commit came in since that version. Then nothing was written: read
            again, decide again.
        """
        path = str(self.table_path("bronze", table))
        try:
            # A purge cuts the log off before its newest version, and the one that was read may be gone.
            write_deltalake(
                DeltaTable(path, version=version),
                _arrow(table, rows),
                mode="append",
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except DeltaError:
            if self.version(table) > version:
                return False
            raise
        return True

    def read(self, schema: str, table: str, columns: Sequence[str]) -> pa.Table:
        """Read columns of a table without Spark; an empty table where there is none."""
        path = self.table_path(schema, table)
        if not (path / "_delta_log").is_dir():
            return pa.table({name: [] for name in columns})
        dataset = DeltaTable(str(path)).to_pyarrow_dataset()
        return dataset.to_table(columns=list(columns))

    def finished_batches(self) -> set[str]:
        """Ids of the batches whose rows count."""
        table = self.read("bronze", "batches", ["batch_id", "status"])
        return {r["batch_id"] for r in table.to_pylist() if r["status"] == "finished"}

    def known_files(self) -> dict[tuple[str, str | None], str]:
        """What finished batches know: (content hash, record type) -> newest status."""
        finished = self.finished_batches()
        table = self.read(
            "bronze", "files", ["file_sha256", "record_type", "status", "batch_id", "source_file"]
        )
        rows = sorted(table.to_pylist(), key=lambda r: str(r["batch_id"]))
        return {
            (r["file_sha256"], r["record_type"] or f"ignored {r['source_file']}"): r["status"]
            for r in rows
            if r["batch_id"] in finished
        }

    def known_contents(self) -> frozenset[str]:
        """sha256 of the files that a contract claims and finished batches know."""
        finished = self.finished_batches()
        table = self.read("bronze", "files", ["file_sha256", "record_type", "batch_id"])
        return frozenset(
            r["file_sha256"] for r in table.to_pylist() if r["record_type"] and r["batch_id"] in finished
        )

    def versions(self) -> dict[str, int]:
        """The newest Delta version of every table that models read or make: has anything changed?"""
        found = {}
        for schema, table in self.tables():
            if f"{schema}.{table}" in _READ_BY_NO_MODEL:
                continue
            commits = (self.table_path(schema, table) / "_delta_log").glob("*.json")
            numbers = [int(c.stem) for c in commits if c.stem.isdigit()]
            found[f"{schema}.{table}"] = max(numbers, default=-1)
        return found

    def read_state(self, name: str) -> dict[str, Any]:
        """What an earlier run left under a name, or nothing."""
        try:
            state: dict[str, Any] = json.loads((self.state / f"{name}.json").read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return state

    def write_state(self, name: str, state: Mapping[str, Any]) -> None:
        """Keep what a later run needs to know, in one step."""
        self.state.mkdir(parents=True, exist_ok=True)
        unfinished = self.state / f"{name}.json.tmp"
        unfinished.write_text(json.dumps(state, indent=1, sort_keys=True), "utf-8")
        unfinished.replace(self.state / f"{name}.json")


def _arrow(table: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rows of an operational table in Arrow's form.

    By arro3, on which deltalake itself builds: the first array that pyarrow makes of Python values
    imports pandas, which takes longer than all else that an operator's command does.
    """
    schema = _OPERATIONS[table]
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        if field.type == _INSTANT:
            values = [None if value is None else (value - _EPOCH) // _MICROSECOND for value in values]
            columns.append(Array(values, DataType.int64()).cast(field.type))
        elif pa.types.is_map(field.type) or pa.types.is_list(field.type):
            # arro3 makes none of Python values; only code lists and alerts have any.
            columns.append(Array.from_arrow(pa.array(values, field.type)))
        else:
            columns.append(Array(values, field.type))
    return Table.from_arrays(columns, schema=schema)
