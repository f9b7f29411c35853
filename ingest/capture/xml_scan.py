"""Finds where records start and end in an XML page, sound or damaged.

One scanner serves every file. It looks for the tags of records alone, outside comments, CDATA
sections, processing instructions and the document type, and never asks whether the page as a whole
is well-formed: a fault costs the record in which it stands.

Whatever is asked of a file takes time in proportion to its size, however it is damaged.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple
from xml.parsers import expat

from ingest.capture.encoding import Encoding
from ingest.schema import Node

ATOM = "http://www.w3.org/2005/Atom"
TOMBSTONES = "http://purl.org/atompub/tombstones/1.0"
RECORD_TAGS = {"entry": ATOM, "deleted-entry": TOMBSTONES}
"""Every record tag of a feed, whatever is asked for: where one starts, any other has ended."""

CONVENTIONS = {"": ATOM, "atom": ATOM, "at": TOMBSTONES}
"""What prefixes mean where a file does not say: cut-out entries carry no declarations."""

_NEVER = sys.maxsize
_WHITE = b" \t\r\n"

_TAG_REST = re.compile(rb"[^\"'<>]*+(?>(?:\"[^\"<]*+\"[^\"'<>]*+|'[^'<]*+'[^\"'<>]*+)*)>")
_ATTRIBUTE = re.compile(rb"([^\s=<>/\"']++)\s*+=\s*+(?:\"([^\"<]*+)\"|'([^'<]*+)')")
_XMLNS = re.compile(rb"xmlns(?::([^\s=<>/\"']++))?\s*+=\s*+(?:\"([^\"<]*+)\"|'([^'<]*+)')")
_DOCTYPE = re.compile(
    rb"<!DOCTYPE(?>(?:[^\[<>\"']++|\"[^\"]*+\"|'[^']*+')*)"
    rb"(?>(?:\[(?>(?:[^\]<\"']++|\"[^\"]*+\"|'[^']*+'|<!--(?>(?:[^-]++|-(?!->))*)-->"
    rb"|<\?(?>(?:[^?]++|\?(?!>))*)\?>|<![A-Z])*)\]\s*+)?)>"
)
_PROLOG = re.compile(
    rb"(?>(?:\s++|<\?(?>(?:[^?]++|\?(?!>))*)\?>|<!--(?>(?:[^-]++|-(?!->))*)-->|"
    + _DOCTYPE.pattern
    + rb")*)"
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


class Piece(NamedTuple):
    """One record's place in scannable bytes.

    ``lacks`` says which of its tags is not there, and is empty where both are.
    """

    start: int
    end: int
    lacks: str


def unit_of(encoding: Encoding) -> int:
    """Bytes of the smallest unit of an encoding."""
    return {"utf-16": 2, "utf-32": 4}.get(encoding.name[:6], 1)


def scannable(data: bytes, encoding: Encoding) -> bytes:
    """Give the file as bytes in which ASCII is ASCII, without its byte order mark.

    UTF-16 and UTF-32 become UTF-8, with surrogates kept alone where they stand alone: so that the
    length of a piece in the file can be told from its characters.
    """
    body = data[encoding.bom_length :] if encoding.bom_length else data
    unit = unit_of(encoding)
    if unit == 1:
        return body
    body = body[: len(body) - len(body) % unit]
    try:
        text = body.decode(encoding.name, "surrogatepass")
    except UnicodeDecodeError:
        # UTF-32 beyond Unicode: every bad unit becomes one U+FFFD, and lengths still agree.
        text = body.decode(encoding.name, "replace")
    return text.encode("utf-8", "surrogatepass")


def utf8(scan: bytes, encoding: Encoding) -> bytes:
    """Give scannable bytes as UTF-8."""
    if encoding.name == "utf-8" or unit_of(encoding) > 1:
        return scan
    return scan.decode(encoding.name, "replace").encode("utf-8")


def declared_in_tag(tag: bytes) -> dict[str, str]:
    """Read the namespaces that a tag declares, by prefix."""
    if b"xmlns" not in tag:
        return {}
    return declared_by(
        (name.decode("utf-8", "replace"), (double or single).decode("utf-8", "replace"))
        for name, double, single in _ATTRIBUTE.findall(tag)
    )


def declared_in(markup: bytes) -> list[tuple[str, str]]:
    """List the prefixes and namespaces that any text declares, or seems to."""
    if b"xmlns" not in markup:
        return []
    return [
        (prefix.decode("utf-8", "replace"), (double or single).decode("utf-8", "replace"))
        for prefix, double, single in _XMLNS.findall(markup)
    ]


def declared_by(attributes: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Pick the namespaces that an element declares from its attributes, by prefix."""
    return {
        name[6:]: value for name, value in attributes if name == "xmlns" or name.startswith("xmlns:")
    }


