"""A batch of which too much is refused: it waits outside Silver until somebody lets it in."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from conftest import Checkout, Lakehouse, Said, copy_checkout, leave_orders_alone, rows

from ingest.lake import Lake

HEADER = "order_id,customer_id,sku,qty,order_ts,channel,note\n"
# Of four two are refused, which is no more than half.
SOUND = HEADER + "".join(
    f"{key},C-1,SKU-1,{qty},2024-05-01 10:00:00,web,\n"
    for key, qty in (("kept", 1), ("other", 2), ("x", "two"), ("y", "two"))
)
BAD = HEADER + "".join(
    f"{key},C-1,SKU-1,{qty},2024-05-02 10:00:00,web,\n"
    for key, qty in (("kept", 9), ("added", 9), ("a", "two"), ("b", "two"), ("c", "two"))
)
LOOKS = {
    "orders": "select order_id, qty from silver.orders order by 1",
    "held": "select order_id, by_record_id from silver.orders_dispositions where disposition = 'held' "
    "order by 1",
    "refused": "select order_id from silver.orders_quarantine order by 1",
    "letters": "select business_key from marts.dead_letters order by 1",
    "counts": "select source_file[-7:], accepted, quarantined, current, superseded, held, balance "
    "from marts.reconciliation order by 1",
    "laws": "select law from marts.law_results where offenders > 0",
    "checked": "select count(distinct law) from marts.law_results",
}


@dataclass(frozen=True)
class Story:
    """What was said, and what the lake held while the batch was stopped and after it was released."""

    stopped: Said
    listed: Said
    alert: Said
    released: Said
    again: Said
    over: Said
    before: dict[str, list[tuple[object, ...]]]
    after: dict[str, list[tuple[object, ...]]]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    checkout: Checkout = copy_checkout(tmp_path_factory.mktemp("stopped"))
    leave_orders_alone(checkout)
    contract = checkout.root / "dbt_project" / "models" / "bronze" / "orders.yml"
    text = contract.read_text("utf-8")
    assert "stop_from: 1000\n" in text
    contract.write_text(text.replace("stop_from: 1000\n", "stop_from: 4\n"), "utf-8")
    (checkout.root / "orders_1.csv").write_text(SOUND)
    (checkout.root / "orders_2.csv").write_text(BAD)
    lake = Lake(checkout.root / "lake")

    with Lakehouse(checkout, tmp_path_factory.mktemp("said")) as lakehouse:
        # Both are judged in one build, as two batches.
        first = lakehouse("ingest", "--input", "orders_1.csv")
        assert first.exit_code == 0, first.told
        stopped = lakehouse("run", "--input", "orders_2.csv")
        assert lake.tables(), stopped.told
        before = {name: rows(lake, sql) for name, sql in LOOKS.items()}
        listed = lakehouse("release")
        alert = lakehouse("alert", "--format", "json")
        (batch,) = rows(lake, "select batch_id from marts.reconciliation where held > 0")[0]
        released = lakehouse("release", str(batch), "--dataset", "orders", "--because", "a test")
        again = lakehouse("run", "--input", "orders_2.csv")
        over = lakehouse("alert", "--format", "json")
        after = {name: rows(lake, sql) for name, sql in LOOKS.items()}
    return Story(stopped, listed, alert, released, again, over, before, after)


def test_silver_does_not_move_and_the_refused_are_kept(story: Story) -> None:
    assert story.before["orders"] == [("kept", 1), ("other", 2)]
    assert story.before["held"] == [("added", None), ("kept", None)]
    assert story.before["refused"] == [("a",), ("b",), ("c",), ("x",), ("y",)]
    assert story.before["letters"] == story.before["refused"]


def test_the_laws_are_checked_and_hold_while_it_waits(story: Story) -> None:
    for looks in (story.before, story.after):
        assert looks["laws"] == []
        assert looks["checked"] == [(10,)]
    assert story.before["counts"] == [("s_1.csv", 2, 2, 2, 0, 0, 0), ("s_2.csv", 2, 3, 0, 0, 2, 0)]


def test_it_is_said_by_the_run_by_the_command_and_as_an_alert(story: Story) -> None:
    assert story.stopped.exit_code == 1, story.stopped.told
    said = "is stopped: 3 records of orders are in quarantine, and 2 that were accepted are held back"
    for told in (story.stopped, story.listed):
        assert said in " ".join(told.told.split()), told.told
    assert "Every law holds" in story.stopped.told
    assert story.alert.exit_code == 1, story.alert.told
    (alert,) = json.loads(story.alert.out)["alerts"]
    assert (alert["kind"], alert["value"], alert["threshold"]) == ("stop_above", 0.6, 0.5)


def test_once_released_it_goes_to_silver_with_the_next_run(story: Story) -> None:
    assert "takes 2 records of orders to Silver" in story.released.told, story.released.told
    assert story.again.exit_code == 0, story.again.told
    assert story.after["orders"] == [("added", 9), ("kept", 9), ("other", 2)]
    assert story.after["held"] == []
    assert story.after["counts"] == [("s_1.csv", 2, 2, 1, 1, 0, 0), ("s_2.csv", 2, 3, 2, 0, 0, 0)]
    assert story.after["letters"] == story.before["letters"]
    assert story.over.exit_code == 0, story.over.told
    assert [alert["status"] for alert in json.loads(story.over.out)["alerts"]] == ["resolved"]
