"""Cutting CSV: values written by hand for each case, then laws over random text."""

import csv as python_csv
import gzip
import io

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingest.capture import csv, csv_buffer, csv_count
from ingest.capture.csv import CsvFormat, Header
from ingest.capture.encoding import Encoding, detect_csv
from ingest.capture.records import ParseError, Record
from ingest.errors import ContractError, FileReadError

ABC = CsvFormat(("a", "b", "c"))
ONE = CsvFormat(("a",))


@pytest.fixture(params=[(1, 1), (3, 17), (1 << 18, 1 << 18)], autouse=True, scope="module")
def chunk_bytes(request):
    """Every case with chunks and blocks that end anywhere: in a line end, a quote, a character."""
    chunk, block = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_buffer, "CHUNK_BYTES", chunk)
        patch.setattr(csv_count, "CHUNK_BYTES", chunk)
        patch.setattr(csv, "BLOCK_BYTES", block)
        yield chunk


def encoding_of(data: bytes, fmt: CsvFormat) -> Encoding:
    return detect_csv(io.BytesIO(data), fmt.encoding, fmt.signs)


def header_of(data: bytes, fmt: CsvFormat) -> Header:
    return csv.read_header(io.BytesIO(data), fmt, encoding_of(data, fmt))


def read(data: bytes, fmt: CsvFormat = ABC) -> tuple[Header, list[Record]]:
    """Read a file, and check what must hold of any."""
    header = header_of(data, fmt)
    records = list(csv.cut(io.BytesIO(data), fmt, header))
    end = header.byte_length
    for record in records:
        assert record.byte_offset >= end, "records overlap"
        gap = data[end : record.byte_offset].decode(header.encoding)
        assert not gap.strip(" \t\r\n"), "something between records is in none"
        end = record.byte_offset + record.byte_length
        piece = data[record.byte_offset : end]
        assert piece.decode(header.encoding, "replace") == record.payload
        before = data[: record.byte_offset].decode(header.encoding, "replace")
        breaks = before.count("\n") + before.count("\r") - before.count("\r\n")
        assert record.position == breaks + 1
        assert record.parse_text is None
        try:
            piece.decode(header.encoding)
        except UnicodeDecodeError:
            assert record.payload_bytes == piece
            assert record.error is not None
        else:
            assert record.payload_bytes is None
    assert csv.count(io.BytesIO(data), fmt, header) == len(records)
    return header, records


def payloads(data: bytes, fmt: CsvFormat = ABC) -> list[str]:
    return [record.payload for record in read(data, fmt)[1]]


def errors(data: bytes, fmt: CsvFormat = ABC) -> list[str | None]:
    return [r.error.error_class if r.error else None for r in read(data, fmt)[1]]


def refusal(data: bytes, fmt: CsvFormat = ABC) -> FileReadError:
    with pytest.raises(FileReadError) as caught:
        header_of(data, fmt)
    return caught.value


# --- Records and their places ---


def test_a_record_is_its_text_with_line_offset_and_length():
    header, records = read(b"a,b,c\n1,2,3\n44,55,66\n")
    assert records == [
        Record("1,2,3", None, None, 2, 6, 5, None, ()),
        Record("44,55,66", None, None, 3, 12, 8, None, ()),
    ]
    assert header == Header(
        names=("a", "b", "c"),
        columns=("a", "b", "c"),
        missing=(),
        extra=(),
        encoding="utf-8",
        text="a,b,c",
        byte_length=6,
        lines=1,
    )


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_any_line_end_ends_a_record_and_is_not_part_of_it(end):
    data = end.join([b"a,b,c", b"1,2,3", b"4,5,6", b""])
    _, records = read(data)
    step = 5 + len(end)
    assert [(r.payload, r.position, r.byte_offset) for r in records] == [
        ("1,2,3", 2, step),
        ("4,5,6", 3, 2 * step),
    ]


def test_mixed_line_ends():
    _, records = read(b"a,b,c\r\n1,2,3\r4,5,6\n7,8,9\r\n\r0,0,0")
    assert [(r.payload, r.position, r.byte_offset) for r in records] == [
        ("1,2,3", 2, 7),
        ("4,5,6", 3, 13),
        ("7,8,9", 4, 19),
        ("0,0,0", 6, 27),
    ]


