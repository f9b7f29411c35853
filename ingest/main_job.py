"""The main job: new files to Bronze, verdicts, Silver, quarantine, marts, tests, summary."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from pyspark.sql import SparkSession
from rich.console import Console

from ingest import ingestion, summary, transform
from ingest.alerting.telling import after_run
from ingest.bronze import add_lineage, create_table
from ingest.contracts import Contract, check_dataset, load_children, load_contracts
from ingest.environment import check_disk, check_java, jar_paths, pipeline_version
from ingest.lake import Lake
from ingest.progress import Progress, make_progress
from ingest.release import stopped_batches
from ingest.session import start_on
from ingest.sources import find_sources
from ingest.vetting import vet

log = logging.getLogger("lakehouse")
# Bronze keeps the text and the parsed fields, Silver the typed ones: about this many times the input.
DISK_FACTOR = 3
MINIMUM_DISK_BYTES = 200_000_000


@dataclass(frozen=True)
class Options:
    """What a user may ask of a run. See the options of ``lakehouse run``."""

    inputs: Sequence[str]
    dataset: str | None = None
    retry_failed: bool = False
    full_refresh: bool = False


class Phases(dict[str, float]):
    """Seconds per phase of a run, in the order in which they began."""

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Add the time that the block takes."""
        began = time.monotonic()
        try:
            yield
        finally:
            self[name] = self.get(name, 0.0) + time.monotonic() - began


def run_main_job(lake: Lake, options: Options, phases: Phases | None = None) -> int:
    """Run the main job. The caller holds the lake's lock.

    Args:
        lake: The lake.
        options: What the user asks for.
        phases: Where the seconds of each phase go, if someone wants them.

    Returns:
        0, also when records were refused; 1 when a law is broken, a rule of severity fail struck,
        or a model failed.

    Raises:
        LakehouseError: Wrong use, or something that the user can mend.
    """
    phases = Phases() if phases is None else phases
    _, session = ingest_new(lake, options, "run", phases)
    return judge_and_report(lake, phases, make_console(), session, full_refresh=options.full_refresh)


def make_console() -> Console:
    """Where reports go. In a log there is no width to keep to, and names cut short help nobody."""
    return Console(width=None if sys.stdout.isatty() else 140)


def judge_and_report(
    lake: Lake,
    phases: Phases,
    console: Console,
    session: Callable[[], SparkSession] | None,
    *,
    full_refresh: bool = False,
) -> int:
    """Build and test all models on what is in Bronze, print the summary, and tell alerts.

    Args:
        lake: The lake.
        phases: Where the seconds of each phase go.
        console: Where the summary goes.
        session: What gives the session; None where nothing came that needed it. Then nothing is
            built either if the last run judged all there is.
        full_refresh: Build derived tables anew.

    Returns:
        See ``run_main_job``.
    """
    code = _judge(lake, phases, console, session, full_refresh=full_refresh)
    after_run(lake, os.environ, console)
    return code


def _judge(
    lake: Lake,
    phases: Phases,
    console: Console,
    session: Callable[[], SparkSession] | None,
    *,
    full_refresh: bool,
) -> int:
    """Build, test and print. See ``judge_and_report``."""
    fingerprint = {"project": transform.project_hash(), "pipeline_version": pipeline_version()}
    state = lake.read_state("last_run")
    if (
        session is None
        and not full_refresh
        and state.get("fingerprint") == fingerprint
        and state.get("versions") == lake.versions()
    ):
        # Nothing came, nobody touched a table, and the same project judged all there is.
        console.print("Nothing new, and nothing changed since the last run judged and tested it.")
        summary.print_summary(lake.path, phases, console)
        return int(state["exit_code"])
    _complete(lake, load_contracts(transform.models_dir()))
    with phases.time("start Spark"):
        (session or session_starter(lake, 0))()
    changed = None
    if not full_refresh and state.get("fingerprint") == fingerprint:
        changed = _changed_sources(state["versions"], lake.versions())
    with phases.time("dbt"):
        outcome = transform.build(lake, pipeline_version(), full_refresh=full_refresh, sources=changed)
    if outcome.error:
        log.error("dbt could not run: %s", outcome.error)
        return 1
    for failure in outcome.failures:
        log.error("%s failed: %s", failure.node, failure.message)
    for name in outcome.skipped:
        log.error("%s was not built, because it hangs on what failed.", name)
    stopped = stopped_batches(lake)
    code = 1 if outcome.failures or outcome.broken_laws or stopped else 0
    if outcome.failures:
        console.print("What failed is as it was before this run; run again when it is mended.")
    else:
        lake.write_state(
            "last_run", {"fingerprint": fingerprint, "versions": lake.versions(), "exit_code": code}
        )
    if set(lake.tables()) >= summary.TABLES:
        checked = "law_results" not in {*outcome.skipped, *(f.node for f in outcome.failures)}
        summary.print_summary(lake.path, phases, console, laws_checked=checked)
    for batch in stopped:
        console.print(f"[bold]Stopped[/bold]: {batch.told}", soft_wrap=True)
    return code


