"""Which encoding a file is in, and which files are no XML or no CSV to begin with.

XML says itself how it is encoded. Of CSV the contract may say it, a byte order mark does, and else it
is looked for in the bytes: what was found there is told, because it is a guess.
"""

from __future__ import annotations

import codecs
import re
import warnings
from typing import NamedTuple

from ingest.capture.streams import ByteStream, read_up_to
from ingest.errors import FileReadError


class Encoding(NamedTuple):
    """How a file's bytes are to be read.

    Attributes:
        name: A Python codec that knows nothing of byte order marks, so that any slice of the
            file decodes by itself: ``utf-8``, ``utf-16-le``, ``iso8859-1``, ...
        bom_length: Bytes of the byte order mark, 0 where there is none.
        evidence: Why this encoding, where nobody declared it and it is not the default.
    """

    name: str
    bom_length: int
    evidence: str = ""


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
HEAD_BYTES = 4096
"""What tells a byte order mark, an archive or an HTML page."""
_WHITE = b" \t\r\n"
_DECLARATION = re.compile(
    rb"<\?xml\s[^<>]{0,400}?\bencoding\s*=\s*(?:\"([^\"<>]{0,200})\"|'([^'<>]{0,200})')"
)
_HTML = re.compile(
    rb"\s*(?:<\?xml[^<>]*\?>\s*)?(?>(?:<!--(?>(?:[^-]++|-(?!->))*)-->\s*)*)"
    rb"<(?:!doctype\s+html\b|html[\s>]|head[\s>]|body[\s>])",
    re.IGNORECASE,
)
# Python codecs that call themselves text encodings and pass as supersets of ASCII, but are not
# how anybody stores a file.
_NO_FILE_ENCODINGS = {"unicode-escape", "raw-unicode-escape"}
# What a byte means in these depends on bytes far before it.
_SHIFTING = ("iso2022", "iso-2022", "hz", "utf-7")
# Of these a character's second byte is never below 0x30, so that commas, semicolons, quotes and line
# ends can be found in the raw bytes. Encodings that shift between states are not among them.
_LEAD_BYTE_ENCODINGS = {
    *("big5", "cp932", "cp949", "cp950", "euc_jp", "euc_kr", "gb18030", "gb2312", "gbk", "shift_jis"),
}
_LOWEST_SECOND_BYTE = "0"
_NO_TEXT = (
    (b"PAR1", "Parquet"),
    (b"%PDF", "a PDF"),
    (b"\xd0\xcf\x11\xe0", "an old spreadsheet"),
    (b"SQLite format 3", "a database"),
)
_UTF8_CHARACTER = re.compile(
    rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}"
)
_CUT_CHARACTER = re.compile(rb"[\x80-\xff]{1,3}\Z")
_NO_WINDOWS_1252 = bytes((0x81, 0x8D, 0x8F, 0x90, 0x9D))
_NO_HIGH_BYTES = bytes(range(0x80))
# Fewer bytes than this may be damage in a file that is UTF-8.
_WESTERN_BYTES = 3


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
    _reject_packed(data, "XML")
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
    head = data[encoding.bom_length :][:HEAD_BYTES]
    if encoding.name.startswith(("utf-16", "utf-32")):
        head = head.decode(encoding.name, "replace").encode("utf-8")
        body = head
    else:
        body = data
        _reject_nul_bytes(data)
    _reject_other_than_xml(head, body)
    return encoding


def detect_csv(stream: ByteStream, declared: str | None, signs: str) -> Encoding:
    """Say how a CSV file is encoded: by its mark, as declared, else by its bytes.

    Where nothing is declared and there is no mark, a file is UTF-16 if NUL is every second byte of
    its start, and Windows-1252 if at least three of its bytes are above 0x7F, none of them are part
    of a character in UTF-8, and all are characters in Windows-1252. Else it is UTF-8, and a record
    that does not decode is damaged.

    Args:
        stream: The file from its first byte, unpacked. It is read as far as the question needs.
        declared: The encoding that the contract declares, if it does.
        signs: Delimiter, quote and escape.

    Returns:
        The encoding, with its evidence where it was guessed.

    Raises:
        FileReadError: The file is something else than CSV (``COMPRESSED_FILE``, ``HTML_PAGE``,
            ``NOT_CSV``), or mark and declaration contradict each other, or the declared encoding
            cannot be cut (``WRONG_ENCODING``).
    """
    start = read_up_to(stream, HEAD_BYTES)
    _reject_packed(start, "CSV")
    marked = next((Encoding(name, len(bom)) for bom, name in _BOMS if start.startswith(bom)), None)
    head = start[marked.bom_length if marked else 0 :]
    _reject_other_than_csv(head)
    if declared is not None:
        return _declared_for_csv(declared, marked, signs)
    if marked:
        if marked.name.startswith("utf-32"):
            raise _wrong(f"The file begins with the mark of {marked.name}, which no feed uses.")
        return marked
    return _wide_by_bytes(start) or _western_by_bytes(start, stream) or Encoding("utf-8", 0)


