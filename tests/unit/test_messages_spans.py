from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from ingest.messages.job import spans_of

DAY = timedelta(days=1)
FIRST = datetime(2024, 1, 1, tzinfo=UTC)


@given(st.sets(st.integers(0, 400), max_size=120))
def test_few_spans_hold_every_day_that_is_asked_for(numbers: set[int]) -> None:
    days = [FIRST + number * DAY for number in numbers]
    spans = spans_of(days)
    assert len(spans) <= 50
    for day in days:
        for instant in (day, day + DAY - timedelta(microseconds=1)):
            assert any(span.first <= instant <= span.last for span in spans)


def test_days_that_follow_each_other_are_one_span_and_others_are_left_out() -> None:
    spans = spans_of([FIRST, FIRST + DAY, FIRST + 3 * DAY])
    assert [(span.first, span.last - span.first < DAY) for span in spans] == [
        (FIRST, False),
        (FIRST + 3 * DAY, True),
    ]
    assert spans_of([]) == []
