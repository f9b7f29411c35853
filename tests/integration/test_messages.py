"""Simulated days of messages: drift, conflicts, outages, kills between writes, retries that end.

The clock is passed in. After each step every message is in one place once, counted by other code.
"""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import copy_golden
from message_story import (
    CUSTOMERS,
    TARGETS,
    WAITING,
    Killed,
    Story,
    at,
    customer,
    deep,
    kill_process,
    order,
)

from ingest.cli import cli
from ingest.cli_messages import told
from ingest.lock import LakeLock
from ingest.messages.job import Outcome, follow_messages, run_messages
from ingest.messages.sample import GRANTED, REFUSED, generate_messages
from ingest.messages.tables import Tables
from ingest.office.actions import Note
from ingest.replay import ReplayOptions, run_replay
from ingest.transform import invoke_dbt


def test_a_day_of_drift_ends_with_every_message_in_one_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(tmp_path)
    story.send(
        "a.jsonl",
        customer("C1", name="Ana", points=1, joined_on="2024-01-01"),
        customer("C2", email="c2@example.org"),
        customer("C3", points=3_000_000_000),
        customer("C4", points="many"),
        customer("C1", name="Ana", points=1, joined_on="2024-01-01"),
        '{"target": "customer_updates", "data": {"points": NaN}}',
        '{"target": "customers", "data": {}}',
        order("O1", 12.5),
        order("O1", 12.5),
        order(None, -1),
        customer("C5", deep=deep(31)),
        customer("C13", deep=deep(49)),
        customer("C6", address={"city": "Lund", "geo": {"lat": 55.7}}),
        customer("C7", joined_on="2024-01-02T10:00:00"),
        customer("C8", select="x", order={"from": [1, 2.5]}),
        customer("C9", Email="differs by case"),
        customer("C10", **{f"k{number}": number for number in range(5000)}),
    )

    # What fits is there at once, and no table is altered for what does not.
    outcome = story.run("10:00:30")
    assert (outcome.exit_code, outcome.received) == (0, 17), told(outcome)
    assert story.tally() == {"customers": 1, "orders": 2, "quarantine": 1, "refused": 2, "waiting": 10}
    assert (outcome.counts.repeats, story.alterations()) == (1, 0)

    # The target of orders is out; what is for it waits, and the other target is served.
    # What happened to C3 later is held behind what happened to it before, and waits for its column.
    story.send(
        "b.jsonl", order("O2", 1.0), customer("C11", points=2), customer("C3", "08:05:00", points=5)
    )
    insert = Tables.insert

    def out(self: Tables, schema: str, name: str, *more: object) -> None:
        if name == "order_events":
            raise OSError("the disk of orders is gone")
        insert(self, schema, name, *more)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(Tables, "insert", out)
        outcome = story.run("10:02:59")
    assert outcome.exit_code == 1
    assert story.tally() == {"customers": 2, "orders": 2, "quarantine": 1, "refused": 2, "waiting": 12}
    assert story.sql(f"select error from {WAITING} where target = 'order_events'") == [
        ("TARGET_OUT: the disk of orders is gone",)
    ]
    assert story.sql(f"select key, count(*) from {WAITING} where error like 'KEY_HELD%' group by 1") == [
        ("C3", 1)
    ]

    # The window has ended. Killed between the alteration and its record, then between two writes.
    kill_process(story, tmp_path, "10:03:00", "altered customer_updates")
    history = "select outcome from bronze.schema_changes where target = 'customer_updates'"
    assert story.alterations() == 1
    assert story.sql(f"{history} and outcome = 'applied'") == []
    with pytest.raises(Killed):
        story.run("10:03:10", killed_after="wrote customer_updates")
    assert story.sql(f"select count(*) from {CUSTOMERS} join {WAITING} using (_message_id)") == [(7,)]
    outcome = story.run("10:03:20")
    assert outcome.exit_code == 0, told(outcome)
    assert story.tally() == {"customers": 9, "orders": 3, "quarantine": 1, "refused": 2, "waiting": 4}

    # One alteration for six shapes, with who asked for it; and why four messages wait on.
    assert story.alterations() == 1
    [applied] = story.sql(
        "select window_start, window_end, messages, len(message_ids), changes "
        "from bronze.schema_changes where outcome = 'applied'"
    )
    assert applied[:4] == (at("10:00:00"), at("10:03:00"), 6, 6)
    assert sorted(applied[4]) == sorted([  # type: ignore[arg-type]
        "add email string",
        "widen points int to bigint",
        "add deep " + "struct<`d`:" * 31 + "int" + ">" * 31,
        "add address.geo struct<`lat`:double>",
        "widen joined_on date to timestamp_ntz",
        "add select string",
        "add order struct<`from`:array<double>>",
    ])  # fmt: skip
    refused = story.sql(
        "select why, messages from bronze.schema_changes where outcome = 'refused' order by why"
    )
    assert [(str(why).partition(" ")[0], number) for why, number in refused] == [
        ("NAME_DIFFERS_BY_CASE", 1),
        ("TOO_DEEP", 1),
        ("TOO_MANY_COLUMNS", 1),
        ("TYPE_CONFLICT", 1),
    ]

    # Values are what their texts said, those from before the alteration too.
    assert story.sql(
        f'select customer_id, points, joined_on, "select" from {CUSTOMERS} '
        f"where customer_id in ('C1', 'C3', 'C7', 'C8') order by 1, 2"
    ) == [
        ("C1", 1, datetime(2024, 1, 1), None),
        ("C3", 5, None, None),
        ("C3", 3_000_000_000, None, None),
        ("C7", None, datetime(2024, 1, 2, 10), None),
        ("C8", None, None, "x"),
    ]
    [(path,)] = story.sql(f"select deep from {CUSTOMERS} where customer_id = 'C5'")
    for _ in range(31):
        path = path["d"]  # type: ignore[index]
    assert path == 1

    # A message told again is no other one, and a second window alters once more.
    story.send("c.jsonl", customer("C2", email="c2@example.org"), customer("C12", phone="1"))
    outcome = story.run("10:04:00")
    assert (outcome.counts.repeats, outcome.counts.waiting) == (2, 5)
    outcome = story.run("10:15:30")
    assert story.alterations() == 2
    assert story.tally() == {"customers": 10, "orders": 3, "quarantine": 1, "refused": 2, "waiting": 4}
    # The last instant of the retry: five windows have passed.
    assert story.sql(f"select distinct retry_number, tried_at from {WAITING}") == [(5, at("10:15:30"))]

    # Past it, what never fitted is given up, once; killed before it is taken from those that wait.
    with pytest.raises(Killed):
        story.run("10:15:31", killed_after="wrote bad_data")
    outcome = story.run("10:20:00")
    assert outcome.exit_code == 0, told(outcome)
    assert story.tally() == {"customers": 10, "orders": 3, "quarantine": 1, "refused": 2, "bad": 4}
    bad = story.sql(
        "select bad_data, target_dest, error, insert_time, retry_number, processed_timestamp "
        "from bronze.bad_data where bad_data like '%many%'"
    )
    assert bad == [
        (
            customer("C4", points="many"),
            "customer_updates",
            "TYPE_CONFLICT at points: a text stands where the table has bigint, which cannot hold both",
            at("10:15:31"),
            5,
            at("10:00:30"),
        )
    ]

    # Nothing new: nothing changes.
    before = {name: version for name, version in story.lake.versions().items() if "silver" in name}
    outcome = story.run("11:00:00")
    assert outcome.exit_code == 0
    assert {name: v for name, v in story.lake.versions().items() if "silver" in name} == before
    assert story.tally() == {"customers": 10, "orders": 3, "quarantine": 1, "refused": 2, "bad": 4}

    # Every message that was ever received is looked for, and the rules judge all of them once more in
    # one batch: it decides as the stream did.
    outcome = story.run("11:05:00", is_full_audit=True)
    assert outcome.exit_code == 0, told(outcome)
    work_off(story, tmp_path)


