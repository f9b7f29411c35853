"""Finding files, and looking at each once before Spark.

What is it, is it known, and how many records does it hold by an independent count?
"""

from __future__ import annotations

import glob
import gzip
import hashlib
import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from ingest.capture import csv, xml
from ingest.capture.encoding import detect_csv
from ingest.capture.page import PageHead, read_page_head
from ingest.contracts import Contract, feed_of
from ingest.errors import FileReadError, InputError
from ingest.schema import parse_ddl

# A member that unpacks to more than this many times its size, and to more than the floor, is taken
# for a bomb: pages compress to about a tenth.
MAX_COMPRESSION = 200
COMPRESSION_FLOOR_BYTES = 100_000_000
# A CSV file is cut by several workers in parts of at least this many bytes.
SPAN_BYTES = 32_000_000
# Where `lakehouse fetch` notes beside fetched files what it knows of them; no input.
FETCH_FOLDER = ".fetch"


@dataclass(frozen=True)
class Source:
    """Where bytes come from: a file, or a member of a ZIP."""

    path: str
    member: str | None = None
    # Unpacked, as the archive says; of a member only.
    member_bytes: int = field(default=0, compare=False)

    @property
    def name(self) -> str:
        """As ``_source_file`` says it: ``zip!member`` for a member."""
        return f"{self.path}!{self.member}" if self.member else self.path

    @property
    def file_name(self) -> str:
        """The last part of the name, by which contracts claim it."""
        return PurePosixPath(self.member or self.path).name

    def open(self) -> io.BufferedIOBase:
        """Open the content, unpacked.

        Raises:
            FileReadError: It cannot be read, or unpacks to an implausible size.
        """
        try:
            if self.member:
                with zipfile.ZipFile(self.path) as archive:
                    return io.BytesIO(archive.read(self.member))
            if self.path.lower().endswith(".gz"):
                return _CappedGzip(self.path)
            return Path(self.path).open("rb")
        except (
            OSError,
            zipfile.BadZipFile,
            RuntimeError,
            NotImplementedError,
            ValueError,
        ) as error:
            raise _unreadable(self, error) from error

    def read(self) -> bytes:
        """The whole content.

        Raises:
            FileReadError: It cannot be read.
        """
        with self.open() as stream:
            try:
                return stream.read()
            except (OSError, EOFError, zipfile.BadZipFile) as error:
                raise _unreadable(self, error) from error


