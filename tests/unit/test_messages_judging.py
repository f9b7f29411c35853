import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructField, StructType

from ingest.errors import LakeInUseError
from ingest.lake import Lake
from ingest.messages import tables as tables_module
from ingest.messages.fitting import Request, gather
from ingest.messages.judging import Judge, Refused, judging, typing
from ingest.messages.schemas import OUR_COLUMNS, parse_type
from ingest.messages.tables import Tables
from ingest.messages.targets import Target
from ingest.messages.windows import Window, last_ended


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2024-05-01T{clock}+00:00")


def schema(**columns: str) -> StructType:
    return StructType([StructField(name, parse_type(kind)) for name, kind in columns.items()])


PARCELS = Target("parcels", "1.0.0", "depot", schema(a="int", d="date"))
CAME = at("10:00:30")


def verdict(data: dict[str, Any], now: str = "10:00:30", target: str = "parcels") -> dict[str, Any]:
    row = {
        "_message_id": "m",
        "target": target,
        "payload": json.dumps({"target": target, "data": data}),
        "processed_timestamp": CAME,
    }
    run = judging({"parcels": Judge(PARCELS.schema, PARCELS)}, at(now))
    [batch] = run(iter([pa.RecordBatch.from_pylist([row])]))
    [found] = batch.to_pylist()
    return dict(found)


def test_a_message_that_fits_is_said_to_and_asks_for_nothing() -> None:
    found = verdict({"a": 1})
    assert (found["fits"], found["wanted"], found["error"]) == (True, None, None)


def test_one_that_asks_says_what_for_as_spark_reads_it_again() -> None:
    found = verdict({"b": {"c": 1.5}, "a": 3_000_000_000})
    assert StructType.fromJson(json.loads(found["wanted"])) == schema(b="struct<c:double>", a="bigint")
    assert found["error"].startswith("SCHEMA_LACKS")


def test_one_that_conflicts_asks_for_nothing_else_either() -> None:
    found = verdict({"a": "x", "new": 1})
    assert (found["fits"], found["wanted"]) == (False, None)
    assert found["error"].splitlines()[0].startswith("TYPE_CONFLICT at a")


@pytest.mark.parametrize(
    ("now", "ended", "number", "past"),
    [
        ("10:02:59", False, 0, False),
        ("10:03:00", True, 0, False),
        ("10:15:30", True, 5, False),
        ("10:15:31", True, 5, True),
    ],
)
def test_windows_and_retries_are_told_by_the_time_that_is_passed_in(
    now: str, ended: bool, number: int, past: bool
) -> None:
    found = verdict({"a": "x"}, now)
    assert found["window_start"] == at("10:00:00")
    assert (found["window_has_ended"], found["retry_number"], found["is_past_retry"]) == (
        ended, number, past,
    )  # fmt: skip


def test_what_waits_for_a_target_that_is_no_longer_configured_does_not_expire() -> None:
    found = verdict({"a": 1}, "23:00:00", target="gone")
    assert (found["fits"], found["is_past_retry"], found["window_has_ended"]) == (False, False, False)
    assert found["error"].startswith("TARGET_OUT")


def test_rows_of_a_target_are_typed_and_keep_the_jobs_columns() -> None:
    have = schema(
        a="bigint", d="timestamp_ntz", x="decimal(6,2)", s="struct<b:array<date>>", i="timestamp"
    )
    ours: dict[str, Any] = dict.fromkeys(OUR_COLUMNS)
    ours |= {"_message_id": "m", "_landed_at": CAME, "_retry_number": 2, "_position": 7}
    data = {
        "a": 1,
        "d": "2024-02-29",
        "x": 1.5,
        "s": {"b": ["2024-01-01"]},
        "i": "2024-01-01T01:00:00+01:00",
    }
    row = {**ours, "payload": json.dumps({"data": data})}
    [batch] = typing(have)(iter([pa.RecordBatch.from_pylist([row])]))
    assert batch.to_pylist() == [
        {
            **ours,
            "a": 1,
            "d": datetime(2024, 2, 29),
            "x": Decimal("1.50"),
            "s": {"b": [date(2024, 1, 1)]},
            "i": datetime(2024, 1, 1, tzinfo=UTC),
            "_payload": row["payload"],
        }
    ]


# -- the history


class History:
    """The part of the tables that needs no Spark."""

    def __init__(self, folder: Path) -> None:
        self.tables = Tables(None, Lake(folder / "lake"), "0.1.0")  # type: ignore[arg-type]
        self.tables.create_history()
        self.path = folder / "lake" / "bronze" / "schema_changes"

    def rows(self) -> list[dict[str, Any]]:
        return Lake(self.path.parent.parent).read("bronze", "schema_changes", NAMES).to_pylist()  # type: ignore[no-any-return]


