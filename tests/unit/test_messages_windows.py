from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.messages.windows import is_past_retry, last_ended, retry_number, window_of

INSTANTS = st.datetimes(
    min_value=datetime(1960, 1, 1), max_value=datetime(2100, 1, 1), timezones=st.just(UTC)
)
MINUTES = st.integers(min_value=1, max_value=1440)


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2024-05-01T{clock}+00:00")


@given(INSTANTS, MINUTES)
def test_every_instant_is_in_one_window_of_the_width(instant: datetime, minutes: int) -> None:
    window = window_of(instant, minutes)

    assert window.start <= instant < window.end
    assert window.end - window.start == timedelta(minutes=minutes)
    assert window_of(window.start, minutes) == window
    assert window_of(window.end, minutes).start == window.end


@given(INSTANTS, MINUTES)
def test_what_has_ended_ends_now_or_before_and_the_next_one_has_not(now: datetime, minutes: int) -> None:
    ended = last_ended(now, minutes)

    assert ended.end <= now < ended.end + timedelta(minutes=minutes)
    assert window_of(ended.start, minutes) == ended


@pytest.mark.parametrize(
    ("now", "number"),
    [("10:00:00", 0), ("10:02:59", 0), ("10:03:00", 1), ("10:08:59.999999", 2), ("11:00:00", 20)],
)
def test_the_retry_number_counts_whole_windows_since_the_message_came(now: str, number: int) -> None:
    assert retry_number(at("10:00:00"), at(now), 3) == number


def test_a_clock_that_goes_back_gives_no_negative_number() -> None:
    assert retry_number(at("10:00:00"), at("09:00:00"), 3) == 0


def test_a_message_may_be_retried_up_to_the_last_instant_and_not_past_it() -> None:
    assert not is_past_retry(at("10:00:00"), at("10:15:00"), 15)
    assert is_past_retry(at("10:00:00"), at("10:15:00.000001"), 15)
