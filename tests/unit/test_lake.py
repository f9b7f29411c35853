"""The operational tables that are written without Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from deltalake import DeltaTable

from ingest.lake import BATCHES, FILES, QUARANTINE_EVENTS, RUN_FAILURES, Lake

AT = datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)
SAMPLES = {"string": "é\n", "int64": 2**40, "int32": 3, "timestamp[us, tz=UTC]": AT}


@pytest.mark.parametrize(
    ("table", "schema"),
    [
        ("files", FILES),
        ("batches", BATCHES),
        ("run_failures", RUN_FAILURES),
        ("quarantine_events", QUARANTINE_EVENTS),
    ],
)
def test_rows_are_read_as_they_were_written(tmp_path: Path, table: str, schema: object) -> None:
    lake = Lake(tmp_path / "lake")
    lake.create_operations()
    full = {field.name: SAMPLES[str(field.type)] for field in schema}  # type: ignore[attr-defined]
    lake.append(table, [full, {}])
    lake.append(table, [])

    read = lake.read("bronze", table, list(full)).to_pylist()
    assert sorted(read, key=lambda row: row[next(iter(full))] is None) == [full, dict.fromkeys(full)]
    assert DeltaTable(str(lake.table_path("bronze", table))).version() == 1
    assert DeltaTable(str(lake.table_path("bronze", table))).metadata().configuration["delta.appendOnly"]


def test_an_instant_of_another_zone_is_the_same_instant(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.create_operations()
    lake.append("batches", [{"started_at": AT.astimezone(timezone(timedelta(hours=2)))}])
    assert lake.read("bronze", "batches", ["started_at"]).to_pylist() == [{"started_at": AT}]


def test_what_a_killed_run_began_to_make_is_no_table(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create_operations()
    begun = tmp_path / "silver" / "orders" / "_delta_log" / "_staged_commits"
    begun.mkdir(parents=True)
    assert ("silver", "orders") not in lake.tables()
    begun = lake.table_path("bronze", "codice_codes") / "_delta_log"
    for commit in begun.glob("*.json"):
        commit.unlink()
    lake.create_operations()
    assert ("bronze", "codice_codes") in lake.tables(), "and it is made"
