"""The refused records of a lake with their states: found by filter or id, in DuckDB."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from types import TracebackType
from typing import Any

from ingest.contracts import Contract, load_contracts
from ingest.errors import InputError
from ingest.lake import Lake
from ingest.office import messages as refused_messages
from ingest.office.events import LAST_EVENT, TABLE
from ingest.office.states import LEADS_TO, OPEN_STATES, LastEvent, first_state
from ingest.query import connect, identifier, lake_tables, literal, literals
from ingest.retry import MAX_ATTEMPTS, max_attempts
from ingest.transform import models_dir

SHORTEST_PREFIX = 4
_ID_LENGTH = 64
_SUFFIX = "_quarantine"
_TOLD = 5
# A record that has events and is in quarantine no more was accepted under a mended contract, or
# purged. Its row is gone, its story is not.
_NO_LONGER_REFUSED = "reentered"


@dataclass(frozen=True)
class Refused:
    """One refused record, without its payload.

    Attributes:
        record_id: Its id.
        record_type: Its record type.
        dataset: Its dataset.
        state: One of :data:`ingest.office.states.STATES`.
        reasons: Codes of the rules that struck, in contract order.
        source_file: The file, as ``_source_file`` says it; None where the row is gone.
        file_sha256: Hash of that file's content.
        position: See DESIGN, "Words": a line for CSV, an ordinal for XML.
        since: When it was ingested, UTC.
        owner: The team that works it off.
        attempt: Which time at the gate this was, from 1.
        last: Its newest event.
    """

    record_id: str
    record_type: str
    dataset: str
    state: str
    reasons: tuple[str, ...]
    source_file: str | None
    file_sha256: str | None
    position: int | None
    since: datetime | None
    owner: str | None
    attempt: int
    last: LastEvent | None


@dataclass(frozen=True)
class Filter:
    """Which records are meant. What is empty or None says nothing.

    Attributes:
        datasets: Any of these.
        record_types: Any of these.
        reasons: Refused by any of these rules.
        states: In any of these states.
        file: A glob over the file's whole name or its last part.
        older_than: Ingested longer ago than this.
        newer_than: Ingested no longer ago than this.
        owners: Owned by any of these.
    """

    datasets: tuple[str, ...] = ()
    record_types: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    file: str | None = None
    older_than: timedelta | None = None
    newer_than: timedelta | None = None
    owners: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it leaves every record in."""
        return self == Filter()


