"""What happened to refused records: ``bronze.quarantine_events``, append-only."""

from __future__ import annotations

import hashlib
import random
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

import duckdb

from ingest.environment import pipeline_version
from ingest.errors import ConflictError, InputError, LakeInUseError
from ingest.lake import Lake
from ingest.office.states import LEADS_TO, LastEvent
from ingest.query import connect, literal, literals

TABLE = "quarantine_events"
# Each turn lost means that somebody else's commit went in, so even a crowd gets through.
_TURNS = 50
_TICK = timedelta(microseconds=1)
_TOLD = 5
LAST_EVENT = (
    "max_by({'event_id': event_id, 'event_type': event_type, 'actor': actor, 'reason': reason, "
    '\'at\': "at"}, ("at", event_id))'
)
"""SQL of DuckDB: the newest event of a group, as a struct that makes a ``LastEvent``."""


@dataclass(frozen=True)
class Event:
    """Something that is to happen to a record; it gets its id and its instant when it is written.

    Attributes:
        record_id: The record.
        record_type: Its record type.
        dataset: Its dataset.
        event_type: One of :data:`ingest.office.states.LEADS_TO`.
        actor: Who does it.
        reason: Why, in words.
        evidence: A ticket, a link, the hash of a file; free text.
        attempt: Which time at the gate it is about, from 1.
        corrected_payload: With ``corrected``: the whole new text of the record.
        batch_id: With ``reentered``: the batch in which it went back to Bronze.
    """

    record_id: str
    record_type: str
    dataset: str
    event_type: str
    actor: str
    reason: str
    evidence: str | None = None
    attempt: int = 1
    corrected_payload: str | None = None
    batch_id: str | None = None

    def __post_init__(self) -> None:
        """Refuse what would be no evidence.

        Raises:
            InputError: There is no actor or no reason, or a correction without a payload.
        """
        if self.event_type not in LEADS_TO:
            raise InputError(
                f"'{self.event_type}' is no event of a record. Events: {', '.join(LEADS_TO)}."
            )
        for name, value, option in (
            ("an actor", self.actor, "--actor"),
            ("a reason", self.reason, "--because"),
        ):
            if not value.strip():
                raise InputError(
                    f"Every event names {name}, because years later somebody will ask. Give {option}."
                )
        if (self.event_type == "corrected") != (self.corrected_payload is not None):
            raise InputError(
                f"A corrected payload goes with a correction, and only with one; the event of record "
                f"{self.record_id[:12]} is '{self.event_type}'."
            )


def reentered(
    supersedes: str,
    record_type: str,
    dataset: str,
    attempt: int,
    record_id: str,
    batch_id: str,
    actor: str,
    reason: str,
) -> Event:
    """The event of a record that went through the gate again.

    Args:
        supersedes: The record that was refused.
        record_type: Its record type.
        dataset: Its dataset.
        attempt: Which time at the gate that of the new record is.
        record_id: The record as which it went.
        batch_id: Where that came to Bronze.
        actor: Who did it.
        reason: Why, in words.
    """
    return Event(
        record_id=supersedes,
        record_type=record_type,
        dataset=dataset,
        event_type="reentered",
        actor=actor,
        reason=reason,
        evidence=f"as record {record_id}",
        attempt=attempt - 1,
        batch_id=batch_id,
    )


def append(
    lake: Lake,
    events: Sequence[Event],
    seen: Mapping[str, LastEvent | None] | None,
    now: datetime | None = None,
    connection: duckdb.DuckDBPyConnection | None = None,
) -> None:
    """Write events in one commit, if nothing happened to their records since these were looked at.

    Args:
        lake: Where to. The table is made where it is not there yet.
        events: At most one for each record.
        seen: The newest event of each record when its state was checked, None where it had none. None
            for all writes what happened already, whatever else did.
        now: The instant of the events; the clock's by default. It is moved on where needed, so
            that an event is always later than those before it.
        connection: DuckDB that can read Delta; one is opened where none is given, which takes longer
            than all the rest.

    Raises:
        ConflictError: Somebody else was quicker on one of the records. Nothing was written.
        LakeInUseError: Others wrote without pause.
    """
    if not events:
        return
    lake.create_operations()
    connection = connection or connect(lake.path, ())
    for turn in range(_TURNS):
        # The version comes first: what is read after it is at least as new, and a commit in
        # between makes the append fail.
        version = lake.version(TABLE)
        latest = _last_events(connection, lake, [event.record_id for event in events])
        if seen is not None:
            _check_unchanged(events, seen, latest)
        at = now or datetime.now(UTC)
        if latest:
            at = max(at, max(event.at for event in latest.values()) + _TICK)
        if lake.append_at(TABLE, [_row(event, at) for event in events], version):
            return
        time.sleep(random.uniform(0, 0.02 * min(turn + 1, 10)))
    raise LakeInUseError(
        f"{lake.path}: {_TURNS} times in a row somebody else's event came first. Nothing was "
        "written; try again in a moment."
    )


def _last_events(
    connection: duckdb.DuckDBPyConnection, lake: Lake, record_ids: Sequence[str]
) -> dict[str, LastEvent]:
    """The newest event of each of the records that has any, as the table is now."""
    path = literal(str(lake.table_path("bronze", TABLE)))
    rows = connection.execute(
        f"select record_id, {LAST_EVENT} from delta_scan({path}) "
        f"where record_id in (select unnest({literals(record_ids)})) group by record_id"
    ).fetchall()
    return {record_id: LastEvent(**last) for record_id, last in rows}


def _check_unchanged(
    events: Sequence[Event],
    seen: Mapping[str, LastEvent | None],
    latest: Mapping[str, LastEvent],
) -> None:
    clashes = []
    for event in events:
        newest, known = latest.get(event.record_id), seen.get(event.record_id)
        if newest is not None and (known is None or newest.event_id != known.event_id):
            clashes.append(f"{event.record_id[:12]}: {newest}")
    if clashes:
        more = f"\n  and {len(clashes) - _TOLD} more" if len(clashes) > _TOLD else ""
        raise ConflictError(
            f"Somebody else worked on {len(clashes)} of these records since you looked, so nothing "
            "was written. Look again and decide again:\n  " + "\n  ".join(clashes[:_TOLD]) + more
        )


def _row(event: Event, at: datetime) -> dict[str, object]:
    text = event.corrected_payload
    return {
        **asdict(event),
        "event_id": uuid.uuid4().hex,
        "at": at,
        "corrected_sha256": None if text is None else hashlib.sha256(text.encode()).hexdigest(),
        "pipeline_version": pipeline_version(),
    }
