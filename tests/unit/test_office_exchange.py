"""Corrections by expression, and the way out to a partner and back."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from office_lake import make_lake, record_ids

from ingest.errors import InputError
from ingest.lake import Lake
from ingest.office.actions import Note, happen
from ingest.office.corrections import Payloads, parse_assignment
from ingest.office.exchange import (
    FORMATS,
    Import,
    export,
    guarded,
    plan,
    read,
    unguarded,
)
from ingest.office.refused import Filter, Office

ORDER = "S2,O2,C2,two,2024-05-01 00:00:00,phone,\x1b[31mred"
SPANNING = 'S3,O3,C3,"1,5",2024-05-01 00:00:00,web,"call ""first"",\r\nthen ring"'


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return make_lake(tmp_path_factory.mktemp("office"))


@pytest.fixture
def office(lake: Lake) -> Iterator[Office]:
    with Office(lake, bronze=True) as opened:
        yield opened


def evaluate(
    office: Office, record_type: str, *texts: str
) -> tuple[dict[int | None, str], dict[int | None, str]]:
    records, _ = office.select(Filter(record_types=(record_type,)))
    payloads = Payloads(office, record_type, records)
    done, left = payloads.evaluate(records, [parse_assignment(text) for text in texts])
    return {c.record.position: c.payload for c in done}, {x.record.position: x.why for x in left}


# -- by expression


def test_an_expression_corrects_csv_and_says_what_it_leaves(office: Office) -> None:
    done, left = evaluate(office, "orders", "qty = cast(try_cast(replace(qty, ',', '') as int) as text)")

    assert done == {4: SPANNING.replace('"1,5"', '"15"')}
    assert left[3] == "the expression gives null"
    assert left[6].startswith("the expression gives null")
    assert left[7] == "nothing changes"


def test_a_record_that_does_not_parse_is_not_guessed_at(office: Office) -> None:
    _, left = evaluate(office, "orders", "qty = '1'")
    assert left[6].startswith("The record does not parse (found 6 fields, the header has 7)")


def test_several_expressions_see_the_record_as_it_was(office: Office) -> None:
    done, _ = evaluate(office, "orders", "qty = sku", "sku = qty")
    assert done[3] == "two,O2,C2,S2,2024-05-01 00:00:00,phone,\x1b[31mred"


def test_an_expression_may_end_in_a_comment(office: Office) -> None:
    done, _ = evaluate(office, "orders", "qty = '7' -- seven")
    assert done[3] == ORDER.replace("two", "7")


def test_an_expression_corrects_xml_by_field_and_by_path(office: Office) -> None:
    ((record,), _) = office.select(Filter(reasons=("UPDATED_NOT_AN_INSTANT",)))
    old = Payloads(office, "placsp_entries", [record]).text(record)

    done, left = evaluate(
        office,
        "placsp_entries",
        "entry_updated = '2024-01-0' || length(entry_updated) || 'T00:00:00Z'",
        "ContractFolderStatus.TenderResult[2].AwardDate = '2024-02-01'",
    )

    assert done == {
        2: old.replace("ayer", "2024-01-04T00:00:00Z").replace("1.2.2024", "2024-02-01"),
    }
    assert left[3].startswith("The record does not parse")


def test_an_attribute_that_is_missing_is_added(office: Office) -> None:
    done, _ = evaluate(office, "placsp_deleted_entries", "entry_id = 'https://x/9'")
    assert done == {1: '<at:deleted-entry when="2024-05-01T10:00:00Z" ref="https://x/9" />'}


def test_one_of_several_elements_must_be_named(office: Office) -> None:
    path = "ContractFolderStatus.TenderResult.AwardDate"
    _, left = evaluate(office, "placsp_entries", f"{path} = '2024-02-02'")
    assert left[2].startswith(f"{path} leads to 2 elements. Say which, counted from 1")


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["qty = quantity"], "quantity"),
        (["qty = (("], "syntax error"),
        (["qty = 1; drop table refused"], "syntax error"),
        (["qty = cast(qty as int)"], "Could not convert string 'two'"),
        (["qty = '1'", "qty = '2'"], "names one value twice"),
        (["quantity = '1'"], "'quantity' is no column and no field of orders"),
    ],
)
def test_an_expression_that_cannot_work_is_told(office: Office, texts: list[str], told: str) -> None:
    with pytest.raises(InputError, match=told):
        evaluate(office, "orders", *texts)


@pytest.mark.parametrize("text", ["qty", "qty == 1", "= 1", "qty =", "1qty = 2", "a b = 1"])
def test_what_is_no_assignment_is_told(text: str) -> None:
    with pytest.raises(InputError, match="is no assignment"):
        parse_assignment(text)


def test_columns_are_known_although_the_file_is_gone(tmp_path: Path) -> None:
    lake = make_lake(tmp_path)
    (tmp_path / "orders_dirty.csv").unlink()
    with Office(lake, bronze=True) as office:
        done, left = evaluate(office, "orders", "qty = '1'")
        assert done[3] == ORDER.replace("two", "1")
        # All sound records have the same order_ts: which column it is, is certain all the same.
        done, left = evaluate(office, "orders", "order_ts = '2024-05-02 00:00:00'")
        assert left.keys() == {6}


# -- out and back


def out(office: Office, fmt: str, record_type: str = "orders") -> bytes:
    records, _ = office.select(Filter(record_types=(record_type,)))
    return export(office, records, fmt).encode("utf-8")


def back(office: Office, data: bytes, fmt: str) -> Import:
    return plan(office, *read(data, fmt))


@pytest.mark.parametrize("record_type", ["orders", "placsp_entries", "placsp_deleted_entries"])
@pytest.mark.parametrize("fmt", FORMATS)
def test_what_comes_back_as_it_went_is_skipped(office: Office, fmt: str, record_type: str) -> None:
    outcome = back(office, out(office, fmt, record_type), fmt)
    count = office.select(Filter(record_types=(record_type,)))[1]
    assert (outcome.unchanged, outcome.corrections, outcome.refusals) == (count, [], [])


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_value_that_was_mended_becomes_a_correction(office: Office, fmt: str) -> None:
    mended = {
        "csv": ("O2,C2,S2,two,", "O2,C2,S2,2,"),
        "json": ('"qty": "two"', '"qty": "2"'),
        "xml": ('<field name="qty">two<', '<field name="qty">2<'),
    }[fmt]
    data = out(office, fmt).decode()
    assert data.count(mended[0]) == 1

    outcome = back(office, data.replace(*mended).encode(), fmt)

    assert [c.payload for c in outcome.corrections] == [ORDER.replace("two", "2")]
    assert (outcome.unchanged, outcome.refusals) == (3, [])


def test_a_text_that_was_mended_becomes_a_correction(office: Office) -> None:
    entries = json.loads(out(office, "json"))
    entries[2]["payload"] += ",gift"
    outcome = back(office, json.dumps(entries).encode(), "json")
    assert [c.payload for c in outcome.corrections] == ["S4,O4,C4,5,2024-05-01 00:00:00,web,gift"]


def test_a_partner_finds_what_is_wrong_and_how_to_mend_it(office: Office) -> None:
    rows = list(csv.DictReader(io.StringIO(out(office, "csv").decode("utf-8-sig"), newline="")))
    assert rows[0]["reasons"] == "QTY_NOT_INTEGER"
    assert rows[0]["why"].startswith("Stock is counted in pieces.")
    assert rows[0]["fix"] == "Write the quantity as a whole number in digits."
    assert rows[0]["file"].endswith("orders_dirty.csv")
    assert [row["position"] for row in rows] == ["3", "4", "6", "7"]
    assert rows[3]["raw_note"] == "'=1+1"


def test_xml_holds_what_xml_cannot_hold(office: Office) -> None:
    tree = ElementTree.fromstring(out(office, "xml"))
    payload = tree.findall("record/payload")[0]
    assert payload.attrib == {"escaped": "true"}
    assert payload.text == ORDER.replace("\x1b", "\\u001b")


def test_records_of_two_types_do_not_fit_into_one_file(office: Office) -> None:
    records, _ = office.select(Filter())
    with pytest.raises(InputError, match="of 3 record types"):
        export(office, records, "csv")


@given(st.text())
def test_a_guarded_text_is_no_formula_and_comes_back(text: str) -> None:
    cell = guarded(text)
    assert unguarded(cell) == text
    assert not cell.startswith(("=", "@", "\t", "\r", "\n"))
    assert not cell.startswith(("+", "-")) or float(cell.replace(",", ".")) * 0 == 0


@pytest.mark.parametrize("text", ["-44", "+1", "-1,5", "3.5", "2024-05-01"])
def test_numbers_stay_readable(text: str) -> None:
    assert guarded(text) == text


@pytest.mark.parametrize("text", ["=1+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "+a", "-", "\t=1", "'x"])
def test_what_may_be_a_formula_is_guarded(text: str) -> None:
    assert guarded(text) == "'" + text


def test_a_spreadsheet_that_separates_with_semicolons_is_read(office: Office) -> None:
    rows = list(csv.reader(io.StringIO(out(office, "csv").decode("utf-8-sig"), newline="")))
    text = io.StringIO()
    csv.writer(text, delimiter=";").writerows(rows)
    assert back(office, text.getvalue().encode(), "csv").unchanged == 4


def test_line_ends_that_an_editor_changed_are_no_correction(office: Office) -> None:
    data = out(office, "csv").replace(b"\r\n", b"\n")
    assert back(office, data, "csv").unchanged == 4


# -- what cannot be applied


@pytest.mark.parametrize(
    ("change", "place", "told"),
    [
        (lambda e: e.update(record_id="f" * 64), "record 1", "is no refused record of this lake"),
        (lambda e: e.update(record_id=e["record_id"][:12]), "record 1", "is no refused record"),
        (lambda e: e.pop("record_id"), "record 1", "no object with a record_id"),
        (lambda e: e.update(payload="x"), "record 1", "no sound record: found 1 field"),
        (lambda e: e.update(payload=5), "record 1", "payload is 5, and every value is a text"),
        (lambda e: e["fields"].update(qty=2), "record 1", "qty is 2, and every value is a text"),
        (lambda e: e["fields"].update(qty="2\ud800"), "record 1", "half a character"),
        (lambda e: e["fields"].update(quantity="2"), "record 1", "has no value quantity"),
        (lambda e: e.update(fields=[]), "record 1", "its fields are no object"),
        (
            lambda e: (e["fields"].update(qty="2"), e.update(payload="x")),
            "record 1",
            "both the payload and qty were changed",
        ),
    ],
)
def test_a_row_that_cannot_be_applied_is_named(
    office: Office, change: object, place: str, told: str
) -> None:
    entries = json.loads(out(office, "json"))
    change(entries[0])  # type: ignore[operator]
    entries[1]["fields"]["qty"] = "15"

    outcome = back(office, json.dumps(entries).encode(), "json")

    ((at, why),) = outcome.refusals
    assert at == place
    assert told in why
    assert len(outcome.corrections) == 1


def test_a_record_that_stands_there_twice_is_refused_once(office: Office) -> None:
    entries = json.loads(out(office, "json"))
    outcome = back(office, json.dumps([*entries, entries[0]]).encode(), "json")
    ((place, why),) = outcome.refusals
    assert (place, why[12:]) == ("record 5", " stands at record 1 already")


def test_who_decided_meanwhile_is_told(tmp_path: Path) -> None:
    lake = make_lake(tmp_path)
    with Office(lake, bronze=True) as office:
        data = out(office, "json").decode().replace('"qty": "two"', '"qty": "2"')
        records = office.find([record_ids(lake)[3]])
        happen(office, records, "discarded", Note("maria", "a test order"))
    with Office(lake, bronze=True) as office:
        ((_, why),) = back(office, data.encode(), "json").refusals
    assert "is discarded (by maria at " in why


@pytest.mark.parametrize(
    ("data", "place", "told"),
    [
        (b"record_id,raw_qty\na,b\nc\n", "line 3", "it has 1 cells, and the header has 2"),
        (b'record_id,raw_qty\n"a\nb",c\nd,e,f\n', "line 4", "it has 3 cells"),
    ],
)
def test_a_malformed_row_of_csv_is_named_by_its_line(data: bytes, place: str, told: str) -> None:
    _, refusals = read(data, "csv")
    assert [r.place for r in refusals] == [place]
    assert told in refusals[0].why


@pytest.mark.parametrize(
    ("fmt", "data", "told"),
    [
        ("csv", b"id,raw_qty\n", "names 'id', which no export has"),
        ("csv", b"raw_qty,payload\n", "lacks record_id"),
        ("csv", b"", "lacks record_id"),
        ("csv", b"record_id,record_id\n", "names record_id twice"),
        ("csv", b'record_id\n"a"b\n', "Line 2 is no CSV"),
        ("csv", b"record_id\n\xe9\n", "not UTF-8 from line 2 on .byte 11 is 0xe9"),
        ("json", b'[\n{"record_id": }]', "no JSON: .*line 2 column 15"),
        ("json", b"{}", "holds no array"),
        ("json", b"[" * 100_000, "no JSON"),
        ("xml", b"<records><record></records>", "no XML: mismatched tag, line 1"),
        ("xml", b"<rows/>", "root is <rows>"),
        ("xml", b"<!DOCTYPE r [<!ENTITY a 'b'>]><records/>", "document type"),
    ],
)
def test_a_file_that_is_no_export_is_refused(fmt: str, data: bytes, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read(data, fmt)


@pytest.mark.parametrize(
    ("inside", "told"),
    [
        ("<entry/>", "<entry> is no <record id=...>"),
        ("<record/>", "<record> is no <record id=...>"),
        ("<record id='a'>\n<payload>a<b/></payload></record>", "line 3: <b> stands inside a text"),
        ("<record id='a'><field name='q'/><field name='q'/></record>", "field 'q' is there twice"),
    ],
)
def test_a_malformed_record_of_xml_is_named_by_its_line(inside: str, told: str) -> None:
    _, ((place, why),) = read(f"<records>\n{inside}</records>".encode(), "xml")
    assert place == "line 2"
    assert told in why
