"""Which encoding an XML file is in, and which files are no XML to begin with."""

from __future__ import annotations

import codecs
import re
import warnings
from typing import NamedTuple

from ingest.errors import FileReadError


class Encoding(NamedTuple):
    """How a file's bytes are to be read.

    Attributes:
        name: A Python codec that knows nothing of byte order marks, so that any slice of the
            file decodes by itself: ``utf-8``, ``utf-16-le``, ``iso8859-1``, ...
        bom_length: Bytes of the byte order mark, 0 where there is none.
    """

    name: str
    bom_length: int


# UTF-32's little-endian mark starts with UTF-16's: the longer ones stand first.
_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# What `<` looks like in each wide encoding when nothing announces it.
_WIDE_STARTS = (
    (b"<\0\0\0", "utf-32-le"),
    (b"\0\0\0<", "utf-32-be"),
    (b"<\0", "utf-16-le"),
    (b"\0<", "utf-16-be"),
)
_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"PK\x03\x04", "ZIP"),
    (b"PK\x05\x06", "ZIP"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip"),
)
_HEAD_BYTES = 4096
_WHITE = b" \t\r\n"
_DECLARATION = re.compile(
    rb"<\?xml\s[^<>]{0,400}?\bencoding\s*=\s*(?:\"([^\"<>]{0,200})\"|'([^'<>]{0,200})')"
)
_HTML = re.compile(
    rb"\s*(?:<\?xml[^<>]*\?>\s*)?(?:<!--(?:[^-]|-(?!->))*+-->\s*)*+"
    rb"<(?:!doctype\s+html\b|html[\s>]|head[\s>]|body[\s>])",
    re.IGNORECASE,
)
# Python codecs that call themselves text encodings and pass as supersets of ASCII, but are not
# how anybody stores a file.
_NO_FILE_ENCODINGS = {"unicode-escape", "raw-unicode-escape"}


def detect(data: bytes) -> Encoding:
    """Say how a file is encoded: by its byte order mark, else by its XML declaration, else UTF-8.

    A byte order mark outweighs a declaration that says otherwise: files get recoded by tools that
    leave the declaration as it was, and a mark at the start of a file is hardly ever chance.

    Args:
        data: The whole file.

    Returns:
        The encoding; slices of the file decode with its name.

    Raises:
        FileReadError: The file cannot be read as XML at all: ``EMPTY_FILE``, ``COMPRESSED_FILE``,
            ``WRONG_ENCODING``, ``UNKNOWN_ENCODING``, ``UNSUPPORTED_ENCODING``, ``HTML_PAGE``,
            ``NOT_XML``.
    """
    for magic, kind in _MAGIC:
        if data.startswith(magic):
            raise FileReadError(
                "COMPRESSED_FILE",
                f"The file holds {kind} data. It must be plain XML, because its name says so. "
                "Unpack it, or give it the name its content has, and ingest it again.",
            )
    # A file of spaces in UTF-16 is as empty as one in UTF-8; NUL bytes are what an interrupted
    # download leaves that had its space reserved.
    mark = next((bom for bom, _ in _BOMS if data.startswith(bom)), b"")
    if not data[len(mark) :].strip(_WHITE + b"\0"):
        what = "0 bytes" if not data else f"{len(data)} bytes, none of them a character"
        raise FileReadError(
            "EMPTY_FILE",
            f"The file is empty ({what}). A feed without news is still a page, so the transfer "
            "went wrong. Take the file again from its source and ingest it.",
        )
    encoding = _announced(data)
    head = data[encoding.bom_length :][:_HEAD_BYTES]
    if encoding.name.startswith(("utf-16", "utf-32")):
        head = head.decode(encoding.name, "replace").encode("utf-8")
        body = head
    else:
        body = data
        _reject_nul_bytes(data)
    _reject_other_than_xml(head, body)
    return encoding


