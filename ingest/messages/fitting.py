"""Whether a message's data fits a schema, what it would need changed, and its values as typed ones."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

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

from ingest.messages.schemas import (
    MAX_DEPTH,
    Conflict,
    case_conflict,
    changes,
    column_count,
    joined,
    merge,
    name_conflict,
    type_conflict,
)
from ingest.value_types import INSTANT

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_LOCAL = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?\Z")
_INT = 2**31
_BIGINT = 2**63
# Up to there a double holds every whole number, and a float.
_WHOLE_IN_DOUBLE = 2**53
_WHOLE_IN_FLOAT = 2**24
# Beyond this many digits no type holds a number, and making an integer of it would cost much.
_MOST_DIGITS = 40


@dataclass(frozen=True)
class Asked:
    """What a message asks of a schema. It fits if it asks for nothing and nothing is in conflict.

    Attributes:
        wanted: The fields that lack or must be wider, and nothing else.
        conflicts: What no change can help.
    """

    wanted: StructType
    conflicts: tuple[Conflict, ...]

    @property
    def fits(self) -> bool:
        """Whether the message can be written as the schema is."""
        return not self.wanted.fields and not self.conflicts

    def error(self, schema: StructType) -> str:
        """Why the message does not fit, in words and with every path."""
        told = [str(conflict) for conflict in self.conflicts]
        lacking = changes(schema, _as_struct(merge(schema, self.wanted).schema))
        if lacking:
            told.append("SCHEMA_LACKS: the table needs: " + "; ".join(lacking[:20]))
            if len(lacking) > 20:
                told[-1] += f"; and {len(lacking) - 20} more"
        return "\n".join(told)


def ask(schema: StructType, data: dict[str, Any], max_columns: int) -> Asked:
    """Compare a message's data with a schema.

    A null, an empty list and an empty object ask for nothing: they do not say which type they are.

    Args:
        schema: Of the target, without the job's own columns.
        data: As ``read_envelope`` gives it: whole numbers as int, others as Decimal.
        max_columns: The widest that the target may become, in single values.
    """
    asking = _Asking()
    wanted = _as_struct(_told(asking.of(data, schema, "", 1)))
    conflicts = asking.conflicts
    if wanted.fields:
        wider = _as_struct(merge(schema, wanted).schema)
        if wider == schema:
            wanted = _as_struct(None)
        elif not conflicts:
            conflicts += _too_wide(wider, max_columns)
    return Asked(wanted, tuple(sorted(conflicts)))


def _told(kind: DataType | None) -> DataType | None:
    """A type without the parts of which nothing was told; None if nothing is left."""
    if isinstance(kind, StructType):
        fields = [(f.name, _told(f.dataType)) for f in kind.fields]
        known = [StructField(name, inner) for name, inner in fields if inner is not None]
        return StructType(known) if known else None
    if isinstance(kind, ArrayType):
        element = _told(kind.elementType)
        return None if element is None else ArrayType(element)
    return None if isinstance(kind, NullType) else kind


def _too_wide(schema: StructType, max_columns: int) -> list[Conflict]:
    width = column_count(schema)
    if width <= max_columns:
        return []
    said = f"the table would have {width:,} columns of single values and may have {max_columns:,}"
    return [Conflict("data", "TOO_MANY_COLUMNS", said)]


class _Asking:
    """A walk over one message."""

    def __init__(self) -> None:
        self.conflicts: list[Conflict] = []

    def of(self, value: Any, have: DataType | None, path: str, depth: int) -> DataType | None:
        """What a column must become to hold a value; None if it holds it, or nothing can.

        Where a value does not say its type, the answer holds the null type: an empty list is a list
        all the same, and no number beside it in a list can be one.
        """
        if value is None:
            return None
        if isinstance(have, NullType):
            have = None
        if isinstance(value, (dict, list)) and depth > MAX_DEPTH:
            self._conflict(
                path, "TOO_DEEP", f"more than {MAX_DEPTH} objects and lists stand in each other"
            )
            return None
        if isinstance(value, dict):
            return self._of_object(value, have, path, depth)
        if isinstance(value, list):
            return self._of_list(value, have, path, depth)
        if isinstance(value, bool):
            return self._of_known(BooleanType(), have, path, "true or false")
        if isinstance(value, str):
            return self._of_text(value, have, path)
        return self._of_number(value, have, path)

    def _conflict(self, path: str, code: str, message: str) -> None:
        self.conflicts.append(Conflict(path or "data", code, message))

    def _clash(self, path: str, have: DataType, found: str) -> None:
        self.conflicts.append(type_conflict(path or "data", have, found))

    def _of_object(
        self, value: dict[str, Any], have: DataType | None, path: str, depth: int
    ) -> DataType | None:
        if have is not None and not isinstance(have, StructType):
            self._clash(path, have, "an object")
            return None
        known = {f.name: f.dataType for f in have.fields} if have is not None else {}
        folded = {name.lower(): name for name in known}
        wanted = []
        for name, inner_value in value.items():
            if inner_value is None:
                # It says nothing, under whatever name: else it fits or not by what stands beside it.
                continue
            inner = joined(path, name)
            same = folded.setdefault(name.lower(), name)
            if same != name:
                self.conflicts.append(case_conflict(inner, same))
                continue
            if name not in known:
                conflict = name_conflict(inner, name, is_top=not path)
                if conflict is not None:
                    self.conflicts.append(conflict)
                    continue
            needed = self.of(inner_value, known.get(name), inner, depth + 1)
            if needed is not None:
                wanted.append(StructField(name, needed))
        return StructType(wanted) if wanted or have is None else None

    def _of_list(
        self, value: list[Any], have: DataType | None, path: str, depth: int
    ) -> DataType | None:
        if have is not None and not isinstance(have, ArrayType):
            self._clash(path, have, "a list")
            return None
        known = have.elementType if have is not None else NullType()
        element = known
        for item in value:
            needed = self.of(item, element, f"{path}[]", depth + 1)
            if needed is not None:
                element = _grown(element, needed)
        return ArrayType(element) if have is None or element != known else None

    def _of_known(self, kind: DataType, have: DataType | None, path: str, found: str) -> DataType | None:
        """What a value of one type asks for that fits no other."""
        if have is None:
            return kind
        if have != kind:
            self._clash(path, have, found)
        return None

    def _of_text(self, text: str, have: DataType | None, path: str) -> DataType | None:
        if have is None:
            return StringType()
        if isinstance(have, StringType):
            return None
        if isinstance(have, (DateType, TimestampNTZType)):
            if as_date(text) is not None:
                return None
            if as_local(text) is not None:
                return TimestampNTZType() if isinstance(have, DateType) else None
        elif isinstance(have, TimestampType) and as_instant(text) is not None:
            return None
        if as_instant(text) is not None:
            self._clash(path, have, "a text that is an instant with its zone")
        elif as_local(text) is not None or as_date(text) is not None:
            self._clash(path, have, "a text that is a time without a zone")
        else:
            self._clash(path, have, "a text")
        return None

    def _of_number(self, number: int | Decimal, have: DataType | None, path: str) -> DataType | None:
        for kind in _numbers_from(number, have):
            if number_as(number, kind) is not None:
                return None if kind == have else kind
        if have is not None and not _is_number(have):
            self._clash(path, have, "a number")
        elif (have is None and isinstance(number, int)) or Decimal(number).adjusted() >= _MOST_DIGITS:
            self._conflict(path, "NUMBER_TOO_LARGE", "no type of a target holds so large a number")
        else:
            name = have.simpleString() if have is not None else "double"
            self._conflict(
                path,
                "NUMBER_NOT_EXACT",
                f"the number is too large for {name} or has digits that it would lose. Where such "
                f"numbers are right, give the column a decimal in the target's contract",
            )
        return None


def _grown(element: DataType, needed: DataType) -> DataType:
    """The type of a list's elements with what one more of them asks for."""
    if isinstance(element, StructType) and isinstance(needed, StructType):
        return merge(element, needed).schema
    if isinstance(element, ArrayType) and isinstance(needed, ArrayType):
        return ArrayType(_grown(element.elementType, needed.elementType))
    # A simple type was asked for beside one that is there: it is the wider of the two.
    return needed


