"""All that is known of one refused record, as an operator reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ingest.contracts import Contract
from ingest.lake import is_table
from ingest.office import messages
from ingest.office.events import TABLE
from ingest.office.refused import Office, Refused
from ingest.office.sources import read_unchanged
from ingest.office.states import LEADS_TO
from ingest.pii import HIDDEN, masked
from ingest.privacy.identifier import Identifier
from ingest.query import identifier, json_value, literal, terminal_safe

AROUND = 3
"""Lines that are shown before and after the place of a fault."""
_WIDEST = 240
_MASKED = "personal values are masked; --unmasked shows them"
_WITHHELD = (
    "not shown: it does not parse, so that nothing tells what in it is personal; --unmasked shows it"
)
_LINE_END = re.compile(r"\r\n|\n|\r")
# Columns of a quarantine table that are no field of the record.
_ABOUT = {
    "reason", "failure_reasons", "warnings", "is_dropped", "detected_at", "payload",
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """A line of the file."""

    number: int
    text: str
    is_marked: bool


@dataclass(frozen=True)
class Details:
    """What is known of a record.

    Attributes:
        record: The record and its state.
        unit: What its position counts: ``line`` or ``record``.
        payload: Its text; None where it was purged.
        is_decoded: False where bytes did not decode and U+FFFD stands for them.
        typed: Its fields as they were judged, by name.
        misfits: What did not convert, in words.
        parse_error: What the parser said, where it did not parse.
        rules: What the contract says of each reason.
        detected_at: When it was refused, UTC.
        verdict_contract: Under which contract, as version and hash.
        batch_id: The batch that brought it.
        lines: The lines of its file around it.
        lines_note: Where these lines are from, or why there are none.
        life: What the runs did with it, as the mart ``record_history`` has it; empty where no run has
            written that yet.
        history: What people and replays did with it, oldest first.
        hidden: Why something of it is not shown; None where all is.
    """

    record: Refused
    unit: str
    payload: str | None
    is_decoded: bool
    typed: dict[str, Any]
    misfits: tuple[str, ...]
    parse_error: dict[str, Any] | None
    rules: tuple[dict[str, str | None], ...]
    detected_at: datetime | None
    verdict_contract: str | None
    batch_id: str | None
    lines: tuple[Line, ...]
    lines_note: str
    life: tuple[dict[str, Any], ...]
    history: tuple[dict[str, Any], ...]
    hidden: str | None = None


def look_up(office: Office, record: Refused, *, unmasked: bool = False) -> Details:
    """Gather what is known of a record.

    Args:
        office: Opened with Bronze.
        record: The record.
        unmasked: Whether personal values are given as they are.
    """
    details = _all_of(office, record)
    contract = office.contracts.get(record.record_type)
    if unmasked or contract is None or not (contract.personal or contract.personal_fields):
        return details
    return _masked(office, contract, details)


def _masked(office: Office, contract: Contract, details: Details) -> Details:
    """The details without personal values.

    What does not parse has no columns that would tell what is personal in it, a correction may bring
    values of its own, and the lines around are those of other records.
    """
    texts = []
    columns = [name for name, pii in contract.personal.items() if not pii.elements]
    if columns:
        asked = ", ".join(map(identifier, columns))
        for row in office.bronze_rows(contract.record_type, [details.record.record_id], asked):
            texts = [
                (Identifier(value), str(masked(value, contract.personal[name].mask)))
                for name, value in zip(columns, row, strict=True)
                if value and value.strip()
            ]
    elements = [name for pii in contract.personal.values() for name in pii.elements]

    def hide(text: str) -> str:
        # What is long first: it may hold what is short.
        for value, by in sorted(texts, key=lambda pair: -len(pair[0].value)):
            text = value.replaced_in(text, by)
        return without_elements(text, elements)

    is_parsed = details.parse_error is None
    fields = contract.personal_fields
    return replace(
        details,
        payload=hide(details.payload) if details.payload is not None and is_parsed else None,
        typed={
            name: masked(value, fields[name].mask) if name in fields else value
            for name, value in details.typed.items()
        },
        misfits=tuple(map(hide, details.misfits)),
        parse_error=details.parse_error and {**details.parse_error, "message": HIDDEN},
        lines=(),
        lines_note="not shown: they hold personal values; --unmasked shows them",
        history=tuple(
            event if event["corrected_payload"] is None else {**event, "corrected_payload": HIDDEN}
            for event in details.history
        ),
        hidden=None if details.payload is None else _MASKED if is_parsed else _WITHHELD,
    )


def without_elements(text: str, names: Sequence[str]) -> str:
    """An XML text that parses, with nothing in the elements of these local names.

    Args:
        text: The text.
        names: Local names; an element of one does not hold another of the same name.
    """
    if not names:
        return text
    name = "|".join(map(re.escape, names))
    return re.sub(
        rf"(<(?:[\w.-]+:)?({name})(?=[\s>])[^>]*(?<!/)>).*?(</(?:[\w.-]+:)?\2\s*>)",
        rf"\1{HIDDEN}\3",
        text,
        flags=re.DOTALL,
    )


def _all_of(office: Office, record: Refused) -> Details:
    if record.record_type == messages.RECORD_TYPE:
        return _of_message(office, record)
    connection = office.connection
    table = f"silver.{identifier(record.record_type + '_quarantine')}"
    cursor = connection.execute(
        f"select * from {table} where _record_id = {literal(record.record_id)} "
        "order by _judged_at desc limit 1"
    )
    names = [column[0] for column in cursor.description or ()]
    row = dict(zip(names, cursor.fetchone() or [None] * len(names), strict=True))
    found = office.bronze_rows(
        record.record_type,
        [record.record_id],
        "payload, _payload_bytes is not null, _byte_offset, _encoding, _source_file, _file_sha256, "
        "_batch_id",
    )
    payload, undecoded, offset, encoding, source_file, digest, batch = (found or [(None,) * 7])[0]
    parse_error = row.get("_parse_error")
    lines, note = _lines(payload, source_file, digest, offset, encoding, parse_error)
    contract = office.contracts.get(record.record_type)
    return Details(
        record=record,
        unit="record" if contract and contract.format == "xml" else "line",
        payload=payload,
        is_decoded=not undecoded,
        typed={n: v for n, v in row.items() if not n.startswith("_") and n not in _ABOUT},
        misfits=tuple(row.get("_misfits") or ()),
        parse_error=parse_error,
        rules=tuple(office.rule(record.record_type, code) for code in record.reasons),
        detected_at=row.get("detected_at"),
        verdict_contract=row.get("_verdict_contract"),
        batch_id=batch,
        lines=lines,
        lines_note=note,
        life=tuple(_life(office, record)),
        history=tuple(_history(office, record)),
    )


def _life(office: Office, record: Refused) -> Iterator[dict[str, Any]]:
    path = office.lake.table_path("marts", "record_history")
    if not is_table(path):
        return
    cursor = office.connection.execute(
        "select happened_at, event_type, reason, verdict_contract, batch_id, other_record_id "
        f"from delta_scan({literal(str(path))}) where record_id = {literal(record.record_id)} "
        f"and event_type not in {tuple(LEADS_TO)} order by event_number"
    )
    names = [column[0] for column in cursor.description or ()]
    for row in cursor.fetchall():
        yield dict(zip(names, row, strict=True))


def _of_message(office: Office, record: Refused) -> Details:
    columns = (
        "payload, _payload_bytes is not null, _byte_offset, _source_file, _file_sha256, receipt, error, "
        "processed_timestamp"
    )
    found = office.bronze_rows(record.record_type, [record.record_id], columns)
    payload, undecoded, offset, source_file, digest, receipt, error, at = (found or [(None,) * 8])[0]
    given_up = office.connection.execute(
        f"select error, insert_time from bronze.bad_data where _record_id = {literal(record.record_id)}"
    ).fetchall()
    error, at = given_up[0] if given_up else (error, at)
    lines, note = _lines(payload, source_file, digest, offset, "utf-8", None)
    if offset is None and payload is not None:
        note = "of the message, a record of Kafka"
    return Details(
        record=record,
        unit="line",
        payload=payload,
        is_decoded=not undecoded,
        typed={},
        misfits=tuple((error or "").splitlines()),
        parse_error=None,
        rules=tuple(office.rule(record.record_type, code) for code in record.reasons),
        detected_at=at,
        verdict_contract=None,
        batch_id=None if receipt is None else f"receipt {receipt}",
        lines=lines,
        lines_note=note,
        life=(),
        history=tuple(_history(office, record)),
    )


def _history(office: Office, record: Refused) -> Iterator[dict[str, Any]]:
    if record.last is None:
        return
    cursor = office.connection.execute(
        f"select * from bronze.{TABLE} where record_id = {literal(record.record_id)} "
        'order by "at", event_id'
    )
    names = [column[0] for column in cursor.description or ()]
    for row in cursor.fetchall():
        yield dict(zip(names, row, strict=True))


def _lines(
    payload: str | None,
    source_file: str | None,
    file_sha256: str | None,
    offset: int | None,
    encoding: str | None,
    parse_error: dict[str, Any] | None,
) -> tuple[tuple[Line, ...], str]:
    """The lines around the fault, or the record's own, and what they are."""
    if payload is None or source_file is None:
        return (), "The text is gone, so there are no lines to show."
    line = (parse_error or {}).get("line")
    data = read_unchanged(source_file, file_sha256 or "")
    if data is not None and encoding and offset is not None:
        # Lines count as the parser counts them, and it starts after the byte order mark.
        text = data.decode(encoding, "replace").removeprefix("\ufeff")
        at = line or _line_of(data[:offset].decode(encoding, "replace"))
        return tuple(_window(text, at, 1)), "from the file, which is what it was"
    first = 1
    note = (
        f"{source_file} is gone or holds something else by now, so these are the lines of the record "
        "alone, counted from its first"
    )
    return tuple(_window(payload, first, first)), note