def test_a_last_line_without_line_end_is_a_record():
    assert payloads(b"a,b,c\n1,2,3") == ["1,2,3"]
    assert payloads(b'a,b,c\n1,2,"3"') == ['1,2,"3"']


def test_a_header_alone_gives_no_record():
    assert payloads(b"a,b,c\n") == []
    assert payloads(b"a,b,c") == []


def test_blank_lines_are_no_records_and_count_as_lines():
    _, records = read(b"a,b,c\n\n1,2,3\n \t \n\n4,5,6\n\n")
    assert [(r.payload, r.position) for r in records] == [("1,2,3", 3), ("4,5,6", 6)]
    assert errors(b"a,b,c\n\n1,2,3\n  \n") == [None]


def test_a_line_of_delimiters_is_a_record_even_where_the_delimiter_is_a_blank():
    assert payloads(b"a,b,c\n,,\n") == [",,"]
    assert payloads(b"a\tb\tc\n\t\t\n  \n", CsvFormat(("a", "b", "c"), delimiter="\t")) == ["\t\t"]


def test_one_column():
    assert payloads(b'a\n1\n\n"2"\n \n"x\ny"\n\n', ONE) == ["1", '"2"', '"x\ny"']


def test_other_delimiters_and_quotes():
    for delimiter in ";|\t":
        fmt = CsvFormat(("a", "b"), delimiter=delimiter, quote="'", escape="'")
        data = f"a{delimiter}b\n'1{delimiter}''x'{delimiter}2,3\n".encode()
        assert errors(data, fmt) == [None]
        assert payloads(data, fmt) == [f"'1{delimiter}''x'{delimiter}2,3"]


def test_without_a_quote_sign_quotes_are_text():
    fmt = CsvFormat(("a", "b", "c"), quote="")
    assert errors(b'a,b,c\n"1,2,3\n"4,5",6\n', fmt) == [None, None]
    assert payloads(b'a,b,c\n"1,2,3\n"4,5",6\n', fmt) == ['"1,2,3', '"4,5",6']


def test_very_long_fields(chunk_bytes):
    long = "x" * (3_000_000 if chunk_bytes > 3 else 3_000)
    assert payloads(f'a,b,c\n1,{long},3\n4,"{long},",6\n7,8,9\n'.encode()) == [
        f"1,{long},3",
        f'4,"{long},",6',
        "7,8,9",
    ]


# --- Quotes ---


def test_quoted_delimiters_quotes_and_line_breaks():
    _, records = read(b'a,b,c\n1,"x,y",3\n2,"say ""hi""",3\n3,"one\r\ntwo\nthree",4\n5,"",6\n')
    assert [(r.payload, r.position, r.error) for r in records] == [
        ('1,"x,y",3', 2, None),
        ('2,"say ""hi""",3', 3, None),
        ('3,"one\r\ntwo\nthree",4', 4, None),
        ('5,"",6', 7, None),
    ]


def test_a_quote_inside_a_field_is_text():
    assert errors(b'a,b,c\n1,5" pipe,3\n4,5,6\n') == [None, None]
    assert payloads(b'a,b,c\n1,5" pipe,3\n4,5,6\n') == ['1,5" pipe,3', "4,5,6"]


def test_text_after_a_closing_quote_belongs_to_the_field():
    assert payloads(b'a,b,c\n1,"x,y"z,3\n4,5,6\n') == ['1,"x,y"z,3', "4,5,6"]
    assert errors(b'a,b,c\n1,"x,y"z,3\n4,5,6\n') == [None, None]


def test_an_escape_before_a_quote():
    fmt = CsvFormat(("a", "b", "c"), escape="\\")
    data = b'a,b,c\n1,"x \\" , y\\\\",3\n4,"\\\nz",6\n'
    assert payloads(data, fmt) == ['1,"x \\" , y\\\\",3', '4,"\\\nz",6']
    assert errors(data, fmt) == [None, None]


def test_an_escape_after_a_closing_quote_is_text_like_any_other():
    fmt = CsvFormat(("a", "b"), escape="\\")
    assert payloads(b'a,b\n1,"x\n"\\y,2\n', fmt) == ['1,"x', '"\\y,2']


