"""A page of XML is cut into its records, however damaged, and each fault costs one record."""

from __future__ import annotations

import codecs
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.bench import HOSTILE_ENDS, HOSTILE_UNITS, hostile_page
from ingest.capture.records import Record
from ingest.capture.xml import XmlFormat, check_page, count, cut, encoding_of, feed_id
from ingest.errors import FileReadError
from ingest.schema import Node, parse_ddl

ATOM = "http://www.w3.org/2005/Atom"
AT = "http://purl.org/atompub/tombstones/1.0"
CBC = "urn:test:basic"
CAC = "urn:test:aggregate"
NAMESPACES = {"": ATOM, "at": AT, "cbc": CBC, "cac": CAC}
ENTRY = XmlFormat(
    "entry",
    ATOM,
    NAMESPACES,
    parse_ddl(
        "id STRING, title STRING, summary STRUCT<_type: STRING, _VALUE: STRING>, "
        "link ARRAY<STRUCT<_href: STRING, _rel: STRING>>, "
        "Party STRUCT<Name: STRING, ID: ARRAY<STRUCT<_schemeName: STRING, _VALUE: STRING>>, "
        "Party: STRUCT<Name: STRING>>"
    ),
)
TOMBSTONE = XmlFormat(
    "deleted-entry",
    AT,
    NAMESPACES,
    parse_ddl("_ref STRING, _when STRING, comment STRUCT<_type: STRING, _VALUE: STRING>"),
)
HEAD = f'<feed xmlns="{ATOM}" xmlns:cbc="{CBC}" xmlns:cac="{CAC}" xmlns:at="{AT}">'
EXPAT = "xml.parsers.expat.ExpatError"
REPOSITORY = Path(__file__).resolve().parents[2]
REAL = REPOSITORY.parent / "shared" / "data" / "placsp"
BRONZE = REPOSITORY / "dbt_project" / "models" / "bronze"
CODICE = {
    "cbc": "codice:schema:xsd:CommonBasicComponents",
    "cac": "codice:schema:xsd:CommonAggregateComponents",
    "cbc-place-ext": "codice-place-ext:schema:xsd:CommonBasicComponents",
    "cac-place-ext": "codice-place-ext:schema:xsd:CommonAggregateComponents",
}


def records(data: str | bytes, fmt: XmlFormat = ENTRY) -> list[Record]:
    """Cut, and check what must hold of every file: law 5, order, and the independent count."""
    raw = data.encode() if isinstance(data, str) else data
    found = list(cut(raw, fmt))
    encoding = encoding_of(raw)
    end = 0
    for number, record in enumerate(found, start=1):
        assert record.position == number
        assert record.byte_offset >= end
        end = record.byte_offset + record.byte_length
        piece = raw[record.byte_offset : end]
        if record.payload_bytes is None:
            assert piece.decode(encoding) == record.payload
        else:
            assert record.payload_bytes == piece
            assert record.error is not None
    assert end <= len(raw)
    assert count(raw, fmt) == len(found)
    return found


def payloads(data: str | bytes, fmt: XmlFormat = ENTRY) -> list[str]:
    return [record.payload for record in records(data, fmt)]


def corrupt(data: str | bytes, fmt: XmlFormat = ENTRY) -> list[int]:
    """Positions of the corrupt records; what a corrupt one holds is never said to be parsed."""
    found = records(data, fmt)
    assert all(not r.unparsed and r.parse_text is None for r in found if r.error)
    return [record.position for record in found if record.error]


def unparsed(inner: str, head: str = HEAD) -> list[str]:
    (record,) = records(f"{head}<entry>{inner}</entry></feed>")
    assert record.error is None, record.error
    return list(record.unparsed)


# ---- Sound pages ---------------------------------------------------------------------------------


def test_a_sound_page_gives_its_records_as_they_stand() -> None:
    page = f"{HEAD}\n <entry>\n  <id>1</id>\n </entry>\n <entry><id>ñ</id></entry>\n</feed>\n"
    first, second = records(page)
    assert first == Record(
        payload="<entry>\n  <id>1</id>\n </entry>",
        payload_bytes=None,
        parse_text=None,
        position=1,
        byte_offset=len(HEAD) + 2,
        byte_length=30,
        error=None,
        unparsed=(),
    )
    assert second.payload == "<entry><id>ñ</id></entry>"
    assert (second.position, second.byte_offset, second.byte_length) == (2, len(HEAD) + 34, 26)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (f"{HEAD}<entry/></feed>", ["<entry/>"]),
        (f"{HEAD}<entry /><entry\n/></feed>", ["<entry />", "<entry\n/>"]),
        (
            f"{HEAD}<entry><id>1</id></entry><entry><id>2</id></entry></feed>",
            ["<entry><id>1</id></entry>", "<entry><id>2</id></entry>"],
        ),
        (
            f"{HEAD}<entry><title><![CDATA[</entry><entry>]]></title></entry><entry/></feed>",
            ["<entry><title><![CDATA[</entry><entry>]]></title></entry>", "<entry/>"],
        ),
        (
            f"{HEAD}<entry><!-- </entry> <entry> --><id>1</id></entry><entry/></feed>",
            ["<entry><!-- </entry> <entry> --><id>1</id></entry>", "<entry/>"],
        ),
        (
            f"{HEAD}<entry><?note </entry><entry> ?></entry></feed>",
            ["<entry><?note </entry><entry> ?></entry>"],
        ),
        (f"{HEAD}<!-- <entry>old</entry> --><entry/></feed>", ["<entry/>"]),
        (f"{HEAD}<!-- a --><!----><entry/><!-- </feed> --></feed>", ["<entry/>"]),
        (
            f"""{HEAD}<entry><link href="a>b</x>"/><link href='/>"'/></entry></feed>""".replace(
                "</x", "&lt;/x"
            ),
            ["""<entry><link href="a>b&lt;/x>"/><link href='/>"'/></entry>"""],
        ),
        (f'{HEAD}<entry a=">" >x</entry ></feed>', ['<entry a=">" >x</entry >']),
        (f"{HEAD}<entry-x/><entryx/><x-entry/><entry.y/><entry/></feed>", ["<entry/>"]),
        (f"{HEAD}<Entry/><ENTRY></ENTRY><entry/></feed>", ["<entry/>"]),
        (f"{HEAD}<title>entry &lt;entry> entry</title><entry/></feed>", ["<entry/>"]),
        ("<entry><id>1</id></entry>", ["<entry><id>1</id></entry>"]),
        (" <entry>\n<cbc:x/><cac:y/></entry>", ["<entry>\n<cbc:x/><cac:y/></entry>"]),
        ("<atom:entry>1</atom:entry>", ["<atom:entry>1</atom:entry>"]),
        (f"{HEAD}</feed>\n", []),
    ],
)
def test_where_records_stand_in_sound_pages(page: str, expected: list[str]) -> None:
    found = records(page)
    assert [record.payload for record in found] == expected
    assert [record.error for record in found] == [None] * len(expected)


