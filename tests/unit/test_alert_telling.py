"""Alerts: each is told once until it changes, to each receiver, whatever happens in between."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from alert_lake import add_path, make_alert_lake, with_alerts
from deltalake import DeltaTable
from office_lake import NOON, record_ids
from rich.console import Console

from ingest.alerting import ledger
from ingest.alerting.receivers import FileReceiver
from ingest.alerting.telling import LOCK, Told, after_run, evaluate
from ingest.environment import PROJECT_ROOT
from ingest.errors import LakeInUseError
from ingest.lake import ALERT_EVENTS, Lake
from ingest.office.actions import Note, happen
from ingest.office.refused import Office

DAY = timedelta(days=1)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return make_alert_lake(tmp_path)


@pytest.fixture
def file(tmp_path: Path) -> FileReceiver:
    return FileReceiver(tmp_path / "alerts.jsonl")


def told(lake: Lake, *receivers: FileReceiver, now: datetime = NOON + DAY, **said: Any) -> Told:
    return evaluate(lake, receivers, now, contracts=with_alerts(**said))


def sent(file: FileReceiver) -> list[tuple[str, str]]:
    """What a file got: status and kind of each alert."""
    lines = file.path.read_text("utf-8").splitlines() if file.path.is_file() else []
    return [(a["status"], a["kind"]) for line in lines for a in json.loads(line)["alerts"]]


def kept(lake: Lake) -> list[dict[str, Any]]:
    return lake.read("bronze", ledger.TABLE, ALERT_EVENTS.names).to_pylist()  # type: ignore[no-any-return]


def discard(lake: Lake, *positions: int) -> None:
    ids = record_ids(lake)
    with Office(lake) as office:
        records = office.find([ids[position] for position in positions])
        happen(office, records, "discarded", Note("ana", "a test order"))


def test_an_alert_is_told_once_and_its_end_too(lake: Lake, file: FileReceiver) -> None:
    assert [event.status for event in told(lake, file, open_above=3).news] == ["raised"]
    again = told(lake, file, open_above=3)
    assert (again.news, [event.status for event in again.standing]) == ([], ["raised"])
    assert sent(file) == [("raised", "open_above")]

    discard(lake, 3)
    told(lake, file, open_above=3)
    assert told(lake, file, open_above=3).standing == []
    assert sent(file) == [("raised", "open_above"), ("resolved", "open_above")]

    told(lake, file, open_above=2)
    assert sent(file)[2:] == [("raised", "open_above")], "and when it comes again, again"


def test_an_alert_changes_when_its_number_doubles_or_it_has_more_to_say(
    lake: Lake, file: FileReceiver
) -> None:
    said = {"silent_for": "1d", "schema_drift": "30d"}
    add_path(lake, "discount", NOON + DAY)
    told(lake, file, now=NOON + 2 * DAY, **said)
    told(lake, file, now=NOON + 3.9 * DAY, **said)
    assert sent(file) == [("raised", "schema_drift"), ("raised", "silent_for")]

    told(lake, file, now=NOON + 4 * DAY, **said)
    assert sent(file)[2:] == [("changed", "silent_for")]
    told(lake, file, now=NOON + 7.9 * DAY, **said)
    assert sent(file)[3:] == [], "it is twice what was told last that counts"

    add_path(lake, "colour", NOON + 7 * DAY)
    told(lake, file, now=NOON + 7.9 * DAY, **said)
    assert sent(file)[3:] == [("changed", "schema_drift")]


def test_what_cannot_be_asked_is_not_over(lake: Lake, file: FileReceiver) -> None:
    told(lake, file, share_above="1%")
    (lake.path / "marts" / "reconciliation").rename(lake.path / "away")
    assert len(told(lake, file, share_above="1%").standing) == 1
    # A threshold that is taken from the contract is.
    assert told(lake, file).standing == []
    assert sent(file) == [("raised", "share_above"), ("resolved", "share_above")]


def test_a_receiver_that_fails_is_told_next_time_and_the_others_once(
    lake: Lake, file: FileReceiver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away = FileReceiver(tmp_path / "mount" / "alerts.jsonl", name="away")
    outcome = told(lake, away, file, open_above=3)

    assert list(outcome.failed) == ["away"]
    (line,) = [record.getMessage() for record in caplog.records]
    assert "away was not told of 1: " in line and "It is tried again after the next run" in line
    told(lake, away, file, open_above=3)
    assert [row["event_type"] for row in kept(lake)].count("undelivered") == 1, "kept once"

    away.path.parent.mkdir()
    assert not told(lake, away, file, open_above=3).failed
    told(lake, away, file, open_above=3)
    assert sent(away) == sent(file) == [("raised", "open_above")]


def test_what_was_over_before_a_receiver_came_back_is_told_as_over(
    lake: Lake, file: FileReceiver, tmp_path: Path
) -> None:
    away = FileReceiver(tmp_path / "mount" / "alerts.jsonl", name="away")
    told(lake, away, open_above=3)
    discard(lake, 3)
    told(lake, away, open_above=3)
    away.path.parent.mkdir()

    told(lake, away, file, open_above=3)

    assert sent(away) == [("resolved", "open_above")]
    assert sent(file) == [], "who is new hears nothing of what is over"


def test_a_receiver_that_is_new_hears_of_what_stands_as_it_is_now(
    lake: Lake, file: FileReceiver, tmp_path: Path
) -> None:
    told(lake, now=NOON + 2 * DAY, silent_for="1d")
    told(lake, now=NOON + 5 * DAY, silent_for="1d")

    told(lake, file, now=NOON + 5 * DAY, silent_for="1d")

    assert sent(file) == [("raised", "silent_for")]
    (alert,) = json.loads(file.path.read_text())["alerts"]
    assert (alert["value"], alert["raised_at"]) == (5 * 86400, "2024-05-03T12:00:00.000000Z")


def test_of_many_at_once_one_tells(lake: Lake, file: FileReceiver) -> None:
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda _: told(lake, file, open_above=3), range(4)))

    assert sorted(len(outcome.news) for outcome in outcomes) == [0, 0, 0, 1]
    assert sent(file) == [("raised", "open_above")]


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], sys.argv[2]]
from test_alert_telling import DAY, NOON, Lake, evaluate, with_alerts

class Deadly:
    name = "file"
    def send(self, *_):
        os.kill(os.getpid(), signal.SIGKILL)

evaluate(Lake(Path(sys.argv[3])), [Deadly()], NOON + DAY, contracts=with_alerts(open_above=3))
"""