def work_off(story: Story, folder: Path) -> None:
    """An operator corrects one of the messages that were given up, and sends another as it is."""
    by_text = {
        "many": '"points": "many"',
        "case": '"Email"',
    }
    found = {
        name: story.sql(f"select _record_id from bronze.bad_data where bad_data like '%{part}%'")[0][0]
        for name, part in by_text.items()
    }
    (folder / "mended").write_text(customer("C4", points=4), "utf-8")
    lake = ["--lake", str(story.lake.path)]
    because = ["--because", "the sender said so"]
    command = ["quarantine", "correct", str(found["many"]), "--from", str(folder / "mended")]
    done = CliRunner().invoke(cli, [*command, *because, *lake])
    assert done.exit_code == 0, done.output
    for note in (
        ReplayOptions(note=Note("me", "mended")),
        ReplayOptions(ids=[str(found["case"])], note=Note("me", "x")),
    ):
        with LakeLock(story.lake.path, "test"):
            assert run_replay(story.lake, note) == 0
    # The evidence stays, and both went through the gate again: one fits, the other waits again.
    tally = story.tally()
    assert (tally["bad"], tally["customers"], tally["waiting"]) == (4, 11, 1)
    assert story.sql(f"select points, _attempt from {CUSTOMERS} where customer_id = 'C4'") == [(4, 2)]
    events = 'select record_id, event_type from bronze.quarantine_events order by record_id, "at"'
    assert story.sql(events) == sorted([
        (found["many"], "corrected"), (found["many"], "reentered"), (found["case"], "reentered")
    ])  # fmt: skip
    with LakeLock(story.lake.path, "test"):
        assert run_replay(story.lake, ReplayOptions(note=Note("me", "again"))) == 0
    assert story.tally() == tally


