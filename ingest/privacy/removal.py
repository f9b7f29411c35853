"""Removing records from a lake: what is found, in which order it goes, and what stays.

The row of a record in Bronze stays, with its place, its id and the hash of its text, and holds nothing
else; so do its dead letters. From all other tables its rows go. See docs/decisions/0018.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from ingest.errors import InputError
from ingest.lake import Lake
from ingest.office.events import TABLE as EVENTS
from ingest.office.events import Event, append
from ingest.office.refused import Filter, Office, Refused, known_contracts
from ingest.office.states import LastEvent
from ingest.privacy.delta import DeltaFiles, Table, can_be_written, is_append_only, scrub
from ingest.privacy.identifier import Identifier
from ingest.privacy.outside import Outside
from ingest.query import connect, identifier, literal, literals
from ingest.retention import retention
from ingest.schema import LINEAGE_DDL
from ingest.spans import write_span

_STATE = "purge"
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
_UNLOCKED = {("bronze", EVENTS), ("bronze", "alert_events"), ("bronze", "batch_releases")}
# Columns that say what a row is about, and never what a record says.
_ABOUT = _EVIDENCE | _MESSAGE | {
    "record_id", "record_type", "dataset", "failure_reasons", "warnings", "by_record_id", "batch_id",
    "event_id", "source_file", "file_sha256", "dead_letter_id", "verdict_contract",
    "pipeline_version", "_verdict_contract", "table_name", "rule_code", "list_id", "list_uri",
}  # fmt: skip
# What others publish and no record brought.
_PUBLIC = {
    ("bronze", "codice_codes"), ("silver", "codice_codes"), ("silver", "shipped_codes"),
    ("marts", "dim_rules"),
}  # fmt: skip


@dataclass(frozen=True)
class Doomed:
    """A record that is to be removed.

    Attributes:
        record_id: Its id.
        record_type: Its record type.
        dataset: Its dataset.
        state: Its state; ``accepted`` where it was not refused.
        source_file: The file that it came from.
        file_sha256: Hash of that file's content.
        position: Where it stands there.
        payload_sha256: Hash of its text, None where none is known.
        payload_bytes: Length of its text in bytes, None where there is none any more.
        attempt: Which time at the gate it was.
        last: Its newest event.
        why: Why it goes.
    """

    record_id: str
    record_type: str
    dataset: str
    state: str
    source_file: str | None
    file_sha256: str | None
    position: int | None
    payload_sha256: str | None
    payload_bytes: int | None
    attempt: int
    last: LastEvent | None
    why: str


@dataclass(frozen=True)
class Plan:
    """What is to be removed.

    Attributes:
        records: The records, those that another purge left half done among them.
        rows: (schema, table) -> rows of theirs.
        mentions: (schema, table) -> rows of no record that hold the value.
        files: Files outside of tables.
        is_unfinished: Whether an earlier purge was cut short.
    """

    records: tuple[Doomed, ...]
    rows: Mapping[tuple[str, str], int]
    mentions: Mapping[tuple[str, str], int] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    is_unfinished: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.records or self.mentions or self.files or self.is_unfinished)


@dataclass(frozen=True)
class Done:
    """What was removed: records that got their event, rows by table, files."""

    records: int
    rows: Mapping[tuple[str, str], int]
    files: int


class Removal:
    """Finds and removes, in one lake, by one process that holds its lock."""

    def __init__(self, lake: Lake, outside: Outside, now: datetime | None = None) -> None:
        """Look at the lake's tables.

        Args:
            lake: The lake.
            outside: Files outside of tables.
            now: The instant from which ages count; the clock's by default.
        """
        self._lake = lake
        self._outside = outside
        self._now = now or datetime.now(UTC)
        self._tables = lake.tables()
        self._columns = {name: self._columns_of(name) for name in self._tables}
        self._spark: Any = None

    # -- finding

    def overdue(self) -> Plan:
        """What has been kept longer than its contract allows."""
        records = list(self._halfway())
        known = {record.record_id for record in records}
        spans = {name: retention(c.terms) for name, c in known_contracts().items()}
        due = {}
        for record in self._refused(None):
            span = spans.get(record.record_type, {}).get(record.state)
            began = max(
                (at for at in (record.since, record.last.at if record.last else None) if at),
                default=None,
            )
            if span is not None and began is not None and self._now - began > span:
                due[record.record_id] = (record, f"{record.state} for longer than {write_span(span)}")
        texts = self._texts(list(due))
        records += [
            _doomed(record, texts.get(record_id), why)
            for record_id, (record, why) in due.items()
            if record_id not in known
        ]
        return self._plan(records, None)

    def holding(self, value: Identifier) -> Plan:
        """What holds a value: records with all that they replaced, other rows, files."""
        hits: dict[str, None] = {}
        mentions: Counter[tuple[str, str]] = Counter()
        for name, row in self._rows_with(value):
            record_id = self._record_id(name, row)
            if record_id and (self._is_of_records(name) or value.is_in(row.get("corrected_payload"))):
                hits[record_id] = None
            else:
                mentions[name] += 1
        every = list(hits)
        # An older version would else stand as current when tables are built anew.
        while replaced := self._replaced_by(every) - set(hits):
            every = sorted(replaced)
            hits |= dict.fromkeys(every)
        records = self._named(list(hits), "holds a value that is to be forgotten")
        found = {record.record_id for record in records}
        records += [record for record in self._halfway() if record.record_id not in found]
        return self._plan(records, value, mentions)

    # -- removing

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
        """
        if plan.is_empty:
            return Done(0, {}, 0)
        self._lake.create_operations()
        self._lake.write_state(
            _STATE, {"append_only": sorted(self._append_only()), "is_unfinished": True}
        )
        new = [record for record in plan.records if record.state != "purged"]
        append(
            self._lake,
            [self._event(record, plan, actor, reason, evidence) for record in new],
            {record.record_id: record.last for record in new},
        )
        ids = [record.record_id for record in plan.records]
        rows = {name: self._remove(name, ids) for name in self._tables if ids}
        if value is not None:
            for name in plan.mentions:
                rows[name] = rows.get(name, 0) + self._scrub(name, value)
        files = self._outside.remove(plan.files)
        append_only = set(map(tuple, self._lake.read_state(_STATE)["append_only"]))
        for name in self._tables:
            self._table(name).clean(append_only=name in append_only)
        self._lake.write_state(_STATE, {"is_unfinished": False})
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

    def _remove(self, name: tuple[str, str], ids: Sequence[str]) -> int:
        """Remove from a table what records say; rows that already say nothing are left alone."""
        id_column = self._id_column(name)
        emptied = self._emptied(name)
        if id_column is None or (emptied is not None and not emptied):
            return 0
        if name[0] == "marts" and emptied is None:
            return 0  # Rows about records, not of them: marts are built anew by every run.
        there = self._there(name, id_column, ids, emptied)
        if not there:
            return 0
        table = self._table(name)
        if emptied is None:
            return table.delete(id_column, there)
        return table.update(id_column, there, emptied)

    def _emptied(self, name: tuple[str, str]) -> dict[str, str] | None:
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

    def _there(
        self,
        name: tuple[str, str],
        id_column: str,
        ids: Sequence[str],
        emptied: Mapping[str, str] | None,
    ) -> list[str]:
        """Those of the records of which a table still says something."""
        says = ""
        if emptied is not None:
            some = " or ".join(f"{identifier(column)} is not null" for column in emptied)
            says = f" and ({some})"
        sql = (
            f"select distinct {id_column} from {self._scan(name)} "
            f"where {id_column} in (select unnest({literals(ids)})){says}"
        )
        return [row[0] for row in self._connection.execute(sql).fetchall()]

    def _scrub(self, name: tuple[str, str], value: Identifier) -> int:
        kept = _ABOUT

        def change(row: dict[str, Any]) -> dict[str, Any]:
            new = {key: row[key] if key in kept else value.without(row[key]) for key in row}
            return row if new == row else new

        path = self._lake.table_path(*name)
        return scrub(path, change, has_unlocked_writers=name in _UNLOCKED)

    # -- looking at tables

    @property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        if not hasattr(self, "_opened"):
            self._opened = connect(self._lake.path, ())
        return self._opened

    def _scan(self, name: tuple[str, str]) -> str:
        # Not the views: they leave out what a killed batch wrote, and that is personal as well.
        return f"delta_scan({literal(str(self._lake.table_path(*name)))})"

    def _columns_of(self, name: tuple[str, str]) -> dict[str, str]:
        rows = self._connection.execute(f"describe select * from {self._scan(name)}").fetchall()
        return {row[0]: row[1] for row in rows}

    def _id_column(self, name: tuple[str, str]) -> str | None:
        return next((c for c in ("_record_id", "record_id") if c in self._columns[name]), None)

    def _is_of_records(self, name: tuple[str, str]) -> bool:
        """Whether a row of a table is what a record says, and goes with it."""
        return self._id_column(name) is not None and (
            name == ("marts", "dead_letters") or (name[0] != "marts" and name != ("bronze", EVENTS))
        )

    def _record_id(self, name: tuple[str, str], row: Mapping[str, Any]) -> str | None:
        column = self._id_column(name)
        return None if column is None else row[column]

    def _rows_with(self, value: Identifier) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
        """Rows of all tables that hold a value in a column of their own."""
        for name in self._tables:
            if name in _PUBLIC:
                continue
            columns = {c: t for c, t in self._columns[name].items() if c not in _ABOUT}
            id_column = self._id_column(name)
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

    def _replaced_by(self, ids: Sequence[str]) -> set[str]:
        """Accepted records that gave way to one of these."""
        found: set[str] = set()
        for name in self._tables:
            if ids and name[0] == "silver" and "by_record_id" in self._columns[name]:
                sql = (
                    f"select _record_id from {self._scan(name)} "
                    f"where by_record_id in (select unnest({literals(ids)}))"
                )
                found |= {row[0] for row in self._connection.execute(sql).fetchall()}
        return found

    def _halfway(self) -> Iterator[Doomed]:
        """Records that have the event and of which a table still says something."""
        if ("bronze", EVENTS) not in self._tables:
            return
        rows = self._connection.execute(
            f"select distinct record_id from {self._scan(('bronze', EVENTS))} "
            "where event_type = 'purged'"
        ).fetchall()
        ids = [row[0] for row in rows]
        left: set[str] = set()
        for name in self._tables:
            id_column, emptied = self._id_column(name), self._emptied(name)
            if id_column and ids and not (name[0] == "marts" and emptied is None):
                left |= set(self._there(name, id_column, ids, emptied))
        yield from self._named(sorted(left), "a purge of it was cut short")

    def _named(self, ids: Sequence[str], why: str) -> list[Doomed]:
        """Records by id, with the state that the office knows."""
        if not ids:
            return []
        texts = self._texts(ids)
        refused = {record.record_id: record for record in self._refused(ids)}
        found = []
        for record_id in ids:
            if record_id in refused:
                found.append(_doomed(refused[record_id], texts.get(record_id), why))
            elif record_id in texts:
                found.append(_accepted(record_id, texts[record_id], why))
        return found

    def _refused(self, ids: Sequence[str] | None) -> list[Refused]:
        """Refused records: these, or all; none where nothing was judged yet."""
        try:
            office = Office(self._lake, now=self._now)
        except InputError:
            return []
        with office:
            return office.select(Filter())[0] if ids is None else office.exact(ids)

    def _texts(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """What Bronze has of records: place, hash and length of the text."""
        found: dict[str, dict[str, Any]] = {}
        for name in self._tables:
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

    def _plan(
        self,
        records: Sequence[Doomed],
        value: Identifier | None,
        mentions: Mapping[tuple[str, str], int] | None = None,
    ) -> Plan:
        ids = [record.record_id for record in records]
        rows = {}
        for name in self._tables:
            id_column, emptied = self._id_column(name), self._emptied(name)
            if ids and id_column and not (name[0] == "marts" and emptied is None):
                rows[name] = len(self._there(name, id_column, ids, emptied))
        unfinished = bool(self._lake.read_state(_STATE).get("is_unfinished"))
        removes = bool(records or mentions or unfinished)
        contents = {r.file_sha256 for r in records if r.file_sha256} | self._purged_contents()
        files = self._outside.find(self._lake, contents, value, removes)
        rows = {name: count for name, count in rows.items() if count}
        return Plan(tuple(records), rows, dict(mentions or {}), tuple(files), unfinished)

    def _purged_contents(self) -> set[str]:
        """Hashes of the files of which records were purged before."""
        if ("bronze", EVENTS) not in self._tables:
            return set()
        gone = f"select record_id from {self._scan(('bronze', EVENTS))} where event_type = 'purged'"
        found: set[str] = set()
        for name in self._tables:
            if name[0] == "bronze" and "_file_sha256" in self._columns[name]:
                sql = (
                    f"select distinct _file_sha256 from {self._scan(name)} where _record_id in ({gone})"
                )
                found |= {row[0] for row in self._connection.execute(sql).fetchall() if row[0]}
        return found

    # -- writing tables

    def _table(self, name: tuple[str, str]) -> Table:
        path = self._lake.table_path(*name)
        if can_be_written(path):
            return DeltaFiles(path, has_unlocked_writers=name in _UNLOCKED)
        from ingest.privacy.spark_tables import SparkTable

        if self._spark is None:
            from ingest.session import start_session

            self._spark = start_session()
        return SparkTable(self._spark, path)

    def _append_only(self) -> set[tuple[str, str]]:
        """The tables that take new rows alone. A purge that was cut short may have lifted it."""
        before = self._lake.read_state(_STATE)
        known = set(map(tuple, before.get("append_only", ()))) if before.get("is_unfinished") else set()
        return known | {n for n in self._tables if is_append_only(self._lake.table_path(*n))}


def _doomed(record: Refused, text: Mapping[str, Any] | None, why: str) -> Doomed:
    text = text or {}
    return Doomed(
        record_id=record.record_id,
        record_type=record.record_type,
        dataset=record.dataset,
        state=record.state,
        source_file=record.source_file or text.get("source_file"),
        file_sha256=record.file_sha256 or text.get("file_sha256"),
        position=record.position or text.get("position"),
        payload_sha256=text.get("payload_sha256"),
        payload_bytes=text.get("payload_bytes"),
        attempt=record.attempt,
        last=record.last,
        why=why,
    )


def _accepted(record_id: str, text: Mapping[str, Any], why: str) -> Doomed:
    return Doomed(
        record_id=record_id,
        state="accepted",
        last=None,
        why=why,
        **{**text, "dataset": text["dataset"] or "unknown"},
    )
