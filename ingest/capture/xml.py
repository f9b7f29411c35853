"""Cuts XML pages into records, sound or damaged, and answers what else is asked of a page.

Where a record starts and ends is settled in :mod:`ingest.capture.xml_scan`, what it holds beyond
its schema in :mod:`ingest.capture.xml_walk`, and the count that checks both in
:mod:`ingest.capture.xml_count`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.parsers import expat

from ingest.capture.encoding import Encoding, detect
from ingest.capture.records import ParseError, Record
from ingest.capture.xml_count import count, doctype_by_parser
from ingest.capture.xml_scan import (
    ATOM,
    RECORD_TAGS,
    TOMBSTONES,
    Piece,
    Prefixes,
    XmlFormat,
    pieces,
    scannable,
    unit_of,
    utf8,
)
from ingest.capture.xml_walk import Walker
from ingest.errors import FileReadError
from ingest.schema import Node

# The start tag of any record, whatever its prefix.
FIRST_RECORD = re.compile(rb"<(?:[^\s<>/:]+:)?(?:deleted-)?entry[\s/>]")

__all__ = [
    "ATOM",
    "FIRST_RECORD",
    "TOMBSTONES",
    "XmlFormat",
    "check_page",
    "count",
    "cut",
    "encoding_of",
    "feed_id",
    "feed_text",
    "namespaces",
]


def encoding_of(data: bytes) -> str:
    """Name the codec with which slices of the file decode.

    Raises:
        FileReadError: See :func:`ingest.capture.encoding.detect`.
    """
    return detect(data).name


def cut(data: bytes, fmt: XmlFormat) -> Iterator[Record]:
    """Cut a file into its records, one for each start tag of the record's element.

    A record runs from its start tag to its end tag. It never ended, and is corrupt, where another
    record or a feed starts, the feed ends, or the file does; its text then lacks the white space
    before that. An end tag without a start tag is a corrupt record too: its text is all that
    stands after the record before it, or after the feed's start tag. A tag counts when its prefix
    means the record's namespace: by its own declarations, those of the root, the conventions, or
    any declaration in the file.

    Args:
        data: The whole file.
        fmt: The record type.

    Yields:
        Records in the order of the file.

    Raises:
        FileReadError: The file is no XML or in no known encoding.
    """
    encoding = detect(data)
    scan = scannable(data, encoding)
    prefixes = Prefixes(scan, fmt)
    reader = _Reader(data, scan, encoding, prefixes, fmt)
    for position, piece in enumerate(pieces(scan, prefixes, fmt), start=1):
        yield reader.read(piece, position)


def namespaces(data: bytes, fmt: XmlFormat) -> dict[str, str]:
    """What prefixes mean at the root of a file: as it declares, else by the contract and convention.

    Raises:
        FileReadError: The file is no XML or in no known encoding.
    """
    return Prefixes(scannable(data, detect(data)), fmt).scope


def feed_id(data: bytes) -> str | None:
    """Read the text of the feed's own ``<id>``: see ``feed_text``."""
    return feed_text(data, "id")


def feed_text(data: bytes, name: str) -> str | None:
    """Read the text of a child of the feed, wherever it stands among the feed's children.

    Args:
        data: The whole file.
        name: The child's local name, such as ``id`` or ``updated``.

    Returns:
        The text without surrounding white space; None where there is none, or damage hides it.

    Raises:
        FileReadError: The file is no XML or in no known encoding.
    """
    encoding = detect(data)
    scan = utf8(scannable(data, encoding), encoding)
    finder = _FeedText(name)
    # Nearly always it stands at the top. The rest goes in one piece, because expat reads a long
    # token anew with each piece of it.
    for chunk in (scan[:8192], scan[8192:]):
        found = finder.feed(chunk)
        if found is not None:
            return found or None
    # Damage before the child ended the parse. What stands between the last record and the feed's
    # end, or before the first record, is the feed's own.
    tail = scan[max(scan.rfind(b"entry>"), scan.rfind(b"/>")) :]
    first = FIRST_RECORD.search(scan)
    for part in (scan[: first.start()] if first else b"", tail):
        match = re.search(
            rb"<(?:[^\s<>/:!?]+:)?" + re.escape(name).encode() + rb"(?:\s[^<>]*)?>([^<]*)</", part
        )
        if match and match[1].strip():
            return match[1].decode("utf-8", "replace").strip()
    return None


def check_page(data: bytes) -> None:
    """Refuse a page in which no record is found although it should, or cannot, hold some.

    A page with any record tag is fine, and so is a well-formed feed without entries.

    Args:
        data: The whole file.

    Raises:
        FileReadError: ``NO_RECORDS``, or what :func:`ingest.capture.encoding.detect` raises.
    """
    encoding = detect(data)
    scan = scannable(data, encoding)
    for name, uri in RECORD_TAGS.items():
        if name.encode() in scan:
            fmt = XmlFormat(name, uri, {}, Node("", {}, frozenset(), False, False))
            if next(pieces(scan, Prefixes(scan, fmt), fmt), None) is not None:
                return
    root: list[str] = []
    strange: list[str] = []

    def start(name: str, _: dict[str, str]) -> None:
        local = name.rpartition(" ")[2].rpartition(":")[2]
        if not root:
            root.append(local if name.startswith(ATOM + " ") or " " not in name else f"{name}")
        elif local.lower() in RECORD_TAGS:
            strange.append(local)

    parser = expat.ParserCreate("utf-8", " ")
    parser.StartElementHandler = start
    text = utf8(scan, encoding)
    doctype = doctype_by_parser(text)
    problem = ""
    try:
        parser.Parse(text[: doctype[0]] + text[doctype[1] :], True)
    except expat.ExpatError as error:
        problem = (
            f"is not well-formed: {expat.ErrorString(error.code)}, line {error.lineno} column "
            f"{error.offset + 1}"
        )
    if not problem and root != ["feed"]:
        problem = f"has the root element <{root[0]}>, not Atom's <feed>"
    if not problem and strange:
        problem = f"holds <{strange[0]}>, whose name looks like a record's, in another case or namespace"
    if problem:
        raise FileReadError(
            "NO_RECORDS",
            f"No record was found, and the page {problem}. Only a well-formed feed may be without "
            "entries, because else records could be lost in silence. Take the page again from the "
            "feed, or correct it, and ingest it again.",
        )


