"""Cuts XML pages into records, sound or damaged, and says what each holds beyond its schema.

One scanner serves every file. It looks for the tags of records alone, outside comments, CDATA
sections, processing instructions and the document type, and never asks whether the page as a whole
is well-formed: a fault costs the record in which it stands. Each record is then read once by expat,
which judges it and walks along the read schema.

Whatever is asked of a file takes time in proportion to its size, however it is damaged.
"""

from __future__ import annotations

import re
import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from xml.parsers import expat

from ingest.capture.encoding import Encoding, detect
from ingest.capture.records import ParseError, Record
from ingest.errors import FileReadError
from ingest.schema import TEXT_FIELD, Node

ATOM = "http://www.w3.org/2005/Atom"
TOMBSTONES = "http://purl.org/atompub/tombstones/1.0"

_RECORD_TAGS = {"entry": ATOM, "deleted-entry": TOMBSTONES}
_CONVENTIONS = {"": ATOM, "atom": ATOM, "at": TOMBSTONES}
_NEVER = sys.maxsize
_WHITE = b" \t\r\n"

# Bounds on what one record can add to `unparsed`: hostile files nest and invent names for ever.
MAX_UNPARSED_PATHS = 1000
MAX_UNPARSED_DEPTH = 32
_MAX_NAME_LENGTH = 200
_MAX_CACHED = 10_000
_CUT_SHORT = "..."

_TAG_REST = re.compile(rb"[^\"'<>]*+(?:\"[^\"<]*+\"[^\"'<>]*+|'[^'<]*+'[^\"'<>]*+)*+>")
_XMLNS = re.compile(rb"\sxmlns(?::([^\s=<>/\"']++))?\s*+=\s*+(?:\"([^\"<]*+)\"|'([^'<]*+)')")
_ATTRIBUTE = re.compile(rb"\s+([^\s=<>/\"']++)\s*+=\s*+(?:\"[^\"]*+\"|'[^']*+')")
_DOCTYPE = re.compile(
    rb"<!DOCTYPE(?:[^\[<>\"']|\"[^\"]*+\"|'[^']*+')*+"
    rb"(?:\[(?:[^\]<\"']|\"[^\"]*+\"|'[^']*+'|<!--(?:[^-]|-(?!->))*+-->|<\?(?:[^?]|\?(?!>))*+\?>"
    rb"|<![A-Z])*+\]\s*+)?+>"
)
_PROLOG = re.compile(
    rb"(?:\s++|<\?(?:[^?]|\?(?!>))*+\?>|<!--(?:[^-]|-(?!->))*+-->|" + _DOCTYPE.pattern + rb")*+"
)
# Text beside child elements: after an end tag, after an empty tag, or between two start tags. It
# may match too often, never too seldom; CDATA, comments and instructions are asked for apart.
_MIXED = re.compile(
    rb"</[^<>]*+>\s*+[^<\s]|/>\s*+[^<\s]|<[^/!?<>][^<>]*+(?<!/)>\s*+[^<\s][^<]*+<[^/]"
)


