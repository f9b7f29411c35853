"""Inspections on real Spark: the sample against the generator, and small files with numbers by hand."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest
from conftest import FirstRun, SampleLake, rows
from pyspark.sql import SparkSession

from ingest.contracts import Contract, load_contracts
from ingest.inspection.findings import Findings, recount
from ingest.inspection.letter import letter
from ingest.inspection.report import markdown
from ingest.inspection.run import Options, inspect_file
from ingest.inspection.subject import look
from ingest.sample import Manifest, generate
from ingest.transform import models_dir

MALFORMED = "MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION"


def asked(out: Path, sql: str) -> list[tuple[Any, ...]]:
    """What is in the results, whose names in the query are those of their folders."""
    names = [path.name for path in out.iterdir() if path.is_dir()]
    with duckdb.connect() as connection:
        for name in names:
            connection.execute(f"create view {name} as from '{out / name}/*.parquet'")
        return connection.execute(sql).fetchall()


def told(out: Path, name: str) -> Any:
    return json.loads((out / name).read_text("utf-8"))


# --- The sample, by the command


@pytest.fixture(scope="module")
def lab(orders_lab: FirstRun) -> Path:
    assert orders_lab.exit_code == 0, orders_lab.told
    return orders_lab.checkout.root / "lab" / "orders"


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return generate(tmp_path_factory.mktemp("known"), entries=60, orders=6000)


@pytest.fixture(scope="module")
def lines(orders_lab: FirstRun) -> list[str]:
    """The lines of the sample; line 1 is at 1."""
    text = (orders_lab.checkout.root / "samples" / "orders_dirty.csv").read_text("utf-8")
    return ["", *text.splitlines()]


def test_the_three_modes_agree_with_the_generator(lab: Path, manifest: Manifest) -> None:
    facts = manifest.orders
    unreadable = facts.parse_refused - facts.out_of_range
    wrong_width = manifest.faults["missing_field"] + manifest.faults["extra_field"]
    assert (facts.rows, unreadable, wrong_width) == (6000, 150, 48)
    assert asked(lab, "select count(*), count(_corrupt) from permissive") == [(6000, 150)]
    assert asked(lab, "select count(*) from dropped") == [(5850,)]
    # Read across lines, count() sees the number of fields, and no value that does not fit.
    assert told(lab, "drop_count.json") == {"count_only": 6000 - 48, "written": 5850}


def test_the_widths_agree_with_the_generator(lab: Path, lines: list[str]) -> None:
    assert told(lab, "width.json") == {"6": 24, "7": 5952, "8": 24}
    naive = Counter(str(len(line.split(","))) for line in lines[2:])
    assert told(lab, "width_naive.json") == naive
    assert naive.total() == 6024, "a line break in quotes is no line end"


def test_clean_and_quarantine_agree_with_the_generator(
    lab: Path, manifest: Manifest, lines: list[str]
) -> None:
    facts = manifest.orders
    assert asked(lab, "select count(*) from clean") == [(5742,)] == [(facts.accepted,)]
    reasons = dict(asked(lab, "select reason, count(*) from quarantine group by 1"))
    assert reasons == {"parse": 174, "qty": 84}
    assert reasons == {"parse": facts.parse_refused, "qty": facts.qty_refused}
    assert asked(lab, "select count(*) from clean where qty is null or qty < 1") == [(0,)]
    codes = dict(asked(lab, "select failure_reasons[1], count(*) from quarantine group by 1"))
    known = manifest.faults
    assert codes == {
        "CORRUPT_RECORD": known["missing_field"] + known["extra_field"],
        "QTY_NOT_INTEGER": known["qty_text"] + known["qty_decimal_comma"],
        "ORDER_TS_NOT_A_TIMESTAMP": known["ts_other_format"] + known["ts_impossible_day"],
        "ORDER_TS_OUT_OF_RANGE": known["ts_year_0001"],
        "QTY_MISSING": known["qty_empty"],
        "QTY_BELOW_ONE": known["qty_zero"] + known["qty_negative"],
    }
    for position, payload in asked(lab, "select _position, payload from quarantine"):
        assert lines[position] == payload


def test_what_was_inferred_and_why_agrees_with_the_file(lab: Path, lines: list[str]) -> None:
    schema = "order_id {}, customer_id {}, sku {}, qty INT, order_ts TIMESTAMP, channel {}, note {}"
    assert (lab / "schema.ddl").read_text() == schema.replace("{}", "STRING") + "\n"
    names = ("order_id", "customer_id", "sku", "qty", "order_ts", "channel", "note")
    inferred = ",".join(f"{name}:string" for name in names)
    assert (lab / "inferred.txt").read_text() == f"struct<{inferred}>\n"
    values = asked(lab, 'select "column", _position, value from inference')
    assert Counter(column for column, _, _ in values) == {"qty": 54, "order_ts": 48}
    assert all(value in lines[position] for _, position, value in values)
    assert {value for column, _, value in values if column == "qty"} == {"two", "1,5"}


def test_failfast_names_the_condition_and_the_first_record(lab: Path, lines: list[str]) -> None:
    condition, where, text = (lab / "failfast.txt").read_text("utf-8").splitlines()
    assert condition == MALFORMED
    first = next(
        number
        for number, line in enumerate(lines)
        if number > 1 and len(line.split(",")) == 6 and '"' not in line
    )
    earlier = [line for line in lines[2:first] if ",two," in line or '"1,5"' in line]
    assert not earlier
    assert (where, text) == (f"line {first}", lines[first])


def test_each_step_is_an_application_with_its_jobs(orders_lab: FirstRun) -> None:
    logs = list((orders_lab.checkout.root / "lab" / "events").iterdir())
    found = {}
    for log in logs:
        events = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
        kinds = Counter(event["Event"] for event in events)
        name = next(e["App Name"] for e in events if e["Event"] == "SparkListenerApplicationStart")
        failed = sum(
            event["Event"] == "SparkListenerJobEnd" and event["Job Result"]["Result"] == "JobFailed"
            for event in events
        )
        assert kinds["SparkListenerApplicationEnd"] == 1
        found[name] = (kinds["SparkListenerJobStart"] > 0, failed)
    assert found == {
        "spk-schema-infer": (True, 0),
        "spk-schema-load": (True, 0),
        "spk-schema-drop": (True, 0),
        "spk-schema-failfast": (True, 1),
        "spk-schema-width": (True, 0),
        "spk-schema-clean": (True, 0),
    }


def test_the_letter_says_the_numbers(lab: Path) -> None:
    findings = recount(lab)
    text = markdown(list(letter(findings, "ko")))
    head, _, modes, quarantined = re.split(r"^## .*$", text, flags=re.MULTILINE)
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == [
        "추론이 틀린 곳", "세 가지 모드", "격리한 줄",
    ]  # fmt: skip
    assert re.findall(r"\| (\d+) \|$", head, re.MULTILINE) == ["6000", "5742", "174", "84"]
    assert all(number in modes for number in ("150", "5850", "5952"))
    assert "5742" in quarantined and "258" in quarantined
    assert (lab / "report.md").read_text("utf-8") == markdown(list(letter(findings, "en")))


def test_the_verdict_is_that_of_the_lake(lab: Path, sample_lake: SampleLake) -> None:
    in_lake = rows(
        sample_lake.lake,
        "select _position, reason, failure_reasons, payload from silver.orders_quarantine",
    )
    here = asked(lab, "select _position, reason, failure_reasons, payload from quarantine")
    assert sorted(here) == sorted(in_lake)


# --- Small files, in this process


HEAD = "sku,order_id,customer_id,qty,order_ts,channel,note\n"
SMALL = HEAD + (
    "S1,A2,C1,1,2024-05-01 00:00:00,web,plain\n"
    "S1,A3,C1,two,2024-05-01 00:00:00,web,\n"
    "S1,A4,C1,,2024-05-01 00:00:00,web,\n"
    "S1,A5,C1,0,2024-05-01 00:00:00,web,\n"
    "S1,A6,C1,  7 ,2024-05-01 00:00:00,web,\n"
    'S1,A7,C1,"1,5",2024-05-01 00:00:00,web,\n'
    "S1,A8,C1,3,2024-02-31 00:00:00,web,\n"
    "S1,A9,C1,3,0001-01-01 00:00:00,web,\n"
    'S1,A10,C1,3,2024-05-01 00:00:00,web,"a\nb, ""c"""\n'
    "S1,A12,C1,3,2024-05-01 00:00:00,web\n"
    "\n"
    ",,,,,,\n"
)


