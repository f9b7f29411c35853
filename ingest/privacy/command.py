"""The commands ``lakehouse purge`` and ``lakehouse forget``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ingest.cli_options import lake_option, operator
from ingest.errors import InputError
from ingest.lake import Lake
from ingest.lock import LakeLock

# What reads tables is imported where it is needed, so that help is quick.
if TYPE_CHECKING:
    from ingest.privacy.finding import Finder, Plan
    from ingest.privacy.identifier import Identifier

_SHOWN = 20
_Command = TypeVar("_Command", bound=Callable[..., Any])


def _removal_options(command: _Command) -> _Command:
    options = (
        click.option(
            "--landing",
            multiple=True,
            type=click.Path(path_type=Path),
            help="Folder of files that were ingested: those that hold what goes are removed as a whole; "
            "again.",
        ),
        click.option(
            "--logs",
            multiple=True,
            type=click.Path(path_type=Path),
            help="Folder outside of the lake of nothing but logs, Spark's event logs or checkpoints: "
            "purge removes all files in it, forget those with the value; again.",
        ),
        click.option("--evidence", metavar="TEXT", help="A ticket, a link; never the value itself."),
        click.option("--actor", default=operator, show_default="the system's user", help="Who does it."),
        click.option("--dry-run", is_flag=True, help="List what would be removed, and remove nothing."),
        click.option("--yes", is_flag=True, help="Do not ask: what is removed cannot be had back."),
        lake_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.option("--because", default="retention", show_default=True, metavar="TEXT", help="Why.")
@_removal_options
def purge(because: str, **options: Any) -> None:
    """Remove the texts of refused records that were kept longer than their contract allows.

    The contract says under `retention` how long a record may stay in a state. Texts and fields go from
    every table, from Delta's history, from re-entry files and dbt's logs; the record's id, place,
    hash and story stay. Cut short, the same again completes it. See docs/privacy.md.

    Example: lakehouse purge --lake lake --dry-run

    Example: lakehouse purge --lake lake --landing landing --yes
    """
    _do("purge", lambda finder: finder.overdue(), None, because, **options)


@click.command()
@click.option(
    "--value",
    required=True,
    metavar="TEXT",
    help="The identifier; '-' reads it from standard input, so that no shell keeps it.",
)
@click.option("--because", default="", metavar="TEXT", help="Why; needed unless --dry-run.")
@_removal_options
def forget(value: str, because: str, **options: Any) -> None:
    """Remove every record that holds an identifier, accepted ones and their Silver rows too.

    It is looked for in every column and text, whole, upper or lower case. Versions that such a record
    replaced go with it. See docs/privacy.md.

    Example: lakehouse forget --value ana@example.org --lake lake --dry-run

    Example: lakehouse forget --value - --because "request 118" --landing landing --yes
    """
    from ingest.privacy.identifier import Identifier

    wanted = Identifier.asked(sys.stdin.read() if value == "-" else value)
    wanted.refuse_in([because, options["evidence"], options["actor"]])
    _do("forget", lambda finder: finder.holding(wanted), wanted, because, **options)


def _do(
    command: str,
    look: Callable[[Finder], Plan],
    value: Identifier | None,
    because: str,
    *,
    landing: Sequence[Path],
    logs: Sequence[Path],
    evidence: str | None,
    actor: str,
    dry_run: bool,
    yes: bool,
    lake_path: Path,
) -> None:
    from ingest.privacy.finding import Finder
    from ingest.privacy.outside import Outside
    from ingest.privacy.removal import Removal
    from ingest.privacy.tables import Tables

    outside = Outside(landing, logs)
    if dry_run:
        _tell(look(Finder(Tables(Lake(lake_path)), outside)))
        return
    if not because.strip():
        raise InputError("Every purge names a reason, because years later somebody will ask: --because.")
    # Its own words instead of the command line, which holds the value.
    with LakeLock(lake_path, command):
        tables = Tables(Lake(lake_path))
        plan = look(Finder(tables, outside))
        if plan.is_empty:
            click.echo("Nothing is to be removed.")
            return
        if not yes:
            _tell(plan)
            click.confirm("Remove all of it for good?", abort=True, err=True)
        done = Removal(tables, outside).carry_out(plan, actor, because, evidence, value)
    click.echo(
        f"{done.records} records purged, {sum(done.rows.values())} rows in {len(done.rows)} tables "
        f"emptied or removed, {done.files} files removed. The next run builds the marts anew."
    )


def _tell(plan: Plan) -> None:
    from ingest.query import terminal_safe

    if plan.is_empty:
        click.echo("Nothing is to be removed.")
        return
    if plan.is_unfinished:
        click.echo("A purge was cut short, and is to be completed.")
    click.echo(f"{len(plan.records)} records would be purged:")
    for record in plan.records[:_SHOWN]:
        place = f"{record.source_file}, position {record.position}"
        click.echo(
            terminal_safe(
                f"  {record.record_id[:12]} {record.record_type} {record.dataset} {record.state}, "
                f"{place}: {record.why}"
            )
        )
    if len(plan.records) > _SHOWN:
        click.echo(f"  and {len(plan.records) - _SHOWN} more")
    for (schema, table), count in sorted(plan.rows.items()):
        click.echo(f"  {schema}.{table}: {count} records")
    for (schema, table), count in sorted(plan.mentions.items()):
        click.echo(f"  {schema}.{table}: {count} rows that only mention the value")
    for file in plan.files:
        click.echo(terminal_safe(f"  file {file}"))
