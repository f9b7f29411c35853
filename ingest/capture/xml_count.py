"""Counts the records of an XML page by other code than the cutter's, to check it by."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from xml.parsers import expat

from ingest.capture.encoding import detect
from ingest.capture.xml_scan import CONVENTIONS, RECORD_TAGS, XmlFormat, scannable, utf8

_NEVER = 1 << 62
_DECLARED = re.compile(rb"xmlns(?::([^\s=<>/\"']+))?\s*=\s*(\"[^\"<]*\"|'[^'<]*')")
_UNDECLARED = re.compile(rb"xmlns\s*=\s*(?:\"\"|'')")
_TAG_NAME = re.compile(rb"<([^\s/><]*)")
_SPACE = re.compile(rb"\s*+")
_WHOLE_TAG = re.compile(rb"<(?>(?:[^<>\"']++|\"[^\"<]*+\"|'[^'<]*+')*)>")
_CLOSERS = {b"<!--": b"-->", b"<![CDATA[": b"]]>", b"<?": b"?>"}


def count(data: bytes, fmt: XmlFormat) -> int:
    """Count a file's records by other code than ``cut``.

    Start tags are counted as text, outside whatever hides them. Only where the same prefix is
    declared with several meanings, a parser counts instead, if the page is well-formed.

    Args:
        data: The whole file.
        fmt: The record type.

    Returns:
        How many records start in the file.

    Raises:
        FileReadError: The file is no XML or in no known encoding.
    """
    encoding = detect(data)
    scan = scannable(data, encoding)
    if fmt.row_tag.encode() not in scan:
        return 0
    tags = _StartTags(scan, fmt)
    if tags.is_unambiguous and scan.rfind(b"<!") < 0 and scan.rfind(b"<?") <= 0:
        return sum(tags.is_record(place) for place in tags.places())
    text = utf8(scan, encoding)
    start, end = doctype_by_parser(text)
    text = text[:start] + b" " * (end - start) + text[end:]
    tags = _StartTags(text, fmt)
    found = None if tags.is_unambiguous else _count_by_parser(text, fmt)
    return _count_outside(text, tags, fmt) if found is None else found


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


def _count_outside(scan: bytes, tags: _StartTags, fmt: XmlFormat) -> int:
    """Count start tags outside comments, CDATA sections and instructions that end.

    The cutter's scanner says when one ends; the definition is the same, the code is not.
    """
    marks = {
        mark: array("q", (match.start() for match in re.finditer(re.escape(mark), scan)))
        for mark in (*_CLOSERS, *_CLOSERS.values())
    }
    names = b"|".join(re.escape(name.encode()) for name in {*RECORD_TAGS, "feed", fmt.row_tag})
    tag = rb"(?:[^\s<>/:!?]+:)?(?:" + names + rb")(?=[\s/><]|\Z)"
    starts, ends = (
        array("q", (match.start() for match in re.finditer(bracket + tag, scan)))
        for bracket in (rb"<", rb"</")
    )

    def next_of(places: array[int], position: int) -> int:
        index = bisect_left(places, position)
        return places[index] if index < len(places) else _NEVER

    openers = re.compile(rb"<!--|<!\[CDATA\[|<\?")
    candidates = [(match.start(), match[0]) for match in openers.finditer(scan)]
    candidates += [(place, b"") for place in tags.places()]
    found = hidden_to = 0
    for place, opener in sorted(candidates):
        if place < hidden_to:
            continue
        if not opener:
            found += tags.is_record(place)
            continue
        inside = place + len(opener)
        end = next_of(marks[_CLOSERS[opener]], inside)
        suspect = next_of(ends, inside) if opener == b"<![CDATA[" else inside
        suspect = suspect if opener == b"<!--" else next_of(starts, suspect)
        if end < _NEVER and not (suspect < end and next_of(marks[opener], suspect) < end):
            hidden_to = end + len(_CLOSERS[opener])
    return found


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


class _StartTags:
    """Start tags with the record's local name, as text."""

    def __init__(self, scan: bytes, fmt: XmlFormat) -> None:
        self._scan = scan
        self._name = fmt.row_tag.encode()
        self._namespace = fmt.row_namespace.encode()
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

    def places(self) -> Iterator[int]:
        """Give the places of the ``<`` of each."""
        scan, name = self._scan, self._name
        done, place = 0, scan.find(name)
        while place >= 0:
            start = scan.rfind(b"<", done, place)
            before = scan[start + 1 : place] if start >= 0 else b"/"
            done = place + len(name)
            after = scan[done : done + 1]
            prefix_ends = before.endswith(b":") and before.count(b":") == 1 and len(before) > 1
            if (
                (not before or prefix_ends)
                and not re.search(rb"[\s>/!?]", before)
                and (not after or after in b" \t\r\n\f\v/><")
            ):
                yield start
            place = scan.find(name, done)

    def is_record(self, place: int) -> bool:
        """Whether the prefix of the start tag at a place means the record's namespace."""
        tag = _WHOLE_TAG.match(self._scan, place)
        name = _TAG_NAME.match(self._scan, place)
        prefix = name[1].rpartition(b":")[0] if name else b""
        return dict(_declared(tag)).get(prefix, self._bound.get(prefix)) == self._namespace