NAMES = [
    "target",
    "outcome",
    "window_start",
    "before",
    "after",
    "changes",
    "why",
    "messages",
    "message_ids",
]
WINDOW = last_ended(at("10:03:00"), 3)


def plan(wanted: StructType, before: StructType = PARCELS.schema) -> Any:
    return gather(before, [Request(wanted, 7, ("m1", "m2"))], 2000)


def test_a_target_is_what_its_history_and_its_contract_say(tmp_path: Path) -> None:
    history = History(tmp_path)
    assert history.tables.recorded(PARCELS) == PARCELS.schema

    history.tables.record(PARCELS, WINDOW, plan(schema(b="struct<`c`:int>", a="bigint")), CAME)
    assert history.tables.recorded(PARCELS) == schema(a="bigint", d="date", b="struct<`c`:int>")
    longer = Target("parcels", "1.1.0", "depot", schema(a="int", d="date", e="string"))
    assert history.tables.recorded(longer).fieldNames() == ["a", "d", "b", "e"]
    [row] = history.rows()
    assert row == {
        "target": "parcels",
        "outcome": "applied",
        "window_start": at("10:00:00"),
        "before": "struct<`a`:int,`d`:date>",
        "after": "struct<`a`:bigint,`d`:date,`b`:struct<`c`:int>>",
        "changes": ["widen a int to bigint", "add b struct<`c`:int>"],
        "why": None,
        "messages": 7,
        "message_ids": ["m1", "m2"],
    }


def test_a_window_is_recorded_once_and_the_last_one_counts(tmp_path: Path) -> None:
    history = History(tmp_path)
    later = Window(WINDOW.end, at("10:06:00"))
    assert not history.tables.was_changed_in(PARCELS, WINDOW)
    first = plan(schema(b="int"))
    history.tables.record(PARCELS, WINDOW, first, CAME)
    history.tables.record(PARCELS, WINDOW, first, CAME)
    assert history.tables.was_changed_in(PARCELS, WINDOW)
    assert not history.tables.was_changed_in(PARCELS, later)
    history.tables.record(PARCELS, later, plan(schema(c="int"), first.after), CAME)
    assert len(history.rows()) == 2
    assert history.tables.recorded(PARCELS).fieldNames() == ["a", "d", "b", "c"]


def test_what_a_target_is_does_not_hang_on_the_clock(tmp_path: Path) -> None:
    history = History(tmp_path)
    first = plan(schema(b="int"))
    history.tables.record(PARCELS, WINDOW, first, at("12:00:00"))
    # The clock was set back meanwhile.
    second = plan(schema(b="bigint"), first.after)
    history.tables.record(PARCELS, Window(at("09:00:00"), at("09:03:00")), second, at("09:04:00"))
    assert history.tables.recorded(PARCELS)["b"].dataType.simpleString() == "bigint"


def test_a_refusal_is_recorded_once_per_window_and_reason_and_changes_nothing(tmp_path: Path) -> None:
    history = History(tmp_path)
    why = Refused("parcels", at("10:00:00"), "TYPE_CONFLICT at a: ...", 3, ("m1",))
    other = Refused("parcels", at("10:03:00"), "TYPE_CONFLICT at a: ...", 1, ("m2",))
    for refused in ([why], [why, other], []):
        history.tables.record_refusals({"parcels": PARCELS}, {"parcels": PARCELS.schema}, refused, CAME)
    assert sorted((row["outcome"], row["messages"]) for row in history.rows()) == [
        ("refused", 1),
        ("refused", 3),
    ]
    assert history.tables.recorded(PARCELS) == PARCELS.schema
    assert not history.tables.was_changed_in(PARCELS, WINDOW)


def test_somebody_who_writes_the_history_at_the_same_moment_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(tmp_path)
    write = tables_module.write_deltalake

    def second(*arguments: Any, **more: Any) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(tables_module, "write_deltalake", write)
            history.tables.record(PARCELS, WINDOW, plan(schema(other="int")), CAME)
        write(*arguments, **more)

    monkeypatch.setattr(tables_module, "write_deltalake", second)
    with pytest.raises(LakeInUseError, match="run again"):
        history.tables.record(PARCELS, WINDOW, plan(schema(b="int")), CAME)
    assert [row["changes"] for row in history.rows()] == [["add other int"]]
