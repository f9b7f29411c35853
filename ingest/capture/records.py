"""What every cutter yields, whatever the format."""

from __future__ import annotations

from typing import NamedTuple


class ParseError(NamedTuple):
    """Why a record does not parse, as the parser says it.

    ``line`` and ``column`` are 1-based and count in the file, not in the record.
    """

    error_class: str
    message: str
    line: int
    column: int


class Record(NamedTuple):
    """One record as it stands in a file.

    Attributes:
        payload: The exact text of the record, decoded as ``encoding``. Where the bytes do not
            decode, undecodable bytes are shown as U+FFFD and ``payload_bytes`` holds the truth.
        payload_bytes: The raw bytes, only where they do not decode; else None.
        parse_text: The text to hand to Spark's parser: ``payload``, or None where it is the same
            text; differs only where prefixes had to be made canonical.
        position: XML: 1-based ordinal of the record's tag in the file. CSV: 1-based line on which
            the record starts.
        byte_offset: Where the record's first byte stands in the file, from 0.
        byte_length: Bytes from the first to the last byte of the record.
        error: Set when the record is corrupt.
        unparsed: Paths that the payload has and the parse does not take, sorted.
    """

    payload: str
    payload_bytes: bytes | None
    parse_text: str | None
    position: int
    byte_offset: int
    byte_length: int
    error: ParseError | None
    unparsed: tuple[str, ...]
