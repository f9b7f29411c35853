"""Which refused records are sent through the gate again by themselves, and when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from ingest.contracts import Contract
from ingest.office import messages
from ingest.office.refused import Filter, Office, Refused
from ingest.office.states import may
from ingest.query import identifier
from ingest.retry import RetryPolicy, retry_policy


@dataclass(frozen=True)
class Candidate:
    """A record that waits, with what decides whether another attempt may succeed.

    Attributes:
        record: The record.
        received: When it first came; of one that was sent again, when the first of its kind did.
        read_contract: Under which schema and feed it was read, as version and hash.
    """

    record: Refused
    received: datetime | None = None
    read_contract: str | None = None


@dataclass(frozen=True)
class Schedule:
    """What is due, and what is not yet.

    Attributes:
        due: Records to send, the one that has been due for longest first.
        later: How many will be due.
        next_at: When the first of these is.
    """

    due: tuple[Refused, ...]
    later: int = 0
    next_at: datetime | None = None


def choose(
    candidates: Iterable[Candidate], contracts: Mapping[str, Contract], now: datetime
) -> Schedule:
    """Choose the records whose next attempt may succeed, and is due.

    A corrected one may, at once: a person has decided it. One with the text that it has may only where
    its contract has a ``retry``, within its window, and if either its schema or feed is another than
    the one it was read under, or all its faults are of stages that go away by themselves.

    They go in the order in which they fell due. What falls due later comes behind, so each is reached,
    whatever else comes.

    Args:
        candidates: Records in any state.
        contracts: By record type.
        now: The instant.
    """
    due: list[tuple[datetime, str, int, Refused]] = []
    later: list[datetime] = []
    for candidate in candidates:
        record = candidate.record
        contract = contracts.get(record.record_type)
        if contract is None and record.record_type != messages.RECORD_TYPE:
            continue
        if not may(record.state, "reentered"):
            continue
        at = _due_at(candidate, contract, now)
        if at is None:
            continue
        if at <= now:
            due.append((at, record.source_file or "", record.position or 0, record))
        else:
            later.append(at)
    due.sort(key=lambda item: (*item[:3], item[3].record_id))
    return Schedule(tuple(item[3] for item in due), len(later), min(later, default=None))


def _due_at(candidate: Candidate, contract: Contract | None, now: datetime) -> datetime | None:
    """When a record is due; None where another attempt could only fail, or is no longer wanted."""
    record = candidate.record
    if record.state == "corrected":
        return record.last.at if record.last else now
    if contract is None:
        return None
    policy = retry_policy(contract.terms)
    # Who investigates a record decides on it.
    if policy is None or record.state != "pending" or record.attempt >= policy.max_attempts:
        return None
    received = candidate.received or record.since
    if received is None or record.since is None or not _may_pass(candidate, contract, policy):
        return None
    touched = max(record.since, record.last.at) if record.last else record.since
    at = policy.due_at(touched, record.attempt)
    return at if max(at, now) <= received + policy.window else None


def _may_pass(candidate: Candidate, contract: Contract, policy: RetryPolicy) -> bool:
    """Whether something that refused the record may be another by now."""
    if candidate.read_contract is not None and candidate.read_contract != contract.read_contract:
        return True
    stages = {rule.code: rule.stage for rule in contract.rules}
    reasons = candidate.record.reasons
    return bool(reasons) and all(stages.get(code) in policy.stages for code in reasons)


def look(office: Office, now: datetime) -> Schedule:
    """Find what is due in a lake.

    Args:
        office: Opened with Bronze, at the same instant.
        now: The instant.
    """
    corrected, _ = office.select(Filter(states=("corrected",)))
    candidates = [Candidate(record) for record in corrected]
    for record_type in office.record_types:
        contract = office.contracts.get(record_type)
        policy = retry_policy(contract.terms) if contract else None
        if policy is not None:
            wanted = Filter(record_types=(record_type,), states=("pending",), newer_than=policy.window)
            candidates += _with_origin(office, record_type, office.select(wanted)[0])
    return choose(candidates, office.contracts, now)


def _with_origin(office: Office, record_type: str, records: Sequence[Refused]) -> list[Candidate]:
    """Records with what Bronze says of how they came."""
    if not records:
        return []
    columns = office.connection.execute(f"describe bronze.{identifier(record_type)}").fetchall()
    # A lake of an earlier version has none until its next run.
    supersedes = "_supersedes" if "_supersedes" in {row[0] for row in columns} else "null"
    known: dict[str, tuple[str | None, datetime, str | None]] = {}
    asked = [record.record_id for record in records]
    # From each record back to the one that it was first sent again for.
    while asked:
        rows = office.bronze_rows(
            record_type, asked, f"_record_id, {supersedes}, _ingested_at, _read_contract"
        )
        known |= {record_id: tuple(rest) for record_id, *rest in rows}
        asked = [row[1] for row in rows if row[1] is not None and row[1] not in known]
    return [Candidate(record, *_origin(record, known)) for record in records]


def _origin(
    record: Refused, known: Mapping[str, tuple[str | None, datetime, str | None]]
) -> tuple[datetime | None, str | None]:
    if record.record_id not in known:
        return None, None
    supersedes, received, read_contract = known[record.record_id]
    while supersedes is not None and supersedes in known:
        supersedes, received, _ = known[supersedes]
    return received, read_contract
