"""How a feed writes its CSV, and the patterns that follow from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ingest.errors import ContractError

_BOUNDS = ("max_record_bytes", "max_record_lines")
LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True)
class CsvFormat:
    """How a feed writes its CSV.

    Attributes:
        columns: The contract's columns, in its order.
        delimiter: One ASCII character.
        quote: One ASCII character; empty where the feed does not quote.
        escape: What stands before a quote that is text. The quote itself means doubled quotes.
        header: Whether the first record names the columns.
        encoding: None: by byte order mark, else UTF-8.
        trailing_delimiter: Whether every record ends with a delimiter after its last field.
        aliases: Column names of files, and the contract's column that each means.
        max_record_bytes: The longest record that spans lines, in bytes without its line end.
        max_record_lines: The most lines that a record may span.

    Raises:
        ContractError: The format cannot work.
    """

    columns: tuple[str, ...]
    delimiter: str = ","
    quote: str = '"'
    escape: str = '"'
    header: bool = True
    encoding: str | None = None
    trailing_delimiter: bool = False
    aliases: Mapping[str, str] = field(default_factory=dict)
    max_record_bytes: int = 1 << 20
    max_record_lines: int = 100

    def __post_init__(self) -> None:
        signs = {"delimiter": self.delimiter, "quote": self.quote, "escape": self.escape}
        for name, sign in signs.items():
            if name != "delimiter" and not self.quote:
                continue
            if len(sign) != 1 or not sign.isascii() or sign in "\r\n\0":
                raise ContractError(
                    f"CSV {name} is {sign!r}. It must be one ASCII character that ends no line, "
                    f"because records are cut in bytes. Mend it in the contract's feed."
                )
        if self.delimiter in (self.quote, self.escape if self.quote else ""):
            raise ContractError(
                f"CSV delimiter {self.delimiter!r} is the quote or the escape as well, so that no "
                f"field has an end. Mend it in the contract's feed."
            )
        for name, column in self.aliases.items():
            if column not in self.columns:
                raise ContractError(
                    f"CSV alias {name!r} stands for {column!r}, which is no column of the contract. "
                    f"Columns are {', '.join(self.columns)}. Mend it in the contract's feed."
                )
        for name, bound in {
            "max_record_bytes": self.max_record_bytes,
            "max_record_lines": self.max_record_lines,
        }.items():
            if bound < 1:
                raise ContractError(
                    f"CSV {name} is {bound}. It is the bound at which an unclosed quote is taken as "
                    f"text, and must be 1 or more. Mend it in the contract's feed."
                )

    @classmethod
    def of_feed(cls, columns: tuple[str, ...], feed: Mapping[str, Any]) -> CsvFormat:
        """The format that the ``feed`` of a contract describes.

        Args:
            columns: The contract's columns, in its order.
            feed: Its keys are explained in docs/contracts.md.

        Raises:
            ContractError: The format cannot work.
        """
        quote = feed.get("quote", '"')
        return cls(
            columns=columns,
            delimiter=feed.get("delimiter", ","),
            quote=quote,
            escape=feed.get("escape", quote),
            header=bool(feed.get("header", True)),
            encoding=feed.get("encoding"),
            trailing_delimiter=bool(feed.get("trailing_delimiter", False)),
            aliases={str(name): str(column) for name, column in feed.get("aliases", {}).items()},
            **{bound: int(feed[bound]) for bound in _BOUNDS if bound in feed},
        )

    @property
    def signs(self) -> str:
        """Delimiter, quote and escape, as far as they are in use."""
        return self.delimiter + (self.quote + self.escape if self.quote else "")

    @cached_property
    def blanks(self) -> str:
        """What a blank line may hold."""
        return " \t".replace(self.delimiter, "")

    @cached_property
    def field_pattern(self) -> bytes:
        """A pattern for the text of one field, quotes included. It never backtracks far.

        Here and in the other patterns a group is repeated inside an atomic one: until Python 3.11.5 a
        possessive repeat of a group (``(...)*+``) may match less than it should.
        """
        d = re.escape(self.delimiter.encode())
        if not self.quote:
            return rb"[^" + d + rb"\r\n]*+"
        q = re.escape(self.quote.encode())
        e = re.escape(self.escape.encode())
        if self.escape == self.quote:
            body = rb"(?>(?:[^" + q + rb"]++|" + q + q + rb")*)"
            body_on_line = rb"(?>(?:[^" + q + rb"\r\n]++|" + q + q + rb")*)"
        else:
            body = rb"(?>(?:[^" + q + e + rb"]++|" + e + rb"[\s\S])*)"
            body_on_line = rb"(?>(?:[^" + q + e + rb"\r\n]++|" + e + rb"[^\r\n])*)"
        return (
            rb"(?:" + q + body + q + rb"(?=[" + d + rb"\r\n]|\Z)"
            rb"|" + q + body_on_line + q + rb"[^" + d + rb"\r\n]++"
            rb"|(?!" + q + rb")[^" + d + rb"\r\n]*+)"
        )

    @cached_property
    def field_regex(self) -> re.Pattern[bytes]:
        """Matches one field."""
        return re.compile(self.field_pattern)

    @cached_property
    def record_regex(self) -> re.Pattern[bytes]:
        """Matches one record of any number of fields, up to its line end or an open quote."""
        d = re.escape(self.delimiter.encode())
        return re.compile(self.field_pattern + rb"(?>(?:" + d + self.field_pattern + rb")*)")

    def exact_regex(self, fields: int) -> re.Pattern[bytes]:
        """Matches one record of so many fields with its line end, which is group 1."""
        d = re.escape(self.delimiter.encode())
        more = rb"(?:" + d + self.field_pattern + rb"){%d}" % (fields - 1)
        return re.compile(self.field_pattern + more + rb"(\r\n|\n|\r)")

    def fields(self, raw: bytes) -> list[bytes]:
        """The fields of a record's text as they are written, quotes included."""
        found: list[bytes] = []
        position = 0
        while match := self.field_regex.match(raw, position):
            found.append(match.group())
            position = match.end() + 1
            if match.end() == len(raw):
                break
        return found

    def unquoted(self, text: str) -> str:
        """The value that a field's text stands for, without blanks around it."""
        text = text.strip()
        q = self.quote
        if q and len(text) > 1 and text[0] == text[-1] == q:
            text = text[1:-1].replace(self.escape + q, q)
        return text.strip()

    def canonical(self, name: str) -> str:
        """A column's name without what may differ between files: case, and blanks around words."""
        return " ".join(name.replace("\ufeff", "").split()).casefold()


def line_ends(raw: bytes) -> int:
    """How many line ends there are; CRLF is one."""
    return raw.count(b"\n") + raw.count(b"\r") - raw.count(b"\r\n")


def header_marker(names: list[str]) -> str:
    """What a record must hold, in lower case, to be worth a look as a header.

    Args:
        names: The columns that a header names, canonical.
    """
    # Bytes can be lowered in ASCII only.
    runs = [run for name in names for run in re.findall(r"[\x21-\x7e]+", name)]
    return max(runs or names, key=len, default="")
