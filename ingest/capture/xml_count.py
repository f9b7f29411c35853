"""Counts the records of an XML page by other code than the cutter's, to check it by."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from xml.parsers import expat

from ingest.capture.encoding import detect
from ingest.capture.xml_scan import ATOM, CONVENTIONS, RECORD_TAGS, XmlFormat, scannable, utf8

_NEVER = 1 << 62
_DECLARED = re.compile(rb"xmlns(?::([^\s=<>/\"']+))?\s*=\s*(\"[^\"<]*\"|'[^'<]*')")
_UNDECLARED = re.compile(rb"xmlns\s*=\s*(?:\"\"|'')")
_SPACE = re.compile(rb"\s*+")
_WHOLE_TAG = re.compile(rb"<(?>(?:[^<>\"']++|\"[^\"<]*+\"|'[^'<]*+')*)>")
_CLOSERS = {b"<!--": b"-->", b"<![CDATA[": b"]]>", b"<?": b"?>"}


def count(data: bytes, fmt: XmlFormat) -> int:
    """Count a file's records by other code than ``cut``.

    Start tags are counted as text, outside whatever hides them, and so are end tags for which no
    record is open. Only where the same prefix is declared with several meanings, a parser counts
    instead, if the page is well-formed.

    Args:
        data: The whole file.
        fmt: The record type.

    Returns:
        How many records start or, without a start, end in the file.

    Raises:
        FileReadError: The file is no XML or in no known encoding.
    """
    encoding = detect(data)
    scan = scannable(data, encoding)
    if fmt.row_tag.encode() not in scan:
        return 0
    tags = _Tags(scan, fmt)
    if tags.is_unambiguous and scan.rfind(b"<!") < 0 and scan.rfind(b"<?") <= 0:
        return tags.count(tags.found())
    text = utf8(scan, encoding)
    start, end = doctype_by_parser(text)
    text = text[:start] + b" " * (end - start) + text[end:]
    tags = _Tags(text, fmt)
    found = None if tags.is_unambiguous else _count_by_parser(text, fmt)
    return tags.count(_outside(text, tags)) if found is None else found


def doctype_by_parser(text: bytes) -> tuple[int, int]:
    """Find where the document type starts and ends in UTF-8; (0, 0) where there is none.

    It is to be blanked before a parser reads on: entities are never resolved.
    """
    start = text.find(b"<!DOCTYPE")
    if start < 0:
        return 0, 0
    ends: list[int] = []
    parser = expat.ParserCreate("utf-8")

    def stop(_: str, __: dict[str, str]) -> None:
        raise StopIteration

    parser.StartElementHandler = stop
    parser.EndDoctypeDeclHandler = lambda: ends.append(parser.CurrentByteIndex)
    with suppress(expat.ExpatError, StopIteration):
        parser.Parse(text, True)
    return (start, text.find(b">", ends[0]) + 1) if ends else (0, 0)


def _count_by_parser(text: bytes, fmt: XmlFormat) -> int | None:
    """Count elements of the record's name; None where the text is not well-formed."""
    wanted = {f"{fmt.row_namespace} {fmt.row_tag}"}
    if {**CONVENTIONS, **fmt.namespaces}[""] == fmt.row_namespace:
        # A parser knows no conventions. It cannot tell a default namespace that is nowhere
        # declared from one that is taken back.
        if _UNDECLARED.search(text):
            return None
        wanted.add(fmt.row_tag)
    found = 0

    def start(name: str, _: dict[str, str]) -> None:
        nonlocal found
        found += name in wanted

    parser = expat.ParserCreate("utf-8", " ")
    parser.StartElementHandler = start
    try:
        parser.Parse(text, True)
    except expat.ExpatError:
        return None
    return found


