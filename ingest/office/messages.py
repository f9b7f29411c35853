"""Refused JSON messages in the office: those given up, those refused at once, those that break a rule.

They are of one record type, ``messages``, whose contract is the envelope; its datasets are the targets.
A message that is sent again is a line of a file below ``replay``, which the messages job receives as any
file, and which says by its place whom it follows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.errors import InputError
from ingest.lake import Lake
from ingest.office.events import TABLE, append, reentered
from ingest.query import connect, identifier, literal
from ingest.transform import models_dir

# What reads Spark's types is imported where it is needed: most lakes have no messages, operators wait.
if TYPE_CHECKING:
    from ingest.messages.receiving import Again
    from ingest.messages.targets import Target
    from ingest.office.corrections import Left
    from ingest.office.refused import Office, Refused

RECORD_TYPE = "messages"
_UNKNOWN = "unknown"
_QUARANTINE = "_quarantine"


@cache
def targets() -> Mapping[str, Target]:
    """The targets. They do not change while a command runs."""
    from ingest.messages.targets import load_targets

    return load_targets(models_dir())


def quarantines(tables: Collection[tuple[str, str]]) -> list[str]:
    """Of the tables of a lake, as (schema, name), the targets that have a quarantine there."""
    if ("bronze", RECORD_TYPE) not in tables:
        return []
    return [name for name in sorted(targets()) if ("silver", name + _QUARANTINE) in tables]


def refused_sql(tables: Collection[tuple[str, str]]) -> list[str]:
    """SQL that gives refused messages with what the office asks of each, a statement per table.

    Columns: record_id, dataset, reasons, source_file, file_sha256, position, since, attempt.

    Args:
        tables: Of the lake, as (schema, name).
    """
    found = []
    place = "_source_file, _file_sha256, _position"
    if ("bronze", "bad_data") in tables:
        found.append(
            "select _record_id, target_dest, "
            # Of a message that was purged nothing says why.
            "case when error is null then [] else [regexp_extract(error, '^[A-Z_]+')] end, "
            f"{place}, processed_timestamp, _attempt from bronze.bad_data"
        )
    if ("bronze", RECORD_TYPE) in tables:
        known = ", ".join(map(literal, sorted(targets())))
        found.append(
            "select _record_id, "
            f"case when target in ({known}) then target else {literal(_UNKNOWN)} end, [error_type], "
            f"{place}, processed_timestamp, _attempt from bronze.messages "
            "where stage is not null and not is_repeat"
        )
    for name in quarantines(tables):
        found.append(
            f"select _record_id, {literal(name)}, failure_reasons, {place}, _processed_timestamp, "
            f"_attempt from silver.{identifier(name + _QUARANTINE)}"
        )
    return found


def rule(code: str) -> dict[str, str | None]:
    """What the targets say of a code: severity, stage, why, fix, owner; else the code alone."""
    for target in targets().values():
        for item in target.rules:
            if item.code == code:
                return item.described(target.owner)
    return {"code": code}


class MessagePayloads:
    """The texts of some refused messages."""

    def __init__(self, office: Office, records: Sequence[Refused]) -> None:
        """Reads the texts.

        Args:
            office: Opened with Bronze.
            records: The messages.
        """
        ids = [record.record_id for record in records]
        rows = office.bronze_rows(RECORD_TYPE, ids, "_record_id, payload, key")
        self._texts: dict[str, str | None] = {record_id: text for record_id, text, _ in rows}
        self.keys: dict[str, str | None] = {record_id: key for record_id, _, key in rows}

    def text(self, record: Refused) -> str:
        """The text of a message.

        Raises:
            InputError: There is none.
        """
        text = self._texts.get(record.record_id)
        if text is None:
            raise InputError(
                f"Message {record.record_id[:12]} has no text: it is no UTF-8, too long to be kept, or "
                "a record of Kafka without a value. Ask its sender for it, and discard this one."
            )
        return text

    def check(self, record: Refused, payload: str) -> None:
        """Refuse a new text that is no message, or says what the old one said.

        Raises:
            InputError: With what is wrong.
        """
        if payload == self._texts.get(record.record_id):
            raise InputError("The text is what it was, so there is nothing to correct.")
        check_message(payload)


def check_message(text: str) -> None:
    """Refuse a text that would be refused at once, or is no single line.

    Raises:
        InputError: It would.
    """
    from ingest.messages.envelope import Refusal, read_envelope

    if "\n" in text:
        raise InputError("A message is one line, and this text has several. Write it on one.")
    found = read_envelope(text.encode("utf-8", "surrogatepass"), targets())
    if isinstance(found, Refusal):
        raise InputError(
            f"As it is, the message would be refused again ({found.error_type}): {found.error}. "
            "Correct it first."
        )


def plan(office: Office, records: Sequence[Refused]) -> tuple[list[tuple[str, Again]], list[Left]]:
    """Work out with what text each message is sent again.

    Returns:
        Texts with what each sends again, and messages that cannot be sent as they are, with the reason.
    """
    from ingest.messages.receiving import Again
    from ingest.office.corrections import Left

    if not records:
        # A lake without messages has no table of them.
        return [], []
    corrected = office.corrected_texts(records)
    payloads = MessagePayloads(office, records)
    again, left = [], []
    for record in records:
        try:
            # Of Kafka a message may have several lines. In JSON a line break is only a blank.
            text = corrected.get(record.record_id) or payloads.text(record).replace("\n", " ")
            check_message(text)
        except InputError as error:
            left.append(Left(record, str(error)))
        else:
            is_corrected, key = record.record_id in corrected, payloads.keys[record.record_id]
            again.append((text, Again(record.record_id, record.attempt + 1, is_corrected, key)))
    return again, left


def write_file(
    lake: Lake, again: Sequence[tuple[str, Again]]
) -> tuple[Path, dict[str, dict[int, Again]]]:
    """Write messages that are sent again to a file of their own.

    The same messages with the same texts give the same file, so that what was killed half-way is known
    the second time.

    Returns:
        The file, and what each of its lines sends again, as the messages job takes it.
    """
    # The first line is blank, and no two replays have it alike: no message, and content of its own.
    told = "\n".join(f"{item.supersedes} {item.attempt}" for _, item in again)
    name = hashlib.sha256(told.encode()).hexdigest()
    blank = "".join(" " if digit == "1" else "\t" for digit in f"{int(name[:16], 16):064b}")
    data = "\n".join([blank, *(text for text, _ in again), ""]).encode("utf-8")
    path = lake.reentry_files / RECORD_TYPE / f"replay_{name[:16]}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(data)
    part.replace(path)
    lines = {number: item for number, (_, item) in enumerate(again, 2)}
    return path, {hashlib.sha256(data).hexdigest(): lines}


def settle(lake: Lake, actor: str, because: str) -> int:
    """Write the ``reentered`` events of messages that were received again and have none yet.

    What was received is what happened, so a replay that was killed is told of here, by who replays next.

    Args:
        lake: The lake.
        actor: Who sends messages again.
        because: Why.

    Returns:
        How many events were written.
    """
    lake.create_operations()
    if ("bronze", RECORD_TYPE) not in lake.tables():
        return 0
    with connect(lake.path, {f"bronze.{RECORD_TYPE}", f"bronze.{TABLE}"}) as connection:
        rows = connection.execute(
            "select again._supersedes, coalesce(again.target, 'unknown'), again._attempt, "
            "again._record_id, again.receipt "
            f"from bronze.messages as again left join bronze.{TABLE} as told "
            "on told.record_id = again._supersedes and told.event_type = 'reentered' "
            "and told.attempt = again._attempt - 1 "
            "where again._supersedes is not null and told.record_id is null order by all"
        ).fetchall()
    events = [
        reentered(
            supersedes, RECORD_TYPE, target, attempt, record_id, f"receipt {receipt}", actor, because
        )
        for supersedes, target, attempt, record_id, receipt in rows
    ]
    # It happened, whatever somebody else did meanwhile.
    append(lake, events, seen=None)
    return len(events)
