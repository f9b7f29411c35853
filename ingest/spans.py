"""Spans of time as people write them: ``30m``, ``12h``, ``7d``, ``2w``."""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LARGEST_FIRST = (("w", timedelta(weeks=1)), ("d", timedelta(days=1)), ("h", timedelta(hours=1)))


def read_span(text: str) -> timedelta | None:
    """Read a span: a number and m, h, d or w; None for anything else."""
    match = re.fullmatch(r"(\d{1,5})([mhdw])", text.strip())
    return timedelta(**{_UNITS[match[2]]: int(match[1])}) if match else None


def write_span(span: timedelta) -> str:
    """Write a span of whole minutes so that :func:`read_span` reads the same."""
    for unit, size in _LARGEST_FIRST:
        if span and not span % size:
            return f"{span // size}{unit}"
    return f"{span // timedelta(minutes=1)}m"


def say_span(span: timedelta) -> str:
    """A span in words, as exact as people ask: minutes below two hours, hours below two days."""
    for name, size in (("days", timedelta(days=1)), ("hours", timedelta(hours=1))):
        if span >= 2 * size:
            return f"{span // size} {name}"
    return f"{span // timedelta(minutes=1)} minutes"
