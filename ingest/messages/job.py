"""``lakehouse messages``: what is received, what a window changes, where each message goes.

See docs/decisions/0014-messages-wait-for-their-windows-end.md.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark's own examples use)
from pyspark.sql.types import StructType

from ingest.environment import pipeline_version
from ingest.errors import LakehouseError, StreamError
from ingest.lake import Lake
from ingest.landing import LandingSource
from ingest.messages.fitting import Plan, gather
from ingest.messages.judging import Judge, judge, refusals, requests, typed
from ingest.messages.receiving import RECEIVED_DDL, new_files, receiver
from ingest.messages.schemas import OUR_COLUMNS, changes
from ingest.messages.tables import Tables
from ingest.messages.targets import Target
from ingest.messages.windows import last_ended
from ingest.session import CORES, start_on

log = logging.getLogger("lakehouse")
Clock = Callable[[], datetime]
_STATE = "messages"
_FILE_DDL = "path STRING, member STRING, name STRING, sha256 STRING"
_CARRIED = ("_message_id", "_record_id", "target", "key", "event_ts", "processed_timestamp", "payload")
_PLACE = ("_source_file", "_file_sha256", "_position")


@dataclass
class Counts:
    """Where all messages are that were ever received.

    Attributes:
        lines: Lines received.
        repeats: Of these, lines that repeat a message.
        refused: Messages refused at once.
        landed: Messages in their target, by target.
        waiting: Messages that wait.
        bad_data: Messages that were given up.
        astray: Ids of messages that are in no place or in several, at most twenty.
    """

    lines: int = 0
    repeats: int = 0
    refused: int = 0
    landed: dict[str, int] = field(default_factory=dict)
    waiting: int = 0
    bad_data: int = 0
    astray: list[str] = field(default_factory=list)

    @property
    def balance(self) -> int:
        """Messages received less messages found; 0 where the law holds."""
        placed = self.refused + sum(self.landed.values()) + self.waiting + self.bad_data
        return self.lines - self.repeats - placed


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
        return 1 if self.troubles or self.counts.astray or self.counts.balance else 0


def run_messages(
    lake: Lake,
    inputs: Sequence[str],
    targets: Mapping[str, Target],
    clock: Clock = lambda: datetime.now(UTC),
    after: Callable[[str], None] = lambda _: None,
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

    Raises:
        LakehouseError: An input names nothing, or something else that the user can mend.
    """
    spark = start_on(lake)
    spark.dataSource.register(LandingSource)
    found: list[Outcome] = []
    failures: list[Exception] = []

    def wake(_: DataFrame, number: int) -> None:
        try:
            found.append(take(spark, lake, inputs, targets, clock(), after))
        except LakehouseError as error:
            failures.append(error)
        except Exception as error:
            # The boundary: Spark would end the stream over it, and again at each restart. Raised below.
            log.exception("messages: the run failed. What it wrote counts once; run again to go on.")
            failures.append(error)

    source = (
        spark.readStream.format(LandingSource.name())
        .option("inputs", json.dumps(list(inputs)))
        .option("start", datetime.now(UTC).isoformat())
        .load()
    )
    checkpoint = lake.state / "checkpoints" / "messages"
    writer = source.writeStream.foreachBatch(wake).option("checkpointLocation", str(checkpoint))
    try:
        writer.trigger(availableNow=True).start().awaitTermination()
    except StreamingQueryException as error:
        raise StreamError(
            f"The stream over {', '.join(inputs)} ended: {error}. The lake decides what is new, not the "
            f"stream's checkpoint: if the fault stays, remove {checkpoint} and start again; nothing is "
            f"lost or doubled by that."
        ) from error
    if failures:
        raise failures[0]
    if not found:
        raise StreamError(f"The stream ended without a batch. Remove {checkpoint} and start again.")
    return found[-1]