def test_who_is_killed_before_it_told_leaves_it_to_the_next(lake: Lake, file: FileReceiver) -> None:
    words = [str(PROJECT_ROOT), str(Path(__file__).parent), str(lake.path)]
    done = subprocess.run([sys.executable, "-c", KILLED, *words], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr

    outcome = told(lake, file, open_above=3)

    assert outcome.news == [], "it was raised before anybody was to be told"
    assert sent(file) == [("raised", "open_above")]


def test_who_waits_for_one_that_does_not_end_is_told(lake: Lake) -> None:
    lake.state.mkdir(exist_ok=True)
    waited: list[float] = []
    with (lake.state / LOCK).open("w") as held:
        import fcntl

        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(LakeInUseError, match="telling alerts of it"):
            evaluate(lake, [], NOON, contracts=with_alerts(open_above=3), sleep=waited.append)
    assert sum(waited) == pytest.approx(90, abs=1)


def test_clocks_that_go_back_keep_the_order(lake: Lake, file: FileReceiver) -> None:
    told(lake, file, now=NOON + DAY, open_above=3)
    discard(lake, 3)
    told(lake, file, now=NOON, open_above=3)

    assert told(lake, file, now=NOON, open_above=3).standing == []
    assert sent(file) == [("raised", "open_above"), ("resolved", "open_above")]


def test_the_table_takes_new_rows_alone_and_brings_no_model_anything(
    lake: Lake, file: FileReceiver
) -> None:
    lake.create_operations()
    before = lake.versions()
    told(lake, file, open_above=3)

    table = DeltaTable(str(lake.table_path("bronze", ledger.TABLE)))
    assert table.metadata().configuration["delta.appendOnly"] == "true"
    assert [row["event_type"] for row in sorted(kept(lake), key=lambda row: row["at"])] == [
        "raised",
        "delivered",
    ]
    assert lake.versions() == before


def test_after_a_run_alerts_are_told_and_trouble_hurts_no_run(
    lake: Lake,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ingest.alerting.telling.known_contracts", lambda: with_alerts(silent_for="1d"))
    path = tmp_path / "alerts.jsonl"
    console = Console(record=True, width=140, file=io.StringIO())

    after_run(lake, {"LAKEHOUSE_ALERT_FILE": str(path)}, console)
    after_run(lake, {"LAKEHOUSE_ALERT_FILE": str(path)}, console)

    assert console.export_text().count("Alert raised    orders: no new file that can be read") == 1
    assert len(path.read_text().splitlines()) == 1
    assert not caplog.records

    after_run(lake, {"LAKEHOUSE_ALERT_WEBHOOK_URL": "ftp://x"}, console)
    (lake.path / "bronze" / ledger.TABLE / "_delta_log" / "00000000000000000000.json").write_text("{")
    after_run(lake, {}, console)
    said = [record.getMessage() for record in caplog.records]
    assert "LAKEHOUSE_ALERT_WEBHOOK_URL is no https or http address" in said[0]
    assert "alerts could not be looked at: " in said[1]
    assert "The run itself is whole" in said[1]
