"""Running dbt in this process, on the session that is there, and keeping what failed."""

from __future__ import annotations

import hashlib
import logging
import os
import random
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.environment import JARS_DIR, PROJECT_ROOT
from ingest.lake import Lake

if TYPE_CHECKING:
    from dbt.cli.main import dbtRunnerResult

PROJECT_DIR = PROJECT_ROOT / "dbt_project"
PROFILES_DIR = PROJECT_ROOT / "profiles"
CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")
_PLAN = re.compile(r"(; line \d+ pos \d+;\s*'?\w+).*", re.DOTALL)
_CONFLICT = re.compile(r"DELTA_CONCURRENT|DELTA_METADATA_CHANGED|DELTA_PROTOCOL_CHANGED")
# Why Delta refuses rows, and how to go on.
_MERGE_FAULTS = (
    (
        _CONFLICT,
        "Another writer committed to its table meanwhile, at each attempt. Let that writer end or stop "
        "it, and run again.",
    ),
    (
        re.compile("DELTA_MULTIPLE_SOURCE_ROW"),
        "What it reads has two rows for one key, and which of them is right cannot be known: look for "
        "keys that stand twice in the tables that the model reads, remove what doubled them, and run "
        "again.",
    ),
    (
        re.compile("DELTA_MERGE|DELTA_SCHEMA|DELTA_FAILED_TO_MERGE|DATATYPE_MISMATCH.*MergeInto"),
        "Its table has not the columns that the model gives: build it anew with 'lakehouse run "
        "--full-refresh', or mend the model and run again.",
    ),
    (
        re.compile("APPEND_ONLY"),
        "Its table takes new rows alone: take the property delta.appendOnly from it and run again.",
    ),
)
# A build meets another writer's commit at most so often before it gives up. The pause before each
# further attempt is of random length up to a bound that doubles, so that two writers do not keep step.
MERGE_ATTEMPTS = 5
BACKOFF_SECONDS = 2.0
MESSAGE_LENGTH = 4000
log = logging.getLogger("lakehouse")


@dataclass
class NodeFailure:
    """A dbt node that failed as a whole."""

    node: str
    resource_type: str
    message: str

    @property
    def error_type(self) -> str:
        """Spark's error condition where the message names one, else DBT_ERROR."""
        found = CONDITION.search(self.message)
        return found.group(1) if found else "DBT_ERROR"

    @property
    def stage(self) -> str:
        """``merge`` where Delta refused to merge, else ``transformation``."""
        return "merge" if self._merge_advice else "transformation"

    @property
    def is_conflict(self) -> bool:
        """Whether another writer committed to the table meanwhile: then another attempt may succeed."""
        return bool(_CONFLICT.search(self.message))

    @property
    def advice(self) -> str:
        """How to go on."""
        return self._merge_advice or "Mend the model and run again."

    @property
    def _merge_advice(self) -> str:
        return next((advice for fault, advice in _MERGE_FAULTS if fault.search(self.message)), "")


@dataclass
class DbtOutcome:
    """What a dbt invocation left."""

    run_id: str = ""
    failures: list[NodeFailure] = field(default_factory=list)
    failed_tests: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    error: str | None = None
    nodes: set[str] = field(default_factory=set)

    @property
    def conflicts(self) -> list[NodeFailure]:
        """What met the commit of another writer."""
        return [failure for failure in self.failures if failure.is_conflict]

    @property
    def broken_laws(self) -> bool:
        """Whether the one test of error severity failed."""
        return bool(self.failed_tests)


def invoke_dbt(lake: Lake, arguments: Sequence[str]) -> DbtOutcome:
    """Run a dbt command on a lake. Whatever fails is told in the outcome, nothing is raised.

    Args:
        lake: The lake whose tables it works on.
        arguments: dbt's own arguments, the command first.
    """
    if lake.path in _parsing:
        _parsing[lake.path].join()
    result = _call_dbt(lake, arguments)
    outcome = DbtOutcome()
    if result.exception is not None:
        outcome.error = str(result.exception)
    outcome.run_id = _invocation_id(result.result)
    for item in getattr(result.result, "results", None) or []:
        # What run-operation gives has a name alone.
        node = getattr(item, "node", None)
        name, kind = (node.name, str(node.resource_type)) if node else (item.unique_id, "operation")
        status = str(item.status)
        outcome.nodes.add(name)
        if status == "skipped":
            outcome.skipped.append(name)
        elif status == "fail":
            outcome.failed_tests.append(name)
        elif status == "error":
            # What follows is the whole statement, or its plan of which the root says enough; dbt's log
            # has both.
            said = _PLAN.sub(r"\1", str(item.message or "").split("== SQL ==")[0])
            message = " ".join(said.split())[:MESSAGE_LENGTH]
            outcome.failures.append(NodeFailure(name, kind, message))
    return outcome


def parse_meanwhile(lake: Lake) -> None:
    """Let dbt read its project in the background, for the first dbt command on this lake.

    It takes seconds in which Spark can start. What it finds wrong that command will tell. Once a process
    is enough: later commands find what was read.
    """
    if lake.path not in _parsing:
        _parsing[lake.path] = threading.Thread(
            target=_call_dbt, args=(lake, ["--log-level", "none", "parse"]), daemon=True
        )
        _parsing[lake.path].start()