def take(
    spark: SparkSession,
    lake: Lake,
    inputs: Sequence[str],
    targets: Mapping[str, Target],
    now: datetime,
    after: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """One run's work on a session that is there. See ``run_messages``."""
    return _Run(spark, lake, targets, now, after).run(inputs)


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

    def run(self, inputs: Sequence[str]) -> Outcome:
        self._tables.create()
        for target in self._targets.values():
            with self._costing(target):
                self._tables.create_target(target)
        receipt = self._receive(inputs)
        with self._kept(self._pending()) as pending:
            placed = pending.where("is_placed")
            if placed.count():
                # A killed run wrote them and did not come to take them from those that wait.
                self._tables.forget_waiting(placed.select("_message_id"))
            todo = pending.where("not is_placed").drop("is_placed")
            if todo.count():
                self._settle(todo)
        self._lake.write_state(_STATE, {"settled": receipt})
        self._after("settled")
        self._outcome.counts = count(self._tables)
        return self._outcome

    @contextmanager
    def _kept(self, rows: DataFrame) -> Iterator[DataFrame]:
        rows = rows.persist()
        try:
            yield rows
        finally:
            rows.unpersist()

    @contextmanager
    def _costing(self, target: Target) -> Iterator[None]:
        """What fails about one target costs that target: its messages wait for the next run."""
        try:
            yield
        except (PySparkException, Py4JError, LakehouseError, OSError) as error:
            trouble = str(error).partition("\n")[0][:500]
            log.error("messages: target %s: %s", target.name, trouble)
            self._out[target.name] = trouble
            self._outcome.troubles.append(f"target {target.name}: {trouble}")

    # -- receiving

    def _receive(self, inputs: Sequence[str]) -> int:
        """Append the lines of new files, in one commit, and give the number of the last receipt."""
        messages = self._tables.read("bronze", "messages")
        last = int(messages.agg(F.max("receipt")).first()[0] or 0)  # type: ignore[index]
        files, failed = new_files(inputs, self._tables.known_files())
        for error in failed:
            log.error("messages: %s", error)
            self._outcome.troubles.append(str(error))
        if not files:
            return last
        rows = [(f.source.path, f.source.member, f.source.name, f.file_sha256) for f in files]
        lines = (
            self._spark.createDataFrame(rows, _FILE_DDL)
            .repartition(min(CORES, len(rows)), "sha256")
            .mapInArrow(receiver(sorted(self._targets)), RECEIVED_DDL)
        )
        with self._kept(lines) as lines:
            # The first of a message is the message, the others repeat it.
            first = (
                lines.groupBy("_message_id")
                .agg(F.min(F.struct("_source_file", "_position", "_record_id")).alias("first"))
                .select("_message_id", F.col("first._record_id").alias("_first_id"))
            )
            known = messages.where("not is_repeat").select("_message_id", F.lit(True).alias("_is_known"))
            rows_of = (
                lines.join(first, "_message_id")
                .join(known, "_message_id", "left")
                .withColumn(
                    "is_repeat", F.coalesce("_is_known", F.col("_first_id") != F.col("_record_id"))
                )
                .drop("_first_id", "_is_known")
                .withColumn("processed_timestamp", F.lit(self._now))
                .withColumn("receipt", F.lit(last + 1).cast("bigint"))
                .withColumn("_pipeline_version", F.lit(pipeline_version()))
            )
            self._outcome.received = lines.count()
            if self._outcome.received:
                self._tables.insert("bronze", "messages", rows_of, "_record_id")
        self._after("received")
        return last + 1 if self._outcome.received else last

    def _pending(self) -> DataFrame:
        """Messages of receipts that no run brought to its end, and those that wait.

        ``is_placed`` says of which a killed run has placed them already.
        """
        settled = int(self._lake.read_state(_STATE).get("settled", 0))
        columns = (*_CARRIED, *_PLACE)
        fresh = (
            self._tables.read("bronze", "messages")
            .where((F.col("receipt") > settled) & F.expr("stage is null and not is_repeat"))
            .select(*columns)
        )
        waiting = self._tables.read("bronze", "messages_waiting").select(*columns)
        pending = fresh.unionByName(waiting).dropDuplicates(["_message_id"])
        placed = self._tables.read("bronze", "bad_data").select("_message_id")
        for name in self._tables.target_names():
            placed = placed.unionByName(self._tables.read("silver", name).select("_message_id"))
        placed = placed.withColumn("is_placed", F.lit(True))
        return pending.join(placed, "_message_id", "left").na.fill({"is_placed": False})

    # -- settling

    def _settle(self, todo: DataFrame) -> None:
        schemas = {name: self._tables.recorded(target) for name, target in self._targets.items()}
        with self._kept(self._judged(todo, schemas)) as judged:
            wider = self._change_schemas(judged, schemas)
            if not wider:
                self._place(judged, schemas)
                return
        schemas |= wider
        with self._kept(self._judged(todo, schemas)) as judged:
            self._place(judged, schemas)

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
            with self._costing(target):
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

    def _place(self, judged: DataFrame, schemas: Mapping[str, StructType]) -> None:
        """Write each message to where it belongs now, and then say who waits."""
        self._tables.record_refusals(self._targets, schemas, refusals(judged), self._now)
        counted = judged.select("target", "fits", "is_past_retry").distinct().collect()
        for name in sorted({row["target"] for row in counted if row["fits"]} - set(self._out)):
            with self._costing(self._targets[name]):
                rows = judged.where((F.col("target") == name) & F.col("fits"))
                rows = rows.select(*map(self._own, OUR_COLUMNS), "payload")
                self._tables.insert("silver", name, typed(rows, schemas[name]), "_message_id")
                self._after(f"wrote {name}")
        # Also what waits for a target that was taken out of the configuration.
        is_out = ~F.col("target").isin(sorted(set(self._targets) - set(self._out)))
        gives_up = F.expr("not fits and is_past_retry") & ~is_out
        if any(row["is_past_retry"] and not row["fits"] for row in counted):
            bad = judged.where(gives_up).select(
                F.col("payload").alias("bad_data"),
                F.col("target").alias("target_dest"),
                "error",
                F.lit(self._now).alias("insert_time"),
                "retry_number",
                *("key", "event_ts", "processed_timestamp", "_message_id", "_record_id", *_PLACE),
                F.lit(pipeline_version()).alias("_pipeline_version"),
            )
            self._tables.insert("bronze", "bad_data", bad, "_message_id")
            self._after("wrote bad_data")
        error = F.col("error")
        for name, trouble in self._out.items():
            told = F.lit(f"TARGET_OUT: {trouble}")
            error = F.when(F.col("target") == name, F.coalesce("error", told)).otherwise(error)
        waiting = judged.select(
            *_CARRIED,
            *_PLACE,
            "retry_number",
            error.alias("error"),
            F.lit(self._now).alias("tried_at"),
            (is_out | (F.expr("not fits") & ~gives_up)).alias("waits"),
        )
        self._tables.update_waiting(waiting)
        self._after("updated waiting")

    def _own(self, column: str) -> Column:
        """One of the job's own columns of a target, of a message that was judged."""
        if column == "_landed_at":
            return F.lit(self._now).alias(column)
        if column in ("_key", "_event_ts", "_processed_timestamp", "_retry_number"):
            return F.col(column[1:]).alias(column)
        return F.col(column)


def count(tables: Tables) -> Counts:
    """Count where all messages are, and find those that are in no place or in several."""
    messages = tables.read("bronze", "messages")
    names = tables.target_names()
    places = {"waiting": tables.read("bronze", "messages_waiting")}
    places["bad_data"] = tables.read("bronze", "bad_data")
    places |= {f"silver.{name}": tables.read("silver", name) for name in names}
    places["refused"] = messages.where("stage is not null and not is_repeat")
    found = messages.where("not is_repeat").select("_message_id", F.lit("received").alias("place"))
    for place, rows in places.items():
        found = found.unionByName(rows.select("_message_id", F.lit(place).alias("place")))
    is_received = F.col("place") == "received"
    by_id = found.groupBy("_message_id").agg(
        F.count_if(is_received).alias("received"), F.count_if(~is_received).alias("placed")
    )
    astray = by_id.where("received <> 1 or placed <> 1").select("_message_id").limit(20).collect()
    numbers = {row["place"]: row["count"] for row in found.groupBy("place").count().collect()}
    lines = messages.count()
    return Counts(
        lines=lines,
        repeats=lines - numbers.get("received", 0),
        refused=numbers.get("refused", 0),
        landed={name: numbers.get(f"silver.{name}", 0) for name in names},
        waiting=numbers.get("waiting", 0),
        bad_data=numbers.get("bad_data", 0),
        astray=[row[0] for row in astray],
    )
