"""What operators do to refused records: which are meant, whether it may be, and writing it down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ingest.errors import InputError, TransitionError
from ingest.office.corrections import Left
from ingest.office.events import Event, append
from ingest.office.refused import Filter, Office, Refused
from ingest.office.states import ALLOWED_FROM, check

_TOLD = 5


@dataclass(frozen=True)
class Note:
    """What an operator says with an event.

    Attributes:
        actor: Who.
        because: Why.
        evidence: A ticket, a link, a hash; free text.
    """

    actor: str
    because: str
    evidence: str | None = None

    def with_evidence(self, text: str) -> Note:
        """The same note with a further piece of evidence."""
        return Note(self.actor, self.because, f"{self.evidence}; {text}" if self.evidence else text)


def check_selection(ids: Sequence[str], wanted: Filter) -> None:
    """Refuse a selection that says nothing, or two things.

    Args:
        ids: Ids that were named.
        wanted: The filter.

    Raises:
        InputError: Both ids and a filter are given, or neither.
    """
    if ids and not wanted.is_empty:
        raise InputError("Name records by id or by filter, not by both: which is meant cannot be told.")
    if not ids and wanted.is_empty:
        raise InputError(
            "No record is named. Give ids, --ids-from or a filter such as --reason; "
            "'lakehouse quarantine list' shows what there is."
        )


def chosen(
    office: Office, ids: Sequence[str], wanted: Filter, event_type: str
) -> tuple[list[Refused], list[Left]]:
    """Find the records that are meant, and see that the event may happen to them.

    Of records that are named one by one, all must do: else nothing happens. Of those that a filter
    finds, only those are taken to which it may happen; unless the filter names states, it does not
    look at the others.

    Args:
        office: The lake's refused records.
        ids: Ids, or starts of ids.
        wanted: The filter, where there are no ids.
        event_type: What is to happen.

    Returns:
        The records, and those of the filter's that are left out, with the reason.

    Raises:
        InputError: Both or neither are given, or an id is no record's.
        TransitionError: It may not happen to a record that was named.
    """
    check_selection(ids, wanted)
    if ids:
        records = office.find(ids)
    else:
        states = wanted.states or ALLOWED_FROM[event_type]
        records, _ = office.select(Filter(**{**wanted.__dict__, "states": states}))
    fitting, left = [], []
    faults: list[TransitionError] = []
    for record in records:
        try:
            check(record.record_id, record.state, event_type, record.last)
        except TransitionError as error:
            faults.append(error)
            left.append(Left(record, str(error)))
        else:
            fitting.append(record)
    if ids and faults:
        more = f"\n  and {len(faults) - _TOLD} more" if len(faults) > _TOLD else ""
        raise TransitionError(
            faults[0].record_id,
            "Nothing was done.\n  " + "\n  ".join(str(fault) for fault in faults[:_TOLD]) + more,
        )
    return fitting, left


def happen(
    office: Office,
    records: Sequence[Refused],
    event_type: str,
    note: Note,
    payloads: Mapping[str, str] | None = None,
) -> None:
    """Write one event for each record, all or none.

    Args:
        office: The look at the records on which the decision rests.
        records: The records.
        event_type: What happens to them.
        note: Who, why, evidence.
        payloads: With ``corrected``: the new text by record id.

    Raises:
        ConflictError: Somebody worked on one of them since the office was opened.
        InputError: The note lacks actor or reason.
    """
    events = [
        Event(
            record_id=record.record_id,
            record_type=record.record_type,
            dataset=record.dataset,
            event_type=event_type,
            actor=note.actor,
            reason=note.because,
            evidence=note.evidence,
            attempt=record.attempt,
            corrected_payload=(payloads or {}).get(record.record_id),
        )
        for record in records
    ]
    seen = {record.record_id: record.last for record in records}
    append(office.lake, events, seen, connection=office.connection)
