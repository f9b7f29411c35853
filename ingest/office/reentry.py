"""Re-entry: refused records as new files of their feed, so that they pass the same gate as any file.

A file of records that are sent again lies in the lake, below ``replay``. It is captured as every other
file is, so that its records keep all laws; only ``_supersedes`` and ``_attempt`` tell them apart.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from ingest.capture import csv, xml
from ingest.capture.records import Record
from ingest.contracts import Contract, load_contracts
from ingest.errors import FileReadError, InputError
from ingest.lake import Lake
from ingest.office.corrections import Left, Payloads, by_record_type
from ingest.office.csv_edit import header_of, written
from ingest.office.events import TABLE, Event, append, reentered
from ingest.office.refused import Office, Refused
from ingest.office.sources import read_unchanged
from ingest.query import connect, identifier, literal
from ingest.sources import ProbedFile, Source, csv_format, probe, xml_format
from ingest.transform import models_dir

COMMAND = "replay"
"""What ``bronze.batches`` says of a batch of records that were sent again."""
# More files of one content for different records than this are not to be expected.
_TRIES = 10_000


@dataclass(frozen=True)
class Again:
    """A refused record that is sent again, and with what text."""

    record: Refused
    text: str


@dataclass(frozen=True)
class _Frame:
    """What stands around records in a file of their feed; records of one frame go into one file.

    Attributes:
        record_type: Their record type.
        dataset: Their dataset.
        columns: Of CSV: the names of the columns in their order; empty where a feed has no header.
        namespaces: Of XML: prefix and URI of what the page declares.
    """

    record_type: str
    dataset: str
    columns: tuple[str, ...] = ()
    namespaces: tuple[tuple[str, str], ...] = ()


def plan(office: Office, records: Sequence[Refused]) -> tuple[dict[_Frame, list[Again]], list[Left]]:
    """Work out with what text and in which frame each record is sent again.

    A corrected record goes with its new text, another with the one it has: under a contract that was
    mended meanwhile it may pass. Each text is cut alone first. What is not one record that parses would
    damage its neighbours, or only be refused again.

    Args:
        office: Opened with Bronze.
        records: Records to which re-entry may happen.

    Returns:
        Records by frame, oldest first, and those that cannot be sent as they are, with the reason.
    """
    framed: dict[_Frame, list[Again]] = {}
    left: list[Left] = []
    corrected = office.corrected_texts(records)
    for record_type, group in by_record_type(records).items():
        payloads = Payloads(office, record_type, group)
        for record in group:
            try:
                text = corrected.get(record.record_id) or payloads.text(record)
                frame = _frame(payloads, record, text)
                _check_alone(payloads.contract, frame, text)
            except InputError as error:
                left.append(Left(record, str(error)))
            else:
                framed.setdefault(frame, []).append(Again(record, text))
    return framed, left


def plan_some(
    office: Office, records: Sequence[Refused], limit: int | None
) -> tuple[dict[_Frame, list[Again]], list[Left]]:
    """Plan for the first records that can be sent, at most so many.

    What cannot be sent is passed over and counts for nothing: it would hold up all that stand behind.

    Args:
        office: Opened with Bronze.
        records: Records to which re-entry may happen, the first to go first.
        limit: The most to send; None for all.

    Returns:
        As ``plan`` does.
    """
    framed: dict[_Frame, list[Again]] = {}
    left: list[Left] = []
    room = len(records) if limit is None else limit
    at = 0
    while room > 0 and at < len(records):
        part = records[at : at + room]
        at += len(part)
        more, not_sent = plan(office, part)
        left += not_sent
        for frame, again in more.items():
            framed.setdefault(frame, []).extend(again)
            room -= len(again)
    return framed, left


def _frame(payloads: Payloads, record: Refused, text: str) -> _Frame:
    if payloads.contract.format != "xml":
        return _Frame(record.record_type, record.dataset, columns=payloads.header_of(record))
    shape = xml_format(payloads.contract)
    data = read_unchanged(record.source_file or "", record.file_sha256 or "")
    declared = shape.namespaces if data is None else xml.namespaces(data, shape)
    missing = sorted(_prefixes(text) - set(declared) - {"xml"})
    if missing:
        raise InputError(
            f"The record uses the prefix {missing[0]!r}, which its contract does not know, and the page "
            "that declares it is gone. Declare it in the record itself, or put the page back."
        )
    return _Frame(record.record_type, record.dataset, namespaces=tuple(sorted(declared.items())))


def _prefixes(text: str) -> set[str]:
    """Prefixes that a record uses and does not declare itself."""
    used: set[str] = set()
    declared: set[str] = set()
    parser = expat.ParserCreate()

    def start(name: str, attributes: Mapping[str, str]) -> None:
        names = {name, *attributes}
        declared.update(n.removeprefix("xmlns:") for n in names if n.startswith("xmlns:"))
        used.update(n.partition(":")[0] for n in names if ":" in n and not n.startswith("xmlns:"))

    parser.StartElementHandler = start
    try:
        parser.Parse(text.encode("utf-8"), True)
    except expat.ExpatError as error:
        raise InputError(
            f"The text is not well-formed: {expat.errors.messages[error.code]} (line {error.lineno}, "
            f"column {error.offset + 1}). Correct the record first."
        ) from error
    return used - declared


def _check_alone(contract: Contract, frame: _Frame, text: str) -> None:
    """Refuse a text that, alone in its file, is not one sound record.

    Raises:
        InputError: It is not.
    """
    try:
        cut = _cut(contract, _content(contract, frame, [text], ""))
    except FileReadError as error:
        raise InputError(f"The text cannot stand in a file of its feed: {error}") from error
    if len(cut) != 1 or cut[0].payload != text:
        raise InputError(
            f"The text is {len(cut)} records where it stands in a file of its feed, and it must be one. "
            "Correct the record first."
        )
    if cut[0].error is not None:
        raise InputError(
            f"The text does not parse: {cut[0].error.message} ({cut[0].error.error_class}). Correct "
            "the record first."
        )


def _content(contract: Contract, frame: _Frame, texts: Iterable[str], name: str) -> bytes:
    """A file of the feed that holds these records and nothing else."""
    if contract.format == "xml":
        declared = "".join(
            f" xmlns{':' if prefix else ''}{prefix}={quoteattr(uri)}" for prefix, uri in frame.namespaces
        )
        head = f'<?xml version="1.0" encoding="UTF-8"?>\n<feed{declared}>\n<id>urn:replay:{name}</id>\n'
        return (head + "".join(f"{text}\n" for text in texts) + "</feed>\n").encode("utf-8")
    fmt = csv_format(contract)
    lines = [*texts]
    if fmt.header:
        end = fmt.delimiter if fmt.trailing_delimiter else ""
        names = (written(n, fmt, is_quoted=False).decode("utf-8") for n in frame.columns)
        lines.insert(0, fmt.delimiter.join(names) + end)
    encoding = fmt.encoding or "utf-8"
    try:
        return "".join(f"{line}\n" for line in lines).encode(encoding)
    except UnicodeEncodeError as error:
        raise InputError(
            f"The text holds {error.object[error.start : error.end]!r}, which {encoding}, the encoding "
            "of this feed, does not have. Leave it out."
        ) from error


def _cut(contract: Contract, data: bytes) -> list[Record]:
    if contract.format == "xml":
        return list(xml.cut(data, xml_format(contract)))
    fmt = csv_format(contract)
    return list(csv.cut(io.BytesIO(data), fmt, header_of(data, fmt)))


def write_files(
    lake: Lake, contracts: Mapping[str, Contract], framed: Mapping[_Frame, Sequence[Again]]
) -> list[ProbedFile]:
    """Write records that are sent again to files, and look at these as at any file.

    The same records with the same texts give the same file, so that what was killed half-way is known
    the second time.

    Args:
        lake: Below it the files lie.
        contracts: By record type.
        framed: As ``plan`` gives it.

    Returns:
        The files, each with what it supersedes by position.

    Raises:
        InputError: The records do not stand in their file as they stood alone.
    """
    known = lake.known_files()
    found = []
    for frame, again in framed.items():
        contract = contracts[frame.record_type]
        told = "\n".join(f"{item.record.record_id} {item.record.attempt}" for item in again)
        name = hashlib.sha256(told.encode()).hexdigest()
        data = _content(contract, frame, [item.text for item in again], name)
        # Other records may have said the same before; a blank line is no record, and other content.
        for _ in range(_TRIES):
            if (hashlib.sha256(data).hexdigest(), frame.record_type) not in known:
                break
            data += b"\n"
        records = _cut(contract, data)
        if [record.payload for record in records] != [item.text for item in again]:
            raise InputError(
                f"{len(again)} {frame.record_type} records do not stand together in one file as they "
                "stand alone. Nothing was written. Send them again one by one."
            )
        path = lake.reentry_files / frame.record_type / _file_name(contract, name)
        _write(path, data)
        probed = probe(Source(str(path)), {frame.record_type: contract}, known, dataset=frame.dataset)
        if probed.status != "new":
            raise InputError(f"{path} is {probed.status}: {probed.error_message}. Nothing was written.")
        # It is no page of the feed: it has no neighbours in the chain of pages.
        probed.head = None
        probed.dataset = frame.dataset
        probed.reentries = {
            record.position: (item.record.record_id, item.record.attempt + 1)
            for record, item in zip(records, again, strict=True)
        }
        found.append(probed)
    return found


def _file_name(contract: Contract, name: str) -> str:
    """A name by which the contract claims the file.

    Raises:
        InputError: None can be made of its patterns.
    """
    for pattern in map(str, contract.feed["files"]):
        before, _, after = pattern.partition("*")
        stem = f"{before}_replay_" if before else "replay_"
        made = f"{stem}{name[:16]}{after.replace('*', '')}"
        if contract.claims(made) and not made.lower().endswith((".gz", ".zip")):
            return made
    raise InputError(
        f"{contract.path}: no pattern of the feed of {contract.record_type} ({contract.feed['files']}) "
        "claims a file of records that are sent again. Add one such as 'replay_*'."
    )


def _write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all. It holds personal data as Bronze does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(data)
    part.replace(path)


def is_judged(lake: Lake) -> bool:
    """Whether all that was ever sent again is judged: a replay that was killed may have left some.

    Args:
        lake: The lake.
    """
    names = {(schema, name) for schema, name in lake.tables()}
    if not {("bronze", "batches"), ("bronze", "files")} <= names:
        return True
    with connect(lake.path, {"bronze.batches", "bronze.files"}) as connection:
        sent = connection.execute(
            "select record_type, max(batch_id) from bronze.files where status = 'ingested' and batch_id "
            f"in (select batch_id from bronze.batches where command = {literal(COMMAND)}) group by 1"
        ).fetchall()
    if any(("silver", f"{record_type}_judged") not in names for record_type, _ in sent):
        return False
    tables = {record_type: f"silver.{record_type}_judged" for record_type, _ in sent}
    with connect(lake.path, set(tables.values())) as connection:
        for record_type, batch in sent:
            # Ids of batches sort by time, and batches are judged in their order.
            [(newest,)] = connection.execute(
                f"select max(_batch_id) from silver.{identifier(record_type + '_judged')}"
            ).fetchall()
            if newest is None or newest < batch:
                return False
    return True


def settle(lake: Lake, actor: str, because: str) -> int:
    """Write the ``reentered`` events of records that are in Bronze again and have none yet.

    Bronze is what happened, so a replay that was killed after its batch counted is told of here, by
    whoever replays next.

    Args:
        lake: The lake.
        actor: Who sends records again.
        because: Why.

    Returns:
        How many events were written.
    """
    names = {(schema, name) for schema, name in lake.tables()}
    if not {("bronze", "batches"), ("bronze", TABLE)} <= names:
        return 0
    events: list[Event] = []
    with connect(lake.path, {"bronze.batches", f"bronze.{TABLE}"}) as connection:
        untold = [
            batch
            for (batch,) in connection.execute(
                f"select batch_id from bronze.batches where command = {literal(COMMAND)} and batch_id "
                f"not in (select batch_id from bronze.{TABLE} where event_type = 'reentered' "
                "and batch_id is not null) order by 1"
            ).fetchall()
        ]
    if not untold:
        return 0
    record_types = [t for t in load_contracts(models_dir()) if ("bronze", t) in names]
    with connect(lake.path, {f"bronze.{t}" for t in record_types}) as connection:
        for record_type in record_types:
            rows = connection.execute(
                "select _supersedes, _dataset, _attempt, _record_id, _batch_id "
                f"from bronze.{identifier(record_type)} where _supersedes is not null and _batch_id in "
                f"({', '.join(map(literal, untold))}) order by all"
            ).fetchall()
            events += [
                reentered(supersedes, record_type, dataset, attempt, record_id, batch_id, actor, because)
                for supersedes, dataset, attempt, record_id, batch_id in rows
            ]
    # It happened, whatever somebody else did meanwhile.
    append(lake, events, seen=None)
    return len(events)