def test_crlf_and_no_final_newline_keep_the_bytes() -> None:
    page = f"{HEAD}\r\n<entry>\r\n<id>1</id>\r\n</entry>\r\n<entry/>\r\n</feed>"
    assert payloads(page) == ["<entry>\r\n<id>1</id>\r\n</entry>", "<entry/>"]


@pytest.mark.parametrize(
    ("prolog", "codec", "bom"),
    [
        ("", "utf-8", codecs.BOM_UTF8),
        ('<?xml version="1.0" encoding="ISO-8859-1"?>', "latin-1", b""),
        ('<?xml version="1.0" encoding="windows-1252"?>', "cp1252", b""),
        ('<?xml version="1.0" encoding="UTF-16"?>', "utf-16-le", codecs.BOM_UTF16_LE),
        ('<?xml version="1.0" encoding="UTF-16"?>', "utf-16-be", codecs.BOM_UTF16_BE),
        ('<?xml version="1.0" encoding="UTF-16"?>', "utf-16-le", b""),
        ('<?xml version="1.0" encoding="UTF-16BE"?>', "utf-16-be", b""),
        ('<?xml version="1.0" encoding="UTF-32"?>', "utf-32-le", codecs.BOM_UTF32_LE),
    ],
)
def test_offsets_count_bytes_of_the_file_in_every_encoding(prolog: str, codec: str, bom: bytes) -> None:
    before = f"{prolog}{HEAD}<title>año</title>"
    page = f"{before}<entry><title>ñandú</title></entry>é<entry><x/></entry><entry><id></entry>"
    first, second, third = records(bom + page.encode(codec))
    width = len("<".encode(codec))
    assert first.payload == "<entry><title>ñandú</title></entry>"
    assert first.byte_offset == len(bom) + len(before.encode(codec))
    assert first.byte_length == len(first.payload.encode(codec))
    assert second.byte_offset == first.byte_offset + first.byte_length + len("é".encode(codec))
    assert second.byte_length == len(second.payload) * width
    assert second.unparsed == ("entry/x",)
    # Columns count characters, whatever their bytes.
    assert third.error is not None
    start = len(before) + len(first.payload) + 1 + len(second.payload)
    assert (third.error.line, third.error.column) == (1, start + len("<entry><id></") + 1)


def test_characters_outside_the_basic_plane_count_as_their_bytes() -> None:
    page = f"{HEAD}😀<entry><title>😀</title></entry><entry/></feed>"
    for codec, bom in (("utf-8", b""), ("utf-16-le", codecs.BOM_UTF16_LE)):
        assert payloads(bom + page.encode(codec)) == [
            "<entry><title>😀</title></entry>",
            "<entry/>",
        ]


# ---- Tombstones and prefixes ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "tombstone",
    [
        '<at:deleted-entry ref="1" when="2"/>',
        "<at:deleted-entry ref='1' when='2'/>",
        f'<at:deleted-entry ref="1" when="2" xmlns:at="{AT}"/>',
        '<at:deleted-entry ref="1"\n  when="2">\n <at:comment type="CERRADA"/></at:deleted-entry>',
        f'<gone:deleted-entry xmlns:gone="{AT}" ref="1"></gone:deleted-entry>',
        f'<deleted-entry xmlns="{AT}" ref="1"><comment>x</comment></deleted-entry>',
    ],
)
@pytest.mark.parametrize("head", [HEAD, f'<feed xmlns="{ATOM}">', "<feed>"])
def test_tombstones_in_every_form(tombstone: str, head: str) -> None:
    page = f"{head}<entry/>{tombstone}\n<entry/></feed>"
    (record,) = records(page, TOMBSTONE)
    assert (record.payload, record.error, record.unparsed) == (tombstone, None, ())
    assert payloads(page) == ["<entry/>", "<entry/>"]


def test_paths_of_tombstones_start_with_their_prefix() -> None:
    page = f'<feed><t:deleted-entry xmlns:t="{AT}" why="x"><t:by/></t:deleted-entry></feed>'
    (record,) = records(page, TOMBSTONE)
    assert record.unparsed == ("at:deleted-entry/@why", "at:deleted-entry/at:by")


def test_a_deleted_entry_outside_its_namespace_is_none() -> None:
    assert records(f"{HEAD}<deleted-entry/><at:entry/></feed>", TOMBSTONE) == []


