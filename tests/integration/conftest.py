"""What the tests share: the lake of a first run on the samples, a second delivery on it, copies of the
project."""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from ingest.environment import PROJECT_ROOT
from ingest.lake import Lake
from ingest.main_job import Options, run_main_job
from ingest.query import connect, tables_named
from ingest.sample import Manifest, generate
from ingest.session import LONG_RUN_BYTES, start_session

# What says when or by which batch something was written, and nothing of what it is.
RUN_TIME = {
    "_judged_at", "_decided_at", "detected_at", "judged_at", "checked_at", "processing_timestamp",
    "_verdict_pass", "measured_at", "median_age_days", "happened_at",
}  # fmt: skip


def rows(lake: Lake, sql: str) -> list[tuple[object, ...]]:
    with connect(lake.path, tables_named(lake.path, sql)) as connection:
        return connection.execute(sql).fetchall()


def commits(table: Path) -> set[Path]:
    """Commits of a table that brought rows."""
    return {
        commit
        for commit in (table / "_delta_log").glob("*.json")
        if '"add"' in commit.read_text("utf-8")
    }


# What two lakes that took the same files in different batches do not share.
OF_A_BATCH = {
    "_batch_id", "batch_id", "_ingested_at", "first_seen_at", "last_seen_at", "oldest_open_at",
}  # fmt: skip


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


@pytest.fixture(scope="session", autouse=True)
def session() -> None:
    """The one Spark of this process. It runs a dozen builds, so it compiles as a long run does."""
    start_session(input_bytes=LONG_RUN_BYTES)


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


# Reads commands as JSON, a line each, and answers with what each said and its exit code.
SERVE = """
import json, os, sys
answers = os.fdopen(os.dup(1), "w", buffering=1)
streams = [os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND) for path in sys.argv[1:]]
for number, stream in enumerate(streams, 1):
    os.dup2(stream, number)
from ingest.cli import main
for line in sys.stdin:
    began = [os.fstat(stream).st_size for stream in streams]
    sys.argv = ["lakehouse", *json.loads(line)]
    try:
        code = main()
    except SystemExit as ended:
        code = ended.code
    sys.stdout.flush()
    sys.stderr.flush()
    said = [
        os.pread(stream, os.fstat(stream).st_size - at, at).decode("utf-8")
        for stream, at in zip(streams, began)
    ]
    answers.write(json.dumps([code, *said]) + "\\n")
"""


@dataclass(frozen=True)
class Said:
    """What a command said, and how it ended."""

    exit_code: int
    out: str
    errors: str

    @property
    def told(self) -> str:
        """All that it said."""
        return self.out + self.errors


class Lakehouse:
    """Calls `lakehouse` in a copy of the project, all calls in one process, as a context manager.

    A call with a Spark of its own spends more time on starting it than on the little that stories hold.
    """

    def __init__(self, checkout: Checkout, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(folder / "out"), str(folder / "errors")],
            cwd=checkout.root,
            env={**checkout.environment(), "PWD": str(checkout.root)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *command: str) -> Said:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return Said(*json.loads(self._process.stdout.readline()))

    def __enter__(self) -> Lakehouse:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


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


def leave_orders_alone(checkout: Checkout) -> None:
    """Take PLACSP out of a copy of the project: a story about orders then builds a third of it."""
    project = checkout.root / "dbt_project"
    models = project / "models"
    for path in (
        models / "bronze" / "placsp.yml",
        models / "bronze" / "stg_feed_pages.sql",
        *models.rglob("stg_placsp_*.sql"),
        *(models / "silver").rglob("placsp_*.sql"),
    ):
        path.unlink()
    # What the laws hang on, and nothing else of theirs, names single tables.
    laws = models / "marts" / "law_results.sql"
    kept = [line for line in laws.read_text("utf-8").splitlines() if "placsp" not in line]
    laws.write_text("\n".join(kept) + "\n", "utf-8")
    settings = project / "dbt_project.yml"
    known = yaml.safe_load(settings.read_text("utf-8"))
    known["vars"]["record_types"] = {"orders": known["vars"]["record_types"]["orders"]}
    known["vars"]["parents"] = []
    del known["models"]["lakehouse"]["silver"]["placsp"]
    settings.write_text(yaml.safe_dump(known), "utf-8")


@dataclass(frozen=True)
class FirstRun:
    """A copy of the project in which a make target was called, as the first thing."""

    checkout: Checkout
    told: str
    exit_code: int


def call_first(target: str, root: Path) -> FirstRun:
    checkout = copy_checkout(root)
    run = checkout.shell(f"make {target}")
    return FirstRun(checkout, run.stdout, run.returncode)


@pytest.fixture(scope="session")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> FirstRun:
    """After `make run`."""
    return call_first("run", tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="session")
