"""The command about JSON messages: ``lakehouse messages``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ingest.cli_options import input_option, lake_option
from ingest.lake import Lake
from ingest.lock import LakeLock

if TYPE_CHECKING:
    from ingest.messages.job import Outcome


@click.command()
@input_option
@lake_option
def messages(inputs: Sequence[str], lake_path: Path) -> None:
    """Take new JSON messages to their targets, and try those again that wait.

    Files are JSON lines: .jsonl or .ndjson, also .gz. Each start takes what is new and ends; call it at
    least once per schema window. Exit code 0 also when messages were refused; 1 when a message is
    astray, or a file or a target could not be worked on.

    Example: lakehouse messages --input landing/messages
    """
    from ingest.messages.job import run_messages
    from ingest.messages.targets import load_targets
    from ingest.transform import models_dir

    targets = load_targets(models_dir())
    with LakeLock(lake_path, "messages"):
        outcome = run_messages(Lake(lake_path), inputs, targets)
    for line in told(outcome):
        click.echo(line)
    sys.exit(outcome.exit_code)


def told(outcome: Outcome) -> list[str]:
    """What a run did and where all messages are, a line each."""
    counts = outcome.counts
    lines = [f"Received {outcome.received:,} lines. Of all {counts.lines:,} that were ever received:"]
    lines += [f"  {number:>10,} in silver.{name}" for name, number in counts.landed.items()]
    lines += [
        f"  {counts.waiting:>10,} wait, in bronze.messages_waiting",
        f"  {counts.bad_data:>10,} were given up, in bronze.bad_data",
        f"  {counts.refused:>10,} were refused at once, in bronze.messages with a stage",
        f"  {counts.repeats:>10,} repeat another, in bronze.messages with is_repeat",
    ]
    for name, plan in outcome.plans.items():
        shapes = len(plan.granted)
        lines.append(f"silver.{name} was altered once for {shapes:,} shapes; see bronze.schema_changes.")
    lines += [f"Not done: {trouble}" for trouble in outcome.troubles]
    if counts.astray or counts.balance:
        lines.append(
            f"BROKEN: {len(counts.astray)} or more messages are in no place or in several, balance "
            f"{counts.balance}: {', '.join(counts.astray)}. Delete nothing, and report it."
        )
    else:
        lines.append("Every message is in one place.")
    return lines
