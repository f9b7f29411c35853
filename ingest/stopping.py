"""How a command that keeps running is asked to stop."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

log = logging.getLogger("lakehouse")
POLL_SECONDS = 1
"""How long a signal may wait to be heeded while nothing is at work."""


@contextmanager
def heeding_signals(stop: threading.Event, command: str) -> Iterator[None]:
    """Let SIGINT and SIGTERM ask for a stop, and the second one of a kind do what it always does.

    Args:
        stop: Set by the first signal.
        command: Who is stopping, for the log.
    """
    usual: dict[signal.Signals, Callable[[int, FrameType | None], object] | signal.Handlers]
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}

    def ask(number: int, _: FrameType | None) -> None:
        log.info(
            "%s: stopping when the batch at hand is done; a second signal ends it at once.", command
        )
        stop.set()
        signal.signal(number, usual[signal.Signals(number)])

    before = {number: signal.signal(number, ask) for number in usual}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
