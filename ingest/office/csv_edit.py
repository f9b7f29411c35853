"""Putting another value into a CSV record, and leaving every other field as it is written."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

from ingest.capture import csv
from ingest.capture.encoding import detect_csv
from ingest.errors import InputError


@dataclass(frozen=True)
class FileColumns:
    """Which value of a file's records is which column.

    A record's text alone does not say it: columns stand as the file's header names them.

    Attributes:
        count: Fields of a record; None where nothing tells it.
        places: Column -> the place from 0 at which it stands, where that is certain.
        names: Columns of all places as the file names them, where that is known.
    """

    count: int | None
    places: dict[str, int]
    names: tuple[str, ...] = ()

    def named(self, contract_columns: Sequence[str]) -> tuple[str, ...]:
        """Columns of all places, by elimination where one is left; empty where it is not certain."""
        if self.names or self.count != len(contract_columns):
            return self.names
        rest = [name for name in contract_columns if name not in self.places]
        free = [at for at in range(self.count) if at not in self.places.values()]
        if len(rest) > 1 or len(free) != len(rest):
            return ()
        placed = {**self.places, **dict(zip(rest, free, strict=True))}
        return tuple(sorted(placed, key=lambda name: placed[name]))


def header_of(data: bytes, fmt: csv.CsvFormat) -> csv.Header:
    """Read the header of a whole file.

    Raises:
        FileReadError: See :func:`ingest.capture.csv.read_header`.
    """
    encoding = detect_csv(io.BytesIO(data), fmt.encoding, fmt.signs)
    return csv.read_header(io.BytesIO(data), fmt, encoding)


def columns_of_header(header: csv.Header) -> FileColumns:
    """Columns as the header of the file says them."""
    places = {name: at for at, name in enumerate(header.columns) if name is not None}
    return FileColumns(len(header.columns), places, header.names)


def columns_of_records(
    fmt: csv.CsvFormat, records: Sequence[tuple[str, Sequence[str | None]]]
) -> FileColumns:
    """Columns as sound records of the file show them, for when the file is gone.

    Args:
        fmt: How the feed writes its CSV.
        records: Text and parsed values of sound records of the file, values in the order of the
            contract's columns.
    """
    count: int | None = None
    fitting: dict[str, set[int]] = {}
    # A column that the file lacks is empty in every record, and so may one be that no contract knows.
    seen: set[str] = set()
    for payload, values in records:
        written = [fmt.unquoted(raw.decode("utf-8")) for raw in fmt.fields(payload.encode("utf-8"))]
        count = len(written)
        for name, value in zip(fmt.columns, values, strict=True):
            here = {at for at, text in enumerate(written) if text == (value or "").strip()}
            fitting[name] = fitting[name] & here if name in fitting else here
            if value:
                seen.add(name)
    return FileColumns(
        count, {name: at.pop() for name, at in fitting.items() if name in seen and len(at) == 1}
    )


def set_value(payload: str, fmt: csv.CsvFormat, columns: FileColumns, name: str, value: str) -> str:
    """Set one column of a record.

    Args:
        payload: The record.
        fmt: How the feed writes its CSV.
        columns: Where each column stands in records of this file.
        name: The column.
        value: What it shall hold; it is quoted here where it must be.

    Returns:
        The record with nothing else changed.

    Raises:
        InputError: It cannot be said where the column stands, or the value cannot be written.
    """
    fields = fmt.fields(payload.encode("utf-8"))
    if len(fields) != columns.count:
        raise InputError(
            f"The record has {len(fields)} fields and its file {columns.count or 'an unknown number'}, "
            "so it cannot be said which is which. Correct the whole record with --editor or --from."
        )
    place = columns.places.get(name)
    if place is None:
        raise InputError(
            f"It cannot be said where {name} stands in records of this file: its header does not name "
            "it, or the file is gone and its records do not show it. Correct the whole record with "
            "--editor or --from."
        )
    fields[place] = written(value, fmt, is_quoted=fields[place][:1] == fmt.quote.encode())
    return fmt.delimiter.join(field.decode("utf-8") for field in fields)


def check_record(payload: str, fmt: csv.CsvFormat, columns: FileColumns) -> None:
    """Refuse a text that is not one sound record of its file.

    Args:
        payload: The text.
        fmt: How the feed writes its CSV.
        columns: Of the file it is for.

    Raises:
        InputError: It is not.
    """
    names: Sequence[str | None] = [None] * (columns.count or len(fmt.fields(payload.encode("utf-8"))))
    header = csv.Header(
        names=tuple(f"column_{at}" for at in range(1, len(names) + 1)),
        columns=tuple(names),
        missing=(),
        extra=(),
        encoding="utf-8",
        text="",
        byte_length=0,
        lines=0,
    )
    records = list(csv.cut(io.BytesIO(payload.encode("utf-8")), fmt, header))
    if len(records) != 1 or records[0].payload != payload:
        raise InputError(
            f"The text holds {len(records)} records, and it must be one, without a line end. A field "
            "with line breaks in it stands in quotes."
        )
    if (error := records[0].error) is not None:
        raise InputError(f"The text is no sound record: {error.message} ({error.error_class}).")


def written(value: str, fmt: csv.CsvFormat, *, is_quoted: bool) -> bytes:
    """A value as the feed writes it, in quotes where it must be, or was.

    Raises:
        InputError: The feed has no quotes, and the value needs them.
    """
    q = fmt.quote
    needs = any(sign in value for sign in (fmt.delimiter, "\n", "\r")) or bool(q and q in value)
    if not q:
        if needs:
            raise InputError(
                f"{value!r} holds a delimiter or a line end, and this feed has no quotes to put it in."
            )
        return value.encode("utf-8")
    if not (needs or is_quoted or value != value.strip()):
        return value.encode("utf-8")
    escaped = value if fmt.escape == q else value.replace(fmt.escape, fmt.escape * 2)
    return f"{q}{escaped.replace(q, fmt.escape + q)}{q}".encode()
