"""From when on somebody is told of a feed: the ``alerts`` of a contract."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ingest.spans import read_span
from ingest.terms import mapping_fault

SHARES = ("share_above",)
COUNTS = ("open_above", "share_from")
SPANS = ("age_above", "silent_for", "new_reason", "schema_drift")
KEYS = ("open_above", "share_above", "age_above", "silent_for", "new_reason", "schema_drift",
        "share_from")  # fmt: skip
_PERCENT = re.compile(r"(\d{1,2}(?:\.\d+)?)\s?%")


@dataclass(frozen=True)
class Thresholds:
    """What a contract says of alerts, for each of its datasets. None: nobody is told of that.

    Attributes:
        open_above: Refused records that wait for somebody.
        share_above: Share of the records of a batch that are refused, from 0 to 1.
        age_above: How long the oldest of the records that wait has waited.
        silent_for: How long no new file has come.
        new_reason: For how long a cause of refusal is new that the feed did not have at first.
        schema_drift: For how long a path is new that the schema does not hold and the feed did not
            have at first.
        share_from: That share is looked at in batches with so many records of the dataset.
        stop_above: The contract's ``stop_above``: share of a batch above which its accepted records do
            not reach Silver.
    """

    open_above: int | None = None
    share_above: float | None = None
    age_above: timedelta | None = None
    silent_for: timedelta | None = None
    new_reason: timedelta | None = None
    schema_drift: timedelta | None = None
    share_from: int = 1
    stop_above: float | None = None


def thresholds(terms: Mapping[str, Any]) -> Thresholds:
    """The thresholds of a contract that :func:`threshold_faults` found sound."""
    said = terms.get("alerts") or {}
    found: dict[str, Any] = {key: said[key] for key in COUNTS if key in said}
    found |= {key: _share(said[key]) for key in SHARES if key in said}
    found |= {key: read_span(said[key]) for key in SPANS if key in said}
    return Thresholds(**found, stop_above=_share(terms.get("stop_above")))


def threshold_faults(terms: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """What keeps the ``alerts`` of a contract from working.

    Args:
        terms: The contract, with the line of each mapping.

    Yields:
        The line, and what is wrong, why, and how to go on.
    """
    if "alerts" not in terms:
        return
    like, without = "such as {open_above: 1000}", "nobody is told of anything"
    if fault := mapping_fault(terms, "alerts", like=like, without=without):
        yield int(terms["__line__"]), fault
        return
    said = terms["alerts"]
    line = int(said["__line__"])
    for key, value in said.items():
        if key != "__line__" and (fault := _fault(key, value)):
            yield line, f"alerts, {fault}"
    if "share_from" in said and "share_above" not in said:
        yield (
            line,
            (
                "alerts, share_from is there and share_above is not, so that no share is looked at. Add "
                "it, or take share_from out."
            ),
        )


def stop_faults(terms: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """What keeps the ``stop_above`` of a contract from working. See ``threshold_faults``."""
    line = int(terms["__line__"])
    if "stop_above" in terms and _share(terms["stop_above"]) is None:
        yield line, _no_share("stop_above", terms["stop_above"])
    if "stop_from" in terms and not _is_count(terms["stop_from"], 1):
        yield line, _no_count("stop_from", terms["stop_from"], 1)
    if "stop_from" in terms and "stop_above" not in terms:
        yield (
            line,
            (
                "stop_from is there and stop_above is not, so that no batch is stopped. Add it, or take "
                "stop_from out."
            ),
        )


def _fault(key: str, value: Any) -> str:
    """What is wrong with one key; an empty text where nothing is."""
    if key in COUNTS:
        least = 1 if key == "share_from" else 0
        return "" if _is_count(value, least) else _no_count(key, value, least)
    if key in SHARES:
        return "" if _share(value) is not None else _no_share(key, value)
    if key in SPANS:
        # Whoever waits for no time at all is told of everything, always.
        if isinstance(value, str) and (read_span(value) or timedelta()) > timedelta():
            return ""
        return f"{key} is {value!r}. It must be a number and m, h, d or w, such as 12h or 7d."
    return f"the key '{key}' means nothing. Keys are {', '.join(KEYS)}."


def _share(value: Any) -> float | None:
    match = _PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    return float(match[1]) / 100 if match else None


def _no_share(key: str, value: Any) -> str:
    return (
        f"{key} is {value!r}. It must be a percentage below 100 with its sign, such as 20%: a bare 0.2 "
        "might mean either."
    )


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _no_count(key: str, value: Any, least: int) -> str:
    return f"{key} is {value!r}. It must be a whole number from {least}, as records are counted."