def _line_of(before: str) -> int:
    return len(_LINE_END.findall(before)) + 1


def _window(text: str, marked: int, first: int) -> Iterator[Line]:
    for number, line in enumerate(_LINE_END.split(text), start=first):
        if number > marked + AROUND:
            return
        if number >= marked - AROUND:
            yield Line(number, line, number == marked)


# Showing -----------------------------------------------------------------------------------------


def as_text(details: Details) -> str:
    """The details for a terminal: no value in it is obeyed there."""
    return terminal_safe("\n".join(_text(details)))


def _text(details: Details) -> Iterator[str]:
    record = details.record
    yield f"Record {record.record_id}"
    yield f"  {record.record_type}, dataset {record.dataset}, attempt {record.attempt}"
    yield f"  {record.state}" + (f": {record.last}" if record.last else ", nobody has worked on it yet")
    yield f"  owner: {record.owner or 'nobody; its contract is gone'}"
    if record.source_file:
        yield f"  {record.source_file}, {details.unit} {record.position}"
    if details.detected_at:
        under = f" under contract {details.verdict_contract}" if details.verdict_contract else ""
        yield f"  refused {_instant(details.detected_at)}{under}, batch {details.batch_id}"
    yield ""
    yield "Reasons" if details.rules else "Reasons: none, it is refused no longer"
    for rule in details.rules:
        yield f"  {rule['code']}" + (f" ({rule['severity']}, {rule['stage']})" if "why" in rule else "")
        yield f"    why: {rule.get('why', 'the contract has this rule no longer')}"
        if "fix" in rule:
            yield f"    fix: {rule['fix']}"
    if details.misfits:
        yield f"  did not convert: {'; '.join(details.misfits)}"
    if error := details.parse_error:
        where = f", line {error['line']} column {error['column']}" if error["line"] else ""
        yield f"  parser: {error['message']} ({error['error_class']}{where})"
    if any(value is not None for value in details.typed.values()):
        yield ""
        yield "Fields, as they were judged; those without a value are left out"
        width = max(len(name) for name in details.typed)
        for name, value in details.typed.items():
            if value is not None:
                yield f"  {name:{width}}  {json_value(value)}"
    yield ""
    note = f" ({details.hidden})" if details.hidden else ""
    undecoded = "" if details.is_decoded else "; bytes that did not decode are shown as U+FFFD"
    yield f"Payload{undecoded}{note}"
    gone = "(not shown)" if details.hidden else "(purged)"
    yield from (f"  {line}" for line in _LINE_END.split(details.payload or gone))
    yield ""
    yield f"Lines around ({details.lines_note})"
    for line in details.lines:
        cut = line.text if len(line.text) <= _WIDEST else f"{line.text[:_WIDEST]} ... ({len(line.text)})"
        yield f"  {'>' if line.is_marked else ' '} {line.number:>7} | {cut}"
    yield ""
    if details.life:
        yield "Life, as of the last run"
        for event in details.life:
            other = event["other_record_id"]
            of = (
                f" ({'for' if event['event_type'] == 'captured' else 'by'} {other[:12]})"
                if other
                else ""
            )
            yield f"  {_instant(event['happened_at'])} {event['event_type']}: {event['reason']}{of}"
        yield ""
    yield "History" if details.history else "History: nothing has happened to it yet"
    for event in details.history:
        yield from _event_text(event)


