"""What the messages job costs: messages a second with few and many schema changes, and a stampede."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from ingest.lake import Lake
from ingest.messages.job import Outcome, run_messages
from ingest.messages.targets import Target

SHAPES = (0, 1, 20)
"""Schema changes per window at which the rate is measured."""
STAMPEDE = (100_000, 1_000)
"""Messages of one window, and how many shapes they have that the table lacks."""
ROUND = 20_000
_ROUNDS = 3
_START = datetime(2024, 5, 1, tzinfo=UTC)
TARGET = Target(
    "events",
    "1.0.0",
    "bench",
    StructType(
        [
            StructField("id", StringType()),
            StructField("number", IntegerType()),
            StructField("note", StringType()),
        ]
    ),
)


def lines(number: int, shapes: int, mark: str) -> Iterator[str]:
    """JSON lines; with shapes, one of a hundred has a field that the table lacks, each in its turn.

    Args:
        number: How many.
        shapes: How many new fields there are; more than a hundredth of the lines, and each line has one.
        mark: Part of ids and names: what differs between two files.
    """
    spread = 1 if shapes * 100 > number else 100
    for at in range(number):
        data: dict[str, Any] = {"id": f"{mark}-{at}", "number": at, "note": f"what happened at {at}"}
        if shapes and at % spread == 0:
            data[f"new_{mark}_{at // spread % shapes}"] = at
        event = (_START + timedelta(seconds=at)).isoformat()
        yield json.dumps({"target": TARGET.name, "key": data["id"], "event_ts": event, "data": data})


def rate(scratch: str, shapes: int) -> dict[str, float]:
    """Messages a second over some rounds, each a file and a window; the first round only warms.

    Args:
        scratch: An empty folder.
        shapes: New fields in each round: all are granted at the next one's start, in one alteration.
    """
    folder = Path(scratch)
    lake, landing = Lake(folder / "lake"), folder / "landing"
    landing.mkdir(parents=True)
    seconds, plans, codes = 0.0, 0, 0
    for turn in range(1 + _ROUNDS):
        # The bench measures the job, not the hashing of files that lie about.
        file = landing / "new.jsonl"
        file.write_text("".join(f"{line}\n" for line in lines(ROUND, shapes, f"r{turn}")), "utf-8")
        began = time.monotonic()
        outcome = _run(lake, landing, _START + turn * timedelta(minutes=3))
        if turn:
            seconds += time.monotonic() - began
            plans += len(outcome.plans)
        codes |= outcome.exit_code
    return {"rate": _ROUNDS * ROUND / seconds, "alterations": plans, "code": codes}


def stampede(scratch: str) -> dict[str, float]:
    """Messages with many new shapes for one table in one window: what becomes of them at its end."""
    folder = Path(scratch)
    lake, landing = Lake(folder / "lake"), folder / "landing"
    landing.mkdir(parents=True)
    number, shapes = STAMPEDE
    (landing / "a.jsonl").write_text(
        "".join(f"{line}\n" for line in lines(number, shapes, "s")), "utf-8"
    )
    began = time.monotonic()
    first = _run(lake, landing, _START)
    received = time.monotonic() - began
    last = _run(lake, landing, _START + timedelta(minutes=3))
    log = lake.table_path("silver", TARGET.name) / "_delta_log"
    commits = [commit.read_text("utf-8") for commit in sorted(log.glob("*.json"))[1:]]
    return {
        "received": received,
        "window": time.monotonic() - began - received,
        "waited": first.counts.waiting,
        "landed": last.counts.landed[TARGET.name],
        "alterations": sum('"metaData"' in commit for commit in commits),
        "code": first.exit_code | last.exit_code,
    }


def _run(lake: Lake, landing: Path, now: datetime) -> Outcome:
    return run_messages(lake, [str(landing)], {TARGET.name: TARGET}, lambda: now)
