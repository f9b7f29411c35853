"""Reading bytes from what may give few at a time or break off."""

from __future__ import annotations

import zlib
from typing import Protocol

from ingest.errors import FileReadError


class ByteStream(Protocol):
    """What is read from: a file, a gzip stream, bytes in memory."""

    def read(self, size: int = -1, /) -> bytes:
        """Read up to ``size`` bytes; fewer only at the end."""
        ...


def read_up_to(stream: ByteStream, size: int) -> bytes:
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


def skip(stream: ByteStream, size: int) -> bool:
    """Read past so many bytes; whether they were there.

    Raises:
        FileReadError: The stream breaks off.
    """
    while size:
        skipped = len(read_up_to(stream, min(size, 1 << 20)))
        if not skipped:
            return False
        size -= skipped
    return True


class Limited:
    """So many bytes of a stream."""

    def __init__(self, stream: ByteStream, size: int) -> None:
        self._stream = stream
        self._left = size

    def read(self, size: int = -1, /) -> bytes:
        """Read up to ``size`` bytes."""
        data = self._stream.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        return data
