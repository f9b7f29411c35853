"""The command group ``lakehouse quarantine``."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from ingest.cli_options import format_option, lake_option, operator
from ingest.errors import InputError, LakehouseError
from ingest.lake import Lake
from ingest.lock import LakeLock
from ingest.office.states import STATES
from ingest.office.telling import counted, tell_corrections, tell_left, tell_records, tell_refusals
from ingest.spans import read_span

# What reads tables is imported where it is needed, so that help is quick.
if TYPE_CHECKING:
    from ingest.office.actions import Note
    from ingest.office.corrections import Correction, Left
    from ingest.office.refused import Filter, Office, Refused

_Command = TypeVar("_Command", bound=Callable[..., Any])
_TABLE_LIMIT = 50
_SENT_AGAIN = "sent through the gate again"
_BY_SCHEDULE = "due, as its state and its contract say"
_NEXT = "Corrections wait in bronze.quarantine_events. Send them through the gate: lakehouse replay"


class _Age(click.ParamType[timedelta]):
    """A time span such as ``30m``, ``12h``, ``7d`` or ``2w``."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Read it."""
        if isinstance(value, timedelta):
            return value
        span = read_span(str(value))
        if span is None:
            self.fail(
                f"{value!r} is no age. Write a number and m, h, d or w, for example 7d.", param, ctx
            )
        return span


def _stacked(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    """Several options as one decorator; help lists them in this order."""

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


_filter_options = _stacked(
    click.option("--dataset", "datasets", multiple=True, help="Of this dataset; may be given again."),
    click.option("--record-type", "record_types", multiple=True, help="Of this record type; again."),
    click.option("--reason", "reasons", multiple=True, help="Refused by the rule of this code; again."),
    click.option(
        "--state",
        "states",
        multiple=True,
        type=click.Choice([*STATES, "all"]),
        help="In this state; again.",
    ),
    click.option("--file", "file", help="From files that fit this glob, by name or by whole path."),
    click.option("--older-than", type=_Age(), help="Ingested longer ago than this: 30m, 12h, 7d, 2w."),
    click.option("--owner", "owners", multiple=True, help="Owned by this team; again."),
)
_selection_options = _stacked(
    click.argument("ids", nargs=-1, metavar="[RECORD_ID]..."),
    click.option(
        "--ids-from",
        type=click.File("r", encoding="utf-8"),
        help="File with one id a line, '-' for standard input.",
    ),
    _filter_options,
    lake_option,
)
_note_options = _stacked(
    click.option("--because", default="", metavar="TEXT", help="Why; needed unless --dry-run."),
    click.option("--evidence", metavar="TEXT", help="A ticket, a link, the hash of a file."),
    click.option("--actor", default=operator, show_default="the system's user", help="Who does it."),
    click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing."),
    click.option("--yes", is_flag=True, help="Do not ask before many records are changed."),
)


@click.group()
def quarantine() -> None:
    """Refused records: find, explain, correct, discard. No Spark is needed.

    A record is named by its id or the first characters of it, at least four. docs/quarantine.md
    shows the whole way.

    Example: lakehouse quarantine list --dataset orders --older-than 7d
    """


@quarantine.command(name="list")
@_filter_options
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help=f"The most to show, 0 for all; {_TABLE_LIMIT} in a table, else all.",
)
@format_option
@lake_option
def list_command(limit: int | None, fmt: Any, lake_path: Path, **filters: Any) -> None:
    """List refused records, the oldest first; without --state, those that wait for somebody.

    Example: lakehouse quarantine list --reason QTY_NOT_INTEGER --format csv
    """
    from ingest.office.details import TABLE_NAMES, summary, table_row
    from ingest.office.exchange import guarded
    from ingest.office.refused import open_states
    from ingest.query import render

    most = limit if limit is not None else _TABLE_LIMIT if fmt == "table" else 0
    with _office(lake_path) as office:
        found, total = office.select(open_states(_filter(filters)), most or None)
    if fmt == "table":
        now = datetime.now(UTC)
        click.echo(render(TABLE_NAMES, [table_row(record, now) for record in found], "table"))
    else:
        rows = [summary(record) for record in found]
        names = list(rows[0]) if rows else []
        cells = [list(row.values()) for row in rows]
        if fmt == "csv":
            cells = [[_cell(value, guarded) for value in row] for row in cells]
        click.echo(render(names, cells, fmt))
    if len(found) < total:
        click.echo(f"{len(found)} of {total} records; --limit 0 shows all.", err=True)
    elif fmt == "table":
        click.echo(f"{total} records in all.", err=True)


