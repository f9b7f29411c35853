"""One value of a person, as it may stand in a column, a record's text or a file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any
from xml.sax.saxutils import escape

from ingest.errors import InputError

SHORTEST = 4
"""Characters: what is shorter stands in too much that is not meant."""
REMOVED = "[removed]"
# Encodings that files of feeds come in. A text that one of them cannot write is not in such a file.
_ENCODINGS = ("utf-8", "utf-16-le", "utf-16-be", "cp1252", "iso-8859-15")


class Identifier:
    """A value, and where it counts as there.

    It counts where it stands whole, upper or lower case: ``ES123`` is in ``id=es123;`` and not in
    ``ES1234``. It is also found as XML, JSON and CSV write it.
    """

    def __init__(self, value: str) -> None:
        """Take a value, without the blanks around it."""
        self.value = value.strip()

    @classmethod
    def asked(cls, value: str) -> Identifier:
        """A value that somebody gives.

        Raises:
            InputError: It is too short to mean one person.
        """
        found = cls(value)
        if len(found.value) < SHORTEST:
            raise InputError(
                f"The value has {len(found.value)} characters. Give at least {SHORTEST}: what is "
                "shorter stands in records that have nothing to do with it."
            )
        return found

    @cached_property
    def forms(self) -> tuple[str, ...]:
        """How the value may be written, each once, the value itself first."""
        plain = self.value
        written = [plain, escape(plain), escape(plain, {'"': "&quot;", "'": "&apos;"})]
        written += [plain.replace('"', '""')]
        written += [
            json.dumps(form, ensure_ascii=ascii_only)[1:-1]
            for form in tuple(written)
            for ascii_only in (False, True)
        ]
        return tuple(dict.fromkeys(written))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        parts = "|".join(re.escape(form) for form in sorted(self.forms, key=len, reverse=True))
        return re.compile(rf"(?<!\w)(?:{parts})(?!\w)", re.IGNORECASE)

    @cached_property
    def _encoded(self) -> tuple[str, ...]:
        return tuple(name for name in _ENCODINGS if _can_write(self.value, name))

    def is_in(self, value: Any) -> bool:
        """Whether a value of a column holds it: a text, bytes, or what has such inside."""
        if isinstance(value, str):
            return self._pattern.search(value) is not None
        if isinstance(value, bytes):
            return self.is_in_bytes(value)
        if isinstance(value, dict):
            return any(self.is_in(part) for pair in value.items() for part in pair)
        if isinstance(value, list | tuple):
            return any(self.is_in(part) for part in value)
        return value is not None and self.is_in(str(value))

    def is_in_bytes(self, data: bytes) -> bool:
        """Whether bytes hold it, in any of the encodings in which feeds come."""
        return any(
            self._pattern.search(data[start:].decode(name, "replace")) is not None
            for name in self._encoded
            # What is two bytes wide may begin at either.
            for start in ((0, 1) if name.startswith("utf-16") else (0,))
        )

    def replaced_in(self, text: str, by: str) -> str:
        """A text with another in the place of the value."""
        return self._pattern.sub(lambda _: by, text)

    def without(self, value: Any) -> Any:
        """A value of a column with :data:`REMOVED` in its place; what is no text becomes null."""
        if isinstance(value, str):
            return self.replaced_in(value, REMOVED)
        if isinstance(value, dict):
            return {key: self.without(part) for key, part in value.items()}
        if isinstance(value, list):
            # A map comes as a list of pairs.
            return [
                tuple(self.without(part) for part in item)
                if isinstance(item, tuple)
                else self.without(item)
                for item in value
            ]
        return None if self.is_in(value) else value

    def refuse_in(self, texts: Iterable[str | None]) -> None:
        """Refuse notes that hold the value: they would keep what is to be removed.

        Raises:
            InputError: One holds it.
        """
        if any(self.is_in(text) for text in texts):
            raise InputError(
                "The reason or the evidence holds the value that is to be removed, and both are kept "
                "for good. Name a ticket instead."
            )


def _can_write(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True
