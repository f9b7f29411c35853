"""What all keys of a contract that hold a mapping have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def mapping_fault(terms: Mapping[str, Any], key: str, *, like: str, without: str) -> str | None:
    """What is wrong where a key of a contract, which is there, holds something other than a mapping.

    Args:
        terms: The contract.
        key: The key.
        like: What the mapping looks like, in words.
        without: What happens where the key is left out.
    """
    said = terms[key]
    if isinstance(said, Mapping):
        return None
    return f"{key} is {said!r}. It must be a mapping {like}, or be left out: then {without}."
