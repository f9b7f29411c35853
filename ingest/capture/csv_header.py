"""The top of a CSV file: where its header is, and which columns of the contract the file has."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import NamedTuple

from ingest.capture.csv_buffer import Buffer, Taken, codec_in_buffer
from ingest.capture.csv_format import CsvFormat, line_ends
from ingest.capture.encoding import Encoding
from ingest.capture.streams import ByteStream, skip
from ingest.errors import FileReadError

# Titles, dates and notes above a header are few. What is not found in so many lines is not there.
MAX_LINES_TO_HEADER = 50
_SHOWN = 60


class Finding(NamedTuple):
    """Something about a file as a whole that people should know, and that costs no record.

    Attributes:
        error_type: ``COLUMNS_DIFFER``, ``LINES_ABOVE_HEADER`` or ``ENCODING_GUESSED``.
        message: What it is, what it means for the values, how to go on.
    """

    error_type: str
    message: str


@dataclass(frozen=True)
class Header:
    """What the top of a file says about its columns.

    Attributes:
        names: The columns of the file as it writes them, without quotes and outer blanks; the
            contract's columns where the file has no header.
        columns: For each name the contract's column, or None where the contract has none. Its
            order is the order of the values, so this is the schema to parse with.
        missing: Columns of the contract that the file does not have.
        extra: Columns of the file that the contract does not have; one without a name is called
            ``column_<n>``, n from 1.
        encoding: The encoding in use, by its Python name. UTF-16 is named with its byte order.
        text: The exact text of the header record; empty where there is none.
        byte_length: Bytes before the first byte after the header's line end: byte order mark and
            lines above the header included.
        lines: Lines that those bytes take.
        mark: Bytes of the byte order mark.
        findings: What people should know of the file.
    """

    names: tuple[str, ...]
    columns: tuple[str | None, ...]
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    encoding: str
    text: str
    byte_length: int
    lines: int
    mark: int = 0
    findings: tuple[Finding, ...] = ()
    extra_positions: tuple[tuple[int, str], ...] = field(default=(), repr=False)


class _Line(NamedTuple):
    """A record near the top of a file: its lines, where it ends in the file's bytes, what it names."""

    taken: Taken
    line: int
    lines: int
    stop: int
    names: tuple[str, ...]
    columns: tuple[str | None, ...]

    @property
    def known(self) -> int:
        return sum(column is not None for column in self.columns)


def read_header(stream: ByteStream, fmt: CsvFormat, encoding: Encoding) -> Header:
    """Read the header of a file.

    The header is the first record that names at least half of the contract's columns; where none
    does, the first that names any. It is looked for in the first 50 lines.

    Args:
        stream: The file from its first byte, unpacked.
        fmt: How the feed writes its CSV.
        encoding: What ``detect_csv`` found in the same file.

    Raises:
        FileReadError: The file is empty, is written in another encoding, has no header of this
            contract, or one that names a column twice.
    """
    skip(stream, encoding.bom_length)
    source = Buffer(stream, fmt, encoding.name)
    findings = _of_encoding(encoding)
    top = _top(source, fmt, encoding)
    if not top:
        raise FileReadError(
            "EMPTY_FILE",
            "The file holds no record. An empty file looks like a feed with no news, and is mostly a "
            "transfer that broke off. Ask for the file again.",
        )
    if b"\0" in top[0].taken.raw:
        raise FileReadError(
            "WRONG_ENCODING",
            f"Line {top[0].line} holds NUL bytes, as other encodings do where they are read as "
            f"{encoding.name}, and every value would be wrong. Declare the encoding in the contract's "
            f"feed, or ask for UTF-8.",
        )
    if not fmt.header:
        names, columns = _with_trailing(fmt, fmt.columns, fmt.columns)
        extra = tuple((i, f"column_{i + 1}") for i, column in enumerate(columns) if column is None)
        return Header(
            names, columns, (), tuple(n for _, n in extra), encoding.name, "",
            encoding.bom_length, 0, encoding.bom_length, findings, extra,
        )  # fmt: skip
    found = _header_of(top, fmt, encoding)
    if found.line > top[0].line:
        findings += _of_lines_above(top[0], found, encoding)
    return _matched(found, fmt, encoding, findings)


