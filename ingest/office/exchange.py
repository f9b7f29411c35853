"""Refused records as a file that a partner can mend, and the way back.

Three forms hold the same: CSV for spreadsheets, JSON and XML for programs. In each a record has its
id, its place, its reasons with why and fix, its values as they are written, and its whole text. Who
mends it changes either values or the whole text; everything else is for reading only.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from ingest.errors import InputError, LakehouseError
from ingest.office.corrections import Change, Correction, Payloads
from ingest.office.refused import Office, Refused
from ingest.office.states import check

FORMATS = ("csv", "json", "xml")
_ABOUT = ("record_id", "record_type", "file", "position", "reasons", "why", "fix")
# Before a value's name in CSV, where all share one row: no field can take the name of another column.
_RAW = "raw_"
_BOM = "\ufeff"
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NUMBER = re.compile(r"[+-]?[0-9]+([.,][0-9]+)?\Z")
# How a spreadsheet knows a formula, and our own mark.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "'")


class Item(NamedTuple):
    """One record in an exchanged file.

    Attributes:
        place: Where it stands in the file, in words.
        record_id: Its id.
        values: Its values by name; None and an empty text mean the same.
        payload: Its whole text; None where the file does not say it.
    """

    place: str
    record_id: str
    values: dict[str, str]
    payload: str | None


class Refusal(NamedTuple):
    """A row of an imported file that cannot be applied."""

    place: str
    why: str


@dataclass
class Import:
    """What an imported file comes to."""

    corrections: list[Correction] = field(default_factory=list)
    unchanged: int = 0
    refusals: list[Refusal] = field(default_factory=list)


# Out ---------------------------------------------------------------------------------------------


def export(office: Office, records: Sequence[Refused], fmt: str) -> str:
    """Write records of one record type for a partner.

    Args:
        office: Opened with Bronze.
        records: At least one.
        fmt: ``csv``, ``json`` or ``xml``.

    Returns:
        The file's text. CSV starts with a byte order mark, without which spreadsheets misread it.

    Raises:
        InputError: The records are of several types, or purged.
    """
    kinds = sorted({record.record_type for record in records})
    if len(kinds) != 1:
        raise InputError(
            f"The records are of {len(kinds)} record types ({', '.join(kinds)}), whose values differ. "
            "Export one at a time: --record-type ..."
        )
    payloads = Payloads(office, kinds[0], records)
    values = payloads.values(records)
    rows = [
        (_about(office, record), _texts(values[record.record_id]), payloads.text(record))
        for record in records
    ]
    if fmt == "csv":
        return _to_csv(rows)
    return _to_json(rows) if fmt == "json" else _to_xml(rows)


_Row = tuple[dict[str, str], dict[str, str], str]


def _about(office: Office, record: Refused) -> dict[str, str]:
    rules = [office.rule(record.record_type, code) for code in record.reasons]
    return {
        "record_id": record.record_id,
        "record_type": record.record_type,
        "file": record.source_file or "",
        "position": "" if record.position is None else str(record.position),
        "reasons": " ".join(record.reasons),
        "why": " ".join(rule.get("why") or "" for rule in rules),
        "fix": " ".join(rule.get("fix") or "" for rule in rules),
    }


def _texts(values: dict[str, str | None]) -> dict[str, str]:
    return {name: value or "" for name, value in values.items()}


def guarded(text: str) -> str:
    """A text that no spreadsheet takes for a formula: an apostrophe stands before what might be one.

    An apostrophe of its own gets one as well, so that :func:`unguarded` gives back each text. Plain
    numbers stay as they are.
    """
    return f"'{text}" if text.startswith(_FORMULA) and not _NUMBER.match(text) else text


def unguarded(text: str) -> str:
    """The text that was guarded."""
    return text.removeprefix("'")


def _to_csv(rows: Sequence[_Row]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([*_ABOUT, *(_RAW + name for name in rows[0][1]), "payload"])
    for about, values, payload in rows:
        cells = [*(about[name] for name in _ABOUT), *values.values(), payload]
        writer.writerow([guarded(cell) for cell in cells])
    return _BOM + out.getvalue()


def _to_json(rows: Sequence[_Row]) -> str:
    found = [{**about, "fields": values, "payload": payload} for about, values, payload in rows]
    return json.dumps(found, ensure_ascii=False, indent=2) + "\n"


def _to_xml(rows: Sequence[_Row]) -> str:
    lines = ["<?xml version='1.0' encoding='UTF-8'?>", "<records>"]
    for about, values, payload in rows:
        lines.append(f"  <record id={quoteattr(about['record_id'])}>")
        lines.extend(f"    {_element(name, about[name])}" for name in _ABOUT[1:])
        for name, value in values.items():
            lines.append(f"    {_element('field', value, f' name={quoteattr(name)}')}")
        lines.extend([f"    {_element('payload', payload)}", "  </record>"])
    return "\n".join([*lines, "</records>", ""])


def _element(name: str, text: str, attributes: str = "") -> str:
    # XML has no form at all for most control characters. Where one is, all of the text is escaped.
    if _NO_XML.search(text):
        text = _NO_XML.sub(lambda bad: f"\\u{ord(bad[0]):04x}", text.replace("\\", "\\\\"))
        attributes += ' escaped="true"'
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\r", "&#13;")):
        text = text.replace(sign, entity)
    return f"<{name}{attributes}>{text}</{name}>"


# Back --------------------------------------------------------------------------------------------


def read(data: bytes, fmt: str) -> tuple[list[Item], list[Refusal]]:
    """Read a file that was exported and mended.

    Args:
        data: The file.
        fmt: ``csv``, ``json`` or ``xml``.

    Returns:
        The records, and the rows that are malformed.

    Raises:
        InputError: The file as a whole is none of that form.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(
            f"The file is not UTF-8 from line {line} on (byte {error.start + 1} is "
            f"0x{data[error.start]:02x}), so its letters cannot be told. Save it as UTF-8 and import "
            "it again."
        ) from error
    readers: dict[str, Callable[[str], Iterator[Item | Refusal]]] = {
        "csv": _from_csv,
        "json": _from_json,
        "xml": _from_xml,
    }
    items: list[Item] = []
    refusals: list[Refusal] = []
    first: dict[str, str] = {}
    for found in readers[fmt](text):
        if isinstance(found, Refusal):
            refusals.append(found)
        elif _SURROGATE.search("".join([found.record_id, found.payload or "", *found.values.values()])):
            refusals.append(Refusal(found.place, "it holds half a character (a lone surrogate)"))
        elif found.record_id in first:
            refusals.append(
                Refusal(
                    found.place, f"{found.record_id[:12]} stands at {first[found.record_id]} already"
                )
            )
        else:
            first[found.record_id] = found.place
            items.append(found)
    return items, refusals


