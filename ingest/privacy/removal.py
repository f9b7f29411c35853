"""Removing records from a lake: in which order it goes, and what stays.

The row of a record in Bronze stays, with its place, its id and the hash of its text, and holds nothing
else; so do its dead letters. From all other tables its rows go. See docs/decisions/0018.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltalake.exceptions import CommitFailedError

from ingest.errors import LakeInUseError
from ingest.office.events import Event, append
from ingest.privacy.delta import DeltaFiles, Table, can_be_written, is_append_only, scrub
from ingest.privacy.finding import STATE, Doomed, Plan
from ingest.privacy.identifier import Identifier
from ingest.privacy.outside import Outside
from ingest.privacy.tables import ABOUT, UNLOCKED, Name, Tables


@dataclass(frozen=True)
class Done:
    """What was removed: records that got their event, rows by table, files."""

    records: int
    rows: Mapping[Name, int]
    files: int


class Removal:
    """Removes from one lake what was found, by one process that holds its lock."""

    def __init__(self, tables: Tables, outside: Outside) -> None:
        """Take a lake.

        Args:
            tables: The lake's tables.
            outside: Files outside of tables.
        """
        self._tables = tables
        self._outside = outside
        self._spark: Any = None

    def carry_out(
        self, plan: Plan, actor: str, reason: str, evidence: str | None, value: Identifier | None = None
    ) -> Done:
        """Remove what was found. Cut short at any point, the same again completes it.

        Events come first: what is killed after them is known and finished by the next purge, and
        what is judged meanwhile leaves these records out.

        Args:
            plan: What was found.
            actor: Who removes it.
            reason: Why, in words; what is known of each record is added.
            evidence: A ticket; free text.
            value: The value, where one is forgotten.

        Raises:
            ConflictError: Somebody worked on one of the records meanwhile. Nothing was removed.
            LakeInUseError: Somebody wrote an event while its table was cleaned. Not all was removed.
        """
        if plan.is_empty:
            return Done(0, {}, 0)
        try:
            return self._carry_out(plan, actor, reason, evidence, value)
        except CommitFailedError as error:
            raise LakeInUseError(
                f"{self._tables.lake.path}: somebody else wrote to a table that was being cleaned "
                f"({error}). What was done stays; run the same again in a moment."
            ) from error

    def _carry_out(
        self, plan: Plan, actor: str, reason: str, evidence: str | None, value: Identifier | None
    ) -> Done:
        self._tables.lake.create_operations()
        self._tables.lake.write_state(
            STATE, {"append_only": sorted(self._append_only()), "is_unfinished": True}
        )
        new = [record for record in plan.records if record.state != "purged"]
        append(
            self._tables.lake,
            [self._event(record, plan, actor, reason, evidence) for record in new],
            {record.record_id: record.last for record in new},
        )
        ids = [record.record_id for record in plan.records]
        rows = {name: self._remove(name, there) for name, there in self._tables.saying(ids).items()}
        if value is not None:
            for name in plan.mentions:
                rows[name] = rows.get(name, 0) + self._scrub(name, value)
        files = self._outside.remove(plan.files)
        append_only = set(map(tuple, self._tables.lake.read_state(STATE)["append_only"]))
        for name in self._tables.names:
            self._table(name).clean(append_only=name in append_only)
        self._tables.lake.write_state(STATE, {"is_unfinished": False})
        return Done(len(new), {name: count for name, count in rows.items() if count}, files)

    def _event(self, record: Doomed, plan: Plan, actor: str, reason: str, evidence: str | None) -> Event:
        size = "no text" if record.payload_bytes is None else f"{record.payload_bytes} bytes"
        said = f"sha256 {record.payload_sha256}, {size}, {len(plan.records)} records in all"
        return Event(
            record_id=record.record_id,
            record_type=record.record_type,
            dataset=record.dataset,
            event_type="purged",
            actor=actor,
            reason=f"{reason}: {record.why}",
            evidence=f"{evidence}; {said}" if evidence else said,
            attempt=record.attempt,
        )

    def _remove(self, name: Name, record_ids: Sequence[str]) -> int:
        """Remove from a table what it says of records; how many rows."""
        id_column, emptied = self._tables.id_column(name), self._tables.emptied(name)
        assert id_column is not None
        table = self._table(name)
        if emptied is None:
            return table.delete(id_column, record_ids)
        return table.update(id_column, record_ids, emptied)

    def _scrub(self, name: Name, value: Identifier) -> int:
        kept = ABOUT

        def change(row: dict[str, Any]) -> dict[str, Any]:
            new = {key: row[key] if key in kept else value.without(row[key]) for key in row}
            return row if new == row else new

        path = self._tables.lake.table_path(*name)
        return scrub(path, change, has_unlocked_writers=name in UNLOCKED)

    def _table(self, name: Name) -> Table:
        path = self._tables.lake.table_path(*name)
        if can_be_written(path):
            return DeltaFiles(path, has_unlocked_writers=name in UNLOCKED)
        from ingest.privacy.spark_tables import SparkTable

        if self._spark is None:
            from ingest.session import start_session

            self._spark = start_session()
        return SparkTable(self._spark, path)

    def _append_only(self) -> set[Name]:
        """The tables that take new rows alone. A purge that was cut short may have lifted it."""
        before = self._tables.lake.read_state(STATE)
        known = set(map(tuple, before.get("append_only", ()))) if before.get("is_unfinished") else set()
        return known | {
            n for n in self._tables.names if is_append_only(self._tables.lake.table_path(*n))
        }