# When files come in the course of a day, and what happens to the run that receives them: the step behind
# which it is killed, or the target that is out.
DAY: dict[str, str | None] = {
    "00:01:30": None,
    "03:59:10": "received",
    "07:20:00": "out customer_updates",
    "11:00:00": "wrote customer_updates",
    "15:45:59": "out order_events",
    "20:10:00": "updated waiting",
    "23:40:00": None,
}


def test_a_day_of_windows_ends_where_the_manifests_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(tmp_path)
    ways: Counter[str] = Counter()
    insert = Tables.insert
    lines = 0
    for seed, (clock, event) in enumerate(DAY.items(), 1):
        manifest = generate_messages(story.landing, messages=120, seed=seed)
        ways.update(manifest.ways)
        lines += manifest.lines
        what, _, which = (event or "").partition(" ")

        def out(self: Tables, schema: str, name: str, *more: object, target: str = which) -> None:
            if name == target:
                raise OSError("its disk is away")
            insert(self, schema, name, *more)  # type: ignore[arg-type]

        if what == "out":
            with monkeypatch.context() as patched:
                patched.setattr(Tables, "insert", out)
                assert story.run(clock).exit_code == 1
            waiting = {row[0] for row in story.sql(f"select error from {WAITING}")}
            assert "TARGET_OUT: its disk is away" in waiting
        elif event is not None:
            with pytest.raises(Killed):
                story.run(clock, event)
        else:
            assert story.run(clock).exit_code == 0
        # The first run after the window's end. What waits has been tried since, or has come since.
        outcome = story.run(later(clock, minutes=3))
        assert outcome.exit_code == 0, told(outcome)
        assert (outcome.counts.lines, sum(story.tally().values())) == (lines, lines - ways["repeat"])

    last = story.run(later("23:40:00", minutes=16), is_full_audit=True)
    assert last.exit_code == 0, told(last)
    # bigint and double have no type above them, and what comes first is granted: a double holds these
    # large whole numbers too, a bigint no fraction.
    first = next(
        found[1]
        for seed in range(1, 1 + len(DAY))
        if (found := re.search(r'"points": (\d{10}|\d+\.5)', sample(story, seed)))
    )
    granted = {*GRANTED, "customer_updates"} | ({"points_fraction"} if "." in first else set())
    drifted = {"new_column", "new_nested", "wider_points", "points_fraction", "conflict"}
    counts = last.counts
    refused = sum(ways[way] for way in REFUSED)
    assert (counts.lines, counts.repeats, counts.refused) == (lines, ways["repeat"], refused)
    assert counts.landed == {
        "customer_updates": sum(ways[way] for way in granted),
        "order_events": ways["order_events"],
    }
    assert counts.quarantined == {"order_events": ways["broken_rule"]}
    assert (counts.waiting, counts.bad_data) == (0, sum(ways[way] for way in drifted - granted))
    # Each drift was granted once, in the first window in which it came.
    assert 1 <= story.alterations() <= len(GRANTED)
    assert sum(story.tally().values()) == lines - ways["repeat"]


