"""What the commands of the office say: how many, which for example, and why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

# What reads tables is imported where it is needed, so that help is quick.
if TYPE_CHECKING:
    from ingest.office.corrections import Correction, Left
    from ingest.office.exchange import Refusal
    from ingest.office.refused import Refused

_EXAMPLES = 5
_REFUSALS = 20
_WIDEST = 200


def tell_records(records: Sequence[Refused], event_type: str) -> None:
    """Say to which records an event would happen."""
    click.echo(f"{counted(len(records))} would be {event_type}:")
    for record in records[:_EXAMPLES]:
        _say(f"  {record.record_id[:12]} {record.state} {' '.join(record.reasons)}")
    _more(len(records))


def tell_corrections(corrections: Sequence[Correction], old: str | None) -> None:
    """Show records before and after.

    Args:
        corrections: What would be corrected.
        old: The text before, where one whole text takes the place of another.
    """
    click.echo(f"{counted(len(corrections))} would be corrected:")
    for correction in corrections[:_EXAMPLES]:
        record = correction.record
        _say(f"  {record.record_id[:12]} {' '.join(record.reasons)}")
        for change in correction.changes:
            before = "nothing" if change.before is None else repr(change.before)
            _say(f"    {change.name}: {before} -> {change.after!r}")
        if not correction.changes:
            for sign, text in (("-", old), ("+", correction.payload)):
                _say(f"    {sign} {text}" if text is not None else "")
        elif "\n" not in correction.payload:
            _say(f"    {correction.payload}")
    _more(len(corrections))


def tell_left(left: Sequence[Left]) -> None:
    """Say which records are left as they are, by reason."""
    if not left:
        return
    click.echo(f"{counted(len(left))} left as they are:", err=True)
    counts = Counter(item.why.replace(item.record.record_id[:12], "...") for item in left)
    for why, count in counts.most_common(_EXAMPLES):
        example = next(i.record for i in left if i.why.replace(i.record.record_id[:12], "...") == why)
        _say(f"  {count}, such as {example.record_id[:12]}: {why}", err=True)


def tell_refusals(refusals: Sequence[Refusal], name: str) -> None:
    """Say which rows of a file cannot be applied, each with its place."""
    for refusal in refusals[:_REFUSALS]:
        _say(f"{name} {refusal.place}: {refusal.why}.", err=True)
    if len(refusals) > _REFUSALS:
        click.echo(f"and {len(refusals) - _REFUSALS} more", err=True)


def _more(count: int) -> None:
    if count > _EXAMPLES:
        click.echo(f"  and {count - _EXAMPLES} more")


def _say(text: str, *, err: bool = False) -> None:
    """Print what may hold a value of a record: nothing in it is obeyed by a terminal."""
    from ingest.query import terminal_safe

    lines = (line if len(line) <= _WIDEST else f"{line[:_WIDEST]} ..." for line in text.splitlines())
    click.echo(terminal_safe("\n".join(lines)), err=err)


def counted(count: int) -> str:
    """A number of records in words."""
    return f"{count:,} record{'' if count == 1 else 's'}"
