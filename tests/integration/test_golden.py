"""Each rule, of records and of their children, catches what its golden files say and leaves the rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from ingest.contracts import Rule, load_children, load_contracts
from ingest.lake import Lake
from ingest.query import connect
from ingest.transform import models_dir, silver_dir

CONTRACTS = load_contracts(models_dir())
CHILDREN = load_children(silver_dir())
CASES = [
    pytest.param(contract.record_type, rule, id=f"{contract.record_type}-{rule.code}")
    for contract in (*CONTRACTS.values(), *CHILDREN)
    for rule in contract.rules
]


@dataclass(frozen=True)
class Verdict:
    """What was said of a record itself, or of one of its children."""

    failure_reasons: list[str]
    warnings: list[str]
    is_quarantined: bool

    @property
    def codes(self) -> list[str]:
        return [*self.failure_reasons, *self.warnings]

    def tells(self, rule: Rule) -> bool:
        """Whether the rule struck, and where its severity says."""
        if rule.severity == "warn":
            return rule.code in self.warnings
        return rule.code in self.failure_reasons and self.is_quarantined


@dataclass(frozen=True)
class Golden:
    """One record of a golden file. ``table`` is its record type, with one verdict, or a table of
    children, with one verdict per child: none where it has no child, or was refused itself."""

    table: str
    file: Path
    position: int
    verdicts: list[Verdict]
    payload: str

    def __str__(self) -> str:
        words = " ".join(self.payload.split())
        codes = "; ".join(", ".join(verdict.codes) or "no code" for verdict in self.verdicts)
        what = codes or f"nothing in {self.table}"
        return f"{self.file} record {self.position} has {what}: {words[:400]}"


@dataclass(frozen=True)
class GoldenLake:
    """A lake that holds all golden files among others, and the verdicts on its records."""

    lake: Lake
    files: Path
    records: list[Golden]

    def of(self, table: str, code: str, word: str) -> list[Golden]:
        return [
            record
            for record in self.records
            if record.table == table
            and record.file.parent == Path(table) / code
            and record.file.stem.split("_")[-1] == word
        ]


@pytest.fixture(scope="module")
def golden_lake(grown_lake: Lake, golden_files: Path) -> GoldenLake:
    def told(name: str) -> Path:
        """A golden file as it is named in the repository, any other of the lake by its whole path."""
        path = Path(name)
        return path.relative_to(golden_files) if path.is_relative_to(golden_files) else path

    records = []
    with connect(grown_lake.path) as connection:
        for record_type in CONTRACTS:
            for name, position, payload, *verdict in connection.execute(
                "select judged._source_file, judged._position, bronze.payload, judged.failure_reasons, "
                "judged.warnings, quarantined._record_id is not null "
                f"from silver.{record_type}_judged as judged "
                f"join bronze.{record_type} as bronze using (_record_id) "
                f"left join silver.{record_type}_quarantine as quarantined using (_record_id) "
                "order by 1, 2"
            ).fetchall():
                found = Golden(record_type, told(name), position, [Verdict(*verdict)], payload)
                records.append(found)
        quarantined = set(
            connection.execute(
                "select record_id, table_name, ordinal from silver.placsp_children_quarantine"
            ).fetchall()
        )
        for child in CHILDREN:
            for name, position, payload, record_id, judged in connection.execute(
                f"select bronze._source_file, bronze._position, bronze.payload, bronze._record_id, "
                f"children.{child.record_type} from bronze.{child.of} as bronze "
                f"left join silver.{child.of}_children as children "
                "on children.record_id = bronze._record_id order by 1, 2"
            ).fetchall():
                verdicts = [
                    Verdict(
                        each["failure_reasons"],
                        each["warnings"],
                        (record_id, child.record_type, each["row"]["ordinal"]) in quarantined,
                    )
                    for each in judged or ()
                ]
                records.append(Golden(child.record_type, told(name), position, verdicts, payload))
    return GoldenLake(grown_lake, golden_files, records)


def test_the_run_captured_every_file_and_no_law_is_broken(golden_lake: GoldenLake) -> None:
    with connect(golden_lake.lake.path) as connection:
        files = connection.execute(
            "select source_file, error_message from bronze.files where status <> 'ingested' "
            "and starts_with(source_file, ?)",
            [str(golden_lake.files)],
        ).fetchall()
        offenders = connection.execute("select * from marts.law_results where offenders > 0").fetchall()
    assert files == []
    assert offenders == []


@pytest.mark.parametrize(("table", "rule"), CASES)
def test_a_rule_catches_what_it_must(golden_lake: GoldenLake, table: str, rule: Rule) -> None:
    caught = golden_lake.of(table, rule.code, "caught")
    missed = [str(r) for r in caught if not any(verdict.tells(rule) for verdict in r.verdicts)]
    assert caught, f"tests/golden/{table}/{rule.code} has no record that the rule must catch."
    assert not missed, f"{rule.code} ({rule.severity}) does not strike, or not so:\n" + "\n".join(missed)


@pytest.mark.parametrize(("table", "rule"), CASES)
def test_a_rule_leaves_what_it_must(golden_lake: GoldenLake, table: str, rule: Rule) -> None:
    left = golden_lake.of(table, rule.code, "left")
    struck = [str(r) for r in left if any(rule.code in verdict.codes for verdict in r.verdicts)]
    asked = {r.file for r in left if r.verdicts}
    idle = sorted({str(r.file) for r in left if r.file not in asked})
    assert left, f"tests/golden/{table}/{rule.code} has no record that the rule must leave."
    assert not idle, f"{rule.code} was asked nothing, for nothing of {table} is in " + ", ".join(idle)
    assert not struck, f"{rule.code} strikes what it must leave:\n" + "\n".join(struck)


def test_only_refused_records_are_in_quarantine(golden_lake: GoldenLake) -> None:
    wrong = [
        str(record)
        for record in golden_lake.records
        for verdict in record.verdicts
        if verdict.is_quarantined != bool(verdict.failure_reasons)
    ]
    assert not wrong, "\n".join(wrong)


def test_rule_outcomes_count_what_each_rule_struck(golden_lake: GoldenLake) -> None:
    struck = Counter(
        (record.table, code)
        for record in golden_lake.records
        for verdict in record.verdicts
        for code in verdict.codes
    )
    with connect(golden_lake.lake.path) as connection:
        told = connection.execute(
            "select record_type, rule_code, sum(records)::bigint from marts.rule_outcomes "
            "where outcome = 'FAIL' group by all"
        ).fetchall()
    assert {(table, code): records for table, code, records in told} == struck


# Severity of a rule -> what becomes of a record that it strikes, in rule_outcomes.
BECOMES = {"warn": "warned", "quarantine": "quarantined", "drop": "dropped", "fail": "failed"}


def test_rule_outcomes_count_what_became_of_those_that_a_rule_was_asked_of(
    golden_lake: GoldenLake,
) -> None:
    """Rule by rule over each record, as a person would ask them: until one that stops has struck."""
    rules = {contract.record_type: contract.rules for contract in (*CONTRACTS.values(), *CHILDREN)}
    expected: Counter[tuple[str, str, str]] = Counter()
    for record in golden_lake.records:
        for verdict in record.verdicts:
            for rule in rules[record.table]:
                expected[record.table, rule.code, "asked"] += 1
                if rule.code not in verdict.codes:
                    expected[record.table, rule.code, "passed"] += 1
                    continue
                expected[record.table, rule.code, BECOMES[rule.severity]] += 1
                if rule.stops:
                    break
    names = ("asked", "passed", *BECOMES.values())
    with connect(golden_lake.lake.path) as connection:
        told = connection.execute(
            "select record_type, rule_code, "
            + ", ".join(f"sum({name})::bigint" for name in names)
            + " from marts.rule_outcomes group by all"
        ).fetchall()
    found = {
        (table, code, name): number
        for table, code, *numbers in told
        for name, number in zip(names, numbers, strict=True)
        if number
    }
    assert found == expected
    assert {name for _, _, name in found} >= {"asked", "passed", "warned", "quarantined"}