def orders_lab(tmp_path_factory: pytest.TempPathFactory) -> FirstRun:
    """After `make orders-lab`."""
    return call_first("orders-lab", tmp_path_factory.mktemp("lab"))


@dataclass(frozen=True)
class SampleLake:
    """The samples, what is known of them, and the lake that the first run made of them."""

    samples: Path
    manifest: Manifest
    lake: Lake
    exit_code: int


@pytest.fixture(scope="session")
def sample_lake(first_run: FirstRun, tmp_path_factory: pytest.TempPathFactory) -> SampleLake:
    assert first_run.exit_code == 0, first_run.told
    samples, again = first_run.checkout.root / "samples", tmp_path_factory.mktemp("again")
    # As the command line's defaults have it. The same samples made again, so the numbers are theirs.
    manifest = generate(again, entries=60, orders=6000)
    names = sorted(path.name for path in again.iterdir())
    assert filecmp.cmpfiles(samples, again, names, shallow=False) == (names, [], [])
    # The README's commands change the other one.
    lake = Lake(tmp_path_factory.mktemp("lake") / "lake")
    shutil.copytree(first_run.checkout.root / "lake", lake.path)
    return SampleLake(samples, manifest, lake, first_run.exit_code)


# Names that differ by case alone are different names to XML, whichever comes first.
NAMES_BY_CASE = """\
<feed xmlns="http://www.w3.org/2005/Atom"
  xmlns:cbc-place-ext="urn:dgpe:names:draft:codice-place-ext:schema:xsd:CommonBasicComponents-2"
  xmlns:cac-place-ext="urn:dgpe:names:draft:codice-place-ext:schema:xsd:CommonAggregateComponents-2">
<id>https://example.org/sindicacion_643/page.atom</id>
<entry><ID>no</ID><id>https://example.org/case/1</id><ID>no</ID><title>t</title><Title>no</Title>
<updated>2024-07-01T09:00:00.000+02:00</updated>
<link HREF="no" href="https://example.org/yes" Href="no"/>
<cac-place-ext:ContractFolderStatus>
<cbc-place-ext:ContractFolderStatusCode>RES</cbc-place-ext:ContractFolderStatusCode>
</cac-place-ext:ContractFolderStatus></entry></feed>
"""


def copy_golden(folder: Path, *, are_messages: bool) -> Path:
    """Copy golden files as they are to be read this year: those of messages, or all others."""
    golden = PROJECT_ROOT / "tests" / "golden"
    year = datetime.now(UTC).year
    for path in sorted(golden.glob("*/*/*")):
        if (path.suffix == ".jsonl") != are_messages:
            continue
        copy = folder / path.relative_to(golden)
        copy.parent.mkdir(parents=True, exist_ok=True)
        # The last year that a rule lets through moves with the clock, and its golden row with it.
        copy.write_bytes(
            re.sub(
                rb"@year\+(\d+)@", lambda found: b"%d" % (year + int(found.group(1))), path.read_bytes()
            )
        )
    return folder


@pytest.fixture(scope="session")
def golden_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden files of what the main job reads."""
    return copy_golden(tmp_path_factory.mktemp("golden"), are_messages=False)


@pytest.fixture(scope="session")
def grown_lake(
    sample_lake: SampleLake, golden_files: Path, tmp_path_factory: pytest.TempPathFactory
) -> Lake:
    """A copy of the lake with a second delivery on top, incrementally: the golden files among it."""
    lake = Lake(tmp_path_factory.mktemp("grown") / "lake")
    shutil.copytree(sample_lake.lake.path, lake.path)
    # A blank, an accent and a percent sign: names that break manifests and globs elsewhere.
    more = tmp_path_factory.mktemp("more") / "sub folder" / "%20 año"
    generate(more, entries=10, orders=100, seed=2)
    # Known bytes under another name, and an older version of an order that is there.
    shutil.copy(sample_lake.samples / "orders_dirty.csv", more / "orders_again.csv")
    (more / "orders_old.csv").write_text(
        "order_id,customer_id,sku,qty,order_ts,channel,note\n"
        + rows(lake, "select order_id from silver.orders order by 1 limit 1")[0][0]  # type: ignore[operator]
        + ",C-1,SKU-1,7,1999-01-01 00:00:00,web,late\n"
    )
    page = "licitacionesPerfilesContratanteCompleto3_20240701_090000.atom"
    shutil.copy(Path(__file__).parent / "damaged_children.atom", more / page)
    (more / page.replace("09", "10")).write_text(NAMES_BY_CASE)
    original = sample_lake.lake.versions()
    assert run_main_job(lake, Options(inputs=(str(more), str(golden_files)))) == 0
    assert sample_lake.lake.versions() == original, "a copy never touches its original"
    return lake