def _outside(scan: bytes, tags: _Tags) -> Iterator[re.Match[bytes]]:
    """Give the tags outside comments, CDATA sections and instructions that end.

    The cutter's scanner says when one ends; the definition is the same, the code is not.
    """
    marks = {
        mark: array("q", (match.start() for match in re.finditer(re.escape(mark), scan)))
        for mark in (*_CLOSERS, *_CLOSERS.values())
    }
    all_tags = list(tags.found())
    starts, ends = (
        array("q", (tag.start() for tag in all_tags if bool(tag[1]) == is_end))
        for is_end in (False, True)
    )

    def next_of(places: array[int], position: int) -> int:
        index = bisect_left(places, position)
        return places[index] if index < len(places) else _NEVER

    openers = re.compile(rb"<!--|<!\[CDATA\[|<\?")
    candidates = [*openers.finditer(scan), *all_tags]
    hidden_to = 0
    for candidate in sorted(candidates, key=re.Match.start):
        if candidate.start() < hidden_to:
            continue
        if candidate.re is not openers:
            yield candidate
            continue
        opener, inside = candidate[0], candidate.end()
        end = next_of(marks[_CLOSERS[opener]], inside)
        suspect = next_of(ends, inside) if opener == b"<![CDATA[" else inside
        suspect = suspect if opener == b"<!--" else next_of(starts, suspect)
        if end < _NEVER and not (suspect < end and next_of(marks[opener], suspect) < end):
            hidden_to = end + len(_CLOSERS[opener])


def _skip_prolog(scan: bytes) -> int:
    """Find the first tag after white space, instructions and comments."""
    place = 0
    while True:
        space = _SPACE.match(scan, place)
        place = space.end() if space else place
        closer = next((c for o, c in _CLOSERS.items() if scan.startswith(o, place)), None)
        if closer is None or scan.find(closer, place) < 0:
            return place
        place = scan.find(closer, place) + len(closer)


def _declared(tag: re.Match[bytes] | None) -> Iterator[tuple[bytes, bytes]]:
    """Give the prefixes that a tag declares, with their namespaces."""
    if tag is None or b"xmlns" not in tag[0]:
        return
    # Values are consumed whole: what looks like a declaration inside one is none.
    for name, value in re.findall(rb"([^\s=<>/\"']+)\s*=\s*(\"[^\"]*\"|'[^']*')", tag[0]):
        if name == b"xmlns" or name.startswith(b"xmlns:"):
            yield name[6:], value[1:-1]


class _Tags:
    """Tags with the local name of a record or a feed, as text."""

    def __init__(self, scan: bytes, fmt: XmlFormat) -> None:
        self._scan = scan
        self._record = fmt.row_tag.encode()
        meanings = {**RECORD_TAGS, "feed": ATOM, fmt.row_tag: fmt.row_namespace}
        self._meanings = {name.encode(): uri.encode() for name, uri in meanings.items()}
        names = b"|".join(map(re.escape, self._meanings))
        self._tag = re.compile(rb"<(/?)(?:([^\s<>/:!?]+):)?(" + names + rb")(?=[\s/><]|\Z)")
        self._bound = {
            prefix.encode(): uri.encode() for prefix, uri in {**CONVENTIONS, **fmt.namespaces}.items()
        }
        root = _WHOLE_TAG.match(scan, _skip_prolog(scan))
        for prefix, uri in _declared(root):
            if uri:
                self._bound[prefix] = uri
        self.is_unambiguous = True
        for match in _DECLARED.finditer(scan):
            uri = match[2][1:-1]
            if self._bound.setdefault(match[1] or b"", uri) != uri:
                self.is_unambiguous = False

    def found(self) -> Iterator[re.Match[bytes]]:
        """Give each: its groups are the slash of an end tag, the prefix, and the local name."""
        return self._tag.finditer(self._scan)

    def count(self, tags: Iterable[re.Match[bytes]]) -> int:
        """Count the records that start, and the end tags for which nothing is open."""
        found = 0
        opened = b""
        own: dict[bytes, bytes] = {}
        # How many elements of the record's name in other namespaces are open, by prefix.
        namesakes: Counter[bytes] = Counter()
        for tag in tags:
            slash, prefix, name = tag[1], tag[2] or b"", tag[3]
            whole = None if slash else _WHOLE_TAG.match(self._scan, tag.start())
            declared = own if slash else dict(_declared(whole))
            is_empty = whole is not None and whole[0].endswith(b"/>")
            if slash and name == self._record and namesakes[prefix]:
                namesakes[prefix] -= 1
            elif declared.get(prefix, self._bound.get(prefix)) != self._meanings[name]:
                namesakes[prefix] += name == self._record and not slash and not is_empty
            elif not slash:
                found += name == self._record
                opened = b"" if is_empty or name == b"feed" else name
                own = declared if opened == self._record else own
                namesakes.clear()
            elif name == b"feed" or opened == name:
                opened = b""
            elif name == self._record:
                found += not opened
        return found
