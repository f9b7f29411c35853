from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from ingest.cli import cli
from ingest.errors import InputError, KafkaError
from ingest.messages.envelope import MAX_BYTES
from ingest.messages.kafka import Stretch, Topics, _since, topics_of
from ingest.messages.receiving import Again, Line, received, record_receiver

TARGETS = ("customer_updates", "order_events")
AT = '"event_ts": "2024-05-01T10:00:00Z"'
KEYLESS = f'{{"target": "order_events", "data": {{}}, {AT}}}'.encode()
KEYED = KEYLESS.replace(b'"data"', b'"key": "K", "data"')


def test_what_a_user_says_of_kafka_is_read_and_told_where_it_does_not_go_together(
    tmp_path: Path,
) -> None:
    (tmp_path / "secret").write_text("of two = words\n")
    options = ["kafka.sasl.jaas.config=@" + str(tmp_path / "secret"), "failOnDataLoss=FALSE"]
    found = topics_of("a:1,b:2", ["t", "u", "t"], options)
    assert found is not None and (found.names, found.is_loss_taken) == (("t", "u"), True)
    client = found.client
    assert (client["bootstrap.servers"], client["sasl.jaas.config"]) == ("a:1,b:2", "of two = words")
    assert client["request.timeout.ms"] == "15000" and "failOnDataLoss" not in client
    patient = topics_of("a:1", ["t"], ["kafka.request.timeout.ms=7"])
    assert patient is not None and patient.client["request.timeout.ms"] == "7"
    assert not patient.is_loss_taken
    assert topics_of(None, [], []) is None


@pytest.mark.parametrize(
    ("servers", "names", "option", "said"),
    [
        (None, ["t"], None, "--kafka-servers"),
        (None, [], "a=b", "--kafka-servers"),
        ("a:1", [], None, "--topic"),
        ("a:1", ["t"], "failOnDataLoss", "is not name=value"),
        ("a:1", ["t"], "failOnDataLoss=no", "true or false"),
        ("a:1", ["t"], "startingOffsets=latest", "cannot be set"),
        ("a:1", ["t"], "kafka.bootstrap.servers=b:1", "cannot be set"),
        ("a:1", ["t"], "kafka.ssl.key.password=@/no/file", "cannot be read"),
    ],
)
def test_what_cannot_be_is_told(
    servers: str | None, names: list[str], option: str | None, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        topics_of(servers, names, [option] if option else [])


def test_the_command_tells_it_too(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["messages", "--topic", "t", "--lake", str(tmp_path)])
    assert isinstance(done.exception, InputError) and "--kafka-servers" in str(done.exception)


# -- how far a partition was received


def since(known: int | None, options: Mapping[str, str] | None = None) -> tuple[int, str | None]:
    topics = Topics("a:1", ("t",), options or {})
    stretch, told = _since(Stretch("t", 0, "id", 10, 20), known, topics)
    assert (stretch.identity, stretch.end) == ("id", 20)
    return stretch.first, told


def test_a_partition_is_read_from_where_the_lake_left_off() -> None:
    assert since(None) == (10, None)
    assert since(10) == (10, None)
    assert since(20) == (20, None)


def test_records_that_are_gone_stop_their_topic_until_somebody_takes_the_loss() -> None:
    with pytest.raises(KafkaError, match="offset 7 to 9 before they were received, 3 at most"):
        since(7)
    first, told = since(7, {"failOnDataLoss": "false"})
    assert first == 10 and told is not None and "7 to 9" in told
    # What has the numbers of records that are there already cannot be told from them.
    with pytest.raises(KafkaError, match="ends at offset 20"):
        since(21, {"failOnDataLoss": "false"})


# -- a record as a message


def row(value: bytes | None, key: bytes | None, offset: int = 7) -> dict[str, object]:
    record = {"topic": "t", "partition": 2, "offset": offset, "key": key, "value": value}
    schema = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
    for name in ("key", "value"):
        schema = schema.append(pa.field(name, pa.binary()))
    batch = pa.RecordBatch.from_pylist([record], schema)
    [[found]] = [b.to_pylist() for b in record_receiver(TARGETS, {("t", 2): "id"})(iter([batch]))]
    return found


def test_a_record_is_known_by_its_partition_and_offset() -> None:
    found = row(KEYED, b"K")
    place = ("kafka:t/2", "id", 7, None)
    assert (
        tuple(found[n] for n in ("_source_file", "_file_sha256", "_position", "_byte_offset")) == place
    )
    assert (found["stage"], found["key"], found["_byte_length"]) == (None, "K", len(KEYED))
    assert row(KEYED, b"K", 8)["_record_id"] != found["_record_id"]
    assert row(KEYED, b"K", 8)["_message_id"] == found["_message_id"]


def test_the_key_of_a_record_counts_where_its_message_names_none() -> None:
    said, unsaid = row(KEYED, b"other"), row(KEYLESS, b"K")
    assert (said["key"], said["_unparsed"]) == ("K", ["(key of the record)"])
    assert (unsaid["key"], unsaid["_unparsed"]) == ("K", [])
    assert row(KEYLESS, b"\xff")["_unparsed"] == ["(key of the record)"]
    # The same words about two things are two messages; beside a key of their own no other counts.
    ids = [row(KEYLESS, key)["_message_id"] for key in (b"K", b"L", None)]
    assert len(set(ids)) == 3
    assert row(KEYED, b"K")["_message_id"] == row(KEYED, None)["_message_id"]


def test_what_is_no_message_is_refused_with_its_key() -> None:
    found = {
        name: row(value, b"K")
        for name, value in {
            "NO_VALUE": None,
            "NOT_JSON": b"",
            "NOT_UTF8": b'"\xff"',
            "MESSAGE_TOO_LARGE": b" " * (MAX_BYTES + 1),
        }.items()
    }
    assert {name: item["error_type"] for name, item in found.items()} == {n: n for n in found}
    assert {item["key"] for item in found.values()} == {"K"}
    assert {item["stage"] for item in found.values()} == {"json_parsing"}
    large = found["MESSAGE_TOO_LARGE"]
    assert "20,000,001 bytes" in str(large["error"]) and large["payload"] is None


def test_a_message_that_is_sent_again_keeps_the_key_that_stood_beside_it() -> None:
    again = Again("r1", 2, is_corrected=True, key="K")
    sent = received(Line(2, 0, len(KEYLESS), KEYLESS), "a.jsonl", "f" * 64, TARGETS, again)
    assert (sent["key"], sent["_message_id"]) == ("K", row(KEYLESS, b"K")["_message_id"])
    own = received(Line(2, 0, len(KEYED), KEYED), "a.jsonl", "f" * 64, TARGETS, again)
    assert own["_message_id"] == row(KEYED, None)["_message_id"]
