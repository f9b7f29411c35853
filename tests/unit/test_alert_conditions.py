"""Thresholds: which a lake is beyond, at the limit and one step further."""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from alert_lake import (
    add_batch,
    add_cause,
    add_file,
    add_path,
    make_alert_lake,
    start_batch,
    with_alerts,
)
from office_lake import NOON, record_ids

from ingest.alerting.conditions import Condition, Findings
from ingest.alerting.telling import find
from ingest.lake import Lake
from ingest.office.actions import Note, happen
from ingest.office.refused import Office

DAY = timedelta(days=1)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return make_alert_lake(tmp_path)


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake that no test writes to."""
    return make_alert_lake(tmp_path_factory.mktemp("still"))


def looked(lake: Lake, now: datetime = NOON + DAY, **said: Any) -> Findings:
    return find(lake, now, with_alerts(**said))


def found(lake: Lake, now: datetime = NOON + DAY, **said: Any) -> list[Condition]:
    return list(looked(lake, now, **said).conditions)


def test_without_thresholds_nothing_is_found(still: Lake) -> None:
    assert looked(still) == Findings(())


@pytest.mark.parametrize(
    ("said", "value"),
    [
        # Four orders wait, the oldest came three hours after noon.
        ({"open_above": 4}, None),
        ({"open_above": 3}, 4),
        ({"age_above": "21h"}, None),
        ({"age_above": "20h"}, 21 * 3600),
        ({"share_above": "80%"}, None),
        ({"share_above": "79.9%"}, 0.8),
        ({"share_above": "10%", "share_from": 6}, None),
        ({"share_above": "10%", "share_from": 5}, 0.8),
        ({"silent_for": "24h"}, None),
        ({"silent_for": "23h"}, 24 * 3600),
    ],
)
def test_a_threshold_is_passed_above_it(still: Lake, said: dict[str, Any], value: float | None) -> None:
    conditions = found(still, **said)

    assert [(item.kind, item.value) for item in conditions] == (
        [] if value is None else [(next(iter(said)), pytest.approx(value))]
    )


def test_what_is_found_says_what_why_and_how_to_go_on(still: Lake) -> None:
    (condition,) = found(still, open_above=3)

    assert condition == Condition(
        kind="open_above",
        record_type="orders",
        dataset="orders",
        subject="",
        owner="order-desk",
        value=4,
        threshold=3,
        unit="records",
        message="orders: 4 refused records wait for somebody, more than 3: QTY_NOT_INTEGER 2, "
        "CORRUPT_RECORD 1, ORDER_ID_MISSING 1. Work them off: lakehouse quarantine list --dataset "
        "orders",
    )


def test_what_was_worked_off_since_the_last_run_waits_no_more(lake: Lake) -> None:
    with Office(lake) as office:
        records = office.find([record_ids(lake)[3]])
        happen(office, records, "discarded", Note("ana", "a test order"))

    assert not found(lake, open_above=3)
    (age,) = found(lake, age_above="1h")
    assert age.value == 20 * 3600, "the oldest that still waits came at four"


def test_the_share_is_that_of_the_newest_batch_of_the_feed(lake: Lake) -> None:
    start_batch(lake, "b2", NOON + DAY)
    add_batch(lake, "b2", records=100, refused=["QTY_MISSING"])
    # What was sent again came from no feed.
    start_batch(lake, "b3", NOON + DAY, command="replay")
    add_batch(lake, "b3", records=1, refused=["QTY_MISSING"])

    assert not found(lake, share_above="1%")
    (condition,) = found(lake, share_above="0.5%")
    assert "of the 100 records of batch b2 1.0% were refused, more than 0.5%: QTY_MISSING 1." in (
        condition.message
    )


def test_what_was_sent_again_or_cannot_be_read_does_not_break_the_silence(lake: Lake) -> None:
    start_batch(lake, "b2", NOON + DAY, command="replay")
    add_file(lake, "b2", NOON + DAY)
    start_batch(lake, "b3", NOON + DAY)
    add_file(lake, "b3", NOON + DAY, status="failed")
    assert found(lake, silent_for="23h")

    add_file(lake, "b3", NOON + DAY)
    assert not found(lake, silent_for="23h")


def test_a_feed_of_which_nothing_ever_came_is_not_silent(still: Lake) -> None:
    contracts = with_alerts()
    contracts["placsp_entries"].terms["alerts"] = {"silent_for": "1h"}  # type: ignore[index]

    assert find(still, NOON + DAY, contracts) == Findings(())


def test_a_reason_is_new_that_the_first_batch_did_not_have(lake: Lake) -> None:
    start_batch(lake, "b2", NOON + DAY)
    add_cause(lake, "QTY_MISSING", NOON + DAY)
    # Of a file that cannot be read nobody knows the dataset.
    add_cause(lake, "EMPTY_FILE", NOON + DAY, dataset="unknown")
    add_cause(lake, "EMPTY_FILE", NOON + DAY, dataset="unknown", record_type="placsp_entries")

    conditions = found(lake, NOON + 2 * DAY, new_reason="2d")

    assert [(item.dataset, item.subject, item.value) for item in conditions] == [
        ("orders", "orders QTY_MISSING", 3),
        ("unknown", "orders EMPTY_FILE", 3),
    ]
    assert "--reason QTY_MISSING" in conditions[0].message
    assert "marts.dead_letters, record_type orders" in conditions[1].message
    assert not found(lake, NOON + 2 * DAY, new_reason="1d"), "it is a day old"


def test_a_reason_of_what_a_record_holds_is_of_its_contract(lake: Lake) -> None:
    add_file(lake, "b1", NOON, record_type="placsp_entries", dataset="menores")
    add_cause(lake, "LOT_ID_REPEATED", NOON + DAY, record_type="placsp_lots", dataset="menores")
    contracts = with_alerts()
    contracts["placsp_entries"].terms["alerts"] = {"new_reason": "2d"}  # type: ignore[index]

    (condition,) = find(lake, NOON + DAY, contracts).conditions

    assert (condition.record_type, condition.subject) == (
        "placsp_entries",
        "placsp_lots LOT_ID_REPEATED",
    )


def test_drift_is_what_came_after_the_first_batch(lake: Lake) -> None:
    add_path(lake, "old", NOON)
    assert not found(lake, schema_drift="7d")
    add_path(lake, "discount", NOON + DAY)
    add_path(lake, "colour", NOON + DAY)

    (condition,) = found(lake, schema_drift="7d")

    assert (condition.value, condition.details) == (2, ("colour", "discount"))
    assert "did not have: colour, discount." in condition.message
    assert not found(lake, NOON + 9 * DAY, schema_drift="7d")


def test_what_cannot_be_asked_is_unknown_and_not_well(lake: Lake) -> None:
    for table in ("marts/reconciliation", "silver/orders_quarantine"):
        shutil.rmtree(lake.path / table)
    for table in ("placsp_entries_quarantine", "placsp_deleted_entries_quarantine"):
        shutil.rmtree(lake.path / "silver" / table)
    shutil.rmtree(lake.path / "silver" / "placsp_children_quarantine")

    findings = looked(lake, share_above="1%", open_above=0, silent_for="1h")

    assert [item.kind for item in findings.conditions] == ["silent_for"]
    assert findings.unknown == {"share_above", "open_above"}
