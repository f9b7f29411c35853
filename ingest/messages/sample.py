"""Small samples of messages with known numbers, the same bytes for the same arguments. All is invented.

``customer_updates`` drifts; each fault stands in a message of its own.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

_START = datetime(2024, 5, 1, 8, tzinfo=UTC)
_NAMES = ("Ana Ruiz", "Bo Lind", "Chiara Neri", "Dan Weiss", "Eva Novák")
_CITIES = ("Ávila", "Lund", "Pisa", "Graz", "Brno")
# How many of a hundred messages drift or are wrong in each way. The others fit as they are.
SHARES = {
    "new_column": 6,
    "new_nested": 4,
    "wider_points": 3,
    "points_fraction": 2,
    "conflict": 2,
    "broken_rule": 2,
    "repeat": 3,
    "no_json": 1,
    "no_target": 1,
    "unknown_target": 1,
}
GRANTED = ("new_column", "new_nested", "wider_points")
"""Ways in which messages drift that a window's end helps."""
REFUSED = ("no_json", "no_target", "unknown_target")
"""Faults for which a message is refused at once."""


@dataclass(frozen=True)
class MessagesManifest:
    """What a sample holds.

    Attributes:
        file: Where it is.
        lines: Its lines.
        ways: Lines by what they are: a key of SHARES, or ``customer_updates`` or ``order_events`` for a
            message that fits as it is.
    """

    file: str
    lines: int
    ways: dict[str, int]


def generate_messages(out: Path, *, messages: int, seed: int = 1) -> MessagesManifest:
    """Write a file of messages.

    ``points_fraction`` asks for a double where ``wider_points`` asks for a bigint, and the one that
    comes first in a window is granted. The double holds the whole numbers of the sample too,
    the bigint no fraction.

    Args:
        out: Folder, made if it is not there.
        messages: Lines to write.
        seed: Another one gives another file.
    """
    dice = random.Random(seed)
    ways: Counter[str] = Counter()
    lines: list[str] = []
    told: list[str] = []
    for number in range(messages):
        way = _way(dice)
        if way == "repeat" and not told:
            way = "customer_updates"
        ways[way] += 1
        line = dice.choice(told) if way == "repeat" else _line(way, number, dice)
        lines.append(line)
        if way not in REFUSED and way != "repeat":
            told.append(line)
    out.mkdir(parents=True, exist_ok=True)
    file = out / f"messages_{seed}.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return MessagesManifest(str(file), messages, dict(sorted(ways.items())))


def _way(dice: random.Random) -> str:
    drawn = dice.randrange(100)
    for way, share in SHARES.items():
        if drawn < share:
            return way
        drawn -= share
    return "order_events" if dice.randrange(3) == 0 else "customer_updates"


def _line(way: str, number: int, dice: random.Random) -> str:
    event = (_START + timedelta(seconds=number)).isoformat().replace("+00:00", "Z")
    if way == "no_json":
        return '{"target": "customer_updates", "data": {"customer_id": ' + str(number)
    if way in ("order_events", "broken_rule"):
        data: dict[str, Any] = {
            "order_id": f"O-{number:06}",
            "amount": dice.randrange(100, 99999) / 100,
            "event_ts": event,
        }
        if way == "broken_rule":
            data["amount"] = -data["amount"]
        return _enveloped("order_events", data["order_id"], event, data)
    place = dice.randrange(len(_NAMES))
    data = {
        "customer_id": f"C-{number:06}",
        "name": _NAMES[place],
        "points": dice.randrange(10_000),
        "joined_on": f"20{dice.randrange(10, 24)}-0{dice.randrange(1, 10)}-1{dice.randrange(10)}",
        "address": {"city": _CITIES[place], "zip": f"{dice.randrange(99999):05}"},
    }
    match way:
        case "new_column":
            data["email"] = f"c{number}@example.org"
        case "new_nested":
            data["address"]["geo"] = {"lat": 40.5 + place, "lon": -3.5}
        case "wider_points":
            data["points"] = 3_000_000_000 + number
        case "points_fraction":
            data["points"] = number + 0.5
        case "conflict":
            data["points"] = "many"
    target = {"no_target": None, "unknown_target": "customer_upd"}.get(way, "customer_updates")
    return _enveloped(target, data["customer_id"], event, data)


def _enveloped(target: str | None, key: str, event: str, data: dict[str, Any]) -> str:
    envelope: dict[str, Any] = {"target": target, "key": key, "event_ts": event, "data": data}
    if target is None:
        del envelope["target"]
    return json.dumps(envelope, ensure_ascii=False)
