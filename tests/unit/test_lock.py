import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ingest.environment import PROJECT_ROOT
from ingest.errors import InputError, LakeInUseError
from ingest.lock import LakeLock

HOLD = """
import sys
from pathlib import Path
from ingest.lock import LakeLock
with LakeLock(Path(sys.argv[1]), command="the other run"):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_writer(lake: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lake)],
        cwd=PROJECT_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_a_second_writer_is_refused_and_told_who_holds_the_lake(tmp_path: Path) -> None:
    lake = tmp_path / "a lake"
    with another_writer(lake) as other, pytest.raises(LakeInUseError) as refused:
        LakeLock(lake).__enter__()
    message = str(refused.value)
    assert f"process {other.pid} on " in message
    assert "the other run" in message
    assert str(lake) in message
    assert "\n" not in message


def test_the_kernel_frees_the_lake_of_a_killed_writer(tmp_path: Path) -> None:
    with another_writer(tmp_path) as other:
        other.send_signal(signal.SIGKILL)
        other.wait()
        with LakeLock(tmp_path):
            assert f'"pid": {os.getpid()}' in (tmp_path / "_state" / "writer.lock").read_text()


def test_a_lake_is_free_again_after_the_block_even_if_it_raised(tmp_path: Path) -> None:
    lock = LakeLock(tmp_path)
    with pytest.raises(RuntimeError), lock:
        raise RuntimeError
    with lock, pytest.raises(LakeInUseError):
        LakeLock(tmp_path).__enter__()
    with another_writer(tmp_path):
        pass


def test_a_child_that_outlives_the_run_does_not_keep_the_lake(tmp_path: Path) -> None:
    lock = LakeLock(tmp_path)
    with lock:
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        with LakeLock(tmp_path):
            pass
    finally:
        child.kill()
        child.wait()


def test_readers_are_not_disturbed(tmp_path: Path) -> None:
    (tmp_path / "table").write_text("rows")
    with another_writer(tmp_path):
        assert (tmp_path / "table").read_text() == "rows"


def test_a_lake_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("")
    with pytest.raises(InputError, match="is a file, and a lake is a folder"):
        LakeLock(tmp_path / "lake").__enter__()


def test_a_lake_in_a_missing_folder_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is not there\. Make it first"):
        LakeLock(tmp_path / "no" / "lake").__enter__()
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_lake_is_refused(tmp_path: Path) -> None:
    # Root may write anywhere; a file in the folder's place stops root as well.
    (tmp_path / "_state").write_text("")
    with pytest.raises(InputError, match=r"cannot be written to: .*_state cannot be made"):
        LakeLock(tmp_path).__enter__()


def test_a_lock_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_state" / "writer.lock").mkdir(parents=True)
    with pytest.raises(InputError, match=r"writer.lock cannot be opened"):
        LakeLock(tmp_path).__enter__()
