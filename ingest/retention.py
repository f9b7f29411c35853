"""How long refused records keep their text: the ``retention`` of a contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from ingest.office.states import STATES
from ingest.spans import read_span
from ingest.terms import mapping_fault

KEYS = tuple(state for state in STATES if state != "purged")


def retention(terms: Mapping[str, Any]) -> dict[str, timedelta]:
    """State -> how long a record may stay in it with its text; a state that is not named keeps it.

    Args:
        terms: A contract that :func:`retention_faults` found sound.
    """
    found = {}
    for state, text in (terms.get("retention") or {}).items():
        span = read_span(str(text))
        if state in KEYS and span is not None:
            found[state] = span
    return found


def retention_faults(terms: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """What keeps the ``retention`` of a contract from working.

    Args:
        terms: The contract, with the line of each mapping.

    Yields:
        The line, and what is wrong, why, and how to go on.
    """
    if "retention" not in terms:
        return
    fault = mapping_fault(
        terms,
        "retention",
        like="such as {discarded: 90d}",
        without="texts are kept until somebody is forgotten",
    )
    if fault:
        yield int(terms["__line__"]), fault
        return
    said = terms["retention"]
    for state, text in said.items():
        if state == "__line__":
            continue
        if state not in KEYS:
            yield (
                int(said["__line__"]),
                f"retention names '{state}', which is no state that ends. States: {', '.join(KEYS)}.",
            )
        elif read_span(str(text)) is None:
            yield (
                int(said["__line__"]),
                f"retention of {state} is '{text}'. It must be a number and m, h, d or w, such as 90d, "
                "because a purge counts from when the record came into the state.",
            )
