"""A real broker of Kafka in KRaft mode, and a client that speaks to it through Spark's JVM."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark

from ingest.environment import BROKER_DIR, BROKER_LOCK, jar_paths, java_executable

_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/records
auto.create.topics.enable=false
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
"""
_LOGGING = """\
rootLogger.level = info
rootLogger.appenderRef.out.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n
"""
_STARTED = "Kafka Server started"
_SECONDS = 60
_FORMATTER = "kafka.tools.StorageTool"
# The id of a cluster is 16 bytes as base64.
_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
Record = tuple[bytes | None, bytes | None]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Broker:
    """One broker, which is its own controller. Stopped and started again it is where it was."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        (folder / "log4j2.properties").write_text(_LOGGING)
        told = _SETTINGS.format(port=self._port, controller=free_port(), folder=folder)
        self._settings = folder / "server.properties"
        self._settings.write_text(told)
        subprocess.run(
            [*self._java(), _FORMATTER, "format", "-t", _CLUSTER, "-c", self._settings],
            check=True,
            capture_output=True,
        )

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        log = self._folder / "broker.log"
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [*self._java(), "kafka.Kafka", self._settings],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        until = time.monotonic() + _SECONDS
        while _STARTED not in (told := log.read_text("utf-8", "replace")):
            assert self._process.poll() is None and time.monotonic() < until, told[-3000:]
            time.sleep(0.05)

    def stop(self) -> None:
        if self._process is not None:
            # Killed: what is acknowledged is on its disk, and a tidy end takes seconds.
            self._process.kill()
            self._process.wait()
            self._process = None

    def _java(self) -> list[str | Path]:
        spark = Path(pyspark.__file__).parent / "jars" / "*"
        jars = [*jar_paths(BROKER_DIR, BROKER_LOCK), *jar_paths(), spark]
        return [
            java_executable(),
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}",
            "-cp",
            os.pathsep.join(map(str, jars)),
        ]


class Client:
    """Makes topics and writes to them."""

    def __init__(self, jvm: Any, broker: Broker) -> None:
        self._jvm = jvm
        self._kafka = jvm.org.apache.kafka
        self._at: Mapping[str, str] = {"bootstrap.servers": broker.servers}
        self._admin = self._kafka.clients.admin.AdminClient.create(self._at)
        self._producer = self._make_producer({"acks": "all"})

    def close(self) -> None:
        self._producer.close()
        self._admin.close()

    def create(self, topic: str, partitions: int = 1) -> None:
        new = self._kafka.clients.admin.NewTopic(topic, partitions, 1)
        self._admin.createTopics([new]).all().get()

    def delete(self, topic: str) -> None:
        self._admin.deleteTopics([topic]).all().get()

    def delete_before(self, topic: str, offset: int, partition: int = 0) -> None:
        place = self._kafka.common.TopicPartition(topic, partition)
        # A method of the class and one of its instances share a name, and py4j finds the second alone.
        name = "org.apache.kafka.clients.admin.RecordsToDelete"
        methods = self._jvm.java.lang.Class.forName(name).getMethods()
        [make] = [m for m in methods if m.getName() == "beforeOffset" and m.getParameterCount()]
        before = make.invoke(None, self._jvm.java.util.ArrayList([offset]).toArray())
        self._admin.deleteRecords({place: before}).all().get()

    def send(self, topic: str, records: Sequence[Record], partition: int = 0) -> None:
        self._send(self._producer, topic, records, partition)

    def send_in_transaction(self, topic: str, records: Sequence[Record], *, is_committed: bool) -> None:
        producer = self._make_producer({"transactional.id": topic})
        producer.initTransactions()
        producer.beginTransaction()
        self._send(producer, topic, records, 0)
        if is_committed:
            producer.commitTransaction()
        else:
            producer.abortTransaction()
        producer.close()

    def _make_producer(self, more: Mapping[str, str]) -> Any:
        serializer = "org.apache.kafka.common.serialization.ByteArraySerializer"
        as_bytes = {"key.serializer": serializer, "value.serializer": serializer}
        return self._kafka.clients.producer.KafkaProducer({**self._at, **as_bytes, **more})

    def _send(self, producer: Any, topic: str, records: Sequence[Record], partition: int) -> None:
        for key, value in records:
            record = self._kafka.clients.producer.ProducerRecord(topic, partition, key, value)
            producer.send(record)
        producer.flush()
