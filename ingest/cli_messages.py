"""The command about JSON messages: ``lakehouse messages``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ingest.cli_options import follow_option, input_option, interval_option, lake_option
from ingest.errors import InputError
from ingest.lake import Lake
from ingest.lock import LakeLock

if TYPE_CHECKING:
    from ingest.messages.job import Outcome


@click.command()
@input_option
@lake_option
@click.option(
    "--audit",
    type=click.Choice(["touched", "full"]),
    default="touched",
    show_default=True,
    help="Look for the messages of this run, or for all and judge them again.",
)
@click.option("--kafka-servers", metavar="HOST:PORT,...", help="Brokers of Kafka to take messages from.")
@click.option("--topic", "topic_names", multiple=True, help="Topic to take; may be given again.")
@click.option(
    "--kafka-option",
    "kafka_options",
    metavar="NAME=VALUE",
    multiple=True,
    help="Option of Spark's Kafka source; a value @path stands in that file. May be given again.",
)
@follow_option
@interval_option("; no more than a schema window")
def messages(
    inputs: Sequence[str],
    lake_path: Path,
    audit: str,
    kafka_servers: str | None,
    topic_names: Sequence[str],
    kafka_options: Sequence[str],
    follow: bool,
    interval: int,
) -> None:
    """Take new JSON messages to their targets, and try those again that wait.

    Files are JSON lines: .jsonl or .ndjson, also .gz. Records of Kafka are a message each. Each start
    takes what is new and ends; call it at least once per schema window, or let it --follow. Exit code 0
    also when messages were refused; 1 when a message is astray, or a file or a target could not be
    worked on.

    Example: lakehouse messages --input landing/messages
    """
    from ingest.messages.job import follow_messages, run_messages
    from ingest.messages.kafka import topics_of
    from ingest.messages.targets import load_targets
    from ingest.transform import models_dir

    targets = load_targets(models_dir())
    topics = topics_of(kafka_servers, topic_names, kafka_options)
    if follow and audit == "full":
        raise InputError("--audit full looks at all there is, once. Leave out --follow, or the audit.")
    if follow:
        with LakeLock(lake_path, "messages"):
            sys.exit(
                follow_messages(
                    Lake(lake_path),
                    inputs,
                    targets,
                    interval_seconds=interval,
                    tell=_tell_look,
                    topics=topics,
                )
            )
    with LakeLock(lake_path, "messages"):
        outcome = run_messages(
            Lake(lake_path), inputs, targets, topics=topics, is_full_audit=audit == "full"
        )
    for line in told(outcome):
        click.echo(line)
    sys.exit(outcome.exit_code)


def _tell_look(outcome: Outcome) -> None:
    """Say what a look did, if it did anything."""
    if outcome.received or outcome.plans or outcome.exit_code:
        for line in told(outcome):
            click.echo(line)


def told(outcome: Outcome) -> list[str]:
    """What a run did and where all messages are, a line each."""
    counts = outcome.counts
    lines = [f"Received {outcome.received:,} lines. Of all {counts.lines:,} that were ever received:"]
    lines += [f"  {number:>10,} in silver.{name}" for name, number in counts.landed.items()]
    lines += [
        f"  {number:>10,} in silver.{name}_quarantine" for name, number in counts.quarantined.items()
    ]
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
    elif counts.is_partial:
        lines.append(
            "Not every message could be looked for, because of a target. Mend it, and run again."
        )
    else:
        lines.append("Every message is in one place.")
    if counts.differing:
        lines.append(
            f"DIFFERS: judged again, {len(counts.differing)} or more messages would be in the other of "
            f"table and quarantine: {', '.join(counts.differing)}. Rules that were changed judge what "
            f"comes after; to judge these anew, replay those in quarantine."
        )
    return lines
