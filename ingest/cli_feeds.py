"""Commands about what feeds publish: their code lists, and their files."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from ingest.cli_options import lake_option
from ingest.environment import pipeline_version
from ingest.lake import Lake
from ingest.lock import LakeLock


@click.group()
def catalogue() -> None:
    """Code lists: the names of the codes that records cite."""


@catalogue.command(name="load")
@click.argument("inputs", nargs=-1, required=True)
@lake_option
def catalogue_load(inputs: Sequence[str], lake_path: Path) -> None:
    """Load code lists in genericode 1.0 (.gc), from folders, files, globs or ZIPs.

    Each version of a list stands beside the others. Known content is skipped. A broken list becomes
    a dead letter of stage catalogue and the others load; the exit code is 0 then too.

    Example: lakehouse catalogue load codice/ --lake lake
    """
    from ingest.catalogue import load_catalogue

    with LakeLock(lake_path, "catalogue load"):
        outcomes = load_catalogue(Lake(lake_path), inputs, pipeline_version=pipeline_version())
    table = Table(title="Code lists")
    for name in ("list", "version", "codes", "result", "file"):
        table.add_column(name, justify="right" if name == "codes" else "left", overflow="fold")
    for item in outcomes:
        codes = f"{item.codes:,}" if item.codes else ""
        table.add_row(item.list_id, item.version, codes, item.status, Path(item.source_file).name)
    # In a log there is no width to keep to, and names cut short help nobody.
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table)
    for item in outcomes:
        if item.message:
            console.print(f"  refused: {item.message}", soft_wrap=True, markup=False)
    counts = Counter(item.status for item in outcomes)
    console.print(", ".join(f"{number} {status}" for status, number in sorted(counts.items())))


@catalogue.command(name="seed")
@click.argument("inputs", nargs=-1, required=True)
@click.option("--list", "lists", multiple=True, required=True, help="As feeds cite it; again for more.")
@click.option(
    "--table",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Tab-separated list, version, code, nombre: for lists without a .gc file.",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The CSV to write.")
def catalogue_seed(inputs: Sequence[str], lists: Sequence[str], table: Path | None, out: Path) -> None:
    """Write the seed of the lists that the project ships.

    Example: lakehouse catalogue seed codice/ --list ContractCode-2.08 --out codes.csv
    """
    from ingest.catalogue import write_seed

    for name, codes in write_seed(inputs, lists, out, table=table).items():
        click.echo(f"{name}: {codes} codes")
