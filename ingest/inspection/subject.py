"""The file that is inspected: what is known of it before Spark, and how Spark's own reader is told."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ingest.capture import csv
from ingest.capture.csv_format import LINE_END
from ingest.capture.streams import ByteStream, read_up_to, skip
from ingest.contracts import Contract, Field
from ingest.errors import FileReadError, InputError
from ingest.sources import ProbedFile, Source, csv_format, digest_of, look_inside, placed

CORRUPT = "_corrupt"
"""The column in which Spark's reader keeps the text of a record that it cannot read."""
EVIDENCE = ("_position", "_fields", "_parse_error", "_misfits", "failure_reasons", "reason", "payload")
"""What the quarantine says of a record beside its fields."""
_CHUNK_BYTES = 1 << 20
_TIME_OPTIONS = {"timestamp": "timestampFormat", "instant": "timestampFormat", "date": "dateFormat"}


@dataclass(frozen=True)
class FileColumn:
    """A column of the file.

    Attributes:
        name: The contract's name for it; else the file's, or ``column_<n>`` where that is no name.
        read_type: The type with which Spark's own reader is told to read it.
        field: The field of the contract that is made from it as it stands, if there is one.
    """

    name: str
    read_type: str
    field: Field | None

    @property
    def agreed_type(self) -> str:
        """The type of its values under the contract, as Spark writes it."""
        return self.field.spark_type.replace(" ", "") if self.field else "string"


@dataclass(frozen=True)
class Subject:
    """A CSV file, and the contract that it is held to.

    Attributes:
        contract: What its records are.
        file: What was found in it; its header is set.
        columns: Its columns, in their order.
        spans_lines: Whether a record spans lines; an unclosed quote spans none.
    """

    contract: Contract
    file: ProbedFile
    columns: tuple[FileColumn, ...]
    spans_lines: bool

    @property
    def header(self) -> csv.Header:
        """The file's header, or the contract's columns where it has none."""
        assert self.file.header is not None
        return self.file.header

    @property
    def format(self) -> csv.CsvFormat:
        """How the feed writes its CSV."""
        return csv_format(self.contract)

    @property
    def records_found(self) -> int:
        """Records by the independent count."""
        return self.file.parts[0].records_found

    @property
    def ddl(self) -> str:
        """The columns as one line of DDL, in the order of the header."""
        return ", ".join(f"{quoted(column.name)} {column.read_type}" for column in self.columns)

    @property
    def read_options(self) -> dict[str, str]:
        """Options of Spark's own reader that say what the contract says.

        Line by line where no record spans lines: there an unclosed quote costs Spark's reader one
        line, and with ``multiLine`` the rest of the file. Blanks around a value are no fault.
        """
        fmt = self.format
        options = {
            "header": str(fmt.header).lower(),
            "sep": fmt.delimiter,
            "quote": fmt.quote,
            "multiLine": str(self.spans_lines).lower(),
            "ignoreLeadingWhiteSpace": "true",
            "ignoreTrailingWhiteSpace": "true",
            **_time_formats(self.contract),
        }
        if fmt.quote:
            options["escape"] = fmt.escape
        if _decimal_signs(self.contract) == {","}:
            # The one locale in use here whose decimals are written 1.234,56.
            options["locale"] = "de-DE"
        return options


def quoted(name: str) -> str:
    """A column's name as DDL has it."""
    return name if name.isascii() and name.isidentifier() else f"`{name.replace('`', '``')}`"


def look(contracts: Mapping[str, Contract], record_type: str, path: Path) -> Subject:
    """Look at a file before Spark does.

    Args:
        contracts: Every contract there is.
        record_type: The one that the file is held to, whatever the file's name.
        path: The file, plain or gzip (``.gz``).

    Raises:
        InputError: There is no such record type, or it is no CSV, or a field of it has a name that the
            quarantine needs; or the file is not there, is no
            file, cannot be read as CSV of the contract, or holds no record.
    """
    contract = _csv_contract(contracts, record_type)
    if path.is_dir():
        raise InputError(f"{path} is a folder, and one file is inspected at a time. Name a file in it.")
    if not path.exists():
        raise InputError(f"{path} is not there. Correct the path; nothing was read.")
    source = Source(str(path.absolute()))
    probed = ProbedFile(source, "new", record_type=record_type)
    try:
        probed.file_sha256, probed.size_bytes = digest_of(source)
        look_inside(probed, [contract], None)
        assert probed.header is not None
        with source.open() as stream:
            spans_lines = _spans_lines(stream, csv_format(contract), probed.header)
    except FileReadError as error:
        raise InputError(f"{record_type}, {placed(source, str(error))}") from error
    if not probed.parts[0].records_found:
        raise InputError(
            f"{record_type}, {source.name} holds a header and no record, so that nothing can be said "
            f"of its values. It is mostly a transfer that broke off: ask for the file again."
        )
    columns = _columns(contract, probed.header)
    return Subject(contract, probed, columns, spans_lines)