def test_other_prefixes_for_the_same_namespaces_mean_the_same() -> None:
    page = (
        f'<a:feed xmlns:a="{ATOM}" xmlns:x="{CBC}" xmlns:y="{CAC}">'
        "<a:entry><a:id>1</a:id><y:Party><x:Name>n</x:Name><x:Odd/></y:Party></a:entry>"
        "<a:entry/></a:feed>"
    )
    first, second = records(page)
    assert first.parse_text is None
    assert first.unparsed == ("entry/cac:Party/cbc:Odd",)
    assert second.payload == "<a:entry/>"


def test_only_the_namespace_makes_a_record() -> None:
    page = f'{HEAD}<foo:entry xmlns:foo="urn:other"/><entry xmlns="urn:other"/><entry/></feed>'
    assert payloads(page) == ["<entry/>"]
    assert payloads(f'<catalog xmlns="urn:other"><entry/><e:entry xmlns:e="{ATOM}"/></catalog>') == [
        f'<e:entry xmlns:e="{ATOM}"/>'
    ]


def test_a_declaration_inside_an_attributes_value_is_none() -> None:
    page = f"""{HEAD}<entry title=" xmlns='urn:x'"><id/></entry></feed>"""
    (record,) = records(page)
    assert (record.unparsed, record.parse_text) == (("entry/@title",), None)


def test_a_prefix_declared_between_root_and_record_counts() -> None:
    entry = "<q:entry><Party><n:Name/></Party></q:entry>"
    (record,) = records(f'<w><p xmlns:q="{ATOM}" xmlns:n="{CBC}">{entry}</p></w>')
    assert (record.error, record.unparsed, record.parse_text) == (None, (), None)


@pytest.mark.parametrize(
    "foreign",
    [
        '<foo:entry xmlns:foo="urn:other"><id/></foo:entry>',
        '<x xmlns="urn:other"><entry/></x>',
        '<x xmlns="urn:other"><entry>1</entry><entry>2</entry></x>',
        f'<x xmlns="urn:other"><entry><y xmlns="{ATOM}"/></entry></x>',
        '<entry xmlns="urn:other"><id/></entry>',
        '<entry xmlns="urn:other"/>',
    ],
)
def test_a_foreign_entry_inside_a_record_does_not_cut_it(foreign: str) -> None:
    page = f"{HEAD}<entry>{foreign}<id>1</id></entry><entry/></feed>"
    assert payloads(page) == [f"<entry>{foreign}<id>1</id></entry>", "<entry/>"]
    assert corrupt(page) == []


def test_an_unclosed_foreign_element_does_not_swallow_the_next_records() -> None:
    page = f'{HEAD}<entry><x xmlns="urn:other"></entry><entry/><entry><x xmlns="urn:other">'
    assert payloads(f"{page} <entry/></feed>") == [
        '<entry><x xmlns="urn:other"></entry>',
        "<entry/>",
        '<entry><x xmlns="urn:other">',
        "<entry/>",
    ]


def test_a_foreign_entry_beside_records_is_none_and_hides_none() -> None:
    foreign = '<entry xmlns="urn:other"><id>1</id></entry>'
    assert payloads(f"{HEAD}{foreign}<entry/>{foreign}</feed>") == ["<entry/>"]
    unclosed = '<entry xmlns="urn:other"><id>1</id>'
    assert payloads(f"{HEAD}{unclosed}<entry><id>2</id></entry><entry/></feed>") == [
        "<entry><id>2</id></entry>",
        "<entry/>",
    ]


def test_two_feeds_in_one_file_each_have_their_prefixes() -> None:
    page = (
        f'<feed xmlns="{ATOM}" xmlns:x="{CBC}"><entry><Party><x:Name/></Party></entry></feed>\n'
        f'<feed xmlns="{ATOM}" xmlns:x="urn:other"><entry><Party><x:Name/></Party></entry></feed>'
    )
    first, second = records(page)
    assert first.unparsed == ()
    assert second.unparsed == ("entry/Party/x:Name",)


# ---- Damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damaged", "words"),
    [
        ("<entry><id>2</id>", "no element found inside entry; the next <entry> starts before"),
        ("<entry><id>2</entry>", "mismatched tag inside entry/id"),
        ("<entry><!-- never ends <id>2</id></entry>", "unclosed token inside entry"),
        ("<entry><title><![CDATA[never ends</title></entry>", "unclosed CDATA section"),
        ("<entry><?never ends</entry>", "unclosed token"),
        ("<entry><id>&nbsp;</id></entry>", "undefined entity inside entry/id"),
        ("<entry><id>\0</id></entry>", "not well-formed (invalid token) inside entry/id"),
        ("<entry><id>\x01</id></entry>", "not well-formed (invalid token)"),
        ("<entry><id>&#1;</id></entry>", "reference to invalid character number"),
        ("<entry><id>a & b</id></entry>", "not well-formed (invalid token)"),
        ("<entry><id>a < b</id></entry>", "not well-formed (invalid token)"),
        ("<entry x=1></entry>", "not well-formed (invalid token)"),
        ('<entry x="1></entry>', "not well-formed (invalid token)"),
        ('<entry x="1" x="2"></entry>', "duplicate attribute"),
        ("<entry <id>2</id></entry>", "not well-formed (invalid token)"),
        ("<entry></entry x>", "not well-formed (invalid token)"),
        ("<entry><!DOCTYPE x></entry>", "not well-formed (invalid token)"),
    ],
)
@pytest.mark.parametrize("sound", ["<entry><!-- c --><id><![CDATA[1]]></id><?p ?></entry>", "<entry/>"])
def test_damage_costs_its_record_and_no_other(damaged: str, words: str, sound: str) -> None:
    page = f"{HEAD}\n{sound}\n{damaged}\n{sound}\n</feed>"
    found = records(page)
    assert [record.payload for record in found] == [sound, damaged, sound]
    assert [record.position for record in found if record.error] == [2]
    error = found[1].error
    assert error is not None
    assert (error.error_class, error.line) == (EXPAT, 3)
    assert words in error.message


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("<entry/>", "the next <entry> starts before the record's end tag"),
        ('<at:deleted-entry ref="1"/>', "the next <deleted-entry> starts before"),
        ("</feed>", "the feed ends before the record's end tag"),
        (f'<feed xmlns="{ATOM}">', "the next <feed> starts before"),
        ("", "the file ends before the record's end tag"),
    ],
)
def test_a_record_that_never_ended_stops_where_something_else_begins(end: str, words: str) -> None:
    found = records(f"{HEAD}<entry><id>1</id> \r\n\t{end}")
    assert found[0].payload == "<entry><id>1</id>"
    assert found[0].error is not None
    assert words in found[0].error.message
    assert [record.error for record in found[1:]] == [None] * (len(found) - 1)


