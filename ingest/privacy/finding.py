"""What is to be purged: records kept too long, and all that holds a value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ingest.errors import InputError
from ingest.office.refused import Filter, Office, Refused, known_contracts
from ingest.office.states import LastEvent
from ingest.privacy.identifier import Identifier
from ingest.privacy.outside import Outside
from ingest.privacy.tables import Name, Tables
from ingest.retention import retention
from ingest.spans import write_span

STATE = "purge"
"""Under which name a lake's state says that a purge is under way."""


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
    rows: Mapping[Name, int]
    mentions: Mapping[Name, int] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    is_unfinished: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.records or self.mentions or self.files or self.is_unfinished)


class Finder:
    """Finds what is to be purged in one lake. It never writes."""

    def __init__(self, tables: Tables, outside: Outside, now: datetime | None = None) -> None:
        """Take a lake.

        Args:
            tables: The lake's tables.
            outside: Files outside of tables.
            now: The instant from which ages count; the clock's by default.
        """
        self._tables = tables
        self._outside = outside
        self._now = now or datetime.now(UTC)

    def overdue(self) -> Plan:
        """What has been kept longer than its contract allows."""
        records = self._halfway()
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
        texts = self._tables.texts(list(due))
        records += [
            _doomed(record, texts.get(record_id), why)
            for record_id, (record, why) in due.items()
            if record_id not in known
        ]
        return self._plan(records, None)

    def holding(self, value: Identifier) -> Plan:
        """What holds a value: records with all that they replaced, other rows, files."""
        hits: dict[str, None] = {}
        mentions: Counter[Name] = Counter()
        for name, row in self._tables.rows_with(value):
            record_id = row.get(self._tables.id_column(name) or "")
            if record_id and (
                self._tables.is_of_records(name) or value.is_in(row.get("corrected_payload"))
            ):
                hits[record_id] = None
            else:
                mentions[name] += 1
        every = list(hits)
        # An older version would else stand as current when tables are built anew.
        while replaced := self._tables.replaced_by(every) - set(hits):
            every = sorted(replaced)
            hits |= dict.fromkeys(every)
        records = self._named(list(hits), "holds a value that is to be forgotten")
        found = {record.record_id for record in records}
        records += [record for record in self._halfway() if record.record_id not in found]
        return self._plan(records, value, mentions)

    def _halfway(self) -> list[Doomed]:
        """Records that have the event and of which a table still says something."""
        left = {i for ids in self._tables.saying(self._tables.purged_ids()).values() for i in ids}
        return self._named(sorted(left), "a purge of it was cut short")

    def _named(self, ids: Sequence[str], why: str) -> list[Doomed]:
        """Records by id, with the state that the office knows."""
        if not ids:
            return []
        texts = self._tables.texts(ids)
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
            office = Office(self._tables.lake, now=self._now)
        except InputError:
            return []
        with office:
            return office.select(Filter())[0] if ids is None else office.exact(ids)

    def _plan(
        self,
        records: Sequence[Doomed],
        value: Identifier | None,
        mentions: Mapping[Name, int] | None = None,
    ) -> Plan:
        rows = self._tables.saying([record.record_id for record in records])
        unfinished = bool(self._tables.lake.read_state(STATE).get("is_unfinished"))
        removes = bool(records or mentions or unfinished)
        contents = {r.file_sha256 for r in records if r.file_sha256} | self._tables.purged_contents()
        files = self._outside.find(self._tables.lake, contents, value, removes)
        counts = {name: len(ids) for name, ids in rows.items()}
        return Plan(tuple(records), counts, dict(mentions or {}), tuple(files), unfinished)


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
