"""Schemas of targets: how they are written, which types widen into which, and how two are merged.

Types are those of Spark, whose Python classes need no JVM. Names are told apart as Spark does: not
by their case.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ingest.errors import ContractError

MAX_DEPTH = 32
"""How many objects and lists may stand inside each other, the message's data counted.

Delta keeps a schema as JSON, with three levels for each object, and DuckDB reads no more than 128 of
them: a table 50 deep can be written, and is read by Spark alone.
"""

_PRIMITIVES: dict[str, DataType] = {
    "string": StringType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
}
# What each type widens into, without losing a value. A date has no zone, so it is no instant: it widens
# into a time without a zone. A bigint has more digits than a double.
_WIDER: dict[str, tuple[str, ...]] = {
    "int": ("bigint", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
}
# Delta and Parquet refuse some of these, and SQL splits a path at dots.
_BAD_IN_NAMES = re.compile(r"[ ,;{}()\n\t=.`\x00-\x1f\x7f]")
_LONGEST_NAME = 255
OUR_COLUMNS = {
    "_message_id": StringType(),
    "_record_id": StringType(),
    "_key": StringType(),
    "_event_ts": TimestampType(),
    "_processed_timestamp": TimestampType(),
    "_retry_number": IntegerType(),
    "_landed_at": TimestampType(),
    "_attempt": IntegerType(),
    "_source_file": StringType(),
    "_file_sha256": StringType(),
    "_position": LongType(),
}
"""The columns that the job itself adds to a target, before those of the messages."""


PAYLOAD, FAILURE_REASONS = "_payload", "_failure_reasons"
"""Columns that rows have beside these while rules judge them."""
_RESERVED = {*OUR_COLUMNS, PAYLOAD, FAILURE_REASONS}


@dataclass(frozen=True, order=True)
class Conflict:
    """Why a message does not fit a schema, and no widening helps.

    Attributes:
        path: Of the field, with dots; ``[]`` is an element of a list.
        code: A stable UPPER_SNAKE name of the kind.
        message: What is wrong, in words, without the value: it may be personal.
    """

    path: str
    code: str
    message: str

    def __str__(self) -> str:
        """As it is told."""
        return f"{self.code} at {self.path}: {self.message}"


@dataclass
class Merged:
    """Two schemas made one. Where they conflict it holds what the first one says."""

    schema: DataType
    conflicts: list[Conflict] = field(default_factory=list)


def merge(first: StructType, second: StructType) -> Merged:
    """Merge two schemas: all fields of both, each of the narrowest type that holds both's values.

    Where there is no conflict, neither the order of two nor the grouping of three changes anything
    but the order of the fields; and whether there is a conflict is the same in either order.

    Args:
        first: Its fields come first.
        second: What is added to it.
    """
    merged = Merged(first)
    merged.schema = _merge(first, second, "", merged.conflicts)
    return merged


def _merge(first: DataType, second: DataType, path: str, conflicts: list[Conflict]) -> DataType:
    if first is second or first == second:
        return first
    # The null type stands where nothing was told yet: anything is more.
    if isinstance(first, NullType) or isinstance(second, NullType):
        return second if isinstance(first, NullType) else first
    if isinstance(first, StructType) and isinstance(second, StructType):
        return _merge_fields(first, second, path, conflicts)
    if isinstance(first, ArrayType) and isinstance(second, ArrayType):
        element = _merge(first.elementType, second.elementType, f"{path}[]", conflicts)
        return ArrayType(element)
    wider = widened(first, second)
    if wider is None:
        conflicts.append(type_conflict(path, first, f"{kind_of(second)} ({second.simpleString()[:40]})"))
        return first
    return wider


def _merge_fields(
    first: StructType, second: StructType, path: str, conflicts: list[Conflict]
) -> StructType:
    fields = {f.name: f for f in first.fields}
    folded = {name.lower(): name for name in fields}
    for other in second.fields:
        inner = joined(path, other.name)
        known = folded.get(other.name.lower())
        if known is None:
            fields[other.name] = other
            folded[other.name.lower()] = other.name
        elif known != other.name:
            conflicts.append(case_conflict(inner, known))
        else:
            kind = _merge(fields[known].dataType, other.dataType, inner, conflicts)
            fields[known] = StructField(known, kind)
    return StructType(list(fields.values()))


def widened(first: DataType, second: DataType) -> DataType | None:
    """The narrowest simple type that holds the values of both without loss; None if there is none."""
    if first == second:
        return first
    a, b = first.simpleString(), second.simpleString()
    # Of a type and what it widens into, in the order of _WIDER: the first in common is the narrowest.
    above = (b, *_WIDER.get(b, ()))
    for name in (a, *_WIDER.get(a, ())):
        if name in above:
            return _PRIMITIVES[name]
    return None


def joined(path: str, name: str) -> str:
    """The path of a field inside another."""
    return f"{path}.{name}" if path else name


def kind_of(kind: DataType) -> str:
    """What a type is in JSON, in words."""
    if isinstance(kind, StructType):
        return "an object"
    if isinstance(kind, ArrayType):
        return "a list"
    if isinstance(kind, (StringType, DateType, TimestampType, TimestampNTZType)):
        return "a text"
    if isinstance(kind, BooleanType):
        return "true or false"
    return "a number"


def type_conflict(path: str, have: DataType, found: str) -> Conflict:
    """The conflict of a value with the type of its column."""
    name = have.simpleString() if not isinstance(have, (StructType, ArrayType)) else kind_of(have)
    return Conflict(
        path, "TYPE_CONFLICT", f"{found} stands where the table has {name}, which cannot hold both"
    )


def case_conflict(path: str, known: str) -> Conflict:
    """The conflict of two names that Spark cannot tell apart."""
    return Conflict(
        path,
        "NAME_DIFFERS_BY_CASE",
        f"the name differs from '{known}' by case alone, and Spark cannot tell the two apart",
    )


def name_conflict(path: str, name: str, *, is_top: bool) -> Conflict | None:
    """Why a name can be no column's; None where it can. Words that SQL reserves can."""
    if not name:
        return Conflict(path, "NAME_NOT_ALLOWED", "the name is empty")
    if len(name) > _LONGEST_NAME:
        return Conflict(
            path[:80], "NAME_NOT_ALLOWED", f"the name has more than {_LONGEST_NAME} characters"
        )
    if _BAD_IN_NAMES.search(name):
        return Conflict(
            path,
            "NAME_NOT_ALLOWED",
            "no column's name holds a blank, a dot, a backtick, a control character or any of ,;{}()=",
        )
    if is_top and name.lower() in _RESERVED:
        return Conflict(path, "NAME_NOT_ALLOWED", "a column of that name is there for the job's own use")
    return None


