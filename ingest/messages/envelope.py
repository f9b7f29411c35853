"""The envelope of a message: what it must say before its data is looked at."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from ingest.messages.fitting import as_instant

MAX_BYTES = 20_000_000
"""A longer message is refused: it would have to be held in memory several times over."""
_KNOWN = ("target", "data", "key", "event_ts")
MOST_NESTED = 200
"""Objects and lists that may stand inside each other. Far more than any target takes, and far fewer
than Python's own limit, which later steps would reach before the one that asked."""
# Longer than any type holds, and than any double is written.
_LONGEST_INT = 40
_LONGEST_NUMBER = 400


@dataclass(frozen=True)
class Envelope:
    """A message that can go to its target.

    Attributes:
        target: Name of a configured target.
        data: What is to be written: whole numbers are int, others Decimal.
        key: What messages about one thing share, if it says so.
        event_ts: When what it tells of happened, if it says so.
        unknown: Names in the envelope that mean nothing here, sorted.
    """

    target: str
    data: dict[str, Any]
    key: str | None
    event_ts: datetime | None
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class Refusal:
    """Why a message is refused at once. ``target`` is what it names, where it names anything.

    Attributes:
        stage: ``json_parsing`` or ``schema_validation``.
        error_type: A stable UPPER_SNAKE name of the fault.
        error: What is wrong, in words.
        target: What the message names as its target, a text.
    """

    stage: str
    error_type: str
    error: str
    target: str | None = None


class _DuplicateError(ValueError):
    """A name stands twice in one object."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _DuplicateError(twice)
    return found


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number in JSON")


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= _LONGEST_INT else _decimal(digits)


def _decimal(text: str) -> Decimal:
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"a number is written with more than {_LONGEST_NUMBER} characters")
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError("a number has an exponent beyond all sense") from None


def parse(text: str) -> Any:
    """Read JSON as its standard has it, strictly: no NaN, no Infinity, no name twice in one object.

    Raises:
        ValueError: It is something else.
        RecursionError: It is nested by hundreds.
    """
    return json.loads(
        text,
        object_pairs_hook=_unique,
        parse_constant=_no_number,
        parse_float=_decimal,
        parse_int=_integer,
    )


def read_envelope(raw: bytes, targets: Collection[str]) -> Envelope | Refusal:
    """Read a message as far as its envelope.

    Args:
        raw: The message's bytes.
        targets: Names of the configured targets.
    """
    if len(raw) > MAX_BYTES:
        return Refusal(
            "json_parsing", "MESSAGE_TOO_LARGE", f"it has {len(raw):,} bytes; {MAX_BYTES:,} is the most"
        )
    try:
        found = parse(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        return Refusal("json_parsing", "NOT_UTF8", f"the byte at {error.start} is no UTF-8")
    except _DuplicateError as error:
        return Refusal(
            "json_parsing",
            "DUPLICATE_KEY",
            f"the name '{_storable(str(error)[:80])}' stands twice in one object, and JSON "
            f"does not say which of the two holds",
        )
    except RecursionError:
        return _too_deep()
    except ValueError as error:
        return Refusal("json_parsing", "NOT_JSON", f"it is no JSON: {str(error)[:200]}")
    # Most messages have so few brackets that nobody need walk through them.
    if raw.count(b"{") + raw.count(b"[") > MOST_NESTED and _is_too_deep(found):
        return _too_deep()
    if not isinstance(found, dict):
        return Refusal("schema_validation", "NO_OBJECT", "it is JSON, but no object")
    return _validated(found, raw, targets)


def _validated(found: dict[str, Any], raw: bytes, targets: Collection[str]) -> Envelope | Refusal:
    target, key, event = found.get("target"), found.get("key"), found.get("event_ts")
    if not isinstance(target, str) or not target.strip():
        return _invalid("MISSING_TARGET", "it does not name its target with a text")
    if b"\\u" in raw and _has_surrogate(found):
        # Parsed, but no text that could be stored.
        return Refusal(
            "json_parsing", "LONE_SURROGATE", "a text holds half of a character (\\ud800 to \\udfff)"
        )
    if target not in targets:
        return _invalid(
            "UNKNOWN_TARGET",
            f"target '{target[:80]}' is not configured; there are {', '.join(sorted(targets))}",
            target,
        )
    if not isinstance(found.get("data"), dict):
        return _invalid("MISSING_DATA", "data is missing or no object", target)
    if isinstance(key, int) and not isinstance(key, bool):
        key = str(key)
    if not (key is None or isinstance(key, str)):
        return _invalid("INVALID_KEY", "key is neither a text nor a whole number", target)
    event_ts = as_instant(event) if isinstance(event, str) else None
    if event is not None and event_ts is None:
        return _invalid(
            "INVALID_ENVELOPE_EVENT_TS",
            "event_ts is no instant with its zone, such as 2024-05-01T10:00:00Z",
            target,
        )
    unknown = tuple(sorted(name for name in found if name not in _KNOWN))
    return Envelope(target, found["data"], key, event_ts, unknown)


def _invalid(error_type: str, error: str, target: str | None = None) -> Refusal:
    return Refusal("schema_validation", error_type, error, target)


def _too_deep() -> Refusal:
    return Refusal(
        "json_parsing",
        "NESTED_TOO_DEEP",
        f"more than {MOST_NESTED} objects and lists stand inside each other",
    )


def _is_too_deep(found: Any) -> bool:
    level = [found]
    for _ in range(MOST_NESTED):
        inner = (item.values() if isinstance(item, dict) else item for item in level)
        level = [each for items in inner for each in items if isinstance(each, (dict, list))]
        if not level:
            return False
    return True


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _has_surrogate(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False, default=str).encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def message_id(raw: bytes, event_ts: datetime | None, place: str, key: str | None = None) -> str:
    """Give the id by which a message is written once.

    With ``event_ts`` it is the hash of the text: an event of one instant that is told twice in the same
    words is one event, in whatever file it is told again. Without it, two equal texts may be two
    events, so the place counts too; the same bytes of a file are one place under any name.

    Args:
        raw: The message's bytes.
        event_ts: What the envelope says; None also where it cannot be read.
        place: Where the message stands: hash of the file's content and line, or topic, partition
            and offset.
        key: What the message has for a key beside its text, if it has: two records of Kafka that differ
            by it tell of two things.
    """
    digest = hashlib.sha256(raw)
    if event_ts is None:
        digest.update(b"\x00" + place.encode())
    elif key is not None:
        digest.update(b"\x00key|" + key.encode())
    return digest.hexdigest()
