"""Which thresholds of the contracts a lake is beyond, asked of its tables without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import duckdb

from ingest.contracts import Contract
from ingest.lake import Lake
from ingest.office.reentry import COMMAND as REPLAY
from ingest.office.refused import Office
from ingest.office.states import OPEN_STATES
from ingest.query import connect, literal, literals
from ingest.spans import say_span, write_span
from ingest.thresholds import Thresholds, thresholds

# What each kind is asked of, beside the lake's quarantine. Where a table is missing, nothing is known.
_TABLES: Mapping[str, frozenset[str]] = {
    "open_above": frozenset(),
    "age_above": frozenset(),
    "share_above": frozenset({"marts.reconciliation", "marts.dead_letters"}),
    "silent_for": frozenset({"bronze.files"}),
    "new_reason": frozenset({"bronze.files", "marts.recurring_causes"}),
    "schema_drift": frozenset({"bronze.files", "marts.schema_drift"}),
    "stop_above": frozenset({"marts.reconciliation"}),
}
KINDS = tuple(_TABLES)
_OF_THE_QUARANTINE = ("open_above", "age_above")
_COMMONEST = 3
_NAMED = 20


@dataclass(frozen=True)
class Condition:
    """A threshold that a dataset is beyond.

    Attributes:
        kind: Key of the threshold in the contract.
        record_type: Whose contract has it.
        dataset: The dataset.
        subject: What of it, where a dataset may be beyond it more than once: a cause.
        owner: The team that is meant.
        value: What was found.
        threshold: What the contract allows.
        unit: Of both: ``records``, ``share`` (from 0 to 1), ``seconds`` or ``paths``.
        details: What the value is made of; another one is news.
        message: What is wrong, why, and how to go on.
    """

    kind: str
    record_type: str
    dataset: str
    subject: str
    owner: str
    value: float
    threshold: float
    unit: str
    message: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class Findings:
    """What holds now, and which kinds could not be asked."""

    conditions: tuple[Condition, ...]
    unknown: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Look:
    """One contract with thresholds, and what is needed to ask about it."""

    contract: Contract
    limits: Thresholds
    connection: duckdb.DuckDBPyConnection
    now: datetime
    parents: Callable[[], Mapping[str, str]]

    def condition(self, kind: str, dataset: str, value: float, message: str, **more: Any) -> Condition:
        """Make a condition of this contract."""
        threshold, unit = _measure(getattr(self.limits, kind))
        return Condition(
            kind=kind,
            record_type=self.contract.record_type,
            dataset=dataset,
            value=value,
            threshold=more.pop("threshold", threshold),
            unit=more.pop("unit", unit),
            message=message,
            **{"subject": "", "owner": self.contract.owner, **more},
        )

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Ask the lake."""
        return self.connection.execute(sql).fetchall()


def look(
    lake: Lake,
    contracts: Mapping[str, Contract],
    parents: Callable[[], Mapping[str, str]],
    now: datetime,
) -> Findings:
    """Find the thresholds that a lake is beyond.

    Args:
        lake: The lake.
        contracts: By record type.
        parents: Gives the tables of what records hold many of, with the record type that holds them.
            Called where it is needed.
        now: The instant.

    Raises:
        InputError: It is no lake.
    """
    limits = {name: thresholds(contract.terms) for name, contract in contracts.items()}
    wanted = {kind for said in limits.values() for kind in KINDS if getattr(said, kind) is not None}
    tables = {f"{schema}.{table}" for schema, table in lake.tables()}
    judged = any(t.startswith("silver.") and t.endswith("_quarantine") for t in tables)
    known = {
        kind for kind in wanted if _TABLES[kind] <= tables and (judged or kind not in _OF_THE_QUARANTINE)
    }
    found: list[Condition] = []
    if known & {*_OF_THE_QUARANTINE}:
        with Office(lake, now=now) as office:
            for name, contract in contracts.items():
                view = _Look(contract, limits[name], office.connection, now, parents)
                found += _waiting(view)
    asked: dict[str, Any] = {
        "share_above": _shares,
        "silent_for": _silence,
        "new_reason": _new_reasons,
        "schema_drift": _drift,
        "stop_above": _stopped,
    }
    needed = set().union(*(_TABLES[kind] for kind in known))
    if needed:
        with connect(lake.path, needed) as connection:
            for name, contract in contracts.items():
                view = _Look(contract, limits[name], connection, now, parents)
                for kind in known & set(asked):
                    if getattr(view.limits, kind) is not None:
                        found += asked[kind](view)
    found.sort(key=lambda item: (item.record_type, item.dataset, KINDS.index(item.kind), item.subject))
    return Findings(tuple(found), frozenset(wanted - known))