def _is_number(kind: DataType) -> bool:
    return isinstance(kind, (IntegerType, LongType, FloatType, DoubleType, DecimalType))


def _numbers_from(number: int | Decimal, have: DataType | None) -> Sequence[DataType]:
    """The types that a number may be given, from the one that is there to the wider ones."""
    if have is None:
        return (IntegerType(), LongType()) if isinstance(number, int) else (DoubleType(),)
    if isinstance(have, IntegerType):
        return (have, LongType()) if isinstance(number, int) else (have, LongType(), DoubleType())
    if isinstance(have, FloatType):
        return (have, DoubleType())
    return (have,) if _is_number(have) else ()


def number_as(number: int | Decimal, kind: DataType) -> int | float | Decimal | None:
    """A number of JSON as a value of a type, if that says exactly the same; None if it does not.

    A double says the same if it is written with the same digits: 0.1 is 0.1. A float must be the same
    number as that double, else it would say 0.10000000149011612 once its column is widened.
    """
    exact = Decimal(number)
    if isinstance(kind, (IntegerType, LongType)):
        return _as_whole(exact, _INT if isinstance(kind, IntegerType) else _BIGINT)
    if isinstance(kind, DecimalType):
        return _as_decimal(exact, kind)
    if isinstance(number, int):
        limit = _WHOLE_IN_FLOAT if isinstance(kind, FloatType) else _WHOLE_IN_DOUBLE
        return float(number) if abs(number) <= limit else None
    if not isinstance(kind, (DoubleType, FloatType)):
        return None
    value = float(exact)
    if not math.isfinite(value) or Decimal(repr(value)) != exact:
        return None
    return value if isinstance(kind, DoubleType) or _is_float(value) else None


