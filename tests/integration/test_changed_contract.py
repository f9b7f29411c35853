"""Rules that drop and fail, a customer who is forgotten, a contract that changes: on a few orders."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Checkout, copy_checkout, leave_orders_alone, rows
from searching import found
from test_readme import DBT_BY_HAND

from ingest.lake import Lake
from ingest.session import small_lake

ORDERS = """\
order_id,customer_id,sku,qty,order_ts,channel,note,colour
sound,C-1,SKU-1,5,2024-05-01 10:00:00,web,,red
single,C-1,SKU-1,1,2024-05-01 10:00:00,web,,
timeless,C-1,SKU-1,3,,web,,
dropped,C-1,SKU-1,0,2024-05-01 10:00:00,web,,
failing,C-1,SKU-1,3,0001-01-01 00:00:00,web,,
both,C-1,SKU-1,0,0001-01-01 00:00:00,web,,
unread,C-1,SKU-1,two,2024-05-01 10:00:00,web,,
forgotten,C-4711,SKU-1,5,2024-05-01 10:00:00,web,,
faulty,C-4711,SKU-1,two,2024-05-01 10:00:00,web,,
"""
# Orders of a customer who asks to be forgotten before the contract changes.
GONE = ("forgotten", "faulty")


def change_rule(contract: Path, code: str, key: str, value: str) -> None:
    """Give a rule of a contract another value for a key that it has."""
    text, changes = re.subn(
        rf"(- code: {code}\n(?:(?! *- code:).*\n)*? +{key}: ).*",
        lambda found: found.group(1) + value,
        contract.read_text("utf-8"),
    )
    assert changes == 1, f"{code} has no {key} in {contract}"
    contract.write_text(text, "utf-8")


@dataclass(frozen=True)
class Runs:
    """What one lake held after the run with rules that drop and fail, and what it holds at the end."""

    checkout: Checkout
    before: dict[str, list[tuple[object, ...]]]
    lake: Lake
    first: subprocess.CompletedProcess[str]
    again: subprocess.CompletedProcess[str]
    forgotten: subprocess.CompletedProcess[str]
    changed: subprocess.CompletedProcess[str]


LOOKS = {
    "judged": "select order_id, failure_reasons, warnings from silver.orders_judged order by 1",
    "quarantine": "select order_id, is_dropped, reason from silver.orders_quarantine order by 1",
    "orders": "select order_id from silver.orders order by 1",
    "letters": (
        "select dead_letter_id, record_id, business_key, error_type, verdict_contract "
        "from marts.dead_letters where record_id is not null order by 1"
    ),
    "laws": "select law, offenders, examples from marts.law_results where offenders > 0",
    "bronze": "select _record_id from bronze.orders order by 1",
    "drift": "select path, records from marts.schema_drift",
    "rules": (
        "select rule_code, severity from marts.dim_rules where severity in ('drop', 'fail') order by 1"
    ),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    checkout: Checkout = copy_checkout(tmp_path_factory.mktemp("changed"))
    leave_orders_alone(checkout)
    contract = checkout.root / "dbt_project" / "models" / "bronze" / "orders.yml"
    change_rule(contract, "QTY_BELOW_ONE", "severity", "drop")
    change_rule(contract, "ORDER_TS_OUT_OF_RANGE", "severity", "fail")
    (checkout.root / "orders.csv").write_text(ORDERS)
    lake = Lake(checkout.root / "lake")
    run = ".venv/bin/lakehouse run --input orders.csv"

    first = checkout.shell(run)
    assert lake.tables(), first.stdout
    before = {name: rows(lake, sql) for name, sql in LOOKS.items()}
    again = checkout.shell(run)
    forgotten = checkout.shell(".venv/bin/lakehouse forget --value C-4711 --because 'request 118' --yes")

    text = contract.read_text("utf-8")
    contract.write_text(text.replace("version: 1.0.0\n", "version: 1.1.0\n", 1), "utf-8")
    change_rule(contract, "QTY_BELOW_ONE", "severity", "quarantine")
    change_rule(contract, "QTY_BELOW_ONE", "when", "qty < 2")
    change_rule(contract, "ORDER_TS_OUT_OF_RANGE", "severity", "quarantine")
    return Runs(checkout, before, lake, first, again, forgotten, checkout.shell(run))


def test_what_a_rule_drops_is_refused_and_kept_as_evidence(runs: Runs) -> None:
    assert runs.before["rules"] == [("ORDER_TS_OUT_OF_RANGE", "fail"), ("QTY_BELOW_ONE", "drop")]
    assert runs.before["quarantine"] == [
        ("both", True, "qty"),
        ("dropped", True, "qty"),
        ("failing", False, "parse"),
        ("faulty", False, "parse"),
        ("unread", False, "parse"),
    ]
    assert {row[2] for row in runs.before["letters"]} == {
        "both", "dropped", "failing", "faulty", "unread",
    }  # fmt: skip


def test_a_rule_that_fails_ends_the_run_with_1_after_everything_is_written(runs: Runs) -> None:
    assert runs.first.returncode == 1, runs.first.stdout
    assert "fail_rules (orders): 2" in runs.first.stdout
    [(law, offenders, examples)] = runs.before["laws"]
    assert (law, offenders) == ("fail_rules", 2)
    struck = rows(
        runs.lake,
        "select _record_id from bronze.orders where order_id in ('failing', 'both') order by 1",
    )
    assert sorted(examples) == [record for (record,) in struck]  # type: ignore[call-overload]
    assert runs.before["orders"] == [("forgotten",), ("single",), ("sound",), ("timeless",)]
    assert len(runs.before["letters"]) == 5


def test_a_second_run_does_not_forget_that_a_rule_failed(runs: Runs) -> None:
    assert runs.again.returncode == 1, runs.again.stdout
    assert "Nothing new" in runs.again.stdout


def test_under_a_changed_contract_every_record_is_judged_again(runs: Runs) -> None:
    assert runs.changed.returncode == 0, runs.changed.stdout
    assert rows(runs.lake, LOOKS["bronze"]) == runs.before["bronze"]
    passes = rows(
        runs.lake,
        "select _verdict_pass, split_part(_verdict_contract, '+', 1), count(*) "
        "from silver.orders_judged group by all order by 1",
    )
    assert passes == [(1, "1.0.0", 7), (2, "1.1.0", 7)]
    earlier = (
        "select order_id, failure_reasons, warnings from silver.orders_judged where _verdict_pass = 1"
    )
    kept = [row for row in runs.before["judged"] if row[0] not in GONE]
    assert rows(runs.lake, f"{earlier} order by 1") == kept


def test_what_derives_from_verdicts_follows_the_newest(runs: Runs) -> None:
    assert rows(runs.lake, LOOKS["orders"]) == [("sound",), ("timeless",)]
    assert rows(runs.lake, LOOKS["quarantine"]) == [
        ("both", False, "qty"),
        ("dropped", False, "qty"),
        ("failing", False, "parse"),
        ("single", False, "qty"),
        ("unread", False, "parse"),
    ]
    assert rows(runs.lake, LOOKS["rules"]) == []


def test_dead_letters_of_the_new_contract_stand_beside_the_earlier_ones(runs: Runs) -> None:
    # One that was forgotten keeps its letter, without a key.
    letters = [row for row in rows(runs.lake, LOOKS["letters"]) if row[2] is not None]
    assert {row for row in runs.before["letters"] if row[2] not in GONE} <= set(letters)
    new = [row for row in letters if row not in runs.before["letters"]]
    assert {row[2] for row in new} == {"both", "dropped", "failing", "single", "unread"}
    assert len(new) == 5
    assert all(str(row[4]).startswith("1.1.0+") for row in new)


def test_the_laws_hold_across_contracts(runs: Runs) -> None:
    assert rows(runs.lake, LOOKS["laws"]) == []
    assert rows(runs.lake, "select * from marts.reconciliation where balance <> 0") == []


def test_who_was_forgotten_is_in_no_file_and_judged_under_no_contract(runs: Runs) -> None:
    assert runs.forgotten.returncode == 0, runs.forgotten.stdout
    assert "2 records purged" in runs.forgotten.stdout
    assert found(runs.lake.path, "C-4711") == []
    bronze = "select count(*), count(payload), count(_payload_sha256) from bronze.orders"
    assert rows(runs.lake, bronze) == [(9, 7, 9)]
    assert rows(runs.lake, "select sum(purged)::int from marts.reconciliation") == [(2,)]
    story = (
        "select event_type from marts.record_history where record_id in ("
        "select record_id from marts.dead_letters where payload is null and record_id is not null) "
        "order by event_number"
    )
    assert [kind for (kind,) in rows(runs.lake, story)] == [
        "captured", "judged", "dead_letter", "purged",
    ]  # fmt: skip


def test_drift_counts_a_record_once_however_often_it_was_judged(runs: Runs) -> None:
    assert runs.before["drift"] == [("colour", 1)]
    assert rows(runs.lake, LOOKS["drift"]) == [("colour", 1)]


def test_dbt_by_hand_builds_and_fits_its_session_to_a_small_lake(runs: Runs) -> None:
    # As the README has it. Here, and not on the lake of all samples, because it takes half the time.
    letters = rows(runs.lake, LOOKS["letters"])
    built = runs.checkout.shell(DBT_BY_HAND)
    assert built.returncode == 0, built.stdout
    assert re.search(r"(?s)Completed successfully.*ERROR=0", built.stdout), built.stdout
    assert rows(runs.lake, LOOKS["letters"]) == letters, "built on what was there"
    logs = [runs.checkout.root / "dbt_project" / "logs", runs.lake.path / "_state" / "dbt"]
    by_hand, by_run = ((folder / "dbt.log").read_text("utf-8") for folder in logs)
    for name, value in small_lake().settings.items():
        assert f"    set {name}={value}\n" in by_hand
        assert f"set {name}=" not in by_run, "its session had it from the start"
