"""Commands that load much, and every day: ``lakehouse history`` and ``lakehouse daily``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from ingest.cli_options import (
    dataset_option,
    follow_option,
    input_option,
    interval_option,
    lake_option,
    retry_option,
)
from ingest.lake import Lake
from ingest.lock import LakeLock


@click.command()
@click.option("--dataset", required=True, help="Which dataset, as the contract names it.")
@click.option("--year", type=click.IntRange(1990, 2100), required=True, help="Which year.")
@input_option
@lake_option
@click.option(
    "--build",
    type=click.Choice(["end", "each"]),
    default="end",
    show_default=True,
    help="Judge and test at the end, or after each batch too.",
)
@click.option(
    "--batch-megabytes",
    type=click.IntRange(min=1),
    default=250,
    show_default=True,
    help="Size of a batch: what a kill costs.",
)
@retry_option
def history(
    dataset: str,
    year: int,
    inputs: Sequence[str],
    lake_path: Path,
    build: str,
    batch_megabytes: int,
    retry_failed: bool,
) -> None:
    """Load a year of a dataset, in batches; killed, it goes on where it was.

    Only files of that year and dataset are taken; the others are left and named. Exit codes are
    those of lakehouse run.

    Example: lakehouse history --dataset menores --year 2020 --input landing/menores
    """
    from ingest.history import HistoryOptions, load_history

    options = HistoryOptions(
        inputs, dataset, year, batch_megabytes * 1_000_000, build == "each", retry_failed
    )
    with LakeLock(lake_path, "history"):
        sys.exit(load_history(Lake(lake_path), options))


@click.command()
@input_option
@lake_option
@dataset_option
@follow_option
@interval_option(" at the folder")
def daily(
    inputs: Sequence[str], lake_path: Path, dataset: str | None, follow: bool, interval: int
) -> None:
    """Take what is new in a landing folder, through Structured Streaming.

    A stream watches the folder and wakes the ingest; what is new is decided by content, as in
    lakehouse run, and both give the same tables. Without --follow it takes what is there and ends.
    Exit codes are those of lakehouse run.

    Example: lakehouse daily --input landing

    Example: lakehouse daily --input landing --follow --interval 300
    """
    from ingest.daily import DailyOptions, run_daily

    options = DailyOptions(inputs, dataset, follow, interval)
    with LakeLock(lake_path, "daily"):
        sys.exit(run_daily(Lake(lake_path), options))