def _cell(value: Any, guarded: Callable[[str], str]) -> Any:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return guarded(value) if isinstance(value, str) else value


@quarantine.command()
@click.argument("record_id")
@click.option("--format", "fmt", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--unmasked", is_flag=True, help="Show personal values as they are.")
@lake_option
def show(record_id: str, fmt: str, unmasked: bool, lake_path: Path) -> None:
    """Show all of one record: text, fields, reasons with why and fix, lines around, history.

    What the contract marks as personal is masked; see docs/privacy.md.

    Example: lakehouse quarantine show 3f2a9c --unmasked
    """
    import json

    from ingest.office.details import as_object, as_text, look_up

    with _office(lake_path, bronze=True) as office:
        details = look_up(office, office.find([record_id])[0], unmasked=unmasked)
    if fmt == "json":
        click.echo(json.dumps(as_object(details), ensure_ascii=False, indent=2, default=str))
    else:
        click.echo(as_text(details))


@quarantine.command()
@_selection_options
@_note_options
def investigate(**given: Any) -> None:
    """Say that somebody works on records, so that others see it.

    Example: lakehouse quarantine investigate 3f2a9c --because "asked the partner" --evidence T-12
    """
    _plain("investigated", given)


@quarantine.command()
@_selection_options
@_note_options
def discard(**given: Any) -> None:
    """Close records for good: they are not sent again. The evidence stays.

    Example: lakehouse quarantine discard --reason QTY_MISSING --because "test orders" --dry-run
    """
    _plain("discarded", given)


@quarantine.command()
@_selection_options
@_note_options
def reopen(**given: Any) -> None:
    """Take a correction, a discard or a claim back, so that records are pending again.

    Example: lakehouse quarantine reopen 3f2a9c --because "the partner sent the right quantity"
    """
    _plain("reopened", given)


@quarantine.command()
@_selection_options
@click.option(
    "--from", "source", type=click.File("rb"), help="File with the whole new text of one record."
)
@click.option("--editor", is_flag=True, help="Edit the text of one record in $EDITOR.")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="'COLUMN = SQL'",
    help="Set a value to an expression of DuckDB over the record's columns; may be given again.",
)
@_note_options
def correct(source: Any, editor: bool, assignments: Sequence[str], **given: Any) -> None:
    """Give records a new text. The evidence stays; the new text waits for re-entry.

    With --set every column is a text. An expression that gives null leaves its record as it is.

    Example: lakehouse quarantine correct --reason QTY_NOT_INTEGER
    --set "qty = regexp_extract(qty, '[0-9]+')" --because "unit in the column" --dry-run
    """
    from ingest.office.corrections import Payloads, parse_assignment
    from ingest.office.messages import RECORD_TYPE, MessagePayloads

    if sum((source is not None, editor, bool(assignments))) != 1:
        raise InputError("Say how to correct, in one way: --set '...', --from FILE or --editor.")
    parsed = [parse_assignment(text) for text in assignments]
    note = _note(given)
    with _office(given["lake_path"], bronze=True) as office:
        records, left = _chosen(office, "corrected", given)
        if parsed:
            _correct_by_expression(office, records, left, parsed, note, given)
            return
        if len(records) != 1:
            raise InputError(
                f"{len(records)} records are meant, and one text is for one record. Name one id, or "
                "correct many with --set."
            )
        is_message = records[0].record_type == RECORD_TYPE
        payloads: Payloads | MessagePayloads
        if is_message:
            payloads = MessagePayloads(office, records)
        else:
            payloads = Payloads(office, records[0].record_type, records)
        old = payloads.text(records[0])
        if source is not None:
            text, kept = _decoded(source.read(), source.name), None
            note = note.with_evidence(f"{source.name} sha256:{_sha256(text)}")
        else:
            text = _edited(old, "json" if is_message else office.contract(records[0].record_type).format)
            kept = text
        text = _without_added_line_end(text, old)
        from ingest.office.corrections import Correction

        try:
            payloads.check(records[0], text)
            _write_corrections(office, [Correction(records[0], text)], left, note, given, old)
        except LakehouseError as error:
            _keep(error, kept)


