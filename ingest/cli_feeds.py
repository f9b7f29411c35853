"""Commands about what feeds publish: their code lists, and their files."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from ingest.cli_options import lake_option
from ingest.environment import pipeline_version
from ingest.errors import FetchError, InputError
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


@click.command()
@click.option("--dataset", help="Which dataset; with --since-last all of them if it is left out.")
@click.option("--year", type=int, help="The archive of a year.")
@click.option("--month", type=click.IntRange(1, 12), help="With --year: the archive of a month.")
@click.option(
    "--since-last", is_flag=True, help="The newest page, and those before it until known ground."
)
@click.option(
    "--until",
    type=click.DateTime(["%Y-%m-%d"]),
    help="With --since-last: go back no further than this day, in UTC.",
)
@click.option(
    "--forget-gap", is_flag=True, help="With --since-last: give up what the last walk did not reach."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder to fetch to. [default: landing/<dataset>]",
)
@click.option(
    "--feeds",
    "feeds_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Another file of feeds and allowed origins than the project's.",
)
@lake_option
def fetch(
    dataset: str | None,
    year: int | None,
    month: int | None,
    since_last: bool,
    until: datetime | None,
    forget_gap: bool,
    out: Path | None,
    feeds_file: Path | None,
    lake_path: Path,
) -> None:
    """Bring published files into a landing folder: an archive, or the pages since the last time.

    Broken downloads are gone on with, and what has not changed is not fetched again. Nothing is
    fetched from hosts that the file of feeds does not allow. The lake is only read: pages that it
    knows are known ground.

    Example: lakehouse fetch --dataset menores --year 2020 --month 6

    Example: lakehouse fetch --since-last
    """
    if since_last == (year is not None):
        raise InputError("Say what to fetch: either --year, with or without --month, or --since-last.")
    if year is None and month is not None:
        raise InputError("A month is one of a year. Give --year too.")
    if year is not None and (until or forget_gap):
        raise InputError("--until and --forget-gap are about --since-last. Leave them out with --year.")
    if dataset is None and (year is not None or out is not None):
        raise InputError("Say of which dataset with --dataset, for example --dataset menores.")

    from ingest.download import Downloader
    from ingest.feeds import FEEDS_FILE, load_feeds
    from ingest.fetch import Landing

    feeds = load_feeds(feeds_file or FEEDS_FILE)
    downloader = Downloader(feeds.allowed, feeds.limits)
    known = Lake(lake_path).known_contents()
    failures: list[str] = []
    ready: list[Path] = []
    for name in [dataset] if dataset else sorted(feeds.datasets):
        landing = Landing(out or Path("landing") / name, feeds.feed(name), downloader, feeds.limits)
        count = 0
        try:
            if year is not None:
                files = iter([landing.fetch_archive(year, month)])
            else:
                back = until.replace(tzinfo=UTC) if until else None
                files = landing.fetch_since_last(known, until=back, forget_gap=forget_gap)
            for file in files:
                count += file.status == "new"
                ready.append(file.path if year is not None else file.path.parent)
                click.echo(f"{name}: {file.status}, {file.size_bytes:,} bytes: {file.path}")
        except FetchError as error:
            # One feed's fault does not keep the others from coming.
            failures.append(str(error))
        click.echo(f"{name}: {count} new file(s)")
    if ready:
        inputs = " ".join(f"--input '{path}'" for path in dict.fromkeys(ready))
        click.echo(f"Next: lakehouse run {inputs} --lake '{lake_path}'")
    if failures:
        raise FetchError("\n  ".join(failures))
