"""The command ``lakehouse alert``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ingest.cli_options import lake_option, operator
from ingest.lake import Lake

# What reads tables is imported where it is needed, so that help is quick.
if TYPE_CHECKING:
    from ingest.alerting.ledger import AlertEvent


@dataclass(frozen=True)
class _Terminal:
    """Standard output as a receiver: the command itself."""

    fmt: str
    name: str = "stdout"
    told: list[AlertEvent] = field(default_factory=list)

    def send(self, lake: Path, events: Sequence[AlertEvent], sent_at: datetime) -> None:
        """See ``ingest.alerting.receivers.Receiver``."""
        from ingest.alerting.payload import as_json, lines, make_payload
        from ingest.query import terminal_safe

        self.told.extend(events)
        if self.fmt == "json":
            click.echo(as_json(make_payload(lake, events, sent_at)))
        else:
            for line in lines(events):
                click.echo(terminal_safe(line))


@click.command()
@lake_option
@click.option(
    "--format",
    "fmt",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="What is printed: a line for each alert, or the JSON that receivers get.",
)
@click.option("--dry-run", is_flag=True, help="Print all that stands; tell and keep nothing.")
def alert(lake_path: Path, fmt: str, dry_run: bool) -> None:
    """Look at the thresholds of the contracts, and tell each alert once until it changes.

    It is printed, and sent to the file, the webhook and the mail addresses that the environment names
    (LAKEHOUSE_ALERT_FILE, LAKEHOUSE_ALERT_WEBHOOK_URL, LAKEHOUSE_ALERT_SMTP_URL and others, see
    docs/alerts.md). Every run does the same at its end. No Spark is needed.

    Exit code 0 when nothing is new, also while alerts stand that were told before; 1 when one is new
    or got worse, or a receiver could not be told; 2 for wrong use.

    Example: lakehouse alert --lake lake

    Example: lakehouse alert --lake lake --format json
    """
    from ingest.alerting import ledger
    from ingest.alerting.receivers import receivers_of
    from ingest.alerting.telling import evaluate, find
    from ingest.query import lake_tables

    lake, now = Lake(lake_path), datetime.now(UTC)
    lake_tables(lake_path)
    terminal = _Terminal(fmt)
    if dry_run:
        book = ledger.Ledger()
        book.add(book.decide(find(lake, now), now))
        if book.standing or fmt == "json":
            terminal.send(lake.path, book.standing, now)
        else:
            click.echo("No threshold is passed.")
        return
    told = evaluate(lake, [terminal, *receivers_of(os.environ)], now)
    if not terminal.told and fmt == "json":
        terminal.send(lake.path, [], now)
    elif not terminal.told:
        standing = len(told.standing)
        more = f" Alerts that were told before and stand: {standing}; --dry-run prints them."
        click.echo("Nothing new." + (more if standing else ""))
    bad = any(event.status != "resolved" for event in terminal.told)
    sys.exit(1 if bad or told.failed else 0)


@click.command()
@click.argument("batch_id", required=False)
@lake_option
@click.option("--dataset", help="Of which dataset.")
@click.option("--because", default="", metavar="TEXT", help="Why; needed with a batch.")
@click.option("--actor", default=operator, show_default="the system's user", help="Who does it.")
def release(
    batch_id: str | None, lake_path: Path, dataset: str | None, because: str, actor: str
) -> None:
    """Let a batch into Silver that its contract's stop_above holds back; without one, list them.

    The next run moves what is accepted of it. What was refused stays in quarantine. A mended contract
    releases a batch by itself.

    Example: lakehouse release

    Example: lakehouse release 20240501T120000000000Z-0a1b2c --dataset orders --because "returns, T-12"
    """
    from ingest.errors import InputError
    from ingest.release import release as let_in
    from ingest.release import stopped_batches

    lake = Lake(lake_path)
    if batch_id is None:
        stopped = stopped_batches(lake)
        for item in stopped:
            click.echo(item.told)
        if not stopped:
            click.echo("No batch is stopped.")
        return
    if dataset is None:
        raise InputError("A batch may hold several datasets. Name one with --dataset.")
    for item in let_in(lake, batch_id, dataset, actor, because, datetime.now(UTC)):
        click.echo(f"The next run takes {item.held:,} records of {item.record_type} to Silver.")
