"""The life of a refused record: its states, and which event leads from one to another.

Each kind of event leads to one state, so the last event of a record says its state. A record
without events has the state that its quarantine row gives it.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from ingest.errors import TransitionError

STATES = (
    "pending",
    "investigated",
    "corrected",
    "discarded",
    "reentered",
    "exhausted",
    "purged",
)
OPEN_STATES = ("pending", "investigated", "corrected", "exhausted")
"""States in which somebody, or the next re-entry, still has to do something."""

LEADS_TO = {
    "investigated": "investigated",
    "corrected": "corrected",
    "discarded": "discarded",
    "reopened": "pending",
    "reentered": "reentered",
    "exhausted": "exhausted",
    "purged": "purged",
}
"""Event type -> the state after it."""

ALLOWED_FROM = {
    "investigated": ("pending", "investigated"),
    "corrected": ("pending", "investigated"),
    "discarded": ("pending", "investigated", "exhausted"),
    "reopened": ("investigated", "corrected", "discarded", "exhausted"),
    "reentered": ("pending", "investigated", "corrected"),
    "exhausted": ("pending", "investigated", "corrected"),
    "purged": ("pending", "investigated", "corrected", "discarded", "reentered", "exhausted"),
}
"""Event type -> the states in which it may happen."""

# What operators call the events that are theirs. The others are replay's and purge's.
VERBS = {
    "investigated": "investigate",
    "corrected": "correct",
    "discarded": "discard",
    "reopened": "reopen",
}
_HOW = {
    "pending": "It is open already: investigate, correct or discard it.",
    "investigated": "Correct or discard it.",
    "corrected": (
        "It waits to be sent through the gate again. To decide anew, take the correction back first: "
        "lakehouse quarantine reopen {id} --because '...'"
    ),
    "discarded": ("To decide anew, reopen it first: lakehouse quarantine reopen {id} --because '...'"),
    "reentered": (
        "It went through the gate again and is closed. If it was refused again, work on the record "
        "that took its place: lakehouse quarantine list"
    ),
    "exhausted": (
        "It failed as often as its contract allows. Discard it, or reopen it first: "
        "lakehouse quarantine reopen {id} --because '...'"
    ),
    "purged": "Its payload is gone for good, so nothing can be done with it any more.",
}


class LastEvent(NamedTuple):
    """The newest event of a record, as far as others must be told of it."""

    event_id: str
    event_type: str
    actor: str
    reason: str
    at: datetime

    def __str__(self) -> str:
        """Who did what when and why, in words."""
        return f"{self.event_type} {self.said}"

    @property
    def said(self) -> str:
        """Who did it when and why, in words."""
        return f"by {self.actor} at {self.at:%Y-%m-%d %H:%M:%S} UTC ('{self.reason}')"


def first_state(*, is_dropped: bool, attempt: int, max_attempts: int) -> str:
    """The state of a refused record on which nobody has worked.

    Args:
        is_dropped: Whether a rule of severity drop discarded it at once.
        attempt: How often it came through the gate, from 1.
        max_attempts: How often its contract lets it.
    """
    if is_dropped:
        return "discarded"
    return "exhausted" if attempt >= max_attempts and attempt > 1 else "pending"


def may(state: str, event_type: str) -> bool:
    """Whether an event may happen to a record in that state."""
    return state in ALLOWED_FROM[event_type]


def check(record_id: str, state: str, event_type: str, last: LastEvent | None) -> None:
    """Refuse an event that a record's state does not allow.

    Args:
        record_id: The record, for the message.
        state: Its state.
        event_type: What is to happen to it.
        last: Its newest event, None where there is none.

    Raises:
        TransitionError: It may not. The message says in which state the record is, through whom,
            what may be done instead and how.
    """
    if may(state, event_type):
        return
    through = f" ({last.said if last.event_type == state else last})" if last else ""
    allowed = [verb for kind, verb in VERBS.items() if may(state, kind)]
    instead = f" What can be done: {', '.join(allowed)}." if allowed else ""
    raise TransitionError(
        record_id,
        f"Record {record_id[:12]} is {state}{through}, so it cannot be {event_type}.{instead} "
        + _HOW[state].format(id=record_id[:12]),
    )
