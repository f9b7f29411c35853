"""Putting another text into an XML record, and leaving every other byte as it is."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from xml.parsers import expat

from ingest.errors import InputError
from ingest.office.paths import Path

# A start tag up to its '>', over quoted attributes that may hold one.
_START_TAG = re.compile(rb"<[^\s<>\"'/]+(?:[^<>\"']|\"[^\"]*\"|'[^']*')*?(/?)>", re.DOTALL)
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass
class _Element:
    """Where an element stands in the record's bytes."""

    path: tuple[tuple[str, int], ...]
    start: int
    attributes: dict[str, str]
    end: int = 0
    has_children: bool = False
    text: list[str] = field(default_factory=list)


def check_record(payload: str, row_tag: str) -> None:
    """Refuse a text that is not one well-formed record.

    Args:
        payload: The text. Prefixes may be declared further up in the page it is from.
        row_tag: Local name of the record's element.

    Raises:
        InputError: It is not; with line and column.
    """
    root = _elements(payload)[0]
    name = root.path[0][0]
    if name != row_tag:
        raise InputError(f"The text is a <{name}>, and the record must be one <{row_tag}>.")


def set_text(payload: str, path: Path, value: str) -> str:
    """Set the text of one element or attribute of a record.

    Args:
        payload: The record.
        path: Which. An attribute that is not there is added, an element that is not there is not:
            nothing says where it belongs.
        value: The text; it is escaped here.

    Returns:
        The record with nothing else changed.

    Raises:
        InputError: The record is not well-formed; the path leads to no element, or to several.
    """
    if bad := _NO_XML.search(value):
        raise InputError(f"The new text holds U+{ord(bad[0]):04X}, which XML cannot hold. Leave it out.")
    found = _matching(_elements(payload), path)
    if not found:
        raise InputError(
            f"The record has no element {path}, and nothing says where it belongs. Correct the whole "
            "record with --editor or --from."
        )
    if len(found) > 1:
        raise InputError(
            f"{path} leads to {len(found)} elements. Say which, counted from 1: "
            f"{_numbered(found[0])}, ..."
        )
    element = found[0]
    raw = payload.encode("utf-8")
    tag = _START_TAG.match(raw, element.start)
    assert tag is not None, "expat has read this tag"
    if path.attribute:
        changed = _with_attribute(raw, tag, path.attribute, value)
    elif element.has_children:
        raise InputError(f"{path} holds elements, not only a text. Name one of these.")
    else:
        changed = _with_content(raw, tag, element.end, value)
    text = changed.decode("utf-8")
    again = _matching(_elements(text), path)
    assert len(again) == 1 and _value(again[0], path) == value
    return text


def _elements(payload: str) -> list[_Element]:
    """Every element of a record, in the order of their start tags."""
    found: list[_Element] = []
    open_ones: list[_Element] = []
    counts: list[Counter[str]] = [Counter()]
    # Without namespaces: a record cut out of its page lacks the declarations of its prefixes.
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True

    def start(name: str, attributes: dict[str, str]) -> None:
        local = name.rpartition(":")[2]
        counts[-1][local] += 1
        if open_ones:
            open_ones[-1].has_children = True
        above = open_ones[-1].path if open_ones else ()
        element = _Element((*above, (local, counts[-1][local])), parser.CurrentByteIndex, attributes)
        found.append(element)
        open_ones.append(element)
        counts.append(Counter())

    def end(_: str) -> None:
        open_ones.pop().end = parser.CurrentByteIndex
        counts.pop()

    def characters(text: str) -> None:
        open_ones[-1].text.append(text)

    def doctype(*_: object) -> None:
        raise InputError("The text holds a document type. A record is one element and nothing else.")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(payload.encode("utf-8"), True)
    except expat.ExpatError as error:
        raise InputError(
            f"The text is no well-formed XML: {expat.ErrorString(error.code)}, line {error.lineno} "
            f"column {error.offset + 1} of it."
        ) from error
    return found


def _matching(elements: list[_Element], path: Path) -> list[_Element]:
    """The elements to which a path below the record leads."""

    def fits(element: _Element) -> bool:
        below = element.path[1:]
        return len(below) == len(path.steps) and all(
            name == step.name and step.number in (None, number)
            for (name, number), step in zip(below, path.steps, strict=True)
        )

    return [element for element in elements if fits(element)]


def _numbered(element: _Element) -> str:
    return ".".join(f"{name}[{number}]" for name, number in element.path[1:])


def _with_content(raw: bytes, tag: re.Match[bytes], end: int, value: str) -> bytes:
    content = _escaped(value)
    if not tag[1]:
        return raw[: tag.end()] + content + raw[end:]
    name = re.match(rb"<([^\s/>]+)", tag[0])
    assert name is not None
    opened = tag[0][:-2].rstrip() + b">"
    return raw[: tag.start()] + opened + content + b"</" + name[1] + b">" + raw[tag.end() :]


def _with_attribute(raw: bytes, tag: re.Match[bytes], name: str, value: str) -> bytes:
    content = _escaped(value).replace(b'"', b"&quot;").replace(b"\n", b"&#10;").replace(b"\t", b"&#9;")
    there = None
    for match in re.finditer(rb"\s([^\s=<>\"']+)\s*=\s*(?:\"[^\"]*\"|'[^']*')", tag[0]):
        if match[1].rpartition(b":")[2] == name.encode():
            there = match
    new = name.encode() + b'="' + content + b'"'
    if there is not None:
        start, stop = tag.start() + there.start(1), tag.start() + there.end()
        return raw[:start] + there[1] + new[len(name.encode()) :] + raw[stop:]
    place = tag.end() - (2 if tag[1] else 1)
    before = raw[:place].rstrip()
    return before + b" " + new + raw[len(before) :]


def _escaped(value: str) -> bytes:
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\r", "&#13;")):
        value = value.replace(sign, entity)
    return value.encode("utf-8")


def _value(element: _Element, path: Path) -> str:
    if not path.attribute:
        return "".join(element.text)
    return next(v for n, v in element.attributes.items() if n.rpartition(":")[2] == path.attribute)
