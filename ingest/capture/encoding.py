"""Which encoding a file is in, and whether it is at all what it claims to be."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from ingest.errors import FileReadError

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_DECLARED = re.compile(rb"""\A\s*<\?xml\b[^>]{0,200}?\bencoding\s*=\s*["']([A-Za-z][\w.:-]*)["']""")
# What may stand at the head of a file that is something else.
_MAGIC = (
    (b"\x1f\x8b", "GZIP_CONTENT", "gzip data"),
    (b"PK\x03\x04", "ZIP_CONTENT", "a ZIP archive"),
    (b"%PDF", "PDF_CONTENT", "a PDF document"),
)
_HTML = re.compile(rb"\A\s*(?:<!doctype\s+html|<html[\s>])", re.IGNORECASE)


class Encoding(NamedTuple):
    """A Python codec name and the length in bytes of the byte order mark before the text."""

    name: str
    bom_length: int


def detect(data: bytes) -> Encoding:
    """Detect the encoding of XML text from its byte order mark, its declaration, else UTF-8.

    Raises:
        FileReadError: The file is empty, is something else than text, or claims an encoding that
            does not exist or that its bytes contradict.
    """
    if not data.strip(b"\x00 \t\r\n"):
        raise FileReadError(
            "EMPTY_FILE",
            "The file holds nothing but white space. Fetch it again; if the source sends nothing, "
            "that is the source's fault to report.",
        )
    for magic, error_type, words in _MAGIC:
        if data.startswith(magic):
            raise FileReadError(
                error_type,
                f"The file holds {words} under the name of something else, so there are no records "
                f"to read. Unpack it or give it its own ending.",
            )
    for bom, name in _BOMS:
        if data.startswith(bom):
            return Encoding(name, len(bom))
    if data[:2] in (b"<\x00", b"\x00<") or data[:4] in (b"\x00\x00\x00<", b"<\x00\x00\x00"):
        wide = 4 if data[:4] in (b"\x00\x00\x00<", b"<\x00\x00\x00") else 2
        return Encoding(f"utf-{8 * wide}-{'le' if data[:1] == b'<' else 'be'}", 0)
    declared = _DECLARED.match(data[:400])
    if not declared:
        return Encoding("utf-8", 0)
    claimed = declared.group(1).decode("ascii")
    try:
        name = codecs.lookup(claimed).name
        "".encode(name)
    except (LookupError, ValueError) as error:
        raise FileReadError(
            "UNKNOWN_ENCODING",
            f"The file declares the encoding '{claimed}', which nobody knows, so its bytes have no "
            f"reading. Ask the source, or correct the declaration.",
        ) from error
    if name.startswith(("utf-16", "utf-32")):
        raise FileReadError(
            "WRONG_ENCODING",
            f"The file declares {claimed} in single bytes, which is a contradiction. Correct the "
            f"declaration to what the bytes are.",
        )
    return Encoding(name, 0)


def refuse_html(data: bytes) -> None:
    """Refuse a web page, which is what a broken server sends instead of a feed.

    Raises:
        FileReadError: The data is an HTML page.
    """
    if _HTML.match(data[:1000]):
        raise FileReadError(
            "HTML_PAGE",
            "The file is an HTML page, most likely an error page of the server. Fetch it again.",
        )
