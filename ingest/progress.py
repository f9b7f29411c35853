"""Progress of long work: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import logging
import sys
import time
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as RichProgress

log = logging.getLogger("lakehouse")
# In a log, a line of progress at most this often.
LOG_EVERY_SECONDS = 10.0


class Progress(Protocol):
    """Told of work that goes on: files done of all, records, and with these the rate."""

    def start(self, what: str, files: int) -> None:
        """A step begins over so many files."""

    def advance(self, records: int, files: int = 1) -> None:
        """So many files and records more are done."""

    def stop(self) -> None:
        """The step is over."""


class TerminalProgress:
    """A bar per step on standard error."""

    def start(self, what: str, files: int) -> None:
        """See Progress."""
        self._records, self._began = 0, time.monotonic()
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task(what, total=files, rate="")
        self._bar.start()

    def advance(self, records: int, files: int = 1) -> None:
        """See Progress."""
        self._records += records
        self._bar.update(self._task, advance=files, rate=_rate(self._records, self._began))

    def stop(self) -> None:
        """See Progress."""
        self._bar.stop()


class LogProgress:
    """Plain lines: when a step takes long, and when it ends."""

    def start(self, what: str, files: int) -> None:
        """See Progress."""
        self._what, self._files, self._done, self._records = what, files, 0, 0
        self._began = self._told = time.monotonic()

    def advance(self, records: int, files: int = 1) -> None:
        """See Progress."""
        self._done += files
        self._records += records
        if time.monotonic() - self._told >= LOG_EVERY_SECONDS:
            self._told = time.monotonic()
            self._say()

    def stop(self) -> None:
        """See Progress."""
        if self._told < time.monotonic() - 1 or self._told == self._began:
            self._say()

    def _say(self) -> None:
        rate = _rate(self._records, self._began)
        log.info("%s: %d of %d files, %s", self._what, self._done, self._files, rate)


def _rate(records: int, began: float) -> str:
    seconds = max(time.monotonic() - began, 0.001)
    return f"{records:,} records, {records / seconds:,.0f}/s"


def make_progress() -> Progress:
    """The right one for where standard error goes."""
    return TerminalProgress() if sys.stderr.isatty() else LogProgress()
