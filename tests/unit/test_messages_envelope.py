from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.messages.envelope import (
    MAX_BYTES,
    MOST_NESTED,
    Envelope,
    Refusal,
    message_id,
    read_envelope,
)

TARGETS = ("customer_updates", "order_events")


def read(text: str | bytes) -> Envelope | Refusal:
    return read_envelope(text if isinstance(text, bytes) else text.encode(), TARGETS)


def refused(text: str | bytes) -> tuple[str, str]:
    found = read(text)
    assert isinstance(found, Refusal), found
    assert found.error
    return found.stage, found.error_type


def test_an_envelope_with_everything() -> None:
    found = read(
        '{"target": "order_events", "key": "K1", "event_ts": "2024-05-01T12:00:00+02:00", '
        '"trace": 1, "data": {"amount": 1.50, "n": 2}}'
    )
    assert found == Envelope(
        "order_events",
        {"amount": Decimal("1.50"), "n": 2},
        "K1",
        datetime(2024, 5, 1, 10, tzinfo=UTC),
        ("trace",),
    )


def test_key_and_event_ts_may_be_left_out_and_a_whole_number_is_a_key() -> None:
    found = read('{"target": "order_events", "data": {}}')
    assert isinstance(found, Envelope) and (found.key, found.event_ts) == (None, None)
    found = read('{"target": "order_events", "data": {}, "key": 17}')
    assert isinstance(found, Envelope) and found.key == "17"


@pytest.mark.parametrize(
    ("text", "error_type"),
    [
        ("{", "NOT_JSON"), ("", "NOT_JSON"), ("{'a': 1}", "NOT_JSON"), ('{"a": 1} x', "NOT_JSON"),
        ('{"data": {"x": NaN}}', "NOT_JSON"), ('{"data": {"x": -Infinity}}', "NOT_JSON"),
        ('{"x": 1e99999999999999999999}', "NOT_JSON"), ('{"x": ' + "1" * 401 + "}", "NOT_JSON"),
        ('{"x": 0.' + "1" * 400 + "}", "NOT_JSON"),
        ('{"data": {"x": 1, "x": 1}}', "DUPLICATE_KEY"), (b'{"target": "\xff"}', "NOT_UTF8"),
        ('{"a":' * 100_000, "NESTED_TOO_DEEP"), ("[" * 100_000 + "]" * 100_000, "NESTED_TOO_DEEP"),
        ('{"target": "order_events", "data": {"x": "\\ud800"}}', "LONE_SURROGATE"),
        ('{"target": "\\ud800", "data": {}}', "LONE_SURROGATE"),
    ],
)  # fmt: skip
def test_what_is_no_json_is_refused_at_once(text: str | bytes, error_type: str) -> None:
    assert refused(text) == ("json_parsing", error_type)


@pytest.mark.parametrize(
    ("text", "error_type"),
    [
        ("[]", "NO_OBJECT"), ("null", "NO_OBJECT"), ("{}", "MISSING_TARGET"),
        ('{"target": " "}', "MISSING_TARGET"), ('{"target": 1}', "MISSING_TARGET"),
        ('{"target": "orders", "data": {}}', "UNKNOWN_TARGET"),
        ('{"target": "Order_Events", "data": {}}', "UNKNOWN_TARGET"),
        ('{"target": "order_events"}', "MISSING_DATA"),
        ('{"target": "order_events", "data": []}', "MISSING_DATA"),
        ('{"target": "order_events", "data": {}, "key": true}', "INVALID_KEY"),
        ('{"target": "order_events", "data": {}, "key": 1.5}', "INVALID_KEY"),
        ('{"target": "order_events", "data": {}, "event_ts": "2024-05-01T10:00:00"}',
         "INVALID_ENVELOPE_EVENT_TS"),
        ('{"target": "order_events", "data": {}, "event_ts": 1714557600}', "INVALID_ENVELOPE_EVENT_TS"),
    ],
)  # fmt: skip
def test_an_envelope_that_leads_nowhere_is_refused_at_once(text: str, error_type: str) -> None:
    assert refused(text) == ("schema_validation", error_type)


def test_an_unknown_target_is_named_and_the_known_ones_too() -> None:
    found = read('{"target": "orders", "data": {}}')
    assert isinstance(found, Refusal)
    assert found.target == "orders"
    assert "'orders'" in found.error and "customer_updates, order_events" in found.error


def test_a_text_of_the_largest_size_is_read_and_one_byte_more_is_refused() -> None:
    head, tail = b'{"target": "order_events", "data": {"x": "', b'"}}'
    whole = head + b"a" * (MAX_BYTES - len(head) - len(tail)) + tail
    assert isinstance(read(whole), Envelope)
    assert refused(whole + b" ") == ("json_parsing", "MESSAGE_TOO_LARGE")


def test_what_is_told_of_a_name_can_be_stored() -> None:
    found = read('{"\\ud800": 1, "\\ud800": 2}')
    assert isinstance(found, Refusal) and found.error_type == "DUPLICATE_KEY"
    assert found.error.encode("utf-8")


def test_a_pair_of_surrogates_is_one_character() -> None:
    found = read('{"target": "order_events", "data": {"x": "\\ud83d\\ude00"}}')
    assert isinstance(found, Envelope) and found.data == {"x": "😀"}


@given(st.binary(max_size=60))
def test_no_bytes_are_left_without_a_result(raw: bytes) -> None:
    assert isinstance(read(raw), Refusal)


INSTANT = datetime(2024, 5, 1, tzinfo=UTC)


def test_with_event_ts_the_text_is_the_message_wherever_it_stands() -> None:
    assert message_id(b"x", INSTANT, "file|1") == message_id(b"x", INSTANT, "file|2")
    assert message_id(b"x", INSTANT, "file|1") != message_id(b"y", INSTANT, "file|1")


def test_without_it_equal_texts_in_two_places_are_two_messages() -> None:
    assert message_id(b"x", None, "file|1") != message_id(b"x", None, "file|2")
    assert message_id(b"x", None, "file|1") == message_id(b"x", None, "file|1")
    assert message_id(b"x", None, "file|1") != message_id(b"x", INSTANT, "file|1")


def nested(depth: int, beside: str) -> bytes:
    return f'{{"target": "a", "data": {{"x": {"[" + beside}{"[" * depth}{"]" * depth}]}}}}'.encode()


@pytest.mark.parametrize("beside", ["", '"\\u00e9",'])
def test_what_is_nested_too_deep_is_refused_long_before_a_later_step_would_fail(beside: str) -> None:
    # Three levels are those of the message, of data and of the list around.
    assert isinstance(read_envelope(nested(MOST_NESTED - 3, beside), ["a"]), Envelope)
    for depth in (MOST_NESTED - 2, *range(980, 1000), 100_000):
        found = read_envelope(nested(depth, beside), ["a"])
        assert isinstance(found, Refusal) and found.error_type == "NESTED_TOO_DEEP"
