"""Masks: the same in Python and in SQL, checked in contracts, and heeded by show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import jinja2
import pytest
from click.testing import CliRunner
from office_lake import make_lake, record_ids

from ingest.cli import cli
from ingest.contracts import ContractError, load_contracts
from ingest.environment import PROJECT_ROOT
from ingest.lake import Lake
from ingest.office.details import without_elements
from ingest.pii import MASKS, masked
from ingest.transform import models_dir

VALUES = [
    None, "", "a", "Ana Pérez", "ana@example.org", "12345678Z", " x1234567L ", "B12345678", "😀x",
    "1234567890Z", "it's",
]  # fmt: skip


@pytest.mark.parametrize("how", MASKS)
def test_the_macro_and_python_show_the_same(how: str) -> None:
    environment = jinja2.Environment()
    text = (PROJECT_ROOT / "macros" / "mask.sql").read_text("utf-8")
    # The first macro alone: the others ask dbt.
    macro = environment.from_string(text[: text.index("{% macro personal_columns()")]).module
    sql = str(macro.mask("value", how))  # type: ignore[attr-defined]
    with duckdb.connect() as connection:
        # Spark's names for what DuckDB has.
        connection.execute("create macro sha2(text, bits) as sha256(text)")
        connection.execute("create macro regexp_like(text, pattern) as regexp_matches(text, pattern)")
        connection.execute("create table given (number int, value text)")
        connection.executemany("insert into given values (?, ?)", list(enumerate(VALUES)))
        # In DuckDB concat makes a text of nothing.
        shown = f"case when value is not null then {sql} end"
        rows = connection.execute(f"select {shown} from given order by number").fetchall()
    assert [row[0] for row in rows] == [masked(value, how) for value in VALUES]


def test_what_a_mask_shows() -> None:
    assert masked("Ana", "partial") == "A***" and masked("Ana", "drop") == "***"
    assert masked("Ana", "hash") == masked("Ana", "hash") != masked("Anb", "hash")
    assert masked(["12345678Z", "B12345678", None], "natural_person")[1:] == ["B12345678", None]
    assert masked("12345678Z", "natural_person").startswith("#")


def contract_with(folder: Path, change: tuple[str, str]) -> Path:
    text = (models_dir() / "orders.yml").read_text("utf-8")
    assert change[0] in text
    (folder / "orders.yml").write_text(text.replace(*change), "utf-8")
    return folder


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("mask: drop", "mask: blur"), "column note: its mask is 'blur'. It must be one of hash"),
        (
            ("{name: qty, from: qty,", "{name: qty, from: length(customer_id),"),
            "field qty: it is made of a personal column and may not convert",
        ),
        (("discarded: 90d", "discarded: soon"), "retention of discarded is 'soon'"),
        (("discarded: 90d", "purged: 90d"), "retention names 'purged'"),
    ],
)
def test_a_contract_that_would_show_or_keep_too_much_is_refused(
    tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    with pytest.raises(ContractError, match=r"orders\.yml") as refused:
        load_contracts(contract_with(tmp_path, change))
    assert said in str(refused.value)


def test_a_field_made_of_a_personal_column_is_personal(tmp_path: Path) -> None:
    changed = ("{name: sku, from: sku,", "{name: sku, from: upper(customer_id),")
    orders = load_contracts(contract_with(tmp_path, changed))["orders"]
    assert {name: pii.mask for name, pii in orders.personal_fields.items()} == {
        "customer_id": "hash", "sku": "hash", "note": "drop",
    }  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("masked")
    make_lake(folder)
    return folder


def show(folder: Path, record_id: str, *words: str) -> dict[str, Any]:
    lake = str(folder / "lake")
    words = ("quarantine", "show", record_id, "--format", "json", "--lake", lake, *words)
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 0, result.output
    told: dict[str, Any] = json.loads(result.stdout)
    return told


def test_show_masks_what_is_personal_wherever_it_stands(folder: Path) -> None:
    record_id = record_ids(Lake(folder / "lake"))[4]
    told = show(folder, record_id)

    assert told["fields"]["customer_id"] == masked("C3", "hash") and told["fields"]["note"] == "***"
    assert told["fields"]["order_id"] == "O3"
    assert told["payload"] == f'S3,O3,{masked("C3", "hash")},"1,5",2024-05-01 00:00:00,web,"***"'
    assert told["misfits"] == ["qty is '1,5'"]
    assert told["lines"] == [] and "--unmasked" in told["lines_note"]

    open_told = show(folder, record_id, "--unmasked")
    assert "then ring" in open_told["payload"] and open_told["fields"]["customer_id"] == "C3"


def test_show_withholds_a_text_that_does_not_parse(folder: Path) -> None:
    told = show(folder, record_ids(Lake(folder / "lake"))[6])
    assert told["payload"] is None and "does not parse" in told["hidden"]
    assert "S4" not in json.dumps(told)


def test_what_is_in_a_personal_element_of_xml_is_not_shown() -> None:
    text = "<cac:Party><cac:Contact a='1'><cbc:Name>Ana</cbc:Name>\n</cac:Contact><b/></cac:Party>"
    assert without_elements(text, ["Contact"]) == (
        "<cac:Party><cac:Contact a='1'>***</cac:Contact><b/></cac:Party>"
    )
    others = "<Contact/><Contacts>x</Contacts>"
    assert without_elements(others, ["Contact"]) == others and without_elements(text, []) == text
