"""Putting another text into a record, and nothing else into it."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from office_lake import CONTRACTS

from ingest.capture.csv import CsvFormat
from ingest.errors import InputError
from ingest.office import csv_edit, xml_edit
from ingest.office.csv_edit import FileColumns, columns_of_records, set_value
from ingest.office.paths import Path, Step, plain_fields, resolve
from ingest.office.xml_edit import set_text
from ingest.sources import csv_format

ORDERS, ENTRIES, DELETED = (
    CONTRACTS[name] for name in ("orders", "placsp_entries", "placsp_deleted_entries")
)
CSV = csv_format(ORDERS)
ABC = CsvFormat(columns=("a", "b", "c"))
IN_ORDER = FileColumns(3, {"a": 0, "b": 1, "c": 2})
ENTRY = (
    "<entry>\r\n <id >https://x/1</id><title type=\"text\" x = '1>2'>A &amp; <![CDATA[B]]></title>"
    "<p:S a='b'><c:D>1</c:D><c:R><c:N>x</c:N></c:R><c:R><c:N>y</c:N></c:R><c:E/><c:F /></p:S></entry>"
)


# -- CSV


@pytest.mark.parametrize(
    ("payload", "value", "expected"),
    [
        ("1,2,3", "x", "1,x,3"),
        ("1,,3", "x", "1,x,3"),
        ('"1",2,"3 "', "x", '"1",x,"3 "'),
        ('1,"2",3', "x", '1,"x",3'),
        ("1,2,3", "", "1,,3"),
        ("1,2,3", "a,b", '1,"a,b",3'),
        ("1,2,3", 'say "a"', '1,"say ""a""",3'),
        ("1,2,3", "a\r\nb", '1,"a\r\nb",3'),
        ("1,2,3", " a", '1," a",3'),
        ('"1,\n1",2,3', "x", '"1,\n1",x,3'),
    ],
)
def test_one_value_is_set_and_the_others_stay_as_they_are_written(
    payload: str, value: str, expected: str
) -> None:
    assert set_value(payload, ABC, IN_ORDER, "b", value) == expected


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), min_size=3, max_size=3),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.sampled_from(["", "\\"]),
)
def test_what_is_set_is_what_is_read(values: list[str], new: str, escape_sign: str) -> None:
    shape = CsvFormat(columns=("a", "b", "c"), delimiter=";", escape=escape_sign or '"')

    def quoted(value: str) -> str:
        text = value if shape.escape == '"' else value.replace("\\", "\\\\")
        return '"' + text.replace('"', shape.escape + '"') + '"'

    payload = ";".join(map(quoted, values))

    changed = set_value(payload, shape, IN_ORDER, "b", new)

    fields = [field.decode() for field in shape.fields(changed.encode())]
    assert fields == [quoted(values[0]), quoted(new), quoted(values[2])]


def test_without_quotes_a_delimiter_cannot_be_written() -> None:
    shape = CsvFormat(columns=("a", "b", "c"), quote="")
    assert set_value('1,"2,3', shape, IN_ORDER, "b", '"x') == '1,"x,3'
    with pytest.raises(InputError, match="no quotes"):
        set_value("1,2,3", shape, IN_ORDER, "b", "x,y")


def test_a_record_with_too_few_fields_is_not_guessed_at() -> None:
    with pytest.raises(InputError, match="has 2 fields and its file 3"):
        set_value("1,2", ABC, IN_ORDER, "b", "x")


def test_records_show_which_value_is_which_column() -> None:
    found = columns_of_records(ABC, [("3,1,2", ("1", "2", "3")), ('1,"1",2', ("1", "2", "1"))])
    assert found == FileColumns(3, {"a": 1, "b": 2, "c": 0})