def inspected(
    contracts: dict[str, Contract], folder: Path, text: bytes, record_type: str = "orders"
) -> tuple[Path, Findings]:
    file = folder / "_of:a [partner].csv"
    file.write_bytes(text)
    active = SparkSession.getActiveSession()
    findings = inspect_file(look(contracts, record_type, file), Options(folder / "out [1]", "en"))
    assert SparkSession.getActiveSession() is active, "a session that is there is used and left"
    renamed = (folder / "out [1]").rename(folder / "out")
    return renamed, findings


@pytest.fixture(scope="module")
def contracts() -> dict[str, Contract]:
    return load_contracts(models_dir())


def test_every_record_of_a_small_file_is_where_it_belongs(
    contracts: dict[str, Contract], tmp_path: Path
) -> None:
    out, findings = inspected(contracts, tmp_path, SMALL.encode())
    assert (out / "schema.ddl").read_text().startswith("sku STRING, order_id STRING, customer_id")
    assert asked(out, "select order_id, qty, note from clean order by 1") == [
        ("A10", 3, 'a\nb, "c"'), ("A2", 1, "plain"), ("A6", 7, None),
    ]  # fmt: skip
    assert asked(out, "select _position, reason, failure_reasons[1] from quarantine order by 1") == [
        (3, "parse", "QTY_NOT_INTEGER"),
        (4, "qty", "QTY_MISSING"),
        (5, "qty", "QTY_BELOW_ONE"),
        (7, "parse", "QTY_NOT_INTEGER"),
        (8, "parse", "ORDER_TS_NOT_A_TIMESTAMP"),
        (9, "parse", "ORDER_TS_OUT_OF_RANGE"),
        (12, "parse", "CORRUPT_RECORD"),
        (14, "key", "ORDER_ID_MISSING"),
    ]
    # Spark's reader takes the year 0001, and the row of delimiters.
    corrupt = asked(out, "select _corrupt from permissive where _corrupt is not null")
    assert {text.split(",")[1] for (text,) in corrupt} == {"A3", "A7", "A8", "A12"}
    assert asked(out, "select year(order_ts) from permissive where order_id = 'A9'") == [(1,)]
    assert (findings.received, findings.permissive, findings.dropped) == (11, 11, 7)
    assert (findings.count_only, findings.malformed) == (10, 4)
    assert told(out, "width.json") == {"6": 1, "7": 10}
    # "1,5" is two; of the record on two lines, the first has seven and the second two.
    assert told(out, "width_naive.json") == {"2": 1, "6": 1, "7": 9, "8": 1}
    assert (findings.condition, findings.failed_line) == (MALFORMED, "3")
    assert findings.failed_text.start == "S1,A3,C1,two,2024-05-01 00:00:00,web,"
    assert [(c.name, c.inferred, c.examples[0][0]) for c in findings.misinferred] == [
        ("qty", "string", 3), ("order_ts", "string", 8),
    ]  # fmt: skip
    assert {path.name for path in tmp_path.iterdir()} == {"out", "_of:a [partner].csv"}


