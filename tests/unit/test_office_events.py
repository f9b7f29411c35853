"""Events of refused records: append-only, one operator at a time per record."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from office_lake import NOON, make_lake, record_ids

from ingest.errors import ConflictError, InputError
from ingest.lake import QUARANTINE_EVENTS, Lake
from ingest.office.actions import Note, happen
from ingest.office.events import TABLE, Event, append
from ingest.office.refused import Office
from ingest.office.states import LastEvent


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return make_lake(tmp_path)


def event(record_id: str, event_type: str = "investigated", **more: str) -> Event:
    return Event(record_id, "orders", "orders", event_type, "ana", "why", **more)  # type: ignore[arg-type]


def stored(lake: Lake) -> list[dict[str, object]]:
    return lake.read("bronze", TABLE, QUARANTINE_EVENTS.names).to_pylist()  # type: ignore[no-any-return]


def test_an_event_is_written_whole(lake: Lake) -> None:
    append(lake, [event("r1", "corrected", evidence="T-1", corrected_payload="a,é")], {}, NOON)

    (row,) = stored(lake)
    assert len(str(row.pop("event_id"))) == 32
    assert row == {
        "record_id": "r1",
        "record_type": "orders",
        "dataset": "orders",
        "event_type": "corrected",
        "actor": "ana",
        "reason": "why",
        "evidence": "T-1",
        "at": NOON,
        "attempt": 1,
        "corrected_payload": "a,é",
        "corrected_sha256": "446f548904bcdb8628c8b614b7868f034fdb47a653d8b421949b02ce1b8c5d9a",
        "batch_id": None,
        "pipeline_version": "0.1.0",
    }


def test_the_second_of_two_operators_is_told_who_did_what_when(lake: Lake) -> None:
    record_id = record_ids(lake)[3]
    with Office(lake) as first, Office(lake) as second:
        happen(first, first.find([record_id]), "discarded", Note("maria", "a test order"))
        with pytest.raises(ConflictError) as caught:
            happen(second, second.find([record_id]), "corrected", Note("luis", "x"), {record_id: "a"})

    assert f"{record_id[:12]}: discarded by maria at " in str(caught.value)
    assert "('a test order')" in str(caught.value)
    assert [row["actor"] for row in stored(lake)] == ["maria"]


def test_who_looked_again_is_no_second_operator(lake: Lake) -> None:
    record_id = record_ids(lake)[3]
    for actor in ("maria", "luis"):
        with Office(lake) as office:
            happen(office, office.find([record_id]), "investigated", Note(actor, "x"))

    assert {row["actor"] for row in stored(lake)} == {"maria", "luis"}


def test_of_many_records_none_is_written_if_one_was_taken(lake: Lake) -> None:
    ids = record_ids(lake)
    with Office(lake) as first, Office(lake) as second:
        happen(first, first.find([ids[3]]), "investigated", Note("maria", "x"))
        with pytest.raises(ConflictError, match="1 of these records"):
            happen(second, second.find([ids[3], ids[4]]), "discarded", Note("luis", "x"))

    assert len(stored(lake)) == 1


def test_operators_on_different_records_do_not_hinder_each_other(lake: Lake) -> None:
    def work(number: int) -> None:
        for turn in range(3):
            append(lake, [event(f"r{number}.{turn}")], {})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))

    rows = stored(lake)
    assert sorted(str(row["record_id"]) for row in rows) == [
        f"r{n}.{t}" for n in range(4) for t in range(3)
    ]


def test_of_many_at_once_on_one_record_one_comes_through(lake: Lake) -> None:
    def work(_: int) -> bool:
        try:
            append(lake, [event("r1")], {})
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(work, range(6))) == 1
    assert len(stored(lake)) == 1


def test_a_commit_to_another_version_than_was_read_is_refused(lake: Lake) -> None:
    version = lake.version(TABLE)
    append(lake, [event("r1")], {})

    row = {"event_id": "late", "record_id": "r1", "at": NOON}
    assert not lake.append_at(TABLE, [row], version)
    assert lake.append_at(TABLE, [row], version + 1)
    assert [row["event_id"] for row in stored(lake)].count("late") == 1


def test_an_event_is_later_than_those_before_it_also_when_the_clock_goes_back(lake: Lake) -> None:
    append(lake, [event("r1")], {}, NOON)
    (first,) = stored(lake)
    last = LastEvent(str(first["event_id"]), "investigated", "ana", "why", NOON)
    append(lake, [event("r1")], {"r1": last}, NOON - timedelta(days=1))

    assert sorted(row["at"] for row in stored(lake)) == [NOON, NOON + timedelta(microseconds=1)]


@pytest.mark.parametrize(
    ("actor", "reason", "told"),
    [("", "why", "an actor.*--actor"), ("ana", " ", "a reason.*--because")],
)
def test_every_event_names_an_actor_and_a_reason(actor: str, reason: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        Event("r1", "orders", "orders", "discarded", actor, reason)


def test_a_text_goes_with_a_correction_and_only_with_one() -> None:
    with pytest.raises(InputError, match="goes with a correction"):
        event("r1", "corrected")
    with pytest.raises(InputError, match="goes with a correction"):
        event("r1", "discarded", corrected_payload="a")


def test_events_cannot_be_changed_or_deleted(lake: Lake) -> None:
    append(lake, [event("r1")], {})
    table = DeltaTable(str(lake.table_path("bronze", TABLE)))

    with pytest.raises(DeltaError, match="append"):
        table.delete()
    assert len(stored(lake)) == 1


def test_the_log_holds_no_text_of_a_record_or_an_operator(lake: Lake) -> None:
    append(
        lake, [event("r1", "corrected", corrected_payload="secret text", evidence="call Eva Perez")], {}
    )

    logs = (lake.table_path("bronze", TABLE) / "_delta_log").glob("*.json")
    text = "\n".join(log.read_text("utf-8") for log in logs)
    assert "secret" not in text
    assert "Perez" not in text
    stats = [json.loads(line)["add"]["stats"] for line in text.splitlines() if '"add"' in line]
    assert "r1" in stats[0], "ids have statistics, so that one record is found without reading all"


def test_a_lake_of_an_earlier_version_gets_the_table(tmp_path: Path) -> None:
    lake = make_lake(tmp_path)
    path = lake.table_path("bronze", TABLE)
    path.rename(path.with_name("away"))
    with Office(lake) as office:
        (record,) = office.find([record_ids(lake)[3]])
        assert (record.state, record.last) == ("pending", None)
        happen(office, [record], "investigated", Note("ana", "x"))

    assert len(stored(lake)) == 1