@pytest.mark.parametrize(
    ("before", "headless"),
    [
        ("<entry><id>1</id></entry>", "<ent ry><id>2</id></entry>"),
        ("<entry><id>1</id></entry>", "entry><id>2</id></entry>"),
        ("<entry/>", "<id>2</id></entry>"),
        ("<entry/>", "</entry>"),
        ('<at:deleted-entry ref="1"/>', "<id>2</id></entry>"),
        ('<at:deleted-entry ref="1"></at:deleted-entry>', "<id>2</id></entry>"),
        # Of the first record nobody can say where it began.
        ("", "<id>feed</id><ntry><id>2</id></entry>"),
    ],
)
def test_a_record_whose_start_tag_is_destroyed_is_kept_from_where_the_one_before_ended(
    before: str, headless: str
) -> None:
    found = records(f"{HEAD}{before}\n {headless}\n<entry><id>3</id></entry></feed>")
    sound = [before] if "<entry" in before else []
    assert [r.payload for r in found] == [*sound, headless, "<entry><id>3</id></entry>"]
    [broken] = [record for record in found if record.error]
    assert broken.payload == headless
    assert broken.error is not None
    assert "the record's start tag is missing" in broken.error.message


def test_a_tombstone_whose_start_tag_is_destroyed_is_kept() -> None:
    page = f'{HEAD}<entry/><at:deleted entry ref="1"><c/></at:deleted-entry><entry/></feed>'
    assert payloads(page, TOMBSTONE) == ['<at:deleted entry ref="1"><c/></at:deleted-entry>']
    assert corrupt(page, TOMBSTONE) == [1]
    assert payloads(page) == ["<entry/>", "<entry/>"]


def test_an_entrys_end_tag_inside_a_tombstone_is_the_tombstones() -> None:
    page = f'{HEAD}<at:deleted-entry ref="1"></entry></at:deleted-entry><entry/></feed>'
    assert payloads(page) == ["<entry/>"]
    assert corrupt(page, TOMBSTONE) == [1]


def test_a_tombstone_that_never_ended_stops_at_an_entry() -> None:
    page = f'{HEAD}<at:deleted-entry ref="1"> <entry/><at:deleted-entry ref="2"/></feed>'
    assert payloads(page, TOMBSTONE) == [
        '<at:deleted-entry ref="1">',
        '<at:deleted-entry ref="2"/>',
    ]
    assert corrupt(page, TOMBSTONE) == [1]
    assert payloads(page) == ["<entry/>"]


def test_a_truncated_file_gives_its_complete_records_and_its_last_piece() -> None:
    page = f"{HEAD}<entry><id>1</id></entry>\n<entry><id>2</id><title>cut o"
    assert payloads(page) == ["<entry><id>1</id></entry>", "<entry><id>2</id><title>cut o"]
    assert corrupt(page) == [2]
    assert payloads(f"{HEAD}<entry/><entry") == ["<entry/>", "<entry"]
    assert payloads(f"{HEAD}<entry/><ent") == ["<entry/>"]


def test_half_a_character_at_the_end_belongs_to_the_last_piece() -> None:
    whole = (f"{HEAD}<entry/><entry>ab").encode("utf-16")
    *_, last = records(whole[:-1])
    assert last.payload_bytes == "<entry>ab".encode("utf-16-le")[:-1]
    assert last.error is not None
    assert last.error.error_class == "UnicodeDecodeError"
    assert "the file ends" in last.error.message
    assert corrupt(whole[:-1]) == [2]
    sound = f"{HEAD}<entry/></feed>".encode("utf-16") + b"\n"
    assert corrupt(sound) == []


def test_an_unended_section_ends_where_the_next_record_has_one() -> None:
    page = (
        f"{HEAD}<entry><title><![CDATA[lost</title></entry>"
        "<entry><title><![CDATA[kept]]></title></entry><entry/></feed>"
    )
    assert len(records(page)) == 3
    assert corrupt(page) == [1]
    # A nested opener alone is text like any other, and so is an entry within a section.
    for text in ("a <![CDATA[ b]]>", "<entry><![CDATA[x]]]]><![CDATA[></entry>]]>"):
        assert corrupt(f"{HEAD}<entry><id><![CDATA[{text}</id></entry><entry/></feed>") == []


def test_a_commented_out_record_in_a_truncated_comment_is_not_lost() -> None:
    assert payloads(f"{HEAD}<!-- <entry>1</entry>") == ["<entry>1</entry>"]


