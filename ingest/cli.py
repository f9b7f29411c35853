"""The command line: ``lakehouse``. It and the groups that it includes are what prints."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ingest.alerting.command import alert, release
from ingest.cli_feeds import catalogue, fetch
from ingest.cli_loading import daily, history
from ingest.cli_messages import messages
from ingest.cli_options import (
    dataset_option,
    format_option,
    input_option,
    lake_option,
    retry_option,
)
from ingest.errors import InputError, LakehouseError
from ingest.inspection.command import inspect
from ingest.lake import Lake, is_table
from ingest.lock import LakeLock
from ingest.metrics.command import metrics
from ingest.office.commands import quarantine, replay
from ingest.privacy.command import forget, purge

log = logging.getLogger("lakehouse")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Dirty files into judged, tested Delta tables: nothing lost, doubled or left without a reason."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    log.setLevel(logging.INFO)


@cli.command()
@input_option
@lake_option
@dataset_option
@retry_option
def ingest(inputs: Sequence[str], lake_path: Path, dataset: str | None, retry_failed: bool) -> None:
    """Read new files into Bronze, and nothing more.

    Example: lakehouse ingest --input samples --lake lake
    """
    from ingest.main_job import Options, Phases, ingest_new

    options = Options(inputs, dataset, retry_failed)
    with LakeLock(lake_path, "ingest"):
        batch, _ = ingest_new(Lake(lake_path), options, "ingest", Phases(), builds=False)
    click.echo(f"Batch {batch} is in Bronze." if batch else "Nothing new: every file is known.")


@cli.command()
@input_option
@lake_option
@dataset_option
@retry_option
@click.option("--full-refresh", is_flag=True, help="Build derived tables anew; evidence stays.")
def run(
    inputs: Sequence[str],
    lake_path: Path,
    dataset: str | None,
    retry_failed: bool,
    full_refresh: bool,
) -> None:
    """The main job: new files to Bronze, verdicts, Silver, quarantine, marts, tests, summary.

    Exit code 0 also when records were refused; 1 when a law is broken, a rule of severity fail
    struck or a model failed; 2 for wrong use.

    Example: lakehouse run --input samples --lake lake
    """
    # Here and below: what needs Spark is imported when it is needed, so that help and SQL are quick.
    from ingest.main_job import Options, run_main_job

    options = Options(inputs, dataset, retry_failed, full_refresh)
    with LakeLock(lake_path, "run"):
        sys.exit(run_main_job(Lake(lake_path), options))


@cli.command()
@lake_option
@click.argument("query", required=False)
@format_option
def sql(lake_path: Path, query: str | None, fmt: Any) -> None:
    """Ask the lake in SQL, without Spark; without a query, open a prompt.

    Example: lakehouse sql --lake lake "select * from marts.dead_letter_summary"
    """
    from ingest.query import run_query, shell

    if query is None:
        shell(lake_path)
    else:
        click.echo(run_query(lake_path, query, fmt), nl=False)


@cli.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("samples"), show_default=True)
@click.option("--entries", type=click.IntRange(min=0), default=60, show_default=True)
@click.option("--orders", type=click.IntRange(min=0), default=6000, show_default=True)
@click.option(
    "--messages",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Lines of JSON messages.",
)
@click.option("--faults", default="all", show_default=True, help="all, none, or names with commas.")
@click.option("--seed", type=int, default=1, show_default=True)
def sample(out: Path, entries: int, orders: int, messages: int, faults: str, seed: int) -> None:
    """Write small dirty samples with known numbers, and print these as JSON.

    Example: lakehouse sample --out samples --entries 60 --orders 6000 --faults all
    """
    from dataclasses import asdict

    from ingest.sample import generate

    chosen: bool | list[str] = faults == "all"
    if faults not in ("all", "none"):
        chosen = [name.strip() for name in faults.split(",")]
    manifest = generate(out, entries=entries, orders=orders, faults=chosen, seed=seed)
    told = asdict(manifest)
    if messages:
        from ingest.messages.sample import generate_messages

        told["messages"] = asdict(generate_messages(out / "messages", messages=messages, seed=seed))
    click.echo(json.dumps(told, indent=1, sort_keys=True, default=str))


@cli.command(name="docs")
@lake_option
@click.option("--serve", is_flag=True, help="Serve the site on localhost until interrupted.")
@click.option("--port", type=int, default=8080, show_default=True)
def docs_command(lake_path: Path, serve: bool, port: int) -> None:
    """Build the site of tables, columns and lineage, and say where it is.

    Example: lakehouse docs --lake lake
    """
    from ingest.main_job import session_starter
    from ingest.transform import invoke_dbt

    lake = Lake(lake_path)
    if not is_table(lake.table_path("bronze", "batches")):
        raise InputError(f"{lake_path} is no lake yet. Run 'make run' first, then 'make docs'.")
    if serve:
        if not (lake.state / "dbt" / "index.html").is_file():
            raise InputError("The site is not built yet. Run 'make docs' first.")
        invoke_dbt(lake, ["docs", "serve", "--port", str(port)])
        return
    session_starter(lake, 0)()
    outcome = invoke_dbt(lake, ["--quiet", "docs", "generate", "--static"])
    if outcome.error:
        click.echo(f"dbt could not build the site: {outcome.error}", err=True)
        sys.exit(1)
    click.echo(f"The site is {lake.state / 'dbt' / 'static_index.html'}")


@cli.command()
@click.option(
    "--input",
    "inputs",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="Folder with ATOM pages.",
)
@click.option("--out", type=click.Path(path_type=Path), default=Path("bench"), show_default=True)
@click.option(
    "--part",
    "parts",
    type=click.Choice(["run", "capture", "hostile", "growth", "messages"]),
    multiple=True,
    help="Only this: the main job, files to Bronze beside Spark's readers, pages made to be slow, a "
    "year and days on it, or JSON messages.",
)
@click.option(
    "--megabytes",
    type=click.IntRange(min=1),
    multiple=True,
    help="Size of the year in MB, the pages repeated under new ids; 30 and 300 where not given.",
)
def bench(inputs: Path, out: Path, parts: Sequence[str], megabytes: Sequence[int]) -> None:
    """Measure a run, its parts and how they grow; print a table and write JSON.

    Example: lakehouse bench --input samples --out bench --part growth --megabytes 3 --megabytes 30
    """
    from ingest.bench import MEGABYTES, PARTS, run_bench
    from ingest.main_job import make_console

    file = run_bench(inputs, out, make_console(), parts=parts or PARTS, megabytes=megabytes or MEGABYTES)
    click.echo(f"Written: {file}")


cli.add_command(catalogue)
cli.add_command(fetch)
cli.add_command(history)
cli.add_command(daily)
cli.add_command(inspect)
cli.add_command(messages)
cli.add_command(replay)
cli.add_command(alert)
cli.add_command(release)
cli.add_command(metrics)
cli.add_command(purge)
cli.add_command(forget)


@cli.group()
def contract() -> None:
    """Contracts of record types."""


@contract.command(name="check")
def contract_check() -> None:
    """Check all contracts: every error with file and line, what, why, how.

    Example: lakehouse contract check
    """
    from ingest.contracts import ChildContract, Contract, load_children, load_contracts
    from ingest.messages.targets import load_targets
    from ingest.messages.verdicts import vet_rules
    from ingest.session import start_session
    from ingest.transform import models_dir, silver_dir
    from ingest.vetting import vet

    contracts = load_contracts(models_dir())
    children = load_children(silver_dir())
    targets = load_targets(models_dir())
    spark = start_session()
    vet(spark, contracts, children)
    for target in targets.values():
        vet_rules(spark, target, target.schema)
    items: list[Contract | ChildContract] = [*contracts.values(), *children]
    for item in items:
        click.echo(f"{item.record_type}: {len(item.fields)} fields, {len(item.rules)} rules, sound.")
    for target in targets.values():
        columns, rules = len(target.schema.fields), len(target.rules)
        click.echo(f"{target.name}: {columns} columns to begin with, {rules} rules, sound.")


cli.add_command(quarantine)


@contract.command(name="new")
@click.argument("name")
@click.argument("sample", type=click.Path(path_type=Path))
@click.option("--owner", default="nobody yet", show_default=True, help="Team that works off refusals.")
def contract_new(name: str, sample: Path, owner: str) -> None:
    """Propose a contract and its models from a sample file, to start from.

    Nothing is overwritten. No Spark is needed.

    Example: lakehouse contract new parcels parcels_2024-05.csv --owner depot
    """
    from ingest.contracts import load_contracts
    from ingest.proposal import propose
    from ingest.proposal_files import write
    from ingest.transform import PROJECT_DIR, models_dir

    proposal = propose(name, sample, load_contracts(models_dir()), owner)
    written = write(proposal, PROJECT_DIR)
    load_contracts(models_dir())
    click.echo(f"{proposal.records:,} records, {proposal.corrupt:,} of them corrupt.")
    for finding in proposal.findings:
        click.echo(finding)
    click.echo(f"Key: {', '.join(proposal.key)} ({proposal.key_evidence}).")
    click.echo(f"Order: {proposal.order_by}.")
    for column in proposal.columns:
        total = column.values + column.nulls
        said = f", perhaps personal ({column.pii})" if column.pii else ""
        click.echo(f"  {column.name}: {column.type.label}, {column.nulls / total:.1%} empty{said}")
        for evidence in column.against:
            click.echo(f"    {evidence}")
    for rule in proposal.rules:
        click.echo(f"  {rule.code} ({rule.severity}) {rule.evidence}")
    click.echo("Written: " + ", ".join(str(path) for path in written))
    click.echo(f"Edit {written[0]}, then: lakehouse contract check, and make run.")


def main() -> int:
    """Entry point: a user's error is one line and exit code 2."""
    try:
        cli.main(standalone_mode=False)
    except LakehouseError as error:
        from ingest.query import terminal_safe

        # A message may quote a record.
        click.echo(terminal_safe(f"lakehouse: {error}"), err=True)
        return error.exit_code
    except click.exceptions.Abort:
        click.echo("lakehouse: interrupted. What was finished stays; run again to go on.", err=True)
        return 130
    except click.ClickException as error:
        error.show()
        return 2
    except OSError as error:
        click.echo(f"lakehouse: {error}. Nothing half-written counts; mend it and run again.", err=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
