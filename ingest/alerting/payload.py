"""What receivers get: a JSON document, and the same in words. docs/alerts.md describes it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ingest.alerting.ledger import AlertEvent
from ingest.environment import pipeline_version

VERSION = 1
"""Raised when a key changes its meaning or goes; a key more leaves it as it is."""


def make_payload(lake: Path, events: Sequence[AlertEvent], sent_at: datetime) -> dict[str, Any]:
    """The document for some events."""
    return {
        "version": VERSION,
        "sender": f"lakehouse {pipeline_version()}",
        "lake": str(lake),
        "sent_at": _instant(sent_at),
        "alerts": [_alert(event) for event in events],
    }


def as_json(payload: dict[str, Any]) -> str:
    """A document as one line."""
    return json.dumps(payload, ensure_ascii=False, sort_keys=True)


def headline(events: Sequence[AlertEvent]) -> str:
    """What it is about, in one line: how many of which kind, of which datasets."""
    counts = Counter(event.status for event in events)
    told = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    datasets = sorted({event.condition.dataset for event in events})
    return f"[lakehouse] {told}: {', '.join(datasets)}"


def lines(events: Sequence[AlertEvent]) -> list[str]:
    """A line for each event."""
    return [line(event) for event in events]


def line(event: AlertEvent) -> str:
    """An event in one line."""
    if event.status == "resolved":
        began = f"{event.raised_at:%Y-%m-%d %H:%M} UTC"
        what = f"{event.condition.dataset}: {event.condition.kind}, raised at {began}, is over."
        return f"resolved  {what} It was told as: {event.condition.message}"
    return f"{event.status:<8}  {event.condition.message}"


def _alert(event: AlertEvent) -> dict[str, Any]:
    condition = event.condition
    return {
        "event_id": event.event_id,
        "alert_id": event.alert_id,
        "status": event.status,
        "kind": condition.kind,
        "record_type": condition.record_type,
        "dataset": condition.dataset,
        "subject": condition.subject,
        "owner": condition.owner,
        "value": condition.value,
        "threshold": condition.threshold,
        "unit": condition.unit,
        "details": list(condition.details),
        "message": condition.message,
        "raised_at": _instant(event.raised_at),
        "at": _instant(event.at),
    }


def _instant(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