class _Reader:
    """Turns pieces, in the order of the file, into records."""

    def __init__(
        self, data: bytes, scan: bytes, encoding: Encoding, prefixes: Prefixes, fmt: XmlFormat
    ) -> None:
        self._data, self._scan, self._encoding = data, scan, encoding
        self._unit = unit_of(encoding)
        self._walker = Walker(fmt, prefixes)
        self._scanned = 0
        self._offset = encoding.bom_length
        self._counted = 0
        self._line = self._column = 1

    def read(self, piece: Piece, position: int) -> Record:
        start, end, lacks = piece
        text = self._scan[start:end]
        offset = self._offset + self._width(self._scan[self._scanned : start])
        length = self._width(text)
        self._scanned, self._offset = end, offset + length
        if end == len(self._scan):
            # Half a character at the end of a truncated UTF-16 file belongs to its last piece.
            half = (len(self._data) - self._encoding.bom_length) % self._unit
            length += half if lacks else 0
        raw = text if self._unit == 1 else self._data[offset : offset + length]
        payload, payload_bytes, parse_text = "", None, None
        error: ParseError | None = None
        unparsed: tuple[str, ...] = ()
        try:
            payload = raw.decode(self._encoding.name)
        except UnicodeDecodeError as fault:
            payload, payload_bytes = raw.decode(self._encoding.name, "replace"), raw
            before = raw[: fault.start].decode(self._encoding.name, "replace").encode()
            words = (
                f"byte 0x{raw[fault.start]:02x} at byte {offset + fault.start} of the file is no "
                f"{self._encoding.name.upper()}: {fault.reason}"
            )
            error = ParseError("UnicodeDecodeError", words, *_moved(before, *self._place(start)))
        else:
            plain = self._encoding.name == "utf-8" or self._unit > 1
            verdict = self._walker.walk(text if plain else payload.encode("utf-8"))
            unparsed, parse_text = verdict.unparsed, verdict.parse_text
            if verdict.words or lacks:
                line, column = self._place(start)
                column = verdict.column + (column - 1 if verdict.line == 1 else 0)
                words = verdict.words or "the record is not closed"
                name = "xml.parsers.expat.ExpatError"
                error = ParseError(name, words, line + verdict.line - 1, column)
        if error is not None:
            unparsed, parse_text = (), None
            if lacks:
                error = error._replace(message=f"{error.message}; {lacks}")
        return Record(payload, payload_bytes, parse_text, position, offset, length, error, unparsed)

    def _width(self, scanned: bytes) -> int:
        """Count the bytes that scanned bytes take in the file."""
        if self._unit == 1:
            return len(scanned)
        text = scanned.decode("utf-8", "surrogatepass")
        if self._unit == 4:
            return 4 * len(text)
        return len(text.encode("utf-16-le", "surrogatepass"))

    def _place(self, start: int) -> tuple[int, int]:
        """Give line and column of a piece's start. Pieces come in order: each byte counts once."""
        before = utf8(self._scan[self._counted : start], self._encoding)
        self._line, self._column = _moved(before, self._line, self._column)
        self._counted = start
        return self._line, self._column


def _moved(text: bytes, line: int, column: int) -> tuple[int, int]:
    """Move a position over text in UTF-8. Lines end as in XML: LF, CR LF, or CR alone."""
    lines = text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n")
    last = text[max(text.rfind(b"\n"), text.rfind(b"\r")) + 1 :]
    length = len(last.decode("utf-8", "replace"))
    return line + lines, length + (1 if lines else column)


class _FeedText:
    """Reads a feed up to the end of one of its own children."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._depth = 0
        self._text: list[str] = []
        self._inside = self._found = self._stuck = False
        self._parser = expat.ParserCreate("utf-8")
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters

    def feed(self, chunk: bytes) -> str | None:
        if not self._stuck and not self._found:
            try:
                self._parser.Parse(chunk, False)
            except expat.ExpatError:
                self._stuck = True
        return "".join(self._text).strip() if self._found else None

    def _start(self, name: str, _: dict[str, str]) -> None:
        local = name.rpartition(":")[2]
        if self._depth == 0 and local != "feed":
            self._stuck = True
        self._inside = self._depth == 1 and local == self._name and not self._stuck
        self._depth += 1

    def _end(self, _: str) -> None:
        self._depth -= 1
        if self._inside and self._depth == 1:
            self._inside, self._found = False, True
            # Nothing else is asked, and expat goes on much faster with nobody listening.
            self._parser.StartElementHandler = None
            self._parser.EndElementHandler = None
            self._parser.CharacterDataHandler = None

    def _characters(self, data: str) -> None:
        if self._inside:
            self._text.append(data)