@dataclass(frozen=True)
class XmlFormat:
    """How the records of one type stand in a page.

    Attributes:
        row_tag: Local name of the record's element.
        row_namespace: Its namespace.
        namespaces: Namespaces that the schema speaks of, by the prefix that paths show. The
            prefixes count where a file declares none.
        schema: What the record may hold.
    """

    row_tag: str
    row_namespace: str
    namespaces: dict[str, str]
    schema: Node


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
    before that. A tag counts when its prefix means the record's namespace: by its own
    declarations, those of the root, the conventions, or any declaration in the file.

    Args:
        data: The whole file.
        fmt: The record type.

    Yields:
        Records in the order of the file.

    Raises:
        FileReadError: The file is no XML or in no known encoding.
    """
    encoding = detect(data)
    scan = _scannable(data, encoding)
    prefixes = _Prefixes(scan, fmt)
    reader = _Reader(data, scan, encoding, prefixes, fmt)
    for position, piece in enumerate(_pieces(scan, prefixes, fmt), start=1):
        yield reader.read(piece, position)


def feed_id(data: bytes) -> str | None:
    """Read the text of the feed's own ``<id>``, wherever it stands among the feed's children.

    Args:
        data: The whole file.

    Returns:
        The text without surrounding white space; None where there is none, or damage hides it.

    Raises:
        FileReadError: The file is no XML or in no known encoding.
    """
    encoding = detect(data)
    scan = _utf8(_scannable(data, encoding), encoding)
    finder = _FeedId()
    # Nearly always it stands at the top. The rest goes in one piece, because expat reads a long
    # token anew with each piece of it.
    for chunk in (scan[:8192], scan[8192:]):
        found = finder.feed(chunk)
        if found is not None:
            return found or None
    # Damage before the id ended the parse. What stands between the last record and the feed's
    # end, or before the first record, is the feed's own.
    tail = scan[max(scan.rfind(b"entry>"), scan.rfind(b"/>")) :]
    first = re.search(rb"<(?:[^\s<>/:]+:)?(?:deleted-)?entry[\s/>]", scan)
    for part in (scan[: first.start()] if first else b"", tail):
        match = re.search(rb"<(?:[^\s<>/:!?]+:)?id(?:\s[^<>]*)?>([^<]*)</", part)
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
    scan = _scannable(data, encoding)
    for name, uri in _RECORD_TAGS.items():
        if name.encode() in scan:
            fmt = XmlFormat(name, uri, {}, Node("", {}, frozenset(), False, False))
            if next(_pieces(scan, _Prefixes(scan, fmt), fmt), None) is not None:
                return
    root: list[str] = []
    strange: list[str] = []

    def start(name: str, _: dict[str, str]) -> None:
        local = name.rpartition(" ")[2].rpartition(":")[2]
        if not root:
            root.append(local if name.startswith(ATOM + " ") or " " not in name else f"{name}")
        elif local.lower() in _RECORD_TAGS:
            strange.append(local)

    parser = expat.ParserCreate("utf-8", " ")
    parser.StartElementHandler = start
    text = _utf8(scan, encoding)
    doctype = _doctype_by_parser(text)
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
        problem = (
            f"holds <{strange[0]}>, whose name looks like a record's, in another case or namespace"
        )
    if problem:
        raise FileReadError(
            "NO_RECORDS",
            f"No record was found, and the page {problem}. Only a well-formed feed may be without "
            "entries, because else records could be lost in silence. Take the page again from the "
            "feed, or correct it, and ingest it again.",
        )


# ---- The scanner: from bytes to pieces -----------------------------------------------------------


def _scannable(data: bytes, encoding: Encoding) -> bytes:
    """Give the file as bytes in which ASCII is ASCII, without its byte order mark.

    UTF-16 and UTF-32 become UTF-8, with surrogates kept alone where they stand alone: so that the
    length of a piece in the file can be told from its characters.
    """
    body = data[encoding.bom_length :] if encoding.bom_length else data
    unit = _unit(encoding)
    if unit == 1:
        return body
    body = body[: len(body) - len(body) % unit]
    try:
        text = body.decode(encoding.name, "surrogatepass")
    except UnicodeDecodeError:
        # UTF-32 beyond Unicode: every bad unit becomes one U+FFFD, and lengths still agree.
        text = body.decode(encoding.name, "replace")
    return text.encode("utf-8", "surrogatepass")


def _unit(encoding: Encoding) -> int:
    return {"utf-16": 2, "utf-32": 4}.get(encoding.name[:6], 1)


def _utf8(scan: bytes, encoding: Encoding) -> bytes:
    """Give scannable bytes as UTF-8."""
    if encoding.name == "utf-8" or _unit(encoding) > 1:
        return scan
    return scan.decode(encoding.name, "replace").encode("utf-8")


class _Tag(NamedTuple):
    """A tag of a record or a feed; ``end`` is after its ``>``, or after its name if it has none."""

    start: int
    end: int
    prefix: str
    name: str
    opens: bool
    closes: bool


class _Piece(NamedTuple):
    """One record's place in the scanned bytes; ``stopped_by`` says what came before its end tag."""

    start: int
    end: int
    stopped_by: str


class _Seeker:
    """Finds the next place of something, for positions that only grow: linear over all calls."""

    def __init__(self, find: Callable[[int], int]) -> None:
        self._find = find
        self._at = -1

    def at_or_after(self, position: int) -> int:
        if self._at < position:
            found = self._find(position)
            self._at = _NEVER if found < 0 else found
        return self._at


class _Opaque:
    """Where comments, CDATA sections or instructions end, if they do.

    One that never ends would swallow every record up to the end of the next sound one. So it
    counts as never begun, and costs its record alone, when no end follows; when another begins in
    it after a record's start tag; or, for comments, when another begins in it at all: XML has no
    ``--`` inside a comment.
    """

    def __init__(self, scan: bytes, opener: bytes, closer: bytes, records: re.Pattern[bytes]):
        def next_record(position: int) -> int:
            match = records.search(scan, position)
            return match.start() if match else -1

        self._opener, self._closer = opener, closer
        self._end = _Seeker(lambda position: scan.find(closer, position))
        self._record = _Seeker(next_record)
        self._nested = _Seeker(lambda position: scan.find(opener, position))

    def end(self, start: int) -> int | None:
        inside = start + len(self._opener)
        end = self._end.at_or_after(inside)
        if end == _NEVER:
            return None
        suspect = inside if self._opener == b"<!--" else self._record.at_or_after(inside)
        if suspect < end and self._nested.at_or_after(suspect) < end:
            return None
        return end + len(self._closer)