def _is_float(value: float) -> bool:
    try:
        (single,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return False
    return bool(single == value)


def _as_whole(exact: Decimal, limit: int) -> int | None:
    if not exact:
        return 0
    # Of 1e999999 no integer is made to find that it is too large, nor of 1e-999999.
    if not 0 <= exact.adjusted() < _MOST_DIGITS:
        return None
    whole = int(exact)
    return whole if whole == exact and -limit <= whole < limit else None


def _as_decimal(exact: Decimal, kind: DecimalType) -> Decimal | None:
    sign, digits, exponent = exact.as_tuple()
    if not isinstance(exponent, int):
        return None
    if not any(digits):
        return Decimal((0, (0,), -kind.scale))
    text = "".join(map(str, digits)).rstrip("0")
    exponent += len(digits) - len(text)
    if -exponent > kind.scale or len(text) + exponent > kind.precision - kind.scale:
        return None
    padded = text + "0" * (kind.scale + exponent)
    return Decimal((sign, tuple(map(int, padded)), -kind.scale))


def as_date(text: str) -> date | None:
    """A text as a day, if it is one: yyyy-MM-dd, and there is such a day."""
    return _parsed_time(text).date() if _DATE.match(text) and _parsed_time(text) else None


def as_local(text: str) -> datetime | None:
    """A text as a time without a zone, if it is one: yyyy-MM-ddTHH:mm:ss, up to microseconds."""
    return _parsed_time(text) if _LOCAL.match(text) else None


def as_instant(text: str) -> datetime | None:
    """A text as an instant in UTC, if it is one: a time with its zone, as ``instant`` in contracts."""
    found = _parsed_time(text) if INSTANT.match(text) else None
    try:
        return found.astimezone(UTC) if found is not None else None
    except OverflowError:
        return None


def _parsed_time(text: str) -> Any:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def value_as(value: Any, kind: DataType) -> Any:
    """A value that fits a type, as Arrow takes it: objects as dicts by name, numbers and times typed.

    Only for values of which ``ask`` said that they fit. Fields that the type does not have are those
    of which nothing could be told (null, an empty list, an empty object); they are left out.
    """
    if value is None:
        return None
    if isinstance(kind, StructType):
        return {f.name: value_as(value.get(f.name), f.dataType) for f in kind.fields}
    if isinstance(kind, ArrayType):
        return [value_as(item, kind.elementType) for item in value]
    if isinstance(kind, DateType):
        return as_date(value)
    if isinstance(kind, TimestampNTZType):
        return as_local(value) or datetime.combine(as_date(value) or date.min, datetime.min.time())
    if isinstance(kind, TimestampType):
        return as_instant(value)
    if _is_number(kind):
        return number_as(value, kind)
    return value


def _as_struct(kind: DataType | None) -> StructType:
    return kind if isinstance(kind, StructType) else StructType([])


# -- a window's changes


@dataclass(frozen=True)
class Request:
    """One shape of change that messages ask for, in the order in which the first of them came.

    Attributes:
        wanted: As ``Asked`` has it.
        messages: How many messages ask for it.
        examples: Ids of some of them.
    """

    wanted: StructType
    messages: int
    examples: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """What a window does to a target.

    Attributes:
        before: The schema before.
        after: The schema after; the same where nothing is changed.
        granted: The requests that are in it.
        refused: The others, and why.
    """

    before: StructType
    after: StructType
    granted: tuple[Request, ...]
    refused: tuple[tuple[Request, tuple[Conflict, ...]], ...]


def gather(schema: StructType, requests: Sequence[Request], max_columns: int) -> Plan:
    """Merge a window's requests into a schema, one after the other; what conflicts is left out whole.

    Where two requests conflict with each other, the one that came first is granted: so the order
    matters there, and only there.

    Args:
        schema: Of the target.
        requests: In the order in which they came.
        max_columns: The widest that the target may become, in single values.
    """
    after = schema
    granted = []
    refused: list[tuple[Request, tuple[Conflict, ...]]] = []
    for request in requests:
        merged = merge(after, request.wanted)
        wider = _as_struct(merged.schema)
        if not merged.conflicts and wider != after:
            merged.conflicts += _too_wide(wider, max_columns)
        if merged.conflicts:
            refused.append((request, tuple(merged.conflicts)))
        else:
            after = wider
            granted.append(request)
    return Plan(schema, after, tuple(granted), tuple(refused))
