"""Files outside of tables that hold what records say: landed and re-entry files, logs, checkpoints."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ingest.errors import FileReadError, InputError
from ingest.lake import Lake
from ingest.lock import LOCK_FILE
from ingest.privacy.identifier import Identifier
from ingest.sources import Source, digest_of, find_sources
from ingest.transform import PROJECT_DIR

# What dbt leaves of a run: statements and messages, which may quote values. Its manifest does not.
_LEFT_BY_RUNS = ("dbt.log*", "run_results.json", "run/**/*", "compiled/**/*")


class Outside:
    """Files beside a lake's tables.

    A landed file goes as a whole: without some of its bytes it would be new content, and each of its
    records would come again. Bronze has the text of every record that stays.
    """

    def __init__(self, landing: Sequence[Path] = (), logs: Sequence[Path] = ()) -> None:
        """Take folders that the lake does not know of.

        Args:
            landing: Folders of files that were ingested.
            logs: Folders of logs, of Spark's event logs or of a stream's checkpoints.

        Raises:
            InputError: One is no folder.
        """
        for folder in (*landing, *logs):
            if not folder.is_dir():
                raise InputError(
                    f"{folder} is no folder. Name one with files that may hold what is to be removed."
                )
        self._landing = tuple(landing)
        self._logs = tuple(logs)

    def find(
        self, lake: Lake, contents: Collection[str], value: Identifier | None, removes: bool
    ) -> list[Path]:
        """Find files that have to go.

        Args:
            lake: The lake.
            contents: sha256 of the files of which records were or are to be purged.
            value: The value, where one is forgotten: then any file that holds it goes as well, and of
                logs only such.
            removes: Whether anything at all is to be removed from tables.

        Raises:
            InputError: A folder of logs holds the lake, or is in it.
        """
        for folder in self._logs:
            if _is_within(lake.path, folder) or _is_within(folder, lake.path):
                raise InputError(
                    f"{folder} holds the lake or is in it, and all files in a folder of logs may go. "
                    "Name a folder of nothing but logs."
                )
        found: set[Path] = set()
        for folder in (lake.reentry_files, *self._landing):
            if folder.is_dir():
                landed = _landed(folder, contents, value)
                # A folder of files may have the lake, or another one, below it.
                found |= {path for path in landed if not _is_of_a_table(path)}
        if removes:
            found |= set(_left_by_runs(lake))
            if value is None:
                found |= set(_files(self._logs))
        if value is not None:
            found |= {path for path in _files(self._logs) if _holds(Source(str(path)), value)}
            found |= set(_state_with(lake, value))
        return sorted(found)

    def remove(self, files: Sequence[Path]) -> int:
        """Remove files; one that is gone already is no trouble.

        Returns:
            How many were there.
        """
        removed = 0
        for path in files:
            with suppress(FileNotFoundError):
                path.unlink()
                removed += 1
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        return removed


def _landed(folder: Path, contents: Collection[str], value: Identifier | None) -> Iterator[Path]:
    for source in find_sources([str(folder)]):
        # What cannot be opened was never read into the lake, and may hold anything.
        if isinstance(source, Source) and (
            _digest(source) in contents or (value is not None and _holds(source, value))
        ):
            yield Path(source.path)


def _is_within(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _is_of_a_table(path: Path) -> bool:
    return any((folder / "_delta_log").is_dir() for folder in path.parents) or LOCK_FILE.parts[0] in (
        path.parts
    )


def _digest(source: Source) -> str | None:
    try:
        return digest_of(source)[0]
    except FileReadError:
        return None


def _holds(source: Source, value: Identifier) -> bool:
    try:
        return value.is_in_bytes(source.read())
    except FileReadError:
        # Not what its name says: the bytes as they lie there.
        return value.is_in_bytes(Path(source.path).read_bytes())


def _left_by_runs(lake: Lake) -> Iterator[Path]:
    for folder in (lake.state / "dbt", PROJECT_DIR / "target", PROJECT_DIR / "logs"):
        for pattern in _LEFT_BY_RUNS:
            yield from (path for path in folder.glob(pattern) if path.is_file())


def _state_with(lake: Lake, value: Identifier) -> Iterator[Path]:
    """Files of the lake's state with a value; of a checkpoint all, because a part of one is none."""
    checkpoints = lake.state / "checkpoints"
    for path in _files([lake.state]):
        if path == lake.path / LOCK_FILE or not value.is_in_bytes(path.read_bytes()):
            continue
        if checkpoints in path.parents:
            yield from _files([checkpoints / path.relative_to(checkpoints).parts[0]])
        else:
            yield path


def _files(folders: Sequence[Path]) -> list[Path]:
    return [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
