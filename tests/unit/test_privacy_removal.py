"""Purge and forget: nothing of a value is left in any file, and what a record was is still told."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable
from office_lake import NOON, record_ids
from privacy_lake import ACCEPTED, ENCODINGS, REPLACED, make_privacy_lake
from searching import found

from ingest.cli import cli
from ingest.contracts import load_contracts
from ingest.errors import InputError
from ingest.lake import QUARANTINE_EVENTS, Lake
from ingest.office import refused
from ingest.office.events import Event, append
from ingest.office.refused import Office
from ingest.privacy import delta, finding
from ingest.privacy.finding import Finder, Plan
from ingest.privacy.identifier import Identifier
from ingest.privacy.outside import Outside
from ingest.privacy.removal import Done, Removal
from ingest.privacy.tables import Tables
from ingest.transform import models_dir

YEARS_LATER = NOON + timedelta(days=800)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return make_privacy_lake(tmp_path)


@dataclass(frozen=True)
class Forgotten:
    """A lake from which ``gift`` was removed, and its orders in Bronze before."""

    lake: Lake
    before: dict[int, dict[str, Any]]
    done: Done


@pytest.fixture(scope="module")
def forgotten(tmp_path_factory: pytest.TempPathFactory) -> Forgotten:
    folder = tmp_path_factory.mktemp("forgotten")
    lake = make_privacy_lake(folder)
    return Forgotten(lake, bronze(lake), forget(lake, "gift", folder))


@pytest.fixture
def keeps_30_days(monkeypatch: pytest.MonkeyPatch) -> None:
    """Orders are kept for 30 days while they are pending, and for ever in other states."""
    contracts = load_contracts(models_dir())
    contracts["orders"].terms["retention"] = {"pending": "30d", "discarded": "1000d"}  # type: ignore[index]
    for module in (refused, finding):
        monkeypatch.setattr(module, "known_contracts", lambda: contracts)


def run(lake: Lake, *words: str, given: str | None = None) -> Result:
    return CliRunner().invoke(cli, [*words, "--lake", str(lake.path)], input=given)


def left(lake: Lake, value: str) -> list[str]:
    return found(lake.path, value)


def events(lake: Lake) -> list[dict[str, Any]]:
    rows = lake.read("bronze", "quarantine_events", QUARANTINE_EVENTS.names).to_pylist()
    return [row for row in rows if row["event_type"] == "purged"]


def bronze(lake: Lake) -> dict[int, dict[str, Any]]:
    path = str(lake.path / "bronze" / "orders")
    return {row["_position"]: row for row in DeltaTable(path).to_pyarrow_table().to_pylist()}


def forget(lake: Lake, value: str, landing: Path | None = None) -> Done:
    wanted = Identifier(value)
    outside = Outside([landing] if landing else [])
    plan = Finder(Tables(lake), outside).holding(wanted)
    return Removal(Tables(lake), outside).carry_out(plan, "ana", "request 118", None, wanted)


def overdue(lake: Lake, now: datetime = YEARS_LATER, landing: Path | None = None) -> Plan:
    return Finder(Tables(lake), Outside([landing] if landing else []), now).overdue()


def purge(lake: Lake, plan: Plan) -> None:
    Removal(Tables(lake), Outside()).carry_out(plan, "ana", "retention", None)


def test_before_anything_is_removed_the_search_sees_a_value_in_each_encoding(lake: Lake) -> None:
    places = " ".join(left(lake, "gift"))
    # Each is one file of Silver.
    assert len({p for p in places.split() if p.startswith("silver/orders/part")}) == len(ENCODINGS)
    for part in ("statistics", "decoded", "_delta_log/00000000000000000000.json", "crc", "dbt.log"):
        assert part in places


@pytest.mark.parametrize(
    ("value", "text", "is_there"),
    [
        ("gift", "a Gift, wrapped", True),
        ("gift", "gifted", False),
        ("gift", "ungift", False),
        ("Ñu & Co", "<n>ñu &amp; co</n>", True),
        ('a "b"c', '{"n": "a \\"b\\"c"}', True),
        ('a "b"c', 'x,"a ""b""c",y', True),
        ("José", '{"n": "Jos\\u00e9"}', True),
        ("12.5x", "12a5x", False),
    ],
)
def test_a_value_counts_where_it_stands_whole_however_it_is_written(
    value: str, text: str, is_there: bool
) -> None:
    wanted = Identifier(value)
    assert wanted.is_in({"of": [text]}) == is_there
    for encoding in ("utf-8", "utf-16-le", "cp1252"):
        assert wanted.is_in_bytes(b" " * 3 + text.encode(encoding)) == is_there
    assert (wanted.without(text) != text) == is_there and not wanted.is_in(wanted.without(text))


def test_nothing_of_a_forgotten_value_is_left_in_any_file(forgotten: Forgotten) -> None:
    lake = forgotten.lake
    assert left(lake, "gift") == []
    assert not (lake.path.parent / "orders_dirty.csv").exists()
    assert forgotten.done.records == 2
    # What no record of these says stays.
    silver = DeltaTable(str(lake.path / "silver" / "orders")).to_pyarrow_table().to_pylist()
    assert len(silver) == 12 and {row["note"] for row in silver} == {"given0", "given1", "given2"}
    parties = DeltaTable(str(lake.path / "silver" / "placsp_parties")).to_pyarrow_table().to_pylist()
    assert sorted(row["party_name"] for row in parties) == ["A [removed], Ltd", "Another"]
    assert (lake.state / "dbt" / "manifest.json").exists()


def test_a_record_in_bronze_keeps_its_place_and_loses_what_it_says(forgotten: Forgotten) -> None:
    before = forgotten.before[ACCEPTED]
    after = bronze(forgotten.lake)

    assert len(after) == 5
    row = after[ACCEPTED]
    assert row["_record_id"] == before["_record_id"] and row["_byte_length"] == before["_byte_length"]
    for column in ("payload", "order_id", "customer_id", "note", "qty"):
        assert before[column] is not None and row[column] is None
    assert after[3]["payload"] is not None


def test_the_version_that_gave_way_goes_with_the_one_that_is_forgotten(forgotten: Forgotten) -> None:
    lake = forgotten.lake
    assert bronze(lake)[REPLACED]["payload"] is None
    left_in = lake.read("silver", "orders_dispositions", ["_record_id"]).to_pylist()
    assert left_in == []


def test_a_value_is_found_as_csv_writes_it_and_in_a_correction(lake: Lake) -> None:
    ids = record_ids(lake)
    corrected = Event(
        ids[3], "orders", "orders", "corrected", "ana", "typo", corrected_payload="S2,O2,C2,2,ben@x.es"
    )
    append(lake, [corrected], {ids[3]: None})

    plan = Finder(Tables(lake), Outside()).holding(Identifier('call "first"'))
    assert [record.position for record in plan.records] == [4]
    assert forget(lake, "BEN@x.es").records == 1

    assert bronze(lake)[3]["payload"] is None and left(lake, "ben@x.es") == []
    with Office(lake) as office:
        (record,) = office.find([ids[3]])
    assert record.state == "purged"


def test_an_event_tells_what_went_by_its_hash_and_length(forgotten: Forgotten) -> None:
    lake = forgotten.lake
    payload = forgotten.before[ACCEPTED]["payload"].encode()
    told = {event["record_id"]: event for event in events(lake)}

    event = told[record_ids(lake)[ACCEPTED]]
    assert event["actor"] == "ana" and event["reason"].startswith("request 118: ")
    assert hashlib.sha256(payload).hexdigest() in event["evidence"]
    assert f"{len(payload)} bytes, 2 records in all" in event["evidence"]


def test_tables_of_evidence_take_new_rows_alone_again(forgotten: Forgotten) -> None:
    lake = forgotten.lake
    for name in ("bronze/orders", "marts/dead_letters", "bronze/quarantine_events"):
        configuration = DeltaTable(str(lake.path / name)).metadata().configuration
        assert configuration["delta.appendOnly"] == "true"
        assert configuration["delta.logRetentionDuration"] == "interval 30 days"
    assert not delta.is_append_only(lake.path / "silver" / "orders")


def test_who_looked_before_a_purge_looks_again_before_writing(lake: Lake) -> None:
    row = {"event_id": "e", "record_id": "r", "event_type": "discarded"}
    before = lake.version("quarantine_events")
    forget(lake, "gift")
    assert not lake.append_at("quarantine_events", [row], before)
    assert lake.append_at("quarantine_events", [row], lake.version("quarantine_events"))


@pytest.mark.usefixtures("keeps_30_days")
def test_only_what_is_kept_too_long_in_its_state_is_purged(lake: Lake, tmp_path: Path) -> None:
    ids = record_ids(lake)
    discarded = Event(ids[6], "orders", "orders", "discarded", "ana", "test data")
    append(lake, [discarded], {ids[6]: None}, now=NOON)
    plan = overdue(lake, landing=tmp_path)

    assert overdue(lake, NOON + timedelta(days=29)).is_empty
    assert [(r.position, r.why) for r in plan.records] == [
        (p, "pending for longer than 30d") for p in (3, 4, 7)
    ]
    assert tmp_path / "orders_dirty.csv" in plan.files

    purge(lake, plan)

    assert left(lake, "then ring") == []
    rows = bronze(lake)
    assert rows[ACCEPTED]["payload"] and rows[6]["payload"] and not rows[3]["payload"]
    letters = lake.read("marts", "dead_letters", ["record_id", "payload", "business_key"]).to_pylist()
    kept = {row["record_id"]: row["payload"] for row in letters}
    assert len(kept) == 3 and kept[ids[6]] and not kept[ids[3]] and not kept[ids[4]]
    assert overdue(lake).is_empty


@pytest.mark.usefixtures("keeps_30_days")
@pytest.mark.parametrize("commits", [1, 3, 8])
def test_killed_anywhere_and_run_again_it_completes(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    calls = 0

    def counting(method: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == commits:
                raise KeyboardInterrupt
            return method(*given, **named)

        return call

    with monkeypatch.context() as patch:
        for name in ("delete", "update", "clean"):
            patch.setattr(delta.DeltaFiles, name, counting(getattr(delta.DeltaFiles, name)))
        with pytest.raises(KeyboardInterrupt):
            purge(lake, overdue(lake))

    plan = overdue(lake)
    assert plan.is_unfinished
    purge(lake, plan)

    assert left(lake, "then ring") == []
    assert len(events(lake)) == 4
    assert delta.is_append_only(lake.path / "bronze" / "orders")
    assert delta.is_append_only(lake.path / "marts" / "dead_letters")
    assert overdue(lake).is_empty


def test_a_folder_that_holds_a_lake_costs_the_lake_nothing(lake: Lake, tmp_path: Path) -> None:
    plan = Finder(Tables(lake), Outside([tmp_path])).holding(Identifier("gift"))
    assert [path.name for path in plan.files] == ["dbt.log", "orders_dirty.csv"]
    with pytest.raises(InputError, match="nothing but logs"):
        Finder(Tables(lake), Outside(logs=[tmp_path])).holding(Identifier("gift"))


def test_forget_lists_first_and_keeps_the_value_nowhere(lake: Lake, tmp_path: Path) -> None:
    before = len(found(lake.path, "gift"))
    listed = run(lake, "forget", "--value", "gift", "--dry-run", "--landing", str(tmp_path))
    assert "2 records would be purged" in listed.stdout and "silver.orders: 1 records" in listed.stdout
    assert "silver.placsp_parties: 1 rows that only mention" in listed.stdout
    assert len(found(lake.path, "gift")) == before

    asked = run(lake, "forget", "--value", "gift", "--because", "r", given="n\n")
    assert asked.exit_code == 1 and len(found(lake.path, "gift")) == before

    done = run(lake, "forget", "--value", "-", "--because", "request 118", "--yes", given="gift\n")
    assert done.exit_code == 0 and done.stdout.startswith("2 records purged")
    assert left(lake, "gift") == []
    assert json.loads((lake.state / "writer.lock").read_text())["command"] == "forget"
    assert (
        run(lake, "forget", "--value", "gift", "--because", "x").stdout == "Nothing is to be removed.\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("forget", "--value", "C1 ", "--because", "x"), "2 characters"),
        (("forget", "--value", "gift", "--because", "a Gift"), "holds the value"),
        (("forget", "--value", "gift"), "names a reason"),
        (("purge", "--landing", "nowhere"), "nowhere is no folder"),
    ],
)
def test_what_cannot_be_is_said(lake: Lake, words: tuple[str, ...], said: str) -> None:
    result = run(lake, *words)
    assert isinstance(result.exception, InputError) and said in str(result.exception)
