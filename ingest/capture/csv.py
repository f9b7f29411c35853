r"""Cutting CSV into records, each with its exact text and place, and counting them by other code.

What a record is:

- A line that is not blank is a record. A blank line is empty or holds only spaces and tabs (the
  delimiter apart); it is no record, and it counts as a line.
- Lines end with LF, CRLF or CR, mixed at will. A quoted field may hold delimiters, escaped quotes
  and line breaks. A quote opens a field only as the field's first character; elsewhere it is text.
- A quoted field ends with a quote before a delimiter, a line end or the end of the file. Within
  one line, text after the closing quote is taken as part of the field, as Spark and Python do.
- **The bound of an unclosed quote.** A record that spans lines must end its quoted fields properly
  and within ``max_record_lines`` lines and ``max_record_bytes`` bytes. If it does not, the quote is
  taken as text: the record ends at its first line end and is corrupt (``UNCLOSED_QUOTE``), and
  cutting goes on at the next line. A record on one line has no bound.

``cut`` works on bytes with regular expressions, whole blocks at a time where no quote is near.
``count`` works line by line on split pieces. They share nothing but the encoding, so that one is a
check of the other.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, repeat
from typing import NamedTuple, Protocol, cast

from ingest.capture.records import ParseError, Record
from ingest.errors import ContractError, FileReadError

_CHUNK_BYTES = 1 << 18
# What tells a byte order mark, gzip or an HTML page.
_HEAD_BYTES = 4096
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_OTHER_FORMATS = (
    (b"PK\x03\x04", "a ZIP or a spreadsheet"),
    (b"PAR1", "Parquet"),
    (b"%PDF", "a PDF"),
    (b"\xd0\xcf\x11\xe0", "an old spreadsheet"),
)
_ASCII = bytes(range(128))
_NEW_RECORD = cast("Callable[[type[Record], tuple[object, ...]], Record]", tuple.__new__)


class ByteStream(Protocol):
    """What is read from: a file, a gzip stream, bytes in memory."""

    def read(self, size: int = -1, /) -> bytes:
        """Read up to ``size`` bytes; fewer only at the end."""
        ...


@dataclass(frozen=True)
class CsvFormat:
    """How a feed writes its CSV.

    Attributes:
        columns: The contract's columns, in its order.
        delimiter: One ASCII character.
        quote: One ASCII character; empty where the feed does not quote.
        escape: What stands before a quote that is text. The quote itself means doubled quotes.
        header: Whether the first record names the columns.
        encoding: None: by byte order mark, else UTF-8.
        max_record_bytes: The longest record that spans lines, in bytes without its line end.
        max_record_lines: The most lines that a record may span.

    Raises:
        ContractError: The format cannot work.
    """

    columns: tuple[str, ...]
    delimiter: str = ","
    quote: str = '"'
    escape: str = '"'
    header: bool = True
    encoding: str | None = None
    max_record_bytes: int = 1 << 20
    max_record_lines: int = 100

    def __post_init__(self) -> None:
        signs = {"delimiter": self.delimiter, "quote": self.quote, "escape": self.escape}
        for name, sign in signs.items():
            if name != "delimiter" and not self.quote:
                continue
            if len(sign) != 1 or not sign.isascii() or sign in "\r\n\0":
                raise ContractError(
                    f"CSV {name} is {sign!r}. It must be one ASCII character that ends no line, "
                    f"because records are cut in bytes. Mend it in the contract's feed."
                )
        if self.delimiter in (self.quote, self.escape if self.quote else ""):
            raise ContractError(
                f"CSV delimiter {self.delimiter!r} is the quote or the escape as well, so that no "
                f"field has an end. Mend it in the contract's feed."
            )

    @cached_property
    def blanks(self) -> str:
        """What a blank line may hold."""
        return " \t".replace(self.delimiter, "")

    @cached_property
    def field_pattern(self) -> bytes:
        """A pattern for the text of one field, quotes included. It never backtracks far."""
        d = re.escape(self.delimiter.encode())
        if not self.quote:
            return rb"[^" + d + rb"\r\n]*+"
        q = re.escape(self.quote.encode())
        e = re.escape(self.escape.encode())
        if self.escape == self.quote:
            body = rb"(?:[^" + q + rb"]++|" + q + q + rb")*+"
            body_on_line = rb"(?:[^" + q + rb"\r\n]++|" + q + q + rb")*+"
        else:
            body = rb"(?:[^" + q + e + rb"]++|" + e + rb"[\s\S])*+"
            body_on_line = rb"(?:[^" + q + e + rb"\r\n]++|" + e + rb"[^\r\n])*+"
        return (
            rb"(?:" + q + body + q + rb"(?=[" + d + rb"\r\n]|\Z)"
            rb"|" + q + body_on_line + q + rb"[^" + d + rb"\r\n]++"
            rb"|(?!" + q + rb")[^" + d + rb"\r\n]*+)"
        )

    @cached_property
    def field_regex(self) -> re.Pattern[bytes]:
        """Matches one field."""
        return re.compile(self.field_pattern)

    @cached_property
    def record_regex(self) -> re.Pattern[bytes]:
        """Matches one record of any number of fields, up to its line end or an open quote."""
        d = re.escape(self.delimiter.encode())
        return re.compile(self.field_pattern + rb"(?:" + d + self.field_pattern + rb")*+")

    def exact_regex(self, fields: int) -> re.Pattern[bytes]:
        """Matches one record of so many fields with its line end, which is group 1."""
        d = re.escape(self.delimiter.encode())
        more = rb"(?:" + d + self.field_pattern + rb"){%d}" % (fields - 1)
        return re.compile(self.field_pattern + more + rb"(\r\n|\n|\r)")

    def fields(self, raw: bytes) -> list[bytes]:
        """The fields of a record's text as they are written, quotes included."""
        found: list[bytes] = []
        position = 0
        while match := self.field_regex.match(raw, position):
            found.append(match.group())
            position = match.end() + 1
            if match.end() == len(raw):
                break
        return found

    def unquoted(self, text: str) -> str:
        """The value that a field's text stands for, without blanks around it."""
        text = text.strip()
        q = self.quote
        if q and len(text) > 1 and text[0] == text[-1] == q:
            text = text[1:-1].replace(self.escape + q, q)
        return text.strip()


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
            blank lines above the header included.
        lines: Lines that those bytes take.
    """

    names: tuple[str, ...]
    columns: tuple[str | None, ...]
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    encoding: str
    text: str
    byte_length: int
    lines: int
    extra_positions: tuple[tuple[int, str], ...] = field(default=(), repr=False)


def read_header(stream: ByteStream, fmt: CsvFormat) -> Header:
    """Read the header of a file, and refuse what is no CSV.

    Args:
        stream: The file from its first byte, decompressed.
        fmt: How the feed writes its CSV.

    Raises:
        FileReadError: The file is empty, is something else than CSV, is written in another
            encoding, or its first record is no header of this contract.
    """
    start = _read(stream, _HEAD_BYTES)
    _check_content(start)
    encoding, mark = _encoding_of(start, fmt)
    source = _Buffer(_Joined(start[mark:], stream), fmt, encoding)
    blanks = fmt.blanks.encode()
    lines = 0
    while True:
        taken = source.take()
        if taken is None:
            raise FileReadError(
                "EMPTY_FILE",
                "The file holds no record. An empty file looks like a feed with no news, and is "
                "mostly a transfer that broke off. Ask for the file again.",
            )
        lines += _line_ends(taken.raw) + 1
        if taken.raw.strip(blanks):
            break
    if b"\0" in taken.raw:
        raise FileReadError(
            "WRONG_ENCODING",
            f"Line {lines} holds NUL bytes, as UTF-16 does where it is read as {encoding}, and "
            f"every value would be wrong. Declare the encoding in the contract's feed (utf-16-le "
            f"or utf-16-be), or ask for UTF-8.",
        )
    if not fmt.header:
        return Header(fmt.columns, fmt.columns, (), (), encoding, "", mark, 0)
    text = _header_text(taken, encoding, lines)
    length = mark + source.consumed * (2 if source.transcodes else 1)
    if source.transcodes:
        # Blank lines and the line end are ASCII; only the header's own text has another width.
        length += len(text.encode(encoding)) - 2 * len(taken.raw)
    names = tuple(
        fmt.unquoted(part.decode("utf-8" if source.transcodes else encoding).strip("\ufeff"))
        for part in fmt.fields(taken.raw)
    )
    return _matched(fmt, names, encoding, text, length, lines)


def _header_text(taken: _Taken, encoding: str, line: int) -> str:
    try:
        text = taken.raw.decode("utf-8" if encoding.startswith("utf-16") else encoding)
    except UnicodeDecodeError as error:
        raise FileReadError(
            "WRONG_ENCODING",
            f"The header on line {line} is no {encoding}: byte {error.start + 1} of it is "
            f"0x{taken.raw[error.start]:02x}. Column names that cannot be read cannot be matched. "
            f"Declare the encoding in the contract's feed (often windows-1252), or ask for UTF-8.",
        ) from error
    if taken.open_quote is not None:
        raise FileReadError(
            "NO_HEADER",
            f"The header on line {line} opens a quote at character {taken.open_quote + 1} that is "
            f"never closed, so that its columns cannot be told apart. Mend the header.",
        )
    return text


def _matched(
    fmt: CsvFormat, names: tuple[str, ...], encoding: str, text: str, length: int, lines: int
) -> Header:
    """Match the file's columns with the contract's by name.

    Raises:
        FileReadError: No name fits, or one column of the contract is named twice.
    """
    known = {name.strip().casefold(): name for name in fmt.columns}
    columns = tuple(known.get(name.casefold()) for name in names)
    found = [column for column in columns if column is not None]
    if not found:
        raise FileReadError(
            "NO_HEADER",
            f"Line {lines} names none of the contract's columns. It begins with {text[:60]!r}; "
            f"expected are {', '.join(fmt.columns)}, in any order. Values are matched by name, "
            f"because matched by position they shift in silence. Add a header to the file; if the "
            f"feed never has one, write 'header: false' in the contract's feed; check the "
            f"delimiter, which is {fmt.delimiter!r}.",
        )
    twice = sorted({column for column in found if found.count(column) > 1})
    if twice:
        raise FileReadError(
            "AMBIGUOUS_HEADER",
            f"The header on line {lines} names {', '.join(twice)} more than once, and which of the "
            f"values is meant cannot be known. Give the columns different names.",
        )
    extra_positions = tuple(
        (index, name or f"column_{index + 1}")
        for index, (name, column) in enumerate(zip(names, columns, strict=True))
        if column is None
    )
    return Header(
        names=names,
        columns=columns,
        missing=tuple(column for column in fmt.columns if column not in found),
        extra=tuple(name for _, name in extra_positions),
        encoding=encoding,
        text=text,
        byte_length=length,
        lines=lines,
        extra_positions=extra_positions,
    )


def cut(stream: ByteStream, fmt: CsvFormat, header: Header) -> Iterator[Record]:
    """Cut a file into records, in constant memory but for one record.

    Args:
        stream: The file from its first byte, decompressed: offsets count in what it gives.
        fmt: How the feed writes its CSV.
        header: What ``read_header`` found in the same file.

    Yields:
        One Record per record after the header, in file order. ``error`` is set for
        UNDECODABLE_BYTES, NUL_BYTE, UNCLOSED_QUOTE, REPEATED_HEADER and FIELD_COUNT, the first of
        these that holds.

    Raises:
        FileReadError: The stream breaks off.
    """
    left = header.byte_length
    while left:
        skipped = len(_read(stream, left))
        if not skipped:
            return
        left -= skipped
    buffer = _Buffer(stream, fmt, header.encoding)
    records = _Cutter(buffer, fmt, header).records()
    yield from _placed_in_utf16(records, header, buffer) if buffer.transcodes else records


def count(stream: ByteStream, fmt: CsvFormat) -> int:
    """Count the records of a file, header excluded, by other code than ``cut``.

    It goes line by line and asks of each only whether a quote is open at its end.

    Raises:
        FileReadError: The stream breaks off, or its encoding is not the declared one.
    """
    start = _read(stream, _HEAD_BYTES)
    encoding, mark = _encoding_of(start, fmt)
    rest: ByteStream = _Joined(start[mark:], stream)
    if encoding.startswith("utf-16"):
        rest = _Transcoder(rest, encoding)
    counter = _LineCounter(fmt)
    carry = b""
    while chunk := _read(rest, max(_CHUNK_BYTES, len(carry))):
        block = carry + chunk
        # A CR at the very end may be half of a CRLF.
        stop = max(block.rfind(b"\n"), block.rfind(b"\r", 0, len(block) - 1)) + 1
        carry = block[stop:]
        counter.feed(block[:stop])
    counter.feed(carry)
    counted = counter.finish()
    return max(counted - 1, 0) if fmt.header else counted


class _LineCounter:
    """Counts records from whole lines. Lines are pending until the quotes of a record close."""

    def __init__(self, fmt: CsvFormat) -> None:
        self._fmt = fmt
        self._quote = fmt.quote.encode()
        self._delimiter = fmt.delimiter.encode()
        escape = re.escape(fmt.escape.encode())
        self._escaped = re.compile(
            re.escape(self._quote * 2) if fmt.escape == fmt.quote else escape + rb"[\s\S]"
        )
        self._blanks = fmt.blanks.encode()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._counted = 0

    def feed(self, block: bytes) -> None:
        """Count the records of some whole lines."""
        if not self._pending and not (self._quote and self._quote in block):
            lines = block.splitlines()
            blank = list(map(bytes.strip, lines, repeat(self._blanks))).count(b"")
            self._counted += len(lines) - blank
            return
        self._go_through(block.splitlines(keepends=True))

    def finish(self) -> int:
        """The number of records. A quote that is open at the end of the file was never one."""
        while self._pending:
            again = self._pending[1:]
            self._pending = []
            self._go_through(again)
        return self._counted

    def _go_through(self, lines: list[bytes]) -> None:
        todo = lines[::-1]
        while todo:
            line = todo.pop()
            content = line.rstrip(b"\r\n")
            if not self._pending:
                if content.strip(self._blanks):
                    self._counted += 1
                    if self._quote and self._quote in line and self._is_open(content, False):
                        self._pending, self._pending_bytes = [line], len(line)
                continue
            self._pending.append(line)
            is_open = self._is_open(content, True)
            too_long = (
                len(self._pending) > self._fmt.max_record_lines
                or self._pending_bytes + len(content) > self._fmt.max_record_bytes
            )
            self._pending_bytes += len(line)
            if is_open is None or too_long:
                # The quote was text. Its line is counted; the lines after it are read anew.
                todo.extend(self._pending[:0:-1])
                self._pending = []
            elif not is_open:
                self._pending = []

    def _is_open(self, content: bytes, is_open: bool) -> bool | None:
        """Whether a quote is open after a line.

        Returns:
            None where a field from an earlier line is closed by a quote with text after it.
        """
        spans = is_open
        for piece in content.split(self._delimiter):
            if is_open:
                rest = piece
            elif piece.startswith(self._quote):
                rest = piece[1:]
            else:
                continue
            rest = self._escaped.sub(b"\0\0", rest)
            closing = rest.find(self._quote)
            if closing < 0:
                is_open = True
                continue
            if spans and closing != len(rest) - 1:
                return None
            is_open = spans = False
        return is_open


class _Joined:
    """The bytes that were looked at, then the rest of their stream."""

    def __init__(self, start: bytes, stream: ByteStream) -> None:
        self._start = start
        self._stream = stream

    def read(self, size: int = -1, /) -> bytes:
        if self._start:
            data = self._start if size < 0 else self._start[:size]
            self._start = self._start[len(data) :]
            return data
        return self._stream.read(size)


class _Transcoder:
    """Turns UTF-16 into UTF-8 in which lone surrogates survive, so that all code cuts bytes.

    A lone last byte becomes 0xFF, which no other text becomes, and is kept in ``odd_byte``.
    """

    def __init__(self, stream: ByteStream, encoding: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
        self.odd_byte = b""
        self._ended = False

    def read(self, size: int = -1, /) -> bytes:
        while not self._ended:
            data = _read(self._stream, size)
            self._ended = not data
            try:
                text = self._decoder.decode(data, final=self._ended)
                more = text.encode("utf-8", "surrogatepass")
            except UnicodeDecodeError as error:
                # Only the end can fail: half a unit, after half a pair perhaps.
                left = bytes(error.object)
                self.odd_byte = left[-1:] if len(left) % 2 else b""
                more = (
                    left[: len(left) - len(self.odd_byte)]
                    .decode(error.encoding, "surrogatepass")
                    .encode("utf-8", "surrogatepass")
                ) + (b"\xff" if self.odd_byte else b"")
            if more:
                return more
        return b""


class _Taken(NamedTuple):
    """A record as the buffer gave it: its bytes, the bytes of its line end, an open quote."""

    raw: bytes
    end: int
    open_quote: int | None


class _Buffer:
    """The part of a file that is being cut. ``consumed`` counts from where the buffer started."""

    def __init__(self, stream: ByteStream, fmt: CsvFormat, encoding: str) -> None:
        self.transcodes = encoding.startswith("utf-16")
        self._transcoder = _Transcoder(stream, encoding) if self.transcodes else None
        self._stream = self._transcoder or stream
        self._fmt = fmt
        self._base = 0
        self.data = b""
        self.position = 0
        self.ended = False

    @property
    def consumed(self) -> int:
        return self._base + self.position

    @property
    def odd_byte(self) -> bytes:
        return self._transcoder.odd_byte if self._transcoder else b""

    def fill(self) -> None:
        """Read on. It reads as much as is left over, so that a long line costs linear time."""
        rest = self.data[self.position :]
        self._base += self.position
        self.position = 0
        more = _read(self._stream, max(_CHUNK_BYTES, len(rest)))
        self.ended = not more
        self.data = rest + more

    def take(self) -> _Taken | None:
        """Take the record at the position, quoted or not, blank or not; None at the end."""
        fmt = self._fmt
        while True:
            data, start = self.data, self.position
            if start == len(data):
                if self.ended:
                    return None
                self.fill()
                continue
            match = fmt.record_regex.match(data, start)
            stop = match.end() if match else start
            at_end = stop == len(data)
            whole = match is not None and (self.ended if at_end else data[stop] in b"\r\n")
            line_end = _LINE_END.search(data, stop if whole else start)
            if not self.ended and (
                line_end is None
                or line_end.end() == len(data)
                or (not whole and len(data) - start <= fmt.max_record_bytes + 2)
            ):
                self.fill()
                continue
            raw = data[start:stop]
            if whole and (breaks := _line_ends(raw)):
                whole = breaks < fmt.max_record_lines and len(raw) <= fmt.max_record_bytes
                line_end = line_end if whole else _LINE_END.search(data, start)
            open_quote = None
            if not whole:
                raw = data[start : line_end.start() if line_end else len(data)]
                before = fmt.record_regex.match(raw)
                open_quote = before.end() + 1 if before else 0
            end = len(line_end.group()) if line_end else 0
            self.position = start + len(raw) + end
            return _Taken(raw, end, open_quote)


class _Cutter:
    """Turns a buffer into records, from the first line after the header."""

    def __init__(self, buffer: _Buffer, fmt: CsvFormat, header: Header) -> None:
        self._buffer = buffer
        self._fmt = fmt
        self._header = header
        self._codec = "utf-8" if buffer.transcodes else header.encoding
        self._line = header.lines + 1
        self._origin = header.byte_length
        self._fields = len(header.names)
        self._owner = "header" if fmt.header else "contract"
        self._repeats = (header.text, "\ufeff" + header.text) if header.text else ()
        self._extra = header.extra_positions

    def records(self) -> Iterator[Record]:
        buffer = self._buffer
        quote = self._fmt.quote.encode()
        exact = self._fmt.exact_regex(self._fields)
        most_bytes, most_lines = self._fmt.max_record_bytes, self._fmt.max_record_lines
        while True:
            data, start = buffer.data, buffer.position
            quoted = data.find(quote, start) if quote else -1
            if quoted >= 0:
                stop = max(data.rfind(b"\n", start, quoted), data.rfind(b"\r", start, quoted)) + 1
            elif buffer.ended:
                stop = len(data)
            else:
                # A CR at the very end may be half of a CRLF.
                last = len(data) - 1
                stop = max(data.rfind(b"\n", start), data.rfind(b"\r", start, max(last, 0))) + 1
            if stop > start:
                offset = self._origin + buffer.consumed
                buffer.position = stop
                yield from self._plain(data[start:stop], offset)
                continue
            if start == len(data) and buffer.ended:
                return
            if quoted < 0:
                buffer.fill()
                continue
            match = exact.match(data, start)
            while match and (match.end() < len(data) or buffer.ended):
                raw = data[start : match.start(1)]
                if quote not in raw:
                    break
                breaks = _line_ends(raw) if b"\n" in raw or b"\r" in raw else 0
                if breaks and (breaks >= most_lines or len(raw) > most_bytes):
                    match = None
                    break
                yield self._sound(raw, self._origin + buffer.consumed)
                self._line += breaks + 1
                start = buffer.position = match.end()
                match = exact.match(data, start)
            if match is None or match.end() == len(data):
                offset = self._origin + buffer.consumed
                taken = buffer.take()
                if taken is None:
                    return
                if taken.raw.strip(self._fmt.blanks.encode()):
                    yield self._record(taken.raw, offset, open_quote=taken.open_quote)
                self._line += _line_ends(taken.raw) + 1

    def _plain(self, block: bytes, offset: int) -> Iterable[Record]:
        """The records of whole lines without a quote, built in bulk: this is the fast path."""
        fmt = self._fmt
        bad: set[int] = set()
        raws: list[bytes] | None = None
        returns = block.count(b"\r")
        if not returns:
            end = "\n"
        else:
            newlines = block.count(b"\n")
            end = "\r\n" if returns == newlines == block.count(b"\r\n") else ""
        try:
            text = block.decode(self._codec)
        except UnicodeDecodeError:
            raws = block.splitlines()
            texts = [raw.decode(self._codec, "replace") for raw in raws]
            bad.update(i for i, raw in enumerate(raws) if not self._decodes(raw))
        else:
            # str.splitlines would split at more than line ends.
            if end:
                texts = text.removesuffix(end).split(end)
            else:
                text = text.replace("\r\n", "\n").replace("\r", "\n")
                texts = text.removesuffix("\n").split("\n")
            if len(text) != len(block):
                raws = block.splitlines()
        lengths = list(map(len, texts if raws is None else raws))
        if end:
            offsets = accumulate(map(len(end).__add__, lengths), initial=offset)
        else:
            offsets = accumulate(map(len, block.splitlines(keepends=True)), initial=offset)
        line = self._line
        self._line += len(texts)
        columns = zip(
            texts,
            repeat(None),
            repeat(None),
            range(line, self._line),
            offsets,
            lengths,
            repeat(None),
            repeat(()),
            strict=False,
        )
        # Record._make checks the length in Python, which takes longer than making the record.
        records: list[Record] = list(map(_NEW_RECORD, repeat(Record), columns))
        wanted = self._fields - 1
        delimiters = list(map(str.count, texts, repeat(fmt.delimiter)))
        if delimiters.count(wanted) != len(texts):
            bad.update(i for i, number in enumerate(delimiters) if number != wanted)
        if wanted == 0:
            bad.update(i for i, text in enumerate(texts) if not text.strip(fmt.blanks))
        if b"\0" in block:
            bad.update(i for i, text in enumerate(texts) if "\0" in text)
        for repeated in self._repeats:
            if repeated in texts:
                bad.update(i for i, text in enumerate(texts) if text == repeated)
        if not (bad or self._extra):
            return records
        return self._mended(records, raws or block.splitlines(), bad)

    def _mended(self, records: list[Record], raws: list[bytes], bad: set[int]) -> Iterator[Record]:
        """Leave out blank lines, say what is wrong with corrupt ones, and name extra columns."""
        blanks = self._fmt.blanks.encode()
        after = self._line
        for i, record in enumerate(records):
            if i not in bad:
                if self._extra:
                    yield record._replace(unparsed=self._unparsed(raws[i]))
                else:
                    yield record
            elif raws[i].strip(blanks):
                self._line = record.position
                yield self._record(raws[i], record.byte_offset)
        self._line = after

    def _decodes(self, raw: bytes) -> bool:
        try:
            raw.decode(self._codec)
        except UnicodeDecodeError:
            return False
        return True

    def _sound(self, raw: bytes, offset: int) -> Record:
        """One record with the right number of fields, quickly where nothing else is wrong."""
        try:
            text = raw.decode(self._codec)
        except UnicodeDecodeError:
            return self._record(raw, offset)
        if self._extra or "\0" in text or text in self._repeats:
            return self._record(raw, offset)
        values = (text, None, None, self._line, offset, len(raw), None, ())
        return _NEW_RECORD(Record, values)

    def _record(self, raw: bytes, offset: int, *, open_quote: int | None = None) -> Record:
        """One record on the current line, with what is wrong with it."""
        kept: bytes | None = None
        error: ParseError | None = None
        try:
            text = raw.decode(self._codec)
        except UnicodeDecodeError as fault:
            text = raw.decode(self._codec, "replace")
            kept = raw
            error = self._error(
                "UNDECODABLE_BYTES",
                f"byte 0x{raw[fault.start]:02x} is no {self._header.encoding}",
                raw[: fault.start],
            )
        if error is None and b"\0" in raw:
            error = self._error("NUL_BYTE", "found a NUL byte", raw[: raw.index(b"\0")])
        if error is None and open_quote is not None:
            error = self._error(
                "UNCLOSED_QUOTE",
                f"the quote is not closed within {self._fmt.max_record_lines} lines and "
                f"{self._fmt.max_record_bytes} bytes, or not before a delimiter or line end",
                raw[:open_quote],
            )
        if error is None and text in self._repeats:
            error = self._error("REPEATED_HEADER", "found the header again", b"")
        if error is None:
            error = self._field_fault(raw)
        unparsed = self._unparsed(raw) if self._extra and error is None else ()
        return Record(text, kept, None, self._line, offset, len(raw), error, unparsed)

    def _field_fault(self, raw: bytes) -> ParseError | None:
        fields = self._fmt.fields(raw)
        if len(fields) == self._fields:
            return None
        expected = sum(map(len, fields[: self._fields])) + self._fields
        return self._error(
            "FIELD_COUNT",
            f"found {len(fields)} field{'s' * (len(fields) != 1)}, the {self._owner} has {self._fields}",
            raw[:expected],
        )

    def _error(self, error_class: str, message: str, before: bytes) -> ParseError:
        """An error at the place after ``before``, which is the start of the record."""
        line = self._line + _line_ends(before)
        on_line = _LINE_END.split(before)[-1].decode(self._codec, "replace")
        return ParseError(error_class, message, line, len(on_line) + 1)

    def _unparsed(self, raw: bytes) -> tuple[str, ...]:
        """The extra columns in which a record has a value."""
        fields = self._fmt.fields(raw)
        return tuple(
            sorted(
                {
                    name
                    for index, name in self._extra
                    if self._fmt.unquoted(fields[index].decode(self._codec))
                }
            )
        )


def _placed_in_utf16(records: Iterable[Record], header: Header, buffer: _Buffer) -> Iterator[Record]:
    """Turn places in the UTF-8 that was cut into places in the UTF-16 that the file holds."""
    encoding = header.encoding
    cut_at = held_at = header.byte_length
    for record in records:
        # What lies between records is line ends and blanks: two bytes for each.
        held_at += 2 * (record.byte_offset - cut_at)
        cut_at = record.byte_offset + record.byte_length
        payload, kept = record.payload, record.payload_bytes
        if kept is None:
            length = len(payload.encode(encoding))
        else:
            whole = kept.removesuffix(b"\xff")
            kept_text = whole.decode("utf-8", "surrogatepass")
            odd = buffer.odd_byte if whole != kept else b""
            kept = kept_text.encode(encoding, "surrogatepass") + odd
            payload, length = kept.decode(encoding, "replace"), len(kept)
        yield record._replace(
            payload=payload, payload_bytes=kept, byte_offset=held_at, byte_length=length
        )
        held_at += length


def _line_ends(raw: bytes) -> int:
    return raw.count(b"\n") + raw.count(b"\r") - raw.count(b"\r\n")


def _read(stream: ByteStream, size: int) -> bytes:
    """Read so many bytes, fewer only at the end, however little the stream gives at a time.

    Raises:
        FileReadError: The stream breaks off.
    """
    parts: list[bytes] = []
    try:
        while size > 0 and (part := stream.read(size)):
            parts.append(part)
            size -= len(part)
    except (OSError, EOFError, zlib.error) as error:
        raise FileReadError(
            "UNREADABLE",
            f"The file breaks off while it is read: {error}. What is there cannot be told from the "
            f"whole. Fetch the file again.",
        ) from error
    return b"".join(parts)


def _check_content(start: bytes) -> None:
    """Refuse what is certainly something else than CSV.

    Raises:
        FileReadError: It is.
    """
    if start.startswith(b"\x1f\x8b"):
        raise FileReadError(
            "GZIP_CONTENT",
            "The file is packed with gzip and its name does not say so; read as text it would give "
            "no record and no error. Give it a name that ends in .gz, or unpack it.",
        )
    for magic, what in _OTHER_FORMATS:
        if start.startswith(magic):
            raise FileReadError(
                "NOT_CSV",
                f"The file is {what} and no text. Ask for CSV, or export it from there.",
            )
    head = start.removeprefix(codecs.BOM_UTF8).lstrip().lower()
    if head.startswith((b"<!doctype html", b"<html")) or (
        head.startswith(b"<?xml") and b"<html" in head
    ):
        raise FileReadError(
            "HTML_PAGE",
            "The file is an HTML page, as a server sends one instead of a file when something went "
            "wrong there. Look at it in a browser, and fetch the file again.",
        )
    if head.startswith(b"<?xml"):
        raise FileReadError("NOT_CSV", "The file is XML and no CSV. Ask for CSV.")


def _encoding_of(start: bytes, fmt: CsvFormat) -> tuple[str, int]:
    """The encoding to use, and the length of the byte order mark.

    Raises:
        FileReadError: The mark and the declaration disagree, or the declared one cannot be cut.
    """
    marked, mark = next(((name, len(bom)) for bom, name in _BOMS if start.startswith(bom)), (None, 0))
    if fmt.encoding is None:
        return marked or "utf-8", mark
    try:
        declared = codecs.lookup(fmt.encoding.strip()).name
    except LookupError as error:
        raise FileReadError(
            "WRONG_ENCODING",
            f"The contract declares the encoding {fmt.encoding!r}, which Python does not know. "
            f"Declare one such as utf-8, windows-1252, iso-8859-1 or utf-16-le.",
        ) from error
    declared = "utf-8" if declared == "utf-8-sig" else declared
    if marked and marked != declared and not (declared == "utf-16" and marked[:6] == declared):
        raise FileReadError(
            "WRONG_ENCODING",
            f"The file begins with the mark of {marked}, and the contract declares {declared}: "
            f"read so, its text would be wrong. Correct the declaration, or ask for {declared}.",
        )
    if declared == "utf-16" and not marked:
        raise FileReadError(
            "WRONG_ENCODING",
            "The contract declares utf-16 and the file does not begin with its mark, so that its "
            "byte order is not known. Declare utf-16-le (as Windows writes it) or utf-16-be.",
        )
    if not declared.startswith("utf-16") and _as_ascii(declared) != _ASCII.decode("ascii"):
        raise FileReadError(
            "WRONG_ENCODING",
            f"Encoding {declared} cannot be cut, because ASCII is not itself in it. Ask for UTF-8.",
        )
    return marked or declared, mark


def _as_ascii(encoding: str) -> str | None:
    try:
        return _ASCII.decode(encoding)
    except (UnicodeError, LookupError):
        return None
