import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql.types import StructType

from ingest.cli import cli
from ingest.cli_messages import _tell_look, told
from ingest.messages import bench, job
from ingest.messages.fitting import Plan
from ingest.messages.job import Counts, Outcome


def sound() -> Counts:
    return Counts(
        lines=15,
        repeats=1,
        refused=2,
        landed={"a": 4, "b": 2},
        quarantined={"b": 3},
        waiting=2,
        bad_data=1,
    )


def test_the_law_is_that_each_message_is_in_one_place() -> None:
    assert sound().balance == 0
    lost = sound()
    lost.waiting -= 1
    assert lost.balance == 1
    assert Outcome(lost).exit_code == 1
    # One lost and one doubled balance each other; their ids are found all the same.
    swapped = sound()
    swapped.astray = ["m1", "m2"]
    assert (swapped.balance, Outcome(swapped).exit_code) == (0, 1)
    assert Outcome(sound(), troubles=["target a: out"]).exit_code == 1
    assert Outcome(sound()).exit_code == 0


def test_a_run_says_where_all_messages_are_and_what_it_did() -> None:
    empty = StructType([])
    outcome = Outcome(sound(), 3, {"a": Plan(empty, empty, (), ())}, ["target b: out"])
    text = "\n".join(told(outcome))
    for part in (
        "3 lines",
        "all 15",
        "4 in silver.a",
        "3 in silver.b_quarantine",
        "2 wait",
        "1 were given up",
        "silver.a was altered",
    ):
        assert part in text
    assert "Not done: target b: out" in text
    assert text.endswith("Every message is in one place.")


def test_what_could_not_be_counted_is_told_and_no_law_is_called_broken_for_it() -> None:
    counts = sound()
    counts.landed, counts.is_partial = {"a": 4}, True
    outcome = Outcome(counts, troubles=["target b: out"])
    assert (counts.balance, outcome.exit_code) == (0, 1)
    assert told(outcome)[-1].startswith("Not every message could be looked for")


def test_a_verdict_that_a_batch_finds_otherwise_is_told() -> None:
    counts = sound()
    counts.differing = ["m7"]
    assert Outcome(counts).exit_code == 1
    assert told(Outcome(counts))[-1].startswith("DIFFERS") and "m7" in told(Outcome(counts))[-1]


def test_a_broken_law_is_told_with_the_messages() -> None:
    counts = sound()
    counts.astray = ["m1"]
    assert (
        told(Outcome(counts))[-1].startswith("BROKEN: 1 or more") and "m1" in told(Outcome(counts))[-1]
    )


def test_the_command_takes_the_lock_and_gives_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = sound()
    counts.astray = ["m1"]
    seen: list[object] = []

    def run(lake: object, inputs: object, targets: dict[str, object], **more: object) -> Outcome:
        seen.extend([more, inputs, sorted(targets), (tmp_path / "lake/_state/writer.lock").is_file()])
        return Outcome(counts)

    monkeypatch.setattr(job, "run_messages", run)
    result = CliRunner().invoke(cli, ["messages", "--input", "x", "--lake", str(tmp_path / "lake")])
    assert result.exit_code == 1
    assert seen == [
        {"topics": None, "is_full_audit": False},
        ("x",),
        ["customer_updates", "order_events"],
        True,
    ]
    assert "BROKEN" in result.output


def test_the_sample_command_writes_messages_when_asked(tmp_path: Path) -> None:
    arguments = ["sample", "--out", str(tmp_path), "--entries", "0", "--orders", "0", "--messages", "5"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    [file] = (tmp_path / "messages").iterdir()
    assert len(file.read_text("utf-8").splitlines()) == 5
    assert '"lines": 5' in result.output


def test_the_bench_spreads_its_shapes_over_the_lines() -> None:
    def fields(number: int, shapes: int) -> list[str]:
        data = [json.loads(line)["data"] for line in bench.lines(number, shapes, "x")]
        return [name for item in data for name in item if name.startswith("new_")]

    assert fields(1000, 0) == []
    assert len(fields(20_000, 20)) == 200 and len(set(fields(20_000, 20))) == 20
    assert len(fields(2000, 1000)) == 2000 and len(set(fields(2000, 1000))) == 1000


def test_a_look_that_did_nothing_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    _tell_look(Outcome(sound()))
    assert capsys.readouterr().out == ""
    _tell_look(Outcome(sound(), 3))
    assert "3 lines" in capsys.readouterr().out
