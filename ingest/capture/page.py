"""The head of an ATOM page: what the page says of itself, and of the pages before and after it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from xml.parsers import expat

from ingest.capture.encoding import detect
from ingest.capture.xml import ATOM, FIRST_RECORD
from ingest.errors import FileReadError

# How every end tag of a record ends, whatever its prefix.
_LAST_TAG = b"entry>"


@dataclass(frozen=True)
class PageHead:
    """What a page says of itself.

    Attributes:
        feed_id: The feed's own ``id``; None where there is none.
        updated: The feed's ``updated``; None where it is missing or no instant.
        links: Addresses by relation (``self``, ``first``, ``prev``, ``next``), as written.
        fault: Why the page is not well-formed; None if it is.
    """

    feed_id: str | None
    updated: datetime | None
    links: dict[str, str] = field(default_factory=dict)
    fault: str | None = None

    @property
    def next_url(self) -> str | None:
        """Where the next older page is, as written; None where there is none."""
        return self.links.get("next")


def read_page_head(data: bytes, *, check: bool = True) -> PageHead:
    """Read what a page says of itself, as far as damage allows.

    Args:
        data: The whole page.
        check: Whether to read its records too, to know whether the page is well-formed. Without, only
            what stands before the first record and behind the last is read, many times as fast.

    Raises:
        FileReadError: It is no XML in a known encoding, or its root is no Atom feed.
    """
    encoding = detect(data)
    text = data[encoding.bom_length :].decode(encoding.name, "replace").encode("utf-8", "replace")
    if not check and (first := FIRST_RECORD.search(text)):
        end = text.rfind(_LAST_TAG)
        text = text[: first.start()] + text[max(end + len(_LAST_TAG), first.start()) :]
    reader = _HeadReader()
    fault = None
    try:
        reader.parser.Parse(text, True)
    except expat.ExpatError as error:
        fault = f"line {error.lineno}: {expat.ErrorString(error.code)}"
    if reader.root != f"{ATOM} feed":
        raise FileReadError("NO_FEED", f"the root element is '{reader.root}', not Atom's feed")
    updated = None
    with suppress(ValueError):
        updated = datetime.fromisoformat("".join(reader.texts["updated"]).strip())
    if updated is not None and updated.tzinfo is None:
        updated = None
    return PageHead("".join(reader.texts["id"]).strip() or None, updated, reader.links, fault)


class _HeadReader:
    """Listens to the feed's own children, and to nothing below."""

    def __init__(self) -> None:
        self.root = ""
        self.links: dict[str, str] = {}
        self.texts: dict[str, list[str]] = {"id": [], "updated": []}
        self._depth, self._inside = 0, ""
        self.parser = expat.ParserCreate("utf-8", " ")
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if self._depth == 0:
            self.root = name
        elif self._depth == 1:
            namespace, _, local = name.rpartition(" ")
            self._inside = local if namespace == ATOM and local in self.texts else ""
            relation, address = attributes.get("rel"), attributes.get("href")
            if namespace == ATOM and local == "link" and relation and address:
                self.links[relation] = address.strip()
        self._depth += 1

    def _end(self, _: str) -> None:
        self._depth -= 1
        if self._depth == 1:
            self._inside = ""

    def _text(self, data: str) -> None:
        if self._inside and self._depth == 2:
            self.texts[self._inside].append(data)
