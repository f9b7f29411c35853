"""Judges one XML record: is it well-formed, and what does it hold that the schema does not take?

Nearly every record is sound and holds nothing strange. For those, expat reads the text with nobody
listening, and a quick walk over its tags shows that each is in the schema. Only where the quick
walk stumbles does a thorough one tell what is strange.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import NamedTuple
from xml.parsers import expat

from ingest.capture.xml_scan import Prefixes, XmlFormat, declared_by, declared_in, declared_in_tag
from ingest.schema import Node

MAX_UNPARSED_PATHS = 1000
"""Paths listed of one record; hostile files invent names for ever. Then ``...`` stands for more."""

MAX_UNPARSED_DEPTH = 32
"""Elements nested deeper are listed as ``...`` below their ancestor at this depth."""

_MAX_NAME_LENGTH = 200
_MAX_LEARNT = 1000
_CUT_SHORT = "..."

_TAG = re.compile(
    rb"([^\s/\"'=>]++)((?>(?:\s++[^\s=/\"'>]++\s*+=\s*+(?:\"[^\"]*+\"|'[^']*+'))*))\s*+(/?)"
)
_TAG_NAME = re.compile(rb"<[^\s/>]++")
_ATTRIBUTE = re.compile(rb"\s+([^\s=<>/\"']++)\s*+=\s*+(?:\"[^\"]*+\"|'[^']*+')")


class Verdict(NamedTuple):
    """What is to be said of a record.

    Attributes:
        words: What the parser says against it; empty where it is well-formed.
        line: Where, from 1, counted in the record.
        column: Where, from 1, counted in the record's line.
        unparsed: Paths that a parse along the schema does not take, sorted.
        parse_text: The text for Spark, where it must differ.
    """

    words: str
    line: int
    column: int
    unparsed: tuple[str, ...]
    parse_text: str | None


_PLAIN = Verdict("", 1, 1, (), None)


class _Place(dict[bytes, "_Step"]):
    """An element of the schema as a file writes it, with steps to what may follow in it.

    Steps are learnt from the file: by a tag with the white space after it, and in ``tags`` by a
    start tag alone. So a walk is mostly one look-up per tag, whatever the prefixes.
    """

    __slots__ = ("is_struct", "node", "tags")

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node
        self.is_struct = not node.has_text
        self.tags: dict[bytes, _Step] = {}


class _Step(NamedTuple):
    """From a tag to the next one.

    Attributes:
        place: Where the next tag stands: in a child, or where the last one stood after an empty
            element; ``_LEAF`` where only the child's end tag may follow; None after an end tag.
        bit: The child's bit in the set of children seen.
        once: The same where the child may not repeat, else 0.
    """

    place: _Place | None
    bit: int
    once: int


_LEAF = _Place(Node("", {}, frozenset(), is_array=False, has_text=True))
_OUT = _Step(None, 0, 0)


class Walker:
    """Judges the records of one file and record type."""

    def __init__(self, fmt: XmlFormat, prefixes: Prefixes) -> None:
        self._fmt = fmt
        self._prefixes = prefixes
        self._names = _Names(fmt, prefixes)
        self._tops: dict[frozenset[tuple[str, str]], _Place] = {}
        self._leaf_ends: set[bytes] = set()
        self._scope = prefixes.scope

    def walk(self, record: bytes) -> Verdict:
        """Judge one record, given as UTF-8."""
        try:
            expat.ParserCreate("utf-8").Parse(record, True)
        except expat.ExpatError as error:
            # Only a walk knows which element stood open.
            where = _Thorough(self._fmt, self._names, record).open_path()
            words = expat.ErrorString(error.code) + (f" inside {where}" if where else "")
            return Verdict(words, error.lineno, error.offset + 1, (), None)
        if not _hides(record) and self._is_plain(record):
            return _PLAIN
        return _Thorough(self._fmt, self._names, record).verdict()

    def _is_plain(self, record: bytes) -> bool:
        """Whether a well-formed record without comments and the like holds only what is known.

        Each ``<`` starts a tag. What follows up to the next one, the tag and the white space
        behind it, recurs all the time, so that one look-up mostly settles both. The answer may be
        no where all is fine, but never yes where something is not.
        """
        place = self._top(record)
        if place is None:
            return False
        seen = 0
        ancestors: list[tuple[_Place, int]] = []
        leaf_ends = self._leaf_ends
        parts = iter(record.split(b"<"))
        next(parts)
        for part in parts:
            step = place.get(part)
            if step is None:
                # Most often a leaf and its text, which is another each time.
                step = place.tags.get(part[: part.find(b">")])
                if step is None or step[0] is not _LEAF:
                    step = self._learn(place, part, ancestors)
                    if step is None:
                        return False
            child, bit, once = step
            if child is None:
                place, seen = ancestors.pop()
                continue
            if seen & once:
                return False
            seen |= bit
            if child is _LEAF:
                end = next(parts)
                if end not in leaf_ends and not self._is_leaf_end(place, end):
                    return False
            elif child is not place:
                ancestors.append((place, seen))
                place, seen = child, 0
        return True

    def _is_leaf_end(self, place: _Place, part: bytes) -> bool:
        if not part.startswith(b"/"):
            return False
        text = part.partition(b">")[2]
        if text and not text.isspace():
            return not place.is_struct
        if len(self._leaf_ends) < _MAX_LEARNT:
            self._leaf_ends.add(part)
        return True

    def _top(self, record: bytes) -> _Place | None:
        """Give the place above the record; None where a prefix changes its meaning inside it."""
        scope = self._prefixes.scope
        declared = declared_in(record)
        if declared:
            # What the record's own tag declares holds all over it.
            scope = {**scope, **declared_in_tag(record.partition(b">")[0])}
            if any(scope.get(prefix) != uri for prefix, uri in declared):
                return None
        key = frozenset(scope.items())
        top = self._tops.get(key)
        if top is None:
            if len(self._tops) >= _MAX_LEARNT:
                self._tops.clear()
            # The record's element is whatever the scanner took for it.
            rows = Node("", {"": self._fmt.schema}, frozenset(), False, True)
            top = self._tops[key] = _Place(rows)
        self._scope = scope
        return top

    def _learn(self, place: _Place, part: bytes, ancestors: list[tuple[_Place, int]]) -> _Step | None:
        """Find the step for a tag and what follows it, if both are in the schema."""
        tag, _, text = part.partition(b">")
        if tag.startswith(b"/"):
            step, holder = _OUT, ancestors[-1][0]
        else:
            known = place.tags.get(tag) or self._learn_tag(place, tag)
            if known is None or known.place is None:
                return None
            step, holder = known, known.place
        if not text or text.isspace():
            if len(place) < _MAX_LEARNT:
                place[part] = step
        elif holder.is_struct:
            return None
        return step

    def _learn_tag(self, place: _Place, tag: bytes) -> _Step | None:
        match = _TAG.fullmatch(tag)
        if match is None:
            return None
        prefix, _, local = match[1].decode("utf-8").rpartition(":")
        known = self._names.is_known(self._scope.get(prefix))
        row = place.node.children.get("")
        node = row or (place.node.children.get(local) if known else None)
        if node is None:
            return None
        for attribute in _ATTRIBUTE.finditer(match[2]):
            if not _is_plain_attribute(node, attribute[1].decode("utf-8")):
                return None
        bit = 0 if row else 1 << list(place.node.children).index(local)
        is_leaf = node.has_text and not node.children
        child = place if match[3] else _LEAF if is_leaf else _Place(node)
        step = _Step(child, bit, 0 if node.is_array else bit)
        if len(place.tags) < _MAX_LEARNT:
            place.tags[tag] = step
        return step


def _hides(record: bytes) -> bool:
    """Whether comments, CDATA or instructions are in a record; single bytes are found fastest."""
    return (b"!" in record and b"<!" in record) or (b"?" in record and b"<?" in record)


def _is_plain_attribute(node: Node, name: str) -> bool:
    """Whether Spark takes an attribute as the schema means it, or ignores a declaration."""
    prefix, _, local = name.rpartition(":")
    if prefix == "xmlns" or name == "xmlns":
        return not _takes_attribute(node, name)
    return local in node.attributes and prefix in ("", "xml")


class _Names:
    """What the names in records mean, and how paths show them."""

    def __init__(self, fmt: XmlFormat, prefixes: Prefixes) -> None:
        self._fmt = fmt
        self._prefixes = prefixes
        self._shown = {uri: prefix for prefix, uri in fmt.namespaces.items()}

    @property
    def scope(self) -> dict[str, str]:
        """What prefixes mean where records stand."""
        return self._prefixes.scope

    def is_known(self, uri: str | None) -> bool:
        return uri in self._shown

    def of_element(self, name: str, scope: dict[str, str]) -> tuple[bool, str, str]:
        """Say whether a name's namespace is known; give its local name, and how paths show it.

        Known namespaces are shown by their usual prefix, others as written; but where that would
        look like a name in a known namespace, the namespace is spelt out.
        """
        prefix, _, local = name.rpartition(":")
        uri = self._prefixes.uri(prefix, scope) if local and name[0] != ":" else None
        if uri in self._shown:
            usual = self._shown[uri]
            return True, local, _shortened(f"{usual}:{local}" if usual else local)
        if prefix in self._fmt.namespaces and name[0] != ":":
            return False, local, _shortened(f"{{{uri or ''}}}{local}")
        return False, local, _shortened(name)

    def of_attribute(self, name: str, scope: dict[str, str]) -> str:
        """Show an attribute's name; without a prefix it is in no namespace."""
        return self.of_element(name, scope)[2] if ":" in name else _shortened(name)