def _top(source: Buffer, fmt: CsvFormat, encoding: Encoding) -> list[_Line]:
    """The records near the top that are not blank, up to the first that surely is the header."""
    blanks = fmt.blanks.encode()
    found: list[_Line] = []
    line, stop = 1, encoding.bom_length
    while line <= MAX_LINES_TO_HEADER or not found:
        taken = source.take()
        if taken is None:
            break
        stop += _length_in_file(taken, encoding.name)
        lines = line_ends(taken.raw) + 1
        if taken.raw.strip(blanks):
            names = _names(taken.raw, fmt, codec_in_buffer(encoding.name))
            columns = _columns(names, fmt) if taken.open_quote is None else ()
            found.append(_Line(taken, line, lines, stop, names, columns))
            if not fmt.header or found[-1].known * 2 >= len(fmt.columns):
                break
        line += lines
    return found


def _names(raw: bytes, fmt: CsvFormat, codec: str) -> tuple[str, ...]:
    return tuple(fmt.unquoted(part.decode(codec, "replace").strip("\ufeff")) for part in fmt.fields(raw))


def _columns(names: tuple[str, ...], fmt: CsvFormat) -> tuple[str | None, ...]:
    known = {fmt.canonical(name): column for name, column in fmt.aliases.items()}
    # A column's own name outweighs an alias.
    known.update((fmt.canonical(name), name) for name in fmt.columns)
    return tuple(known.get(fmt.canonical(name)) for name in names)


def _header_of(top: list[_Line], fmt: CsvFormat, encoding: Encoding) -> _Line:
    """Which of the first records is the header.

    Raises:
        FileReadError: None is.
    """
    half = [item for item in top if item.known * 2 >= len(fmt.columns)]
    some = [item for item in top if item.known]
    if half or some:
        return (half or some)[0]
    first = top[0]
    text = _decoded(first, encoding)
    if first.taken.open_quote is not None:
        raise FileReadError(
            "NO_HEADER",
            f"The header on line {first.line} opens a quote at character "
            f"{first.taken.open_quote + 1} that is never closed, so that its columns cannot be told "
            f"apart. Mend the header.",
        )
    raise FileReadError(
        "NO_HEADER",
        f"No line of the first {MAX_LINES_TO_HEADER} names a column of the contract. Line "
        f"{first.line} begins with {text[:_SHOWN]!r}; expected are {', '.join(fmt.columns)}, in any "
        f"order. Values are matched by name, because matched by position they shift in silence. Add "
        f"a header to the file; if the feed never has one, write 'header: false' in the contract's "
        f"feed; check the delimiter, which is {fmt.delimiter!r}"
        f"{_other_delimiter(first.taken.raw, fmt)}.",
    )


def _decoded(line: _Line, encoding: Encoding) -> str:
    raw = line.taken.raw
    try:
        return raw.decode(codec_in_buffer(encoding.name))
    except UnicodeDecodeError as error:
        raise FileReadError(
            "WRONG_ENCODING",
            f"The header on line {line.line} is no {encoding.name}: byte {error.start + 1} of it is "
            f"0x{raw[error.start]:02x}. Column names that cannot be read cannot be matched. Declare "
            f"the encoding in the contract's feed (often windows-1252), or ask for UTF-8.",
        ) from error


def _other_delimiter(raw: bytes, fmt: CsvFormat) -> str:
    """A remark on another delimiter with which the line would name columns."""
    for sign in ",;\t|":
        pieces = raw.decode("utf-8", "replace").split(sign)
        names = tuple(piece.strip(f" {fmt.quote}") for piece in pieces)
        if sign != fmt.delimiter and len(names) > 1 and any(_columns(names, fmt)):
            return f" where the file seems to have {sign!r}"
    return ""