def test_columns_that_records_do_not_tell_apart_are_not_guessed() -> None:
    same = columns_of_records(ABC, [("1,1,2", ("1", "1", "2"))])
    assert same.places == {"c": 2}
    # The file may lack column b, and have one instead that no contract knows.
    empty = columns_of_records(ABC, [("1,,2", ("1", None, "2"))])
    assert empty.places == {"a": 0, "c": 2}
    with pytest.raises(InputError, match="cannot be said where b stands"):
        set_value("1,,2", ABC, empty, "b", "x")


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ("1,2", "found 2 fields"),
        ("1,2,3\n4,5,6", "holds 2 records"),
        ("1,2,3\n", "holds 1 records, and it must be one, without a line end"),
        ("", "holds 0 records"),
        ("1,\x002,3", "NUL"),
        ('1,"2,3', "quote"),
    ],
)
def test_a_text_that_is_not_one_sound_record_is_refused(payload: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        csv_edit.check_record(payload, ABC, IN_ORDER)


def test_a_sound_record_passes() -> None:
    csv_edit.check_record('1,"2\n2",3', ABC, IN_ORDER)
    csv_edit.check_record("1,2,3,4", ABC, FileColumns(None, {}))


# -- XML


@pytest.mark.parametrize(
    ("path", "value", "before", "after"),
    [
        (Path((Step("id"),)), "a<&>b", "<id >https://x/1</id>", "<id >a&lt;&amp;&gt;b</id>"),
        (Path((Step("S"), Step("D"))), "", "<c:D>1</c:D>", "<c:D></c:D>"),
        (Path((Step("S"), Step("R", 2), Step("N"))), "z", "<c:N>y</c:N>", "<c:N>z</c:N>"),
        (Path((Step("S"), Step("E"))), "e", "<c:E/>", "<c:E>e</c:E>"),
        (Path((Step("S"), Step("F"))), "f", "<c:F />", "<c:F>f</c:F>"),
        (Path((Step("title"),)), "T", "A &amp; <![CDATA[B]]>", "T"),
        (Path((Step("title"),), "type"), 'a"<', 'type="text"', 'type="a&quot;&lt;"'),
        (Path((Step("title"),), "x"), "2", "x = '1>2'", 'x="2"'),
        (Path((Step("S"),), "new"), "n", "<p:S a='b'>", "<p:S a='b' new=\"n\">"),
        (Path((Step("S"), Step("F")), "new"), "n", "<c:F />", '<c:F new="n" />'),
        (Path((), "ref"), "r", "<entry>", '<entry ref="r">'),
    ],
)
def test_one_text_is_set_and_every_other_byte_stays(
    path: Path, value: str, before: str, after: str
) -> None:
    assert ENTRY.count(before) == 1
    assert set_text(ENTRY, path, value) == ENTRY.replace(before, after)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff")))
def test_any_text_that_xml_can_hold_is_read_as_it_was_set(value: str) -> None:
    changed = set_text(ENTRY, Path((Step("S"), Step("D"))), value)
    assert f"<c:D>{escape(value)}</c:D>" in changed


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (Path((Step("updated"),)), "x", "no element updated, and nothing says where"),
        (Path((Step("S"), Step("R"), Step("N"))), "x", r"leads to 2 elements.*S\[1\]\.R\[1\]\.N\[1\]"),
        (Path((Step("S"), Step("R", 3), Step("N"))), "x", r"no element S\.R\[3\]\.N"),
        (Path((Step("S"),)), "x", "S holds elements"),
        (Path((Step("id"),)), "a\x1bb", r"U\+001B, which XML cannot hold"),
    ],
)
def test_a_text_that_has_no_place_is_refused(path: Path, value: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        set_text(ENTRY, path, value)


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ("<entry><id>1</i></entry>", "no well-formed XML: mismatched tag, line 1 column 15"),
        ("<entry/><entry/>", "junk after document element"),
        ("<title/>", "is a <title>, and the record must be one <entry>"),
        ("", "no element found"),
        ('<!DOCTYPE entry [<!ENTITY a "b">]><entry>&a;</entry>', "document type"),
        ("<entry>\x00</entry>", "not well-formed"),
    ],
)
def test_a_text_that_is_not_one_well_formed_record_is_refused(payload: str, told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)):
        xml_edit.check_record(payload, "entry")


def test_prefixes_that_only_the_page_declares_are_no_fault() -> None:
    xml_edit.check_record("<at:deleted-entry ref='1'/>", "deleted-entry")


# -- paths


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("qty", Path((Step("qty"),))),
        ("order_id", Path((Step("order_id"),))),
    ],
)
def test_columns_of_csv(text: str, expected: Path) -> None:
    assert resolve(ORDERS, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("entry_updated", Path((Step("updated"),))),
        ("title", Path((Step("title"),))),
        ("summary._type", Path((Step("summary"),), "type")),
        ("summary_text", Path((Step("summary"),))),
        ("link[2]._href", Path((Step("link", 2),), "href")),
        (
            "ContractFolderStatus.TenderResult[2].AwardDate",
            Path((Step("ContractFolderStatus"), Step("TenderResult", 2), Step("AwardDate"))),
        ),
    ],
)
def test_paths_and_fields_of_xml(text: str, expected: Path) -> None:
    assert resolve(ENTRIES, text) == expected
    assert resolve(DELETED, "entry_id") == Path((), "ref")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("quantity", "no column and no field of placsp_entries"),
        ("award_dates", "no column and no field"),
        ("title[1]", "title does not repeat"),
        ("ContractFolderStatus", "holds more than a text"),
        ("ContractFolderStatus.Nothing", "ContractFolderStatus has no Nothing. It has: "),
        ("drop table", "no column and no field"),
    ],
)
def test_a_path_to_nothing_names_what_there_is(text: str, told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)):
        resolve(ENTRIES, text)


def test_fields_that_are_worked_out_or_repeat_are_no_single_text() -> None:
    fields = plain_fields(ENTRIES)
    assert fields["entry_updated"] == "updated"
    assert not {"detail_url", "is_consultation", "award_dates", "status_code"} & set(fields)
