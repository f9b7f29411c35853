"""Topics of Kafka as a source of messages: with what options, what is new in them, and how it is read.

See docs/decisions/0019-the-lake-says-how-far-a-topic-was-read.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from ingest.errors import InputError, KafkaError

_LOSS = "failOnDataLoss"
_TAKEN = (_LOSS, "minPartitions", "maxRecordsPerPartition", "kafkaConsumer.pollTimeoutMs")
# Of Kafka's own options, those that the job sets; Spark refuses the others that cannot be set.
_OURS = ("kafka.bootstrap.servers",)
# How long a broker may be silent, in milliseconds, where the options do not say. Kafka's minute is long
# for who waits at a prompt, and a run that cannot ask is only tried again.
_PATIENCE = {"default.api.timeout.ms": "20000", "request.timeout.ms": "15000"}


@dataclass(frozen=True)
class Topics:
    """Topics of one Kafka.

    Attributes:
        servers: Brokers, as ``host:port,host:port``.
        names: The topics.
        options: Of Spark's source: ``kafka.*`` for its consumer, and a few of its own.
    """

    servers: str
    names: tuple[str, ...]
    options: Mapping[str, str]

    @property
    def is_loss_taken(self) -> bool:
        """Whether to go on with what is left where Kafka deleted records before they were received."""
        return self.options.get(_LOSS, "true").lower() == "false"

    @property
    def client(self) -> dict[str, str]:
        """The options for a client of Kafka."""
        own = {
            name.removeprefix("kafka."): value
            for name, value in self.options.items()
            if name.startswith("kafka.")
        }
        return {**_PATIENCE, **own, "bootstrap.servers": self.servers}


@dataclass(frozen=True)
class Stretch:
    """Records of one partition that are new.

    Attributes:
        topic: The topic.
        partition: Its partition.
        identity: What stands for a file's sha256: of the topic's own id, its name and the partition. A
            topic that was made anew under its old name is another one.
        first: Offset of the first.
        end: The offset behind the last.
    """

    topic: str
    partition: int
    identity: str
    first: int
    end: int

    @property
    def name(self) -> str:
        """As ``_source_file`` says it."""
        return source_name(self.topic, self.partition)


def source_name(topic: str, partition: int) -> str:
    """What ``_source_file`` says of a record: its topic and partition."""
    return f"kafka:{topic}/{partition}"


def topics_of(servers: str | None, names: Sequence[str], options: Sequence[str]) -> Topics | None:
    """Read what a user says of Kafka; None where nothing is said.

    Args:
        servers: Brokers.
        names: Topics.
        options: Each as ``name=value``; a value ``@path`` is the content of that file, for what others
            must not see in the list of processes.

    Raises:
        InputError: It does not go together, or an option cannot be set.
    """
    if not servers:
        if names or options:
            raise InputError("It is not said where Kafka is. Name brokers: --kafka-servers host:port.")
        return None
    if not names:
        raise InputError("It is not said what to read of Kafka. Name a topic: --topic <name>.")
    return Topics(servers, tuple(dict.fromkeys(names)), dict(map(_option, options)))


def _option(text: str) -> tuple[str, str]:
    name, is_set, value = text.partition("=")
    if not is_set or not name:
        raise InputError(f"--kafka-option {text} is not name=value, as in kafka.security.protocol=SSL.")
    if name in _OURS or not (name.startswith("kafka.") or name in _TAKEN):
        raise InputError(
            f"--kafka-option {name} cannot be set. Options of Kafka's consumer begin with 'kafka.'; "
            f"besides there are {', '.join(_TAKEN)}. Brokers and topics have options of their own, and "
            f"where to begin the lake knows."
        )
    if value.startswith("@"):
        try:
            value = Path(value[1:]).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"--kafka-option {name}: {value[1:]} cannot be read ({error}). Name a text file after "
                f"@, or write the value itself."
            ) from error
    if name == _LOSS and value.lower() not in ("true", "false"):
        raise InputError(f"--kafka-option {name} is '{value}'. It is true or false.")
    return name, value


def new_records(
    spark: SparkSession,
    topics: Topics,
    received: Callable[[Collection[str]], Mapping[str, int]],
) -> tuple[list[Stretch], list[str]]:
    """Ask Kafka what is new since the lake last received.

    Args:
        spark: The session; its JVM has Kafka's clients.
        topics: Topics.
        received: Gives of partitions, by identity, the offset behind the last record that was received.

    Returns:
        What is new, and what is wrong, in words. A topic with which something is wrong costs that topic.

    Raises:
        KafkaError: No broker answers, or the options do not do.
    """
    found: list[Stretch] = []
    troubles: list[str] = []
    with _admin(spark, topics) as admin:
        with _asking(topics):
            # Else each topic would wait for a broker that is away.
            admin.describeCluster().nodes().get()
        for topic in topics.names:
            try:
                ends = _ends(spark, admin, topics, topic)
                known = received([stretch.identity for stretch in ends])
                parts = [_since(stretch, known.get(stretch.identity), topics) for stretch in ends]
            except KafkaError as error:
                troubles.append(str(error))
                continue
            for part, gap in parts:
                troubles += [gap] if gap else []
                found += [part] if part.first < part.end else []
    return found, troubles


def read(spark: SparkSession, topics: Topics, stretches: Collection[Stretch]) -> DataFrame:
    """Read records: topic, partition, offset, key, value and columns that nobody asks for.

    Args:
        spark: The session.
        topics: Where.
        stretches: What.
    """

    def offsets(of: Callable[[Stretch], int]) -> str:
        told: dict[str, dict[str, int]] = {}
        for stretch in stretches:
            told.setdefault(stretch.topic, {})[str(stretch.partition)] = of(stretch)
        return json.dumps(told)

    assigned: dict[str, list[int]] = {}
    for stretch in stretches:
        assigned.setdefault(stretch.topic, []).append(stretch.partition)
    reader = spark.read.format("kafka").options(**topics.options)
    for name, value in topics.client.items():
        reader = reader.option(f"kafka.{name}", value)
    return (
        reader.option("assign", json.dumps(assigned))
        .option("startingOffsets", offsets(lambda stretch: stretch.first))
        .option("endingOffsets", offsets(lambda stretch: stretch.end))
        .load()
    )


def _since(stretch: Stretch, known: int | None, topics: Topics) -> tuple[Stretch, str | None]:
    """What of a partition is new, and what is to be told of it.

    Raises:
        KafkaError: What was not received yet is gone.
    """
    if known is None:
        # Before its first record was received, nothing of it was the lake's to lose.
        return stretch, None
    if known > stretch.end:
        raise KafkaError(
            f"{stretch.name} ends at offset {stretch.end}, and the lake has received it up to {known}. "
            f"Either Kafka lost records after an unclean election, or the topic was made anew by a "
            f"broker that gives topics no ids. Nothing of it was taken. Let its senders write to a "
            f"topic of another name."
        )
    if known >= stretch.first:
        return Stretch(stretch.topic, stretch.partition, stretch.identity, known, stretch.end), None
    gap = (
        f"{stretch.name}: Kafka deleted the records from offset {known} to {stretch.first - 1} before "
        f"they were received, {stretch.first - known:,} at most"
    )
    if not topics.is_loss_taken:
        raise KafkaError(
            f"{gap}. Nothing of the topic was taken. Ask its senders for them, let the topic keep its "
            f"records for longer, and go on with what is left by --kafka-option {_LOSS}=false."
        )
    return stretch, f"{gap}. What is left was taken."


# -- what the JVM is asked


@contextmanager
def _admin(spark: SparkSession, topics: Topics) -> Iterator[Any]:
    classes: Any = spark._jvm
    with _asking(topics):
        admin = classes.org.apache.kafka.clients.admin.AdminClient.create(topics.client)
    try:
        yield admin
    finally:
        admin.close()


def _ends(spark: SparkSession, admin: Any, topics: Topics, topic: str) -> list[Stretch]:
    """All that a topic holds, partition by partition."""
    jvm: Any = spark._jvm
    kafka = jvm.org.apache.kafka
    with _asking(topics, topic):
        described = admin.describeTopics([topic]).topicNameValues()[topic].get()
        topic_id = described.topicId().toString()
        numbers = sorted(part.partition() for part in described.partitions())
        # Else the end may lie behind records of a transaction that is not finished, which are not given.
        level = topics.client.get("isolation.level", "read_uncommitted").upper()
        asked = kafka.clients.admin.ListOffsetsOptions(kafka.common.IsolationLevel.valueOf(level))
        spec = kafka.clients.admin.OffsetSpec

        def offsets(of: Any) -> dict[int, int]:
            wanted = {kafka.common.TopicPartition(topic, number): of for number in numbers}
            told = admin.listOffsets(wanted, asked)
            return {part.partition(): told.partitionResult(part).get().offset() for part in wanted}

        firsts, ends = offsets(spec.earliest()), offsets(spec.latest())
    return [
        Stretch(topic, number, _identity(topic_id, topic, number), firsts[number], ends[number])
        for number in numbers
    ]


def _identity(topic_id: str, topic: str, partition: int) -> str:
    return hashlib.sha256(f"kafka|{topic_id}|{topic}|{partition}".encode()).hexdigest()


@contextmanager
def _asking(topics: Topics, topic: str | None = None) -> Iterator[None]:
    """Say in words what Kafka's client throws."""
    try:
        yield
    except Py4JJavaError as error:
        raise told_of(topics, error, topic) from error


def told_of(topics: Topics, error: Py4JJavaError, topic: str | None = None) -> KafkaError:
    """The error that says what a client of Kafka in the JVM threw.

    Args:
        topics: What was asked.
        error: What py4j gives.
        topic: Which of them, if one.
    """
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    wanted = topic or ", ".join(topics.names)
    fault, words = cause.getClass().getSimpleName(), str(cause.getMessage()).partition("\n")[0][:300]
    if fault == "UnknownTopicOrPartitionException":
        return KafkaError(
            f"Kafka at {topics.servers} has no topic '{topic}'. Nothing of it was taken. Correct "
            f"--topic, or let its owner make it; the next run takes it."
        )
    if fault in ("TimeoutException", "ConnectException", "DisconnectException"):
        return KafkaError(
            f"No broker of Kafka answered at {topics.servers} ({words}). Nothing of "
            f"{wanted} was taken, and nothing is lost: run again when it is back, or correct "
            f"--kafka-servers."
        )
    return KafkaError(
        f"Kafka at {topics.servers} did not give what was asked ({fault}: {words}). Nothing of {wanted} "
        f"was taken. Correct --kafka-servers, --topic and --kafka-option, or run again."
    )
