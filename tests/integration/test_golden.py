"""Each rule catches what its golden files say it must, and leaves the near misses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ingest.contracts import Rule, load_contracts
from ingest.environment import PROJECT_ROOT
from ingest.lake import Lake
from ingest.main_job import Options, run_main_job
from ingest.query import connect
from ingest.transform import models_dir

GOLDEN = PROJECT_ROOT / "tests" / "golden"
CONTRACTS = load_contracts(models_dir())
CASES = [
    pytest.param(record_type, rule, id=f"{record_type}-{rule.code}")
    for record_type, contract in CONTRACTS.items()
    for rule in contract.rules
]


@dataclass(frozen=True)
class Verdict:
    """What became of one record of a golden file."""

    record_type: str
    file: Path
    position: int
    failure_reasons: list[str]
    warnings: list[str]
    is_quarantined: bool
    payload: str

    def __str__(self) -> str:
        words = " ".join(self.payload.split())
        codes = ", ".join((*self.failure_reasons, *self.warnings)) or "no code"
        return f"{self.file} record {self.position} has {codes}: {words[:400]}"


@dataclass(frozen=True)
class GoldenLake:
    """The lake of all golden files, and the verdicts on their records."""

    lake: Lake
    verdicts: list[Verdict]
    exit_code: int

    def of(self, record_type: str, code: str, word: str) -> list[Verdict]:
        folder = Path(record_type) / code
        return [
            verdict
            for verdict in self.verdicts
            if verdict.record_type == record_type
            and verdict.file.parent == folder
            and verdict.file.stem.split("_")[-1] == word
        ]


@pytest.fixture(scope="module")
def golden_lake(tmp_path_factory: pytest.TempPathFactory) -> GoldenLake:
    folder = tmp_path_factory.mktemp("golden")
    year = datetime.now(UTC).year
    for path in sorted(GOLDEN.glob("*/*/*")):
        copy = folder / path.relative_to(GOLDEN)
        copy.parent.mkdir(parents=True, exist_ok=True)
        # The last year that a rule lets through moves with the clock, and its golden row with it.
        copy.write_bytes(
            re.sub(
                rb"@year\+(\d+)@", lambda found: b"%d" % (year + int(found.group(1))), path.read_bytes()
            )
        )
    lake = Lake(tmp_path_factory.mktemp("golden_lake") / "lake")
    exit_code = run_main_job(lake, Options(inputs=(str(folder),)))
    verdicts = []
    with connect(lake.path) as connection:
        for record_type in CONTRACTS:
            for name, *rest in connection.execute(
                "select judged._source_file, judged._position, judged.failure_reasons, judged.warnings, "
                "quarantined._record_id is not null, bronze.payload "
                f"from silver.{record_type}_judged as judged "
                f"join bronze.{record_type} as bronze using (_record_id) "
                f"left join silver.{record_type}_quarantine as quarantined using (_record_id) "
                "order by 1, 2"
            ).fetchall():
                verdicts.append(Verdict(record_type, Path(name).relative_to(folder), *rest))
    return GoldenLake(lake, verdicts, exit_code)


def test_the_run_captured_every_file_and_no_law_is_broken(golden_lake: GoldenLake) -> None:
    with connect(golden_lake.lake.path) as connection:
        files = connection.execute(
            "select source_file, error_message from bronze.files where status <> 'ingested'"
        ).fetchall()
        offenders = connection.execute("select * from marts.law_results where offenders > 0").fetchall()
    assert files == []
    assert offenders == []
    assert golden_lake.exit_code == 0


@pytest.mark.parametrize(("record_type", "rule"), CASES)
def test_a_rule_catches_what_it_must(golden_lake: GoldenLake, record_type: str, rule: Rule) -> None:
    caught = golden_lake.of(record_type, rule.code, "caught")
    missed = []
    for verdict in caught:
        if rule.severity == "warn":
            told = rule.code in verdict.warnings
        else:
            told = rule.code in verdict.failure_reasons and verdict.is_quarantined
        if not told:
            missed.append(str(verdict))
    assert caught, f"tests/golden/{record_type}/{rule.code} has no record that the rule must catch."
    assert not missed, f"{rule.code} ({rule.severity}) does not strike, or not so:\n" + "\n".join(missed)


@pytest.mark.parametrize(("record_type", "rule"), CASES)
def test_a_rule_leaves_what_it_must(golden_lake: GoldenLake, record_type: str, rule: Rule) -> None:
    left = golden_lake.of(record_type, rule.code, "left")
    struck = [str(v) for v in left if rule.code in (*v.failure_reasons, *v.warnings)]
    assert left, f"tests/golden/{record_type}/{rule.code} has no record that the rule must leave."
    assert not struck, f"{rule.code} strikes what it must leave:\n" + "\n".join(struck)


def test_only_refused_records_are_in_quarantine(golden_lake: GoldenLake) -> None:
    wrong = [str(v) for v in golden_lake.verdicts if v.is_quarantined != bool(v.failure_reasons)]
    assert not wrong, "\n".join(wrong)
