"""What an inspection found, counted again from what it wrote and from nothing else."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.dataset as ds

from ingest.errors import LakehouseError
from ingest.inspection.subject import CORRUPT
from ingest.query import identifier, literal

SHOWN = 20
"""Rows that are shown of one rule, and values of one column."""
MOST_LINES = 1000
"""Line numbers that are named of one rule."""
TEXT_LENGTH = 200
"""Characters that are shown of one value or record."""
_READING_STAGES = ("file_read", "csv_parsing", "schema_validation")


@dataclass(frozen=True)
class Shown:
    """The start of a text, and how many characters the whole has."""

    start: str
    length: int

    @classmethod
    def of(cls, text: str) -> Shown:
        """Of a whole text."""
        return cls(text[:TEXT_LENGTH], len(text))


@dataclass(frozen=True)
class RefusedRecord:
    """A record in the quarantine.

    Attributes:
        line: The line on which it starts.
        error_class: Why it does not parse, where it does not.
        fields: How many fields it has.
        values: Columns and values that the rule is about.
        text: The record.
    """

    line: int
    error_class: str | None
    fields: int
    values: tuple[tuple[str, Shown | None], ...]
    text: Shown


@dataclass(frozen=True)
class RefusingRule:
    """A rule of the contract that was the first to refuse some records.

    Attributes:
        code: Its code.
        reason: Its group.
        is_reading: Whether it is about reading the record; else it is a business rule.
        why: Why it refuses, in English.
        fix: What to do, in English.
        records: How many.
        rows: The first of them.
        lines: On which lines they start, as far as they are named.
    """

    code: str
    reason: str
    is_reading: bool
    why: str
    fix: str
    records: int
    rows: tuple[RefusedRecord, ...]
    lines: tuple[int, ...]


@dataclass(frozen=True)
class MisinferredColumn:
    """A column that was inferred as another type than agreed, with the first values at fault."""

    name: str
    agreed: str
    inferred: str
    values: int
    examples: tuple[tuple[int, Shown], ...]


@dataclass(frozen=True)
class Findings:
    """What was found.

    Attributes:
        facts: ``inspection.json``: the file, the contract.
        clean: Records that no rule refuses.
        quarantined: The others.
        reasons: Of these, by group, the commonest first.
        rules: Of these, by the first rule, in the contract's order.
        permissive: Rows that PERMISSIVE gave.
        malformed: Of these, those that it could not read.
        dropped: Rows that DROPMALFORMED wrote.
        count_only: What ``count()`` said of it.
        condition: On which condition FAILFAST failed; None where it did not.
        failed_line: The line of the first record that meets it, where it is known.
        failed_text: That record.
        widths: Records by number of fields.
        widths_naive: Lines by number of fields without a mind to quotes, where that differs.
        misinferred: Columns that were inferred as another type than agreed.
    """

    facts: dict[str, Any]
    clean: int
    quarantined: int
    reasons: dict[str, int]
    rules: tuple[RefusingRule, ...]
    permissive: int
    malformed: int
    dropped: int
    count_only: int
    condition: str | None
    failed_line: str
    failed_text: Shown
    widths: dict[str, int]
    widths_naive: dict[str, int] | None
    misinferred: tuple[MisinferredColumn, ...]

    @property
    def received(self) -> int:
        """All records."""
        return self.clean + self.quarantined

    @property
    def broken(self) -> int:
        """Records that do not parse, or hold a value that is not of the agreed type."""
        return sum(rule.records for rule in self.rules if rule.is_reading)

    @property
    def returned(self) -> int:
        """Records that parse, and that a business rule refuses."""
        return self.quarantined - self.broken


def recount(folder: Path) -> Findings:
    """Count what an inspection wrote.

    Args:
        folder: Where it wrote.

    Raises:
        LakehouseError: The written results contradict each other.
    """
    facts = json.loads((folder / "inspection.json").read_text("utf-8"))
    counted = json.loads((folder / "drop_count.json").read_text("utf-8"))
    widths = json.loads((folder / "width.json").read_text("utf-8"))
    naive = folder / "width_naive.json"
    # As bytes: the text of a record keeps its own line ends.
    failure = (folder / "failfast.txt").read_bytes().decode("utf-8").removesuffix("\n")
    condition, *failed = failure.split("\n", 2)
    with _open(folder, "clean", "quarantine", "permissive", "dropped", "inference") as connection:
        ask = connection.execute
        clean = _number(connection, "select count(*) from clean")
        quarantined = _number(connection, "select count(*) from quarantine")
        reasons = dict(
            ask("select reason, count(*) from quarantine group by 1 order by 2 desc, 1").fetchall()
        )
        findings = Findings(
            facts=facts,
            clean=clean,
            quarantined=quarantined,
            reasons=reasons,
            rules=tuple(rule for terms in facts["rules"] if (rule := _rule(connection, terms, facts))),
            permissive=_number(connection, "select count(*) from permissive"),
            malformed=_number(connection, f"select count({CORRUPT}) from permissive"),
            dropped=_number(connection, "select count(*) from dropped"),
            count_only=counted["count_only"],
            condition=condition if condition.startswith("MALFORMED_") else None,
            failed_line=failed[0].removeprefix("line ") if failed else "",
            failed_text=Shown.of(failed[1] if len(failed) > 1 else ""),
            widths=widths,
            widths_naive=json.loads(naive.read_text("utf-8")) if naive.exists() else None,
            misinferred=tuple(
                _column(connection, item)
                for item in facts["columns"]
                if item["inferred"] != item["agreed"]
            ),
        )
    _check(findings, counted["written"])
    return findings


def first_malformed(records: Path, permissive: Path) -> tuple[str, str] | None:
    """The first record of the file that Spark's reader could not read: its line, and its text.

    Args:
        records: Folder of the records as they were cut, with their lines.
        permissive: What PERMISSIVE gave, without lines.

    Returns:
        The line is ``unknown`` where the reader made one text of several records. None where it could
        read all.
    """
    found = _open(records.parent, records.name)
    found.register("permissive", dataset(permissive))
    with found as connection:
        # A record that spans lines is one text for both; where the reader joined records, its text
        # begins with the first of them.
        row = connection.execute(
            f"select r._position, r.payload from {identifier(records.name)} as r where r.payload in ("
            f"select {CORRUPT} from permissive where {CORRUPT} is not null union all "
            f"select rtrim(split_part({CORRUPT}, chr(10), 1), chr(13)) from permissive "
            f"where contains({CORRUPT}, chr(10))) order by 1 limit 1"
        ).fetchone()
        if row:
            return str(row[0]), str(row[1])
        row = connection.execute(
            f"select {CORRUPT} from permissive where {CORRUPT} is not null limit 1"
        ).fetchone()
        return ("unknown", str(row[0])) if row else None


def dataset(folder: Path) -> ds.Dataset:
    """A folder of Parquet. By Arrow: Spark and DuckDB take a bracket in its name for a pattern."""
    return ds.dataset([str(path) for path in sorted(folder.glob("*.parquet"))], format="parquet")


def _open(folder: Path, *names: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name in names:
        connection.register(name, dataset(folder / name))
    return connection


def _number(connection: duckdb.DuckDBPyConnection, sql: str) -> int:
    row = connection.execute(sql).fetchone()
    assert row is not None
    return int(row[0])


def _rule(
    connection: duckdb.DuckDBPyConnection, terms: dict[str, Any], facts: dict[str, Any]
) -> RefusingRule | None:
    struck = f"from quarantine where failure_reasons[1] = {literal(terms['code'])}"
    records = _number(connection, f"select count(*) {struck}")
    if not records:
        return None
    fields = terms["fields"]
    values = "".join(
        f", left(cast({identifier(name)} as varchar), {TEXT_LENGTH}), "
        f"length(cast({identifier(name)} as varchar))"
        for name in fields
    )
    rows = []
    for line, error_class, count, misfits, start, length, *found in connection.execute(
        f"select _position, _parse_error.error_class, _fields, _misfits, left(payload, {TEXT_LENGTH}), "
        f"length(payload){values} {struck} order by 1 limit {SHOWN}"
    ).fetchall():
        texts = _misfit_texts(misfits, fields)
        shown: list[tuple[str, Shown | None]] = []
        for name, text, size in zip(fields, found[::2], found[1::2], strict=True):
            if name in texts:
                shown.append((name, Shown.of(texts[name])))
            elif not terms["is_misfit"]:
                shown.append((name, None if text is None else Shown(text, size)))
        rows.append(RefusedRecord(line, error_class, count, tuple(shown), Shown(start, length)))
    lines = connection.execute(f"select _position {struck} order by 1 limit {MOST_LINES}").fetchall()
    return RefusingRule(
        code=terms["code"],
        reason=terms["reason"],
        is_reading=terms["stage"] in _READING_STAGES,
        why=terms["why"],
        fix=terms["fix"],
        records=records,
        rows=tuple(rows),
        lines=tuple(line for (line,) in lines),
    )


def _misfit_texts(misfits: list[str], fields: list[str]) -> dict[str, str]:
    """The texts that did not convert, from what the verdict says of them: ``qty is 'two'``."""
    return {
        name: said.removeprefix(opening).removesuffix("'")
        for name in fields
        for said in misfits
        if said.startswith(opening := f"{name} is '")
    }


def _column(connection: duckdb.DuckDBPyConnection, item: dict[str, str]) -> MisinferredColumn:
    of_column = f'from inference where "column" = {literal(item["name"])}'
    examples = connection.execute(
        f"select _position, left(value, {TEXT_LENGTH}), length(value) {of_column} "
        f"order by 1 limit {SHOWN}"
    ).fetchall()
    return MisinferredColumn(
        name=item["name"],
        agreed=item["agreed"],
        inferred=item["inferred"],
        values=_number(connection, f"select count(*) {of_column}"),
        examples=tuple((line, Shown(start, length)) for line, start, length in examples),
    )


def _check(findings: Findings, written: int) -> None:
    """The numbers of a report hold together, or there is none.

    Raises:
        LakehouseError: They do not.
    """
    sums = {
        "clean and quarantined, against lines by width": (
            findings.received, sum(findings.widths.values()),
        ),
        "quarantined, against their first rules": (
            findings.quarantined, sum(rule.records for rule in findings.rules),
        ),
        "rows in dropped, against drop_count.json": (findings.dropped, written),
    }  # fmt: skip
    wrong = [f"{what}: {left} and {right}" for what, (left, right) in sums.items() if left != right]
    if wrong:
        raise LakehouseError(
            f"The results contradict each other ({'; '.join(wrong)}), and a report of them would be "
            f"wrong. Nothing was written; keep the file, and tell whoever maintains this program."
        )
