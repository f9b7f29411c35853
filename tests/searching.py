"""A search for a value in files, in all ways in which they can be read."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq


def found(folder: Path, value: str) -> list[str]:
    """Where a value stands below a folder: in the bytes of files, unpacked, and decoded."""
    return sorted(
        {
            f"{file.relative_to(folder)} {how}"
            for file in folder.rglob("*")
            if file.is_file()
            for how, text in readings(file)
            if value in text
        }
    )


def readings(file: Path) -> Iterator[tuple[str, str]]:
    """What can be read from a file, and how."""
    data = file.read_bytes()
    yield "bytes", data.decode("latin-1")
    yield "bytes", data.decode("utf-8", "replace")
    if file.suffix == ".gz":
        yield "unpacked", gzip.decompress(data).decode("utf-8", "replace")
    if file.suffix == ".zip":
        with zipfile.ZipFile(file) as archive:
            for member in archive.namelist():
                yield "unpacked", archive.read(member).decode("utf-8", "replace")
    if file.suffix == ".parquet":
        parquet = pq.ParquetFile(file)
        # Among it statistics in the checkpoints of a log.
        yield "decoded", repr(parquet.read().to_pylist())
        for group in range(parquet.metadata.num_row_groups):
            for column in range(parquet.metadata.num_columns):
                yield "statistics", repr(parquet.metadata.row_group(group).column(column).statistics)
