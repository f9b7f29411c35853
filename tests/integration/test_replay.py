"""Refused orders sent through the gate again: killed twice, accepted, outdated, refused, worn out."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from conftest import SampleLake, commits, rows

from ingest.environment import PROJECT_ROOT
from ingest.lake import Lake
from ingest.messages.job import run_messages
from ingest.messages.targets import load_targets
from ingest.office.actions import Note, happen
from ingest.office.refused import Filter, Office, Refused
from ingest.office.states import OPEN_STATES
from ingest.replay import ReplayOptions, run_replay
from ingest.transform import models_dir

NOTE = Note("maria", "the partner said so")
OPTIONS = ReplayOptions(note=NOTE)


def scheduled() -> ReplayOptions:
    return ReplayOptions(note=NOTE, scheduled_at=datetime.now(UTC))


def correct(lake: Lake, texts: dict[str, str]) -> None:
    with Office(lake, bronze=True) as office:
        happen(office, office.find(list(texts)), "corrected", NOTE, texts)


def refused(lake: Lake, states: tuple[str, ...], record_type: str = "orders") -> dict[str, Refused]:
    with Office(lake) as office:
        found, _ = office.select(Filter(record_types=(record_type,), states=states))
    return {record.record_id: record for record in found}


def replay_killed_at(lake: Lake, table: str) -> None:
    """Start a replay, and kill it as soon as rows are committed to a table."""
    before = commits(lake.path / table)
    code = "import sys; from ingest.cli import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "replay", "--lake", str(lake.path), "--actor", "maria"],
        cwd=PROJECT_ROOT,
    )
    while commits(lake.path / table) == before:
        assert process.poll() is None, f"it ended before {table} was written"
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_records_go_through_the_gate_again_once_each_until_they_pass_or_are_worn_out(
    sample_lake: SampleLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Lake(tmp_path / "lake")
    shutil.copytree(sample_lake.lake.path, lake.path)
    wrong = [r for r in refused(lake, ("pending",)).values() if r.reasons == ("QTY_NOT_INTEGER",)]
    passing, outdated, failing = (record.record_id for record in wrong[:3])
    [(order,)] = rows(lake, "select order_id from silver.orders order by 1 limit 1")
    correct(
        lake,
        {
            passing: "O-passing,C-1,SKU-1,7,2024-05-01 10:00:00,web,mended",
            # Of an order that is there, and older than it.
            outdated: f"{order},C-1,SKU-1,7,1999-01-01 10:00:00,web,mended",
            failing: "O-failing,C-1,SKU-1,three,2024-05-01 10:00:00,web,mended",
        },
    )
    evidence = "select * from bronze.orders where _supersedes is null order by _record_id"
    before = rows(lake, evidence)

    replay_killed_at(lake, "bronze/orders")
    assert lake.finished_batches() == sample_lake.lake.finished_batches(), "killed before its marker"
    assert set(refused(lake, ("corrected",))) == {passing, outdated, failing}
    replay_killed_at(lake, "bronze/batches")
    assert len(lake.finished_batches() - sample_lake.lake.finished_batches()) == 1
    # Nothing is due, and what was cut short is judged all the same.
    assert run_replay(lake, scheduled()) == 0

    told = capsys.readouterr().out
    assert "none is due" in told
    assert "3 records of a replay that was cut short got their event" in told
    assert "Every law holds" in told
    assert rows(lake, evidence) == before, "the evidence is as it was"
    again = {
        supersedes: (record, attempt)
        for supersedes, record, attempt in rows(
            lake,
            "select _supersedes, _record_id, _attempt from silver.orders_judged "
            "where _supersedes is not null",
        )
    }
    assert again.keys() == {passing, outdated, failing}
    assert {attempt for _, attempt in again.values()} == {2}
    assert len(rows(lake, "select 1 from silver.orders_judged where _supersedes is not null")) == 3
    became = dict(rows(lake, "select _record_id, disposition from silver.orders_dispositions"))
    assert became[again[passing][0]] == "current"
    assert became[again[outdated][0]] == "superseded"
    assert (
        rows(lake, f"select 1 from silver.orders where order_id = '{order}' and note = 'mended'") == []
    )
    assert set(refused(lake, ("reentered",))) == {passing, outdated, failing}

    # What failed again is a refused record of its own, and has its own dead letter.
    worn = str(again[failing][0])
    assert refused(lake, ("pending",))[worn].attempt == 2
    letter = f"select attempt, error_type from marts.dead_letters where record_id = '{worn}'"
    assert rows(lake, letter) == [(2, "QTY_NOT_INTEGER")]
    events = "select record_id from bronze.quarantine_events where event_type = 'reentered' order by 1"
    assert [record for (record,) in rows(lake, events)] == sorted(again), "one event each"

    # Nothing waits: the second adds nothing.
    versions = lake.versions()
    assert run_replay(lake, OPTIONS) == 0
    assert "none waits for it" in capsys.readouterr().out
    assert run_replay(lake, scheduled()) == 0
    assert capsys.readouterr().out == "No record was sent: none is due.\n"
    assert lake.versions() == versions

    # With the text that it has, for a third time and the last that its contract lets it.
    assert run_replay(lake, ReplayOptions(ids=(worn,), note=NOTE)) == 0
    assert "Sent again, orders: 1 refused: QTY_NOT_INTEGER" in capsys.readouterr().out
    [(last, attempt)] = rows(
        lake,
        f"select _record_id, _attempt from silver.orders_quarantine where _supersedes = '{worn}'",
    )
    assert attempt == 3
    assert set(refused(lake, ("exhausted",))) == {last}
    assert rows(lake, "select law from marts.law_results where offenders > 0") == []

    # The mart and the office say the same.
    debt = (
        "select rule_code, sum(open_records)::int, sum(reentered)::int, sum(exhausted)::int, "
        "sum(corrected)::int "
        "from marts.quarantine_debt where record_type = 'orders' group by 1"
    )
    by_rule: dict[str, list[int]] = {}
    for states, place in ((OPEN_STATES, 0), (("reentered",), 1), (("exhausted",), 2)):
        for record in refused(lake, states).values():
            by_rule.setdefault(record.reasons[0], [0, 0, 0])[place] += 1
    told_by_rule = {code: list(numbers) for code, *numbers in rows(lake, debt)}
    assert {code: numbers[:3] for code, numbers in told_by_rule.items()} == by_rule
    assert told_by_rule["QTY_NOT_INTEGER"][1:] == [4, 1, 3]

    check_together(lake, tmp_path)
    check_histories(lake)
    check_causes(lake)
    assert story(lake, failing) == [
        ("captured", None, None, None),
        ("judged", "refused", None, None),
        ("quarantined", "parse", None, None),
        ("dead_letter", "QTY_NOT_INTEGER", None, None),
        ("corrected", NOTE.because, "maria", None),
        ("reentered", NOTE.because, "maria", worn),
    ]
    kinds = [kind for kind, *_ in story(lake, worn)]
    assert kinds == ["captured", "judged", "quarantined", "dead_letter", "reentered"]
    assert story(lake, worn)[0] == ("captured", None, None, failing)
    assert story(lake, str(again[passing][0])) == [
        ("captured", None, None, passing),
        ("judged", "accepted", None, None),
        ("became", "current", None, None),
    ]
    [*_, (kind, became, _, newer)] = story(lake, str(again[outdated][0]))
    assert (kind, became) == ("became", "superseded")
    assert rows(lake, f"select record_id from silver.orders where order_id = '{order}'") == [(newer,)]


def check_together(lake: Lake, folder: Path) -> None:
    """A lake has messages too: one replay sends both, each through its own gate."""
    lines = (
        order_message(None, 5),
        order_message("O-1", "many"),
        order_message("O-2", -1),
    )
    (folder / "messages.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    targets = load_targets(models_dir())
    for minutes in (30, 0):
        at = datetime.now(UTC) - timedelta(minutes=minutes)
        outcome = run_messages(lake, [str(folder / "messages.jsonl")], targets, lambda at=at: at)
    assert (outcome.exit_code, outcome.counts.bad_data) == (0, 1)
    found = {record.position: record for record in refused(lake, ("pending",), "messages").values()}
    correct(lake, {found[number].record_id: order_message("O-9", number) for number in (1, 2)})
    waiting = min(refused(lake, ("pending",)))
    correct(lake, {waiting: "O-together,C-1,SKU-1,3,2024-05-01 10:00:00,web,mended"})
    assert run_replay(lake, OPTIONS) == 0
    assert rows(lake, "select amount::int, _attempt from silver.order_events order by 1") == [
        (1, 2),
        (2, 2),
    ]
    assert len(rows(lake, "select 1 from silver.orders where order_id = 'O-together'")) == 1
    assert set(refused(lake, ("pending",), "messages")) == {found[3].record_id}
    assert rows(
        lake,
        "select dataset, rule_code, reason, owner, open_records::int, reentered::int "
        "from marts.quarantine_debt where record_type = 'messages' order by 2",
    ) == [
        ("order_events", "MISSING_ORDER_ID", "key", "order-desk", 0, 1),
        ("order_events", "NEGATIVE_AMOUNT", "amount", "order-desk", 1, 0),
        ("order_events", "TYPE_CONFLICT", None, "order-desk", 0, 1),
    ]


def order_message(order: str | None, amount: object) -> str:
    data = {"order_id": order, "amount": amount, "event_ts": "2024-05-01T10:00:00Z"}
    return json.dumps({"target": "order_events", "data": data})


def story(lake: Lake, record_id: str) -> list[tuple[object, ...]]:
    """The events of a record in order. Where it was captured is told by its file."""
    return rows(
        lake,
        "select event_type, if(event_type = 'captured', null, reason), actor, other_record_id "
        f"from marts.record_history where record_id = '{record_id}' order by event_number",
    )


RECORD_TYPES = ("orders", "placsp_entries", "placsp_deleted_entries")


def check_histories(lake: Lake) -> None:
    """Count the events of all records again, each kind where it comes from."""
    told = dict(rows(lake, "select event_type, count(*) from marts.record_history group by all"))
    verdicts = " union all ".join(
        f"select _record_id, failure_reasons, _supersedes from silver.{name}_judged"
        for name in RECORD_TYPES
    )
    ever = (
        f"select _record_id from ({verdicts}) where len(failure_reasons) > 0 or _supersedes is not null"
    )
    quarantined = " union all ".join(f"select 1 from silver.{t}_quarantine" for t in RECORD_TYPES)
    became = " union all ".join(f"select _record_id from silver.{t}_dispositions" for t in RECORD_TYPES)
    captured = " union all ".join(f"select _record_id from bronze.{t}" for t in RECORD_TYPES)
    expected: dict[object, object] = dict(
        rows(lake, "select event_type, count(*) from bronze.quarantine_events group by all")
    )
    for kind, sql in (
        ("captured", f"select count(*) from ({captured}) where _record_id in ({ever})"),
        ("judged", f"select count(*) from ({verdicts}) where _record_id in ({ever})"),
        ("quarantined", f"select count(*) from ({quarantined})"),
        (
            "dead_letter",
            "select count(*) from marts.dead_letters where record_id is not null and record_type in "
            f"{RECORD_TYPES}",
        ),
        ("became", f"select count(*) from ({became}) where _record_id in ({ever})"),
    ):
        [(expected[kind],)] = rows(lake, sql)
    assert told == expected
    # Of messages it knows letters and events alone.
    wrong = f"""
      select record_id from marts.record_history
      where record_id in ({captured})
      group by record_id
      having
        min(event_number) <> 1 or max(event_number) <> count(*)
        or count(distinct event_number) <> count(*)
        or min_by(event_type, event_number) <> 'captured' or count(happened_at) <> count(*)
        or list(happened_at order by event_number) <> list(happened_at order by happened_at)
    """
    assert rows(lake, wrong) == []


def check_causes(lake: Lake) -> None:
    """Count the causes of refused orders again, from their verdicts."""
    told = rows(
        lake,
        "select cause, refused, round(share, 9), affected_files, affected_batches, last_7_days, trend, "
        "owner from marts.recurring_causes where dataset = 'orders' order by 1",
    )
    expected = rows(
        lake,
        """
        with
          refused as (
            select * from silver.orders_judged where _supersedes is null and len(failure_reasons) > 0
          ),
          causes as (select *, unnest(failure_reasons) as cause from refused)
        select
          cause, count(*), round(count(*) / (select count(*) from refused), 9),
          count(distinct _source_file), count(distinct _batch_id), count(*), 'new', 'order-desk'
        from causes group by cause order by 1
        """,
    )
    assert told == expected
    files = rows(
        lake,
        "select cause, refused, stage, owner from marts.recurring_causes "
        "where stage is null and record_type = 'placsp_entries' order by 1",
    )
    contract = rows(
        lake, "select distinct owner from marts.dim_rules where record_type = 'placsp_entries'"
    )
    failed = rows(
        lake,
        "select error_type, count(*) from bronze.files where status = 'failed' group by all order by 1",
    )
    assert files == [(kind, number, None, contract[0][0]) for kind, number in failed]
