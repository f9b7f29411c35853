"""CSV as partners send it: what is found at the top of a file, and what a whole file does to records."""

import gzip
import io
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.capture import csv, csv_count
from ingest.capture.csv import CsvFormat, Finding, Header
from ingest.capture.encoding import Encoding, detect_csv
from ingest.capture.records import Record
from ingest.contracts import load_contracts
from ingest.errors import FileReadError
from ingest.sources import Source, probe
from ingest.transform import models_dir

ABC = CsvFormat(("a", "b", "c"))
ORDER = CsvFormat(("order_id", "customer_id", "qty"))


def read(data: bytes, fmt: CsvFormat = ABC) -> tuple[Header, list[Record]]:
    encoding = detect_csv(io.BytesIO(data), fmt.encoding, fmt.signs)
    header = csv.read_header(io.BytesIO(data), fmt, encoding)
    records = list(csv.cut(io.BytesIO(data), fmt, header))
    for record in records:
        stop = record.byte_offset + record.byte_length
        piece = data[record.byte_offset : stop]
        assert piece.decode(header.encoding, "replace") == record.payload
    assert csv.count(io.BytesIO(data), fmt, header) == len(records)
    return header, records


def refusal(data: bytes, fmt: CsvFormat = ABC) -> FileReadError:
    with pytest.raises(FileReadError) as caught:
        read(data, fmt)
    return caught.value


def seen(records: list[Record]) -> list[tuple[str, int, str | None]]:
    """Payload, line and fault of each record."""
    return [(r.payload, r.position, r.error.error_class if r.error else None) for r in records]


# --- Lines above the header, and below the last record ---


def test_lines_above_the_header_are_no_records_and_are_told():
    header, records = read(b"Orders of May\n\nprinted: 2024-06-01\na,b,c\n1,2,3\n4,5,6\n")
    assert (header.names, header.lines, header.byte_length) == (("a", "b", "c"), 4, 41)
    assert [(r.payload, r.position, r.byte_offset) for r in records] == [
        ("1,2,3", 5, 41),
        ("4,5,6", 6, 47),
    ]
    assert header.findings == (
        Finding(
            "LINES_ABOVE_HEADER",
            "The header is on line 4. What stands above it, from line 1 on, is taken for no record; "
            "it begins with 'Orders of May'. If it is one, mend the file's header; else ask for "
            "files that begin with it.",
        ),
    )


def test_a_title_that_is_the_name_of_a_column_is_no_header():
    header, records = read(b"b\na,b,c\n1,2,3\n")
    assert (header.lines, seen(records)) == (2, [("1,2,3", 3, None)])


def test_a_quote_that_is_open_above_the_header_does_not_hide_it():
    header, records = read(b'"Orders of May\na,b,c\n1,"2",3\n')
    assert (header.lines, seen(records)) == (2, [('1,"2",3', 3, None)])


def test_a_header_under_a_title_in_utf16():
    header, records = read("\ufeffÓrdenes 😀\na,b,c\n1,2,3\n".encode("utf-16-be"))
    # The mark, ten units and a line end, then five and a line end.
    assert (header.lines, header.byte_length) == (2, 2 + 22 + 12)
    assert [(r.payload, r.position, r.byte_offset) for r in records] == [("1,2,3", 3, 36)]


def test_the_header_is_looked_for_in_fifty_lines():
    assert read(b"title\n" * 49 + b"a,b,c\n1,2,3\n")[0].lines == 50
    error = refusal(b"title\n" * 50 + b"a,b,c\n1,2,3\n")
    assert error.error_type == "NO_HEADER"
    assert "No line of the first 50 names a column of the contract" in str(error)


def test_a_footer_is_a_record_with_a_fault():
    _, records = read(b"a,b,c\n1,2,3\n\nTotal: 1 record\n-- end --\n")
    assert seen(records) == [
        ("1,2,3", 2, None),
        ("Total: 1 record", 4, "FIELD_COUNT"),
        ("-- end --", 5, "FIELD_COUNT"),
    ]