def _changed_sources(before: Mapping[str, int], now: Mapping[str, int]) -> list[str] | None:
    """Bronze tables that changed since all models were built; None where that is not all that did."""
    changed = {name for name in {*before, *now} if before.get(name) != now.get(name)}
    if any(not name.startswith("bronze.") for name in changed):
        return None
    # Every staging model asks which batches are finished: by themselves batches bring nothing.
    return sorted(name.removeprefix("bronze.") for name in changed - {"bronze.batches"})


def ingest_new(
    lake: Lake, options: Options, command: str, phases: Phases, *, builds: bool = True
) -> tuple[str | None, Callable[[], SparkSession] | None]:
    """Look at the input, and write a batch where one is due.

    Args:
        lake: The lake.
        options: What the user asks for.
        command: For the record: what was run.
        phases: Where the seconds of each phase go.
        builds: Whether the models are built afterwards.

    Returns:
        The batch's id or None, and what gives the session; None where Spark was not needed.

    Raises:
        LakehouseError: Wrong use, or something that the user can mend. Nothing was written.
    """
    contracts = usable_contracts(options.dataset)
    progress = make_progress()
    with phases.time("look"):
        findings = ingestion.look(
            list(find_sources(options.inputs)),
            lake,
            contracts,
            progress,
            dataset=options.dataset,
            retry_failed=options.retry_failed,
        )
    if not findings.anything_to_write and _has_tables(lake, contracts):
        _complete(lake, contracts)
        return None, None
    session = session_starter(lake, findings.new_bytes, builds=builds)
    batch = ingest_findings(lake, contracts, findings, command, phases, progress, session)
    return batch, session


def usable_contracts(dataset: str | None) -> dict[str, Contract]:
    """Load the contracts, and check what a run needs before it looks at any file.

    Args:
        dataset: What the user says that files are of, if anything.

    Raises:
        LakehouseError: A contract cannot work, the dataset is unknown, or Java or a jar is missing.
    """
    contracts = load_contracts(transform.models_dir())
    if dataset is not None:
        check_dataset(contracts, dataset)
    check_java()
    jar_paths()
    return contracts


def ingest_findings(
    lake: Lake,
    contracts: dict[str, Contract],
    findings: ingestion.Findings,
    command: str,
    phases: Phases,
    progress: Progress,
    session: Callable[[], SparkSession],
) -> str | None:
    """Write what a look found as one batch, with the tables and vetted rules that it needs.

    Returns:
        The batch's id, or None where there was nothing to write.

    Raises:
        LakehouseError: A rule cannot work, or the disk is too full. Nothing was written.
    """
    check_disk(lake.path, MINIMUM_DISK_BYTES + DISK_FACTOR * findings.new_bytes)
    with phases.time("start Spark"):
        spark = session()
    with phases.time("check rules"):
        _vet_once(spark, lake, contracts)
    lake.create_operations()
    with phases.time("ingest"):
        for contract in contracts.values():
            create_table(spark, lake, contract)
        return ingestion.ingest(
            session,
            lake,
            contracts,
            findings,
            progress,
            command=command,
            pipeline_version=pipeline_version(),
        )


def _vet_once(spark: SparkSession, lake: Lake, contracts: dict[str, Contract]) -> None:
    """Vet contracts that this lake has not seen in this form: the same terms get the same answer."""
    children = load_children(transform.silver_dir())
    vetted = {name: contract.terms_hash for name, contract in contracts.items()}
    vetted |= {child.record_type: child.terms_hash for child in children}
    vetted["pipeline_version"] = pipeline_version()
    if lake.read_state("vetted") != vetted:
        vet(spark, contracts, children)
        lake.write_state("vetted", vetted)


def _complete(lake: Lake, contracts: Mapping[str, Contract]) -> None:
    """Give a lake of an earlier version the tables and columns that models read by now."""
    lake.create_operations()
    for contract in contracts.values():
        add_lineage(lake, contract)


def _has_tables(lake: Lake, contracts: dict[str, Contract]) -> bool:
    return {("bronze", name) for name in contracts} <= set(lake.tables())


def session_starter(lake: Lake, input_bytes: int, *, builds: bool = True) -> Callable[[], SparkSession]:
    """What starts Spark on a lake when it is first asked, and then gives the same session.

    Args:
        lake: The lake.
        input_bytes: Size of what will be read.
        builds: Whether dbt follows; then it reads its project meanwhile.
    """

    @cache
    def start() -> SparkSession:
        if builds:
            transform.parse_meanwhile(lake)
        return start_on(lake, input_bytes=input_bytes)

    return start
