"""A year in batches, and every day's files by stream: killed, started again, and against the batch."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
from conftest import (
    OF_A_BATCH,
    Checkout,
    SampleLake,
    copy_checkout,
    leave_orders_alone,
    rows,
    table_contents,
)

from ingest.daily import DailyOptions, run_daily
from ingest.environment import PROJECT_ROOT
from ingest.history import HistoryOptions, load_history
from ingest.lake import Lake
from ingest.lock import LakeLock
from ingest.sample import generate

HEADER = "order_id,customer_id,sku,qty,order_ts,channel,note\n"
# For what takes a tenth of it on an idle machine.
PATIENCE_SECONDS = 600


def start(
    code: str, *arguments: str, errors: IO[bytes] | None = None, checkout: Checkout | None = None
) -> subprocess.Popen[bytes]:
    """Start Python on this project, or on a copy of it."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=checkout.root if checkout else PROJECT_ROOT,
        env=checkout.environment() if checkout else None,
        stderr=errors,
    )


def start_command(
    *arguments: str, errors: IO[bytes] | None = None, checkout: Checkout | None = None
) -> subprocess.Popen[bytes]:
    code = "import sys; from ingest.cli import main; sys.exit(main())"
    return start(code, *arguments, errors=errors, checkout=checkout)


def wait_until(process: subprocess.Popen[bytes], happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert process.poll() is None, "it ended before that"
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def streamed_lake(sample_lake: SampleLake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The samples by stream, killed while it wrote to Bronze and started again."""
    lake = Lake(tmp_path_factory.mktemp("streamed") / "lake")
    process = start_command("daily", "--input", str(sample_lake.samples), "--lake", str(lake.path))
    log = lake.path / "bronze" / "placsp_entries" / "_delta_log"
    try:
        wait_until(process, lambda: any('"add"' in c.read_text("utf-8") for c in log.glob("*.json")))
    finally:
        process.kill()
        process.wait()
    assert lake.finished_batches() == set(), "killed before its marker"
    assert run_daily(lake, DailyOptions(inputs=(str(sample_lake.samples),))) == 0
    return lake


def test_stream_and_batch_give_the_same_tables(sample_lake: SampleLake, streamed_lake: Lake) -> None:
    assert len(streamed_lake.finished_batches()) == 1
    for record_type in ("orders", "placsp_entries", "placsp_deleted_entries"):
        ids = (
            f"select _record_id from bronze.{record_type} "
            "where _batch_id in (select batch_id from bronze.batches) order by 1"
        )
        assert rows(streamed_lake, ids) == rows(sample_lake.lake, ids)
    letters = "select dead_letter_id from marts.dead_letters order by 1"
    assert rows(streamed_lake, letters) == rows(sample_lake.lake, letters)
    by_batch = table_contents(sample_lake.lake, OF_A_BATCH)
    by_stream = table_contents(streamed_lake, OF_A_BATCH)
    assert by_stream.keys() == by_batch.keys()
    for table, contents in by_stream.items():
        assert contents == by_batch[table], table


def test_a_second_start_of_the_stream_adds_nothing(sample_lake: SampleLake, streamed_lake: Lake) -> None:
    before = streamed_lake.versions()
    assert run_daily(streamed_lake, DailyOptions(inputs=(str(sample_lake.samples),))) == 0
    assert streamed_lake.versions() == before


def test_a_followed_folder_with_odd_names_broken_files_and_new_content_under_a_known_name(
    tmp_path: Path,
) -> None:
    checkout = copy_checkout(tmp_path / "project")
    leave_orders_alone(checkout)
    lake, landing = Lake(tmp_path / "lake"), tmp_path / "landing"
    names = ("with blank.csv", "%20.csv", "a:b.csv", "año.csv", "_hidden.csv")
    for number, name in enumerate(names):
        (landing / "x:y %41").mkdir(parents=True, exist_ok=True)
        (landing / "x:y %41" / f"orders{name}").write_text(
            f"{HEADER}O-odd-{number},C-1,SKU-1,{number + 1},2024-01-01 00:00:00,web,first\n"
        )
    (landing / "orders_20240601.csv").write_text("<html>503</html>")
    changing = landing / "x:y %41" / "ordersa:b.csv"
    process = start_command(
        "daily", "--input", str(landing), "--lake", str(lake.path), "--follow", "--interval", "1",
        checkout=checkout,
    )  # fmt: skip

    def orders() -> list[tuple[object, ...]]:
        if ("silver", "orders") not in lake.tables():
            return []
        return rows(lake, "select order_id, qty, note from silver.orders order by 1")

    try:
        first = [(f"O-odd-{number}", number + 1, "first") for number in range(len(names))]
        wait_until(process, lambda: orders() == first)
        changing.write_text(
            f"{HEADER}O-odd-2,C-1,SKU-1,30,2024-01-02 00:00:00,web,second\n"
            "O-odd-9,C-1,SKU-1,9,2024-01-02 00:00:00,web,second\n"
        )
        second = [*first[:2], ("O-odd-2", 30, "second"), *first[3:], ("O-odd-9", 9, "second")]
        wait_until(process, lambda: orders() == second)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0, "a stop that was asked for is no failure"
    finally:
        process.kill()
        process.wait()
    with LakeLock(lake.path, "test"):
        assert len(lake.finished_batches()) == 2
    broken = "select error_type from marts.dead_letters where source_file like '%orders_20240601.csv'"
    assert rows(lake, broken) == [("HTML_PAGE",)]
    broken_laws = "select law from marts.law_results where offenders > 0"
    assert rows(lake, broken_laws) == []


def test_what_is_no_files_fault_is_told_and_tried_again(
    sample_lake: SampleLake, streamed_lake: Lake, tmp_path: Path
) -> None:
    landing, away = tmp_path / "landing", tmp_path / "away"
    landing.mkdir()
    shutil.copy(sample_lake.samples / "orders_dirty.csv", landing)
    before = streamed_lake.versions()
    told = tmp_path / "told"
    with told.open("wb") as errors:
        process = start_command(
            "daily", "--input", str(landing), "--lake", str(streamed_lake.path), "--follow",
            "--interval", "1", errors=errors,
        )  # fmt: skip

    def said(text: str, times: int) -> Callable[[], bool]:
        return lambda: told.read_text("utf-8").count(text) >= times

    try:
        wait_until(process, said("every file is known", 1))
        landing.rename(away)
        # The folder stays away and its state is the same: the second one is a new start's.
        wait_until(process, said("is no file and no folder", 2))
        away.rename(landing)
        wait_until(process, said("every file is known", 2))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
    assert streamed_lake.versions() == before


def test_a_year_killed_between_two_batches_goes_on_and_leaves_other_years(
    streamed_lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Lake(tmp_path / "lake")
    shutil.copytree(streamed_lake.path, lake.path)
    made, landing = tmp_path / "made", tmp_path / "landing"
    generate(made, entries=30, orders=0, faults=False, seed=7)
    older, newer = sorted(made.glob("contratosMenores*.atom"))
    landing.mkdir()
    shutil.copy(older, landing / "contratosMenoresPerfilesContratantes_20200102_030000.atom")
    # Neither its name nor its feed's id says of which dataset it is.
    nameless = newer.read_bytes().replace(b"sindicacion_1143", b"elsewhere")
    (landing / "page_20200103.atom").write_bytes(nameless)
    other = landing / "contratosMenoresPerfilesContratantes_20190102_030000.atom"
    other.write_bytes(older.read_bytes() + b"<!-- of another year -->")
    before = lake.finished_batches()
    # A batch for each file.
    options = HistoryOptions(inputs=(str(landing),), dataset="menores", year=2020, batch_bytes=1)

    process = start(
        "import sys; from pathlib import Path; from ingest.history import *; "
        "load_history(Lake(Path(sys.argv[1])), HistoryOptions((sys.argv[2],), 'menores', 2020, 1))",
        str(lake.path),
        str(landing),
    )
    try:
        wait_until(process, lambda: len(lake.finished_batches() - before) == 1)
    finally:
        process.kill()
        process.wait()
    assert len(lake.finished_batches() - before) == 1, "killed before the second marker"
    assert load_history(lake, options) == 0

    told = capsys.readouterr().out
    assert f"left, of 2019: {other}" in told
    assert "menores 2020: " in told and "records/s" in told
    taken = rows(
        lake,
        "select split_part(source_file, '/', -1), dataset, count(*) from bronze.files "
        "join bronze.batches using (batch_id) where source_file like '%/landing/%' "
        "and record_type = 'placsp_entries' group by all order by 1",
    )
    assert taken == [
        ("contratosMenoresPerfilesContratantes_20200102_030000.atom", "menores", 1),
        ("page_20200103.atom", "menores", 1),
    ]
    assert len(lake.finished_batches() - before) == 2
    unbalanced = "select * from marts.reconciliation where balance <> 0"
    assert rows(lake, unbalanced) == []
    judged = rows(
        lake,
        "select split_part(_source_file, '/', -1) from silver.placsp_entries_judged "
        "where _source_file like '%/landing/%' group by 1 order by 1",
    )
    assert judged == [(name,) for name, _, _ in taken]
