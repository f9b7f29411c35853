"""A lake that takes messages, and what was sent there: what the stories about messages share."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path

from conftest import rows

from ingest.environment import PROJECT_ROOT
from ingest.lake import Lake
from ingest.lock import LakeLock
from ingest.messages.job import Outcome, run_messages
from ingest.messages.kafka import Topics
from ingest.messages.targets import load_targets
from ingest.transform import models_dir

TARGETS = load_targets(models_dir())
CUSTOMERS = "silver.customer_updates"
WAITING = "bronze.messages_waiting"


class Killed(Exception):  # noqa: N818 (it is no error)
    """What a kill is to the tables: nothing more is written."""


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2024-05-01T{clock}+00:00")


def customer(key: str, event: str = "08:00:00", **data: object) -> str:
    return json.dumps(
        {
            "target": "customer_updates",
            "key": key,
            "event_ts": f"2024-05-01T{event}Z",
            "data": {"customer_id": key, **data},
        }
    )


def order(key: str | None, amount: float) -> str:
    data = {"order_id": key, "amount": amount, "event_ts": "2024-05-01T08:00:00Z"}
    return json.dumps({"target": "order_events", "data": data})


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

    def run(
        self,
        clock: str,
        killed_after: str | None = None,
        *,
        topics: Topics | None = None,
        is_full_audit: bool = False,
    ) -> Outcome:
        def after(step: str) -> None:
            if step == killed_after:
                raise Killed(step)

        with LakeLock(self.lake.path, "test"):
            return run_messages(
                self.lake,
                [str(self.landing)],
                TARGETS,
                lambda: at(clock),
                after,
                topics=topics,
                is_full_audit=is_full_audit,
            )

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
            "quarantine": "select _message_id from silver.order_events_quarantine",
        }.items():
            found.update((str(row[0]), place) for row in self.sql(query))
        received = {str(r[0]) for r in self.sql("select distinct _message_id from bronze.messages")}
        placed = dict(found.keys())
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


def kill_process(story: Story, folder: Path, clock: str, step: str) -> None:
    # Into files: a JVM that outlives its parent holds pipes open, and who reads them waits for it.
    out, err = folder / "killed.out", folder / "killed.err"
    arguments = [str(story.lake.path), str(story.landing), at(clock).isoformat(), step]
    with out.open("wb") as told, err.open("wb") as trouble:
        done = subprocess.run(
            [sys.executable, "-c", KILL, *arguments],
            cwd=PROJECT_ROOT,
            env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=trouble,
            check=False,
        )
    assert done.returncode == -signal.SIGKILL, err.read_text("utf-8")[-2000:]
    assert out.read_text("utf-8").splitlines()[-1] == step