def later(clock: str, minutes: int) -> str:
    return f"{at(clock) + timedelta(minutes=minutes):%H:%M:%S}"


def sample(story: Story, seed: int) -> str:
    return (story.landing / f"messages_{seed}.jsonl").read_text("utf-8")


def test_who_follows_sees_windows_end_where_no_file_comes_and_stops_when_asked(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.send("a.jsonl", customer("C1", points=1), customer("C2", email="c2@example.org"))
    looks: list[Outcome] = []

    def tell(outcome: Outcome) -> None:
        looks.append(outcome)
        if outcome.counts.waiting == 0 or len(looks) > 9:
            os.kill(os.getpid(), signal.SIGTERM)

    def clock() -> datetime:
        return at("10:00:30") + len(looks) * timedelta(minutes=1)

    with LakeLock(story.lake.path, "test"):
        code = follow_messages(
            story.lake, [str(story.landing)], TARGETS, interval_seconds=1, tell=tell, clock=clock
        )
    assert code == 0
    assert [look.counts.waiting for look in looks] == [1, 1, 1, 0]
    assert [bool(look.plans) for look in looks] == [False, False, False, True]
    assert story.tally() == {"customers": 2}


def test_rules_split_events_and_every_refusal_is_a_dead_letter(tmp_path: Path) -> None:
    story = Story(tmp_path)
    golden = copy_golden(story.landing, are_messages=True)
    story.send("refused.jsonl", "{", customer("C1", points="many"), '{"target": "nobody", "data": {}}')
    now = datetime.now(UTC)
    with LakeLock(story.lake.path, "test"):
        run_messages(story.lake, [str(story.landing)], TARGETS, lambda: now - timedelta(hours=1))
        outcome = run_messages(
            story.lake, [str(story.landing)], TARGETS, lambda: now, is_full_audit=True
        )
    assert outcome.exit_code == 0, told(outcome)

    said: dict[tuple[str, str], list[set[str]]] = {}
    for name, reasons in story.sql(
        "select _source_file, failure_reasons from silver.order_events_quarantine "
        "union all by name select _source_file, []::varchar[] as failure_reasons "
        "from silver.order_events"
    ):
        path = Path(str(name)).relative_to(golden)
        said.setdefault((path.parent.name, path.stem), []).append(set(reasons))  # type: ignore[call-overload]
    for rule in TARGETS["order_events"].rules:
        caught, left = said[rule.code, "caught"], said[rule.code, "left"]
        assert all(rule.code in reasons for reasons in caught), (rule.code, caught)
        assert not any(rule.code in reasons for reasons in left), (rule.code, left)

    # Each refusal of any stage has its letter, and a second build adds none.
    letters = (
        "select record_type, stage, error_type, count(*) from marts.dead_letters "
        "group by all order by all"
    )
    story.lake.create_operations()
    found = []
    for _ in range(2):
        built = invoke_dbt(story.lake, ["run", "--select", "dead_letters"])
        assert (built.error, built.failures) == (None, [])
        found.append(story.sql(letters))
    assert found[0] == found[1]
    letters_of = {row[:3]: row[3] for row in found[0]}
    assert letters_of[("messages", "json_parsing", "NOT_JSON")] == 1
    assert letters_of[("messages", "schema_validation", "UNKNOWN_TARGET")] == 1
    assert letters_of[("messages", "schema_migration", "TYPE_CONFLICT")] == 1
    [(quarantined,)] = story.sql("select count(*) from silver.order_events_quarantine")
    assert sum(n for kind, n in letters_of.items() if kind[0] == "order_events") == quarantined  # type: ignore[misc]
    assert story.sql("select count(*) from marts.dead_letters where error_message is null") == [(0,)]
