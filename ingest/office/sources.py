"""The file from which a refused record came, if it still is what it was."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from ingest.errors import FileReadError
from ingest.sources import Source


@lru_cache(maxsize=4)
def read_unchanged(source_file: str, file_sha256: str) -> bytes | None:
    """The content of a file as it was ingested.

    Args:
        source_file: As ``_source_file`` says it: a path, or ``zip!member``.
        file_sha256: Hash of the unpacked content.

    Returns:
        The unpacked bytes; None if the file is gone, cannot be read, or holds something else by now.
    """
    source = Source(source_file)
    if not Path(source_file).is_file() and "!" in source_file:
        path, member = _split(source_file)
        source = Source(path, member)
    try:
        data = source.read()
    except (FileReadError, KeyError):
        return None
    return data if hashlib.sha256(data).hexdigest() == file_sha256 else None


def _split(source_file: str) -> tuple[str, str]:
    """Path and member of ``zip!member``; either may hold a '!' itself."""
    for at, sign in enumerate(source_file):
        if sign == "!" and Path(source_file[:at]).is_file():
            return source_file[:at], source_file[at + 1 :]
    path, _, member = source_file.partition("!")
    return path, member