def _shortened(name: str) -> str:
    return name if len(name) <= _MAX_NAME_LENGTH else name[:_MAX_NAME_LENGTH] + _CUT_SHORT


class _Frame(NamedTuple):
    """An open element.

    ``node`` is None where the schema does not hold it; ``new_name`` is what its end tag is to say.
    """

    path: str
    depth: int
    node: Node | None
    seen: set[str]
    scope: dict[str, str]
    new_name: bytes


class _Thorough:
    """Reads one record with expat, element by element, and notes what is strange."""

    def __init__(self, fmt: XmlFormat, names: _Names, record: bytes) -> None:
        self._schema = fmt.schema
        self._names = names
        self._record = record
        self._unparsed: set[str] = set()
        self._edits: list[tuple[int, int, bytes]] = []
        self._frames: list[_Frame] = []
        self._parser = expat.ParserCreate("utf-8")
        self._parser.ordered_attributes = True
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text

    def open_path(self) -> str:
        """Name the innermost element that is open where the record stops being well-formed."""
        with suppress(expat.ExpatError):
            self._parser.Parse(self._record, True)
        return self._frames[-1].path if self._frames else ""

    def verdict(self) -> Verdict:
        """Judge a well-formed record."""
        self._parser.Parse(self._record, True)
        parse_text = None
        if self._edits:
            parts: list[bytes] = []
            done = 0
            for start, end, new in sorted(self._edits):
                parts += [self._record[done:start], new]
                done = end
            parse_text = (b"".join(parts) + self._record[done:]).decode("utf-8")
        return Verdict("", 1, 1, tuple(sorted(self._unparsed)), parse_text)

    def _start(self, name: str, attributes: list[str]) -> None:
        if not self._frames:
            own = declared_by(zip(attributes[::2], attributes[1::2], strict=True))
            scope = {**self._names.scope, **own}
            shown = self._names.of_element(name, scope)[2]
            frame = _Frame(shown, 0, self._schema, set(), scope, b"")
        else:
            frame = self._child(self._frames[-1], name, attributes)
        self._frames.append(frame)
        strange = [
            attribute
            for attribute in attributes[::2]
            if frame.node is None or not _is_plain_attribute(frame.node, attribute)
        ]
        if strange:
            self._strange_attributes(frame, strange)

    def _child(self, parent: _Frame, name: str, attributes: list[str]) -> _Frame:
        own = declared_by(zip(attributes[::2], attributes[1::2], strict=True))
        scope = {**parent.scope, **own} if own else parent.scope
        known, local, shown = self._names.of_element(name, scope)
        depth = parent.depth + 1
        if parent.node is not None and known and local in parent.node.children:
            node = parent.node.children[local]
            path = f"{parent.path}/{shown}"
            if local in parent.seen and not node.is_array:
                self._note(f"{path}[]")
            parent.seen.add(local)
            return _Frame(path, depth, node, set(), scope, b"")
        new_name = b""
        if parent.node is not None and _takes_element(parent.node, name):
            new_name = _renamed(name)
            start = self._parser.CurrentByteIndex + 1
            self._edits.append((start, start + len(name.encode()), new_name))
            tag = _TAG.match(self._record, start)
            if tag is None or tag[3]:
                # An empty element has no end tag to rename.
                new_name = b""
        if depth > MAX_UNPARSED_DEPTH:
            shown = _CUT_SHORT
        path = parent.path if depth > MAX_UNPARSED_DEPTH + 1 else f"{parent.path}/{shown}"
        self._note(path)
        return _Frame(path, depth, None, set(), scope, new_name)

    def _end(self, name: str) -> None:
        new_name = self._frames.pop().new_name
        if new_name:
            start = self._parser.CurrentByteIndex + 2
            self._edits.append((start, start + len(name.encode()), new_name))

    def _text(self, data: str) -> None:
        frame = self._frames[-1]
        if frame.node is not None and not frame.node.has_text and data.strip(" \t\r\n"):
            self._note(f"{frame.path}/text()")

    def _strange_attributes(self, frame: _Frame, names: list[str]) -> None:
        for name in names:
            if name != "xmlns" and not name.startswith("xmlns:"):
                self._note(f"{frame.path}/@{self._names.of_attribute(name, frame.scope)}")
        taken = {
            name.encode(): _renamed(name)
            for name in names
            if frame.node is not None and _takes_attribute(frame.node, name)
        }
        if not taken:
            return
        # Attributes stand in the tag in any order, so their places are looked up in its text.
        tag = _TAG_NAME.match(self._record, self._parser.CurrentByteIndex)
        position = tag.end() if tag else len(self._record)
        while attribute := _ATTRIBUTE.match(self._record, position):
            if attribute[1] in taken:
                self._edits.append((*attribute.span(1), taken[attribute[1]]))
            position = attribute.end()

    def _note(self, path: str) -> None:
        full = len(self._unparsed) >= MAX_UNPARSED_PATHS
        self._unparsed.add(_CUT_SHORT if full and path not in self._unparsed else path)


def _spark_name(name: str) -> str:
    """Give the name by which Spark knows an element or attribute: what follows the last colon."""
    return name.rstrip(":").rpartition(":")[2]


def _takes_element(node: Node, name: str) -> bool:
    """Whether Spark would take a strange element for a field of the schema.

    A name that starts with ``_`` would land in the field of an attribute or of corrupt records; on
    a name of colons alone Spark fails.
    """
    local = _spark_name(name)
    return not local or local in node.children or local.startswith("_")


def _takes_attribute(node: Node, name: str) -> bool:
    """Whether Spark would take a strange attribute for a field of the schema."""
    local = _spark_name(name)
    if local == "corrupt_record" or not local:
        return True
    return ":" in name and local in node.attributes


def _renamed(name: str) -> bytes:
    """Give a name that nothing in a schema can have, and that no reader splits at a colon."""
    new = name.replace(":", "..") if ":" in name else f"_..{name}"
    return (f"_{new}" if new.startswith(".") else new).encode()
