"""Finding refused records by filter and by id."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from office_lake import CONTRACTS, NOON, make_lake, quarantine_schema, record_ids

from ingest.errors import InputError
from ingest.lake import Lake
from ingest.office.actions import Note, happen
from ingest.office.events import Event, append
from ingest.office.refused import Filter, Office, open_states


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return make_lake(tmp_path_factory.mktemp("office"))


@pytest.fixture(scope="module")
def office(lake: Lake) -> Iterator[Office]:
    with Office(lake, now=NOON + timedelta(hours=10)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("wanted", "positions"),
    [
        (Filter(), [1, 2, 3, 3, 4, 6, 7]),
        (Filter(datasets=("orders",)), [3, 4, 6, 7]),
        (Filter(datasets=("orders", "licitaciones")), [1, 2, 3, 3, 4, 6, 7]),
        (Filter(record_types=("placsp_entries",)), [2, 3]),
        (Filter(reasons=("QTY_NOT_INTEGER",)), [3, 4]),
        (Filter(reasons=("ORDER_TS_MISSING",)), [7]),
        (Filter(reasons=("CORRUPT_RECORD",), datasets=("orders",)), [6]),
        (Filter(file="orders_*.csv"), [3, 4, 6, 7]),
        (Filter(file="*/orders_dirty.csv"), [3, 4, 6, 7]),
        (Filter(file="dirty.csv"), []),
        (Filter(file="x' or true --"), []),
        (Filter(older_than=timedelta(hours=6)), [1, 2, 3, 3]),
        (Filter(owners=("order-desk",)), [3, 4, 6, 7]),
        (Filter(states=("corrected",)), []),
        (Filter(states=("pending", "corrected"), datasets=("orders",)), [3, 4, 6, 7]),
    ],
)
def test_filters(office: Office, wanted: Filter, positions: list[int]) -> None:
    found, total = office.select(wanted)
    assert [record.position for record in found] == positions
    assert total == len(positions)


def test_a_limit_gives_the_oldest_and_says_how_many_there_are(office: Office) -> None:
    found, total = office.select(Filter(datasets=("orders",)), limit=2)
    assert ([record.position for record in found], total) == ([3, 4], 4)


def test_what_is_known_of_a_record(office: Office, lake: Lake) -> None:
    (record,) = office.find([record_ids(lake)[7]])
    assert record.reasons == ("ORDER_ID_MISSING", "ORDER_TS_MISSING")
    assert (record.owner, record.state, record.attempt) == ("order-desk", "pending", 1)
    assert record.since == NOON + timedelta(hours=7)
    assert record.source_file is not None
    assert record.source_file.endswith("/orders_dirty.csv")


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (Filter(datasets=("order",)), "dataset 'order'. Known: .*orders"),
        (Filter(record_types=("entries",)), "record type 'entries'. Known: .*placsp_entries"),
        (Filter(reasons=("QTY_NOT_INT",)), "rule 'QTY_NOT_INT'. Known: .*QTY_NOT_INTEGER"),
        (Filter(owners=("me",)), "owner 'me'. Known: order-desk"),
    ],
)
def test_a_name_with_a_slip_is_no_empty_list(office: Office, wanted: Filter, told: str) -> None:
    with pytest.raises(InputError, match=told):
        office.select(wanted)


def test_records_are_found_by_the_start_of_their_id(office: Office, lake: Lake) -> None:
    ids = record_ids(lake)
    found = office.find([ids[4][:8], ids[3], ids[4]])
    assert [record.position for record in found] == [4, 3]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("abc", "too short: give at least 4"),
        ("zzzzzz", "'zzzzzz' is no refused record"),
        ("", "too short"),
    ],
)
def test_an_id_that_is_none_is_refused(office: Office, text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        office.find([text])


def test_an_accepted_record_is_no_refused_one(office: Office, lake: Lake) -> None:
    with pytest.raises(InputError, match="is no refused record"):
        office.find([record_ids(lake)[2]])


def copy_of_first(lake: Lake, **values: object) -> dict[str, object]:
    from deltalake import DeltaTable

    table = DeltaTable(str(lake.table_path("silver", "orders_quarantine"))).to_pyarrow_table()
    row: dict[str, object] = {**table.to_pylist()[0], **values}
    again = pa.Table.from_pylist([row], schema=quarantine_schema(CONTRACTS["orders"]))
    write_deltalake(str(lake.table_path("silver", "orders_quarantine")), again, mode="append")
    return row


def test_a_start_that_several_ids_have_is_refused(tmp_path: Path) -> None:
    lake = make_lake(tmp_path)
    for end in ("a", "b"):
        copy_of_first(lake, _record_id="face" + end * 60)
    with Office(lake) as office:
        with pytest.raises(InputError, match=r"several ids .faceaaaaaaaaaaaa, facebbbbbbbbbbbb.*"):
            office.find(["face"])
        assert office.find(["facea"])[0].record_id == "face" + "a" * 60


def test_the_newest_verdict_of_a_record_counts_and_counts_once(tmp_path: Path) -> None:
    lake = make_lake(tmp_path)
    row = copy_of_first(lake, failure_reasons=["QTY_MISSING"], _judged_at=NOON + timedelta(days=1))
    with Office(lake) as office:
        assert office.select(Filter(datasets=("orders",)))[1] == 4
        assert office.find([str(row["_record_id"])])[0].reasons == ("QTY_MISSING",)


def test_a_rule_of_severity_drop_discards_at_once(tmp_path: Path) -> None:
    lake = make_lake(tmp_path)
    copy_of_first(lake, _record_id="d" * 64, is_dropped=True)
    with Office(lake) as office:
        assert office.find(["dddd"])[0].state == "discarded"
        assert office.select(open_states(Filter(datasets=("orders",))))[1] == 4


def test_a_code_that_no_contract_has_any_more_is_found_and_owned(tmp_path: Path) -> None:
    lake = make_lake(tmp_path)
    copy_of_first(lake, _record_id="d" * 64, failure_reasons=["OLD_RULE"])
    with Office(lake) as office:
        (record,), _ = office.select(Filter(reasons=("OLD_RULE",)))
        assert record.owner == "order-desk"
        assert office.rule("orders", "OLD_RULE") == {"code": "OLD_RULE"}


def test_a_third_attempt_that_failed_is_exhausted(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, attempts={"O2": 3, "O3": 2})
    with Office(lake) as office:
        found = {
            r.position: (r.state, r.attempt) for r in office.select(Filter(datasets=("orders",)))[0]
        }
    assert found == {3: ("exhausted", 3), 4: ("pending", 2), 6: ("pending", 1), 7: ("pending", 1)}


def test_a_record_that_a_mended_contract_accepts_is_open_no_more(tmp_path: Path) -> None:
    lake = make_lake(tmp_path)
    accepted = record_ids(lake)[2]
    append(lake, [Event(accepted, "orders", "orders", "investigated", "ana", "why")], {}, NOON)
    with Office(lake) as office:
        (record,) = office.find([accepted])
        assert (record.state, record.reasons, record.source_file) == ("reentered", (), None)


def test_what_happened_says_the_state(tmp_path: Path) -> None:
    lake = make_lake(tmp_path)
    record_id = record_ids(lake)[3]
    for event, state in (("discarded", "discarded"), ("reopened", "pending"), ("purged", "purged")):
        with Office(lake) as office:
            happen(office, office.find([record_id]), event, Note("ana", "why"))
        with Office(lake) as office:
            (record,) = office.find([record_id])
            assert record.state == state
            assert record.last is not None
            assert record.last.event_type == event
    with Office(lake) as office:
        assert office.select(open_states(Filter(datasets=("orders",))))[1] == 3


def test_a_lake_that_nobody_judged_yet_is_told(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.create_operations()
    with pytest.raises(InputError, match="has no quarantine yet"):
        Office(lake)
