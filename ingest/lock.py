"""One writer to a lake at a time."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from ingest.errors import InputError, LakeInUseError

LOCK_FILE = Path("_state") / "writer.lock"


class LakeLock:
    """Holds a lake for writing, as a context manager. Readers need no lock.

    The kernel holds the lock, not the file: it ends with the process however that ends, and the
    file that stays behind says only who held the lake last. A second writer is refused at once
    rather than made to wait, because two runs over one inbox are a mistake more often than a plan.

    Attributes:
        lake: The folder of the lake.
        path: The file that carries the lock.
    """

    def __init__(self, lake: Path, command: str | None = None) -> None:
        """Takes nothing yet.

        Args:
            lake: The folder of the lake. It is made if only its last part is missing.
            command: What to tell others that this process does; its command line by default.
        """
        self.lake = lake
        self.path = lake / LOCK_FILE
        self._command = command if command is not None else " ".join(sys.argv)
        self._descriptor: int | None = None

    def __enter__(self) -> LakeLock:
        """Takes the lock.

        Returns:
            This object.

        Raises:
            LakeInUseError: Another writer holds the lake.
            InputError: The lake cannot be written to.
        """
        self._make_folder()
        try:
            # Python opens it so that no child inherits it: one that outlives the run, such as a
            # JVM, must not keep the lake.
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise self._refusal(f"{self.path} cannot be opened ({error.strerror})") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = _describe(descriptor)
            os.close(descriptor)
            raise LakeInUseError(
                f"{self.lake} is being written to by {holder}. One run at a time may write: wait "
                "for it, stop it, or choose another lake with LAKE=. Reading is free meanwhile."
            ) from error
        except OSError as error:
            os.close(descriptor)
            raise self._refusal(
                f"the file system has no locks for {self.path} ({error.strerror})"
            ) from error
        try:
            self._sign(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise self._refusal(f"{self.path} cannot be written ({error.strerror})") from error
        self._descriptor = descriptor
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Gives the lock back. The file stays: removing it would let two writers in."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _make_folder(self) -> None:
        if self.lake.exists() and not self.lake.is_dir():
            raise InputError(
                f"{self.lake} is a file, and a lake is a folder. Name a folder, or one to be made."
            )
        if not self.lake.absolute().parent.is_dir():
            raise InputError(
                f"{self.lake} cannot be made: the folder {self.lake.absolute().parent} is not "
                "there. Make it first, or correct the path."
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._refusal(f"{self.path.parent} cannot be made ({error.strerror})") from error

    def _refusal(self, trouble: str) -> InputError:
        return InputError(
            f"{self.lake} cannot be written to: {trouble}. Give yourself the right to write "
            "there, or choose another lake with LAKE=."
        )

    def _sign(self, descriptor: int) -> None:
        """Says in the file who holds the lock."""
        note = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "command": self._command,
            "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(note).encode(), 0)


def _describe(descriptor: int) -> str:
    """Reads who holds the lock. The note may be unreadable: its writer is only just signing."""
    try:
        note = json.loads(os.pread(descriptor, 65_536, 0))
        return (
            f"process {note['pid']} on {note['host']} ('{note['command']}', since {note['started_at']})"
        )
    except (ValueError, KeyError, TypeError):
        return "another process that has only just begun"