def check_unchanged(subject: Subject) -> None:
    """Make sure that the file is still what was looked at.

    Raises:
        InputError: It changed, so that what was written is of two contents.
    """
    if digest_of(subject.file.source)[0] != subject.file.file_sha256:
        raise changed(subject)


def changed(subject: Subject) -> InputError:
    """What is said of a file that somebody wrote to meanwhile."""
    return InputError(
        f"{subject.file.source.name} changed while it was inspected, so that its numbers would be "
        f"of two files. Nothing was written; run again when nobody writes to it."
    )


def write_readable(subject: Subject, path: Path) -> None:
    """Give Spark's own reader the file under a name that it takes, as UTF-8 from the header on.

    Spark hides names that begin with ``_`` or ``.``, reads ``[`` as a pattern, takes seven charsets
    and no Windows-1252, and takes the first line for the header.

    Args:
        subject: The file.
        path: Where to: a link where the file is so already, else a copy.
    """
    source, header = subject.file.source, subject.header
    is_top = not any(finding.error_type == "LINES_ABOVE_HEADER" for finding in header.findings)
    if header.encoding == "utf-8" and is_top and not source.path.lower().endswith(".gz"):
        path.symlink_to(source.path)
        return
    is_utf8 = header.encoding == "utf-8"
    decode = codecs.getincrementaldecoder(header.encoding)("replace")
    with source.open() as stream, path.open("wb") as copy:
        skip(stream, header.byte_length)
        is_first = True
        while chunk := read_up_to(stream, _CHUNK_BYTES):
            text = chunk if is_utf8 else decode.decode(chunk).encode()
            if is_first and header.text:
                # The line end that the file has: Spark takes the first for that of all lines.
                found = LINE_END.search(text)
                copy.write(header.text.encode() + (found.group() if found else b"\n"))
            is_first = False
            copy.write(text)
        copy.write(b"" if is_utf8 else decode.decode(b"", final=True).encode())


def _csv_contract(contracts: Mapping[str, Contract], record_type: str) -> Contract:
    csvs = ", ".join(sorted(name for name, contract in contracts.items() if contract.format == "csv"))
    contract = contracts.get(record_type)
    if contract is None:
        raise InputError(
            f"There is no record type '{record_type}'. Of CSV there are: {csvs}. Name one of them, or "
            f"begin a contract with: lakehouse contract new"
        )
    if contract.format != "csv":
        raise InputError(
            f"Record type '{record_type}' is {contract.format}, and what is inspected is CSV. Name "
            f"one of these: {csvs}."
        )
    taken = sorted({field.name for field in contract.fields} & set(EVIDENCE))
    if taken:
        raise InputError(
            f"Record type '{record_type}' has a field {taken[0]}, which is also what the quarantine "
            f"says of a refused record, so that one would hide the other. Give the field another name."
        )
    return contract


def _spans_lines(stream: ByteStream, fmt: csv.CsvFormat, header: csv.Header) -> bool:
    if not fmt.quote:
        return False
    for block, records in csv.pieces(stream, fmt, header):
        if block is not None and LINE_END.search(block.text):
            return True
        if any(LINE_END.search(item.payload.encode()) for item in records):
            return True
    return False


def _columns(contract: Contract, header: csv.Header) -> tuple[FileColumn, ...]:
    taken = {CORRUPT, *(column.casefold() for column in header.columns if column)}
    columns = []
    for number, (name, known) in enumerate(zip(header.names, header.columns, strict=True), start=1):
        field = next((f for f in contract.fields if known and f.expression == known), None)
        if known is None:
            known = name if name and name.casefold() not in taken else f"column_{number}"
            taken.add(known.casefold())
        columns.append(FileColumn(known, _read_type(contract, field), field))
    return tuple(columns)


def _read_type(contract: Contract, field: Field | None) -> str:
    """The type to read with: a string where Spark's reader cannot be told how values are written."""
    if field is None or not field.can_misfit or field.type.startswith("array"):
        return "STRING"
    is_whole = field.type in ("int", "bigint")
    if is_whole and field.thousands_mark:
        return "STRING"
    signs = _decimal_signs(contract)
    if field.type.startswith("decimal") and (
        len(signs) > 1 or field.thousands_mark not in ("", ".", ",")
    ):
        return "STRING"
    option = _TIME_OPTIONS.get(field.type)
    format_ = field.formats[0] if field.formats else None
    if option and format_ != _time_formats(contract).get(option):
        return "STRING"
    return field.spark_type.upper()


def _time_formats(contract: Contract) -> dict[str, str]:
    """The format that most fields of a type have: the reader takes one for all."""
    options = {}
    for kind, option in {"timestamp": "timestampFormat", "date": "dateFormat"}.items():
        formats = Counter(f.formats[0] for f in contract.fields if f.type == kind and f.formats)
        if formats:
            options[option] = formats.most_common(1)[0][0]
    return options


def _decimal_signs(contract: Contract) -> set[str]:
    return {field.decimal_sign for field in contract.fields if field.type.startswith("decimal")}