def test_one_bad_byte_costs_its_record_only() -> None:
    page = (
        HEAD.encode() + b"\n<entry>\xc3\xb1</entry>\n <entry>a\xc3\xb1\n b\xf1</entry>\n<entry/></feed>"
    )
    first, second, third = records(page)
    assert (first.error, third.error) == (None, None)
    assert second.payload == "<entry>añ\n b�</entry>"
    assert second.payload_bytes == b"<entry>a\xc3\xb1\n b\xf1</entry>"
    assert second.error is not None
    place = page.index(b"\xf1<")
    assert second.error == (
        "UnicodeDecodeError",
        f"byte 0xf1 at byte {place} of the file is no UTF-8: invalid continuation byte",
        4,
        3,
    )


def test_a_byte_that_a_code_page_lacks_costs_its_record_only() -> None:
    prolog = b"<?xml version='1.0' encoding='cp1252'?>"
    first, second = records(prolog + b"<feed><entry>\x80</entry><entry>\x81</entry></feed>")
    assert first.payload == "<entry>€</entry>"
    assert second.error is not None
    assert second.error.error_class == "UnicodeDecodeError"


def test_a_lone_surrogate_costs_its_record_only() -> None:
    text = f"{HEAD}<entry>1</entry><entry>\ud800</entry><entry>2</entry></feed>"
    page = codecs.BOM_UTF16_LE + text.encode("utf-16-le", "surrogatepass")
    assert [record.payload for record in records(page)][::2] == [
        "<entry>1</entry>",
        "<entry>2</entry>",
    ]
    assert corrupt(page) == [2]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_errors_name_line_and_column_of_the_file(newline: str) -> None:
    page = newline.join([HEAD, " <entry/>", "  ñ<entry>", "ñ<a></b>", "</entry>", " <entry><"])
    found = records(page)
    places = [(r.error.line, r.error.column) for r in found if r.error]
    assert places == [(4, 7), (6, 9)]
    one_line = f"{HEAD}<entry/>ñ<entry>ñ</b></entry>"
    error = records(one_line)[1].error
    assert error is not None
    assert (error.line, error.column) == (1, len(f"{HEAD}<entry/>ñ<entry>ñ</") + 1)


# ---- Document types ------------------------------------------------------------------------------


DOCTYPES = [
    '<!DOCTYPE feed [<!ENTITY who "me">]>',
    '<!DOCTYPE feed [<!-- it\'s ]> <entry> --><!ENTITY who "<entry>]></entry>"><?x ]> ?>\n] >',
    '<!DOCTYPE feed SYSTEM "http://localhost:1/x.dtd" [<!ENTITY who SYSTEM "file:///etc/passwd">]>',
    '<!DOCTYPE feed [<!ENTITY a "aaaaaaaaaa"><!ENTITY who "&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>',
]


@pytest.mark.parametrize("doctype", DOCTYPES)
def test_entities_of_a_document_type_are_never_resolved(doctype: str) -> None:
    page = f"<?xml version='1.0'?>{doctype}{HEAD}<entry>&amp;</entry><entry>&who;</entry></feed>"
    first, second = records(page)
    assert (first.payload, first.error) == ("<entry>&amp;</entry>", None)
    assert second.payload == "<entry>&who;</entry>"
    assert second.error is not None
    assert "undefined entity" in second.error.message


def test_billions_of_laughs_are_never_told() -> None:
    # Resolved, they would outgrow any memory.
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 30))
    page = f'<!DOCTYPE feed [<!ENTITY l0 "lol">{laughs}]>{HEAD}<entry>&l29;</entry><entry/></feed>'
    assert corrupt(page) == [1]
    check_page(page.encode())
    assert feed_id(page.encode()) is None


# ---- What the schema does not take ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("inner", "paths"),
    [
        ("<id>1</id><title/><summary type='text'>s</summary><link href='a'/><link rel='b'/>", []),
        ("<summary>no type</summary><link/>", []),
        ("<cac:Party><cbc:Name>n</cbc:Name><cbc:ID>1</cbc:ID><cbc:ID>2</cbc:ID></cac:Party>", []),
        ("<cac:Party>\n <!-- c --> <cbc:Name>n</cbc:Name>\n</cac:Party>", []),
        ("<Party><Name>n</Name></Party>", []),
        ("<foo/>", ["entry/foo"]),
        ("<ID>1</ID><Title/>", ["entry/ID", "entry/Title"]),
        ("<id>1</id><id>2</id><id>3</id>", ["entry/id[]"]),
        ("<id/><id/>", ["entry/id[]"]),
        ("<cac:Party/><cac:Party/>", ["entry/cac:Party[]"]),
        (
            "<cac:Party><cac:Party><cbc:Name/><cbc:Name/></cac:Party></cac:Party>",
            ["entry/cac:Party/cac:Party/cbc:Name[]"],
        ),
        ("<title lang='es'>t</title>", ["entry/title/@lang"]),
        ("<title xml:lang='es'>t</title>", ["entry/title/@xml:lang"]),
        ("<link hreflang='es'/>", ["entry/link/@hreflang"]),
        ("<cac:Party>text</cac:Party>", ["entry/cac:Party/text()"]),
        ("<cac:Party><cbc:Name/>text</cac:Party>", ["entry/cac:Party/text()"]),
        ("<cac:Party>text<cbc:Name/></cac:Party>", ["entry/cac:Party/text()"]),
        ("<cac:Party><![CDATA[text]]></cac:Party>", ["entry/cac:Party/text()"]),
        ("<cac:Party>&#32;<!-- c --></cac:Party>", []),
        ("<cac:Party>&#160;</cac:Party>", ["entry/cac:Party/text()"]),
        ("text<id>1</id>", ["entry/text()"]),
        ("<id>1</id>text", ["entry/text()"]),
        ("<link>text</link>", ["entry/link/text()"]),
        ("<title>a <b>c</b></title>", ["entry/title/b"]),
        ("<foo a='1'><bar b='2'>x</bar><bar/></foo>", ["entry/foo", "entry/foo/@a", "entry/foo/bar",
                                                        "entry/foo/bar/@b"]),
        ("<cac:foo/><z:foo/>", ["entry/cac:foo", "entry/z:foo"]),
        ("<ns:x xmlns:ns='urn:test:basic'/>", ["entry/cbc:x"]),
    ],
)  # fmt: skip
def test_paths_that_the_schema_does_not_take(inner: str, paths: list[str]) -> None:
    assert unparsed(inner) == paths
    # The same again where the quick look is impossible, or knows the tags already.
    assert unparsed(f"<?x?>{inner}") == paths
    twice = records(f"{HEAD}<entry>{inner}</entry><entry>{inner}</entry></feed>")
    assert [list(record.unparsed) for record in twice] == [paths, paths]