def _tags(scan: bytes, names: frozenset[str]) -> Iterator[_Tag]:
    """Find the tags with one of these local names, wherever they are markup."""
    local = b"|".join(re.escape(name.encode()) for name in sorted(names))
    prefixed = rb"(?:([^\s<>/:!?]++):)?(" + local + rb")(?=[\s/><]|\Z)"
    markup = re.compile(rb"<(?:(/?+)" + prefixed + rb"|(!--|!\[CDATA\[|\?|!DOCTYPE))")
    records = re.compile(rb"<" + prefixed)
    opaque = {
        b"!--": _Opaque(scan, b"<!--", b"-->", records),
        b"![CDATA[": _Opaque(scan, b"<![CDATA[", b"]]>", records),
        b"?": _Opaque(scan, b"<?", b"?>", records),
    }
    before_document = True
    position = 0
    while match := markup.search(scan, position):
        slash, prefix, name, opener = match.groups()
        position = match.end()
        if opener == b"!DOCTYPE":
            # There is one at most, before the first element; elsewhere it is a fault of a record.
            doctype = _DOCTYPE.match(scan, match.start()) if before_document else None
            before_document = False
            position = doctype.end() if doctype else position
        elif opener:
            position = opaque[opener].end(match.start()) or position
        else:
            before_document = False
            rest = _TAG_REST.match(scan, position)
            position = rest.end() if rest else position
            yield _Tag(
                match.start(),
                position,
                (prefix or b"").decode("utf-8", "replace"),
                name.decode(),
                opens=not slash,
                closes=bool(slash) or (rest is not None and scan[position - 2] == 0x2F),
            )


def _declarations(tag: bytes) -> dict[str, str]:
    """Read the namespaces that a tag declares, by prefix."""
    if b"xmlns" not in tag:
        return {}
    return {
        (prefix or b"").decode("utf-8", "replace"): (double or single).decode("utf-8", "replace")
        for prefix, double, single in _XMLNS.findall(tag)
    }


class _Prefixes:
    """What a prefix means outside records."""

    def __init__(self, scan: bytes, fmt: XmlFormat) -> None:
        self._scan = scan
        self._conventions = {**_CONVENTIONS, **fmt.namespaces}
        self._elsewhere: dict[str, str | None] = {}
        self.scope: dict[str, str] = {}
        prolog = _PROLOG.match(scan)
        root = prolog.end() if prolog else 0
        rest = _TAG_REST.match(scan, root + 1) if scan[root : root + 1] == b"<" else None
        self.enter(_declarations(scan[root : rest.end()]) if rest else {})

    def enter(self, declared: dict[str, str]) -> None:
        """Take a root's declarations; a prefix that it does not bind means what it always does."""
        self.scope = {**self._conventions, **{p: uri for p, uri in declared.items() if uri}}

    def uri(self, prefix: str, own: dict[str, str]) -> str | None:
        if prefix in own:
            return own[prefix]
        if prefix in self.scope:
            return self.scope[prefix]
        if prefix not in self._elsewhere:
            # An element between root and record may declare it, and nothing else can be meant.
            name = re.escape(prefix.encode())
            match = re.search(rb"\sxmlns:" + name + rb"\s*=\s*[\"']([^\"'<]*)[\"']", self._scan)
            if len(self._elsewhere) >= _MAX_CACHED:
                return None
            self._elsewhere[prefix] = match[1].decode("utf-8", "replace") if match else None
        return self._elsewhere[prefix]


