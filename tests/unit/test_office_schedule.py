"""What is sent through the gate again by itself: the choice, the look at a lake, the command."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from office_lake import CONTRACTS, NOON, make_lake, record_ids

from ingest.cli import cli
from ingest.contracts import Contract
from ingest.environment import PROJECT_ROOT
from ingest.errors import InputError
from ingest.lake import Lake
from ingest.office import reentry
from ingest.office.actions import Note, happen
from ingest.office.refused import Office, Refused
from ingest.office.schedule import Candidate, Schedule, choose, look
from ingest.office.states import STATES, LastEvent

NOTE = Note("maria", "mended")
HOUR = timedelta(hours=1)
RETRY = {"window_minutes": 24 * 60, "delay_minutes": 60, "stages": ["schema_validation"]}


def orders_with(retry: dict[str, Any] | None = RETRY, **terms: Any) -> Contract:
    own = {key: value for key, value in CONTRACTS["orders"].terms.items() if key != "retry"}
    return dataclasses.replace(
        CONTRACTS["orders"], terms={**own, **({"retry": retry} if retry else {}), **terms}
    )


def record(name: str = "r", **said: Any) -> Refused:
    known = {
        "record_type": "orders",
        "dataset": "orders",
        "state": "pending",
        "reasons": ("QTY_NOT_INTEGER",),
        "source_file": "orders.csv",
        "file_sha256": "f",
        "position": 2,
        "since": NOON,
        "owner": "order-desk",
        "attempt": 1,
        "last": None,
    }
    return Refused(record_id=name, **{**known, **said})


def event(at: datetime, event_type: str = "corrected") -> LastEvent:
    return LastEvent("e", event_type, "maria", "mended", at)


def as_read(waiting: Refused, **said: Any) -> Candidate:
    return Candidate(waiting, **{"read_contract": CONTRACTS["orders"].read_contract, **said})


def chosen(candidates: list[Candidate], now: datetime, contract: Contract | None = None) -> Schedule:
    return choose(candidates, {"orders": contract or orders_with()}, now)


def names(schedule: Schedule) -> list[str]:
    return [waiting.record_id for waiting in schedule.due]


# -- the choice


def test_a_correction_is_due_at_once_whatever_the_contract_says() -> None:
    corrected = as_read(record(state="corrected", last=event(NOON)))
    for contract in (orders_with(None), orders_with()):
        assert names(chosen([corrected], NOON, contract)) == ["r"]
        assert names(chosen([corrected], NOON + 1000 * HOUR, contract)) == ["r"]


def test_without_a_policy_nothing_uncorrected_is_sent() -> None:
    assert chosen([as_read(record())], NOON + 2 * HOUR, orders_with(None)) == Schedule(())


def test_the_pause_grows_and_the_window_ends_it() -> None:
    """Refused at noon for the n-th time: due after one, two, four hours, and only on that day."""
    for attempt, pause in ((1, 1), (2, 2), (3, 4)):
        waiting = as_read(record(attempt=attempt), received=NOON)
        contract = orders_with(max_attempts=9)
        just_before = NOON + pause * HOUR - timedelta(microseconds=1)
        assert chosen([waiting], just_before, contract) == Schedule((), 1, NOON + pause * HOUR)
        assert names(chosen([waiting], NOON + pause * HOUR, contract)) == ["r"]
        assert names(chosen([waiting], NOON + 24 * HOUR, contract)) == ["r"]
        after = NOON + 24 * HOUR + timedelta(microseconds=1)
        assert chosen([waiting], after, contract) == Schedule(())


def test_what_would_be_due_past_its_window_does_not_wait_for_it() -> None:
    late = as_read(record(attempt=2, since=NOON + 23 * HOUR), received=NOON)
    assert chosen([late], NOON + 23 * HOUR) == Schedule(())


def test_the_window_counts_from_the_first_arrival_and_the_pause_from_the_last_event() -> None:
    again = record(attempt=2, since=NOON + 20 * HOUR)
    assert names(chosen([as_read(again, received=NOON)], NOON + 22 * HOUR)) == ["r"]
    assert names(chosen([as_read(again, received=NOON)], NOON + 25 * HOUR)) == []
    reopened = record(last=event(NOON + 5 * HOUR, "reopened"))
    assert names(chosen([as_read(reopened)], NOON + 5 * HOUR)) == []
    assert names(chosen([as_read(reopened)], NOON + 6 * HOUR)) == ["r"]


def test_a_worn_out_record_is_left_to_people() -> None:
    reopened = record(attempt=3, last=event(NOON, "reopened"))
    assert names(chosen([as_read(reopened)], NOON + 8 * HOUR)) == []
    assert names(chosen([as_read(reopened)], NOON + 8 * HOUR, orders_with(max_attempts=4))) == ["r"]


@pytest.mark.parametrize(
    ("reasons", "may_pass"),
    [
        (("QTY_NOT_INTEGER",), True),
        (("QTY_NOT_INTEGER", "ORDER_TS_NOT_A_TIMESTAMP"), True),
        # Of another stage: it could not pass, whatever becomes of the first fault.
        (("QTY_NOT_INTEGER", "QTY_MISSING"), False),
        (("A_RULE_THAT_IS_GONE",), False),
        ((), False),
    ],
)
def test_all_faults_must_be_of_stages_that_pass(reasons: tuple[str, ...], may_pass: bool) -> None:
    assert bool(chosen([as_read(record(reasons=reasons))], NOON + 2 * HOUR).due) is may_pass


def test_a_mended_schema_gives_every_fault_another_chance() -> None:
    waiting = record(reasons=("CORRUPT_RECORD",))
    assert names(chosen([as_read(waiting)], NOON + 2 * HOUR)) == []
    assert names(chosen([as_read(waiting, read_contract="0.9+abc")], NOON + 2 * HOUR)) == ["r"]
    # A lake of before it was noted: nothing says that it is another.
    assert names(chosen([as_read(waiting, read_contract=None)], NOON + 2 * HOUR)) == []


@pytest.mark.parametrize("state", STATES)
def test_only_two_states_are_sent_by_themselves(state: str) -> None:
    waiting = as_read(record(state=state, last=event(NOON)), read_contract="0.9+abc")
    assert bool(chosen([waiting], NOON + 2 * HOUR).due) is (state in ("pending", "corrected"))


def test_a_record_type_without_a_contract_holds_nothing_up() -> None:
    gone = as_read(record("gone", record_type="parcels", state="corrected", last=event(NOON)))
    here = as_read(record("here", state="corrected", last=event(NOON)))
    assert names(chosen([gone, here], NOON)) == ["here"]


def test_what_has_been_due_for_longest_goes_first() -> None:
    """Not what is oldest: that would let one that fails again and again pass before all others."""
    corrected = as_read(record("corrected", state="corrected", last=event(NOON + 3 * HOUR)))
    fresh = as_read(record("fresh", since=NOON + HOUR))
    second = as_read(record("second", attempt=2, since=NOON + HOUR), received=NOON)
    below = as_read(record("below", since=NOON + HOUR, position=3))
    order = names(chosen([second, corrected, below, fresh], NOON + 5 * HOUR))
    assert order == ["fresh", "below", "corrected", "second"]


@settings(deadline=None, max_examples=50)
@given(
    arrivals=st.lists(st.integers(0, 600), min_size=1, max_size=30),
    limit=st.integers(1, 3),
    every=st.integers(1, 90),
)
def test_nobody_starves(arrivals: list[int], limit: int, every: int) -> None:
    """All fail at each attempt, few go at a time, more come; each that was due goes once before any that
    fell due later."""
    contract = orders_with({**RETRY, "window_minutes": 100_000}, max_attempts=3)
    waiting = {
        f"{at:02}": as_read(record(f"{at:02}", since=NOON + timedelta(minutes=minute)))
        for at, minute in enumerate(arrivals)
    }
    sent: list[str] = []
    for turn in range(10_000):
        now = NOON + timedelta(minutes=turn * every)
        arrived = [c for c in waiting.values() if c.record.since <= now]  # type: ignore[operator]
        due = chosen(arrived, now, contract).due
        if not due and len(arrived) == len(arrivals) and not chosen(arrived, now, contract).later:
            break
        for going in due[:limit]:
            sent.append(going.record_id)
            failed = dataclasses.replace(going, since=now, attempt=going.attempt + 1)
            waiting[going.record_id] = as_read(failed, received=NOON)
    assert sorted(sent) == sorted([*waiting, *waiting]), "each went for its second and third time"
    firsts = list(dict.fromkeys(sent))
    assert firsts == sorted(firsts, key=lambda name: (arrivals[int(name)], name))


# -- a lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return make_lake(tmp_path, attempts={"O3": 2})


@pytest.fixture
def policy(monkeypatch: pytest.MonkeyPatch) -> Callable[[Contract], None]:
    def put(contract: Contract) -> None:
        monkeypatch.setattr(
            "ingest.office.refused.known_contracts", lambda: {**CONTRACTS, "orders": contract}
        )

    return put


def positions(lake: Lake, schedule: Schedule) -> list[int]:
    places = {record_id: position for position, record_id in record_ids(lake).items()}
    return [places[waiting.record_id] for waiting in schedule.due]


def at(lake: Lake, now: datetime) -> Schedule:
    with Office(lake, bronze=True, now=now) as office:
        return look(office, now)


def test_a_lake_tells_what_is_due(lake: Lake, policy: Callable[[Contract], None]) -> None:
    assert at(lake, NOON + 20 * HOUR) == Schedule(())
    policy(orders_with())
    # Refused at 15:00 for the first time, and at 16:00 for the second; their stage may pass.
    assert positions(lake, at(lake, NOON + 4 * HOUR)) == [3]
    assert positions(lake, at(lake, NOON + 6 * HOUR)) == [3, 4]
    assert at(lake, NOON + 4 * HOUR).next_at == NOON + 6 * HOUR
    policy(dataclasses.replace(orders_with(), schema_ddl="order_id STRING"))
    assert positions(lake, at(lake, NOON + 20 * HOUR)) == [3, 4, 6, 7]


def test_a_lake_tells_when_what_was_sent_again_first_came(
    lake: Lake, policy: Callable[[Contract], None]
) -> None:
    """The order of 15:00, sent again at 21:00 and again the next day at noon."""
    policy(orders_with(max_attempts=9))
    first = record_ids(lake)[3]
    sent_again(lake, first, "second", NOON + 9 * HOUR, 2)
    sent_again(lake, "second", "third", NOON + 24 * HOUR, 3)

    def due(hours: float) -> set[str]:
        return {waiting.record_id for waiting in at(lake, NOON + hours * HOUR).due}

    assert "second" in due(27), "for a day after the order came"
    assert "second" not in due(27.1)
    # Its pause of four hours would end after that day.
    assert "third" not in due(28.1)
    policy(orders_with({**RETRY, "window_minutes": 26 * 60}, max_attempts=9))
    assert "third" in due(28.1)
    assert "third" not in due(29.1)


def sent_again(lake: Lake, record_id: str, new: str, since: datetime, attempt: int) -> None:
    said = {"_record_id": new, "_ingested_at": since, "_supersedes": record_id, "_attempt": attempt}
    for name in ("bronze/orders", "silver/orders_quarantine"):
        table = DeltaTable(str(lake.path / name)).to_pyarrow_table()
        [row] = [row for row in table.to_pylist() if row["_record_id"] == record_id]
        schema = table.schema
        for column, kind in (("_supersedes", pa.string()), ("_attempt", pa.int32())):
            if column not in schema.names:
                schema = schema.append(pa.field(column, kind))
        again = pa.Table.from_pylist([{**row, **said}], schema=schema)
        write_deltalake(str(lake.path / name), again, mode="append", schema_mode="merge")


def correct(lake: Lake, texts: dict[int, str]) -> None:
    ids = record_ids(lake)
    with Office(lake, bronze=True) as office:
        records = office.find([ids[position] for position in texts])
        happen(office, records, "corrected", NOTE, {ids[p]: text for p, text in texts.items()})


def test_what_cannot_be_sent_takes_nobody_s_place(lake: Lake) -> None:
    correct(lake, {6: "S4,O4", 3: "S2,O2,C2,2,2024-05-01 00:00:00,phone,"})
    correct(lake, {4: "S3,O3,C3,15,2024-05-01 00:00:00,web,"})
    with Office(lake, bronze=True) as office:
        records = office.find([record_ids(lake)[place] for place in (6, 3, 4)])
        framed, left = reentry.plan_some(office, records, 1)
        [again] = framed.values()
        assert [item.record.position for item in again] == [3]
        assert [item.record.position for item in left] == [6]
        [again] = reentry.plan_some(office, records, 2)[0].values()
        assert [item.record.position for item in again] == [3, 4], "it was looked on for a second"
        framed, left = reentry.plan_some(office, records, None)
        assert [item.record.position for items in framed.values() for item in items] == [3, 4]


# -- the command


def replay(lake: Lake, *words: str) -> Any:
    return CliRunner().invoke(cli, ["replay", "--schedule", *words, "--lake", str(lake.path)])


def test_with_nothing_due_it_ends_at_once_and_says_so(
    lake: Lake, policy: Callable[[Contract], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.office.commands.datetime", Clock)
    versions = lake.versions()
    result = replay(lake)
    assert (result.exit_code, result.output) == (0, "No record was sent: none is due.\n")
    # At 16:00 the order of 15:00 is due; now it is half past three.
    policy(orders_with())
    told = " ".join(replay(lake).output.split())
    assert told == (
        "No record was sent: none is due. 2 records wait for their time, the first until "
        "2024-05-01 16:00 UTC."
    )
    assert lake.versions() == versions


class Clock(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return (NOON + 3.5 * HOUR).astimezone(tz)


def test_it_starts_no_java_where_nothing_is_due(lake: Lake) -> None:
    script = (
        "import sys, subprocess\n"
        "def refuse(*words, **more): raise SystemExit(f'started {words}')\n"
        "subprocess.Popen.__init__ = refuse\n"
        "from ingest.cli import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "replay", "--schedule", "--lake", lake.path],
        cwd=PROJECT_ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "No record was sent: none is due.\n"), done.stderr


def test_a_dry_run_counts_and_does_nothing(lake: Lake) -> None:
    correct(lake, {3: "S2,O2,C2,2,2024-05-01 00:00:00,phone,"})
    versions = lake.versions()
    result = replay(lake, "--dry-run")
    assert (result.exit_code, result.output) == (0, "1 record would be sent through the gate again.\n")
    assert lake.versions() == versions


@pytest.mark.parametrize("words", [["3f2a9c"], ["--reason", "QTY_NOT_INTEGER"]])
def test_who_names_records_needs_no_schedule(lake: Lake, words: list[str]) -> None:
    result = replay(lake, *words)
    assert isinstance(result.exception, InputError)
    assert "contracts say which records are sent" in str(result.exception)


def sent_in(lake: Lake, batch: str, command: str = "replay") -> None:
    row = {"batch_id": batch, "started_at": NOON, "command": command, "status": "finished"}
    lake.append("batches", [row])
    lake.append(
        "files",
        [{"file_sha256": batch, "record_type": "orders", "status": "ingested", "batch_id": batch}],
    )


def test_what_a_killed_replay_left_to_be_judged_is_seen(lake: Lake) -> None:
    assert reentry.is_judged(lake), "nothing was ever sent again"
    sent_in(lake, "b2", "run")
    assert reentry.is_judged(lake), "what a run brought is the next run's"
    sent_in(lake, "b3")
    assert not reentry.is_judged(lake)
    judged(lake, "b2")
    assert not reentry.is_judged(lake)
    judged(lake, "b3")
    assert reentry.is_judged(lake)


def judged(lake: Lake, batch: str) -> None:
    table = pa.table({"_batch_id": pa.array([batch])})
    write_deltalake(str(lake.path / "silver/orders_judged"), table, mode="append")
