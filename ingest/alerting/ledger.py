"""What was told already: ``bronze.alert_events``, append-only.

An alert is a condition from when it was raised until it is resolved. Events of it are ``raised``,
``changed`` and ``resolved``; what a receiver got of them are ``delivered`` and ``undelivered``.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from ingest.alerting.conditions import Condition, Findings
from ingest.environment import pipeline_version
from ingest.lake import ALERT_EVENTS, Lake

TABLE = "alert_events"
# A number must be so many times what was told last to be news.
WORSE = 2.0
_TICK = timedelta(microseconds=1)
_STATES = ("raised", "changed", "resolved")


@dataclass(frozen=True)
class AlertEvent:
    """Something that happened to an alert.

    Attributes:
        event_id: Its id, by which a receiver knows one that comes twice.
        alert_id: The alert: the same whenever the same condition comes again.
        status: ``raised``, ``changed`` or ``resolved``.
        condition: As it was then; of ``resolved`` as it was told last.
        at: When, UTC.
        raised_at: When this alert was raised.
    """

    event_id: str
    alert_id: str
    status: str
    condition: Condition
    at: datetime
    raised_at: datetime


@dataclass
class _Story:
    """What is known of one alert since it was last raised."""

    events: list[AlertEvent] = field(default_factory=list)

    @property
    def last(self) -> AlertEvent:
        return self.events[-1]

    @property
    def stands(self) -> bool:
        return self.last.status != "resolved"


@dataclass
class Ledger:
    """The table as it was read.

    Attributes:
        stories: By alert id, since it was last raised.
        delivered: Event ids by receiver.
        tried: The same of those that a receiver did not take.
        newest: The instant of the newest row.
    """

    stories: dict[str, _Story] = field(default_factory=dict)
    delivered: dict[str, set[str]] = field(default_factory=dict)
    tried: dict[str, set[str]] = field(default_factory=dict)
    newest: datetime | None = None

    @property
    def standing(self) -> list[AlertEvent]:
        """The newest event of each alert that is not resolved, the oldest first."""
        stories = (story.last for story in self.stories.values() if story.stands)
        return sorted(stories, key=_order)

    def decide(self, findings: Findings, now: datetime) -> list[AlertEvent]:
        """What is news: an alert that begins, one that got worse, one that is over.

        What could not be asked is neither over nor worse.
        """
        at = max(now, self.newest + _TICK) if self.newest else now
        events = []
        holding = {alert_id(condition): condition for condition in findings.conditions}
        for key, condition in holding.items():
            story = self.stories.get(key)
            if story is None or not story.stands:
                events.append(_event(key, "raised", condition, at, at))
            elif _is_worse(condition, story.last.condition):
                events.append(_event(key, "changed", condition, at, story.last.raised_at))
        for key, story in self.stories.items():
            if story.stands and key not in holding and story.last.condition.kind not in findings.unknown:
                events.append(_event(key, "resolved", story.last.condition, at, story.last.raised_at))
        return events

    def add(self, events: Iterable[AlertEvent]) -> None:
        """Take up events, in the order of their instants."""
        for event in events:
            story = self.stories.setdefault(event.alert_id, _Story())
            if event.status == "raised":
                story.events.clear()
            story.events.append(event)
            self.newest = event.at if self.newest is None else max(self.newest, event.at)

    def pending(self, receiver: str) -> list[AlertEvent]:
        """What a receiver does not know yet, the oldest first.

        It is told how each alert is now, not each step on the way: of one that it never heard of,
        that it was raised. That one is over is news to whoever heard of it, or was not there to.
        """
        known, tried = self.delivered.get(receiver, set()), self.tried.get(receiver, set())
        found = []
        for story in self.stories.values():
            ids = {event.event_id for event in story.events}
            if story.last.event_id in known or not (story.stands or ids & (known | tried)):
                continue
            status = story.last.status if ids & known or not story.stands else "raised"
            found.append(replace(story.last, status=status))
        return sorted(found, key=_order)


def alert_id(condition: Condition) -> str:
    """The id of the alert that a condition is."""
    parts = (condition.kind, condition.record_type, condition.dataset, condition.subject)
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


def read(lake: Lake) -> Ledger:
    """Read what was told in a lake."""
    ledger = Ledger()
    rows = lake.read("bronze", TABLE, ALERT_EVENTS.names).to_pylist()
    rows.sort(key=lambda row: (row["at"], row["event_id"]))
    for row in rows:
        if row["event_type"] in _STATES:
            story = ledger.stories.get(row["alert_id"])
            began = row["at"] if row["event_type"] == "raised" or story is None else story.last.raised_at
            ledger.add([_from_row(row, began)])
        else:
            receivers = ledger.delivered if row["event_type"] == "delivered" else ledger.tried
            receivers.setdefault(row["receiver"], set()).update(row["about"] or ())
            ledger.newest = row["at"] if ledger.newest is None else max(ledger.newest, row["at"])
    return ledger


def write(lake: Lake, events: Sequence[AlertEvent]) -> None:
    """Keep what happened, before anybody is told of it."""
    lake.append(
        TABLE,
        [
            {
                "event_id": event.event_id,
                "alert_id": event.alert_id,
                "event_type": event.status,
                **{**asdict(event.condition), "details": list(event.condition.details)},
                "at": event.at,
                "pipeline_version": pipeline_version(),
            }
            for event in events
        ],
    )


def write_delivery(
    lake: Lake, receiver: str, events: Sequence[AlertEvent], at: datetime, problem: str | None = None
) -> None:
    """Keep that a receiver was told of events; with a problem, that it was not."""
    lake.append(
        TABLE,
        [
            {
                "event_id": uuid.uuid4().hex,
                "event_type": "undelivered" if problem else "delivered",
                "receiver": receiver,
                "about": [event.event_id for event in events],
                "message": problem,
                "at": at,
                "pipeline_version": pipeline_version(),
            }
        ],
    )


def _order(event: AlertEvent) -> tuple[datetime, str, str, str, str]:
    """What came first is told first; of what came together, what is of one dataset stands together."""
    condition = event.condition
    return event.at, condition.dataset, condition.record_type, condition.kind, condition.subject


def _event(key: str, status: str, condition: Condition, at: datetime, raised_at: datetime) -> AlertEvent:
    return AlertEvent(uuid.uuid4().hex, key, status, condition, at, raised_at)


def _is_worse(now: Condition, told: Condition) -> bool:
    """Whether a condition that still holds is news."""
    return bool(set(now.details) - set(told.details)) or now.value >= WORSE * told.value > 0


def _from_row(row: Mapping[str, Any], raised_at: datetime) -> AlertEvent:
    names = Condition.__dataclass_fields__
    values = {name: row[name] for name in names} | {"details": tuple(row["details"] or ())}
    return AlertEvent(
        row["event_id"], row["alert_id"], row["event_type"], Condition(**values), row["at"], raised_at
    )