class _Inside:
    """What a prefix means inside an open record, as far as the record is well-formed.

    Asked only where a record holds declarations and then a tag like a record's: in
    ``<x xmlns="urn:other"><entry/></x>`` no record starts.
    """

    def __init__(self, scan: bytes, start: int) -> None:
        self._scan, self._fed = scan, start
        self._scopes: list[dict[str, str]] = [{}]
        self._last: dict[str, str] = {}
        self._sound = True
        # Structure is all that matters here, and in a single-byte encoding it is all ASCII.
        self._parser = expat.ParserCreate("iso-8859-1")
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self.foreign_found = False

    def _start(self, _: str, attributes: dict[str, str]) -> None:
        own = {
            name[6:]: value for name, value in attributes.items() if (name + ":")[:6] == "xmlns:"
        }
        self._last = {**self._scopes[-1], **own} if own else self._scopes[-1]
        self._scopes.append(self._last)

    def _end(self, _: str) -> None:
        self._scopes.pop()

    def _read_to(self, end: int) -> bool:
        try:
            self._parser.Parse(self._scan[self._fed : end], False)
        except expat.ExpatError:
            self._sound = False
        self._fed = end
        return self._sound

    def is_foreign(self, tag: _Tag, namespace: str) -> bool:
        if not self._sound or not self._read_to(tag.end):
            return False
        foreign = self._last.get(tag.prefix, namespace) != namespace
        self.foreign_found = self.foreign_found or foreign
        return foreign

    def is_end(self, tag: _Tag) -> bool:
        return not self._sound or not self._read_to(tag.end) or len(self._scopes) == 1


def _pieces(scan: bytes, prefixes: _Prefixes, fmt: XmlFormat) -> Iterator[_Piece]:
    """Cut the scanned bytes at the record's tags."""
    meanings = {**_RECORD_TAGS, "feed": ATOM, fmt.row_tag: fmt.row_namespace}
    opened: _Tag | None = None
    own: dict[str, str] = {}
    inside: _Inside | None = None

    def stopped(start: int, end: int, by: str) -> _Piece:
        return _Piece(start, start + len(scan[start:end].rstrip(_WHITE)), by)

    for tag in _tags(scan, frozenset(meanings)):
        declared = _declarations(scan[tag.start : tag.end]) if tag.opens else own
        if prefixes.uri(tag.prefix, declared) != meanings[tag.name]:
            continue
        if tag.opens:
            if opened is not None:
                if inside is None and scan.find(b"xmlns", opened.end, tag.start) >= 0:
                    inside = _Inside(scan, opened.start)
                if inside is not None and inside.is_foreign(tag, meanings[tag.name]):
                    continue
                yield stopped(opened.start, tag.start, f"the next <{tag.name}> starts")
            opened, inside, own = None, None, {}
            if tag.name == "feed":
                prefixes.enter(declared)
            elif tag.name == fmt.row_tag and tag.closes:
                yield _Piece(tag.start, tag.end, "")
            elif tag.name == fmt.row_tag:
                opened, own = tag, declared
        elif opened is not None and tag.name in (fmt.row_tag, "feed"):
            if inside is not None and inside.foreign_found and not inside.is_end(tag):
                continue
            if tag.name == "feed":
                yield stopped(opened.start, tag.start, "the feed ends")
            else:
                yield _Piece(opened.start, tag.end, "")
            opened, inside, own = None, None, {}
    if opened is not None:
        yield stopped(opened.start, len(scan), "the file ends")


# ---- The reader: from pieces to records ----------------------------------------------------------


class _Reader:
    """Turns pieces, in the order of the file, into records."""

    def __init__(
        self, data: bytes, scan: bytes, encoding: Encoding, prefixes: _Prefixes, fmt: XmlFormat
    ) -> None:
        self._data, self._scan, self._encoding = data, scan, encoding
        self._prefixes = prefixes
        self._unit = _unit(encoding)
        self._walker = _Walker(fmt)
        self._scanned = 0
        self._offset = encoding.bom_length
        self._counted = 0
        self._line = self._column = 1

    def read(self, piece: _Piece, position: int) -> Record:
        start, end, stopped_by = piece
        text = self._scan[start:end]
        offset = self._offset + self._width(self._scan[self._scanned : start])
        length = self._width(text)
        self._scanned, self._offset = end, offset + length
        if end == len(self._scan):
            # Half a character at the end of a truncated UTF-16 file belongs to its last piece.
            half = (len(self._data) - self._encoding.bom_length) % self._unit
            length += half if stopped_by else 0
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
            utf8 = text if plain else payload.encode("utf-8")
            verdict = self._walker.walk(utf8, self._prefixes.scope)
            unparsed, parse_text = verdict.unparsed, verdict.parse_text
            if verdict.words or stopped_by:
                line, column = self._place(start)
                column = verdict.column + (column if verdict.line == 1 else 1)
                words = verdict.words or "the record is not closed"
                name = "xml.parsers.expat.ExpatError"
                error = ParseError(name, words, line + verdict.line - 1, column)
        if error is not None:
            unparsed, parse_text = (), None
            if stopped_by:
                words = f"{error.message}; {stopped_by} before the record's end tag"
                error = error._replace(message=words)
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
        """Give line and column of a piece's start; pieces come in order, so each byte counts once."""
        before = _utf8(self._scan[self._counted : start], self._encoding)
        self._line, self._column = _moved(before, self._line, self._column)
        self._counted = start
        return self._line, self._column