class Office:
    """A look at the refused records of a lake, as a context manager. It never writes.

    Attributes:
        lake: The lake.
        contracts: The contracts by record type.
        connection: DuckDB with the table ``refused``, the quarantine tables, and events.
    """

    def __init__(self, lake: Lake, *, bronze: bool = False, now: datetime | None = None) -> None:
        """Open the lake's quarantine.

        Args:
            lake: The lake.
            bronze: Whether the Bronze tables are needed, too: payloads and raw fields stand there.
            now: The instant from which ages count; the clock's by default.

        Raises:
            InputError: It is no lake, or has no quarantine yet.
        """
        self.lake = lake
        self.contracts = known_contracts()
        names = {(table.schema, table.name) for table in lake_tables(lake.path)}
        # The quarantine of what records hold many of is worked off with its records.
        self.record_types = sorted(
            name for schema, name in names if schema == "bronze" and ("silver", name + _SUFFIX) in names
        )
        self._messages = refused_messages.refused_sql(names)
        if not self.record_types and not self._messages:
            raise InputError(
                f"{lake.path} has no quarantine yet. Records are judged by a run: make run LAKE=..."
            )
        wanted = {f"silver.{name}{_SUFFIX}" for name in self.record_types} | {f"bronze.{TABLE}"}
        if self._messages:
            wanted |= {f"bronze.{refused_messages.RECORD_TYPE}", "bronze.bad_data"}
            wanted |= {f"silver.{name}{_SUFFIX}" for name in refused_messages.quarantines(names)}
        if bronze:
            wanted |= {f"bronze.{name}" for name in self.record_types}
        self._has_events = ("bronze", TABLE) in names
        self._now = now or datetime.now(UTC)
        self.connection = connect(lake.path, wanted)
        self._make_table()

    def __enter__(self) -> Office:
        """Nothing is left to open."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes DuckDB."""
        self.connection.close()

    def contract(self, record_type: str) -> Contract:
        """The contract of a record type.

        Raises:
            InputError: There is none any more, so that nothing says how its records are written.
        """
        if record_type == refused_messages.RECORD_TYPE:
            raise InputError(
                "Messages have no columns that can be named one by one. Correct the whole text of one "
                "with --editor or --from."
            )
        if record_type not in self.contracts:
            raise InputError(
                f"{record_type} has refused records and no contract. Put its contract back; until "
                "then its records can be listed, investigated and discarded."
            )
        return self.contracts[record_type]

    def select(self, wanted: Filter, limit: int | None = None) -> tuple[list[Refused], int]:
        """Find records, the oldest first.

        Args:
            wanted: Which.
            limit: The most to give; None gives all.

        Returns:
            The records, and how many there are in all.

        Raises:
            InputError: The filter names a dataset, record type or code that nothing has.
        """
        self._check_names(wanted)
        where = self._condition(wanted)
        (total,) = self.connection.execute(f"select count(*) from refused where {where}").fetchall()[0]
        found = self._records(
            f"where {where} order by since nulls first, source_file, position, record_id"
            + ("" if limit is None else f" limit {limit}")
        )
        return found, int(total)

    def find(self, texts: Sequence[str]) -> list[Refused]:
        """Find records by id or by the first characters of it.

        Args:
            texts: Ids; the same record may be named twice.

        Returns:
            The records, each once, in that order.

        Raises:
            InputError: One of them is no record's, or several records'. All such are named.
        """
        faults: list[str] = []
        exact = self.exact([text for text in texts if len(text) == _ID_LENGTH])
        whole = {record.record_id: record for record in exact}
        found: dict[str, Refused] = {}
        for text in texts:
            fitting = [whole[text]] if text in whole else self._by_prefix(text)
            if len(fitting) == 1:
                found[fitting[0].record_id] = fitting[0]
            elif fitting:
                several = ", ".join(r.record_id[:16] for r in fitting[:_TOLD])
                faults.append(f"{text} is the start of several ids ({several}). Give more of it.")
            elif len(text) < SHORTEST_PREFIX:
                faults.append(f"{text!r} is too short: give at least {SHORTEST_PREFIX} characters.")
            else:
                faults.append(
                    f"{text!r} is no refused record. Copy an id from 'lakehouse quarantine list "
                    "--state all'."
                )
        if faults:
            more = f"\n  and {len(faults) - _TOLD} more" if len(faults) > _TOLD else ""
            raise InputError("Nothing was done.\n  " + "\n  ".join(faults[:_TOLD]) + more)
        return list(found.values())

    def exact(self, record_ids: Iterable[str]) -> list[Refused]:
        """The records that have these ids; an id that none has gives none."""
        return self._records(f"where record_id in (select unnest({literals(record_ids)}))")

    def rule(self, record_type: str, code: str) -> dict[str, str | None]:
        """What the contract says of a code: severity, stage, why, fix, owner; empty if it is gone."""
        if record_type == refused_messages.RECORD_TYPE:
            return refused_messages.rule(code)
        contract = self.contracts.get(record_type)
        for rule in contract.rules if contract else ():
            if contract and rule.code == code:
                return rule.described(contract.owner)
        return {"code": code}

    def bronze_rows(
        self, record_type: str, record_ids: Sequence[str], columns: str
    ) -> list[tuple[Any, ...]]:
        """Ask the Bronze table of a record type about some of its records.

        Args:
            record_type: The record type.
            record_ids: The records.
            columns: What to select, as DuckDB's SQL.

        Raises:
            duckdb.Error: The SQL is wrong.
        """
        return self.connection.execute(
            f"select {columns} from bronze.{identifier(record_type)} "
            f"where _record_id in (select unnest({literals(record_ids)}))"
        ).fetchall()

    def corrected_texts(self, records: Sequence[Refused]) -> dict[str, str]:
        """The new texts of those of the records that are corrected, by record id."""
        waiting = [r.record_id for r in records if r.state == "corrected"]
        if not waiting:
            return {}
        return dict(
            self.connection.execute(
                f'select record_id, max_by(corrected_payload, ("at", event_id)) from bronze.{TABLE} '
                f"where event_type = 'corrected' and record_id in (select unnest({literals(waiting)})) "
                "group by record_id"
            ).fetchall()
        )

    # -- the table of refused records

    def _make_table(self) -> None:
        owners = ", ".join(
            f"({literal(c.record_type)}, {literal(r.code)}, {literal(r.owner or c.owner)})"
            for c in self.contracts.values()
            for r in c.rules
        )
        parts = [self._rows_of(name) for name in self.record_types]
        rows = " union all ".join(parts + [self._rows_of_messages(sql) for sql in self._messages])
        events = (
            f"select record_id, any_value(record_type) as record_type, any_value(dataset) as dataset, "
            f"max(attempt) as attempt, {LAST_EVENT} as last from bronze.{TABLE} group by record_id"
            if self._has_events
            else "select null::text as record_id, null::text as record_type, null::text as dataset, "
            "null::int as attempt, null::struct(event_id text, event_type text, actor text, "
            'reason text, "at" timestamptz) as last where false'
        )
        after = " ".join(
            f"when {literal(event)} then {literal(state)}" for event, state in LEADS_TO.items()
        )
        self.connection.execute(
            f"""
            create temp table refused as
            with
              rows as ({rows}),
              events as ({events}),
              owners (record_type, code, owner) as (values {owners})
            select
              coalesce(rows.record_id, events.record_id) as record_id,
              coalesce(rows.record_type, events.record_type) as record_type,
              coalesce(rows.dataset, events.dataset) as dataset,
              case
                when events.last.event_type = 'purged' then 'purged'
                when rows.record_id is null then {literal(_NO_LONGER_REFUSED)}
                else coalesce(case events.last.event_type {after} end, rows.first_state)
              end as state,
              coalesce(rows.reasons, []) as reasons,
              rows.source_file,
              rows.file_sha256,
              rows.position,
              rows.since,
              coalesce(rows.owner, owners.owner, {self._owner_sql()}) as owner,
              coalesce(rows.attempt, events.attempt) as attempt,
              events.last
            from rows
            full join events on rows.record_id = events.record_id
            left join owners
              on rows.record_type = owners.record_type and rows.reasons[1] = owners.code
            """
        )

    def _rows_of(self, record_type: str) -> str:
        """SQL that gives the rows of one quarantine table, the newest verdict of each record."""
        table = f"silver.{identifier(record_type + _SUFFIX)}"
        columns = {row[0] for row in self.connection.execute(f"describe {table}").fetchall()}
        contract = self.contracts.get(record_type)
        most = max_attempts(contract.terms if contract else {})
        attempt = "coalesce(_attempt, 1)" if "_attempt" in columns else "1"
        dropped = first_state(is_dropped=True, attempt=1, max_attempts=most)
        worn_out = first_state(is_dropped=False, attempt=max(most, 2), max_attempts=most)
        fresh = first_state(is_dropped=False, attempt=1, max_attempts=most)
        return f"""
          select
            {literal(record_type)} as record_type,
            _record_id as record_id,
            _dataset as dataset,
            case
              when is_dropped then {literal(dropped)}
              when {attempt} >= {max(most, 2)} then {literal(worn_out)}
              else {literal(fresh)}
            end as first_state,
            failure_reasons as reasons,
            _source_file as source_file,
            _file_sha256 as file_sha256,
            _position as position,
            _ingested_at as since,
            {attempt} as attempt,
            null::text as owner
          from {table}
          qualify row_number() over (partition by _record_id order by _judged_at desc) = 1
        """

    def _rows_of_messages(self, sql: str) -> str:
        """SQL that gives the same of refused messages, from ``refused_sql``."""
        worn_out = first_state(is_dropped=False, attempt=MAX_ATTEMPTS, max_attempts=MAX_ATTEMPTS)
        fresh = first_state(is_dropped=False, attempt=1, max_attempts=MAX_ATTEMPTS)
        owners = " ".join(
            f"when {literal(name)} then {literal(target.owner)}"
            for name, target in refused_messages.targets().items()
        )
        return f"""
          select
            {literal(refused_messages.RECORD_TYPE)} as record_type,
            record_id,
            dataset,
            case
              when attempt >= {MAX_ATTEMPTS} then {literal(worn_out)} else {literal(fresh)}
            end as first_state,
            reasons,
            source_file,
            file_sha256,
            position,
            since,
            attempt,
            case dataset {owners} end as owner
          from ({sql}) as given (
            record_id, dataset, reasons, source_file, file_sha256, position, since, attempt
          )
        """

    def _owner_sql(self) -> str:
        """SQL for the owner of a record whose code has none: that of its contract."""
        cases = " ".join(
            f"when {literal(c.record_type)} then {literal(c.owner)}" for c in self.contracts.values()
        )
        return f"case coalesce(rows.record_type, events.record_type) {cases} end"

    # -- asking it

    def _records(self, rest: str) -> list[Refused]:
        names = [field.name for field in fields(Refused)]
        rows = self.connection.execute(f"select {', '.join(names)} from refused {rest}")
        found = []
        for row in rows.fetchall():
            record = dict(zip(names, row, strict=True))
            record["reasons"] = tuple(record["reasons"])
            record["last"] = LastEvent(**record["last"]) if record["last"] else None
            found.append(Refused(**record))
        return found

    def _by_prefix(self, text: str) -> list[Refused]:
        if len(text) < SHORTEST_PREFIX:
            return []
        return self._records(
            f"where starts_with(record_id, {literal(text)}) order by record_id limit {_TOLD + 1}"
        )

    def _condition(self, wanted: Filter) -> str:
        parts = [
            f"list_contains({literals(chosen)}, {column})"
            for column, chosen in (
                ("dataset", wanted.datasets),
                ("record_type", wanted.record_types),
                ("state", wanted.states),
                ("owner", wanted.owners),
            )
            if chosen
        ]
        if wanted.reasons:
            parts.append(f"list_has_any(reasons, {literals(wanted.reasons)})")
        if wanted.file is not None:
            glob = literal(wanted.file)
            last = "regexp_extract(source_file, '[^/!]*$')"
            parts.append(f"(source_file glob {glob} or {last} glob {glob})")
        if wanted.older_than is not None:
            before = (self._now - wanted.older_than).isoformat()
            parts.append(f"since < {literal(before)}::timestamptz")
        if wanted.newer_than is not None:
            after = (self._now - wanted.newer_than).isoformat()
            parts.append(f"since >= {literal(after)}::timestamptz")
        return " and ".join(parts or ["true"])

    def _check_names(self, wanted: Filter) -> None:
        """A name with a slip in it would find nothing, which reads as if all were well."""
        targets = list(refused_messages.targets().values()) if self._messages else []
        rules = [
            *((c.owner, r) for c in self.contracts.values() for r in c.rules),
            *((t.owner, r) for t in targets for r in t.rules),
        ]
        known = {
            "dataset": {d.name for c in self.contracts.values() for d in c.datasets}
            | {target.name for target in targets},
            "record type": {*self.contracts, refused_messages.RECORD_TYPE},
            "rule": {rule.code for _, rule in rules},
            "owner": {rule.owner or owner for owner, rule in rules} | {t.owner for t in targets},
        }
        columns = {
            "dataset": "dataset", "record type": "record_type", "rule": "unnest(reasons)",
            "owner": "owner",
        }  # fmt: skip
        asked = {
            "dataset": wanted.datasets, "record type": wanted.record_types,
            "rule": wanted.reasons, "owner": wanted.owners,
        }  # fmt: skip
        for kind, names in asked.items():
            strange = [name for name in names if name not in known[kind]]
            if not strange:
                continue
            # What a contract has lost may still stand in the quarantine.
            rows = self.connection.execute(f"select distinct {columns[kind]} from refused").fetchall()
            names_there = known[kind] | {row[0] for row in rows if row[0]}
            for name in strange:
                if name not in names_there:
                    raise InputError(
                        f"No contract and no refused record has the {kind} '{name}'. Known: "
                        f"{', '.join(sorted(names_there))}."
                    )


@cache
def known_contracts() -> Mapping[str, Contract]:
    """The contracts. They do not change while a command runs."""
    return load_contracts(models_dir())


def open_states(wanted: Filter) -> Filter:
    """A filter that, where it names no state, leaves the records that wait for somebody."""
    if wanted.states:
        return wanted
    return Filter(**{**wanted.__dict__, "states": OPEN_STATES})
