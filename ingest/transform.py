"""Running dbt in this process, on the session that is there, and keeping what failed."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from ingest.environment import JARS_DIR, PROJECT_ROOT
from ingest.lake import Lake

PROJECT_DIR = PROJECT_ROOT / "dbt_project"
PROFILES_DIR = PROJECT_ROOT / "profiles"
CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")
_MERGE_CONDITIONS = re.compile(
    r"DELTA_MULTIPLE_SOURCE_ROW|DELTA_MERGE|CONCURRENT|DELTA_SCHEMA|DELTA_FAILED_TO_MERGE|APPEND_ONLY"
)
MESSAGE_LENGTH = 4000


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
        return "merge" if _MERGE_CONDITIONS.search(self.message) else "transformation"


@dataclass
class DbtOutcome:
    """What a dbt invocation left."""

    run_id: str = ""
    failures: list[NodeFailure] = field(default_factory=list)
    failed_tests: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    error: str | None = None

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
    from dbt.cli.main import dbtRunner

    os.environ["LAKE"] = str(lake.path)
    os.environ["LAKEHOUSE_JARS"] = str(JARS_DIR)
    folders = {
        "--project-dir": PROJECT_DIR,
        "--profiles-dir": PROFILES_DIR,
        "--target-path": lake.state / "dbt",
        "--log-path": lake.state / "dbt",
    }
    places = [str(item) for pair in folders.items() for item in pair]
    result = dbtRunner().invoke([*arguments, *places])
    outcome = DbtOutcome()
    if result.exception is not None:
        outcome.error = str(result.exception)
    outcome.run_id = _invocation_id(result.result)
    for item in getattr(result.result, "results", None) or []:
        node = item.node
        status = str(item.status)
        if status == "skipped":
            outcome.skipped.append(node.name)
        elif status == "fail":
            outcome.failed_tests.append(node.name)
        elif status == "error":
            # What follows is the whole statement; dbt's log has it.
            said = str(item.message or "").split("== SQL ==")[0]
            message = " ".join(said.split())[:MESSAGE_LENGTH]
            outcome.failures.append(NodeFailure(node.name, str(node.resource_type), message))
    return outcome


def _invocation_id(result: object) -> str:
    metadata = getattr(result, "metadata", None)
    return str(getattr(metadata, "invocation_id", "") or "")


def build(
    lake: Lake,
    pipeline_version: str,
    *,
    full_refresh: bool = False,
    sources: Sequence[str] | None = None,
) -> DbtOutcome:
    """Build and test models; what failed as a whole becomes a dead letter in the same run.

    Args:
        lake: The lake.
        pipeline_version: For the record.
        full_refresh: Build derived tables anew; evidence is never.
        sources: Bronze tables: only what hangs on them is built. None builds every model.
    """
    quiet = ["--log-level", "none", "--log-level-file", "debug"]
    extra = ["--full-refresh"] if full_refresh else []
    if sources:
        extra += ["--select", *(f"source:bronze.{name}+" for name in sources)]
    outcome = invoke_dbt(lake, [*quiet, "build", *extra])
    if outcome.failures:
        record_failures(lake, outcome, pipeline_version, datetime.now(UTC))
        # What hangs on the failed model was skipped, the dead letters perhaps among it. They read
        # verdicts and the operational tables, so they can be built all the same.
        invoke_dbt(lake, [*quiet, "run", "--select", "dead_letters", "dead_letter_summary"])
    return outcome


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
                    f"{failure.message} Mend the model and run again; nothing of Bronze is lost."
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