def _moved(text: bytes, line: int, column: int) -> tuple[int, int]:
    """Move a position over text in UTF-8. Lines end as in XML: LF, CR LF, or CR alone."""
    lines = text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n")
    last = text[max(text.rfind(b"\n"), text.rfind(b"\r")) + 1 :]
    length = len(last.decode("utf-8", "replace"))
    return line + lines, length + (1 if lines else column)


class _Verdict(NamedTuple):
    """What expat and the schema say of a record: ``words`` are empty where it is well-formed."""

    words: str
    line: int
    column: int
    unparsed: tuple[str, ...]
    parse_text: str | None


class _Place(dict[str, tuple["_Place", int, int]]):
    """An element of the schema as a file writes it: steps to its children by their written names.

    A step is the child's place, its bit in the set of children seen, and the bits of which none
    may have been seen before. Steps are learnt from the file, so that a walk is one look-up per
    element whatever the prefixes.
    """

    __slots__ = ("attributes", "depth", "is_struct", "node", "others", "path")

    def __init__(self, path: str, node: Node | None, depth: int) -> None:
        super().__init__()
        self.path = path
        self.node = node
        self.depth = depth
        self.attributes = node.attributes if node else frozenset()
        self.is_struct = node is not None and not node.has_text
        self.others: dict[str, _Place] = {}


_OTHER_CHILD = 1


