"""The life of a refused record: the table of transitions, and random lives on a real lake."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from office_lake import make_lake, record_ids

from ingest.errors import TransitionError
from ingest.lake import Lake
from ingest.office.actions import Note, happen
from ingest.office.events import Event, append
from ingest.office.refused import Office
from ingest.office.states import (
    ALLOWED_FROM,
    LEADS_TO,
    STATES,
    VERBS,
    LastEvent,
    check,
    first_state,
    may,
)

# Written out a second time, by hand: who changes the table must want to.
LEGAL = {
    ("pending", "investigated"), ("pending", "corrected"), ("pending", "discarded"),
    ("pending", "reentered"), ("pending", "exhausted"), ("pending", "purged"),
    ("investigated", "investigated"), ("investigated", "corrected"), ("investigated", "discarded"),
    ("investigated", "reopened"), ("investigated", "reentered"), ("investigated", "exhausted"),
    ("investigated", "purged"),
    ("corrected", "reopened"), ("corrected", "reentered"), ("corrected", "exhausted"),
    ("corrected", "purged"),
    ("discarded", "reopened"), ("discarded", "purged"),
    ("reentered", "purged"),
    ("exhausted", "discarded"), ("exhausted", "reopened"), ("exhausted", "purged"),
}  # fmt: skip
LAST = LastEvent("e1", "discarded", "maria", "test data", datetime(2024, 5, 1, 10, tzinfo=UTC))


def test_every_transition_is_as_it_was_agreed() -> None:
    assert {(s, e) for e in LEADS_TO for s in STATES if may(s, e)} == LEGAL


def test_every_event_leads_to_a_state_and_every_state_has_a_way_in() -> None:
    assert set(ALLOWED_FROM) == set(LEADS_TO)
    assert set(LEADS_TO.values()) == set(STATES)


def test_a_refusal_says_the_state_who_made_it_so_and_the_way_out() -> None:
    with pytest.raises(TransitionError) as caught:
        check("a" * 64, "discarded", "corrected", LAST)

    assert caught.value.record_id == "a" * 64
    assert str(caught.value) == (
        "Record aaaaaaaaaaaa is discarded (by maria at 2024-05-01 10:00:00 UTC ('test data')), so it "
        "cannot be corrected. What can be done: reopen. To decide anew, reopen it first: "
        "lakehouse quarantine reopen aaaaaaaaaaaa --because '...'"
    )


@pytest.mark.parametrize("state", STATES)
def test_every_refusal_says_how_to_go_on(state: str) -> None:
    for event in LEADS_TO:
        if may(state, event):
            check("a" * 64, state, event, None)
            continue
        with pytest.raises(TransitionError) as caught:
            check("a" * 64, state, event, None)
        assert f"is {state}" in str(caught.value)
        assert "{" not in str(caught.value)
        assert all(verb in str(caught.value) for kind, verb in VERBS.items() if may(state, kind))


@pytest.mark.parametrize(
    ("is_dropped", "attempt", "expected"),
    [
        (False, 1, "pending"),
        (False, 2, "pending"),
        (False, 3, "exhausted"),
        (False, 4, "exhausted"),
        (True, 1, "discarded"),
        (True, 3, "discarded"),
    ],
)
def test_the_state_before_any_event(is_dropped: bool, attempt: int, expected: str) -> None:
    assert first_state(is_dropped=is_dropped, attempt=attempt, max_attempts=3) == expected


def test_a_first_attempt_is_never_the_last() -> None:
    assert first_state(is_dropped=False, attempt=1, max_attempts=1) == "pending"


@pytest.fixture(scope="module", autouse=True)
def template(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A lake to copy: making one takes longer than a life."""
    Lives.template = make_lake(tmp_path_factory.mktemp("template")).path


class Lives(RuleBasedStateMachine):
    """Operators and replay do at random what comes to their minds; the table settles what happens."""

    template: Path

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.lake = Lake(Path(self._folder.name) / "lake")
        shutil.copytree(self.template, self.lake.path)
        ids = record_ids(self.lake)
        self.ids = [ids[3], ids[4], ids[7]]
        self.states = dict.fromkeys(self.ids, "pending")
        self.stories: dict[str, list[str]] = {record_id: [] for record_id in self.ids}
        self.evidence = self._evidence()

    def teardown(self) -> None:
        self._folder.cleanup()

    def _evidence(self) -> str:
        """A hash of all that must never change: Bronze, quarantine, and their logs."""
        digest = hashlib.sha256()
        for name in ("bronze/orders", "silver/orders_quarantine"):
            for path in sorted((self.lake.path / name).rglob("*")):
                digest.update(path.read_bytes() if path.is_file() else b"")
        return digest.hexdigest()

    @rule(
        which=st.sets(st.integers(0, 2), min_size=1),
        event=st.sampled_from(sorted(LEADS_TO)),
        actor=st.sampled_from(["ana", "luis"]),
    )
    def something_happens(self, which: set[int], event: str, actor: str) -> None:
        wanted = [self.ids[at] for at in sorted(which)]
        with Office(self.lake) as office:
            records = office.find(wanted)
            try:
                for record in records:
                    check(record.record_id, record.state, event, record.last)
            except TransitionError:
                assert any((self.states[i], event) not in LEGAL for i in wanted)
                return
            assert all((self.states[i], event) in LEGAL for i in wanted)
            payloads = dict.fromkeys(wanted, "x,y") if event == "corrected" else None
            happen(office, records, event, Note(actor, "because"), payloads)
        for record_id in wanted:
            self.states[record_id] = LEADS_TO[event]
            self.stories[record_id].append(event)

    @invariant()
    def the_lake_tells_the_same_states_and_stories(self) -> None:
        with Office(self.lake) as office:
            assert {r.record_id: r.state for r in office.find(self.ids)} == self.states
        rows = self.lake.read(
            "bronze", "quarantine_events", ["record_id", "event_type", "at"]
        ).to_pylist()
        rows.sort(key=lambda row: row["at"])
        for record_id, story in self.stories.items():
            assert [r["event_type"] for r in rows if r["record_id"] == record_id] == story

    @invariant()
    def the_evidence_is_never_touched(self) -> None:
        assert self._evidence() == self.evidence


TestLives = Lives.TestCase
TestLives.settings = settings(
    max_examples=4,
    stateful_step_count=7,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def test_an_event_that_is_none_is_refused(tmp_path: Path) -> None:
    lake = make_lake(tmp_path)
    with pytest.raises(Exception, match="'forgiven' is no event"):
        append(lake, [Event("r", "orders", "orders", "forgiven", "ana", "why")], {})