# --- Columns by name ---


def test_columns_match_without_case_and_blanks():
    header, _ = read(b'  QTY ,"Order_ID", Customer_Id\t\n1,2,3\n', ORDER)
    assert header.columns == ("qty", "order_id", "customer_id")
    assert header.findings == ()
    spaced = CsvFormat(("order id", "qty"))
    assert read("ORDER \u00a0 ID,qty\n1,2\n".encode(), spaced)[0].columns == ("order id", "qty")


def test_a_renamed_column_is_told_with_what_it_may_be():
    header, records = read(b"order_id,CustomerID,qty\n1,2,3\n", ORDER)
    assert header.columns == ("order_id", None, "qty")
    assert records[0].unparsed == ("CustomerID",)
    assert header.findings == (
        Finding(
            "COLUMNS_DIFFER",
            "The header on line 1 differs from the contract. It lacks customer_id: null in every "
            "record of the file. Nothing is shifted, because values are matched by name. The "
            "contract does not know CustomerID: kept in the payload only. 'CustomerID' may be "
            "customer_id: rename it in the file, or write 'aliases: {CustomerID: customer_id}' into "
            "the contract's feed.",
        ),
    )


def test_a_column_in_the_place_of_the_only_missing_one_may_be_it():
    (finding,) = read(b"order_id,customer_id,pieces\n1,2,3\n", ORDER)[0].findings
    assert "'pieces' may be qty" in finding.message
    (finding,) = read(b"pieces,order_id,customer_id\n1,2,3\n", ORDER)[0].findings
    assert "may be" not in finding.message, "it stands in another place"


def test_a_missing_column_is_suggested_once():
    (finding,) = read(b"order_id,customer,customers,qty\n1,2,3,4\n", ORDER)[0].findings
    assert "'customer' may be customer_id" in finding.message
    assert "'customers' may be" not in finding.message


def test_a_missing_and_a_new_column_are_told():
    (finding,) = read(b"order_id,customer_id\n1,2\n", ORDER)[0].findings
    assert finding.message.endswith("values are matched by name. Ask for the missing columns.")
    (finding,) = read(b"order_id,customer_id,qty,colour\n1,2,3,red\n", ORDER)[0].findings
    assert finding.message == (
        "The header on line 1 differs from the contract. The contract does not know colour: kept in "
        "the payload only. Add new columns to the contract's schema and raise its version."
    )


def test_an_alias_is_its_column():
    fmt = CsvFormat(("order_id", "qty"), aliases={"Order No.": "order_id"})
    header, _ = read(b"qty,order no.\n1,2\n", fmt)
    assert (header.columns, header.findings) == (("qty", "order_id"), ())
    assert refusal(b"order_id,order no.\n1,2\n", fmt).error_type == "AMBIGUOUS_HEADER"


def test_another_delimiter_is_told_where_no_column_is_found():
    error = refusal(b"order_id;customer_id;qty\n1;2;3\n", ORDER)
    assert error.error_type == "NO_HEADER"
    assert "check the delimiter, which is ',' where the file seems to have ';'" in str(error)


# --- Headers further down ---


def test_a_header_that_comes_again_in_another_spelling():
    _, records = read(b'a,b,c\n1,2,3\n"A", B ,c\n4,5,6\n"x\ny",2,3\n A,b,"C"\n7,8,9\n')
    assert seen(records) == [
        ("1,2,3", 2, None),
        ('"A", B ,c', 3, "REPEATED_HEADER"),
        ("4,5,6", 4, None),
        ('"x\ny",2,3', 5, None),
        (' A,b,"C"', 7, "REPEATED_HEADER"),
        ("7,8,9", 8, None),
    ]


