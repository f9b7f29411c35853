"""Counting the records of a CSV file by other code than cuts them.

It goes line by line and asks of each only whether a quote is open at its end.
"""

from __future__ import annotations

import re
import zlib
from itertools import repeat
from typing import NamedTuple

from ingest.capture.csv_buffer import Transcoder, codec_in_buffer
from ingest.capture.csv_format import CsvFormat, header_marker
from ingest.capture.csv_header import Header
from ingest.capture.streams import ByteStream, read_up_to, skip

CHUNK_BYTES = 1 << 18


class Span(NamedTuple):
    """A part of a file that begins and ends between records, so that it can be cut by itself.

    Attributes:
        offset: Its first byte in the file.
        length: Its bytes.
        line: The line of its first byte.
        crc32: Of its bytes: whether it still is what was counted.
    """

    offset: int
    length: int
    line: int
    crc32: int


def count(stream: ByteStream, fmt: CsvFormat, header: Header) -> int:
    """Count the records of a file that stand below its header.

    Args:
        stream: The file from its first byte, unpacked.
        fmt: How the feed writes its CSV.
        header: What was found at its top. Taken from it are the encoding, the length of the byte
            order mark, and how many lines are no records.

    Raises:
        FileReadError: The stream breaks off.
    """
    return spans(stream, fmt, header, None)[0]


def spans(
    stream: ByteStream, fmt: CsvFormat, header: Header, size: int | None
) -> tuple[int, list[Span]]:
    """Count records as ``count`` does, and say where the file can be parted.

    Args:
        stream: The file from its first byte, unpacked.
        fmt: How the feed writes its CSV.
        header: What was found at its top.
        size: The least bytes of a span; None for none.

    Returns:
        The number of records, and spans that hold them all. There is none where what stands in one
        part of the file may depend on an earlier one: in UTF-16, whose places are worked out on the
        way, and where something below the header looks like a header.

    Raises:
        FileReadError: The stream breaks off.
    """
    if not skip(stream, header.mark):
        return 0, []
    is_wide = header.encoding.startswith("utf-16")
    source = Transcoder(stream, header.encoding) if is_wide else stream
    names = [fmt.canonical(name) for name in header.names]
    marker = header_marker(names).encode(codec_in_buffer(header.encoding))
    parted = _Parting(header.mark, size) if size and not is_wide else None
    counter = _LineCounter(fmt)
    above = header.lines
    carry = b""
    while chunk := read_up_to(source, max(CHUNK_BYTES, len(carry))):
        block = carry + chunk
        # A CR at the very end may be half of a CRLF.
        stop = max(block.rfind(b"\n"), block.rfind(b"\r", 0, len(block) - 1)) + 1
        carry = block[stop:]
        block = block[:stop]
        if above:
            lines = block.splitlines(keepends=True)
            taken, block = b"".join(lines[:above]), b"".join(lines[above:])
            if parted:
                parted.leave_out(taken, min(above, len(lines)))
            above = max(above - len(lines), 0)
        counter.feed(block)
        if parted and marker in block.lower():
            parted = None
        if parted:
            parted.add(block, counter.lines, can_end=not counter.is_pending)
    if not above:
        counter.feed(carry)
        if parted:
            parted.add(carry, counter.lines, can_end=True)
    return counter.finish(), parted.finish() if parted else []


class _Parting:
    """Where the bytes that are counted can be parted."""

    def __init__(self, offset: int, size: int) -> None:
        self._size = size
        self._line = 1
        self._above = 0
        self._start = self._offset = offset
        self._crc = 0
        self._spans: list[Span] = []

    def leave_out(self, raw: bytes, lines: int) -> None:
        """Lines at the top that are no records."""
        self._above += lines
        self._line += lines
        self._start = self._offset = self._offset + len(raw)

    def add(self, raw: bytes, lines: int, *, can_end: bool) -> None:
        """Bytes that follow, the lines that were counted so far, and whether a span may end there."""
        self._offset += len(raw)
        self._crc = zlib.crc32(raw, self._crc)
        if can_end and self._offset - self._start >= self._size:
            self._end(lines)

    def finish(self) -> list[Span]:
        if self._offset > self._start:
            self._end(0)
        return self._spans

    def _end(self, lines: int) -> None:
        self._spans.append(Span(self._start, self._offset - self._start, self._line, self._crc))
        self._start, self._crc = self._offset, 0
        self._line = self._above + lines + 1


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
        self.lines = 0

    @property
    def is_pending(self) -> bool:
        """Whether a quote is open at the end of what was counted."""
        return bool(self._pending)

    def feed(self, block: bytes) -> None:
        """Count the records of some whole lines."""
        if not self._pending and not (self._quote and self._quote in block):
            lines = block.splitlines()
            blank = list(map(bytes.strip, lines, repeat(self._blanks))).count(b"")
            self._counted += len(lines) - blank
            self.lines += len(lines)
            return
        lines = block.splitlines(keepends=True)
        self.lines += len(lines)
        self._go_through(lines)

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
