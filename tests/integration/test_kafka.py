"""Messages of a real broker of Kafka: each once, whatever is killed, away, missing or gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_broker import Broker, Client
from message_story import CUSTOMERS, Killed, Story, customer

from ingest.cli_messages import told
from ingest.messages.kafka import Topics, topics_of
from ingest.session import start_on

HASTY = ["kafka.default.api.timeout.ms=3000", "kafka.request.timeout.ms=2000"]
RECEIVED = (
    "select _source_file, _position, key, error_type, is_repeat, _byte_offset from bronze.messages "
    "order by 1, 2"
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path / "broker")
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


def topics(broker: Broker, *names: str, more: tuple[str, ...] = ()) -> Topics:
    found = topics_of(broker.servers, names, [*HASTY, *more])
    assert found is not None
    return found


def keyless(who: str, event: str, **data: object) -> bytes:
    message = json.loads(customer(who, event, **data))
    del message["key"]
    # Of several lines, as none in a file can be.
    return json.dumps(message, indent=1).encode()


def test_each_record_is_received_once_whatever_becomes_of_its_broker(
    broker: Broker, tmp_path: Path
) -> None:
    story = Story(tmp_path)
    client = Client(start_on(story.lake)._jvm, broker)
    client.create("updates", partitions=2)
    first, wide = customer("C1", points=1).encode(), customer("C3", email="c3@example.org").encode()
    client.send("updates", [(b"C1", first), (b"C2", keyless("C2", "08:01:00", points=2)), (b"x", None)])
    client.send("updates", [(None, b'"\xff"'), (b"\xff", wide), (b"P", first)], partition=1)
    story.send("a.jsonl", customer("C1", points=1), customer("C4", points=4))

    # Killed when the records were received, before it was written down how far.
    with pytest.raises(Killed):
        story.run("10:00:30", "received records", topics=topics(broker, "updates"))
    outcome = story.run("10:00:40", topics=topics(broker, "updates"))
    assert (outcome.exit_code, outcome.received, outcome.counts.lines) == (0, 0, 8), told(outcome)
    file = str(story.landing / "a.jsonl")
    assert [row for row in story.sql(RECEIVED) if row[0] != file] == [
        ("kafka:updates/0", 0, "C1", None, True, None),
        ("kafka:updates/0", 1, "C2", None, False, None),
        ("kafka:updates/0", 2, "x", "NO_VALUE", False, None),
        ("kafka:updates/1", 0, None, "NOT_UTF8", False, None),
        ("kafka:updates/1", 1, "C3", None, False, None),
        ("kafka:updates/1", 2, "C1", None, True, None),
    ]
    assert story.tally() == {"customers": 3, "refused": 2, "waiting": 1}
    unused = "where list_contains(_unparsed, '(key of the record)') order by 1"
    assert story.sql(f"select _position from bronze.messages {unused}") == [(1,), (2,)]

    # The broker is away. Files are received, and windows end.
    broker.stop()
    story.send("b.jsonl", customer("C5", points=5))
    outcome = story.run("10:03:00", topics=topics(broker, "updates"))
    assert outcome.exit_code == 1 and outcome.received == 1
    assert ["No broker of Kafka answered" in trouble for trouble in outcome.troubles] == [True]
    assert story.tally() == {"customers": 5, "refused": 2}

    # It is back. What was deleted meanwhile is told and costs its topic, as does one that is not there.
    broker.start()
    client.create("more")
    client.send("more", [(None, customer("C6", points=6).encode())])
    client.send("updates", [(None, customer(f"C{n}", points=n).encode()) for n in (7, 8, 9)])
    client.delete_before("updates", 5)
    outcome = story.run("10:03:10", topics=topics(broker, "updates", "none", "more"))
    assert outcome.exit_code == 1 and outcome.received == 1
    gone, missing = outcome.troubles
    assert "offset 3 to 4" in gone and "failOnDataLoss=false" in gone
    assert "no topic 'none'" in missing
    assert story.tally() == {"customers": 6, "refused": 2}

    # What is left is taken when that is said. A topic that was made anew under its name is another one,
    # and of a transaction that was given up nothing is received.
    client.delete("more")
    client.create("more")
    client.send_in_transaction("more", [(None, b"given up")], is_committed=False)
    client.send_in_transaction("more", [(None, customer("C10").encode())], is_committed=True)
    more = ("failOnDataLoss=false", "kafka.isolation.level=read_committed")
    outcome = story.run("10:03:20", topics=topics(broker, "updates", "more", more=more))
    assert outcome.received == 2 and ["What is left was taken" in t for t in outcome.troubles] == [True]
    outcome = story.run("10:03:30", topics=topics(broker, "updates", "more"), is_full_audit=True)
    assert (outcome.exit_code, outcome.received) == (0, 0), told(outcome)
    assert story.sql(f"select customer_id, _source_file, _position from {CUSTOMERS} order by all")[
        -2:
    ] == [
        ("C6", "kafka:more/0", 0),
        ("C9", "kafka:updates/0", 5),
    ]
    assert story.tally() == {"customers": 8, "refused": 2}
    client.close()
