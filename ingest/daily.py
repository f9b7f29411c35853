"""Every day's files, through Structured Streaming: the stream wakes the ingest, and no more.

See docs/decisions/0010-the-stream-only-wakes-the-ingest.md.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ingest.errors import LakehouseError
from ingest.lake import Lake
from ingest.landing import landing_stream, stream_ended
from ingest.main_job import (
    Options,
    Phases,
    ingest_new,
    judge_and_report,
    make_console,
    session_starter,
    usable_contracts,
)
from ingest.session import LONG_RUN_BYTES
from ingest.sources import find_files
from ingest.stopping import POLL_SECONDS, heeding_signals

log = logging.getLogger("lakehouse")
INTERRUPTED = 130


@dataclass(frozen=True)
class DailyOptions:
    """What a user may ask. See the options of ``lakehouse daily``."""

    inputs: Sequence[str]
    dataset: str | None = None
    follow: bool = False
    interval_seconds: int = 60


def run_daily(lake: Lake, options: DailyOptions) -> int:
    """Take new files as a stream. The caller holds the lake's lock; call it in the main thread.

    SIGINT and SIGTERM end it when the batch at hand is done, a second one at once.

    Args:
        lake: The lake.
        options: What the user asks for.

    Returns:
        The exit code of the last build, see ``run_main_job``; 130 where it was stopped before it came
        to its build.

    Raises:
        LakehouseError: An input names nothing, or something else that the user can mend. With
            ``follow`` what goes wrong later is logged and tried again.
    """
    usable_contracts(options.dataset)
    # An input that names nothing is told at once, before Spark is started.
    next(find_files(options.inputs), None)
    work = _Work(lake, options)
    # Who keeps running has the time to compile.
    spark = session_starter(lake, LONG_RUN_BYTES if options.follow else 0)()
    with heeding_signals(work.stop, "daily"):
        _stream(spark, lake, options, work)
        while options.follow and not work.stop.is_set():
            # A wake failed and was told; its folder looks the same, so only a new start wakes again.
            work.stop.wait(options.interval_seconds)
            _stream(spark, lake, options, work)
        if work.failure is not None:
            raise work.failure
        if options.follow:
            return work.code
        if work.stop.is_set():
            log.info("daily: stopped before the build. What is in Bronze stays; start again to go on.")
            return INTERRUPTED
    return judge_and_report(lake, work.phases, make_console(), work.session)


class _Work:
    """What a wake does, and what became of it."""

    def __init__(self, lake: Lake, options: DailyOptions) -> None:
        self._lake = lake
        self._options = options
        self.stop = threading.Event()
        # Held while a wake is at work: who stops the stream waits for it.
        self.busy = threading.Lock()
        self.phases = Phases()
        self.session: Callable[[], SparkSession] | None = None
        self.failure: Exception | None = None
        self.code = 0

    def wake(self, _: DataFrame, number: int) -> None:
        """Ingest, and with ``follow`` build; called by Spark for each batch of the stream.

        Nothing is raised: Spark would end the stream over it, and again at each restart.
        """
        with self.busy:
            if self.stop.is_set() or self.failure is not None:
                return
            log.info("daily: batch %d of the stream, looking at %s", number, self._options.inputs)
            try:
                self._take()
            except LakehouseError as error:
                self.failure = error
                log.error("daily: %s", error)
            except Exception as error:
                # The boundary: it is kept, told, and tried again.
                self.failure = error
                log.exception("daily: the batch failed, and none of it counts.")

    def _take(self) -> None:
        if self._options.follow:
            self.phases = Phases()
        options = Options(self._options.inputs, self._options.dataset)
        batch, session = ingest_new(self._lake, options, "daily", self.phases)
        self.session = session or self.session
        log.info("daily: %s", f"batch {batch} is in Bronze" if batch else "every file is known")
        if self._options.follow:
            self.code = judge_and_report(self._lake, self.phases, make_console(), session)


def _stream(spark: SparkSession, lake: Lake, options: DailyOptions, work: _Work) -> None:
    """Run the stream until it ends, a wake fails, or a stop is asked for."""
    if work.stop.is_set():
        return
    work.failure = None
    checkpoint = lake.state / "checkpoints" / "daily"
    writer = landing_stream(spark, options.inputs, work.wake, checkpoint)
    if options.follow:
        writer = writer.trigger(processingTime=f"{options.interval_seconds} seconds")
    else:
        writer = writer.trigger(availableNow=True)
    try:
        query = writer.start()
        while not query.awaitTermination(POLL_SECONDS):
            if work.stop.is_set() or work.failure is not None:
                _end(query, work)
                return
    except StreamingQueryException as error:
        if work.stop.is_set():
            # A signal to the whole process group ends Spark's helpers too, before they are asked to.
            return
        raise stream_ended(options.inputs, checkpoint, error) from error


def _end(query: StreamingQuery, work: _Work) -> None:
    """Stop a stream between two batches."""
    with work.busy:
        # A batch that comes now finds the stop or the failure and does nothing.
        pass
    query.stop()