def test_attributes_of_the_record_itself() -> None:
    (record,) = records(f"{HEAD}<entry xml:base='x' a='1'/></feed>")
    assert record.unparsed == ("entry/@a", "entry/@xml:base")


def test_the_number_and_depth_of_paths_are_bounded() -> None:
    many = unparsed("".join(f"<n{number}/>" for number in range(1500)))
    assert len(many) == 1001
    assert many[0] == "..."
    deep = unparsed("<a>" * 100 + "</a>" * 100)
    assert len(deep) == 33
    assert "entry" + "/a" * 32 in deep
    assert deep[-1] == "entry" + "/a" * 32 + "/..."
    assert unparsed(f"<{'n' * 900}/>") == [f"entry/{'n' * 200}..."]


@pytest.mark.parametrize(
    ("inner", "parse_inner", "paths"),
    [
        # A name of another namespace must not be taken for the schema's.
        (
            "<cac:Party><x:Name xmlns:x='urn:x'>n</x:Name></cac:Party>",
            "<cac:Party><x..Name xmlns:x='urn:x'>n</x..Name></cac:Party>",
            ["entry/cac:Party/x:Name"],
        ),
        ("<x:id>1</x:id><x:id/>", "<x..id>1</x..id><x..id/>", ["entry/x:id"]),
        ("<id xmlns='urn:x'>1</id>", "<_..id xmlns='urn:x'>1</_..id>", ["entry/{urn:x}id"]),
        ("<id xmlns=''>1</id>", "<_..id xmlns=''>1</_..id>", ["entry/{}id"]),
        (
            "<cbc:id xmlns:cbc='urn:x'/><cbc:id/>",
            "<cbc..id xmlns:cbc='urn:x'/><cbc:id/>",
            ["entry/{urn:x}id"],
        ),
        (
            "<Party xmlns='urn:x'><Name/></Party>",
            "<_..Party xmlns='urn:x'><Name/></_..Party>",
            ["entry/{urn:x}Party", "entry/{urn:x}Party/{urn:x}Name"],
        ),
        # Nor an attribute.
        (
            "<summary  x:type = '>x:type=' type='t'>s</summary>",
            "<summary  x..type = '>x:type=' type='t'>s</summary>",
            ["entry/summary/@x:type"],
        ),
        ("<summary xmlns:type='u'/>", "<summary xmlns..type='u'/>", []),
        ("<link cbc:href='a'/>", "<link cbc..href='a'/>", ["entry/link/@cbc:href"]),
        # Spark puts attributes into fields with an underscore, and texts into _VALUE.
        ("<summary><_VALUE>x</_VALUE></summary>", "<summary><_.._VALUE>x</_.._VALUE></summary>",
         ["entry/summary/_VALUE"]),
        ("<_corrupt_record>x</_corrupt_record>", "<_.._corrupt_record>x</_.._corrupt_record>",
         ["entry/_corrupt_record"]),
        # Colons that are no prefix: Spark splits at each, and fails on a name of colons alone.
        ("<a:b:id/><id:/><:id/><:/>", "<a..b..id/><id../><_..id/><_../>",
         ["entry/:", "entry/:id", "entry/a:b:id", "entry/id:"]),
        # What matches nothing stays as it is.
        ("<x:foo x:bar='1'/>", None, ["entry/x:foo", "entry/x:foo/@x:bar"]),
    ],
)  # fmt: skip
def test_strange_names_cannot_be_mistaken_for_the_schemas(
    inner: str, parse_inner: str | None, paths: list[str]
) -> None:
    (record,) = records(f"{HEAD}<entry>{inner}</entry></feed>")
    assert record.error is None
    assert record.payload == f"<entry>{inner}</entry>"
    expected = None if parse_inner is None else f"<entry>{parse_inner}</entry>"
    assert record.parse_text == expected
    assert list(record.unparsed) == paths


def test_an_attribute_cannot_fill_the_column_of_corrupt_records() -> None:
    (record,) = records(f"{HEAD}<entry corrupt_record='x'><id>1</id></entry></feed>")
    assert record.parse_text == "<entry _..corrupt_record='x'><id>1</id></entry>"
    assert record.unparsed == ("entry/@corrupt_record",)


# ---- Pages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (f"{HEAD}<id>\n urn:1 </id><entry><id>2</id></entry></feed>", "urn:1"),
        (f"{HEAD}<entry><id>2</id></entry><id>urn:1</id></feed>", "urn:1"),
        (f'<a:feed xmlns:a="{ATOM}"><a:id>urn:1</a:id></a:feed>', "urn:1"),
        (f"{HEAD}<author><id>no</id></author><id>a&amp;<![CDATA[b]]></id></feed>", "a&b"),
        (f"{HEAD}<entry><id>2</entry><entry/><id>urn:1</id></feed>", "urn:1"),
        (f"{HEAD}<id>urn:1</id><entry><id>2</entry></feed>", "urn:1"),
        (f"{HEAD}<title><id>urn:1</id><entry><id>2</id></entry>", "urn:1"),
        (f"{HEAD}<entry><id>2</id></entry></feed>", None),
        (f"{HEAD}<id/></feed>", None),
        ("<entry><id>2</id></entry>", None),
    ],
)
def test_the_feeds_own_id(page: str, expected: str | None) -> None:
    assert feed_id(page.encode()) == expected
    assert feed_id(page.encode("utf-16")) == expected