class _Walker:
    """Reads records with expat and notes what the schema does not take."""

    def __init__(self, fmt: XmlFormat) -> None:
        self._fmt = fmt
        self._shown = {uri: prefix for prefix, uri in fmt.namespaces.items()}
        self._tops: dict[frozenset[tuple[str, str]], _Place] = {}
        self._scope: dict[str, str] = {}
        self._unparsed: set[str] = set()
        self._renames = 0
        self._edits: list[tuple[int, bytes, bytes]] | None = None
        self._text_in_doubt = False
        self._learnt = 0

    def walk(self, record: bytes, scope: dict[str, str]) -> _Verdict:
        """Judge one record.

        Args:
            record: Its text in UTF-8.
            scope: What prefixes mean where the record stands.
        """
        nested = False
        if b"xmlns" in record:
            own: dict[str, str] = {}
            for prefix, double, single in _XMLNS.findall(record):
                name = prefix.decode("utf-8", "replace")
                uri = (double or single).decode("utf-8", "replace")
                # Where a prefix means one thing only, no scopes need to be kept.
                known = own.get(name, scope.get(name, uri))
                nested = nested or known != uri or "&" in uri
                own[name] = uri
            if not nested:
                scope = {**scope, **own}
        thorough = nested or b"<!" in record or b"<?" in record or bool(_MIXED.search(record))
        verdict = self._pass(record, scope, thorough=thorough, nested=nested)
        if not thorough and not verdict.words and (self._renames or self._text_in_doubt):
            verdict = self._pass(record, scope, thorough=True, nested=nested)
        return verdict

    def _pass(
        self, record: bytes, scope: dict[str, str], *, thorough: bool, nested: bool
    ) -> _Verdict:
        """Read a record once; a thorough pass also looks at text, and notes what to rename."""
        self._unparsed = set()
        self._renames = 0
        self._text_in_doubt = False
        self._edits = [] if thorough else None
        self._scope = scope
        place = self._top(scope, nested)
        seen = 0
        ancestors: list[tuple[_Place, int]] = []
        ascend, descend = ancestors.pop, ancestors.append
        learn = self._learn

        def start(name: str, attributes: list[str]) -> None:
            nonlocal place, seen
            child, bit, once = place.get(name) or learn(place, name, parser.CurrentByteIndex)
            if seen & once:
                self._note(child.path + "[]")
            descend((place, seen | bit))
            place, seen = child, 0
            if attributes:
                held = child.attributes
                for attribute in attributes[::2]:
                    if attribute not in held:
                        self._strange_attribute(child, attribute, parser.CurrentByteIndex)

        def end(_: str) -> None:
            nonlocal place, seen
            if not seen and place.is_struct:
                self._text_in_doubt = True
            place, seen = ascend()

        parser = expat.ParserCreate("utf-8")
        parser.ordered_attributes = True
        parser.StartElementHandler = start
        parser.EndElementHandler = end
        if thorough:

            def text(data: str) -> None:
                if place.is_struct and ancestors and not data.isspace():
                    self._note(place.path + "/text()")

            parser.CharacterDataHandler = text
            self._follow(parser, record, start, end, nested=nested)
        try:
            parser.Parse(record, True)
        except expat.ExpatError as error:
            words = expat.ErrorString(error.code)
            if ancestors:
                words = f"{words} inside {place.path}"
            return _Verdict(words, error.lineno, error.offset, (), None)
        parse_text = _edited(record, self._edits) if self._edits else None
        return _Verdict("", 1, 0, tuple(sorted(self._unparsed)), parse_text)

    def _follow(
        self,
        parser: expat.XMLParserType,
        record: bytes,
        start: Callable[[str, list[str]], None],
        end: Callable[[str], None],
        *,
        nested: bool,
    ) -> None:
        """Keep scopes of namespaces, and rename end tags with their start tags."""
        scopes: list[dict[str, str]] = []
        names: list[bytes] = []

        def start_too(name: str, attributes: list[str]) -> None:
            scopes.append(self._scope)
            if nested:
                own = {
                    attribute[6:]: value
                    for attribute, value in zip(attributes[::2], attributes[1::2], strict=True)
                    if (attribute + ":")[:6] == "xmlns:"
                }
                self._scope = {**self._scope, **own} if own else self._scope
            edits = self._edits
            assert edits is not None
            before = len(edits)
            start(name, attributes)
            new = edits[before:]
            at = parser.CurrentByteIndex + 1
            names.append(new[0][2] if new and new[0][0] == at else b"")

        def end_too(name: str) -> None:
            at, new = parser.CurrentByteIndex, names.pop()
            if new and record[at : at + 2] == b"</":
                assert self._edits is not None
                self._edits.append((at + 2, name.encode(), new))
            end(name)
            self._scope = scopes.pop()

        parser.StartElementHandler = start_too
        parser.EndElementHandler = end_too

    def _top(self, scope: dict[str, str], nested: bool) -> _Place:
        """Give the place above the record; where prefixes change their meaning, learn nothing."""
        key = frozenset(scope.items())
        if nested or self._learnt > _MAX_CACHED:
            self._tops.clear()
            self._learnt = 0
        if key not in self._tops:
            self._tops[key] = _Place("", None, 0)
        top = self._tops[key]
        if nested:
            self._tops.clear()
        self._nested = nested
        return top

    def _learn(self, place: _Place, name: str, at: int) -> tuple[_Place, int, int]:
        """Find the step to a child that is met for the first time, or is not in the schema."""
        uri, local, shown = self._meaning(name)
        node: Node | None = None
        if place.path == "":
            node = self._fmt.schema
        elif place.node is not None and uri in self._shown:
            node = place.node.children.get(local)
        if node is not None:
            path = f"{place.path}/{shown}" if place.path else shown
            step = (_Place(path, node, place.depth + 1), _OTHER_CHILD, 0)
            if place.node is not None:
                bit = 2 << list(place.node.children).index(local)
                step = (step[0], bit, 0 if node.is_array else bit)
            if not self._nested:
                place[name] = step
                self._learnt += 1
            return step
        if place.node is not None and _spark_takes(place.node, name):
            self._renames += 1
            if self._edits is not None:
                self._edits.append((at + 1, name.encode(), _renamed(name)))
        child = self._unknown(place, shown)
        self._note(child.path)
        return child, _OTHER_CHILD, 0

    def _unknown(self, place: _Place, shown: str) -> _Place:
        if place.depth >= MAX_UNPARSED_DEPTH:
            shown = _CUT_SHORT
            if place.path.endswith(f"/{shown}"):
                return place
        child = place.others.get(shown)
        if child is None:
            child = _Place(f"{place.path}/{shown}", None, place.depth + 1)
            self._learnt += 1
            if len(place.others) < _MAX_CACHED:
                place.others[shown] = child
        return child

    def _strange_attribute(self, place: _Place, name: str, at: int) -> None:
        declares = name == "xmlns" or name.startswith("xmlns:")
        if not declares:
            _, local, shown = self._meaning(name, attribute=True)
            if name.startswith("xml:") and local in place.attributes:
                return
            self._note(f"{place.path}/@{shown}")
        spark_name = name.rstrip(":").rpartition(":")[2]
        if place.node is not None and (
            (":" in name and spark_name in place.attributes) or spark_name == "corrupt_record"
        ):
            self._renames += 1
            if self._edits is not None:
                self._edits.append((at, b"@" + name.encode(), _renamed(name)))

    def _meaning(self, name: str, *, attribute: bool = False) -> tuple[str | None, str, str]:
        """Give a name's namespace, its local name, and how paths show it.

        Known namespaces are shown by their usual prefix, others as written; but where that would
        look like a name in a known namespace, the namespace is spelt out.
        """
        prefix, _, local = name.rpartition(":")
        uri = None if attribute and not prefix else self._scope.get(prefix)
        if not local or name.startswith(":"):
            uri = None
        if uri in self._shown:
            prefix = self._shown[uri]
            shown = f"{prefix}:{local}" if prefix else local
        elif prefix in self._fmt.namespaces and not attribute:
            shown = f"{{{uri or ''}}}{local}"
        else:
            shown = name
        if len(shown) > _MAX_NAME_LENGTH:
            shown = shown[:_MAX_NAME_LENGTH] + _CUT_SHORT
        return uri, local, shown

    def _note(self, path: str) -> None:
        if len(self._unparsed) < MAX_UNPARSED_PATHS:
            self._unparsed.add(path)
        else:
            self._unparsed.add(_CUT_SHORT)


