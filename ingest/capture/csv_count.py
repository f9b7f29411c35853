"""Counting the records of a CSV file by other code than cuts them.

It goes line by line and asks of each only whether a quote is open at its end.
"""

from __future__ import annotations

import re
from itertools import repeat

from ingest.capture.csv_buffer import Transcoder
from ingest.capture.csv_format import CsvFormat
from ingest.capture.csv_header import Header
from ingest.capture.streams import ByteStream, read_up_to, skip

CHUNK_BYTES = 1 << 18


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
    if not skip(stream, header.mark):
        return 0
    if header.encoding.startswith("utf-16"):
        stream = Transcoder(stream, header.encoding)
    counter = _LineCounter(fmt)
    above = header.lines
    carry = b""
    while chunk := read_up_to(stream, max(CHUNK_BYTES, len(carry))):
        block = carry + chunk
        # A CR at the very end may be half of a CRLF.
        stop = max(block.rfind(b"\n"), block.rfind(b"\r", 0, len(block) - 1)) + 1
        carry = block[stop:]
        block = block[:stop]
        if above:
            lines = block.splitlines(keepends=True)
            block = b"".join(lines[above:])
            above = max(above - len(lines), 0)
        counter.feed(block)
    if not above:
        counter.feed(carry)
    return counter.finish()


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