def test_an_unclosed_quote_costs_its_line_only():
    _, records = read(b'a,b,c\n1,2,3\n4,"open,6\n7,8,9\n0,"fine, too",0\n')
    assert [(r.payload, r.position) for r in records] == [
        ("1,2,3", 2),
        ('4,"open,6', 3),
        ("7,8,9", 4),
        ('0,"fine, too",0', 5),
    ]
    assert [r.error and (r.error.error_class, r.error.line, r.error.column) for r in records] == [
        None,
        ("UNCLOSED_QUOTE", 3, 3),
        None,
        None,
    ]


def test_an_unclosed_quote_at_the_end_of_the_file():
    assert errors(b'a,b,c\n"1,2,3') == ["UNCLOSED_QUOTE"]
    assert errors(b'a,b,c\n1,2,"3\n4,5,6\n') == ["UNCLOSED_QUOTE", None]


def test_a_record_may_span_as_many_lines_as_the_bound_says_and_no_more():
    fmt = CsvFormat(("a", "b"), max_record_lines=3)
    assert payloads(b'a,b\n1,"x\ny\nz"\n2,3\n', fmt) == ['1,"x\ny\nz"', "2,3"]
    data = b'a,b\n1,"w\nx\ny\nz"\n2,3\n'
    assert payloads(data, fmt) == ['1,"w', "x", "y", 'z"', "2,3"]
    assert errors(data, fmt) == [
        "UNCLOSED_QUOTE",
        "FIELD_COUNT",
        "FIELD_COUNT",
        "FIELD_COUNT",
        None,
    ]


def test_the_bound_is_100_lines_by_default():
    inside = "\n" * 99
    assert len(payloads(f'a,b,c\n1,"{inside}",3\n'.encode())) == 1
    # One line more, and the quote is text; the blank lines after it are no records.
    assert payloads(f'a,b,c\n1,"\n{inside}",3\n'.encode()) == ['1,"', '",3']


def test_a_record_that_spans_lines_has_a_bound_in_bytes_and_one_on_a_line_has_none():
    fmt = CsvFormat(("a", "b"), max_record_bytes=9)
    assert payloads(b'a,b\n1,"xx\nyy"\n', fmt) == ['1,"xx\nyy"'], "8 bytes and a line break"
    assert payloads(b'a,b\n1,"xx\nyyy"\n', fmt) == ['1,"xx', 'yyy"']
    assert errors(b'a,b\n1,"a long text on one line"\n', fmt) == [None]


def test_the_default_bound_in_bytes_is_a_mebibyte(chunk_bytes):
    if chunk_bytes <= 3:
        return  # The same code as above; a mebibyte in steps of a byte takes minutes.
    fits = "x" * ((1 << 20) - 8)
    assert len(payloads(f'a,b,c\n1,"{fits}\nz",3\n'.encode())) == 1
    assert len(payloads(f'a,b,c\n1,"x{fits}\nz",3\n'.encode())) == 2


# --- What is wrong with a record ---


def test_a_wrong_number_of_fields_says_how_many_and_where():
    _, records = read(b"a,b,c\n1,2\n1,2,3,4,5\n1\n")
    assert [r.error for r in records] == [
        ParseError("FIELD_COUNT", "found 2 fields, the header has 3", 2, 4),
        ParseError("FIELD_COUNT", "found 5 fields, the header has 3", 3, 7),
        ParseError("FIELD_COUNT", "found 1 field, the header has 3", 4, 2),
    ]


def test_fields_are_counted_outside_quotes():
    _, records = read('a,b,c\n"ñ,1",2,"x\nyé",4\n"1,2",3\n'.encode())
    assert [r.error for r in records] == [
        ParseError("FIELD_COUNT", "found 4 fields, the header has 3", 3, 5),
        ParseError("FIELD_COUNT", "found 2 fields, the header has 3", 4, 8),
    ]


def test_a_repeated_header_is_a_corrupt_record():
    _, records = read(b'"a",b,c\n1,2,3\n"a",b,c\n4,5,6\n')
    assert [r.error for r in records] == [
        None,
        ParseError("REPEATED_HEADER", "found the header again", 3, 1),
        None,
    ]
    assert errors(b"a,b,c\n1,2,3\n\xef\xbb\xbfa,b,c\n4,5,6\n") == [None, "REPEATED_HEADER", None]


