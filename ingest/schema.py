"""Read schemas: the part of Spark's DDL that describes XML, as a tree to walk a record along."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ingest.errors import ContractError

LINEAGE_DDL = (
    "_record_id STRING, _dataset STRING, _batch_id STRING, _source_file STRING, "
    "_file_sha256 STRING, _position INT, _byte_offset BIGINT, _byte_length BIGINT, "
    "_encoding STRING, _ingested_at TIMESTAMP, _payload_sha256 STRING, _read_contract STRING, "
    "_pipeline_version STRING, _supersedes STRING, _attempt INT"
)
"""Columns of every Bronze table of records that say where a record is from, as Spark writes them."""
TEXT_FIELD = "_VALUE"
"""Spark's name for the text of an element that has attributes, too."""

# Names follow Spark's unquoted identifiers, plus what XML names need; others go in backticks.
_TOKEN = re.compile(
    r"(?P<space>[^\S\n]+|--[^\n]*)|(?P<newline>\n)|(?P<mark>[<>:,])|`(?P<quoted>[^`\n]+)`"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<bad>.)"
)


@dataclass(frozen=True)
class Node:
    """One element of a read schema.

    Names are local names, because Spark reads with ``ignoreNamespace=true``.

    Attributes:
        name: Local name; empty for the record itself.
        children: Elements that the schema holds inside this one, by local name.
        attributes: Names of the attributes that the schema holds, without Spark's ``_``.
        is_array: Whether the element may repeat.
        has_text: Whether its own text is taken: a STRING, or a STRUCT with ``_VALUE``.
    """

    name: str
    children: dict[str, Node]
    attributes: frozenset[str]
    is_array: bool
    has_text: bool


class _Token(NamedTuple):
    text: str
    line: int
    is_name: bool


def parse_ddl(text: str) -> Node:
    """Read a schema in Spark's DDL.

    Understood are ``STRING``, ``STRUCT<name: TYPE, ...>`` and ``ARRAY<TYPE>``; ``name TYPE`` at
    the top, ``name: TYPE`` inside a struct. A name that starts with ``_`` is an attribute,
    ``_VALUE`` is the text of an element that has attributes. ``--`` starts a comment.

    Args:
        text: The whole DDL.

    Returns:
        The record's node, with an empty name.

    Raises:
        ContractError: The DDL says something else; the message names the line.
    """
    return _Parser(text).record()


class _Parser:
    """A recursive descent over the tokens; one object reads one DDL."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokenize(text))
        self._end_line = text.count("\n") + 1
        self._next = 0

    def record(self) -> Node:
        return self._fields("", closing=None, is_array=False)

    def _fields(self, name: str, *, closing: str | None, is_array: bool) -> Node:
        """Read fields up to ``closing``, or to the end of the DDL where it is None."""
        children: dict[str, Node] = {}
        attributes: set[str] = set()
        has_text = False
        taken: dict[str, int] = {}
        while True:
            field = self._take("a field name")
            if not field.is_name:
                raise _error(field.line, f"'{field.text}' stands where a field name must")
            # Spark folds case when it looks for columns, so `Id` beside `ID` cannot be told apart.
            if field.text.lower() in taken:
                first = taken[field.text.lower()]
                raise _error(field.line, f"field '{field.text}' is there already, since line {first}")
            taken[field.text.lower()] = field.line
            if closing is not None:
                self._expect(":", f"after the field name '{field.text}'")
            node = self._type(field)
            if not field.text.startswith("_"):
                children[field.text] = node
            elif node.children or node.attributes or node.is_array:
                raise _error(field.line, f"'{field.text}' is an attribute or a text: only STRING")
            elif field.text == TEXT_FIELD:
                has_text = True
            else:
                attributes.add(field.text[1:])
            if self._at_end() and closing is None:
                break
            mark = self._take(f"',' or '{closing}'" if closing else "','")
            if mark.text == closing:
                break
            if mark.text != ",":
                raise _error(mark.line, f"'{mark.text}' stands where ',' or the end must")
        return Node(name, children, frozenset(attributes), is_array, has_text)

    def _type(self, field: _Token, *, is_array: bool = False) -> Node:
        word = self._take(f"the type of '{field.text}'")
        kind = word.text.upper()
        if kind == "STRING":
            return Node(field.text, {}, frozenset(), is_array, has_text=True)
        if kind == "STRUCT":
            self._expect("<", "after STRUCT")
            return self._fields(field.text, closing=">", is_array=is_array)
        if kind == "ARRAY" and not is_array:
            self._expect("<", "after ARRAY")
            node = self._type(field, is_array=True)
            self._expect(">", f"after the type of the elements of '{field.text}'")
            return node
        if kind == "ARRAY":
            raise _error(word.line, f"'{field.text}' is an array of arrays, which XML cannot hold")
        raise _error(
            word.line,
            f"type '{word.text}' of '{field.text}'. Only STRING, STRUCT<...> and ARRAY<...> can "
            "be read: typing is the judge's work, and every field is nullable",
        )

    def _at_end(self) -> bool:
        return self._next >= len(self._tokens)

    def _take(self, wanted: str) -> _Token:
        if self._at_end():
            raise _error(self._end_line, f"the schema ends where {wanted} must stand")
        self._next += 1
        return self._tokens[self._next - 1]

    def _expect(self, mark: str, where: str) -> None:
        token = self._take(f"'{mark}' {where}")
        if token.text != mark or token.is_name:
            raise _error(token.line, f"'{token.text}' stands {where}, where '{mark}' must")


def _tokenize(text: str) -> Iterator[_Token]:
    line = 1
    for match in _TOKEN.finditer(text):
        if match["newline"]:
            line += 1
        elif match["bad"]:
            raise _error(line, f"'{match['bad']}' has no meaning here")
        elif match["mark"]:
            yield _Token(match["mark"], line, is_name=False)
        elif match["word"] or match["quoted"]:
            yield _Token(match["word"] or match["quoted"], line, is_name=True)


def _error(line: int, what: str) -> ContractError:
    return ContractError(f"schema line {line}: {what}.")
