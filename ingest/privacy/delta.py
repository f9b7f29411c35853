"""Removing rows and values from a Delta table for good: from its files, its log and its history.

By ``deltalake``, without Spark, which takes milliseconds a table. A table whose columns were widened is
the one kind that it cannot write; :class:`ingest.privacy.spark_tables.SparkTable` does the same there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from ingest.errors import LakeInUseError
from ingest.query import literal

_IDS_AT_ONCE = 5_000
_TURNS = 20
_APPEND_ONLY = "delta.appendOnly"
# Else what was removed stays on the list of the checkpoint, with its statistics.
_TIMES = {
    "delta.deletedFileRetentionDuration": ("interval 0 seconds", "interval 1 week"),
    "delta.logRetentionDuration": ("interval 0 seconds", "interval 30 days"),
}
_UNWRITABLE = {"typeWidening", "typeWidening-preview", "deletionVectors"}
# Files of a writer that holds no lock may not be in the log yet.
_UNLOCKED_HOURS = 1


class Table(Protocol):
    """A table from which something is removed. Each call is one commit or none, and may be repeated."""

    def delete(self, id_column: str, record_ids: Sequence[str]) -> int:
        """Remove the rows of records; how many."""

    def update(self, id_column: str, record_ids: Sequence[str], values: Mapping[str, str]) -> int:
        """Set columns of the rows of records, to SQL; how many."""

    def clean(self, *, append_only: bool) -> None:
        """Remove all that is not the table as it is now.

        Args:
            append_only: Whether the table is to take new rows alone from then on.
        """


def can_be_written(path: Path) -> bool:
    """Whether ``deltalake`` can write a table."""
    features = DeltaTable(str(path)).protocol().writer_features or []
    return not _UNWRITABLE & set(features)


class DeltaFiles:
    """A table that ``deltalake`` can write."""

    def __init__(self, path: Path, *, has_unlocked_writers: bool = False) -> None:
        """Open nothing yet.

        Args:
            path: The table's folder.
            has_unlocked_writers: Whether others write to it without the lake's lock.
        """
        self._path = path
        self._unlocked = has_unlocked_writers

    def delete(self, id_column: str, record_ids: Sequence[str]) -> int:
        """See :class:`Table`."""
        return sum(
            int(self._opened().delete(condition)["num_deleted_rows"])
            for condition in conditions(id_column, record_ids)
        )

    def update(self, id_column: str, record_ids: Sequence[str], values: Mapping[str, str]) -> int:
        """See :class:`Table`."""
        return sum(
            int(self._opened().update(updates=dict(values), predicate=condition)["num_updated_rows"])
            for condition in conditions(id_column, record_ids)
        )

    def replace(self, rows: pa.Table, version: int) -> bool:
        """Write the table anew in one commit, if its version still is the one that was read.

        Returns:
            False if another commit came in. Then nothing was written.
        """
        table = DeltaTable(str(self._path))
        if table.version() != version:
            return False
        parts = table.metadata().partition_columns
        try:
            write_deltalake(
                table,
                rows,
                mode="overwrite",
                partition_by=parts or None,
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except CommitFailedError:
            if DeltaTable(str(self._path)).version() > version:
                return False
            raise
        return True

    def open_for_changes(self) -> None:
        """Let rows be changed where the table takes new ones alone; :meth:`clean` takes it back."""
        if is_append_only(self._path):
            DeltaTable(str(self._path)).alter.set_table_properties({_APPEND_ONLY: "false"})

    def clean(self, *, append_only: bool) -> None:
        """See :class:`Table`. The log then holds a checkpoint and two commits without rows."""
        table = self._opened()
        table.alter.set_table_properties({name: now for name, (now, _) in _TIMES.items()})
        table = DeltaTable(str(self._path))
        table.vacuum(
            retention_hours=0, enforce_retention_duration=False, dry_run=False, full=not self._unlocked
        )
        if self._unlocked:
            table.vacuum(
                retention_hours=_UNLOCKED_HOURS,
                enforce_retention_duration=False,
                dry_run=False,
                full=True,
            )
        # Its commit brings no row, so that the newest commit of the log has no statistics.
        table = DeltaTable(str(self._path))
        table.alter.set_table_properties({name: now for name, (now, _) in _TIMES.items()})
        table = DeltaTable(str(self._path))
        table.create_checkpoint()
        drop_log_before(self._path, table.version())
        after = {name: usual for name, (_, usual) in _TIMES.items()}
        if append_only:
            after[_APPEND_ONLY] = "true"
        table.alter.set_table_properties(after)

    def _opened(self) -> DeltaTable:
        self.open_for_changes()
        return DeltaTable(str(self._path))


def is_append_only(path: Path) -> bool:
    """Whether a table takes new rows alone."""
    return DeltaTable(str(path)).metadata().configuration.get(_APPEND_ONLY) == "true"


def scrub(path: Path, change: Any, *, has_unlocked_writers: bool = False) -> int:
    """Change values in a small table, in one commit.

    Args:
        path: The table's folder.
        change: A row as a dict in, and out; the same object where nothing is to change.
        has_unlocked_writers: Whether others write to it without the lake's lock.

    Returns:
        How many rows changed.

    Raises:
        LakeInUseError: Others wrote without pause.
    """
    files = DeltaFiles(path, has_unlocked_writers=has_unlocked_writers)
    for _ in range(_TURNS):
        table = DeltaTable(str(path))
        rows = table.to_pyarrow_table()
        before = rows.to_pylist()
        after = [change(row) for row in before]
        changed = sum(new is not old for new, old in zip(after, before, strict=True))
        if not changed:
            return 0
        if is_append_only(path):
            files.open_for_changes()
            continue
        if files.replace(pa.Table.from_pylist(after, schema=rows.schema), table.version()):
            return changed
    raise LakeInUseError(
        f"{path}: {_TURNS} times in a row somebody else's commit came first. What was done stays; run "
        "the same again in a moment."
    )


def conditions(id_column: str, record_ids: Sequence[str]) -> list[str]:
    """SQL conditions that together hold for the rows of records, each short enough for a commit."""
    return [
        f"{id_column} in ({', '.join(map(literal, record_ids[start : start + _IDS_AT_ONCE]))})"
        for start in range(0, len(record_ids), _IDS_AT_ONCE)
    ]


def drop_log_before(path: Path, version: int) -> None:
    """Remove what the log says of versions before one, and Spark's checksum of that one.

    Spark's version checksums list files with their statistics. Hadoop's own checksums, which start with
    a dot, are removed with the file that they belong to, else it would be read as damaged.
    """
    log = path / "_delta_log"
    for file in log.rglob("*"):
        number = file.name.lstrip(".").split(".", 1)[0]
        if not file.is_file() or not number.isdigit():
            continue
        is_checksum = file.name.endswith(".crc") and not file.name.startswith(".")
        if int(number) < version or (int(number) == version and is_checksum):
            file.unlink(missing_ok=True)
    for folder in (path, log):
        for checksum in folder.rglob(".*.crc"):
            if not checksum.with_name(checksum.name[1:-4]).exists():
                checksum.unlink(missing_ok=True)