def _event_text(event: dict[str, Any]) -> Iterator[str]:
    yield f"  {_instant(event['at'])} {event['event_type']} by {event['actor']}: {event['reason']}"
    if event["evidence"]:
        yield f"    evidence: {event['evidence']}"
    if event["batch_id"]:
        yield f"    batch: {event['batch_id']}"
    if event["corrected_payload"] is not None:
        yield f"    corrected text (sha256 {event['corrected_sha256']}):"
        yield from (f"      {line}" for line in _LINE_END.split(event["corrected_payload"]))


def as_object(details: Details) -> dict[str, Any]:
    """The details as one JSON object."""
    record = details.record
    return {
        **summary(record),
        "detected_at": json_value(details.detected_at),
        "verdict_contract": details.verdict_contract,
        "batch_id": details.batch_id,
        "rules": list(details.rules),
        "misfits": list(details.misfits),
        "parse_error": details.parse_error,
        "fields": json_value(details.typed),
        "payload": details.payload,
        "is_decoded": details.is_decoded,
        "hidden": details.hidden,
        "lines": [[line.number, line.text] for line in details.lines],
        "lines_note": details.lines_note,
        "life": [json_value(event) for event in details.life],
        "history": [json_value(event) for event in details.history],
    }


def summary(record: Refused) -> dict[str, Any]:
    """A record as one JSON object, or as one row of a list."""
    last = record.last
    return {
        "record_id": record.record_id,
        "record_type": record.record_type,
        "dataset": record.dataset,
        "state": record.state,
        "reasons": list(record.reasons),
        "owner": record.owner,
        "source_file": record.source_file,
        "position": record.position,
        "since": json_value(record.since),
        "attempt": record.attempt,
        "last_event": last.event_type if last else None,
        "last_actor": last.actor if last else None,
        "last_reason": last.reason if last else None,
        "last_at": json_value(last.at) if last else None,
    }


def table_row(record: Refused, now: datetime) -> Sequence[str]:
    """A record as one row of a table for people: see :data:`TABLE_NAMES`."""
    age = now - record.since if record.since else None
    return (
        record.record_id[:12],
        record.record_type,
        record.dataset,
        record.state,
        ", ".join(record.reasons),
        re.split("[/!]", record.source_file)[-1] if record.source_file else "",
        "" if record.position is None else str(record.position),
        "" if age is None else f"{age.days}d" if age.days else f"{age.seconds // 3600}h",
        record.owner or "",
        "" if record.last is None else f"{record.last.actor} {record.last.at:%Y-%m-%d %H:%M}",
    )


TABLE_NAMES = (
    "record", "record type", "dataset", "state", "reasons", "file", "position", "age", "owner",
    "last touched",
)  # fmt: skip


def _instant(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
