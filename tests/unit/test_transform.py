"""What becomes of models that fail as a whole: the stage, the way on, and what is tried again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ingest import transform
from ingest.lake import Lake
from ingest.transform import DbtOutcome, NodeFailure

CONFLICT = "[DELTA_CONCURRENT_DELETE_READ.WITHOUT_HINT] Transaction conflict detected."
DOUBLED = "[DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE] Cannot perform Merge"


@pytest.mark.parametrize(
    ("message", "stage", "error_type", "advice"),
    [
        (CONFLICT, "merge", "DELTA_CONCURRENT_DELETE_READ.WITHOUT_HINT", "Another writer"),
        (DOUBLED, "merge", DOUBLED[1:55], "two rows for one key"),
        ("[DELTA_CANNOT_MODIFY_APPEND_ONLY] no", "merge",
         "DELTA_CANNOT_MODIFY_APPEND_ONLY", "appendOnly"),
        ("[DATATYPE_MISMATCH.X] cannot cast; line 5 pos 2; 'MergeIntoCommand", "merge",
         "DATATYPE_MISMATCH.X", "not the columns"),
        ("[DATATYPE_MISMATCH.X] cannot cast; line 5 pos 2; 'Project", "transformation",
         "DATATYPE_MISMATCH.X", "Mend the model"),
        ("[UNRESOLVED_COLUMN.WITH_SUGGESTION] x", "transformation",
         "UNRESOLVED_COLUMN.WITH_SUGGESTION", "Mend the model"),
        ("Compilation Error", "transformation", "DBT_ERROR", "Mend the model"),
    ],
)  # fmt: skip
def test_a_failure_says_its_stage_and_how_to_go_on(
    message: str, stage: str, error_type: str, advice: str
) -> None:
    failure = NodeFailure("orders", "model", message)
    assert (failure.stage, failure.error_type) == (stage, error_type)
    assert advice in failure.advice and "run again" in failure.advice


class Dbt:
    """Gives one outcome after the other, and keeps what it was called with."""

    def __init__(self, *outcomes: DbtOutcome) -> None:
        self.outcomes, self.calls = list(outcomes), list[Sequence[str]]()

    def __call__(self, _: Lake, arguments: Sequence[str]) -> DbtOutcome:
        self.calls.append(arguments[5:])
        return self.outcomes.pop(0)


def test_what_met_a_conflict_is_tried_again_without_what_hangs_on_another_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    met = NodeFailure("placsp_lots", "model", CONFLICT)
    other = NodeFailure("orders", "model", DOUBLED)
    dbt = Dbt(
        DbtOutcome("1", [met, other], [], ["parties", "laws"], None, {"a", "placsp_lots", "parties"}),
        DbtOutcome("2", [met], [], ["parties"], None, {"placsp_lots", "parties"}),
        DbtOutcome("3", [], [], [], None, {"placsp_lots", "parties"}),
        DbtOutcome(),
    )
    monkeypatch.setattr(transform, "invoke_dbt", dbt)
    lake = Lake(tmp_path)
    lake.create_operations()
    pauses: list[float] = []
    outcome = transform.build(lake, "1", full_refresh=True, sources=["orders"], sleep=pauses.append)

    again = ["--full-refresh", "--select", "placsp_lots+", "--exclude", "orders+"]
    assert [list(call) for call in dbt.calls] == [
        ["--full-refresh", "--select", "source:bronze.orders+"], again, again,
        ["--select", "dead_letters", "dead_letter_summary"],
    ]  # fmt: skip
    assert (outcome.failures, outcome.skipped, outcome.run_id) == ([other], ["laws"], "3")
    assert [0 <= pause <= bound for pause, bound in zip(pauses, (4, 8), strict=True)] == [True, True]
    told = lake.read("bronze", "run_failures", ["node", "stage"]).to_pylist()
    assert told == [{"node": "orders", "stage": "merge"}]


def test_attempts_are_bounded_and_what_still_fails_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    met = NodeFailure("placsp_lots", "model", CONFLICT)
    # The third one could not even start.
    outcomes = [DbtOutcome("1", [met], [], ["laws"], None, {"placsp_lots", "laws"}) for _ in range(5)]
    outcomes[2] = DbtOutcome(error="no memory")
    dbt = Dbt(*outcomes, DbtOutcome())
    monkeypatch.setattr(transform, "invoke_dbt", dbt)
    lake = Lake(tmp_path)
    lake.create_operations()
    outcome = transform.build(lake, "1", sleep=lambda _: None)
    assert len(dbt.calls) == transform.MERGE_ATTEMPTS + 1
    assert (outcome.failures, outcome.skipped) == ([met], ["laws"])
    told = lake.read("bronze", "run_failures", ["error_message"]).to_pylist()
    assert len(told) == 1 and "Nothing is lost" in told[0]["error_message"]