def plain(kind: DataType) -> DataType:
    """A type as merging compares it: what a table's log says beside name and type is left out."""
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, plain(f.dataType)) for f in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(plain(kind.elementType))
    return kind


def column_count(kind: DataType) -> int:
    """How many columns of single values a type has: what a table's width is measured by."""
    if isinstance(kind, StructType):
        return sum(column_count(f.dataType) for f in kind.fields)
    if isinstance(kind, ArrayType):
        return column_count(kind.elementType)
    return 1


def changes(before: StructType, after: StructType) -> list[str]:
    """What a merge changed, a line each: ``add path type`` and ``widen path type to type``."""
    return list(_changes(before, after, ""))


def _changes(before: DataType, after: DataType, path: str) -> Iterator[str]:
    if isinstance(before, StructType) and isinstance(after, StructType):
        known = {f.name: f.dataType for f in before.fields}
        for item in after.fields:
            inner = joined(path, item.name)
            if item.name in known:
                yield from _changes(known[item.name], item.dataType, inner)
            else:
                yield f"add {inner} {written(item.dataType)}"
    elif isinstance(before, ArrayType) and isinstance(after, ArrayType):
        yield from _changes(before.elementType, after.elementType, f"{path}[]")
    elif before != after:
        yield f"widen {path} {written(before)} to {written(after)}"


def written(kind: DataType) -> str:
    """A type as contracts and Spark's DDL write it, names in backticks."""
    if isinstance(kind, StructType):
        return "struct<" + ",".join(f"`{f.name}`:{written(f.dataType)}" for f in kind.fields) + ">"
    if isinstance(kind, ArrayType):
        return f"array<{written(kind.elementType)}>"
    return kind.simpleString()


def columns_written(schema: StructType) -> str:
    """A schema as a list of columns: what ``create table`` and ``schema_changes`` hold."""
    return ", ".join(f"`{f.name}` {written(f.dataType)}" for f in schema.fields)


def with_ours(schema: StructType) -> StructType:
    """The schema of a target's table: the job's own columns, then those of the messages."""
    return StructType([*(StructField(n, t) for n, t in OUR_COLUMNS.items()), *schema.fields])


_TOKEN = re.compile(r"\s*(?:`([^`]+)`|([A-Za-z_]\w*(?:\(\s*\d+\s*,\s*\d+\s*\))?)|([<>:,]))")


def parse_type(text: str) -> DataType:
    """Read a type as it stands in ``data_type`` of a contract, the counterpart of ``written``.

    Raises:
        ContractError: It is no type that a target can have.
    """
    tokens: list[tuple[str, bool]] = []
    position = 0
    stripped = text.strip()
    while position < len(stripped):
        found = _TOKEN.match(stripped, position)
        if found is None:
            raise ContractError(f"'{text}' is no type: '{stripped[position:]}' has no meaning in it.")
        quoted, word, mark = found.groups()
        tokens.append((quoted or word or mark, quoted is not None))
        position = found.end()
    kind, rest = _parsed(tokens, text)
    if rest:
        raise ContractError(f"'{text}' is no type: it goes on after its end with '{rest[0][0]}'.")
    return kind


_Tokens = list[tuple[str, bool]]


def _parsed(tokens: _Tokens, text: str) -> tuple[DataType, _Tokens]:
    word = tokens[0][0].lower() if tokens else ""
    if word in _PRIMITIVES:
        return _PRIMITIVES[word], tokens[1:]
    if number := re.fullmatch(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)", word):
        precision, scale = int(number[1]), int(number[2])
        if 0 < precision <= 38 and scale <= precision:
            return DecimalType(precision, scale), tokens[1:]
    if word == "array":
        element, rest = _parsed(_after("<", tokens[1:], text), text)
        return ArrayType(element), _after(">", rest, text)
    if word == "struct":
        fields: list[StructField] = []
        rest = _after("<", tokens[1:], text)
        while True:
            if not rest:
                raise ContractError(f"'{text}' is no type: it ends inside a struct.")
            name = rest[0][0]
            kind, rest = _parsed(_after(":", rest[1:], text), text)
            fields.append(StructField(name, kind))
            if not rest or rest[0][0] != ",":
                return StructType(fields), _after(">", rest, text)
            rest = rest[1:]
    raise ContractError(
        f"'{text}' holds '{word}', which is no type of a target. Use {', '.join(_PRIMITIVES)}, "
        f"decimal(p,s), array<...> or struct<name:...>."
    )


def _after(mark: str, tokens: _Tokens, text: str) -> _Tokens:
    if not tokens or tokens[0] != (mark, False):
        raise ContractError(f"'{text}' is no type: a '{mark}' is missing.")
    return tokens[1:]