def _announced(data: bytes) -> Encoding:
    for bom, name in _BOMS:
        if data.startswith(bom):
            return Encoding(name, len(bom))
    for start, name in _WIDE_STARTS:
        if data.startswith(start):
            head = data[:_HEAD_BYTES].decode(name, "replace")
            declared = _declared(head.encode("utf-8"))
            same_family = (name[:6], "ucs-", "iso-10646")
            if declared and declared.lower().replace("_", "-").startswith(same_family):
                return Encoding(name, 0)
            said = f"declares '{declared}'" if declared else "declares no encoding"
            raise FileReadError(
                "WRONG_ENCODING",
                f"The file is in {name.upper()}, has no byte order mark and {said}. XML without "
                "either is UTF-8, and a guess at the bytes would be invented data. Ask the sender "
                "to declare the encoding, or recode the file to UTF-8, and ingest it again.",
            )
    declared = _declared(data[:_HEAD_BYTES])
    return Encoding("utf-8" if declared is None else _known(declared), 0)


def _declared(head: bytes) -> str | None:
    match = _DECLARATION.match(head.lstrip(_WHITE))
    if match is None:
        return None
    return (match[1] if match[1] is not None else match[2]).decode("ascii", "backslashreplace")


def _known(declared: str) -> str:
    """Turn a declared name into a codec that can be cut safely: UTF-8 or one byte a character."""
    every_byte = bytes(range(256))
    try:
        name = codecs.lookup(declared).name
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            text = every_byte.decode(name, "replace")
    except (LookupError, ValueError) as error:
        # ValueError: names with NUL in them, and codecs that refuse every text.
        raise FileReadError(
            "UNKNOWN_ENCODING",
            f"The file declares the encoding '{declared}', which is not known. Its characters "
            "cannot be told without it. Correct the XML declaration, or recode the file to UTF-8, "
            "and ingest it again.",
        ) from error
    if name in ("utf-8", "utf-8-sig"):
        return "utf-8"
    if name.startswith(("utf-16", "utf-32")):
        raise FileReadError(
            "WRONG_ENCODING",
            f"The file declares '{declared}', but its first characters take one byte each. One of "
            "both is wrong, and a guess would be invented data. Correct the XML declaration, or "
            "recode the file, and ingest it again.",
        )
    # Where every byte is one character and ASCII means ASCII, tags can be found in the raw bytes
    # and every offset is exact. Other encodings, such as Shift JIS, can hide `]` in a letter.
    single_byte = len(text) == 256 and text[:128].encode() == every_byte[:128]
    if not single_byte or name.replace("_", "-") in _NO_FILE_ENCODINGS:
        raise FileReadError(
            "UNSUPPORTED_ENCODING",
            f"The file declares the encoding '{declared}'. Only UTF-8, UTF-16, UTF-32 and "
            "single-byte encodings can be cut without a risk of misreading. Recode the file to "
            "UTF-8, correct its XML declaration, and ingest it again.",
        )
    return name


def _reject_nul_bytes(data: bytes) -> None:
    """Refuse text in which NUL is common: it is UTF-16 or binary. A stray one costs its record."""
    if b"\0" not in data:
        return
    body = data.rstrip(b"\0")
    found = body.count(0)
    if found * 8 >= len(body):
        raise FileReadError(
            "WRONG_ENCODING",
            f"{found} of the file's {len(body)} bytes are NUL, which no text in UTF-8 or a "
            "single-byte encoding holds: it is in another encoding or no text. Recode the file to "
            "UTF-8, or declare its encoding, and ingest it again.",
        )


def _reject_other_than_xml(head: bytes, body: bytes) -> None:
    if _HTML.match(head):
        raise FileReadError(
            "HTML_PAGE",
            "The file is an HTML page, most likely an error message of the server, and holds no "
            "record. Take the file again from its source and ingest it.",
        )
    # A page that lost its first bytes can still hold sound records, so one end tag is enough.
    if re.match(rb"<[A-Za-z_:?!\x80-\xff]", head.lstrip(_WHITE + b"\0")) or (
        re.search(rb"</[A-Za-z_][^\s<>]*+\s*+>", body)
    ):
        return
    raise FileReadError(
        "NOT_XML",
        "The file is not XML: it does not start with '<', and no tag ends in it. Its name "
        "promises a page of a feed. Take the file again from its source, or ingest it under the "
        "name its content has.",
    )
