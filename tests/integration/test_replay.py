"""Refused orders sent through the gate again: killed twice, accepted, outdated, refused, worn out."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import SampleLake, commits, rows

from ingest.environment import PROJECT_ROOT
from ingest.lake import Lake
from ingest.office.actions import Note, happen
from ingest.office.refused import Filter, Office, Refused
from ingest.office.states import OPEN_STATES
from ingest.replay import ReplayOptions, run_replay

NOTE = Note("maria", "the partner said so")
OPTIONS = ReplayOptions(note=NOTE)


def correct(lake: Lake, texts: dict[str, str]) -> None:
    with Office(lake, bronze=True) as office:
        happen(office, office.find(list(texts)), "corrected", NOTE, texts)


def refused(lake: Lake, states: tuple[str, ...]) -> dict[str, Refused]:
    with Office(lake) as office:
        found, _ = office.select(Filter(record_types=("orders",), states=states))
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
    assert run_replay(lake, OPTIONS) == 0

    told = capsys.readouterr().out
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