def test_records_under_a_header_in_another_order_are_not_shifted_in_silence():
    data = b"a,b,c\n1,2,3\nc,b,a\n3,2,1\n6,5\n\na,b,c\n4,5,6\n"
    _, records = read(data)
    assert seen(records) == [
        ("1,2,3", 2, None),
        ("c,b,a", 3, "REPEATED_HEADER"),
        ("3,2,1", 4, "OTHER_COLUMNS"),
        ("6,5", 5, "OTHER_COLUMNS"),
        ("a,b,c", 7, "REPEATED_HEADER"),
        ("4,5,6", 8, None),
    ]
    assert records[2].error.message == (
        "stands under the header of line 3, which has the columns in another order than the file's "
        "first; send the two parts as two files"
    )
    quoted = b"a,b,c\n1,2,3\nc,b,a\n" + b'3,"2",1\n' * 2
    assert [e for _, _, e in seen(read(quoted)[1])][2:] == ["OTHER_COLUMNS"] * 2


def test_the_name_of_a_single_column_is_a_value_but_for_its_exact_header():
    _, records = read(b"name\nx\nName\nname\n", CsvFormat(("name",)))
    assert seen(records) == [("x", 2, None), ("Name", 3, None), ("name", 4, "REPEATED_HEADER")]


def test_a_header_without_ascii_comes_again():
    fmt = CsvFormat(("注文", "数量"))
    _, records = read("注文,数量\n1,2\n注文,数量\n数量,注文\n3,4\n".encode(), fmt)
    assert [error for _, _, error in seen(records)] == [
        None,
        "REPEATED_HEADER",
        "REPEATED_HEADER",
        "OTHER_COLUMNS",
    ]


# --- A delimiter at the end of records ---


def test_a_trailing_delimiter_in_the_header_and_in_records():
    header, records = read(b"a,b,c,\n1,2,3,\n4,5,6,x\n7,8,9\n")
    assert (header.columns, header.findings) == (("a", "b", "c", None), ())
    assert [(r.payload, r.unparsed, r.error and r.error.error_class) for r in records] == [
        ("1,2,3,", (), None),
        ("4,5,6,x", ("column_4",), None),
        ("7,8,9", (), "FIELD_COUNT"),
    ]


def test_a_trailing_delimiter_in_records_only_is_a_fault_until_it_is_declared():
    data = b"a,b,c\n1,2,3,\n4,x,5,\n"
    _, records = read(data)
    assert [r.error.message for r in records] == [
        "found 4 fields, the header has 3; the last is empty: if all records end so, declare "
        "trailing_delimiter in the contract"
    ] * 2
    header, records = read(data, CsvFormat(("a", "b", "c"), trailing_delimiter=True))
    assert header.columns == ("a", "b", "c", None)
    assert [error for _, _, error in seen(records)] == [None, None]
    bare = CsvFormat(("a", "b"), trailing_delimiter=True, header=False)
    assert seen(read(b"1,2,\n3,4\n", bare)[1]) == [("1,2,", 1, None), ("3,4", 2, "FIELD_COUNT")]


@pytest.mark.parametrize("value", ["x", "0", '"x"', " x", "ñ"])
def test_a_value_in_a_column_that_the_contract_does_not_know_is_unparsed(value):
    data = f"a,new,b,c\n1,{value},2,3\n1,,2,3\n1,  ,2,3\n1,\u00a0,2,3\n".encode()
    assert [r.unparsed for r in read(data)[1]] == [("new",), (), (), ()]


# --- Encodings ---


@pytest.mark.parametrize("name", ["utf-16-le", "utf-16-be"])
def test_utf16_without_its_mark_is_found_and_told(name):
    header, records = read("a,b,c\n1,2,€\n".encode(name))
    assert header.encoding == name
    assert [(r.payload, r.position, r.byte_offset) for r in records] == [("1,2,€", 2, 12)]
    (finding,) = header.findings
    assert finding.error_type == "ENCODING_GUESSED"
    assert f"read as {name}, because nothing declares its encoding and 11 of the first 12" in (
        finding.message
    )
    declared = CsvFormat(("a", "b", "c"), encoding=name)
    assert read("a,b,c\n1,2,ñ\n".encode(name), declared)[0].findings == ()