def test_bytes_that_do_not_decode_cost_their_record_only():
    _, records = read(b'a,b,c\n1,ma\xf1ana,3\n4,"a\xc3\xb1o",6\n7,"\xe9",9\n')
    assert [(r.payload, r.payload_bytes, r.error) for r in records] == [
        (
            "1,ma\ufffdana,3",
            b"1,ma\xf1ana,3",
            ParseError("UNDECODABLE_BYTES", "byte 0xf1 is no utf-8", 2, 5),
        ),
        ('4,"a\u00f1o",6', None, None),
        (
            '7,"\ufffd",9',
            b'7,"\xe9",9',
            ParseError("UNDECODABLE_BYTES", "byte 0xe9 is no utf-8", 4, 4),
        ),
    ]


def test_a_nul_byte_costs_its_record_only():
    _, records = read(b'a,b,c\n1,2\x00,3\n4,5,6\n"7",\x00,9\n')
    assert [r.error for r in records] == [
        ParseError("NUL_BYTE", "found a NUL byte", 2, 4),
        None,
        ParseError("NUL_BYTE", "found a NUL byte", 4, 5),
    ]
    assert records[0].payload == "1,2\x00,3"


# --- Headers ---


def test_columns_match_by_name_in_any_order_case_and_padding():
    header, _ = read(b'\xef\xbb\xbf C ,"a", "B" \n3,1,2\n')
    assert header.names == ("C", "a", "B")
    assert header.columns == ("c", "a", "b")
    assert (header.encoding, header.byte_length, header.lines) == ("utf-8", 17, 1)


def test_blanks_inside_the_quotes_and_the_contracts_own_case_do_not_matter():
    fmt = CsvFormat(("Order", "STRASSE"))
    header, _ = read('" order ",straße\n1,2\n'.encode(), fmt)
    assert header.names == ("order", "straße")
    assert header.columns == ("Order", "STRASSE")


def test_missing_and_extra_columns_are_told():
    header, records = read(b"b,new,a,\n1,2,3,\n1,,3,x\n1, ,3,\n1,2\n")
    assert header.columns == ("b", None, "a", None)
    assert header.missing == ("c",)
    assert header.extra == ("new", "column_4")
    assert [r.unparsed for r in records] == [("new",), ("column_4",), (), ()]
    _, quoted = read(b'a,b,c,new\n"1",2,3,"4"\n"1",2,3,""\n')
    assert [r.unparsed for r in quoted] == [("new",), ()]


def test_a_header_may_be_quoted_over_lines_and_stand_under_blank_lines():
    header, records = read(b'\n  \n"a\nx",b,c\n1,2,3\n')
    assert header.names == ("a\nx", "b", "c")
    assert header.missing == ("a",)
    assert (header.byte_length, header.lines) == (14, 4)
    assert records[0].position == 5


def test_a_header_that_names_no_column_is_refused():
    error = refusal(b"1,2,3\n4,5,6\n")
    assert error.error_type == "NO_HEADER"
    assert "'1,2,3'" in str(error)
    assert "a, b, c" in str(error)
    assert "header: false" in str(error)
    assert refusal(b"a;b;c\n1;2;3\n").error_type == "NO_HEADER"
    assert refusal(b'a,"b,c\n1,2,3\n').error_type == "NO_HEADER"


def test_a_column_that_is_named_twice_is_refused():
    error = refusal(b"a,b,A\n1,2,3\n")
    assert error.error_type == "AMBIGUOUS_HEADER"
    assert "names a more than once" in str(error)


def test_without_a_header_the_contract_gives_the_columns():
    fmt = CsvFormat(("a", "b"), header=False)
    header, records = read(b"\xef\xbb\xbf1,2\n3,4,5\n", fmt)
    assert (header.columns, header.byte_length, header.lines) == (("a", "b"), 3, 0)
    assert [(r.payload, r.position, r.byte_offset) for r in records] == [
        ("1,2", 1, 3),
        ("3,4,5", 2, 7),
    ]
    assert records[1].error == ParseError("FIELD_COUNT", "found 3 fields, the contract has 2", 2, 5)


# --- Files that are something else ---