def _measure(limit: Any) -> tuple[float, str]:
    if isinstance(limit, int):
        return float(limit), "records"
    if isinstance(limit, float):
        return limit, "share"
    return limit.total_seconds(), "seconds"


# -- what waits


def _waiting(view: _Look) -> Iterator[Condition]:
    """Open records: too many, or for too long. As they are now, not as the last run saw them."""
    limits = view.limits
    rows = view.ask(
        f"""
        select dataset, count(*), min(since), list(reasons[1])
        from refused
        where record_type = {literal(view.contract.record_type)}
          and list_contains({literals(OPEN_STATES)}, state)
        group by dataset
        """
    )
    for dataset, count, oldest, reasons in rows:
        work = f"lakehouse quarantine list --dataset {dataset}"
        if limits.open_above is not None and count > limits.open_above:
            yield view.condition(
                "open_above",
                dataset,
                count,
                f"{dataset}: {count:,} refused records wait for somebody, more than "
                f"{limits.open_above:,}: {_commonest(reasons)}. Work them off: {work}",
            )
        if limits.age_above is not None and oldest and view.now - oldest > limits.age_above:
            age = view.now - oldest
            yield view.condition(
                "age_above",
                dataset,
                age.total_seconds(),
                f"{dataset}: a refused record has waited since {oldest:%Y-%m-%d %H:%M} UTC, "
                f"{say_span(age)}, longer than {write_span(limits.age_above)}. Correct or discard what "
                f"is old: {work} --older-than {write_span(limits.age_above)}",
            )


# -- what came


_ARRIVALS = f"""
arrivals as (
  select files.record_type, files.dataset, files.batch_id, files.ingested_at,
    batches.started_at, coalesce(batches.finished_at, batches.started_at) as finished_at
  from bronze.files as files
  inner join bronze.batches as batches on files.batch_id = batches.batch_id
  where files.status = 'ingested' and batches.command is distinct from {literal(REPLAY)}
)
"""


def _shares(view: _Look) -> Iterator[Condition]:
    """The newest batch of each dataset that is large enough to be looked at."""
    limit = view.limits.share_above
    assert limit is not None
    record_type = literal(view.contract.record_type)
    rows = view.ask(
        f"""
        select counts.dataset, counts.batch_id, sum(counts.quarantined), sum(counts.bronze)
        from marts.reconciliation as counts
        inner join bronze.batches as batches on counts.batch_id = batches.batch_id
        where counts.record_type = {record_type} and counts.status = 'ingested'
          and batches.command is distinct from {literal(REPLAY)}
        group by counts.dataset, counts.batch_id
        having sum(counts.bronze) >= {view.limits.share_from}
        qualify row_number() over (partition by counts.dataset order by counts.batch_id desc) = 1
        """
    )
    for dataset, batch_id, refused, records in rows:
        share = float(refused) / float(records)
        if share <= limit:
            continue
        letters = view.ask(
            f"select error_type from marts.dead_letters where record_type = {record_type} "
            f"and batch_id = {literal(batch_id)} and dataset = {literal(dataset)} "
            "and record_id is not null"
        )
        yield view.condition(
            "share_above",
            dataset,
            share,
            f"{dataset}: of the {int(records):,} records of batch {batch_id} {share:.1%} were refused, "
            f"more than {limit:.1%}: {_commonest([row[0] for row in letters])}. So many at once are "
            f"mostly the fault of a file or of the contract: look at some with lakehouse quarantine "
            f"list --dataset {dataset}, then ask the sender for a new file or mend the contract.",
        )


def _silence(view: _Look) -> Iterator[Condition]:
    """Datasets of which files came, and come no more."""
    limit = view.limits.silent_for
    assert limit is not None
    rows = view.ask(
        f"with {_ARRIVALS} select dataset, max(ingested_at) from arrivals "
        f"where record_type = {literal(view.contract.record_type)} group by dataset"
    )
    for dataset, newest in rows:
        silence = view.now - newest
        if silence > limit:
            yield view.condition(
                "silent_for",
                dataset,
                silence.total_seconds(),
                f"{dataset}: no new file that can be read has come since {newest:%Y-%m-%d %H:%M} UTC, "
                f"{say_span(silence)}, longer than {write_span(limit)}. Look whether runs take place "
                f"and find the files, then ask the sender.",
            )