class _CappedGzip(gzip.GzipFile):
    """A gzip stream that refuses to unpack to an implausible size."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "rb")
        packed = Path(path).stat().st_size
        self._most = max(packed * MAX_COMPRESSION, COMPRESSION_FLOOR_BYTES)
        self._unpacked = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self._unpacked += len(data)
        if self._unpacked > self._most:
            raise FileReadError(
                "IMPLAUSIBLE_COMPRESSION",
                f"{self.name} unpacks to more than {MAX_COMPRESSION} times its size, which no feed "
                f"does. Unpack it by hand and look at it before you give it again.",
            )
        return data


def _unreadable(source: Source, error: BaseException) -> FileReadError:
    if isinstance(error, FileReadError):
        return error
    return FileReadError(
        "UNREADABLE",
        f"{source.name} cannot be read: {error}. Check that the file is whole and that you may read "
        f"it, then run again; a failed file is tried again when its content changes or with "
        f"--retry-failed.",
    )


@dataclass
class FilePart:
    """What a file holds of one record type."""

    record_type: str
    records_found: int


@dataclass
class ProbedFile:
    """A file as it was seen before Spark.

    ``status`` is ``new``, ``known``, ``failed`` or ``ignored``. A new file has an ``error_type`` where
    there is something about it that people should know and that costs no record.
    """

    source: Source
    status: str
    file_sha256: str = ""
    size_bytes: int = 0
    modified_at: datetime | None = None
    dataset: str | None = None
    record_type: str | None = None
    parts: list[FilePart] = field(default_factory=list)
    header: csv.Header | None = None
    head: PageHead | None = None
    encoding: str = ""
    spans: list[csv.Span] = field(default_factory=list)
    error_type: str | None = None
    error_message: str | None = None
    # Of a file of records that are sent again: position -> the refused record, and which try it is.
    reentries: dict[int, tuple[str, int]] = field(default_factory=dict)


def find_sources(inputs: Sequence[str]) -> Iterator[Source | ProbedFile]:
    """Find files: folders in depth, globs, single files, and the members of ZIPs.

    Yields:
        Sources in a stable order; a ProbedFile with status ``failed`` for a ZIP that cannot be
        opened and for a member that is refused.

    Raises:
        InputError: An input names nothing.
    """
    for path in find_files(inputs):
        if path.suffix.lower() == ".zip":
            yield from _members(path)
        else:
            yield Source(str(path))


def find_files(inputs: Sequence[str]) -> Iterator[Path]:
    """Find files, ZIPs unopened: each once, by its absolute path, in a stable order.

    Raises:
        InputError: An input names nothing.
    """
    if not inputs:
        raise InputError("There is nothing to read. Name a folder, a glob or files: --input <path>.")
    seen: set[Path] = set()
    for text in inputs:
        path = Path(text)
        if path.is_dir():
            paths = sorted(
                p
                for p in path.rglob("*")
                if p.is_file() and FETCH_FOLDER not in p.relative_to(path).parts
            )
        elif path.exists():
            paths = [path]
        else:
            # Path.glob takes no absolute pattern.
            matches = glob.glob(text, recursive=True)  # noqa: PTH207
            paths = sorted(Path(p) for p in matches if Path(p).is_file())
            if not paths:
                raise InputError(
                    f"{text} is no file and no folder, and as a glob it matches nothing. "
                    f"Check the path; nothing was read."
                )
        for found in paths:
            absolute = found.absolute()
            if absolute in seen:
                continue
            seen.add(absolute)
            yield absolute


def _members(path: Path) -> Iterator[Source | ProbedFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            infos = [info for info in archive.infolist() if not info.is_dir()]
    except (OSError, zipfile.BadZipFile) as error:
        whole = Source(str(path))
        yield _failed(whole, "BAD_ZIP", f"{path} is no whole ZIP: {error}. Fetch it again.")
        return
    for info in infos:
        source = Source(str(path), info.filename, info.file_size)
        parts = PurePosixPath(info.filename.replace("\\", "/")).parts
        if info.filename.startswith(("/", "\\")) or ".." in parts or ":" in (parts or ("",))[0]:
            yield _failed(
                source,
                "UNSAFE_MEMBER_NAME",
                f"{source.name} has a name that points outside its archive, which published ZIPs "
                f"never do. Find out who made the archive before you unpack it.",
            )
        elif info.file_size > COMPRESSION_FLOOR_BYTES and info.file_size > MAX_COMPRESSION * max(
            info.compress_size, 1
        ):
            yield _failed(
                source,
                "IMPLAUSIBLE_COMPRESSION",
                f"{source.name} would unpack to {info.file_size} bytes from {info.compress_size}, "
                f"which no page does. Unpack it by hand and look at it before you give it again.",
            )
        else:
            yield source


def _failed(source: Source, error_type: str, message: str) -> ProbedFile:
    # The name stands in for the content, which was not read: the same fault is told once.
    digest = hashlib.sha256(f"{error_type}:{source.name}".encode()).hexdigest()
    return ProbedFile(source, "failed", file_sha256=digest, error_type=error_type, error_message=message)


def xml_format(contract: Contract) -> xml.XmlFormat:
    """How the cutter reads a record type of an XML feed."""
    assert contract.row_tag is not None
    return xml.XmlFormat(
        row_tag=contract.row_tag,
        row_namespace=contract.feed["row_namespaces"][contract.row_tag],
        namespaces=dict(contract.feed["namespaces"]),
        schema=parse_ddl(contract.schema_ddl),
    )


def csv_format(contract: Contract) -> csv.CsvFormat:
    """How the cutter reads a record type of a CSV feed."""
    return csv.CsvFormat.of_feed(tuple(parse_ddl(contract.schema_ddl).children), contract.feed)


def probe(
    source: Source,
    contracts: Mapping[str, Contract],
    known: Mapping[tuple[str, str | None], str],
    *,
    dataset: str | None = None,
    retry_failed: bool = False,
) -> ProbedFile:
    """Look at one file: hash, dataset, faults of the file as a whole, independent counts."""
    claiming = feed_of(contracts, source.file_name)
    probed = ProbedFile(source, "new")
    try:
        stat = Path(source.path).stat()
        probed.modified_at = datetime.fromtimestamp(stat.st_mtime, UTC)
        probed.size_bytes = stat.st_size
        if not claiming:
            probed.status = "ignored"
            probed.file_sha256 = digest_of(source)[0]
            if known.get((probed.file_sha256, f"ignored {source.name}")):
                probed.status = "known"
            return probed
        probed.record_type = claiming[0].record_type
        probed.file_sha256, probed.size_bytes = digest_of(source)
        state = [known.get((probed.file_sha256, c.record_type)) for c in claiming]
        if "failed" in state and not retry_failed:
            probed.status = "known"
            return probed
        todo = [c for c, status in zip(claiming, state, strict=True) if status != "ingested"]
        if not todo:
            probed.status = "known"
            return probed
        look_inside(probed, todo, dataset)
    except FileReadError as error:
        probed.status = "failed"
        probed.error_type = error.error_type
        probed.error_message = placed(source, str(error))
    except OSError as error:
        probed.status = "failed"
        refusal = _unreadable(source, error)
        probed.error_type, probed.error_message = refusal.error_type, str(refusal)
    if probed.status == "failed" and not probed.file_sha256:
        probed.file_sha256 = hashlib.sha256(f"unread:{source.name}".encode()).hexdigest()
        # What could not be read is known by its name; else each run would tell it anew.
        if known.get((probed.file_sha256, probed.record_type)) == "failed" and not retry_failed:
            probed.status = "known"
    return probed


def placed(source: Source, message: str) -> str:
    """A message that names the file it is about."""
    return message if source.name in message else f"{source.name}: {message}"


def digest_of(source: Source) -> tuple[str, int]:
    """SHA-256 of the unpacked content in hex, and its bytes.

    Raises:
        FileReadError: It cannot be read.
    """
    digest = hashlib.sha256()
    size = 0
    with source.open() as stream:
        try:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
                size += len(chunk)
        except (OSError, EOFError, zipfile.BadZipFile) as error:
            raise _unreadable(source, error) from error
    return digest.hexdigest(), size


def look_inside(probed: ProbedFile, contracts: Iterable[Contract], dataset: str | None) -> None:
    """Fill in what a file holds of record types that are read from the same files.

    Args:
        probed: The file; encoding, dataset, header, parts and findings are set.
        contracts: The record types.
        dataset: The dataset where neither name nor content say it.

    Raises:
        FileReadError: It cannot be read as what the contracts say.
    """
    source = probed.source
    first, *_ = contracts = list(contracts)
    if first.format == "csv":
        probed.dataset = first.dataset_of_name(source.file_name) or dataset or first.datasets[0].name
        shape = csv_format(first)
        with source.open() as stream:
            encoding = detect_csv(stream, shape.encoding, shape.signs)
        with source.open() as stream:
            probed.header = header = csv.read_header(stream, shape, encoding)
        probed.encoding = encoding.name
        # What is packed can only be read from its start.
        is_plain = source.member is None and not source.path.lower().endswith(".gz")
        with source.open() as stream:
            records, probed.spans = csv.spans(stream, shape, header, SPAN_BYTES if is_plain else None)
        probed.parts = [FilePart(first.record_type, records)]
        if header.findings:
            probed.error_type = header.findings[0].error_type
            said = " ".join(finding.message for finding in header.findings)
            probed.error_message = placed(source, said)
        return
    data = source.read()
    xml.check_page(data)
    probed.encoding = xml.encoding_of(data)
    probed.dataset = (
        first.dataset_of_name(source.file_name) or first.dataset_of_feed(xml.feed_id(data)) or dataset
    )
    if probed.dataset is None:
        raise FileReadError(
            "UNKNOWN_DATASET",
            f"{source.name}: neither the file's name nor the page's feed id says of which dataset it "
            f"is, and a record without one has no key. Give --dataset, or add the prefix to the "
            f"contract.",
        )
    probed.parts = [FilePart(c.record_type, xml.count(data, xml_format(c))) for c in contracts]
    # A piece of a page has no head, and its records count all the same.
    with suppress(FileReadError):
        probed.head = read_page_head(data, check=False)
