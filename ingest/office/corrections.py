"""Corrections: the new text of a refused record, from a person or from an expression.

The evidence is never touched: a correction is an event that carries the whole new text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import duckdb

from ingest.capture import csv
from ingest.contracts import Contract
from ingest.errors import FileReadError, InputError
from ingest.office import csv_edit, xml_edit
from ingest.office.paths import Path, plain_fields, resolve
from ingest.office.refused import Office, Refused
from ingest.office.sources import read_unchanged
from ingest.query import explain, identifier, literal, literals
from ingest.schema import TEXT_FIELD, parse_ddl
from ingest.sources import csv_format

# So many sound records of a file say which column is which.
_SAMPLE = 1000
_TARGET = re.compile(r"\s*([A-Za-z_][\w.\[\]-]*)\s*=(?!=)(.*)\Z", re.DOTALL)


class Change(NamedTuple):
    """One value of a record, before and after. None: there was none."""

    name: str
    before: str | None
    after: str


@dataclass(frozen=True)
class Correction:
    """The new text of a record.

    Attributes:
        record: The record.
        payload: Its whole new text.
        changes: Which values were set, where they were set one by one.
    """

    record: Refused
    payload: str
    changes: tuple[Change, ...] = ()


class Left(NamedTuple):
    """A record that was not corrected, and why."""

    record: Refused
    why: str


class Assignment(NamedTuple):
    """``path = expression``, as a user writes it."""

    target: str
    expression: str


def parse_assignment(text: str) -> Assignment:
    """Read what ``--set`` was given.

    Raises:
        InputError: It is no assignment.
    """
    match = _TARGET.match(text)
    if match is None or not match[2].strip():
        raise InputError(
            f"--set {text!r} is no assignment. Write a column, '=', and SQL over the columns: "
            '--set "qty = trim(qty)"'
        )
    return Assignment(match[1], match[2].strip())


class Payloads:
    """The texts of some refused records of one record type, and how to write them anew."""

    def __init__(self, office: Office, record_type: str, records: Sequence[Refused]) -> None:
        """Reads the texts.

        Args:
            office: Opened with Bronze.
            record_type: The record type.
            records: The records.

        Raises:
            InputError: There is no contract of that record type.
        """
        self._office = office
        self.contract: Contract = office.contract(record_type)
        self._shown: dict[str, csv_edit.FileColumns] = {}
        self._named: dict[str, csv_edit.FileColumns | None] = {}
        rows = office.bronze_rows(
            record_type, [r.record_id for r in records], "_record_id, payload, _parse_error.message"
        )
        self._texts = {record_id: (payload, message) for record_id, payload, message in rows}

    @cached_property
    def _csv(self) -> csv.CsvFormat:
        return csv_format(self.contract)

    def text(self, record: Refused) -> str:
        """The text of a record.

        Raises:
            InputError: There is none: it was purged.
        """
        payload, _ = self._texts.get(record.record_id, (None, None))
        if payload is None:
            raise InputError(
                f"Record {record.record_id[:12]} has no payload any more. A purge removed it, so that "
                "nothing is left to correct."
            )
        return str(payload)

    def check(self, record: Refused, payload: str) -> None:
        """Refuse a new text of a record that cannot be one record, or says what the old one said.

        Raises:
            InputError: With what is wrong and where.
        """
        if payload == self.text(record):
            raise InputError("The text is what it was, so there is nothing to correct.")
        if self.contract.format == "xml":
            xml_edit.check_record(payload, str(self.contract.row_tag))
        else:
            csv_edit.check_record(payload, self._csv, self.columns_of(record))

    def with_values(self, record: Refused, values: Mapping[str, str]) -> str:
        """The text of a record with other values in it, and nothing else changed.

        Args:
            record: The record.
            values: By column, path or field; see :func:`ingest.office.paths.resolve`.

        Raises:
            InputError: The record does not parse, or a value has no place in it.
        """
        text = self.text(record)
        message = self._texts[record.record_id][1]
        if message is not None:
            raise InputError(
                f"The record does not parse ({message}), so its values cannot be told apart. Correct "
                "the whole record with --editor or --from."
            )
        for name, value in values.items():
            path = resolve(self.contract, name)
            if self.contract.format == "xml":
                text = xml_edit.set_text(text, path, value)
            else:
                columns = self.columns_of(record, str(path))
                text = csv_edit.set_value(text, self._csv, columns, str(path), value)
        return text

    def columns_of(self, record: Refused, name: str | None = None) -> csv_edit.FileColumns:
        """Which value of a CSV record is which column.

        Its file's records show it, mostly. Only where they do not is the file itself read.

        Args:
            record: The record.
            name: The column that is asked for; None where only their number is.
        """
        digest = record.file_sha256 or ""
        if digest not in self._shown:
            self._shown[digest] = self._by_records(digest)
        shown = self._shown[digest]
        if shown.count is not None and (name is None or name in shown.places):
            return shown
        if digest not in self._named:
            self._named[digest] = self._by_header(record)
        return self._named[digest] or shown

    def header_of(self, record: Refused) -> tuple[str, ...]:
        """Names of the columns of a CSV record's file in their order; none where feeds have no header.

        Raises:
            InputError: Nothing says it any more.
        """
        if not self._csv.header:
            return ()
        digest = record.file_sha256 or ""
        if digest not in self._named:
            self._named[digest] = self._by_header(record)
        columns = self._named[digest] or self.columns_of(record)
        names = columns.named(self._csv.columns)
        if not names:
            raise InputError(
                f"{record.source_file} is gone or was changed, and its records do not show which value "
                "is which column. Put the file back, and try again."
            )
        return names

    def _by_header(self, record: Refused) -> csv_edit.FileColumns | None:
        if not self._csv.header:
            names = {name: at for at, name in enumerate(self._csv.columns)}
            return csv_edit.FileColumns(len(names), names)
        data = read_unchanged(record.source_file or "", record.file_sha256 or "")
        if data is None:
            return None
        try:
            return csv_edit.columns_of_header(csv_edit.header_of(data, self._csv))
        except FileReadError:
            # The contract has changed since, and does not know this header any more.
            return None

    def _by_records(self, file_sha256: str) -> csv_edit.FileColumns:
        table = f"bronze.{identifier(self.contract.record_type)}"
        there = {row[0] for row in self._office.connection.execute(f"describe {table}").fetchall()}
        names = ", ".join(identifier(c) if c in there else "null" for c in self._csv.columns)
        rows = self._office.connection.execute(
            f"select payload, {names} from {table} where _file_sha256 = {literal(file_sha256)} "
            f"and _parse_error is null and payload is not null limit {_SAMPLE}"
        ).fetchall()
        return csv_edit.columns_of_records(self._csv, [(row[0], row[1:]) for row in rows])

    def values(self, records: Sequence[Refused]) -> dict[str, dict[str, str | None]]:
        """The values of records as they are written, by record id and name.

        Names are those of the contract's fields that are one text of the record.
        """
        fields = plain_fields(self.contract)
        paths = [self._sql(resolve(self.contract, text)) for text in fields.values()]
        rows = self._office.bronze_rows(
            self.contract.record_type,
            [r.record_id for r in records],
            ", ".join(["_record_id", *paths]),
        )
        return {row[0]: dict(zip(fields, row[1:], strict=True)) for row in rows}

    def _sql(self, path: Path) -> str:
        """A path as DuckDB's SQL over Bronze; the first of elements that repeat unless it says which."""
        node, text = parse_ddl(self.contract.schema_ddl), ""
        for step in path.steps:
            node = node.children[step.name]
            text += ("." if text else "") + identifier(step.name)
            if node.is_array:
                text += f"[{step.number or 1}]"
        if path.attribute:
            return text + ("." if text else "") + identifier(f"_{path.attribute}")
        return f"{text}.{identifier(TEXT_FIELD)}" if node.attributes else text

    # -- by expression

    def evaluate(
        self, records: Sequence[Refused], assignments: Sequence[Assignment]
    ) -> tuple[list[Correction], list[Left]]:
        """Correct records by expressions over their Bronze columns and fields, every one a text.

        All expressions see the record as it was. An expression that gives null leaves its value as it
        is.

        Args:
            records: Of this record type.
            assignments: What to set.

        Returns:
            The corrections, and the records that are left as they are, each with the reason.

        Raises:
            InputError: A target is no text of the records, or an expression is no SQL.
        """
        targets = [assignment.target for assignment in assignments]
        paths = [resolve(self.contract, target) for target in targets]
        if len(set(paths)) < len(paths):
            raise InputError(
                "--set names one value twice, and it can have one text only. Leave one out."
            )
        given = self._ask(records, [assignment.expression for assignment in assignments])
        before = self._ask(records, [self._sql(path) for path in paths])
        corrections, left = [], []
        for record in records:
            was, new = before.get(record.record_id), given.get(record.record_id)
            if was is None or new is None:
                left.append(Left(record, "it has no payload any more"))
                continue
            changes = tuple(
                Change(target, old, text)
                for target, text, old in zip(targets, new, was, strict=True)
                if text is not None and text != old
            )
            if not changes:
                why = "the expression gives null" if None in new else "nothing changes"
                left.append(Left(record, why))
                continue
            try:
                payload = self.with_values(record, {c.name: c.after for c in changes})
                self.check(record, payload)
            except InputError as error:
                left.append(Left(record, str(error)))
                continue
            corrections.append(Correction(record, payload, changes))
        return corrections, left

    def _ask(
        self, records: Sequence[Refused], expressions: Sequence[str]
    ) -> dict[str, tuple[str | None, ...]]:
        table = f"bronze.{identifier(self.contract.record_type)}"
        columns = {
            row[0].lower() for row in self._office.connection.execute(f"describe {table}").fetchall()
        }
        fields = "".join(
            f", {self._sql(resolve(self.contract, text))} as {identifier(name)}"
            for name, text in plain_fields(self.contract).items()
            if name.lower() not in columns
        )
        ids = literals(record.record_id for record in records)
        # A newline ends what may be a comment.
        asked = "".join(f", cast((\n{expression}\n) as varchar)" for expression in expressions)
        sql = (
            f"with records as (select *{fields} from {table} "
            f"where _record_id in (select unnest({ids}))) "
            f"select _record_id{asked} from records"
        )
        try:
            rows = self._office.connection.execute(sql).fetchall()
        except duckdb.Error as error:
            raise InputError(
                f"--set cannot be worked out: {explain(error)}. Correct the expression; its columns "
                "are texts, so convert them first: try_cast(trim(qty) as int)."
            ) from error
        return {row[0]: tuple(row[1:]) for row in rows}


def by_record_type(records: Sequence[Refused]) -> dict[str, list[Refused]]:
    """Records in groups of one record type, order kept."""
    groups: dict[str, list[Refused]] = {}
    for record in records:
        groups.setdefault(record.record_type, []).append(record)
    return groups
