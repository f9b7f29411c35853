"""Lines of files and records of Kafka to rows of ``bronze.messages``: what is new, and the workers."""

from __future__ import annotations

import fnmatch
import hashlib
import io
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ingest.errors import FileReadError
from ingest.messages.envelope import MAX_BYTES, Refusal, message_id, read_envelope
from ingest.messages.kafka import source_name
from ingest.sources import ProbedFile, Source, digest_of, find_sources

PATTERNS = ("*.jsonl", "*.ndjson", "*.jsonl.gz", "*.ndjson.gz")
"""Names of files that hold messages."""
# A worker hands over messages in batches of about this many bytes.
_BATCH_BYTES = 4_000_000
# What `_unparsed` says of the key of a record that is not the key of its message.
_KEY = "(key of the record)"

RECEIVED_DDL = (
    "_record_id STRING, _message_id STRING, target STRING, key STRING, event_ts TIMESTAMP, "
    "stage STRING, error_type STRING, error STRING, payload STRING, _payload_bytes BINARY, "
    "_unparsed ARRAY<STRING>, _supersedes STRING, _attempt INT, _source_file STRING, "
    "_file_sha256 STRING, _position BIGINT, _byte_offset BIGINT, _byte_length BIGINT"
)
RECEIVED = pa.schema(
    [
        ("_record_id", pa.string()),
        ("_message_id", pa.string()),
        ("target", pa.string()),
        ("key", pa.string()),
        ("event_ts", pa.timestamp("us", tz="UTC")),
        ("stage", pa.string()),
        ("error_type", pa.string()),
        ("error", pa.string()),
        ("payload", pa.string()),
        ("_payload_bytes", pa.binary()),
        ("_unparsed", pa.list_(pa.string())),
        ("_supersedes", pa.string()),
        ("_attempt", pa.int32()),
        ("_source_file", pa.string()),
        ("_file_sha256", pa.string()),
        ("_position", pa.int64()),
        ("_byte_offset", pa.int64()),
        ("_byte_length", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Line:
    """One line of a file, or one record of Kafka.

    Attributes:
        position: Its number, from 1; of a record, its offset in its partition.
        offset: Where it begins in the unpacked content; None for a record.
        length: Its bytes without the line break.
        raw: These bytes; None where they are more than a message may have, and where a record has no
            value.
        key: The key beside the value of a record, if it has one.
    """

    position: int
    offset: int | None
    length: int
    raw: bytes | None
    key: bytes | None = None


@dataclass(frozen=True)
class Again:
    """A line that sends a refused message again.

    Attributes:
        supersedes: Record id of that message.
        attempt: Which time at the gate this is, from 2.
        is_corrected: Whether its text is another one.
        key: The key that it had, which a record of Kafka may have beside its text.
    """

    supersedes: str
    attempt: int
    is_corrected: bool
    key: str | None = None


Reentries = Mapping[str, Mapping[int, Again]]
"""What sends messages again: lines by the sha256 of their file and their number in it."""


@dataclass(frozen=True)
class NewFile:
    """A file whose content was never received."""

    source: Source
    file_sha256: str


def new_files(
    inputs: Sequence[str], known: Collection[str]
) -> tuple[list[NewFile], list[FileReadError]]:
    """Find the files whose content is new, and those that cannot be read. Each content comes once.

    Args:
        inputs: Folders, files or globs.
        known: sha256 of the contents that were received.

    Raises:
        InputError: An input names nothing.
    """
    found: dict[str, NewFile] = {}
    failed: list[FileReadError] = []
    for source in find_sources(inputs):
        if isinstance(source, ProbedFile):
            failed.append(FileReadError(source.error_type or "UNREADABLE", source.error_message or ""))
            continue
        if not any(fnmatch.fnmatch(source.file_name.lower(), pattern) for pattern in PATTERNS):
            continue
        try:
            digest, _ = digest_of(source)
        except FileReadError as error:
            failed.append(error)
            continue
        if digest not in known:
            found.setdefault(digest, NewFile(source, digest))
    return list(found.values()), failed


def cut(stream: io.BufferedIOBase, longest: int = MAX_BYTES) -> Iterator[Line]:
    """Cut a stream into lines; blank ones are no messages, and are counted as lines all the same.

    A byte order mark at the start belongs to the file, not to its first message.

    Args:
        stream: The unpacked content.
        longest: A longer line is measured, and its bytes let go.
    """
    offset = position = 0
    while chunk := stream.readline(longest + 2):
        position += 1
        start, length, raw = offset, len(chunk), chunk
        while not chunk.endswith(b"\n") and (chunk := stream.readline(longest + 2)):
            length += len(chunk)
            raw = b""
        offset += length
        if position == 1 and raw.startswith(b"\xef\xbb\xbf"):
            raw, start, length = raw[3:], start + 3, length - 3
        if raw.endswith(b"\n"):
            raw = raw[:-1]
        # Where bytes were let go, all that is left to know is whether the last of them ended the line.
        length -= chunk.endswith(b"\n")
        if length > longest:
            yield Line(position, start, length, None)
        elif raw.strip():
            yield Line(position, start, length, raw)


def received(
    line: Line,
    source_file: str,
    file_sha256: str,
    targets: Collection[str],
    again: Again | None = None,
) -> dict[str, Any]:
    """Give the row of ``bronze.messages`` that a line makes, but for what the driver knows alone."""
    place = f"{file_sha256}|{line.position}"
    row: dict[str, Any] = dict.fromkeys(RECEIVED.names)
    row |= {
        "_record_id": hashlib.sha256(f"messages|{place}".encode()).hexdigest(),
        "_source_file": source_file,
        "_file_sha256": file_sha256,
        "_position": line.position,
        "_byte_offset": line.offset,
        "_byte_length": line.length,
        "_supersedes": again.supersedes if again else None,
        "_attempt": again.attempt if again else 1,
    }
    beside = _key_beside(line, again)
    row["key"] = beside
    if line.raw is None:
        kind, said = "MESSAGE_TOO_LARGE", f"it has {line.length:,} bytes; {MAX_BYTES:,} is the most"
        if not line.length:
            kind, said = "NO_VALUE", "it is a record without a value, and messages delete nothing"
        row |= {"_message_id": message_id(b"", None, place), "stage": "json_parsing"}
        return row | {"error_type": kind, "error": said}
    found = read_envelope(line.raw, targets)
    try:
        row["payload"] = line.raw.decode("utf-8")
    except UnicodeDecodeError:
        row["_payload_bytes"] = line.raw
    if isinstance(found, Refusal):
        row |= {"stage": found.stage, "error_type": found.error_type, "error": found.error}
        return row | {"target": found.target, "_message_id": message_id(line.raw, None, place)}
    if found.key is not None:
        # What the message itself says counts.
        beside = None
    row |= {"target": found.target, "event_ts": found.event_ts}
    row["key"] = beside if found.key is None else found.key
    is_key_unused = line.key is not None and (row["key"] or "").encode() != line.key
    row["_unparsed"] = [*found.unknown, *([_KEY] if is_key_unused else [])]
    # Sent again in the same words on purpose it is no repeat; the place makes it another message.
    is_told_anew = again is not None and not again.is_corrected
    event_ts = None if is_told_anew else found.event_ts
    return row | {"_message_id": message_id(line.raw, event_ts, place, beside)}


def _key_beside(line: Line, again: Again | None) -> str | None:
    return again.key if again else _text(line.key)


def _text(raw: bytes | None) -> str | None:
    """Bytes as text; None where they are none."""
    try:
        return None if raw is None else raw.decode("utf-8")
    except UnicodeDecodeError:
        return None


def record_receiver(
    targets: Collection[str], identities: Mapping[tuple[str, int], str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make what a worker runs: rows of Kafka's source in, rows of RECEIVED_DDL out.

    Args:
        targets: Names of the configured targets.
        identities: What stands for a file's sha256, by topic and partition.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = []
            for record in batch.to_pylist():
                topic, partition, value = record["topic"], record["partition"], record["value"]
                size = 0 if value is None else len(value)
                raw = None if size > MAX_BYTES else value
                line = Line(record["offset"], None, size, raw, record["key"])
                identity = identities[topic, partition]
                rows.append(received(line, source_name(topic, partition), identity, targets))
            yield pa.RecordBatch.from_pylist(rows, RECEIVED)

    return run


def receiver(
    targets: Collection[str], reentries: Reentries | None = None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make what a worker runs: rows of (path, member, name, sha256) in, rows of RECEIVED_DDL out.

    A file that cannot be read to its end costs that file: its last row has the stage ``file_read``,
    and none of its rows count.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for file in batch.to_pylist():
                try:
                    yield from _rows_of(file, targets, (reentries or {}).get(file["sha256"], {}))
                except (FileReadError, OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
                    yield pa.RecordBatch.from_pylist([_unreadable(file, error)], RECEIVED)

    return run


def _unreadable(file: Mapping[str, Any], error: Exception) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(RECEIVED.names)
    kind = error.error_type if isinstance(error, FileReadError) else "UNREADABLE"
    told = str(error) if isinstance(error, FileReadError) else f"{file['name']}: {error}"
    return row | {
        "stage": "file_read",
        "error_type": kind,
        "error": told,
        "_source_file": file["name"],
        "_file_sha256": file["sha256"],
    }


def _rows_of(
    file: Mapping[str, Any], targets: Collection[str], again: Mapping[int, Again]
) -> Iterator[pa.RecordBatch]:
    rows: list[dict[str, Any]] = []
    size = 0
    source = Source(file["path"], file["member"])
    with source.open() as stream:
        digested = _Digested(stream)
        for line in cut(io.BufferedReader(digested)):
            sent_again = again.get(line.position)
            rows.append(received(line, file["name"], file["sha256"], targets, sent_again))
            size += 1000 + line.length
            if size > _BATCH_BYTES:
                yield pa.RecordBatch.from_pylist(rows, RECEIVED)
                rows, size = [], 0
    if digested.digest.hexdigest() != file["sha256"]:
        raise FileReadError(
            "CHANGED_WHILE_READ",
            f"{file['name']} changed while it was read, and nothing of it was taken. Move files in "
            f"under their names when they are whole; the next run takes it.",
        )
    if rows:
        yield pa.RecordBatch.from_pylist(rows, RECEIVED)


class _Digested(io.RawIOBase):
    """A stream that hashes what is read from it."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        self.digest.update(data)
        buffer[: len(data)] = data
        return len(data)
