"""One lake for the whole run, the samples, ingested, judged and tested once; copies of the project."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ingest.environment import PROJECT_ROOT
from ingest.lake import Lake
from ingest.main_job import Options, run_main_job
from ingest.query import connect
from ingest.sample import Manifest, generate

# What says when or by which batch something was written, and nothing of what it is.
RUN_TIME = {
    "_judged_at", "_decided_at", "detected_at", "judged_at", "checked_at", "processing_timestamp",
    "_verdict_pass",
}  # fmt: skip


def rows(lake: Lake, sql: str) -> list[tuple[object, ...]]:
    with connect(lake.path) as connection:
        return connection.execute(sql).fetchall()


# What two lakes that took the same files in different batches do not share.
OF_A_BATCH = {"_batch_id", "batch_id", "_ingested_at", "first_seen_at", "last_seen_at"}


def table_contents(lake: Lake, aside: set[str] | None = None) -> dict[str, list[str]]:
    contents = {}
    with connect(lake.path) as connection:
        for schema, table in lake.tables():
            if schema == "bronze" or table == "dead_letters":
                continue
            columns = [
                c[0]
                for c in connection.execute(f"describe {schema}.{table}").fetchall()
                if c[0] not in RUN_TIME | (aside or set())
            ]
            quoted = ", ".join(f'"{c}"' for c in columns)
            contents[table] = sorted(
                repr(row)
                for row in connection.execute(f"select {quoted} from {schema}.{table}").fetchall()
            )
    return contents


@dataclass(frozen=True)
class SampleLake:
    """The samples, what is known of them, and the lake that a run made of them."""

    samples: Path
    manifest: Manifest
    lake: Lake
    exit_code: int


@pytest.fixture(scope="session")
def sample_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SampleLake]:
    samples = tmp_path_factory.mktemp("samples")
    # A blank, an accent and a percent sign: names that break manifests and globs elsewhere.
    manifest = generate(samples, entries=40, orders=600)
    odd = samples / "sub folder" / "%20 año"
    odd.mkdir(parents=True)
    page = sorted(samples.glob("CPM_*.atom"))[0]
    page.rename(odd / page.name)
    lake = Lake(tmp_path_factory.mktemp("lake") / "lake")
    code = run_main_job(lake, Options(inputs=(str(samples),)))
    yield SampleLake(samples, manifest, lake, code)


@dataclass(frozen=True)
class Checkout:
    """A copy of the project that may be changed, with this environment and these jars."""

    root: Path

    def environment(self) -> dict[str, str]:
        """What a shell in the copy knows: nothing that this process set for its own lake."""
        ours = ("LAKE", "LAKEHOUSE_JARS", "SPARK_", "PYSPARK_")
        kept = {name: text for name, text in os.environ.items() if not name.startswith(ours)}
        # Else the linked environment imports the checkout in which it was made.
        return {**kept, "PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "1"}

    def shell(self, command: str, **options: str) -> subprocess.CompletedProcess[str]:
        """Run a command as the README's reader does, standard error among the output."""
        return subprocess.run(
            ["sh", "-c", command],
            cwd=self.root,
            env={**self.environment(), "PWD": str(self.root)},
            stdin=None if "input" in options else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **options,
        )


def copy_checkout(root: Path) -> Checkout:
    """Copy what git has or would take."""
    told = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT_ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in filter(None, told.stdout.split("\0")):
        source, copy = PROJECT_ROOT / name, root / name
        if source.is_symlink() or source.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy, follow_symlinks=False)
        if copy.suffix == ".lock":
            # Older than the environment that is linked in: make need not look at it again.
            os.utime(copy, (0, 0))
    for name in (".venv", ".jars"):
        (root / name).symlink_to(PROJECT_ROOT / name)
    return Checkout(root)
