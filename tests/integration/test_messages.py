"""A simulated hour of messages: drift, conflict, an outage, kills between writes, retries that end.

The clock is passed in. After each step every message is in one place once, counted by other code.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest
from conftest import rows

from ingest.cli_messages import told
from ingest.environment import PROJECT_ROOT
from ingest.lake import Lake
from ingest.lock import LakeLock
from ingest.messages.job import Outcome, run_messages
from ingest.messages.tables import Tables
from ingest.messages.targets import load_targets
from ingest.transform import models_dir

TARGETS = load_targets(models_dir())
CUSTOMERS = "silver.customer_updates"
WAITING = "bronze.messages_waiting"


class Killed(Exception):  # noqa: N818 (it is no error)
    """What a kill is to the tables: nothing more is written."""


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2024-05-01T{clock}+00:00")


def customer(key: str, **data: object) -> str:
    return json.dumps(
        {
            "target": "customer_updates",
            "key": key,
            "event_ts": "2024-05-01T08:00:00Z",
            "data": {"customer_id": key, **data},
        }
    )


def order(key: str, amount: float) -> str:
    return json.dumps({"target": "order_events", "data": {"order_id": key, "amount": amount}})


def deep(depth: int) -> object:
    return {"d": deep(depth - 1)} if depth > 1 else {"d": 1}


class Story:
    """A lake, a landing folder, and what was sent there."""

    def __init__(self, folder: Path) -> None:
        self.lake = Lake(folder / "lake")
        self.landing = folder / "landing %20"
        self.landing.mkdir()

    def send(self, name: str, *lines: str) -> None:
        (self.landing / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")

    def run(self, clock: str, killed_after: str | None = None) -> Outcome:
        def after(step: str) -> None:
            if step == killed_after:
                raise Killed(step)

        with LakeLock(self.lake.path, "test"):
            return run_messages(self.lake, [str(self.landing)], TARGETS, lambda: at(clock), after)

    def sql(self, query: str) -> list[tuple[object, ...]]:
        return rows(self.lake, query)

    def places(self) -> dict[str, str]:
        """Each message's place, by other code than the job's; a message in two places fails here."""
        found: Counter[tuple[str, str]] = Counter()
        for place, query in {
            "waiting": f"select _message_id from {WAITING}",
            "bad": "select _message_id from bronze.bad_data",
            "refused": "select _message_id from bronze.messages where stage is not null",
            "customers": f"select _message_id from {CUSTOMERS}",
            "orders": "select _message_id from silver.order_events",
        }.items():
            found.update((str(row[0]), place) for row in self.sql(query))
        received = {str(r[0]) for r in self.sql("select distinct _message_id from bronze.messages")}
        placed = dict(found)
        assert set(found.values()) <= {1} and len(placed) == len(found), "a message is there twice"
        assert set(placed) == received, "a message is nowhere"
        return placed

    def tally(self) -> dict[str, int]:
        return dict(Counter(self.places().values()))

    def alterations(self) -> int:
        """Commits that changed the schema of the customers' table, after the one that made it."""
        log = self.lake.table_path("silver", "customer_updates") / "_delta_log"
        commits = sorted(log.glob("*.json"))
        return sum('"metaData"' in commit.read_text("utf-8") for commit in commits[1:])


KILL = """
import os, signal, sys
from datetime import datetime
from pathlib import Path
from ingest.lake import Lake
from ingest.lock import LakeLock
from ingest.messages.job import run_messages
from ingest.messages.targets import load_targets
from ingest.transform import models_dir

lake, landing, clock, step = sys.argv[1:]

def after(done):
    print(done, flush=True)
    if done == step:
        os.kill(os.getpid(), signal.SIGKILL)

with LakeLock(Path(lake), "killed"):
    run_messages(Lake(Path(lake)), [landing], load_targets(models_dir()),
                 lambda: datetime.fromisoformat(clock), after)
"""