def test_the_feeds_id_is_found_after_a_long_page() -> None:
    page = f"{HEAD}<title>{'ñ' * 9000}</title>{'<entry/>' * 9000}<id>urn:1</id></feed>"
    assert feed_id(page.encode()) == "urn:1"


@pytest.mark.parametrize(
    "page",
    [
        f"{HEAD}</feed>",
        "<feed/>",
        f"{HEAD}<id>1</id><title>no entry</title><link rel='next'/></feed>",
        f'<a:feed xmlns:a="{ATOM}"/>',
        "<entry>",
        f'{HEAD}<at:deleted-entry ref="1"/><broken></feed>',
    ],
)
def test_pages_that_may_be(page: str) -> None:
    check_page(page.encode())
    check_page(page.encode("utf-16"))


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("<rss><item/></rss>", "root element <rss>"),
        ('<feed xmlns="urn:other"/>', "root element <urn:other feed>"),
        (f"{HEAD}<title></feed>", "not well-formed: mismatched tag, line 1"),
        (f"{HEAD}<Entry/></feed>", "holds <Entry>"),
        (f'{HEAD}<entry xmlns="urn:other"/></feed>', "holds <entry>"),
        (f"{HEAD}<deleted-entry/></feed>", "holds <deleted-entry>"),
        ("<!DOCTYPE feed [<!ENTITY a '<entry/>'>]><feed>&a;</feed>", "undefined entity"),
        ("lost</title></feed>", "not well-formed"),
    ],
)
def test_pages_that_lost_their_records(page: str, words: str) -> None:
    for fmt in (ENTRY, TOMBSTONE):
        assert records(page, fmt) == []
    with pytest.raises(FileReadError) as caught:
        check_page(page.encode())
    assert caught.value.error_type == "NO_RECORDS"
    assert words in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"\x1f\x8b123", b"a,b\n", b"<html></html>"])
def test_what_is_no_xml_is_refused_by_every_door(data: bytes) -> None:
    for door in (
        lambda: list(cut(data, ENTRY)),
        lambda: count(data, ENTRY),
        lambda: feed_id(data),
        lambda: check_page(data),
    ):
        with pytest.raises(FileReadError):
            door()


# ---- Size ----------------------------------------------------------------------------------------


def test_fifty_megabytes_of_one_entry() -> None:
    entry = "<entry><title>" + "word & ".replace("&", "&amp;") * 4_600_000 + "</title></entry>"
    page = f"{HEAD}{entry}<entry/></feed>".encode()
    assert len(page) > 50_000_000
    first, second = cut(page, ENTRY)
    assert count(page, ENTRY) == 2
    assert (first.error, second.error) == (None, None)
    assert first.payload == entry


@pytest.mark.parametrize("unit", HOSTILE_UNITS)
@pytest.mark.parametrize("end", HOSTILE_ENDS)
def test_hostile_files_are_cut_as_they_are_counted(unit: str, end: str) -> None:
    # That the time grows as the size does is for the benchmark: a clock is no test.
    page = hostile_page(unit, end, 80_000)
    assert count(page, ENTRY) == sum(1 for _ in cut(page, ENTRY))


# ---- Real pages ----------------------------------------------------------------------------------


REAL_COUNTS = {
    "agregadas": (2594, 406),
    "menores": (1701, 1),
    "licitaciones": (24, 3),
    "consultas": (60, 0),
    "broken": (4, 0),
}


def test_real_pages_give_every_record() -> None:
    """The pages lie beside the repository; where they do not, the goldens above say the same."""
    formats = [
        XmlFormat(
            tag,
            namespace,
            {"": ATOM, "at": AT, **{p: f"urn:dgpe:names:draft:{uri}-2" for p, uri in CODICE.items()}},
            parse_ddl((BRONZE / f"placsp_{name}.ddl").read_text(encoding="utf-8")),
        )
        for tag, namespace, name in (
            ("entry", ATOM, "entries"),
            ("deleted-entry", AT, "deleted_entries"),
        )
    ]
    found: dict[str, tuple[int, ...]] = {}
    for folder in REAL.glob("*/"):
        if folder.name in REAL_COUNTS:
            pages = [page.read_bytes() for page in sorted(folder.glob("*.atom"))]
            cuts = [[record for page in pages for record in records(page, fmt)] for fmt in formats]
            found[folder.name] = tuple(map(len, cuts))
            # The schema is drawn from these pages, so it holds all that they do.
            assert {path for cut_ in cuts for record in cut_ for path in record.unparsed} == set()
            faults = [(r.position, r.error.line) for cut_ in cuts for r in cut_ if r.error]
            assert faults == ([(2, 23)] if folder.name == "broken" else [])
    assert found in ({}, REAL_COUNTS)


# ---- Properties ----------------------------------------------------------------------------------

TEXT = st.text(st.sampled_from("ab 1\nñ€😀"), max_size=6)
SPACE = st.sampled_from(["", " ", "\n  "])
ASIDE = st.sampled_from(
    ["", "", "", "<!-- </entry><entry> -->", "<![CDATA[</entry>]]>", "<?p <entry> ?>"]
)
NAME = st.sampled_from(
    ["id", "title", "summary", "link", "cac:Party", "cbc:Name", "cbc:ID", "x:ID", "z:Name", "foo"]
)
ATTRIBUTE_NAME = st.sampled_from(["type", "href", "schemeName", "foo", "x:type", "z:href"])
OTHERS = f' xmlns:x="{CBC}" xmlns:z="urn:other"'


