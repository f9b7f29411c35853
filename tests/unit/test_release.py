"""Stopped batches: listed, told, and let in by somebody who says why."""

from __future__ import annotations

from pathlib import Path

import pytest
from alert_lake import fill, make_alert_lake, with_alerts
from click.testing import CliRunner, Result
from office_lake import NOON

from ingest.alerting.telling import find
from ingest.cli import cli
from ingest.errors import InputError
from ingest.lake import BATCH_RELEASES, Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with a stopped batch: of ten orders six were refused."""
    lake = make_alert_lake(tmp_path)
    row = {"record_type": "orders", "dataset": "orders", "batch_id": "b2", "status": "ingested"}
    fill(lake, "reconciliation", [{**row, "bronze": 10, "quarantined": 6, "accepted": 4, "held": 4}])
    return lake


def run(lake: Lake, *words: str) -> Result:
    return CliRunner().invoke(cli, ["release", "--lake", str(lake.path), *words])


def test_what_is_stopped_is_told_as_an_alert(lake: Lake) -> None:
    contracts = with_alerts()
    contracts["orders"].terms["stop_above"] = "50%"  # type: ignore[index]

    (condition,) = find(lake, NOON, contracts).conditions

    assert (condition.kind, condition.subject, condition.unit) == ("stop_above", "b2", "share")
    assert (condition.value, condition.threshold) == (0.6, 0.5)
    assert "4 records that were accepted are held back from Silver" in condition.message


def test_a_batch_is_listed_until_it_is_released(lake: Lake) -> None:
    assert "orders: batch b2 is stopped: 6 records" in run(lake).stdout

    done = run(lake, "b2", "--dataset", "orders", "--because", "returns", "--actor", "ana")

    assert done.stdout == "The next run takes 4 records of orders to Silver.\n"
    (row,) = lake.read("bronze", "batch_releases", BATCH_RELEASES.names).to_pylist()
    assert (row["batch_id"], row["dataset"], row["record_type"]) == ("b2", "orders", "orders")
    assert (row["actor"], row["reason"]) == ("ana", "returns")
    assert run(lake).stdout == "No batch is stopped.\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("b2", "--because", "x"), "Name one with --dataset"),
        (("b2", "--dataset", "orders"), "names an actor and a reason"),
        (
            ("b1", "--dataset", "orders", "--because", "x"),
            "No batch b1 of orders is stopped. Stopped: b2",
        ),
    ],
)
def test_what_cannot_be_released_is_said(lake: Lake, words: tuple[str, ...], said: str) -> None:
    result = run(lake, *words)
    assert isinstance(result.exception, InputError) and said in str(result.exception)