def _declared_for_csv(declared: str, marked: Encoding | None, signs: str) -> Encoding:
    try:
        name = codecs.lookup(declared.strip()).name
        is_safe = is_single_byte(name)
    except (LookupError, ValueError) as error:
        raise _wrong(
            f"The contract declares the encoding {declared!r}, which Python does not know. Declare "
            f"one such as utf-8, windows-1252, iso-8859-1 or utf-16-le."
        ) from error
    name = "utf-8" if name == "utf-8-sig" else name
    if marked and marked.name != name and not (name == "utf-16" and marked.name[:6] == name):
        raise _wrong(
            f"The file begins with the mark of {marked.name}, and the contract declares {name}: read "
            f"so, its text would be wrong. Correct the declaration, or ask for {name}."
        )
    if name == "utf-16" and not marked:
        raise _wrong(
            "The contract declares utf-16 and the file does not begin with its mark, so that its "
            "byte order is not known. Declare utf-16-le (as Windows writes it) or utf-16-be."
        )
    if marked or name in ("utf-8", "utf-16-le", "utf-16-be") or is_safe:
        return marked or Encoding(name, 0)
    if name in _LEAD_BYTE_ENCODINGS and max(signs) < _LOWEST_SECOND_BYTE:
        return Encoding(name, 0)
    raise _wrong(
        f"Encoding {name} cannot be cut: what looks like a delimiter, quote or escape among "
        f"{' '.join(signs)} may be half of a character in it. Ask for UTF-8."
    )


def _wrong(message: str) -> FileReadError:
    return FileReadError("WRONG_ENCODING", message)


def _wide_by_bytes(start: bytes) -> Encoding | None:
    """UTF-16 without its mark: of text that is mostly ASCII every second byte is NUL."""
    pairs = len(start) // 2
    if pairs < 2:
        return None
    even, odd = start[::2].count(0), start[1::2].count(0)
    for name, nul, other in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
        if nul * 2 > pairs and other * 20 < pairs:
            return Encoding(name, 0, f"{nul} of the first {pairs} pairs of bytes hold a NUL")
    return None


def _western_by_bytes(start: bytes, stream: ByteStream) -> Encoding | None:
    """Windows-1252: no byte above 0x7F is part of UTF-8. The first that is ends the search."""
    found = 0
    block = start
    while block:
        if not block.isascii():
            if _UTF8_CHARACTER.search(block):
                return None
            cut = _CUT_CHARACTER.search(block)
            # A character that the block's end cuts in two is looked at with the next block.
            carry = cut.group() if cut else b""
            high = block[: len(block) - len(carry)].translate(None, _NO_HIGH_BYTES)
            if high.translate(None, _NO_WINDOWS_1252) != high:
                return None
            found += len(high)
        else:
            carry = b""
        more = read_up_to(stream, 1 << 20)
        if not more:
            if carry.translate(None, _NO_WINDOWS_1252) != carry:
                return None
            found += len(carry)
        block = carry + more if more else b""
    if found < _WESTERN_BYTES:
        return None
    return Encoding(
        "cp1252", 0, f"{found} bytes are above 0x7F, none of them part of a character in UTF-8"
    )


def _reject_packed(start: bytes, what: str) -> None:
    for magic, kind in _MAGIC:
        if start.startswith(magic):
            raise FileReadError(
                "COMPRESSED_FILE",
                f"The file holds {kind} data. It must be plain {what}, because its name says so. "
                "Unpack it, or give it the name its content has, and ingest it again.",
            )


def _reject_other_than_csv(head: bytes) -> None:
    _reject_html(head)
    for magic, what in _NO_TEXT:
        if head.startswith(magic):
            raise FileReadError(
                "NOT_CSV", f"The file is {what} and no text. Ask for CSV, or export it from there."
            )
    if head.lstrip().lower().startswith(b"<?xml"):
        raise FileReadError("NOT_CSV", "The file is XML and no CSV. Ask for CSV.")


def _announced(data: bytes) -> Encoding:
    for bom, name in _BOMS:
        if data.startswith(bom):
            return Encoding(name, len(bom))
    for start, name in _WIDE_STARTS:
        if data.startswith(start):
            head = data[:HEAD_BYTES].decode(name, "replace")
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
    declared = _declared(data[:HEAD_BYTES])
    return Encoding("utf-8" if declared is None else _known(declared), 0)


def _declared(head: bytes) -> str | None:
    match = _DECLARATION.match(head.lstrip(_WHITE))
    if match is None:
        return None
    return (match[1] if match[1] is not None else match[2]).decode("ascii", "backslashreplace")


def _known(declared: str) -> str:
    """Turn a declared name into a codec that can be cut safely: UTF-8 or one byte a character."""
    try:
        name = codecs.lookup(declared).name
        is_safe = is_single_byte(name)
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
    if not is_safe:
        raise FileReadError(
            "UNSUPPORTED_ENCODING",
            f"The file declares the encoding '{declared}'. Only UTF-8, UTF-16, UTF-32 and "
            "single-byte encodings can be cut without a risk of misreading. Recode the file to "
            "UTF-8, correct its XML declaration, and ingest it again.",
        )
    return name


def is_single_byte(name: str) -> bool:
    """Whether every byte is one character and ASCII means ASCII.

    Then tags and delimiters can be found in the raw bytes and every offset is exact. Other encodings,
    such as Shift JIS, can hide `]` in a letter.

    Raises:
        LookupError: The codec is not for text, or is not known.
        ValueError: It refuses every text.
    """
    every_byte = bytes(range(256))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        text = every_byte.decode(name, "replace")
    ascii_is_ascii = len(text) == 256 and text[:128].encode() == every_byte[:128]
    name = name.replace("_", "-")
    return ascii_is_ascii and name not in _NO_FILE_ENCODINGS and not name.startswith(_SHIFTING)


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


def _reject_html(head: bytes) -> None:
    if _HTML.match(head):
        raise FileReadError(
            "HTML_PAGE",
            "The file is an HTML page, most likely an error message of the server, and holds no "
            "record. Take the file again from its source and ingest it.",
        )


def _reject_other_than_xml(head: bytes, body: bytes) -> None:
    _reject_html(head)
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