@st.composite
def elements(draw: st.DrawFn, depth: int = 0) -> str:
    name = draw(NAME)
    attributes = draw(st.dictionaries(ATTRIBUTE_NAME, TEXT, max_size=2))
    quote = draw(st.sampled_from("\"'"))
    tag = name + "".join(f" {key}={quote}{value}{quote}" for key, value in attributes.items())
    if draw(st.booleans()) and depth < 3:
        inner = "".join(draw(st.lists(elements(depth + 1), max_size=3)))
        return f"<{tag}>{draw(SPACE)}{draw(ASIDE)}{inner}</{name}>{draw(SPACE)}"
    if draw(st.booleans()):
        return f"<{tag}/>{draw(SPACE)}"
    return f"<{tag}>{draw(TEXT)}</{name}>{draw(ASIDE)}{draw(SPACE)}"


ENTRIES = st.lists(elements(), max_size=4).map(lambda inner: f"<entry>{''.join(inner)}</entry>")


def reference_paths(element: ElementTree.Element, schema: Node) -> set[str]:
    """What a plain reading of a fully parsed document says: slow, short, and other code."""
    shown = {uri: prefix for prefix, uri in NAMESPACES.items()} | {"urn:other": "z"}
    found: set[str] = set()

    def name_of(tag: str) -> tuple[str | None, str, str]:
        uri, _, local = tag.rpartition("}")
        prefix = shown[uri[1:]] if uri else ""
        return uri[1:] or None, local, f"{prefix}:{local}" if prefix else local

    def walk(element: ElementTree.Element, node: Node | None, path: str) -> None:
        for key in element.attrib:
            uri, local, name = name_of(key)
            if node is None or uri is not None or local not in node.attributes:
                found.add(f"{path}/@{name}")
        texts = [element.text, *(child.tail for child in element)]
        if node is not None and not node.has_text and "".join(filter(None, texts)).strip(" \n"):
            found.add(f"{path}/text()")
        before: set[str] = set()
        for child in element:
            uri, local, name = name_of(child.tag)
            inner = node.children.get(local) if node and uri != "urn:other" else None
            below = f"{path}/{name}"
            if inner is None:
                found.add(below)
            elif local in before and not inner.is_array:
                found.add(f"{below}[]")
            before |= {local} if inner else set()
            walk(child, inner, below)

    walk(element, schema, "entry")
    return found


@given(st.lists(st.tuples(ENTRIES, SPACE, ASIDE), max_size=5), st.sampled_from(["utf-8", "utf-16"]))
@settings(max_examples=100, deadline=None)
def test_a_well_formed_feed_is_cut_as_a_parser_reads_it(
    parts: list[tuple[str, str, str]], codec: str
) -> None:
    head = HEAD[:-1] + OTHERS + ">"
    body = "".join(entry + space + aside for entry, space, aside in parts)
    page = f"{head}{body}</feed>"
    found = records(page.encode(codec))
    parsed = list(ElementTree.fromstring(page.encode()))
    assert [record.payload for record in found] == [entry for entry, _, _ in parts]
    for record, element in zip(found, parsed, strict=True):
        assert record.error is None
        alone = ElementTree.fromstring(f"{head}{record.payload}</feed>")[0]
        element.tail = None
        assert ElementTree.canonicalize(ElementTree.tostring(alone)) == ElementTree.canonicalize(
            ElementTree.tostring(element)
        )
        assert set(record.unparsed) == reference_paths(element, ENTRY.schema)
        # Spark must find no name of another namespace by what follows its colon.
        if record.parse_text is not None:
            as_spark = ElementTree.fromstring(f"{head}{record.parse_text}</feed>")[0]
            assert len(list(as_spark.iter())) == len(list(element.iter()))


SOUND = [
    "<entry>\n <id>1</id>\n <title><![CDATA[a </entry> b]]></title>\n</entry>",
    '<entry><summary type="text">ñ</summary><!-- <entry> --><link href=">"/></entry>',
    "<entry><id>3</id><?note </feed> ?></entry>",
    "<entry/>",
]
PIECES = st.sampled_from(
    [b"<", b">", b"</", b"/>", b'"', b"'", b"<!--", b"-->", b"<![CDATA[", b"]]>", b"<?", b"?>",
     b"&", b"<entry>", b"</entry>", b"<entry", b"</feed>", b"<!DOCTYPE x [", b"\xff", b"\xc3",
     b"\0", b"entry", b"<at:deleted-entry>", b"<x:entry>", b" xmlns='urn:x'", b"\r\n", b"z"]
)  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 6)))
        data = data[:start] + draw(st.one_of(PIECES, st.binary(max_size=3))) + data[end:]
    return data


@given(mutated((HEAD + "\n".join(SOUND) + "</feed>").encode()))
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_mutation_breaks_the_laws(page: bytes) -> None:
    for fmt in (ENTRY, TOMBSTONE):
        try:
            records(page, fmt)
            feed_id(page)
            check_page(page)
        except FileReadError as error:
            assert error.error_type.isupper()


@given(st.data(), st.integers(0, len(SOUND) - 1), st.sampled_from(["", "</feed>"]))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_damage_inside_a_record_leaves_its_neighbours_unharmed(
    data: st.DataObject, index: int, end: str
) -> None:
    damaged = data.draw(mutated(SOUND[index].encode()))
    parts = [entry.encode() for entry in SOUND]
    parts[index] = damaged
    page = HEAD.encode() + b"\n".join(parts) + end.encode()
    sound = [record.payload for record in records(page) if record.error is None]
    neighbours = SOUND[:index] + SOUND[index + 1 :]
    assert [payload for payload in neighbours if payload not in sound] == []