def kill_process(story: Story, clock: str, step: str) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            KILL,
            str(story.lake.path),
            str(story.landing),
            at(clock).isoformat(),
            step,
        ],
        cwd=PROJECT_ROOT,
        env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == step


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
        customer("C5", deep=deep(49)),
        customer("C6", address={"city": "Lund", "geo": {"lat": 55.7}}),
        customer("C7", joined_on="2024-01-02T10:00:00"),
        customer("C8", select="x", order={"from": [1, 2.5]}),
        customer("C9", Email="differs by case"),
        customer("C10", **{f"k{number}": number for number in range(5000)}),
    )

    # What fits is there at once, and no table is altered for what does not.
    outcome = story.run("10:00:30")
    assert (outcome.exit_code, outcome.received) == (0, 15), told(outcome)
    assert story.tally() == {"customers": 1, "orders": 2, "refused": 2, "waiting": 9}
    assert (outcome.counts.repeats, story.alterations()) == (1, 0)

    # The target of orders is out; what is for it waits, and the other target is served.
    story.send("b.jsonl", order("O2", 1.0), customer("C11", points=2))
    insert = Tables.insert

    def out(self: Tables, schema: str, name: str, *more: object) -> None:
        if name == "order_events":
            raise OSError("the disk of orders is gone")
        insert(self, schema, name, *more)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(Tables, "insert", out)
        outcome = story.run("10:02:59")
    assert outcome.exit_code == 1
    assert story.tally() == {"customers": 2, "orders": 2, "refused": 2, "waiting": 10}
    assert story.sql(f"select error from {WAITING} where target = 'order_events'") == [
        ("TARGET_OUT: the disk of orders is gone",)
    ]

    # The window has ended. Killed between the alteration and its record, then between two writes.
    kill_process(story, "10:03:00", "altered customer_updates")
    assert (story.alterations(), story.sql("select * from bronze.schema_changes")) == (1, [])
    with pytest.raises(Killed):
        story.run("10:03:10", killed_after="wrote customer_updates")
    assert story.sql(f"select count(*) from {CUSTOMERS} join {WAITING} using (_message_id)") == [(6,)]
    outcome = story.run("10:03:20")
    assert outcome.exit_code == 0, told(outcome)
    assert story.tally() == {"customers": 8, "orders": 3, "refused": 2, "waiting": 3}

    # One alteration for six shapes, with who asked for it; and why three messages wait on.
    assert story.alterations() == 1
    [applied] = story.sql(
        "select window_start, window_end, messages, len(message_ids), changes "
        "from bronze.schema_changes where outcome = 'applied'"
    )
    assert applied[:4] == (at("10:00:00"), at("10:03:00"), 6, 6)
    assert sorted(applied[4]) == sorted([  # type: ignore[arg-type]
        "add email string",
        "widen points int to bigint",
        "add deep " + "struct<`d`:" * 49 + "int" + ">" * 49,
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
        ("TOO_MANY_COLUMNS", 1),
        ("TYPE_CONFLICT", 1),
    ]

    # Values are what their texts said, those from before the alteration too.
    assert story.sql(
        f'select customer_id, points, joined_on, "select" from {CUSTOMERS} '
        f"where customer_id in ('C1', 'C3', 'C7', 'C8') order by 1"
    ) == [
        ("C1", 1, datetime(2024, 1, 1), None),
        ("C3", 3_000_000_000, None, None),
        ("C7", None, datetime(2024, 1, 2, 10), None),
        ("C8", None, None, "x"),
    ]
    [(path,)] = story.sql(f"select deep from {CUSTOMERS} where customer_id = 'C5'")
    for _ in range(49):
        path = path["d"]  # type: ignore[index]
    assert path == 1

    # A message told again is no other one, and a second window alters once more.
    story.send("c.jsonl", customer("C2", email="c2@example.org"), customer("C12", phone="1"))
    outcome = story.run("10:04:00")
    assert (outcome.counts.repeats, outcome.counts.waiting) == (2, 4)
    outcome = story.run("10:15:30")
    assert story.alterations() == 2
    assert story.tally() == {"customers": 9, "orders": 3, "refused": 2, "waiting": 3}
    # The last instant of the retry: five windows have passed.
    assert story.sql(f"select distinct retry_number, tried_at from {WAITING}") == [(5, at("10:15:30"))]

    # Past it, what never fitted is given up, once; killed before it is taken from those that wait.
    with pytest.raises(Killed):
        story.run("10:15:31", killed_after="wrote bad_data")
    outcome = story.run("10:20:00")
    assert outcome.exit_code == 0, told(outcome)
    assert story.tally() == {"customers": 9, "orders": 3, "refused": 2, "bad": 3}
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
    assert story.tally() == {"customers": 9, "orders": 3, "refused": 2, "bad": 3}