def _matched(found: _Line, fmt: CsvFormat, encoding: Encoding, findings: tuple[Finding, ...]) -> Header:
    """Match the file's columns with the contract's by name.

    Raises:
        FileReadError: The header does not decode, or names one column of the contract twice.
    """
    text = _decoded(found, encoding)
    known = [column for column in found.columns if column is not None]
    twice = sorted({column for column in known if known.count(column) > 1})
    if twice:
        raise FileReadError(
            "AMBIGUOUS_HEADER",
            f"The header on line {found.line} names {', '.join(twice)} more than once, and which of "
            f"the values is meant cannot be known. Give the columns different names.",
        )
    names, columns = _with_trailing(fmt, found.names, found.columns)
    extra = tuple(
        (index, name or f"column_{index + 1}")
        for index, (name, column) in enumerate(zip(names, columns, strict=True))
        if column is None
    )
    missing = tuple(column for column in fmt.columns if column not in known)
    # A delimiter at the end of a header names no column.
    new = tuple(name for index, name in extra if names[index] or index < len(names) - 1)
    if missing or new:
        findings += (_of_columns(found, fmt, missing, new),)
    return Header(
        names=names,
        columns=columns,
        missing=missing,
        extra=tuple(name for _, name in extra),
        encoding=encoding.name,
        text=text,
        byte_length=found.stop,
        lines=found.line + found.lines - 1,
        mark=encoding.bom_length,
        findings=findings,
        extra_positions=extra,
    )


def _length_in_file(taken: Taken, encoding: str) -> int:
    if not encoding.startswith("utf-16"):
        return len(taken.raw) + taken.end
    # The buffer holds it as UTF-8; half a unit at the end of the file is 0xFF there.
    text = taken.raw.removesuffix(b"\xff").decode("utf-8", "surrogatepass")
    return len(text.encode(encoding, "surrogatepass")) + 2 * taken.end


def _with_trailing(
    fmt: CsvFormat, names: tuple[str, ...], columns: tuple[str | None, ...]
) -> tuple[tuple[str, ...], tuple[str | None, ...]]:
    """Add the column without a name that a trailing delimiter makes, where the header lacks it."""
    if not fmt.trailing_delimiter or names[-1:] == ("",):
        return names, columns
    return (*names, ""), (*columns, None)


def _of_encoding(encoding: Encoding) -> tuple[Finding, ...]:
    if not encoding.evidence:
        return ()
    return (
        Finding(
            "ENCODING_GUESSED",
            f"The file is read as {encoding.name}, because nothing declares its encoding and "
            f"{encoding.evidence}. Declare it in the contract's feed ('encoding: {encoding.name}'), "
            f"or ask for UTF-8.",
        ),
    )


def _of_lines_above(first: _Line, found: _Line, encoding: Encoding) -> tuple[Finding, ...]:
    text = first.taken.raw.decode(codec_in_buffer(encoding.name), "replace")[:_SHOWN]
    return (
        Finding(
            "LINES_ABOVE_HEADER",
            f"The header is on line {found.line}. What stands above it, from line {first.line} on, "
            f"is taken for no record; it begins with {text!r}. If it is one, mend the file's header; "
            f"else ask for files that begin with it.",
        ),
    )


def _of_columns(found: _Line, fmt: CsvFormat, missing: tuple[str, ...], new: tuple[str, ...]) -> Finding:
    said = [f"The header on line {found.line} differs from the contract."]
    if missing:
        said.append(
            f"It lacks {', '.join(missing)}: null in every record of the file. Nothing is shifted, "
            f"because values are matched by name."
        )
    if new:
        said.append(f"The contract does not know {', '.join(new)}: kept in the payload only.")
    renamed = _renamed(found, fmt, missing, new)
    for name, column in renamed.items():
        said.append(
            f"'{name}' may be {column}: rename it in the file, or write 'aliases: {{{name}: "
            f"{column}}}' into the contract's feed."
        )
    if set(missing) - set(renamed.values()):
        said.append("Ask for the missing columns.")
    if set(new) - set(renamed):
        said.append("Add new columns to the contract's schema and raise its version.")
    return Finding("COLUMNS_DIFFER", " ".join(said))


def _renamed(
    found: _Line, fmt: CsvFormat, missing: tuple[str, ...], new: tuple[str, ...]
) -> dict[str, str]:
    """Which missing column each unknown one may be, by likeness of the names, else by place."""
    letters = {"".join(filter(str.isalnum, column)).casefold(): column for column in missing}
    renamed: dict[str, str] = {}
    for name in new:
        bare = "".join(filter(str.isalnum, name)).casefold()
        for near in difflib.get_close_matches(bare, letters, n=1, cutoff=0.6):
            renamed[name] = letters.pop(near)
    left = [name for name in new if name in found.names and name not in renamed]
    if len(left) == len(letters) == 1:
        # Like no name, but in the place of the only one that is missing.
        column = next(iter(letters.values()))
        if found.names.index(left[0]) == fmt.columns.index(column):
            renamed[left[0]] = column
    return renamed