class Prefixes:
    """What a prefix means where records stand.

    Attributes:
        scope: Namespaces by prefix: declared by the root, else what a prefix always means.
    """

    def __init__(self, scan: bytes, fmt: XmlFormat) -> None:
        self._scan = scan
        self._conventions = {**CONVENTIONS, **fmt.namespaces}
        self.scope: dict[str, str] = {}
        prolog = _PROLOG.match(scan)
        root = prolog.end() if prolog else 0
        rest = _TAG_REST.match(scan, root + 1) if scan[root : root + 1] == b"<" else None
        self.enter(declared_in_tag(scan[root : rest.end()]) if rest else {})

    def enter(self, declared: dict[str, str]) -> None:
        """Take the declarations of a root; it cannot take a conventional meaning away."""
        self.scope = {**self._conventions, **{p: uri for p, uri in declared.items() if uri}}

    def uri(self, prefix: str, own: dict[str, str]) -> str | None:
        """Look a prefix up: in ``own``, in the scope, then anywhere in the file.

        An element between root and record may declare it, and nothing else can be meant.
        """
        if prefix in own:
            return own[prefix]
        if prefix in self.scope:
            return self.scope[prefix]
        return self._anywhere.get(prefix)

    @cached_property
    def _anywhere(self) -> dict[str, str]:
        # The first declaration of a prefix counts.
        return dict(reversed(declared_in(self._scan)))


def pieces(scan: bytes, prefixes: Prefixes, fmt: XmlFormat) -> Iterator[Piece]:
    """Cut scannable bytes at the record's tags: one piece for each start tag, in their order.

    An end tag for which no record is open ends one whose start tag is destroyed: its piece starts
    after the record or the feed's start tag before it.
    """
    meanings = {**RECORD_TAGS, "feed": ATOM, fmt.row_tag: fmt.row_namespace}
    foreign = _Foreign(scan)
    opened: _Tag | None = None
    own: dict[str, str] = {}
    # Elements of the record's name in another namespace that are open: their end tags are theirs.
    namesakes: list[str] = []
    is_in_other = False
    nobodys = 0

    def stopped(start: int, end: int, by: str) -> Piece:
        lacks = f"{by} before the record's end tag"
        return Piece(start, start + len(scan[start:end].rstrip(_WHITE)), lacks)

    for tag in _tags(scan, frozenset(meanings)):
        if tag.start < nobodys:
            continue
        declared = declared_in_tag(scan[tag.start : tag.end]) if tag.opens else own
        if tag.name == fmt.row_tag and not tag.opens and tag.prefix in namesakes:
            namesakes.remove(tag.prefix)
            continue
        if prefixes.uri(tag.prefix, declared) != meanings[tag.name]:
            if tag.name == fmt.row_tag and not tag.closes:
                namesakes.append(tag.prefix)
            continue
        if tag.opens:
            if opened is not None:
                end = foreign.end_of_record(opened, tag, meanings[tag.name])
                if end is not None:
                    yield Piece(opened.start, end, "")
                    opened, nobodys = None, end
                    continue
                yield stopped(opened.start, tag.start, f"the next <{tag.name}> starts")
                opened = None
            namesakes.clear()
            is_in_other = tag.name not in ("feed", fmt.row_tag) and not tag.closes
            if tag.name == "feed":
                prefixes.enter(declared)
            elif tag.name == fmt.row_tag and tag.closes:
                yield Piece(tag.start, tag.end, "")
            elif tag.name == fmt.row_tag:
                opened, own = tag, declared
        elif opened is not None and tag.name == fmt.row_tag:
            yield Piece(opened.start, tag.end, "")
            opened = None
        elif opened is not None and tag.name == "feed":
            yield stopped(opened.start, tag.start, "the feed ends")
            opened = None
        elif tag.name == fmt.row_tag and not is_in_other:
            start = tag.start - len(scan[nobodys : tag.start].lstrip(_WHITE))
            yield Piece(start, tag.end, "the record's start tag is missing")
        if not tag.opens and tag.name != fmt.row_tag:
            is_in_other = False
        nobodys = tag.end
    if opened is not None:
        yield stopped(opened.start, len(scan), "the file ends")


