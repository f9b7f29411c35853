r"""Cutting CSV into records, each with its exact text and place.

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
- The header, and what stands above it, are no records. A line further down that names the file's
  columns again is one, and corrupt (``REPEATED_HEADER``). If it names them in another order, the
  records below it are corrupt too (``OTHER_COLUMNS``), up to the next header: their values would be
  in the wrong columns.

Where nothing is wrong, whole blocks are cut at once (:mod:`ingest.capture.csv_lines`); elsewhere
record by record. The count that checks this is in :mod:`ingest.capture.csv_count` and shares nothing
with it but what was found at the top of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np

from ingest.capture.csv_buffer import Buffer
from ingest.capture.csv_count import Span, count, spans
from ingest.capture.csv_format import LINE_END, CsvFormat, header_marker, line_ends
from ingest.capture.csv_header import Finding, Header, read_header
from ingest.capture.csv_lines import Flags, Found, Numbers, find
from ingest.capture.encoding import Encoding, is_single_byte
from ingest.capture.records import ParseError, Record
from ingest.capture.streams import ByteStream, Limited, skip

__all__ = [
    "Block",
    "CsvFormat",
    "Encoding",
    "Finding",
    "Header",
    "Span",
    "count",
    "cut",
    "pieces",
    "read_header",
    "spans",
]

BLOCK_BYTES = 1 << 18
_TRAILING = "; the last is empty: if all records end so, declare trailing_delimiter in the contract"
_HIGH = 0x80
_RECORDS_AT_ONCE = 1000


class Block(NamedTuple):
    """Sound records that were cut at once.

    Attributes:
        text: Their texts in UTF-8, one after another with nothing between.
        bounds: Where each begins in ``text``, and last where the last one ends.
        positions: The line on which each starts.
        offsets: Where the first byte of each stands in the file.
        lengths: Bytes of each in the file.
        unparsed: Columns with a value in each that the contract does not know.
    """

    text: bytes
    bounds: Numbers
    positions: Numbers
    offsets: Numbers
    lengths: Numbers
    unparsed: list[tuple[str, ...]] | None

    def records(self) -> Iterator[Record]:
        """The same, each by itself."""
        bounds = self.bounds.tolist()
        places = zip(self.positions.tolist(), self.offsets.tolist(), self.lengths.tolist(), strict=True)
        for i, (position, offset, length) in enumerate(places):
            text = self.text[bounds[i] : bounds[i + 1]].decode("utf-8")
            unparsed = self.unparsed[i] if self.unparsed else ()
            yield Record(text, None, None, position, offset, length, None, unparsed)


def cut(stream: ByteStream, fmt: CsvFormat, header: Header) -> Iterator[Record]:
    """Cut a file into records, in constant memory but for one record.

    Args:
        stream: The file from its first byte, decompressed: offsets count in what it gives.
        fmt: How the feed writes its CSV.
        header: What ``read_header`` found in the same file.

    Yields:
        One Record per record after the header, in file order. ``error`` is set for
        UNDECODABLE_BYTES, NUL_BYTE, UNCLOSED_QUOTE, REPEATED_HEADER, OTHER_COLUMNS and FIELD_COUNT,
        the first of these that holds.

    Raises:
        FileReadError: The stream breaks off.
    """
    yield from _in_order(pieces(stream, fmt, header))


def _in_order(found: Iterable[tuple[Block | None, list[Record]]]) -> Iterator[Record]:
    for block, records in found:
        if block is None:
            yield from records
        else:
            both = [*block.records(), *records]
            yield from sorted(both, key=lambda record: record.position) if records else both


def pieces(
    stream: ByteStream, fmt: CsvFormat, header: Header, span: Span | None = None
) -> Iterator[tuple[Block | None, list[Record]]]:
    """Cut a file as ``cut`` does, but leave records together that were cut together.

    Args:
        stream: The file from its first byte; with a span, from the span's first byte.
        fmt: How the feed writes its CSV.
        header: What ``read_header`` found in the same file.
        span: The part of the file to cut.

    Yields:
        Sound records, and records that stand among or after them, in no order; see ``cut``.

    Raises:
        FileReadError: The stream breaks off.
    """
    offset, line = header.byte_length, header.lines + 1
    if span is not None:
        offset, line = span.offset, span.line
        stream = Limited(stream, span.length)
    elif not skip(stream, offset):
        return
    buffer = Buffer(stream, fmt, header.encoding)
    found = _Cutter(buffer, fmt, header, offset, line).pieces()
    if not buffer.transcodes:
        yield from found
        return
    placed = _placed_in_utf16(_in_order(found), header, buffer)
    while some := list(islice(placed, _RECORDS_AT_ONCE)):
        yield None, some


class _Cutter:
    """Turns a buffer into records, from the first line after the header."""

    def __init__(self, buffer: Buffer, fmt: CsvFormat, header: Header, offset: int, line: int) -> None:
        self._buffer = buffer
        self._fmt = fmt
        self._header = header
        self._codec = buffer.codec
        self._line = line
        self._origin = offset
        self._fields = len(header.names)
        self._owner = "header" if fmt.header else "contract"
        self._extra = header.extra_positions
        self._repeats = (header.text, "\ufeff" + header.text) if header.text else ()
        # A header names these columns, in whatever order and spelling.
        self._names = [fmt.canonical(name) for name in header.names]
        self._marker_text = header_marker(self._names)
        self._marker = self._marker_text.encode(self._codec)
        self._other_header: int | None = None
        self._is_utf8 = self._codec == "utf-8"
        self._whole_blocks = self._is_utf8 or is_single_byte(self._codec)

    @cached_property
    def _utf8_lengths(self) -> Numbers:
        """How many bytes each byte of the file's encoding takes in UTF-8."""
        characters = (bytes((i,)).decode(self._codec, "replace") for i in range(256))
        return np.array([len(c.encode("utf-8")) for c in characters], dtype=np.int64)

    def pieces(self) -> Iterator[tuple[Block | None, list[Record]]]:
        buffer = self._buffer
        while True:
            buffer.reach(BLOCK_BYTES)
            start = buffer.position
            if start == len(buffer.data):
                return
            raw = buffer.data[start : start + BLOCK_BYTES]
            at_end = buffer.ended and start + len(raw) == len(buffer.data)
            found = None
            if self._whole_blocks and self._other_header is None:
                found = find(raw, self._fmt, at_end=at_end)
            until = buffer.consumed + len(raw)
            if found:
                piece = self._block(raw, found, self._origin + buffer.consumed)
                if piece is None:
                    found = None
                else:
                    buffer.position += found.end
                    yield piece
            if found is None or not found.sound:
                # What is damaged once is so again soon: the rest of the block goes the slow way.
                yield None, list(self._one_by_one(until))

    def _block(self, raw: bytes, found: Found, offset: int) -> tuple[Block, list[Record]] | None:
        """Make records of what was found in a block; None where they must be cut one by one."""
        is_good = (found.delimiters == self._fields - 1) & ~found.nul & ~found.blank
        if not self._decode(raw[: found.end]):
            self._leave_undecodable(raw, found, is_good)
        if self._marker in raw.lower():
            headers = self._headers_in(raw, found, is_good)
            if headers is None:
                return None
            is_good &= ~headers
        unparsed = self._unparsed_in(raw, found, is_good) if self._extra else None
        lines = self._line + np.concatenate(([0], np.cumsum(found.breaks + 1)))
        records = []
        for i in np.flatnonzero(~is_good & ~found.blank).tolist():
            self._line = int(lines[i])
            start = int(found.starts[i])
            records.append(self._record(raw[start : int(found.stops[i])], offset + start))
        self._line = int(lines[-1])
        starts, stops = found.starts[is_good], found.stops[is_good]
        lengths = stops - starts
        if is_good.all() and not found.breaks.any():
            text = raw[: found.end].translate(None, b"\r\n")
        else:
            edges = np.zeros(len(raw) + 1, dtype=np.int8)
            # Neighbours never touch: a line end is between them, or they are one record apart.
            edges[starts] += 1
            edges[stops] -= 1
            inside = np.cumsum(edges[:-1], dtype=np.int8).view(np.bool_)
            text = np.frombuffer(raw, dtype=np.uint8)[inside].tobytes()
        bounds = np.concatenate(([0], np.cumsum(lengths)))
        if not self._is_utf8 and not text.isascii():
            widths = self._utf8_lengths[np.frombuffer(text, dtype=np.uint8)]
            bounds = np.concatenate(([0], np.cumsum(widths)))[bounds]
            text = text.decode(self._codec).encode("utf-8")
        block = Block(text, bounds, lines[:-1][is_good], starts + offset, lengths, unparsed)
        return block, records

    def _decode(self, raw: bytes) -> bool:
        """Whether bytes are text in the encoding in use."""
        if raw.isascii():
            return True
        try:
            raw.decode(self._codec)
        except UnicodeDecodeError:
            return False
        return True

    def _leave_undecodable(self, raw: bytes, found: Found, is_good: Flags) -> None:
        high = np.flatnonzero(np.frombuffer(raw, dtype=np.uint8)[: found.end] >= _HIGH)
        holds_high = np.searchsorted(high, found.starts) < np.searchsorted(high, found.stops)
        for i in np.flatnonzero(holds_high).tolist():
            if not self._decode(raw[int(found.starts[i]) : int(found.stops[i])]):
                is_good[i] = False

    def _headers_in(self, raw: bytes, found: Found, is_good: Flags) -> Flags | None:
        """Which records name the file's columns; None where one names them in another order."""
        headers = np.zeros(len(found.starts), dtype=np.bool_)
        low = raw[: found.end].lower()
        # A record that is taken by itself anyway is looked at there.
        for i in np.flatnonzero(is_good).tolist():
            start, stop = int(found.starts[i]), int(found.stops[i])
            if low.find(self._marker, start, stop) >= 0:
                order = self._header_order(raw[start:stop].decode(self._codec))
                if order is False:
                    return None
                headers[i] = order is True
        return headers

    def _header_order(self, text: str) -> bool | None:
        """Whether a record that names the file's columns has them in its order; None where not one."""
        if text in self._repeats:
            return True
        # A value may well be the name of its column where there is only one.
        if self._fields < 2 or self._marker_text not in text.lower():
            return None
        raw = text.encode("utf-8")
        fmt = self._fmt
        names = [fmt.canonical(fmt.unquoted(part.decode("utf-8"))) for part in fmt.fields(raw)]
        if sorted(names) != sorted(self._names):
            return None
        return names == self._names

    def _unparsed_in(self, raw: bytes, found: Found, is_good: Flags) -> list[tuple[str, ...]]:
        """The extra columns in which good records have a value; what needs a closer look is unmarked."""
        data = np.frombuffer(raw, dtype=np.uint8)
        good = np.flatnonzero(is_good)
        base = np.searchsorted(found.at, found.starts[good])
        # Letters and digits without quotes: anything else may turn out to be blank.
        plain = np.zeros(256, dtype=np.bool_)
        plain[0x21:_HIGH] = True
        if self._fmt.quote:
            plain[ord(self._fmt.quote)] = False
        has_value = {}
        doubtful = np.zeros(len(good), dtype=np.bool_)
        for index, name in self._extra:
            left = found.at[base + index - 1] + 1 if index else found.starts[good]
            last = index == self._fields - 1
            right = found.stops[good] if last else found.at[base + index]
            filled = right > left
            is_plain = plain[data[np.minimum(left, len(data) - 1)]]
            doubtful |= filled & ~is_plain
            has_value[name] = filled & is_plain
        is_good[good[doubtful]] = False
        names = sorted(has_value)
        marks = np.column_stack([has_value[name][~doubtful] for name in names]).tolist()
        kinds: dict[tuple[bool, ...], tuple[str, ...]] = {}
        unparsed = []
        for row in map(tuple, marks):
            if row not in kinds:
                kinds[row] = tuple(n for n, mark in zip(names, row, strict=True) if mark)
            unparsed.append(kinds[row])
        return unparsed

    def _one_by_one(self, until: int) -> Iterator[Record]:
        """Cut records up to a place in the buffer's stream, the last of them to its end."""
        buffer = self._buffer
        quote = self._fmt.quote.encode()
        exact = self._fmt.exact_regex(self._fields)
        blanks = self._fmt.blanks.encode()
        most_bytes, most_lines = self._fmt.max_record_bytes, self._fmt.max_record_lines
        while buffer.consumed < until:
            data, start = buffer.data, buffer.position
            match = exact.match(data, start) if quote else None
            if match and (match.end() < len(data) or buffer.ended):
                raw = data[start : match.start(1)]
                breaks = line_ends(raw)
                if not breaks or (breaks < most_lines and len(raw) <= most_bytes):
                    if raw.strip(blanks):
                        yield self._sound(raw, self._origin + buffer.consumed)
                    self._line += breaks + 1
                    buffer.position = match.end()
                    continue
            offset = self._origin + buffer.consumed
            taken = buffer.take()
            if taken is None:
                return
            if taken.raw.strip(blanks):
                yield self._record(taken.raw, offset, open_quote=taken.open_quote)
            self._line += line_ends(taken.raw) + 1

    def _sound(self, raw: bytes, offset: int) -> Record:
        """One record with the right number of fields, quickly where nothing else is wrong."""
        if self._extra or self._other_header or b"\0" in raw or self._marker in raw.lower():
            return self._record(raw, offset)
        try:
            text = raw.decode(self._codec)
        except UnicodeDecodeError:
            return self._record(raw, offset)
        return Record(text, None, None, self._line, offset, len(raw), None, ())

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
        if error is None:
            error = self._header_fault(text) or self._field_fault(raw)
        unparsed = self._unparsed(raw) if self._extra and error is None else ()
        return Record(text, kept, None, self._line, offset, len(raw), error, unparsed)

    def _header_fault(self, text: str) -> ParseError | None:
        in_order = self._header_order(text)
        if in_order is None:
            if self._other_header is None:
                return None
            return self._error(
                "OTHER_COLUMNS",
                f"stands under the header of line {self._other_header}, which has the columns in "
                f"another order than the file's first; send the two parts as two files",
                b"",
            )
        self._other_header = None if in_order else self._line
        return self._error(
            "REPEATED_HEADER",
            "found the header again" + ("" if in_order else ", its columns in another order"),
            b"",
        )

    def _field_fault(self, raw: bytes) -> ParseError | None:
        fields = self._fmt.fields(raw)
        if len(fields) == self._fields:
            return None
        expected = sum(map(len, fields[: self._fields])) + self._fields
        return self._error(
            "FIELD_COUNT",
            f"found {len(fields)} field{'s' * (len(fields) != 1)}, the {self._owner} has {self._fields}"
            f"{_TRAILING if len(fields) == self._fields + 1 and not fields[-1] else ''}",
            raw[:expected],
        )

    def _error(self, error_class: str, message: str, before: bytes) -> ParseError:
        """An error at the place after ``before``, which is the start of the record."""
        line = self._line + line_ends(before)
        on_line = LINE_END.split(before)[-1].decode(self._codec, "replace")
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


def _placed_in_utf16(records: Iterable[Record], header: Header, buffer: Buffer) -> Iterator[Record]:
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