@pytest.mark.parametrize("data", [b"", b"\n", b" \r\n\n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_refused(data):
    assert refusal(data).error_type == "EMPTY_FILE"
    assert refusal(data, CsvFormat(("a",), header=False)).error_type == "EMPTY_FILE"


@pytest.mark.parametrize(
    ("data", "error_type"),
    [
        (gzip.compress(b"a,b,c\n1,2,3\n", mtime=0), "COMPRESSED_FILE"),
        (b"<!DOCTYPE html>\n<html><body>503</body></html>", "HTML_PAGE"),
        (b"\xef\xbb\xbf \n<HTML><body>503</body></html>", "HTML_PAGE"),
        (b'<?xml version="1.0"?><!DOCTYPE html PUBLIC "-//W3C"><html></html>', "HTML_PAGE"),
        (b'<?xml version="1.0"?><feed/>', "NOT_CSV"),
        (b"PK\x03\x04rest", "COMPRESSED_FILE"),
        (b"PAR1rest", "NOT_CSV"),
        ("a,b,c\n1,2,3\n".encode("utf-32-le"), "WRONG_ENCODING"),
        (b"a,b,c\xf1\n1,2,3\n", "WRONG_ENCODING"),
    ],
)
def test_what_is_no_csv_is_refused(data, error_type):
    assert refusal(data).error_type == error_type


def test_a_stream_that_breaks_off_is_a_failed_file():
    packed = gzip.compress(b"a,b,c\n" + b"1,2,3\n" * 100)[:-12]
    with pytest.raises(FileReadError, match="breaks off") as caught:
        csv.count(gzip.GzipFile(fileobj=io.BytesIO(packed)), ABC, header_of(b"a,b,c\n", ABC))
    assert caught.value.error_type == "UNREADABLE"


# --- Encodings ---


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_is_found_by_its_mark_and_places_count_in_its_bytes(encoding):
    text = '\ufeffa,b,c\r\n\r\n1,"ñ😀\n,",3\r\n4,5\r\n'
    header, records = read(text.encode(encoding))
    assert header.encoding == encoding
    assert header.byte_length == 2 * 8
    assert [(r.payload, r.position, r.byte_offset, r.byte_length) for r in records] == [
        ('1,"ñ😀\n,",3', 3, 20, 22),
        ("4,5", 5, 46, 6),
    ]
    assert records[1].error == ParseError("FIELD_COUNT", "found 2 fields, the header has 3", 5, 4)


def test_utf16_half_pairs_and_half_units_cost_their_record_only():
    body = (
        b"\xff\xfe" + "a,b,c\n1,".encode("utf-16-le") + b"\x00\xd8" + ",3\n4,5,6\n".encode("utf-16-le")
    )
    assert errors(body) == ["UNDECODABLE_BYTES", None]
    assert errors(body + b"7") == ["UNDECODABLE_BYTES", None, "UNDECODABLE_BYTES"]


def test_declared_encodings():
    latin = CsvFormat(("año", "b"), encoding="ISO-8859-1")
    header, records = read("año,b\nñ,2\n".encode("latin-1"), latin)
    assert header.encoding == "iso8859-1"
    assert [(r.payload, r.byte_offset, r.byte_length) for r in records] == [("ñ,2", 6, 3)]
    windows = CsvFormat(("a", "b"), encoding="windows-1252")
    assert payloads(b"a,b\n\x80,\x93x\x94\n", windows) == ["€,“x”"]
    assert errors(b"a,b\n1,\x81\n2,3\n", windows) == ["UNDECODABLE_BYTES", None]
    wide = CsvFormat(("a", "b"), encoding="utf-16-le")
    assert payloads("a,b\n1,2\n".encode("utf-16-le"), wide) == ["1,2"]
    either = CsvFormat(("a", "b"), encoding="utf-16")
    assert payloads("\ufeffa,b\n1,2\n".encode("utf-16-be"), either) == ["1,2"]


@pytest.mark.parametrize(
    ("declared", "data"),
    [
        ("latin-1", b"\xef\xbb\xbfa,b,c\n"),
        ("utf-8", b"\xff\xfea\x00"),
        ("utf-16", b"a\x00,\x00"),
        ("utf-32", b"a\x00\x00\x00"),
        ("klingon", b"a,b,c\n"),
        ("cp037", b"a,b,c\n"),
    ],
)
def test_encodings_that_cannot_be_are_refused(declared, data):
    assert refusal(data, CsvFormat(("a",), encoding=declared)).error_type == "WRONG_ENCODING"


@pytest.mark.parametrize(
    "signs",
    [
        {"delimiter": "||"},
        {"delimiter": "\n"},
        {"quote": "“"},
        {"escape": ""},
        {"delimiter": '"', "escape": "\\"},
        {"delimiter": "\\", "escape": "\\"},
    ],
)
def test_a_format_that_cannot_work_is_refused(signs):
    with pytest.raises(ContractError, match="contract's feed"):
        CsvFormat(("a",), **signs)


# --- Laws ---

CELL = st.text(st.sampled_from(list("ab ,;\"'\n\r\t\\ñ€😀\x0b\x1c\u2028")), max_size=8)
# With another line end Python's writer leaves a lone CR or LF unquoted where it quotes at need.
STYLES = st.sampled_from(
    [
        ("\r\n", python_csv.QUOTE_MINIMAL),
        ("\r\n", python_csv.QUOTE_ALL),
        ("\n", python_csv.QUOTE_ALL),
        ("\r", python_csv.QUOTE_ALL),
    ]
)
ROWS = st.lists(st.lists(CELL, min_size=3, max_size=3), max_size=12)


@settings(deadline=None, max_examples=150)
@given(rows=ROWS, style=STYLES)
@example(rows=[["a", "b", "c"]], style=("\n", python_csv.QUOTE_ALL))
def test_what_pythons_writer_writes_is_cut_into_its_rows(rows, style):
    out = io.StringIO(newline="")
    end, quoting = style
    writer = python_csv.writer(out, lineterminator=end, quoting=quoting)
    writer.writerow(["a", "b", "c"])
    writer.writerows(rows)
    _, records = read(out.getvalue().encode())
    again = [next(python_csv.reader(io.StringIO(r.payload, newline=""))) for r in records]
    assert again == rows
    assert all(r.error is None or r.error.error_class == "REPEATED_HEADER" for r in records)


PIECE = st.sampled_from(
    [
        *(b'"', b'""', b'",', b',"', b"'", b",", b"\n", b"\r", b"\r\n", b"\\", b"x", b" "),
        *(b"\x00", b"\xff", b"\xc3\xb1", b"a,b", b"\xed\xa0\x80"),
    ]
)
FILE_FAULTS = {"EMPTY_FILE", "NO_HEADER", "AMBIGUOUS_HEADER", "WRONG_ENCODING"}
FORMATS = st.builds(
    CsvFormat,
    columns=st.sampled_from([("a",), ("a", "b")]),
    quote=st.sampled_from(['"', '"', "'", ""]),
    escape=st.sampled_from(['"', "\\"]),
    header=st.booleans(),
    encoding=st.sampled_from([None, None, "latin-1", "utf-16-le"]),
    max_record_lines=st.sampled_from([1, 2, 3, 100]),
    max_record_bytes=st.sampled_from([4, 9, 1 << 20]),
)


@settings(deadline=None, max_examples=500)
@given(
    start=st.sampled_from([b"", b"a,b\n", b"\xff\xfea\x00\n\x00", b"a\r\n"]),
    fmt=FORMATS,
    body=st.lists(PIECE, max_size=40).map(b"".join),
)
def test_any_bytes_keep_the_laws_or_fail_as_a_file(start, body, fmt):
    try:
        read(start + body, fmt)
    except FileReadError as error:
        assert error.error_type in FILE_FAULTS


@settings(deadline=None, max_examples=150)
@given(st.binary(max_size=200))
def test_noise_gives_records_or_a_failed_file(noise):
    try:
        read(b"a,b,c\n1,2,3\n" + noise)
        read(noise)
    except FileReadError as error:
        assert error.error_type == error.error_type.upper()


def test_an_unclosed_quote_does_not_read_the_rest_of_the_file_into_memory():
    data = b'a,b,c\n1,"x,3\n' + b"4,5,6\n" * 1_000_000
    header = header_of(data, ABC)
    stream = io.BytesIO(data)
    first = next(csv.cut(stream, ABC, header))
    assert first.error is not None
    assert stream.tell() < 2.5 * ABC.max_record_bytes


def test_unclosed_quotes_do_not_make_cutting_slow():
    """Were all that follows looked through for each of them, this would take minutes. No clock is asked:
    machines differ, and a suite that takes minutes longer is noticed."""
    data = b"a,b,c\n" + b'1,"x,3\n' + b"4,5,6\n" * 20_000 + b'1,"x,3\n' * 2_000
    header = header_of(data, ABC)
    records = sum(1 for _ in csv.cut(io.BytesIO(data), ABC, header))
    assert csv.count(io.BytesIO(data), ABC, header) == records == 22_001
