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

    def advance(self, records: int, files: int = 1, size_bytes: int = 0) -> None:
        """So many files, records and bytes more are done."""

    def stop(self) -> None:
        """The step is over."""


class TerminalProgress:
    """A bar per step on standard error."""

    def start(self, what: str, files: int) -> None:
        """See Progress."""
        self._records, self._bytes, self._began = 0, 0, time.monotonic()
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task(what, total=files, rate="")
        self._bar.start()

    def advance(self, records: int, files: int = 1, size_bytes: int = 0) -> None:
        """See Progress."""
        self._records += records
        self._bytes += size_bytes
        rate = describe_rate(self._records, self._bytes, time.monotonic() - self._began)
        self._bar.update(self._task, advance=files, rate=rate)

    def stop(self) -> None:
        """See Progress."""
        self._bar.stop()


class LogProgress:
    """Plain lines: when a step takes long, and when it ends."""

    def start(self, what: str, files: int) -> None:
        """See Progress."""
        self._what, self._files, self._done, self._records, self._bytes = what, files, 0, 0, 0
        self._began = self._told = time.monotonic()

    def advance(self, records: int, files: int = 1, size_bytes: int = 0) -> None:
        """See Progress."""
        self._done += files
        self._records += records
        self._bytes += size_bytes
        if time.monotonic() - self._told >= LOG_EVERY_SECONDS:
            self._told = time.monotonic()
            self._say()

    def stop(self) -> None:
        """See Progress."""
        if self._told < time.monotonic() - 1 or self._told == self._began:
            self._say()

    def _say(self) -> None:
        rate = describe_rate(self._records, self._bytes, time.monotonic() - self._began)
        log.info("%s: %d of %d files, %s", self._what, self._done, self._files, rate)


def describe_rate(records: int, size_bytes: int, seconds: float) -> str:
    """Say how much was done in so many seconds, and how quickly."""
    seconds = max(seconds, 0.001)
    megabytes = size_bytes / 1e6
    return (
        f"{records:,} records, {megabytes:,.1f} MB, {seconds:,.1f} s: {megabytes / seconds:,.1f} MB/s, "
        f"{records / seconds:,.0f} records/s"
    )


def make_progress() -> Progress:
    """The right one for where standard error goes."""
    return TerminalProgress() if sys.stderr.isatty() else LogProgress()
