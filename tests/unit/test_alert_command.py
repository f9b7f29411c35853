"""The command ``lakehouse alert`` as people and schedulers give it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from alert_lake import make_alert_lake, with_alerts
from click.testing import CliRunner, Result

from ingest.cli import cli
from ingest.environment import PROJECT_ROOT
from ingest.errors import InputError
from ingest.lake import Lake

SCHEMA = json.loads((PROJECT_ROOT / "docs" / "alerts.schema.json").read_text("utf-8"))


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake that came in 2024 and has been silent since; four of its records wait."""
    monkeypatch.setattr(
        "ingest.alerting.telling.known_contracts", lambda: with_alerts(open_above=3, silent_for="1d")
    )
    return make_alert_lake(tmp_path)


def run(lake: Lake, *words: str, **environment: str) -> Result:
    return CliRunner(env=environment).invoke(cli, ["alert", "--lake", str(lake.path), *words])


def test_it_tells_what_is_new_and_exits_with_1_and_then_with_0(lake: Lake) -> None:
    first = run(lake)
    assert (first.exit_code, first.stdout.count("raised    orders: ")) == (1, 2), first.output
    second = run(lake)
    assert (second.exit_code, second.stdout) == (
        0,
        "Nothing new. Alerts that were told before and stand: 2; --dry-run prints them.\n",
    )


def test_as_json_it_prints_what_receivers_get(lake: Lake) -> None:
    for code, kinds in ((1, ["open_above", "silent_for"]), (0, [])):
        result = run(lake, "--format", "json")
        payload = json.loads(result.stdout)
        jsonschema.validate(payload, SCHEMA)
        assert [alert["kind"] for alert in payload["alerts"]] == kinds
        assert result.exit_code == code


def test_a_dry_run_tells_and_keeps_nothing(lake: Lake, tmp_path: Path) -> None:
    file = tmp_path / "alerts.jsonl"
    for _ in range(2):
        result = run(lake, "--dry-run", LAKEHOUSE_ALERT_FILE=str(file))
        assert (result.exit_code, result.stdout.count("raised    orders: ")) == (0, 2)
    assert not file.exists()
    assert run(lake).exit_code == 1


def test_a_receiver_that_was_not_told_is_1_until_it_is(lake: Lake, tmp_path: Path) -> None:
    file = tmp_path / "mount" / "alerts.jsonl"
    assert run(lake, LAKEHOUSE_ALERT_FILE=str(file)).exit_code == 1
    assert run(lake, LAKEHOUSE_ALERT_FILE=str(file)).exit_code == 1
    file.parent.mkdir()
    assert run(lake, LAKEHOUSE_ALERT_FILE=str(file)).exit_code == 0
    assert len(json.loads(file.read_text())["alerts"]) == 2


def test_wrong_use_is_said_before_anything_is_told(lake: Lake, tmp_path: Path) -> None:
    wrong = run(lake, LAKEHOUSE_ALERT_WEBHOOK_URL="http://x.org/s3cret")
    assert isinstance(wrong.exception, InputError) and wrong.exception.exit_code == 2
    assert run(lake).exit_code == 1, "nothing was told by then"
    nowhere = run(Lake(tmp_path / "nowhere"))
    assert isinstance(nowhere.exception, InputError)
    assert not (tmp_path / "nowhere").exists()
