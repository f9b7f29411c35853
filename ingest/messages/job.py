"""``lakehouse messages``: what is received, what a window changes, where each message goes.

See docs/decisions/0014-messages-wait-for-their-windows-end.md.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark's own examples use)
from pyspark.sql.types import StructType

from ingest.environment import pipeline_version
from ingest.errors import KafkaError, LakehouseError, StreamError
from ingest.lake import Lake
from ingest.landing import landing_stream, stream_ended
from ingest.messages.fitting import Plan, gather
from ingest.messages.judging import Judge, judge, refusals, requests, typed
from ingest.messages.kafka import Stretch, Topics, new_records, read, told_of
from ingest.messages.receiving import RECEIVED_DDL, Reentries, new_files, receiver, record_receiver
from ingest.messages.schemas import FAILURE_REASONS, OUR_COLUMNS, changes
from ingest.messages.tables import Receipts, Span, Tables
from ingest.messages.targets import QUARANTINE, Target
from ingest.messages.verdicts import clean, refused, vet_rules
from ingest.messages.verdicts import judged as rules_asked
from ingest.messages.windows import from_micros, last_ended
from ingest.session import CORES, LONG_RUN_BYTES, start_on
from ingest.stopping import POLL_SECONDS, heeding_signals

log = logging.getLogger("lakehouse")
Clock = Callable[[], datetime]
_STATE = "messages"
_FILE_DDL = "path STRING, member STRING, name STRING, sha256 STRING"
_CARRIED = ("_message_id", "_record_id", "target", "key", "event_ts", "processed_timestamp", "payload")
_PLACE = ("_attempt", "_source_file", "_file_sha256", "_position")
# A message may have 20 MB: no worker gets a thousand of them at once.
_ARROW_BYTES = 16_000_000
_HELD = "KEY_HELD: an earlier message of its key waits"
# Ids of messages astray that are told.
_TOLD = 20
_TICK = timedelta(microseconds=1)
_DAY = timedelta(days=1) - _TICK
# So many spans of days are asked for one by one; more than these, as one.
_SPANS = 50


@dataclass
class Counts:
    """Where all messages are that were ever received.

    Attributes:
        lines: Lines received.
        repeats: Of these, lines that repeat a message.
        refused: Messages refused at once.
        landed: Messages in their target's table, by target.
        quarantined: Messages in their target's quarantine, by target.
        waiting: Messages that wait.
        bad_data: Messages that were given up.
        astray: Ids of messages that are in no place or in several, at most twenty. Of those that this
            run touched, or of all with a full audit.
        differing: With a full audit, ids of messages whose verdict a batch over the whole history finds
            to be another one, at most twenty.
        is_partial: Whether a target could not be counted.
    """

    lines: int = 0
    repeats: int = 0
    refused: int = 0
    landed: dict[str, int] = field(default_factory=dict)
    quarantined: dict[str, int] = field(default_factory=dict)
    waiting: int = 0
    bad_data: int = 0
    astray: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    is_partial: bool = False

    @property
    def balance(self) -> int:
        """Messages received less messages found; 0 where the law holds, and where it cannot be told."""
        if self.is_partial:
            return 0
        placed = self.refused + self.waiting + self.bad_data
        placed += sum(self.landed.values()) + sum(self.quarantined.values())
        return self.lines - self.repeats - placed

    @property
    def is_sound(self) -> bool:
        """Whether each message is in one place, as far as it was looked at."""
        return not (self.astray or self.differing or self.balance)


@dataclass
class Outcome:
    """What one run did.

    Attributes:
        counts: Where all messages are now.
        received: Lines that it received.
        plans: What it changed or refused to change, by target.
        troubles: What went wrong as a whole, in words: files and targets.
    """

    counts: Counts
    received: int = 0
    plans: dict[str, Plan] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """1 where a message is astray, or a file or a target could not be worked on."""
        return 0 if self.counts.is_sound and not self.troubles else 1


def run_messages(
    lake: Lake,
    inputs: Sequence[str],
    targets: Mapping[str, Target],
    clock: Clock = lambda: datetime.now(UTC),
    after: Callable[[str], None] = lambda _: None,
    *,
    topics: Topics | None = None,
    reentries: Reentries | None = None,
    is_full_audit: bool = False,
) -> Outcome:
    """Take the messages that are new, and try those again that wait. The caller holds the lake's lock.

    Structured Streaming wakes the work once and keeps the checkpoint; which files are new is decided by
    content, see docs/decisions/0010-the-stream-only-wakes-the-ingest.md.

    Args:
        lake: The lake.
        inputs: Folders, files or globs.
        targets: By name.
        clock: Tells the time, once for the whole run.
        after: Called after each step that wrote something, with its name.
        topics: Topics of Kafka, beside the files or instead of them.
        reentries: Lines that send refused messages again.
        is_full_audit: Look for every message that was ever received, not only for those of this run, and
            judge the whole history again in one batch.

    Raises:
        LakehouseError: An input names nothing, or something else that the user can mend.
    """
    found: list[Outcome] = []
    failures: list[Exception] = []

    def wake(_: DataFrame, number: int) -> None:
        # After a kill the stream begins with the batch that it had not committed, and then has its own.
        if found or failures:
            return
        try:
            run = _Run(spark, lake, targets, clock(), after)
            found.append(run.run(inputs, topics, reentries or {}, is_full_audit=is_full_audit))
        except LakehouseError as error:
            failures.append(error)
        except Exception as error:
            # The boundary: Spark would end the stream over it, and again at each restart. Raised below.
            log.exception("messages: the run failed. What it wrote counts once; run again to go on.")
            failures.append(error)

    spark = start_on(lake)
    with _telling(lake, inputs, topics):
        writer = landing_stream(spark, inputs, wake, _checkpoint(lake))
        writer.trigger(availableNow=True).start().awaitTermination()
    if failures:
        raise failures[0]
    if not found:
        raise StreamError(
            f"The stream ended without a batch. Remove {_checkpoint(lake)} and start again."
        )
    return found[-1]


def follow_messages(
    lake: Lake,
    inputs: Sequence[str],
    targets: Mapping[str, Target],
    *,
    interval_seconds: int,
    tell: Callable[[Outcome], None],
    topics: Topics | None = None,
    clock: Clock = lambda: datetime.now(UTC),
) -> int:
    """Do what ``run_messages`` does again and again until a signal; call it in the main thread.

    SIGINT and SIGTERM end it when the batch at hand is done, a second one at once. What goes wrong is
    logged and tried again.

    Args:
        lake: The lake. The caller holds its lock.
        inputs: Folders, files or globs.
        targets: By name.
        interval_seconds: From one look to the next. Windows end also where no file comes.
        tell: Called after each look.
        topics: Topics of Kafka, beside the files or instead of them. They are asked at each look.
        clock: Tells the time, once for each look.

    Returns:
        The exit code of the last look; 0 where there was none.
    """
    stop, busy = threading.Event(), threading.Lock()
    codes = [0]

    def wake(_: DataFrame, number: int) -> None:
        with busy:
            if stop.is_set():
                return
            try:
                outcome = _Run(spark, lake, targets, clock(), lambda _: None).run(
                    inputs, topics, {}, is_full_audit=False
                )
                tell(outcome)
                codes.append(outcome.exit_code)
            except Exception as error:
                # The boundary: it is told, and tried again at the next look.
                codes.append(1)
                if isinstance(error, LakehouseError):
                    log.error("messages: %s", error)
                else:
                    log.exception("messages: the look failed. What it wrote counts once.")

    # Who keeps running has the time to compile.
    spark = start_on(lake, input_bytes=LONG_RUN_BYTES)
    with heeding_signals(stop, "messages"), _telling(lake, inputs, topics):
        writer = landing_stream(spark, inputs, wake, _checkpoint(lake), every=interval_seconds)
        query = writer.trigger(processingTime=f"{interval_seconds} seconds").start()
        while not query.awaitTermination(POLL_SECONDS):
            if stop.is_set():
                # A batch that comes now finds the stop and does nothing.
                with busy:
                    query.stop()
                break
    return codes[-1]


def _checkpoint(lake: Lake) -> Path:
    return lake.state / "checkpoints" / "messages"


@contextmanager
def _telling(lake: Lake, inputs: Sequence[str], topics: Topics | None) -> Iterator[None]:
    try:
        yield
    except StreamingQueryException as error:
        names = [*inputs, *(topics.names if topics else ())]
        raise stream_ended(names, _checkpoint(lake), error) from error


class _Run:
    """One run: it takes one time for everything."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        targets: Mapping[str, Target],
        now: datetime,
        after: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._targets = targets
        self._now = now
        self._after = after
        self._tables = Tables(spark, lake, pipeline_version())
        self._outcome = Outcome(Counts())
        # Targets that cannot be written to now. Their messages wait, and none is given up for it.
        self._out: dict[str, str] = {}

    def run(
        self,
        inputs: Sequence[str],
        topics: Topics | None,
        reentries: Reentries,
        *,
        is_full_audit: bool,
    ) -> Outcome:
        self._spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(_ARROW_BYTES))
        self._tables.create()
        for target in self._targets.values():
            with self._costing(target.name):
                self._tables.create_target(target, self._now)
                vet_rules(self._spark, target, self._tables.recorded(target))
        state = self._lake.read_state(_STATE)
        self._lake.write_state(_STATE, {**state, "is_open": True})
        receipts = self._receive(inputs, topics, reentries)
        pending = self._pending(int(state.get("settled", 0))).localCheckpoint()
        span = _span(pending)
        if span is not None:
            self._work(pending, span, was_cut_short=state.get("is_open", True))
        self._lake.write_state(_STATE, {"settled": receipts.last, "is_open": bool(self._out)})
        self._after("settled")
        touched = pending.select("_message_id", "target")
        if is_full_audit:
            messages = self._tables.read("bronze", "messages")
            messages = messages.where("stage is null and not is_repeat")
            touched, span = messages.select("_message_id", "target"), _span(messages)
        self._count(receipts, touched, span)
        if is_full_audit:
            self._audit_rules()
        return self._outcome

    def _work(self, pending: DataFrame, span: Span, *, was_cut_short: bool) -> None:
        """Place what is pending, less what an earlier run placed and did not take from those that wait.

        What rows are to be placed is fixed by checkpoints. What is only cached Spark would work out anew
        after each write to a table from which it came, and without the rows just written.

        Args:
            pending: Messages.
            span: In which they were received.
            was_cut_short: Whether the run before may have placed some of them.
        """
        if not was_cut_short:
            self._settle(pending, span)
            return
        placed = self._tables.given_up(span)
        for name in self._tables.target_names(self._targets):
            with self._costing(name):
                ids = self._tables.placed(name, span).join(pending, "_message_id", "semi")
                placed = placed.unionByName(ids.localCheckpoint())
        done = pending.join(placed, "_message_id", "semi").where("is_waiting")
        if not done.isEmpty():
            self._tables.forget_waiting(done.select("_message_id").localCheckpoint())
        todo = pending.join(placed, "_message_id", "anti").localCheckpoint()
        if not todo.isEmpty():
            self._settle(todo, span)

    @contextmanager
    def _kept(self, rows: DataFrame) -> Iterator[DataFrame]:
        rows = rows.persist()
        try:
            yield rows
        finally:
            rows.unpersist()

    @contextmanager
    def _costing(self, target: str) -> Iterator[None]:
        """What fails about one target costs that target: its messages wait for the next run."""
        try:
            yield
        except (PySparkException, Py4JError, LakehouseError, OSError) as error:
            trouble = str(error).partition("\n")[0][:500]
            log.error("messages: target %s: %s", target, trouble)
            if target not in self._out:
                self._outcome.troubles.append(f"target {target}: {trouble}")
            self._out.setdefault(target, trouble)

    # -- receiving

    def _receive(self, inputs: Sequence[str], topics: Topics | None, reentries: Reentries) -> Receipts:
        """Append what is new in files and in topics, and say what was received so far."""
        before = receipts = self._tables.note_receipts(self._now, {})
        if inputs or topics is None:
            receipts = self._receive_files(inputs, reentries, receipts)
        if topics is not None:
            receipts = self._receive_records(topics, receipts)
        self._outcome.received = receipts.lines - before.lines
        return receipts

    def _receive_records(self, topics: Topics, noted: Receipts) -> Receipts:
        """Append what is new in topics, in one commit. What fails costs the topics alone."""
        stretches: list[Stretch] = []
        with self._costing_topics(topics):
            stretches, troubles = new_records(self._spark, topics, self._tables.read_up_to)
            for trouble in troubles:
                self._fail(trouble)
        if not stretches:
            return noted
        identities = {(item.topic, item.partition): item.identity for item in stretches}
        lines = read(self._spark, topics, stretches).mapInArrow(
            record_receiver(sorted(self._targets), identities), RECEIVED_DDL
        )
        with self._kept(lines) as lines:
            number = 0
            with self._costing_topics(topics):
                # To its end, so that what fails behind this is not Kafka's fault.
                number = lines.count()
            # Where a transaction ends there is an offset without a record.
            if number:
                self._tables.receive(self._with_repeats(lines, noted.last + 1), noted.last + 1)
        self._after("received records")
        return self._tables.note_receipts(self._now, {})

    @contextmanager
    def _costing_topics(self, topics: Topics) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            self._fail(str(told_of(topics, error)))
        except (KafkaError, PySparkException) as error:
            self._fail(str(error).partition("\n")[0])

    def _receive_files(self, inputs: Sequence[str], reentries: Reentries, noted: Receipts) -> Receipts:
        """Append the lines of new files, in one commit."""
        files, failed = new_files(inputs, noted.contents)
        for error in failed:
            self._fail(str(error))
        if not files:
            return noted
        rows = [(f.source.path, f.source.member, f.source.name, f.file_sha256) for f in files]
        lines = (
            self._spark.createDataFrame(rows, _FILE_DDL)
            .repartition(min(CORES, len(rows)), "sha256")
            .mapInArrow(receiver(sorted(self._targets), reentries), RECEIVED_DDL)
        )
        with self._kept(lines) as lines:
            broken = lines.where("stage = 'file_read'").select("_file_sha256", "error").collect()
            for row in broken:
                self._fail(row["error"])
            gone = [row["_file_sha256"] for row in broken]
            sound = lines.where(~F.col("_file_sha256").isin(gone)) if gone else lines
            if not sound.isEmpty():
                self._tables.receive(self._with_repeats(sound, noted.last + 1), noted.last + 1)
        self._after("received")
        empty = {f.file_sha256: f.source.name for f in files if f.file_sha256 not in gone}
        return self._tables.note_receipts(self._now, empty)

    def _fail(self, trouble: str) -> None:
        log.error("messages: %s", trouble)
        self._outcome.troubles.append(trouble)

    def _with_repeats(self, lines: DataFrame, receipt: int) -> DataFrame:
        """Say of lines which repeat a message: the first of a message is the message."""
        first = (
            lines.groupBy("_message_id")
            .agg(F.min(F.struct("_source_file", "_position", "_record_id")).alias("first"))
            .select("_message_id", F.col("first._record_id").alias("_first_id"))
        )
        # What says no event_ts is known by its place, and no content comes twice.
        days = lines.where("event_ts is not null").select(
            F.unix_micros(F.date_trunc("day", "event_ts")).alias("day")
        )
        spans = spans_of([from_micros(row["day"]) for row in days.distinct().collect()])
        is_of_these_days = F.lit(False)
        for span in spans:
            is_of_these_days |= span.holds(F.col("event_ts"))
        known = (
            self._tables.read("bronze", "messages")
            .where("not is_repeat")
            .where(is_of_these_days)
            .select("_message_id", F.lit(True).alias("_is_known"))
        )
        return (
            lines.join(first, "_message_id")
            .join(known, "_message_id", "left")
            .withColumn("is_repeat", F.coalesce("_is_known", F.col("_first_id") != F.col("_record_id")))
            .drop("_first_id", "_is_known")
            .withColumn("processed_timestamp", F.lit(self._now))
            .withColumn("receipt", F.lit(receipt).cast("bigint"))
            .withColumn("_pipeline_version", F.lit(pipeline_version()))
        )

    def _pending(self, settled: int) -> DataFrame:
        """Messages of receipts after the last that is settled, and those that wait: each once."""
        columns = (*_CARRIED, *_PLACE)
        waiting = self._tables.read("bronze", "messages_waiting").select(*columns)
        fresh = (
            self._tables.read("bronze", "messages")
            .where((F.col("receipt") > settled) & F.expr("stage is null and not is_repeat"))
            .select(*columns)
            .join(waiting, "_message_id", "anti")
        )
        return waiting.withColumn("is_waiting", F.lit(True)).unionByName(
            fresh.withColumn("is_waiting", F.lit(False))
        )

    # -- settling

    def _settle(self, todo: DataFrame, span: Span) -> None:
        schemas = {name: self._tables.recorded(target) for name, target in self._targets.items()}
        with self._kept(self._judged(todo, schemas)) as judged:
            wider = self._change_schemas(judged, schemas)
            if not wider:
                self._place(judged, schemas, span)
                return
        schemas |= wider
        with self._kept(self._judged(todo, schemas)) as judged:
            self._place(judged, schemas, span)

    def _judged(self, todo: DataFrame, schemas: Mapping[str, StructType]) -> DataFrame:
        judges = {name: Judge(schemas[name], target) for name, target in self._targets.items()}
        return judge(todo, judges, self._now)

    def _change_schemas(
        self, judged: DataFrame, schemas: Mapping[str, StructType]
    ) -> dict[str, StructType]:
        """Alter each target for which a window has ended, and give the schemas that are new."""
        wider: dict[str, StructType] = {}
        for name, asked in requests(judged).items():
            target = self._targets[name]
            window = last_ended(self._now, target.schema_window_minutes)
            if name in self._out or self._tables.was_changed_in(target, window):
                continue
            with self._costing(name):
                plan = gather(schemas[name], asked, target.max_columns)
                if plan.after == plan.before:
                    continue
                self._tables.migrate(target, plan.after)
                self._after(f"altered {name}")
                self._tables.record(target, window, plan, self._now)
                self._after(f"recorded {name}")
                self._outcome.plans[name] = plan
                wider[name] = plan.after
                told = "; ".join(changes(plan.before, plan.after)[:20])
                log.info("messages: silver.%s altered once for %d shapes: %s", name, len(asked), told)
        return wider

    def _place(self, judged: DataFrame, schemas: Mapping[str, StructType], span: Span) -> None:
        """Write each message to where it belongs now, and then say who waits."""
        self._tables.record_refusals(self._targets, schemas, refusals(judged), self._now)
        judged = self._with_held(judged)
        counted = judged.select("target", "lands", "gives_up").distinct().collect()
        for name in sorted({row["target"] for row in counted if row["lands"]} - set(self._out)):
            with self._costing(name):
                self._land(judged.where((F.col("target") == name) & F.col("lands")), name, schemas, span)
        # Also what waits for a target that was taken out of the configuration.
        is_out = ~F.col("target").isin(sorted(set(self._targets) - set(self._out)))
        gives_up = F.col("gives_up") & ~is_out
        if any(row["gives_up"] for row in counted):
            bad = judged.where(gives_up).select(
                F.col("payload").alias("bad_data"),
                F.col("target").alias("target_dest"),
                "error",
                F.lit(self._now).alias("insert_time"),
                "retry_number",
                *("key", "event_ts", "processed_timestamp", "_message_id", "_record_id", *_PLACE),
                F.lit(pipeline_version()).alias("_pipeline_version"),
            )
            self._tables.insert("bronze", "bad_data", bad, "processed_timestamp", span)
            self._after("wrote bad_data")
        error = F.coalesce("error", F.when(F.col("is_held"), F.lit(_HELD)))
        for name, trouble in self._out.items():
            told = F.lit(f"TARGET_OUT: {trouble}")
            error = F.when(F.col("target") == name, F.coalesce(error, told)).otherwise(error)
        waits = is_out | ~(F.col("lands") | F.col("gives_up"))
        waiting = judged.where(waits | F.col("is_waiting")).select(
            *_CARRIED,
            *_PLACE,
            "retry_number",
            error.alias("error"),
            F.lit(self._now).alias("tried_at"),
            waits.alias("waits"),
        )
        if not waiting.isEmpty():
            self._tables.update_waiting(waiting)
        self._after("updated waiting")

    def _with_held(self, judged: DataFrame) -> DataFrame:
        """Say which messages land now, which are given up, and which are held behind one of their key.

        A message that fits is held while one of its key that happened earlier waits, and no longer than
        it may be retried itself.
        """
        gives_up = F.expr("not fits and is_past_retry")
        waits = judged.where(
            ~F.col("fits") & ~gives_up & F.expr("key is not null and event_ts is not null")
        )
        first = waits.groupBy("target", "key").agg(F.min("event_ts").alias("_first_waiting"))
        is_held = F.coalesce(
            F.expr("fits and not is_past_retry and event_ts > _first_waiting"), F.lit(False)
        )
        return (
            judged.join(first, ["target", "key"], "left")
            .withColumn("is_held", is_held)
            .withColumn("lands", F.expr("fits and not is_held"))
            .withColumn("gives_up", gives_up)
        )

    def _land(self, rows: DataFrame, name: str, schemas: Mapping[str, StructType], span: Span) -> None:
        """Write messages of one target that fit: to its table, or to its quarantine."""
        target = self._targets[name]
        with self._kept(self._typed(rows, target, schemas[name])) as verdicts:
            received = "_processed_timestamp"
            good = clean(verdicts)
            if not good.isEmpty():
                self._tables.insert("silver", name, good, received, span)
            self._after(f"wrote {name}")
            if target.rules:
                bad = refused(verdicts, target, pipeline_version())
                if not bad.isEmpty():
                    self._tables.insert("silver", target.tables[1], bad, received, span)
                    self._after(f"wrote {target.tables[1]}")

    def _typed(self, rows: DataFrame, target: Target, schema: StructType) -> DataFrame:
        rows = rows.select(*map(self._own, OUR_COLUMNS), "payload")
        return rules_asked(typed(rows, schema), target)

    def _own(self, column: str) -> Column:
        """One of the job's own columns of a target, of a message that was judged."""
        if column == "_landed_at":
            return F.lit(self._now).alias(column)
        if column in ("_key", "_event_ts", "_processed_timestamp", "_retry_number"):
            return F.col(column[1:]).alias(column)
        return F.col(column)

    # -- counting

    def _count(self, receipts: Receipts, touched: DataFrame, span: Span | None) -> None:
        """Count where all messages are, and find those that are in no place or in several.

        Delta knows how many rows a table has without reading it; ids are read of the span alone.

        Args:
            receipts: What was received.
            touched: Messages to look for, with their target.
            span: In which these were received.
        """
        counts = self._outcome.counts
        counts.lines, counts.repeats, counts.refused = receipts.lines, receipts.repeats, receipts.refused
        waiting = self._tables.read("bronze", "messages_waiting").select("_message_id")
        counts.waiting = waiting.count()
        counts.bad_data = self._tables.read("bronze", "bad_data").count()
        places = waiting if span is None else waiting.unionByName(self._tables.given_up(span))
        for name in self._tables.target_names(self._targets):
            with self._costing(name):
                counts.landed[name] = self._tables.read("silver", name).count()
                if self._tables.has("silver", f"{name}{QUARANTINE}"):
                    rows = self._tables.read("silver", f"{name}{QUARANTINE}").count()
                    counts.quarantined[name] = rows
                if span is not None and name not in self._out:
                    places = places.unionByName(self._tables.placed(name, span))
        # What a target that is out holds of a message that waits for it is found when it is back.
        counts.is_partial = bool(self._out)
        if span is None:
            return
        touched = touched.where(~F.col("target").isin(sorted(self._out))).select("_message_id")
        found = places.join(touched, "_message_id", "semi").withColumn("n", F.lit(1))
        found = found.unionByName(touched.withColumn("n", F.lit(0)))
        odd = found.groupBy("_message_id").agg(F.sum("n").alias("n")).where("n <> 1")
        counts.astray = [row[0] for row in odd.select("_message_id").limit(_TOLD).collect()]

    def _audit_rules(self) -> None:
        """Judge all that landed once more, in one batch, and compare with what the stream decided."""
        for name, target in self._targets.items():
            if not target.rules or name in self._out:
                continue
            with self._costing(name):
                messages = self._tables.read("bronze", "messages").where(F.col("target") == name)
                landed = self._tables.read("silver", name).select("_message_id", F.lit(0).alias("was"))
                bad = self._tables.read("silver", target.tables[1])
                bad = bad.select("_message_id", F.lit(1).alias("was"))
                decided = landed.unionByName(bad)
                rows = messages.where("stage is null and not is_repeat").join(
                    decided, "_message_id", "semi"
                )
                rows = rows.withColumn("retry_number", F.lit(0))
                verdicts = self._typed(rows, target, self._tables.recorded(target))
                again = verdicts.select(
                    "_message_id", (F.size(FAILURE_REASONS) > 0).cast("int").alias("found")
                )
                other = decided.join(again, "_message_id").where("was <> found").select("_message_id")
                self._outcome.counts.differing += [row[0] for row in other.limit(_TOLD).collect()]


def _span(messages: DataFrame) -> Span | None:
    """From the first to the last instant at which messages were received; None for no messages."""
    at = F.unix_micros("processed_timestamp")
    found = messages.agg(F.min(at), F.max(at)).first()
    if found is None or found[0] is None:
        return None
    return Span(from_micros(found[0]), from_micros(found[1]))


def spans_of(days: Sequence[datetime]) -> list[Span]:
    """Days as spans of time, those that follow each other as one; few, or one for all."""
    spans: list[Span] = []
    for day in sorted(days):
        end = day + _DAY
        if spans and day - spans[-1].last <= _TICK:
            spans[-1] = Span(spans[-1].first, end)
        else:
            spans.append(Span(day, end))
    return spans if len(spans) <= _SPANS else [Span(spans[0].first, spans[-1].last)]