@quarantine.command()
@_selection_options
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="File to write."
)
@click.option(
    "--format",
    "fmt",
    type=click.Choice(["csv", "json", "xml"]),
    help="By default as the file's name says.",
)
def export(out: Path, fmt: str | None, **given: Any) -> None:
    """Write records to a file that a partner can mend; without --state, the open ones.

    Example: lakehouse quarantine export --record-type orders --out for_the_partner.csv
    """
    from ingest.office.actions import check_selection
    from ingest.office.exchange import export as write
    from ingest.office.refused import open_states

    form = _form(out, fmt)
    ids, wanted = _ids(given), _filter(given)
    check_selection(ids, wanted)
    with _office(given["lake_path"], bronze=True) as office:
        records = office.find(ids) if ids else office.select(open_states(wanted))[0]
        if not records:
            raise InputError("No record fits, so there is nothing to export.")
        text = write(office, records, form)
    # Exact bytes: line ends inside a text are part of it.
    out.write_bytes(text.encode("utf-8"))
    click.echo(
        f"{len(records)} records are in {out}. They hold payloads, personal data included. What "
        "comes back: lakehouse quarantine import " + str(out)
    )


@quarantine.command(name="import")
@click.argument("source", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option(
    "--format",
    "fmt",
    type=click.Choice(["csv", "json", "xml"]),
    help="By default as the file's name says.",
)
@click.option("--partial", is_flag=True, help="Apply what is sound though other rows are not.")
@_note_options
@lake_option
def import_command(source: Path, fmt: str | None, partial: bool, **given: Any) -> None:
    """Take mended records back as corrections. Unchanged ones are skipped.

    Nothing is applied unless every row is sound, or --partial is given; then the exit code is 1 if
    rows were refused.

    Example: lakehouse quarantine import from_the_partner.csv --because "mended by the partner"
    """
    from ingest.office.exchange import plan, read

    form = _form(source, fmt)
    data = source.read_bytes()
    note = _note(given).with_evidence(f"{source.name} sha256:{hashlib.sha256(data).hexdigest()}")
    items, refusals = read(data, form)
    with _office(given["lake_path"], bronze=True) as office:
        outcome = plan(office, items, refusals)
        if outcome.refusals:
            tell_refusals(outcome.refusals, source.name)
            if not partial:
                raise InputError(
                    f"{len(outcome.refusals)} rows of {source} cannot be applied, so none was. Mend "
                    "them, or apply the others with --partial."
                )
        if outcome.unchanged:
            click.echo(f"{outcome.unchanged} records came back as they went, and are skipped.")
        if outcome.corrections:
            _write_corrections(office, outcome.corrections, [], note, given)
        else:
            click.echo("Nothing in it corrects anything.")
    if outcome.refusals:
        sys.exit(1)


# Shared by the commands ---------------------------------------------------------------------------


@click.command()
@_selection_options
@click.option(
    "--schedule",
    is_flag=True,
    help="Those that are due by themselves: corrected ones, and what the contract's retry says.",
)
@click.option("--limit", type=click.IntRange(min=1), help="The most records, the oldest first.")
@click.option(
    "--because",
    metavar="TEXT",
    show_default=_SENT_AGAIN,
    help="Why; it stands in the event of each record.",
)
@click.option("--actor", default=operator, show_default="the system's user", help="Who does it.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent, and do nothing.")
def replay(
    schedule: bool, limit: int | None, because: str | None, actor: str, dry_run: bool, **given: Any
) -> None:
    """Send refused records through the gate again, as new records that are judged like any.

    Without a selection those that are corrected. By id or filter also those that are not: with the
    text they have, for when a contract was mended. The evidence stays. Exit codes are those of
    lakehouse run, and 1 also where a record that was named could not be sent.

    With --schedule it is what to run every so often: where nothing is due it ends at once.

    Example: lakehouse replay

    Example: lakehouse replay --schedule --limit 10000

    Example: lakehouse replay --reason ORDER_TS_NOT_A_TIMESTAMP --because "the contract has the format"
    """
    from ingest.office.actions import Note
    from ingest.replay import ReplayOptions, run_replay

    if because is None:
        because = _BY_SCHEDULE if schedule else _SENT_AGAIN
    if not because.strip():
        raise InputError("Every event names a reason. Leave --because out, or say one.")
    ids, wanted = _ids(given), _filter(given)
    if schedule and (ids or not wanted.is_empty):
        raise InputError(
            "With --schedule contracts say which records are sent, so ids and filters mean nothing. "
            "Leave them out, or leave --schedule out."
        )
    now = datetime.now(UTC) if schedule else None
    options = ReplayOptions(ids, wanted, Note(actor, because), now, limit, dry_run)
    with LakeLock(given["lake_path"], "replay"):
        sys.exit(run_replay(Lake(given["lake_path"]), options))


def _office(lake_path: Path, *, bronze: bool = False) -> Office:
    from ingest.office.refused import Office

    return Office(Lake(lake_path), bronze=bronze)


def _filter(given: dict[str, Any]) -> Filter:
    from ingest.office.refused import Filter

    return Filter(
        datasets=tuple(given["datasets"]),
        record_types=tuple(given["record_types"]),
        reasons=tuple(given["reasons"]),
        states=STATES if "all" in given["states"] else tuple(given["states"]),
        file=given["file"],
        older_than=given["older_than"],
        owners=tuple(given["owners"]),
    )


def _note(given: dict[str, Any]) -> Note:
    """What the operator says; checked before any work that would be lost.

    Raises:
        InputError: It says no reason, and it is no dry run.
    """
    from ingest.office.actions import Note

    if not given["dry_run"] and not given["because"].strip():
        raise InputError(
            "Every event names a reason, because years later somebody will ask. Give --because '...'."
        )
    return Note(given["actor"], given["because"], given["evidence"])


def _ids(given: dict[str, Any]) -> list[str]:
    """The ids that were named, on the command line and in a file."""
    if given["ids_from"] is None:
        return list(given["ids"])
    lines = (line.partition("#")[0].strip() for line in given["ids_from"])
    from_file = [line for line in lines if line]
    if not from_file:
        raise InputError(f"{given['ids_from'].name} names no record. Write one id a line.")
    return [*given["ids"], *from_file]


def _chosen(office: Office, event_type: str, given: dict[str, Any]) -> tuple[list[Refused], list[Left]]:
    from ingest.office.actions import chosen

    ids = _ids(given)
    records, left = chosen(office, ids, _filter(given), event_type)
    if not records and not left:
        raise InputError(
            f"No record that can be {event_type} fits. Look: lakehouse quarantine list --state all"
        )
    given["by_filter"] = not ids
    return records, left


def _plain(event_type: str, given: dict[str, Any]) -> None:
    """Carry out a command that says no more than its note."""
    from ingest.office.actions import happen

    note = _note(given)
    with _office(given["lake_path"]) as office:
        records, left = _chosen(office, event_type, given)
        tell_left(left)
        if not records:
            _nothing(event_type)
        if given["dry_run"]:
            tell_records(records, event_type)
            return
        _confirm(len(records), event_type, given)
        happen(office, records, event_type, note)
    click.echo(f"{counted(len(records))} {event_type} by {note.actor}.")


def _correct_by_expression(
    office: Office,
    records: Sequence[Refused],
    left: list[Left],
    assignments: Sequence[Any],
    note: Note,
    given: dict[str, Any],
) -> None:
    from ingest.office.corrections import Payloads, by_record_type

    groups = by_record_type(records)
    if len(groups) > 1:
        raise InputError(
            f"The records are of several record types ({', '.join(groups)}), whose columns differ. "
            "Name one: --record-type ..."
        )
    corrections: list[Correction] = []
    for record_type, group in groups.items():
        done, not_done = Payloads(office, record_type, group).evaluate(group, assignments)
        corrections.extend(done)
        left.extend(not_done)
    if left and not given["by_filter"] and not given["dry_run"]:
        tell_left(left)
        raise InputError("Of records named by id all must be corrected, so none was. Leave these out.")
    said = "; ".join(f"{a.target} = {a.expression}" for a in assignments)
    _write_corrections(office, corrections, left, note.with_evidence(f"--set {said}"), given)


def _write_corrections(
    office: Office,
    corrections: Sequence[Correction],
    left: Sequence[Left],
    note: Note,
    given: dict[str, Any],
    old: str | None = None,
) -> None:
    from ingest.office.actions import happen

    tell_left(left)
    if not corrections:
        _nothing("corrected")
    if given["dry_run"]:
        tell_corrections(corrections, old)
        return
    _confirm(len(corrections), "corrected", given)
    records = [correction.record for correction in corrections]
    texts = {correction.record.record_id: correction.payload for correction in corrections}
    happen(office, records, "corrected", note, texts)
    click.echo(f"{counted(len(records))} corrected by {note.actor}. {_NEXT}")


def _confirm(count: int, event_type: str, given: dict[str, Any]) -> None:
    """Ask before a filter or a file changes records; ids say for themselves what is meant.

    Raises:
        InputError: There is nobody to ask.
    """
    if given["yes"] or not given.get("by_filter", True):
        return
    if not sys.stdin.isatty():
        raise InputError(
            f"{counted(count)} would be {event_type}, and nobody is there to ask. Look with --dry-run, "
            "then give --yes. Nothing was done."
        )
    click.confirm(f"{counted(count)} will be {event_type}. Go on?", abort=True)


def _nothing(event_type: str) -> NoReturn:
    raise InputError(f"None of these records can be {event_type}, so nothing was done.")


def _form(path: Path, fmt: str | None) -> str:
    from ingest.office.exchange import FORMATS

    form = fmt or path.suffix.lower().removeprefix(".")
    if form not in FORMATS:
        raise InputError(f"{path} does not say its form. Name it .csv, .json or .xml, or give --format.")
    return form


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name} is not UTF-8 at byte {error.start + 1}. Save it as UTF-8 and try again."
        ) from error


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _edited(text: str, fmt: str) -> str:
    # Bytes: given a text, click would change its line ends.
    edited = click.edit(text.encode("utf-8"), extension=f".{fmt}")
    if edited is None:
        raise InputError("The editor saved nothing, so nothing was done.")
    return _decoded(bytes(edited), "The edited text")


def _without_added_line_end(text: str, old: str) -> str:
    """Editors end a file with a line end that is no part of the record."""
    if old.endswith(("\n", "\r")):
        return text
    return text.removesuffix("\n").removesuffix("\r")


def _keep(error: LakehouseError, text: str | None) -> NoReturn:
    """Raise an error, and tell where the text is that somebody has just written."""
    if text is None:
        raise error
    # Only the user may read it: it is a payload.
    handle, name = tempfile.mkstemp(prefix="correction-", suffix=".txt")
    with os.fdopen(handle, "wb") as file:
        file.write(text.encode("utf-8"))
    raise InputError(f"{error}\nYour text is kept in {name}: give it with --from.") from error