def _new_reasons(view: _Look) -> Iterator[Condition]:
    """Causes of refusal that the dataset's first batch did not have."""
    limit, name = view.limits.new_reason, view.contract.record_type
    assert limit is not None
    held = [child for child, parent in view.parents().items() if parent == name]
    rows = view.ask(
        f"""
        with {_ARRIVALS},
        first as (select dataset, min(started_at) as began from arrivals group by dataset)
        select causes.record_type, causes.dataset, causes.cause, causes.owner, causes.refused,
          causes.first_seen_at
        from marts.recurring_causes as causes
        left join first on causes.dataset = first.dataset
        where list_contains({literals([name, *held])}, causes.record_type)
          -- A file that cannot be read may not say of which dataset it is.
          and causes.first_seen_at > coalesce(
            first.began,
            (select min(started_at) from arrivals
             where record_type = {literal(view.contract.record_type)}))
          and causes.first_seen_at > {_instant(view.now)} - {_interval(limit.total_seconds())}
        """
    )
    codes = {rule.code for rule in view.contract.rules}
    for record_type, dataset, cause, owner, refused, first_seen in rows:
        listed = record_type == view.contract.record_type and cause in codes
        where = (
            f": lakehouse quarantine list --dataset {dataset} --reason {cause}"
            if listed
            else f" in marts.dead_letters, record_type {record_type}"
        )
        yield view.condition(
            "new_reason",
            dataset,
            refused,
            f"{dataset}: {cause} came for the first time at {first_seen:%Y-%m-%d %H:%M} UTC, "
            f"{int(refused):,} by now; this feed did not have it before. Read why{where}",
            subject=f"{record_type} {cause}",
            owner=owner or view.contract.owner,
            unit="records",
            threshold=0.0,
        )


def _drift(view: _Look) -> Iterator[Condition]:
    """Paths that the schema does not hold, and the dataset's first batch did not have."""
    limit = view.limits.schema_drift
    assert limit is not None
    rows = view.ask(
        f"""
        with {_ARRIVALS},
        first as (
          select dataset, arg_min(finished_at, started_at) as ended from arrivals
          where record_type = {literal(view.contract.record_type)} group by dataset
        )
        select drift.dataset, list(drift.path order by drift.path)
        from marts.schema_drift as drift
        inner join first on drift.dataset = first.dataset
        where drift.record_type = {literal(view.contract.record_type)}
          and drift.first_seen_at > first.ended
          and drift.first_seen_at > {_instant(view.now)} - {_interval(limit.total_seconds())}
        group by drift.dataset
        """
    )
    for dataset, paths in rows:
        named = ", ".join(paths[:_NAMED]) + (" and more" if len(paths) > _NAMED else "")
        yield view.condition(
            "schema_drift",
            dataset,
            len(paths),
            f"{dataset}: payloads have what the schema does not hold and this feed did not have: "
            f"{named}. It is in the payload and in no column. Look at marts.schema_drift; add it to the "
            f"contract and raise its version.",
            details=tuple(paths),
            unit="paths",
            threshold=0.0,
        )


def _stopped(view: _Look) -> Iterator[Condition]:
    """Batches whose accepted records are held back."""
    columns = {row[0] for row in view.ask("describe marts.reconciliation")}
    # A lake of an earlier version has none until its next run.
    if "held" not in columns:
        return
    rows = view.ask(
        f"""
        select dataset, batch_id, sum(held), sum(quarantined) / sum(bronze)
        from marts.reconciliation
        where record_type = {literal(view.contract.record_type)} and status = 'ingested'
        group by dataset, batch_id
        having sum(held) > 0
        """
    )
    for dataset, batch_id, held, share in rows:
        yield view.condition(
            "stop_above",
            dataset,
            float(share),
            f"{dataset}: batch {batch_id} is stopped: {float(share):.1%} of it was refused, more than "
            f"{view.limits.stop_above:.1%}. The refused are in quarantine, and {int(held):,} records "
            f"that were accepted are held back from Silver. Mend the contract and run again, ask the "
            f"sender for a new file, or let them in: lakehouse release {batch_id} --dataset {dataset}",
            subject=batch_id,
        )


def _commonest(codes: Sequence[str | None]) -> str:
    """The commonest codes with how often they come."""
    counts = Counter(code or "unknown" for code in codes)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    told = ", ".join(f"{code} {count:,}" for code, count in ranked[:_COMMONEST])
    return told + (f" and {len(ranked) - _COMMONEST} more kinds" if len(ranked) > _COMMONEST else "")


def _instant(at: datetime) -> str:
    return f"{literal(at.isoformat())}::timestamptz"


def _interval(seconds: float) -> str:
    return f"to_seconds({seconds})"