def plan(office: Office, items: Sequence[Item], refusals: Sequence[Refusal]) -> Import:
    """Work out which records an imported file corrects.

    A correction that waits for replay already is unchanged: a file may be imported twice.

    Args:
        office: Opened with Bronze.
        items: What :func:`read` gave.
        refusals: Rows that it refused.
    """
    outcome = Import(refusals=list(refusals))
    known = _known(office, items)
    groups: dict[str, list[Item]] = {}
    for item in items:
        if item.record_id not in known:
            why = (
                f"{item.record_id!r} is no refused record of this lake; ids must come back as they went"
            )
            outcome.refusals.append(Refusal(item.place, why))
        else:
            groups.setdefault(known[item.record_id].record_type, []).append(item)
    for record_type, group in groups.items():
        records = [known[item.record_id] for item in group]
        payloads = Payloads(office, record_type, records)
        values = payloads.values(records)
        applied = office.corrected_texts(records)
        for item, record in zip(group, records, strict=True):
            try:
                correction = _correction(payloads, record, values.get(record.record_id, {}), item)
                if correction is None or correction.payload == applied.get(record.record_id):
                    outcome.unchanged += 1
                    continue
                check(record.record_id, record.state, "corrected", record.last)
                payloads.check(record, correction.payload)
            except LakehouseError as error:
                outcome.refusals.append(Refusal(item.place, str(error)))
            else:
                outcome.corrections.append(correction)
    return outcome


def _known(office: Office, items: Sequence[Item]) -> dict[str, Refused]:
    """The records that items name by their whole id: a file is no place for a few first letters."""
    return {record.record_id: record for record in office.exact([item.record_id for item in items])}


def _correction(
    payloads: Payloads, record: Refused, values: dict[str, str | None], item: Item
) -> Correction | None:
    """What an item changes; None for nothing.

    Raises:
        InputError: It changes values and the whole text, or a value that the record has not.
    """
    strange = sorted(set(item.values) - set(values))
    if strange:
        raise InputError(f"the record has no value {', '.join(strange)}; leave the names as they were")
    text = payloads.text(record)
    changed = {n: v for n, v in item.values.items() if not _is_same(v, values[n] or "")}
    if item.payload is not None and not _is_same(item.payload, text):
        if changed:
            raise InputError(
                f"both the payload and {', '.join(changed)} were changed, and which of them counts "
                "cannot be told. Change one or the other"
            )
        return Correction(record, item.payload)
    if not changed:
        return None
    changes = tuple(Change(name, values[name], after) for name, after in changed.items())
    return Correction(record, payloads.with_values(record, changed), changes)


def _is_same(new: str, old: str) -> bool:
    """Whether a text came back as it went; editors and spreadsheets change line ends."""
    return new.replace("\r\n", "\n") == old.replace("\r\n", "\n")