def _spark_takes(node: Node, name: str) -> bool:
    """Whether Spark would take a strange element for a field of the schema.

    It reads without namespaces and takes what follows the last colon. An element whose name starts
    with ``_`` would land in the field of an attribute, or in ``_corrupt_record``.
    """
    local = name.rstrip(":").rpartition(":")[2]
    return not local or local in node.children or local.startswith("_") or local == TEXT_FIELD


def _renamed(name: str) -> bytes:
    """Give a name that nothing in a schema can have, and that no reader splits at a colon."""
    new = name.replace(":", "..") if ":" in name else f"_..{name}"
    return (f"_{new}" if new.startswith(".") else new).encode()


def _edited(record: bytes, edits: list[tuple[int, bytes, bytes]]) -> str:
    """Apply renames: of elements where their name stands, of attributes in the tag they are in."""
    parts: list[bytes] = []
    done = 0
    for at, old, new in sorted(_located(record, edits)):
        parts += [record[done:at], new]
        done = at + len(old)
    return (b"".join(parts) + record[done:]).decode("utf-8")


def _located(
    record: bytes, edits: list[tuple[int, bytes, bytes]]
) -> Iterator[tuple[int, bytes, bytes]]:
    wanted: dict[int, dict[bytes, bytes]] = {}
    for at, old, new in edits:
        # Attributes are marked `@`, which no name starts with; `at` is then the tag's `<`.
        if old.startswith(b"@"):
            wanted.setdefault(at, {})[old[1:]] = new
        else:
            yield at, old, new
    for at, names in wanted.items():
        name = re.compile(rb"<[^\s/>]++").match(record, at)
        position = name.end() if name else at
        while attribute := _ATTRIBUTE.match(record, position):
            if attribute[1] in names:
                yield attribute.start(1), attribute[1], names[attribute[1]]
            position = attribute.end()


# ---- The independent count -----------------------------------------------------------------------


def count(data: bytes, fmt: XmlFormat) -> int:
    """Count a file's records by other code than :func:`cut`, to check it by.

    Where nothing can hide a tag or change what a prefix means, start tags are counted as they
    stand; else a parser counts them; and where the file is not well-formed, start tags outside
    whatever hides them.

    Args:
        data: The whole file.
        fmt: The record type.

    Returns:
        How many records start in the file.

    Raises:
        FileReadError: The file is no XML or in no known encoding.
    """
    encoding = detect(data)
    scan = _scannable(data, encoding)
    name = fmt.row_tag.encode()
    if name not in scan:
        return 0
    counter = _Counter(scan, fmt)
    if scan.rfind(b"<!") < 0 and scan.rfind(b"<?") <= 0 and counter.is_unambiguous:
        return sum(counter.counts(match) for match in counter.starts.finditer(scan))
    text = _utf8(scan, encoding)
    doctype = _doctype_by_parser(text)
    blank = b" " * (doctype[1] - doctype[0])
    text = text[: doctype[0]] + blank + text[doctype[1] :]
    found = _count_by_parser(text, f"{fmt.row_namespace} {fmt.row_tag}")
    return _Counter(text, fmt).count_damaged() if found is None else found


def _doctype_by_parser(text: bytes) -> tuple[int, int]:
    """Find where the document type starts and ends, by expat; (0, 0) where there is none."""
    start = text.find(b"<!DOCTYPE")
    if start < 0:
        return 0, 0
    ends: list[int] = []
    parser = expat.ParserCreate("utf-8")

    def element(_: str, __: dict[str, str]) -> None:
        raise StopIteration

    parser.StartElementHandler = element
    parser.EndDoctypeDeclHandler = lambda: ends.append(parser.CurrentByteIndex)
    try:
        parser.Parse(text, True)
    except (expat.ExpatError, StopIteration):
        pass
    return (start, text.find(b">", ends[0]) + 1) if ends else (0, 0)