def test_windows_1252_is_found_and_told():
    header, records = read(b"a,b,c\n1,ma\xf1ana,\x80\n2,\x93x\x94,3\n")
    assert header.encoding == "cp1252"
    assert [(r.payload, r.payload_bytes, r.byte_offset, r.byte_length) for r in records] == [
        ("1,mañana,€", None, 6, 10),
        ("2,“x”,3", None, 17, 7),
    ]
    (finding,) = header.findings
    assert finding.error_type == "ENCODING_GUESSED"
    assert "read as cp1252" in finding.message
    assert "4 bytes are above 0x7F" in finding.message
    assert "'encoding: cp1252'" in finding.message


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"1,\xf1,\xf1\n", "two bytes may be damage"),
        (b"1,\xf1\xf1\xf1,\xc3\xb1\n", "a character of UTF-8 is among them"),
        (b"1,\xf1\xf1\xf1,\x81\n", "one is no character in Windows-1252"),
    ],
)
def test_damaged_utf8_is_not_taken_for_another_encoding(body, why):
    header, records = read(b"a,b,c\n" + body + b"4,5,6\n")
    assert header.encoding == "utf-8", why
    assert [error for _, _, error in seen(records)] == ["UNDECODABLE_BYTES", None]
    assert records[0].payload_bytes == body.rstrip(b"\n")


def test_a_character_that_a_block_ends_in_is_no_sign_of_another_encoding():
    start = b"a,b,c\n"
    filler = b"x" * (4096 - len(start) - 1)
    # But for the halves of one character, all that is above 0x7F is no UTF-8.
    odd = b"a,b,c\xf1\xf1\n" + b"x" * (4096 - 8 - 1) + "ñ".encode()
    assert detect_csv(io.BytesIO(odd), None, ",") == Encoding("utf-8", 0)
    western = start + filler + b"\xf1\xf1\xf1"
    assert detect_csv(io.BytesIO(western), None, ",").name == "cp1252"


def test_encodings_of_two_bytes_are_cut_where_no_half_can_be_a_sign():
    fmt = CsvFormat(("a", "b", "c"), encoding="cp932")
    # The second bytes are a backslash and a bar in ASCII.
    _, records = read("a,b,c\n1,表,ポ|\n".encode("cp932"), fmt)
    assert seen(records) == [("1,表,ポ|", 2, None)]
    assert refusal(b"a|b|c\n", CsvFormat(("a",), encoding="cp932", delimiter="|")).error_type == (
        "WRONG_ENCODING"
    )
    assert refusal(b"a,b,c\n", CsvFormat(("a",), encoding="iso-2022-jp")).error_type == (
        "WRONG_ENCODING"
    )


# --- Files ---


def test_what_is_found_in_a_file_goes_with_it(tmp_path: Path):
    path = tmp_path / "orders_1.csv.gz"
    path.write_bytes(gzip.compress(b"Orders\norder_id,qty\n1,2\n3,4\n"))
    probed = probe(Source(str(path)), load_contracts(models_dir()), {})
    assert probed.status == "new"
    assert [(p.record_type, p.records_found) for p in probed.parts] == [("orders", 2)]
    assert probed.error_type == "LINES_ABOVE_HEADER"
    assert f"{path}: The header is on line 2." in probed.error_message
    assert "It lacks customer_id, sku, order_ts, channel, note" in probed.error_message


def test_bounds_and_signs_come_from_the_contract():
    feed = {
        **{"delimiter": ";", "quote": "'", "escape": "\\", "encoding": "latin-1"},
        **{"max_record_lines": 3, "max_record_bytes": 9, "trailing_delimiter": True},
        "aliases": {"x": "a"},
    }
    assert CsvFormat.of_feed(("a",), feed) == CsvFormat(
        ("a",),
        delimiter=";",
        quote="'",
        escape="\\",
        encoding="latin-1",
        trailing_delimiter=True,
        aliases={"x": "a"},
        max_record_bytes=9,
        max_record_lines=3,
    )
    assert CsvFormat.of_feed(("a",), {}) == CsvFormat(("a",))