def _from_csv(text: str) -> Iterator[Item | Refusal]:
    # The spreadsheet of a country that writes 1,5 separates with semicolons.
    top = text[: text.find("\n")]
    delimiter = max(",;\t", key=top.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        names = next(reader, [])
        _check_header(names)
        line = reader.line_num + 1
        for row in reader:
            place, line = f"line {line}", reader.line_num + 1
            if not any(row):
                continue
            if len(row) != len(names):
                yield Refusal(place, f"it has {len(row)} cells, and the header has {len(names)}")
                continue
            cells = {name: unguarded(cell) for name, cell in zip(names, row, strict=True)}
            values = {n.removeprefix(_RAW): cells[n] for n in names if n.startswith(_RAW)}
            yield Item(place, cells["record_id"], values, cells.get("payload"))
    except csv.Error as error:
        raise InputError(
            f"Line {reader.line_num} is no CSV: {error}. Mend the quotes there; nothing after it can "
            "be read."
        ) from error


def _check_header(names: Sequence[str]) -> None:
    strange = [n for n in names if n not in (*_ABOUT, "payload") and not n.startswith(_RAW)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if "record_id" not in names or strange or twice:
        trouble = (
            f"it names {', '.join(map(repr, strange))}, which no export has"
            if strange
            else f"it names {', '.join(twice)} twice"
            if twice
            else "it lacks record_id, by which records are matched"
        )
        raise InputError(
            f"Line 1 is no header of an export: {trouble}. Leave the header as it was written."
        )


def _from_json(text: str) -> Iterator[Item | Refusal]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"The file is no JSON: {error}. Mend it there; nothing of it was read."
        ) from error
    if not isinstance(found, list):
        raise InputError(
            "The file holds no array of records, as an export does. Nothing of it was read."
        )
    for number, entry in enumerate(found, start=1):
        place = f"record {number}"
        fault = _fault_of(entry)
        if fault:
            yield Refusal(place, fault)
        else:
            values = {name: value or "" for name, value in entry.get("fields", {}).items()}
            yield Item(place, entry["record_id"], values, entry.get("payload"))


def _fault_of(entry: Any) -> str | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("record_id"), str):
        return "it is no object with a record_id"
    fields = entry.get("fields", {})
    if not isinstance(fields, dict):
        return "its fields are no object"
    for name, value in (*fields.items(), ("payload", entry.get("payload"))):
        if value is not None and not isinstance(value, str):
            return f"{name} is {json.dumps(value)[:40]}, and every value is a text in quotes"
    return None


class _XmlReader:
    """Reads an export in XML; one object reads one file."""

    def __init__(self) -> None:
        self.found: list[Item | Refusal] = []
        self._depth = 0
        self._place = ""
        self._id: str | None = None
        self._name: str | None = None
        self._is_escaped = False
        self._text: list[str] = []
        self._values: dict[str, str] = {}
        self._payload: str | None = None
        self._fault: str | None = None
        self.parser = expat.ParserCreate("utf-8")
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.StartDoctypeDeclHandler = self._doctype

    def _doctype(self, *_: object) -> None:
        raise InputError(
            "The file has a document type, which no export has and which can hide what it holds. "
            "Leave it out."
        )

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth == 1 and name != "records":
            raise InputError(f"The file's root is <{name}>, and that of an export is <records>.")
        if self._depth == 2:
            self._place = f"line {self.parser.CurrentLineNumber}"
            self._id = attributes.get("id")
            self._values, self._payload = {}, None
            self._fault = None if name == "record" and self._id else f"<{name}> is no <record id=...>"
        elif self._depth == 3:
            self._text, self._is_escaped = [], attributes.get("escaped") == "true"
            self._name = attributes.get("name", "") if name == "field" else None
            if name == "field" and self._name in self._values:
                self._fault = f"field '{self._name}' is there twice"
        elif self._depth > 3:
            self._fault = self._fault or (
                f"line {self.parser.CurrentLineNumber}: <{name}> stands inside a text; write < as &lt;"
            )

    def _characters(self, text: str) -> None:
        if self._depth == 3:
            self._text.append(text)

    def _end(self, name: str) -> None:
        if self._depth == 3:
            text = "".join(self._text)
            if self._is_escaped:
                text = re.sub(
                    r"\\(?:\\|u([0-9a-f]{4}))", lambda m: chr(int(m[1], 16)) if m[1] else "\\", text
                )
            if self._name is not None:
                self._values[self._name] = text
            elif name == "payload":
                self._payload = text
        elif self._depth == 2:
            self.found.append(
                Refusal(self._place, self._fault)
                if self._fault
                else Item(self._place, self._id or "", self._values, self._payload)
            )
        self._depth -= 1


def _from_xml(text: str) -> Iterator[Item | Refusal]:
    reader = _XmlReader()
    try:
        reader.parser.Parse(text.encode("utf-8"), True)
    except expat.ExpatError as error:
        raise InputError(
            f"The file is no XML: {expat.ErrorString(error.code)}, line {error.lineno} column "
            f"{error.offset + 1}. Mend it there; nothing of it was read."
        ) from error
    yield from reader.found