def test_an_unclosed_quote_costs_its_line_in_every_mode(
    contracts: dict[str, Contract], tmp_path: Path
) -> None:
    text = HEAD + (
        'S1,A2,C1,1,2024-05-01 00:00:00,"web,\n'
        "S1,A3,C1,x,2024-05-01 00:00:00,web,\n"
        "S1,A4,C1,3,2024-05-01 00:00:00,web,\n"
    )
    out, findings = inspected(contracts, tmp_path, text.encode())
    assert (findings.received, findings.permissive) == (3, 3)
    assert asked(out, "select order_id from clean") == [("A4",)]
    # Line by line nothing is parsed for count(), not even the number of fields.
    assert told(out, "drop_count.json")["count_only"] == 3
    assert asked(out, "select _position, _fields from quarantine order by 1") == [(2, 7), (3, 7)]


def test_a_contract_without_quantities_is_judged_by_its_own_rules(
    contracts: dict[str, Contract], tmp_path: Path
) -> None:
    (tmp_path / "parcels.yml").write_text(PARCELS, "utf-8")
    known = contracts | load_contracts(tmp_path)
    (tmp_path / "parcels.yml").unlink()
    text = (
        "Weight;Nº;sent;colour\r\n1,50;0007;31/12/2024;red\r\n1.5;0008;01/02/2024;\r\n"
        "2,00;0009;2024-01-01;é\r\n;0010;;\r\n"
    )
    out, findings = inspected(known, tmp_path, text.encode("windows-1252"), "parcels")
    ddl = "weight DECIMAL(9,2), parcel STRING, sent DATE, colour STRING\n"
    assert (out / "schema.ddl").read_text() == ddl
    assert asked(out, "select parcel, cast(weight as varchar), sent::varchar from clean order by 1") == [
        ("0007", "1.50", "2024-12-31"), ("0010", None, None),
    ]  # fmt: skip
    assert asked(out, "select _position, reason, payload from quarantine order by 1") == [
        (3, "form", "1.5;0008;01/02/2024;"), (4, "form", "2,00;0009;2024-01-01;é"),
    ]  # fmt: skip
    assert findings.facts["missing_columns"] == ["size"]
    assert findings.facts["extra_columns"] == ["colour"]
    leading_zeros = next(c for c in findings.misinferred if c.name == "parcel")
    assert (leading_zeros.agreed, leading_zeros.inferred, leading_zeros.values) == ("string", "int", 4)


