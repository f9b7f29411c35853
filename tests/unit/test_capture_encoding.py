"""A file's encoding is what it announces; what is no XML is refused with a reason."""

from __future__ import annotations

import codecs
import gzip
import io
import zipfile

import pytest

from ingest.capture.encoding import detect
from ingest.errors import FileReadError

PAGE = '<?xml version="1.0"{}?><feed xmlns="http://www.w3.org/2005/Atom"><title>ñ€</title></feed>'


def page(declared: str | None, codec: str, bom: bytes = b"") -> bytes:
    said = "" if declared is None else f' encoding="{declared}"'
    text = PAGE.format(said)
    return bom + text.encode(codec, "replace")


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.atom", "<feed/>")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "name", "bom_length"),
    [
        (page(None, "utf-8"), "utf-8", 0),
        (page("UTF-8", "utf-8"), "utf-8", 0),
        (page("utf8", "utf-8", codecs.BOM_UTF8), "utf-8", 3),
        (page("ISO-8859-1", "latin-1"), "iso8859-1", 0),
        (page("iso-8859-15", "iso8859-15"), "iso8859-15", 0),
        (page("windows-1252", "cp1252"), "cp1252", 0),
        (page("US-ASCII", "ascii"), "ascii", 0),
        (page("UTF-16", "utf-16-le", codecs.BOM_UTF16_LE), "utf-16-le", 2),
        (page("UTF-16", "utf-16-be", codecs.BOM_UTF16_BE), "utf-16-be", 2),
        (page(None, "utf-16-be", codecs.BOM_UTF16_BE), "utf-16-be", 2),
        (page("UTF-16", "utf-16-le"), "utf-16-le", 0),
        (page("utf-16be", "utf-16-be"), "utf-16-be", 0),
        (page("ISO-10646-UCS-2", "utf-16-le"), "utf-16-le", 0),
        (page("UTF-32", "utf-32-le", codecs.BOM_UTF32_LE), "utf-32-le", 4),
        (page("UTF-32", "utf-32-be"), "utf-32-be", 0),
        # A mark outweighs a declaration that says otherwise.
        (page("ISO-8859-1", "utf-8", codecs.BOM_UTF8), "utf-8", 3),
        (page("UTF-8", "utf-16-le", codecs.BOM_UTF16_LE), "utf-16-le", 2),
        # Not quite at the start, single quotes, odd spacing.
        (b"\n <?xml version='1.0' encoding = 'latin1' standalone='yes'?><feed/>", "iso8859-1", 0),
        (b"<entry/>", "utf-8", 0),
        # A page that lost its first bytes may hold sound records.
        (b"lost</title></entry><entry/></feed>", "utf-8", 0),
        # A stray NUL byte costs its record, trailing ones nothing.
        (b"<feed><entry>a long enough text\0</entry></feed>", "utf-8", 0),
        (b"<feed><entry/></feed>" + b"\0" * 500, "utf-8", 0),
    ],
)
def test_encoding_is_what_the_file_announces(data: bytes, name: str, bom_length: int) -> None:
    encoding = detect(data)
    assert (encoding.name, encoding.bom_length) == (name, bom_length)
    assert "feed" in data[bom_length:].decode(name) or "entry" in data.decode(name)


@pytest.mark.parametrize(
    ("data", "error_type", "words"),
    [
        (b"", "EMPTY_FILE", "0 bytes"),
        (b" \r\n\t ", "EMPTY_FILE", "5 bytes, none of them a character"),
        (codecs.BOM_UTF8 + b"\n", "EMPTY_FILE", "empty"),
        (codecs.BOM_UTF16_LE + b" \0\n\0", "EMPTY_FILE", "empty"),
        (b"\0" * 4096, "EMPTY_FILE", "4096 bytes"),
        (gzip.compress(b"<feed/>", mtime=0), "COMPRESSED_FILE", "gzip"),
        (zipped(), "COMPRESSED_FILE", "ZIP"),
        (b"BZh91AY&SY", "COMPRESSED_FILE", "bzip2"),
        (page("klingon-8", "ascii"), "UNKNOWN_ENCODING", "'klingon-8'"),
        (page("", "ascii"), "UNKNOWN_ENCODING", "''"),
        (page("base64", "ascii"), "UNKNOWN_ENCODING", "'base64'"),
        (page("undefined", "ascii"), "UNKNOWN_ENCODING", "'undefined'"),
        (page("shift_jis", "ascii"), "UNSUPPORTED_ENCODING", "'shift_jis'"),
        (page("utf-7", "ascii"), "UNSUPPORTED_ENCODING", "'utf-7'"),
        (page("iso-2022-jp", "ascii"), "UNSUPPORTED_ENCODING", "'iso-2022-jp'"),
        (page("cp037", "ascii"), "UNSUPPORTED_ENCODING", "'cp037'"),
        (page("unicode_escape", "ascii"), "UNSUPPORTED_ENCODING", "'unicode_escape'"),
        (page("UTF-16", "utf-8"), "WRONG_ENCODING", "'UTF-16'"),
        (page(None, "utf-16-le"), "WRONG_ENCODING", "UTF-16-LE"),
        (page("UTF-8", "utf-16-be"), "WRONG_ENCODING", "declares 'UTF-8'"),
        (page(None, "utf-32-le"), "WRONG_ENCODING", "UTF-32-LE"),
        (page("UTF-8", "utf-8") + page(None, "utf-16-le"), "WRONG_ENCODING", "are NUL"),
        (b"<!DOCTYPE html><html><body>502</body></html>", "HTML_PAGE", "HTML"),
        (b"\n<HTML><head></head></HTML>", "HTML_PAGE", "HTML"),
        (b"<?xml version='1.0'?><!-- x --><!DOCTYPE html PUBLIC ''><html/>", "HTML_PAGE", "HTML"),
        ("<html></html>".encode("utf-16"), "HTML_PAGE", "HTML"),
        (b'{"error": "not found"}', "NOT_XML", "not XML"),
        (b"order_id,qty\n1,2\n", "NOT_XML", "not XML"),
        (b"%PDF-1.7 \xe2\xe3\xcf\xd3", "NOT_XML", "not XML"),
        (b"< 3 apples", "NOT_XML", "not XML"),
        (b"<", "NOT_XML", "not XML"),
    ],
)
def test_what_cannot_be_read_as_xml_is_refused(data: bytes, error_type: str, words: str) -> None:
    with pytest.raises(FileReadError) as caught:
        detect(data)
    assert caught.value.error_type == error_type
    assert words in str(caught.value)
    # What is wrong, why, and how to go on: three sentences at least.
    assert str(caught.value).count(". ") >= 1
    assert str(caught.value).endswith(".")
