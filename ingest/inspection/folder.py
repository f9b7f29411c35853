"""The folder of a report: it is there whole or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from types import TracebackType

from ingest.errors import InputError

RESULTS = (
    "schema.ddl", "inferred.txt", "inference", "permissive", "dropped", "drop_count.json",
    "failfast.txt", "width.json", "width_naive.json", "clean", "quarantine", "inspection.json",
    "report.md", "report.html",
)  # fmt: skip
"""What an inspection writes, and all that it ever removes."""


class ReportFolder:
    """A folder that is written beside its place and moved there when it is whole.

    Attributes:
        partial: Where to write meanwhile. What a killed run left there is removed by the next.
    """

    def __init__(self, out: Path, *, force: bool) -> None:
        """Look whether it can be written.

        Args:
            out: Its place.
            force: Replace an earlier report.

        Raises:
            InputError: There is something else, or an earlier report and no ``force``.
        """
        self._out = out.absolute()
        self._force = force
        self.partial = self._out.with_name(f".{self._out.name}.partial")
        self._check()

    def __enter__(self) -> Path:
        """Begin; gives the folder to write to.

        Raises:
            InputError: It cannot be written, or another process writes the same report.
        """
        try:
            self.partial.mkdir(parents=True, exist_ok=True)
            # The kernel holds the lock as long as this process lives, however that ends.
            self._lock = os.open(self.partial, os.O_RDONLY)
        except OSError as error:
            raise InputError(
                f"{self._out} cannot be written: {error.strerror}. Give yourself the right to write in "
                f"{self._out.parent}, or name another folder with --out."
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise InputError(
                f"{self._out} is being written by another inspection. Wait for it, or name another "
                f"folder with --out."
            ) from error
        self._empty()
        return self.partial

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Move it to its place; after an error remove it."""
        try:
            if error is None:
                self._check()
                self._move()
            else:
                shutil.rmtree(self.partial, ignore_errors=True)
        finally:
            os.close(self._lock)

    def _check(self) -> None:
        if self._out.exists() and not self._out.is_dir():
            raise InputError(
                f"{self._out} is a file, and a report is a folder. Name another with --out."
            )
        there = {path.name for path in self._out.iterdir()} if self._out.exists() else set()
        foreign = sorted(there - set(RESULTS))
        if foreign:
            raise InputError(
                f"{self._out} holds {foreign[0]!r}, which is of no report, and the folder would be "
                f"replaced as a whole. Name an empty or a new folder with --out."
            )
        if there and not self._force:
            raise InputError(
                f"{self._out} holds a report already. Replace it with --force, or name another folder "
                f"with --out."
            )

    def _empty(self) -> None:
        for path in self.partial.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def _move(self) -> None:
        """A folder cannot be renamed over a full one: the earlier report goes aside first."""
        earlier = self._out.with_name(f".{self._out.name}.earlier")
        shutil.rmtree(earlier, ignore_errors=True)
        if self._out.exists():
            self._out.rename(earlier)
        self.partial.rename(self._out)
        shutil.rmtree(earlier, ignore_errors=True)
