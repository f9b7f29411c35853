"""Alerts of a lake: what is news is kept, then each receiver is told of what it does not know."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache

from rich.console import Console

from ingest.alerting import ledger
from ingest.alerting.conditions import Findings, look
from ingest.alerting.ledger import AlertEvent, Ledger
from ingest.alerting.payload import line
from ingest.alerting.receivers import Receiver, receivers_of
from ingest.contracts import Contract, load_children
from ingest.errors import DeliveryError, LakehouseError, LakeInUseError
from ingest.lake import Lake
from ingest.office.refused import known_contracts
from ingest.query import terminal_safe
from ingest.thresholds import Thresholds, thresholds
from ingest.transform import silver_dir

log = logging.getLogger("lakehouse")
LOCK = "alerts.lock"
# Longer than all receivers together may keep somebody waiting.
PATIENCE_SECONDS = 90.0
_LOOK_EVERY_SECONDS = 0.2


@dataclass
class Told:
    """What an evaluation did.

    Attributes:
        news: What it raised, changed or resolved.
        standing: The alerts that hold now.
        failed: Receivers that did not take what they had to know, with the reason.
    """

    news: list[AlertEvent] = field(default_factory=list)
    standing: list[AlertEvent] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def evaluate(
    lake: Lake,
    receivers: Sequence[Receiver],
    now: datetime,
    *,
    contracts: Mapping[str, Contract] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Told:
    """Look at a lake, keep what is news, and tell each receiver what it does not know yet.

    What is news is kept before anybody is told. Whoever dies in between leaves it to the next one to
    tell; a receiver that took it just before that may get it twice, with the same ``event_id``.

    Args:
        lake: The lake.
        receivers: Who is told.
        now: The instant.
        contracts: By record type; those of the project where not given.
        sleep: Waits so many seconds.

    Raises:
        InputError: It is no lake.
        LakeInUseError: Another evaluation does not end.
    """
    with _alone(lake, sleep):
        lake.create_operations()
        book = ledger.read(lake)
        news = book.decide(find(lake, now, contracts), now)
        ledger.write(lake, news)
        book.add(news)
        told = Told(news, book.standing)
        for receiver in receivers:
            if problem := _tell(lake, book, receiver, now):
                told.failed[receiver.name] = problem
    return told


def find(lake: Lake, now: datetime, contracts: Mapping[str, Contract] | None = None) -> Findings:
    """Find the thresholds that a lake is beyond; nothing is kept and nobody told."""
    return look(lake, contracts or known_contracts(), _parents, now)


def after_run(lake: Lake, environment: Mapping[str, str], console: Console) -> None:
    """Evaluate at the end of a run, and say what is news. Whatever goes wrong, the run is not hurt."""
    try:
        if all(thresholds(c.terms) == Thresholds() for c in known_contracts().values()):
            return
        try:
            receivers = receivers_of(environment)
        except LakehouseError as error:
            log.error("alerts: %s Nobody is told until then; nothing is lost.", error)
            receivers = []
        told = evaluate(lake, receivers, datetime.now(UTC))
    except Exception as error:  # noqa: BLE001 - the run did its work, whatever alerts meet
        log.error(
            "alerts could not be looked at: %s. The run itself is whole; try 'lakehouse alert'.",
            " ".join(f"{type(error).__name__}: {error}".split()),
        )
        return
    for event in told.news:
        console.print(terminal_safe(f"Alert {line(event)}"), soft_wrap=True, markup=False)


@cache
def _parents() -> Mapping[str, str]:
    """Tables of what records hold many of, with the record type that holds them."""
    return {child.record_type: child.of for child in load_children(silver_dir())}


def _tell(lake: Lake, book: Ledger, receiver: Receiver, now: datetime) -> str | None:
    """Tell one receiver; the problem where it did not take it."""
    events = book.pending(receiver.name)
    if not events:
        return None
    try:
        receiver.send(lake.path, events, now)
    except DeliveryError as error:
        log.error(
            "alerts: %s was not told of %d: %s. It is tried again after the next run, or by 'lakehouse "
            "alert'.",
            receiver.name,
            len(events),
            error,
        )
        # Kept once, and not with each attempt.
        if not {event.event_id for event in events} <= book.tried.get(receiver.name, set()):
            ledger.write_delivery(lake, receiver.name, events, datetime.now(UTC), str(error))
        return str(error)
    ledger.write_delivery(lake, receiver.name, events, datetime.now(UTC))
    return None


@contextmanager
def _alone(lake: Lake, sleep: Callable[[float], None]) -> Iterator[None]:
    """One evaluation at a time on a lake, or an alert would be told twice.

    The lake's own lock will not do: a run holds it that tells alerts at its end, and whoever asks by
    hand need not wait for a run.
    """
    lake.state.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(lake.state / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        for _ in range(int(PATIENCE_SECONDS / _LOOK_EVERY_SECONDS)):
            try:
                # The kernel's lock: it ends with the process, however that ends.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                sleep(_LOOK_EVERY_SECONDS)
        else:
            raise LakeInUseError(
                f"{lake.path}: for {PATIENCE_SECONDS:.0f} s somebody else has been telling alerts of "
                "it. Try again later, or look for the process that holds "
                f"{lake.state / LOCK}."
            )
        yield
    finally:
        os.close(descriptor)