class _Tag(NamedTuple):
    """A tag of a record or a feed; ``end`` is after its ``>``, or after its name if it has none."""

    start: int
    end: int
    prefix: str
    name: str
    opens: bool
    closes: bool


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
    counts as never begun, and costs its record alone, when no end follows, or when another of its
    kind begins before its end: of comments always, because XML has no ``--`` inside a comment; of
    instructions after a record's start tag; of CDATA after a record's end tag and another's start
    tag, because a feed may be quoted in a section, sections and all.
    """

    def __init__(self, scan: bytes, opener: bytes, closer: bytes, names: bytes) -> None:
        def seeker(pattern: bytes) -> _Seeker:
            compiled = re.compile(pattern)

            def find(position: int) -> int:
                match = compiled.search(scan, position)
                return match.start() if match else -1

            return _Seeker(find)

        self._opener, self._closer = opener, closer
        self._end = _Seeker(partial(scan.find, closer))
        self._nested = _Seeker(partial(scan.find, opener))
        self._record_end = seeker(rb"</" + names)
        self._record_start = seeker(rb"<" + names)

    def end(self, start: int) -> int | None:
        inside = start + len(self._opener)
        end = self._end.at_or_after(inside)
        if end == _NEVER:
            return None
        suspect = inside
        if self._opener == b"<![CDATA[":
            suspect = self._record_end.at_or_after(suspect)
        if self._opener != b"<!--" and suspect < end:
            suspect = self._record_start.at_or_after(suspect)
        if suspect < end and self._nested.at_or_after(suspect) < end:
            return None
        return end + len(self._closer)


def _tags(scan: bytes, names: frozenset[str]) -> Iterator[_Tag]:
    """Find the tags with one of these local names, wherever they are markup.

    Names are looked for first and what stands before them after: in a page that is a record in a
    hundred tags, a look at each tag would take ten times as long.
    """
    local = b"|".join(re.escape(name.encode()) for name in sorted(names))
    name_of = rb"(?:([^\s<>/:!?]++):)?(" + local + rb")(?=[\s/><]|\Z)"
    tag_start = re.compile(rb"<(/?+)" + name_of)
    opener = re.compile(rb"<(?:!--|!\[CDATA\[|\?|!DOCTYPE|!)")
    opaque = {
        b"<!--": _Opaque(scan, b"<!--", b"-->", name_of),
        b"<![CDATA[": _Opaque(scan, b"<![CDATA[", b"]]>", name_of),
        b"<?": _Opaque(scan, b"<?", b"?>", name_of),
    }
    # `deleted-entry` is found with `entry`, which is in it.
    needles = [n.encode() for n in names if not any(m in n for m in names - {n})]
    name_seekers = [_Seeker(partial(scan.find, needle)) for needle in needles]
    opener_seekers = [_Seeker(partial(_find_after_bracket, scan, mark)) for mark in (b"!", b"?")]
    before_document = True
    position = 0
    while True:
        next_opener = min(seeker.at_or_after(position) for seeker in opener_seekers)
        next_name = min(seeker.at_or_after(position) for seeker in name_seekers)
        if next_name == _NEVER:
            return
        if next_opener < next_name:
            found = opener.match(scan, next_opener)
            assert found is not None
            position = found.end()
            if found[0] == b"<!DOCTYPE" and before_document:
                # There is one at most, before the first element; elsewhere it is a fault.
                doctype = _DOCTYPE.match(scan, next_opener)
                position = doctype.end() if doctype else position
                before_document = False
            elif found[0] in opaque:
                position = opaque[found[0]].end(next_opener) or position
            continue
        start = scan.rfind(b"<", position, next_name)
        match = tag_start.match(scan, start) if start >= 0 else None
        if match is None:
            position = next_name + 1
            continue
        before_document = False
        slash, prefix, name = match.groups()
        rest = _TAG_REST.match(scan, match.end())
        position = rest.end() if rest else match.end()
        yield _Tag(
            start,
            position,
            (prefix or b"").decode("utf-8", "replace"),
            name.decode(),
            opens=not slash,
            closes=bool(slash) or (rest is not None and scan[position - 2] == ord("/")),
        )


def _find_after_bracket(scan: bytes, mark: bytes, position: int) -> int:
    """Find ``<`` before a mark. A single byte is found much faster than two, and marks are few."""
    place = scan.find(mark, position + 1)
    while place >= 0 and scan[place - 1] != ord("<"):
        place = scan.find(mark, place + 1)
    return place - 1 if place >= 0 else -1


class _Foreign:
    """Tells a foreign element from the next record where a record declares namespaces inside.

    In ``<x xmlns="urn:other"><entry/></x>`` no record starts, but where ``x`` was never closed the
    next record does. So a tag is foreign only when a parser reads the whole open record, in which
    the tag stands under a declaration of another namespace, from its start tag to its end tag.
    """

    def __init__(self, scan: bytes) -> None:
        self._scan = scan
        # Each record may need to be read on to the end of the file before it is known that it has
        # no end. Whatever a file holds, all of that together stays in proportion to its size.
        self._budget = 4 * len(scan)

    def end_of_record(self, opened: _Tag, tag: _Tag, namespace: str) -> int | None:
        """Give the open record's end if a tag in it is foreign, else None."""
        scan = self._scan
        if scan.find(b"xmlns", opened.end, tag.start) < 0:
            return None
        scopes: list[dict[str, str]] = [{}]
        found: list[int] = []

        def start(_: str, attributes: dict[str, str]) -> None:
            own = declared_by(attributes.items())
            scopes.append({**scopes[-1], **own} if own else scopes[-1])
            if opened.start + parser.CurrentByteIndex == tag.start:
                is_foreign = scopes[-1].get(tag.prefix, namespace) != namespace
                if not is_foreign:
                    raise StopIteration

        def end(_: str) -> None:
            scopes.pop()
            if len(scopes) == 1:
                found.append(opened.start + parser.CurrentByteIndex)
                raise StopIteration

        # Structure is all that matters here, and in a single-byte encoding it is all ASCII.
        parser = expat.ParserCreate("iso-8859-1")
        parser.StartElementHandler = start
        parser.EndElementHandler = end
        # Expat reads a long token anew with each piece of it, so the pieces double.
        fed, size = opened.start, max(1 << 16, tag.end - opened.start)
        with suppress(expat.ExpatError, StopIteration):
            while fed < len(scan) and self._budget > 0:
                piece = scan[fed : fed + size]
                self._budget -= len(piece)
                parser.Parse(piece, False)
                fed, size = fed + len(piece), 2 * size
        return scan.find(b">", found[0]) + 1 if found else None