# --- Blocks and single records ---

PIECE = st.sampled_from(
    [
        *(b'"', b'""', b'"x"', b',"', b'",', b",", b",1,2\n", b"\n", b"\r\n", b"\r", b" ", b"x"),
        *(b"\\", b"\x00", b"\xff", b"\xc3\xb1", b"a,b,c\n", b"C,b,a\n", b'"a\nb",2,3\n'),
    ]
)


@settings(deadline=None, max_examples=400)
@given(
    body=st.lists(PIECE, max_size=40).map(b"".join),
    escape=st.sampled_from(['"', "\\"]),
    top=st.sampled_from([b"a,b,c\n", b"c,new,a,b\n", b"a,b\n"]),
)
def test_blocks_hold_the_records_that_are_cut_one_by_one(body, escape, top):
    fmt = CsvFormat(("a", "b", "c"), escape=escape, encoding="utf-8", max_record_lines=3)
    data = top + body
    _, in_blocks = read(data, fmt)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv, "find", lambda *_, **__: None)
        _, one_by_one = read(data, fmt)
    assert in_blocks == one_by_one


# --- Parts of a file ---


def parted(data: bytes, fmt: CsvFormat, size: int) -> tuple[list[csv.Span], list[Record]]:
    encoding = detect_csv(io.BytesIO(data), fmt.encoding, fmt.signs)
    header = csv.read_header(io.BytesIO(data), fmt, encoding)
    number, spans = csv.spans(io.BytesIO(data), fmt, header, size)
    assert number == csv.count(io.BytesIO(data), fmt, header)
    records: list[Record] = []
    for span in spans:
        assert zlib.crc32(data[span.offset : span.offset + span.length]) == span.crc32
        stream = io.BytesIO(data)
        stream.seek(span.offset)
        for block, some in csv.pieces(stream, fmt, header, span):
            records += [*(block.records() if block else ()), *some]
    return spans, sorted(records, key=lambda record: record.position)


def test_a_file_is_parted_between_records(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(csv_count, "CHUNK_BYTES", 8)
    data = b'title\na,b,c\n1,2,3\n4,"5\n5",6\n7,8,9\n\n0,"1,2\n3,4,5\n'
    spans, records = parted(data, CsvFormat(("a", "b", "c"), max_record_lines=2), 6)
    # The quoted line break keeps the first two records together.
    assert (spans[0].offset, spans[0].length, spans[0].line) == (12, 16, 3)
    assert (spans[1].offset, spans[1].line) == (28, 6)
    assert sum(span.length for span in spans) == len(data) - 12
    assert records == read(data, CsvFormat(("a", "b", "c"), max_record_lines=2))[1]


def test_what_depends_on_an_earlier_part_is_not_parted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(csv_count, "CHUNK_BYTES", 8)
    assert parted(
        b"order_id,customer_id,qty\n" + b"1,2,3\n" * 9 + b"qty,customer_id,order_id\n", ORDER, 6
    ) == (
        [],
        [],
    )
    assert parted("\ufeffa,b,c\n1,2,3\n".encode("utf-16-le"), ABC, 6) == ([], [])


@settings(deadline=None, max_examples=200)
@given(body=st.lists(PIECE, max_size=40).map(b"".join), mark=st.sampled_from([b"", b"\xef\xbb\xbf"]))
def test_parts_hold_the_records_of_the_whole(body, mark):
    fmt = CsvFormat(("alpha", "beta"), encoding="utf-8", max_record_lines=3)
    data = mark + b"alpha,beta\n" + body
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_count, "CHUNK_BYTES", 5)
        _, records = parted(data, fmt, 1)
    assert records == read(data, fmt)[1]
