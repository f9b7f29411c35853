"""A lake's tables as a purge sees them: which say something of a record, and what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ingest.lake import Lake
from ingest.office.events import TABLE as EVENTS
from ingest.privacy.identifier import Identifier
from ingest.query import connect, identifier, literal, literals
from ingest.schema import LINEAGE_DDL

Name = tuple[str, str]
"""Of a table: schema and table."""
_EVIDENCE = {text.split()[0] for text in LINEAGE_DDL.split(", ")}
# What of a message says where it came from, when, and what became of it, but not what it says.
_MESSAGE = {
    "_record_id", "_message_id", "target", "target_dest", "event_ts", "stage", "error_type",
    "_supersedes", "_attempt", "_source_file", "_file_sha256", "_position", "_byte_offset",
    "_byte_length", "is_repeat", "processed_timestamp", "insert_time", "retry_number", "receipt",
    "_pipeline_version",
}  # fmt: skip
_LETTER = ("payload", "business_key", "error_message")
# Written by those who hold no lock of the lake.
UNLOCKED = {("bronze", EVENTS), ("bronze", "alert_events"), ("bronze", "batch_releases")}
# Columns that say what a row is about, and never what a record says.
ABOUT = _EVIDENCE | _MESSAGE | {
    "record_id", "record_type", "dataset", "failure_reasons", "warnings", "by_record_id", "batch_id",
    "event_id", "source_file", "file_sha256", "dead_letter_id", "verdict_contract",
    "pipeline_version", "_verdict_contract", "table_name", "rule_code", "list_id", "list_uri",
}  # fmt: skip
# What others publish and no record brought.
_PUBLIC = {
    ("bronze", "codice_codes"), ("silver", "codice_codes"), ("silver", "shipped_codes"),
    ("marts", "dim_rules"),
}  # fmt: skip


class Tables:
    """The tables of one lake, read by DuckDB.

    Attributes:
        lake: The lake.
        names: The tables that were there at first.
    """

    def __init__(self, lake: Lake) -> None:
        """Look at the lake's tables."""
        self.lake = lake
        self.names = lake.tables()
        self._connection = connect(lake.path, ())
        self._columns = {name: self._columns_of(name) for name in self.names}

    def _scan(self, name: Name) -> str:
        # Not the views: they leave out what a killed batch wrote, and that is personal as well.
        return f"delta_scan({literal(str(self.lake.table_path(*name)))})"

    def _columns_of(self, name: Name) -> dict[str, str]:
        rows = self._connection.execute(f"describe select * from {self._scan(name)}").fetchall()
        return {row[0]: row[1] for row in rows}

    def id_column(self, name: Name) -> str | None:
        """The column with the record's id; None in a table that has none."""
        return next((c for c in ("_record_id", "record_id") if c in self._columns[name]), None)

    def emptied(self, name: Name) -> dict[str, str] | None:
        """Columns of a table of evidence and what they become; None where rows go as a whole."""
        columns = self._columns[name]
        if name == ("bronze", EVENTS):
            return {"corrected_payload": "NULL"}
        if name == ("marts", "dead_letters"):
            return dict.fromkeys(_LETTER, "NULL")
        if name[0] != "bronze" or name[1] == "messages_waiting":
            return None
        kept = _EVIDENCE if "_payload_sha256" in columns else _MESSAGE
        return {column: "NULL" for column in columns if column not in kept}

    def is_of_records(self, name: Name) -> bool:
        """Whether a row of a table is what a record says, and goes with it."""
        return self.id_column(name) is not None and (
            name == ("marts", "dead_letters") or (name[0] != "marts" and name != ("bronze", EVENTS))
        )

    def saying(self, record_ids: Sequence[str]) -> dict[Name, list[str]]:
        """Tables that say something of records which has to go, and of which of them.

        Marts beside the dead letters do not: they are built anew by every run.
        """
        found = {}
        for name in self.names:
            id_column, emptied = self.id_column(name), self.emptied(name)
            if not record_ids or id_column is None or (name[0] == "marts" and emptied is None):
                continue
            says = ""
            if emptied is not None:
                some = " or ".join(f"{identifier(column)} is not null" for column in emptied)
                says = f" and ({some or 'false'})"
            rows = self._connection.execute(
                f"select distinct {id_column} from {self._scan(name)} "
                f"where {id_column} in (select unnest({literals(record_ids)})){says}"
            ).fetchall()
            if rows:
                found[name] = [row[0] for row in rows]
        return found

    def purged_ids(self) -> list[str]:
        """Records that have the event."""
        if ("bronze", EVENTS) not in self.names:
            return []
        rows = self._connection.execute(
            f"select distinct record_id from {self._scan(('bronze', EVENTS))} "
            "where event_type = 'purged'"
        ).fetchall()
        return [row[0] for row in rows]

    def rows_with(self, value: Identifier) -> Iterator[tuple[Name, dict[str, Any]]]:
        """Rows of all tables that hold a value in a column of their own."""
        for name in self.names:
            if name in _PUBLIC:
                continue
            columns = {c: t for c, t in self._columns[name].items() if c not in ABOUT}
            id_column = self.id_column(name)
            texts = [c for c, kind in columns.items() if kind != "BLOB"]
            blobs = [c for c, kind in columns.items() if kind == "BLOB"]
            parts = [
                f"contains(lower(to_json({identifier(c)})::varchar), lower({literal(form)}))"
                for c in texts
                for form in value.forms
            ] + [f"{identifier(c)} is not null" for c in blobs]
            if not parts:
                continue
            asked = [*([id_column] if id_column and id_column not in columns else []), *columns]
            cursor = self._connection.execute(
                f"select {', '.join(map(identifier, asked))} from {self._scan(name)} "
                f"where {' or '.join(parts)}"
            )
            while chunk := cursor.fetchmany(1_000):
                for values in chunk:
                    row = dict(zip(asked, values, strict=True))
                    if any(value.is_in(row[c]) for c in columns):
                        yield name, row

    def replaced_by(self, ids: Sequence[str]) -> set[str]:
        """Accepted records that gave way to one of these."""
        found: set[str] = set()
        for name in self.names:
            if ids and name[0] == "silver" and "by_record_id" in self._columns[name]:
                sql = (
                    f"select _record_id from {self._scan(name)} "
                    f"where by_record_id in (select unnest({literals(ids)}))"
                )
                found |= {row[0] for row in self._connection.execute(sql).fetchall()}
        return found

    def purged_contents(self) -> set[str]:
        """Hashes of the files of which records have the event."""
        ids = literals(self.purged_ids())
        found: set[str] = set()
        for name in self.names:
            if name[0] == "bronze" and {"_file_sha256", "_record_id"} <= set(self._columns[name]):
                sql = (
                    f"select distinct _file_sha256 from {self._scan(name)} "
                    f"where _record_id in (select unnest({ids}))"
                )
                found |= {row[0] for row in self._connection.execute(sql).fetchall() if row[0]}
        return found

    def texts(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """What Bronze has of records: place, hash and length of the text."""
        found: dict[str, dict[str, Any]] = {}
        for name in self.names:
            columns = self._columns[name]
            if name[0] != "bronze" or "payload" not in columns or "_record_id" not in columns or not ids:
                continue
            data = (
                "coalesce(_payload_bytes, encode(payload))"
                if "_payload_bytes" in columns
                else "encode(payload)"
            )
            asked = {
                "dataset": "_dataset" if "_dataset" in columns else "target",
                "source_file": "_source_file",
                "file_sha256": "_file_sha256",
                "position": "_position",
                "payload_sha256": f"coalesce(_payload_sha256, sha256({data}))"
                if "_payload_sha256" in columns
                else f"sha256({data})",
                "payload_bytes": f"octet_length({data})",
                "attempt": "coalesce(_attempt, 1)" if "_attempt" in columns else "1",
            }
            rows = self._connection.execute(
                f"select _record_id, {', '.join(asked.values())} from {self._scan(name)} "
                f"where _record_id in (select unnest({literals(ids)}))"
            ).fetchall()
            for row in rows:
                found.setdefault(
                    row[0], {"record_type": name[1], **dict(zip(asked, row[1:], strict=True))}
                )
        return found
