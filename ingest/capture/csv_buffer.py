"""The part of a CSV file that is looked at, and taking one record from it, whatever its quotes do."""

from __future__ import annotations

import codecs
from typing import NamedTuple

from ingest.capture.csv_format import LINE_END, CsvFormat, line_ends
from ingest.capture.streams import ByteStream, read_up_to

CHUNK_BYTES = 1 << 18


def codec_in_buffer(encoding: str) -> str:
    """The codec of what a buffer holds: UTF-16 is cut as UTF-8."""
    return "utf-8" if encoding.startswith("utf-16") else encoding


class Transcoder:
    """Turns UTF-16 into UTF-8 in which lone surrogates survive, so that all code cuts bytes.

    A lone last byte becomes 0xFF, which no other text becomes, and is kept in ``odd_byte``.
    """

    def __init__(self, stream: ByteStream, encoding: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
        self.odd_byte = b""
        self._ended = False

    def read(self, size: int = -1, /) -> bytes:
        """Read what about ``size`` bytes of UTF-16 are in UTF-8."""
        while not self._ended:
            data = read_up_to(self._stream, size)
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


class Taken(NamedTuple):
    """A record as the buffer gave it: its bytes, the bytes of its line end, an open quote."""

    raw: bytes
    end: int
    open_quote: int | None


class Buffer:
    """The part of a file that is being cut. ``consumed`` counts from where the buffer started."""

    def __init__(self, stream: ByteStream, fmt: CsvFormat, encoding: str) -> None:
        self.codec = codec_in_buffer(encoding)
        self.transcodes = self.codec != encoding
        self._transcoder = Transcoder(stream, encoding) if self.transcodes else None
        self._stream = self._transcoder or stream
        self._fmt = fmt
        self._base = 0
        self.data = b""
        self.position = 0
        self.ended = False

    @property
    def consumed(self) -> int:
        """Bytes before the position."""
        return self._base + self.position

    @property
    def odd_byte(self) -> bytes:
        """Half a unit of UTF-16 at the end of the file, if there is one."""
        return self._transcoder.odd_byte if self._transcoder else b""

    def fill(self) -> None:
        """Read on. It reads as much as is left over, so that a long line costs linear time."""
        rest = self.data[self.position :]
        self._base += self.position
        self.position = 0
        more = read_up_to(self._stream, max(CHUNK_BYTES, len(rest)))
        self.ended = not more
        self.data = rest + more

    def reach(self, size: int) -> None:
        """Read on until so many bytes follow the position, or the file ends."""
        while not self.ended and len(self.data) - self.position < size:
            self.fill()

    def take(self) -> Taken | None:
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
            line_end = LINE_END.search(data, stop if whole else start)
            if not self.ended and (
                line_end is None
                or line_end.end() == len(data)
                or (not whole and len(data) - start <= fmt.max_record_bytes + 2)
            ):
                self.fill()
                continue
            raw = data[start:stop]
            if whole and (breaks := line_ends(raw)):
                whole = breaks < fmt.max_record_lines and len(raw) <= fmt.max_record_bytes
                line_end = line_end if whole else LINE_END.search(data, start)
            open_quote = None
            if not whole:
                raw = data[start : line_end.start() if line_end else len(data)]
                before = fmt.record_regex.match(raw)
                open_quote = before.end() + 1 if before else 0
            end = len(line_end.group()) if line_end else 0
            self.position = start + len(raw) + end
            return Taken(raw, end, open_quote)
