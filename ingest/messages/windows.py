"""Fixed windows of time, and how often a waiting message was tried. All instants are UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def from_micros(number: int) -> datetime:
    """Give an instant from microseconds since 1970.

    Instants that Spark collects have no zone, and where clocks are set back two of them are one text.
    """
    return _EPOCH + timedelta(microseconds=number)


@dataclass(frozen=True, order=True)
class Window:
    """A span of time in which changes are gathered: its start belongs to it, its end does not."""

    start: datetime
    end: datetime


def window_of(instant: datetime, minutes: int) -> Window:
    """Give the fixed window that holds an instant; windows are counted from 1970.

    Args:
        instant: With a time zone.
        minutes: Width of the windows.
    """
    width = timedelta(minutes=minutes)
    start = _EPOCH + (instant - _EPOCH) // width * width
    return Window(start, start + width)


def last_ended(now: datetime, minutes: int) -> Window:
    """Give the newest window that has ended: what came in it, or before, may change a schema now."""
    end = window_of(now, minutes).start
    return Window(end - timedelta(minutes=minutes), end)


def retry_number(processed: datetime, now: datetime, minutes: int) -> int:
    """How many windows have passed since a message came, so how often its schema could change.

    A clock that goes back does not make it negative.

    Args:
        processed: When the message was first received.
        now: When it is tried.
        minutes: Width of the windows.
    """
    return max(0, (now - processed) // timedelta(minutes=minutes))


def is_past_retry(processed: datetime, now: datetime, minutes: int) -> bool:
    """Whether a message has waited for longer than it may; the last instant still counts."""
    return now - processed > timedelta(minutes=minutes)
