"""Personal columns: what a contract says of them, and how a value is shown to those who may not see it.

``macros/mask.sql`` is the same for SQL; a test holds the two against each other.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MASKS = ("hash", "partial", "drop", "natural_person")
"""``hash``: the same for the same value; ``partial``: its first character; ``drop``: that there is one;
``natural_person``: ``hash`` for a Spanish tax id of a person, and a company's as it is."""
HIDDEN = "***"
_PERSONS_ID = re.compile(r"[0-9XYZKLM][0-9]{7}[A-Z]")
_SHOWN_OF_HASH = 12


@dataclass(frozen=True)
class Pii:
    """What a contract says of a personal column.

    Attributes:
        kind: Of what kind it is, for people: ``email``, ``name``, ``identifier``.
        mask: One of :data:`MASKS`.
        elements: Local names of the XML elements in the column that are personal, where not all is.
    """

    kind: str
    mask: str
    elements: tuple[str, ...] = ()


def pii_of(terms: Mapping[str, Any]) -> Pii | None:
    """What the ``config.meta`` of a column, or a field of a contract, says under ``pii``."""
    said = terms.get("pii")
    if not isinstance(said, Mapping):
        return None
    return Pii(str(said.get("kind")), str(said.get("mask")), tuple(said.get("elements", ())))


def pii_faults(personal: Mapping[str, Pii]) -> Iterator[str]:
    """What is wrong with the personal columns of a contract, by name."""
    for name, pii in personal.items():
        if pii.mask not in MASKS:
            yield (
                f"column {name}: its mask is '{pii.mask}'. It must be one of {', '.join(MASKS)}, "
                "because reports show nothing else of it."
            )


def masked(value: Any, mask: str) -> Any:
    """A value as those see it who may not see it; nothing stays nothing, lists item by item.

    Args:
        value: A value of a column.
        mask: One of :data:`MASKS`.
    """
    if value is None:
        return None
    if isinstance(value, list):
        return [masked(item, mask) for item in value]
    text = str(value)
    if mask == "partial":
        return text[:1] + HIDDEN
    if mask == "drop":
        return HIDDEN
    if mask == "natural_person" and not _PERSONS_ID.fullmatch(text.strip(" ").upper()):
        return text
    return "#" + hashlib.sha256(text.encode()).hexdigest()[:_SHOWN_OF_HASH]