def test_a_sound_file_stops_nothing(contracts: dict[str, Contract], tmp_path: Path) -> None:
    text = HEAD + "S1,A2,C1,1,2024-05-01 00:00:00,web,x\n"
    out, findings = inspected(contracts, tmp_path, text.encode("utf-16"))
    assert (out / "failfast.txt").read_text() == "NONE\n"
    assert not (out / "width_naive.json").exists()
    assert (findings.clean, findings.quarantined, findings.condition) == (1, 0, None)
    assert findings.misinferred == ()


PARCELS = """
sources:
  - name: bronze
    tables:
      - name: parcels
        config:
          meta:
            contract:
              version: 0.1.0
              owner: depot
              format: csv
              schema: parcel STRING, weight STRING, sent STRING, size STRING
              feed:
                files: ["parcels*.csv"]
                delimiter: ";"
                encoding: windows-1252
                aliases: {Nº: parcel}
                datasets: [{name: parcels, prefix: parcels}]
              key: [parcel]
              order_by: sent
              fields:
                - {name: parcel, from: parcel, type: text}
                - {name: weight, from: weight, type: "decimal(9,2)", decimal_sign: ","}
                - {name: sent, from: sent, type: date, format: dd/MM/yyyy}
                - {name: size, from: size, type: string}
              rules:
                - code: CORRUPT_RECORD
                  when: _corrupt_record is not null
                  stops: true
                  severity: quarantine
                  on_null: pass
                  stage: csv_parsing
                  reason: parse
                  why: It has other fields than its header.
                  fix: Mend it.
                - code: MISFIT
                  misfit: [weight, sent]
                  severity: quarantine
                  on_null: pass
                  stage: schema_validation
                  reason: form
                  why: It is not what was agreed.
                  fix: Mend it.
"""