def _count_by_parser(text: bytes, wanted: str) -> int | None:
    found = 0

    def start(name: str, _: dict[str, str]) -> None:
        nonlocal found
        if name == wanted:
            found += 1

    parser = expat.ParserCreate("utf-8", " ")
    parser.StartElementHandler = start
    try:
        parser.Parse(text, True)
    except expat.ExpatError:
        return None
    return found


class _Counter:
    """Counts start tags as text."""

    def __init__(self, scan: bytes, fmt: XmlFormat) -> None:
        self._scan, self._fmt = scan, fmt
        self.starts = re.compile(
            rb"<(?:([^\s<>/:!?]+):)?" + re.escape(fmt.row_tag.encode()) + rb"(?=[\s/><]|\Z)"
        )
        declared = list(
            re.finditer(rb"\sxmlns(?::([^\s=<>/\"']+))?\s*=\s*(\"[^\"<]*\"|'[^'<]*')", scan)
        )
        root = re.search(rb"<[^!?/][^<]*", scan)
        self._bound = {p: uri.encode() for p, uri in (_CONVENTIONS | fmt.namespaces).items()}
        for match in declared:
            if root and root.start() < match.start() < root.end() and len(match[2]) > 2:
                self._bound[(match[1] or b"").decode("utf-8", "replace")] = match[2][1:-1]
        self.is_unambiguous = True
        for match in declared:
            prefix = (match[1] or b"").decode("utf-8", "replace")
            if self._bound.setdefault(prefix, match[2][1:-1]) != match[2][1:-1]:
                self.is_unambiguous = False

    def counts(self, match: re.Match[bytes]) -> bool:
        prefix = match[1] or b""
        tag = self._scan[match.end() : self._scan.find(b"<", match.end())]
        declares = b"xmlns:" + prefix if prefix else b"xmlns"
        own = (
            re.search(rb"\s" + re.escape(declares) + rb"\s*=\s*(\"[^\"<]*\"|'[^'<]*')", tag)
            if declares in tag
            else None
        )
        bound = own[1][1:-1] if own else self._bound.get(prefix.decode("utf-8", "replace"))
        return bound == self._fmt.row_namespace.encode()

    def count_damaged(self) -> int:
        """Count start tags outside comments, CDATA sections and instructions that end.

        When one ends, see :class:`_Opaque`: the definition is the same, the code is not.
        """
        scan = self._scan
        closers = {b"<!--": b"-->", b"<![CDATA[": b"]]>", b"<?": b"?>"}
        places = {
            mark: array("q", (m.start() for m in re.finditer(re.escape(mark), scan)))
            for mark in (*closers, *closers.values())
        }
        tags = re.compile(
            rb"<(?:[^\s<>/:!?]+:)?(?:"
            + b"|".join(
                re.escape(name.encode()) for name in {*_RECORD_TAGS, "feed", self._fmt.row_tag}
            )
            + rb")(?=[\s/><]|\Z)"
        )
        records = array("q", (m.start() for m in tags.finditer(scan)))

        def next_of(sorted_places: array[int], position: int) -> int:
            index = bisect_left(sorted_places, position)
            return sorted_places[index] if index < len(sorted_places) else _NEVER

        found = hidden_to = 0
        for match in re.finditer(rb"<!--|<!\[CDATA\[|<\?|" + self.starts.pattern, scan):
            if match.start() < hidden_to:
                continue
            closer = closers.get(match[0])
            if closer is None:
                found += self.counts(match)
                continue
            end = next_of(places[closer], match.end())
            suspect = match.end() if match[0] == b"<!--" else next_of(records, match.end())
            if end < _NEVER and not (suspect < end and next_of(places[match[0]], suspect) < end):
                hidden_to = end + len(closer)
        return found


class _FeedId:
    """Reads a feed up to the end of its own id."""

    def __init__(self) -> None:
        self._depth = 0
        self._text: list[str] = []
        self._in_id = self._found = self._stuck = False
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
        self._in_id = self._depth == 1 and local == "id" and not self._stuck
        self._depth += 1

    def _end(self, _: str) -> None:
        self._depth -= 1
        if self._in_id and self._depth == 1:
            self._in_id, self._found = False, True
            # Nothing else is asked, and expat goes on much faster with nobody listening.
            self._parser.StartElementHandler = None
            self._parser.EndElementHandler = None
            self._parser.CharacterDataHandler = None

    def _characters(self, data: str) -> None:
        if self._in_id:
            self._text.append(data)
