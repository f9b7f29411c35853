"""Files of records that are sent again: the right text in the right frame, and nobody's neighbour."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from office_lake import CONTRACTS, make_lake, record_ids

from ingest.errors import InputError
from ingest.lake import Lake
from ingest.office import reentry
from ingest.office.actions import Note, happen
from ingest.office.corrections import Left
from ingest.office.refused import Filter, Office
from ingest.office.sources import read_unchanged
from ingest.sources import ProbedFile

NOTE = Note("maria", "mended")
SPANNING = 'S3,O3,C3,"15",2024-05-01 00:00:00,web,"call ""first"",\nthen ring"'
ENTRY = (
    "<entry><id>https://x/2</id><title>Two</title><updated>2024-05-01T10:00:00Z</updated>"
    "<p:ContractFolderStatus><cbc:ContractFolderID>F/2</cbc:ContractFolderID></p:ContractFolderStatus>"
    "</entry>"
)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return make_lake(tmp_path, attempts={"O3": 2})


def correct(lake: Lake, record_type: str, texts: Mapping[int, str]) -> None:
    ids = record_ids(lake, record_type)
    with Office(lake, bronze=True) as office:
        records = office.find([ids[position] for position in texts])
        payloads = {ids[position]: text for position, text in texts.items()}
        happen(office, records, "corrected", NOTE, payloads)


def files(lake: Lake, wanted: Filter | None = None) -> tuple[list[ProbedFile], list[Left]]:
    with Office(lake, bronze=True) as office:
        records, _ = office.select(wanted or Filter(states=("corrected",)))
        framed, left = reentry.plan(office, records)
    return reentry.write_files(lake, CONTRACTS, framed), left


def test_corrected_orders_stand_in_one_file_with_the_columns_of_theirs(lake: Lake) -> None:
    correct(lake, "orders", {3: "S2,O2,C2,2,2024-05-01 00:00:00,phone,", 4: SPANNING,
                             6: "S4,O4,C4,5,2024-05-01 00:00:00,web,"})  # fmt: skip
    [file], left = files(lake)
    assert left == []
    ids = record_ids(lake)
    assert Path(file.source.path).read_text("utf-8").split("\n") == [
        "sku,order_id,customer_id,qty,order_ts,channel,note",
        "S2,O2,C2,2,2024-05-01 00:00:00,phone,",
        *SPANNING.split("\n"),
        "S4,O4,C4,5,2024-05-01 00:00:00,web,",
        "",
    ]
    # The second spans lines 3 and 4, and it is its third time at the gate.
    assert file.reentries == {2: (ids[3], 2), 3: (ids[4], 3), 5: (ids[6], 2)}
    assert (file.status, file.dataset, file.parts[0].records_found) == ("new", "orders", 3)
    assert CONTRACTS["orders"].claims(file.source.file_name)


def test_the_same_records_give_the_same_file_and_others_another(lake: Lake) -> None:
    text = "S2,O2,C2,2,2024-05-01 00:00:00,phone,"
    correct(lake, "orders", {3: text})
    [first], _ = files(lake)
    [again], _ = files(lake)
    assert (again.source, again.file_sha256) == (first.source, first.file_sha256)
    lake.append(
        "files",
        [
            {
                "file_sha256": first.file_sha256,
                "record_type": "orders",
                "status": "ingested",
                "batch_id": "b1",
            }
        ],
    )
    with Office(lake) as office:
        happen(office, office.find([record_ids(lake)[3]]), "reopened", NOTE)
    correct(lake, "orders", {6: text})
    [other], _ = files(lake)
    assert other.status == "new", "other records that say the same are no known content"
    assert other.file_sha256 != first.file_sha256
    assert list(other.reentries.values()) == [(record_ids(lake)[6], 2)]


def test_without_its_file_a_record_goes_as_its_neighbours_show(lake: Lake, tmp_path: Path) -> None:
    correct(lake, "orders", {3: "S2,O2,C2,2,2024-05-01 00:00:00,phone,"})
    (tmp_path / "orders_dirty.csv").unlink()
    read_unchanged.cache_clear()
    [file], left = files(lake)
    assert left == []
    head = Path(file.source.path).read_text("utf-8").split("\n")[0]
    assert head == "sku,order_id,customer_id,qty,order_ts,channel,note"


def test_what_does_not_parse_is_left_and_the_reason_is_said(lake: Lake) -> None:
    _, left = files(lake, Filter(reasons=("CORRUPT_RECORD",)))
    assert [(item.record.record_type, item.record.position) for item in left] == [
        ("placsp_entries", 3), ("orders", 6),
    ]  # fmt: skip
    assert "not well-formed" in left[0].why and "Correct the record first" in left[0].why
    assert "does not parse" in left[1].why and "Correct the record first" in left[1].why


def test_what_was_not_corrected_goes_with_the_text_that_it_has(lake: Lake) -> None:
    [file], left = files(lake, Filter(reasons=("QTY_NOT_INTEGER",)))
    assert left == []
    assert b"S2,O2,C2,two," in Path(file.source.path).read_bytes()
    assert {attempt for _, attempt in file.reentries.values()} == {2, 3}


def test_an_entry_keeps_what_its_prefixes_mean(lake: Lake, tmp_path: Path) -> None:
    correct(lake, "placsp_entries", {2: ENTRY})
    [file], left = files(lake)
    assert left == []
    assert (file.status, file.dataset, file.head) == ("new", "licitaciones", None)
    assert file.reentries == {1: (record_ids(lake, "placsp_entries")[2], 2)}
    page = Path(file.source.path).read_text("utf-8")
    assert (
        'xmlns:p="urn:dgpe:names:draft:codice-place-ext:schema:xsd:CommonAggregateComponents-2"' in page
    )
    next(tmp_path.glob("licitaciones*.atom")).unlink()
    read_unchanged.cache_clear()
    _, left = files(lake)
    assert "prefix 'p'" in left[0].why and "put the page back" in left[0].why


def test_a_record_that_would_break_out_of_its_file_is_left(lake: Lake) -> None:
    # Two records where one is meant, of which a damaged lake or an older version may hold a correction.
    text = "S2,O2,C2,2,2024-05-01 00:00:00,phone,\nS9,O9,C9,9,2024-05-01 00:00:00,phone,"
    correct(lake, "orders", {3: text})
    found, left = files(lake)
    assert found == []
    assert "2 records" in left[0].why


def test_a_reason_must_be_said(lake: Lake) -> None:
    with pytest.raises(InputError, match="reason"):
        reentry.Event("r", "orders", "orders", "reentered", "maria", " ")


def test_nothing_is_settled_where_nothing_was_sent(lake: Lake) -> None:
    assert reentry.settle(lake, "maria", "again") == 0
