"""Refused messages in the office: found, shown, corrected and put into a file that sends them again."""

from __future__ import annotations

import hashlib
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable, write_deltalake

from ingest.cli import cli
from ingest.errors import InputError
from ingest.lake import Lake
from ingest.messages.receiving import RECEIVED, cut, received
from ingest.office import messages
from ingest.office.refused import Filter, Office

MORE = pa.schema(
    [
        ("is_repeat", pa.bool_()),
        ("processed_timestamp", pa.timestamp("us", "UTC")),
        ("receipt", pa.int64()),
        ("bad_data", pa.string()),
        ("target_dest", pa.string()),
        ("insert_time", pa.timestamp("us", "UTC")),
        ("failure_reasons", pa.list_(pa.string())),
        ("_processed_timestamp", pa.timestamp("us", "UTC")),
    ]
)
TARGETS = ("customer_updates", "order_events")
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
MANY = '{"target": "customer_updates", "key": "C1", "data": {"points": "many"}}'
LINES = (MANY, '{"target": "orders_events", "data": {}}', "{", '{"target": "order_events", "data": {}}')
GIVEN_UP = "TYPE_CONFLICT at points: a text stands where the table has int"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake in which line 1 was given up, 2 and 3 were refused at once and 4 breaks a rule."""
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f"{line}\n" for line in LINES), "utf-8")
    data = path.read_bytes()
    lake = Lake(tmp_path / "lake")
    digest = hashlib.sha256(data).hexdigest()
    rows = [received(line, str(path), digest, TARGETS) for line in cut(io.BytesIO(data))]
    rows = [{**row, "is_repeat": False, "processed_timestamp": NOON, "receipt": 1} for row in rows]
    _write(lake, "bronze", "messages", rows)
    carried = ("_record_id", "_source_file", "_file_sha256", "_position", "_attempt")
    first, last = ({name: rows[at][name] for name in carried} for at in (0, 3))
    given_up: dict[str, Any] = {"target_dest": "customer_updates", "error": GIVEN_UP}
    given_up |= {"bad_data": MANY, "processed_timestamp": NOON, "insert_time": NOON}
    _write(lake, "bronze", "bad_data", [first | given_up])
    broken = {"failure_reasons": ["MISSING_ORDER_ID", "INVALID_EVENT_TS"], "_processed_timestamp": NOON}
    _write(lake, "silver", "order_events_quarantine", [last | broken])
    lake.create_operations()
    return lake


def _write(lake: Lake, schema: str, name: str, rows: list[dict[str, Any]]) -> None:
    path = lake.table_path(schema, name)
    path.mkdir(parents=True)
    types = {field.name: field for field in (*RECEIVED, *MORE)}
    names = [name for name in types if name in rows[0]]
    write_deltalake(str(path), pa.Table.from_pylist(rows, pa.schema([types[name] for name in names])))


def call(lake: Lake, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["quarantine", *arguments, "--lake", str(lake.path)])


def ids(lake: Lake) -> dict[int, str]:
    with Office(lake) as office:
        return {r.position or 0: r.record_id for r in office.select(Filter())[0]}


def test_messages_that_nothing_took_are_refused_records_with_an_owner(lake: Lake) -> None:
    with Office(lake) as office:
        found, total = office.select(Filter(record_types=("messages",)))
    assert total == 4
    assert [(r.position, r.dataset, r.state, r.reasons, r.owner) for r in found] == [
        (1, "customer_updates", "pending", ("TYPE_CONFLICT",), "customer-care"),
        (2, "unknown", "pending", ("UNKNOWN_TARGET",), None),
        (3, "unknown", "pending", ("NOT_JSON",), None),
        (4, "order_events", "pending", ("MISSING_ORDER_ID", "INVALID_EVENT_TS"), "order-desk"),
    ]
    assert json.loads(call(lake, "list", "--dataset", "order_events", "--format", "json").output)


def test_one_is_shown_with_its_error_its_text_and_its_line(lake: Lake) -> None:
    shown = call(lake, "show", ids(lake)[1])
    assert shown.exit_code == 0, shown.output
    for part in (GIVEN_UP, MANY, "a.jsonl, line 1", "refused 2024-05-01 12:00:00 UTC, batch receipt 1"):
        assert part in shown.output
    rule = call(lake, "show", ids(lake)[4])
    assert "An event without one belongs to no order" in rule.output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MANY, "nothing to correct"),
        ("{", "NOT_JSON"),
        ('{"target": "nobody", "data": {}}', "UNKNOWN_TARGET"),
        (MANY.replace("many", "1") + "\n" + MANY, "several"),
    ],
)
def test_a_text_that_would_be_refused_at_once_is_no_correction(
    lake: Lake, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "new").write_text(text, "utf-8")
    told = call(lake, "correct", ids(lake)[1], "--from", str(tmp_path / "new"), "--because", "x")
    assert isinstance(told.exception, InputError)
    assert said in str(told.exception)


def test_a_message_is_corrected_as_a_whole_and_not_value_by_value(lake: Lake) -> None:
    told = call(lake, "correct", ids(lake)[1], "--set", "points = 1", "--because", "x")
    assert isinstance(told.exception, InputError)
    assert "--from" in str(told.exception)


def test_what_is_sent_again_is_a_line_that_says_whom_it_follows(lake: Lake, tmp_path: Path) -> None:
    new = MANY.replace('"many"', "7")
    (tmp_path / "new").write_text(f"{new}\n", "utf-8")
    by_line = ids(lake)
    done = call(lake, "correct", by_line[1], "--from", str(tmp_path / "new"), "--because", "asked")
    assert done.exit_code == 0, done.output
    with Office(lake, bronze=True) as office:
        records = office.find([by_line[1], by_line[2], by_line[4]])
        again, left = messages.plan(office, records)
    assert [(text, item.is_corrected, item.key) for text, item in again] == [
        (new, True, "C1"),
        (LINES[3], False, None),
    ]
    assert ["UNKNOWN_TARGET" in item.why for item in left] == [True]

    path, lines = messages.write_file(lake, again)
    data = path.read_bytes()
    [by_number] = lines.values()
    assert set(lines) == {hashlib.sha256(data).hexdigest()}
    assert {line.position: (line.raw or b"").decode() for line in cut(io.BytesIO(data))} == {
        2: new,
        3: LINES[3],
    }
    assert [(at, item.supersedes, item.attempt) for at, item in by_number.items()] == [
        (2, by_line[1], 2),
        (3, by_line[4], 2),
    ]
    assert messages.write_file(lake, again) == (path, lines)


def test_what_was_received_again_is_told_once(lake: Lake) -> None:
    first = ids(lake)[1]
    assert messages.settle(lake, "me", "mended") == 0
    table = str(lake.table_path("bronze", "messages"))
    stored = DeltaTable(table).to_pyarrow_dataset().to_table()
    row = stored.to_pylist()[0]
    row |= {"_record_id": "f" * 64, "_supersedes": first, "_attempt": 2, "receipt": 2}
    write_deltalake(table, pa.Table.from_pylist([row], stored.schema), mode="append")
    assert messages.settle(lake, "me", "mended") == 1
    assert messages.settle(lake, "me", "mended") == 0
    with Office(lake) as office:
        [record] = office.find([first])
    assert (record.state, record.last and record.last.actor) == ("reentered", "me")