_parsing: dict[Path, threading.Thread] = {}


def _call_dbt(lake: Lake, arguments: Sequence[str]) -> dbtRunnerResult:
    from dbt.cli.main import dbtRunner

    os.environ["LAKE"] = str(lake.path)
    os.environ["LAKEHOUSE_JARS"] = str(JARS_DIR)
    # Its session is fitted to the lake already.
    os.environ["LAKEHOUSE_SESSION"] = "1"
    folders = {
        "--project-dir": PROJECT_DIR,
        "--profiles-dir": PROFILES_DIR,
        "--target-path": lake.state / "dbt",
        "--log-path": lake.state / "dbt",
    }
    places = [str(item) for pair in folders.items() for item in pair]
    return dbtRunner().invoke([*arguments, *places])


def _invocation_id(result: object) -> str:
    metadata = getattr(result, "metadata", None)
    return str(getattr(metadata, "invocation_id", "") or "")


def build(
    lake: Lake,
    pipeline_version: str,
    *,
    full_refresh: bool = False,
    sources: Sequence[str] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> DbtOutcome:
    """Build and test models; what failed as a whole becomes a dead letter in the same run.

    A model that met the commit of another writer is tried again, with what hangs on it.

    Args:
        lake: The lake.
        pipeline_version: For the record.
        full_refresh: Build derived tables anew; evidence is never.
        sources: Bronze tables: only what hangs on them is built. None builds every model.
        sleep: Waits so many seconds.
    """
    quiet = ["--log-level", "none", "--log-level-file", "debug"]
    command = [*quiet, "build", *(["--full-refresh"] if full_refresh else [])]
    chosen = ["--select", *(f"source:bronze.{name}+" for name in sources)] if sources else []
    outcome = invoke_dbt(lake, [*command, *chosen])
    for attempt in range(1, MERGE_ATTEMPTS):
        if not outcome.conflicts:
            break
        pause = random.uniform(0, BACKOFF_SECONDS * 2**attempt)
        log.warning(
            "merge: another writer committed to the table of %s meanwhile; attempt %d of %d in %.1f s.",
            ", ".join(failure.node for failure in outcome.conflicts),
            attempt + 1,
            MERGE_ATTEMPTS,
            pause,
        )
        sleep(pause)
        outcome = _try_again(lake, command, outcome)
    if outcome.failures:
        record_failures(lake, outcome, pipeline_version, datetime.now(UTC))
        # What hangs on the failed model was skipped, the dead letters perhaps among it. They read
        # verdicts and the operational tables, so they can be built all the same.
        invoke_dbt(lake, [*quiet, "run", "--select", "dead_letters", "dead_letter_summary"])
    return outcome


def _try_again(lake: Lake, command: Sequence[str], outcome: DbtOutcome) -> DbtOutcome:
    """Build anew what met a conflict and what hangs on it, but for what hangs on another failure too."""
    others = [failure for failure in outcome.failures if not failure.is_conflict]
    exclude = ["--exclude", *(f"{failure.node}+" for failure in others)] if others else []
    again = invoke_dbt(
        lake, [*command, "--select", *(f"{failure.node}+" for failure in outcome.conflicts), *exclude]
    )
    if again.error:
        log.error("dbt could not run once more: %s", again.error)
        return outcome
    return DbtOutcome(
        run_id=again.run_id,
        failures=others + again.failures,
        failed_tests=[name for name in outcome.failed_tests if name not in again.nodes]
        + again.failed_tests,
        skipped=[name for name in outcome.skipped if name not in again.nodes] + again.skipped,
        nodes=outcome.nodes | again.nodes,
    )


def record_failures(lake: Lake, outcome: DbtOutcome, pipeline_version: str, failed_at: datetime) -> None:
    """Keep a row per node that failed as a whole."""
    lake.append(
        "run_failures",
        [
            {
                "failure_id": hashlib.sha256(
                    f"{outcome.run_id}|{failed_at.isoformat()}|{failure.node}".encode()
                ).hexdigest(),
                "run_id": outcome.run_id,
                "node": failure.node,
                "stage": failure.stage,
                "error_type": failure.error_type,
                "error_message": (
                    f"{failure.node} failed as a whole, and what hangs on it was not built: "
                    f"{failure.message} {failure.advice} Nothing is lost: its rows wait in Bronze and "
                    f"in their verdicts."
                ),
                "failed_at": failed_at,
                "pipeline_version": pipeline_version,
            }
            for failure in outcome.failures
        ],
    )


def project_hash() -> str:
    """Hash of everything that decides what dbt builds: did the project change since the last run?"""
    digest = hashlib.sha256()
    for folder in ("dbt_project/models", "macros", "seeds", "tests/dbt"):
        for path in sorted((PROJECT_ROOT / folder).rglob("*")):
            if path.is_file():
                digest.update(path.relative_to(PROJECT_ROOT).as_posix().encode())
                digest.update(path.read_bytes())
    digest.update((PROJECT_DIR / "dbt_project.yml").read_bytes())
    return digest.hexdigest()


def models_dir() -> Path:
    """Where the contracts are."""
    return PROJECT_DIR / "models" / "bronze"


def silver_dir() -> Path:
    """Where the contracts of what records hold many of are, beside the other Silver models."""
    return PROJECT_DIR / "models" / "silver"
