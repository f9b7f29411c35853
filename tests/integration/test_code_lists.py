"""Code lists with real Spark and dbt: seeds as they are, Silver, and dead letters of the stage."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path

import pytest
from conftest import FirstRun, SampleLake, rows
from dbt.cli.main import dbtRunner
from rich.console import Console

from ingest.catalogue import load_catalogue
from ingest.environment import PROJECT_ROOT
from ingest.lake import Lake
from ingest.session import start_on
from ingest.summary import print_summary
from ingest.transform import invoke_dbt

ODD_SEED = """\
code,name
01,l'Hospitalet
02,
003,"100 % of ""it"", \\n and ${x} {{ y }}"
"""
LIST = """<gc:CodeList xmlns:gc="http://docs.oasis-open.org/codelist/ns/genericode/1.0/">
<Identification><ShortName>ContractCode</ShortName><Version>{version}</Version></Identification>
<ColumnSet><Column Id="code"/><Column Id="nombre"/></ColumnSet>
<SimpleCodeList><Row><Value ColumnRef="code"><SimpleValue>{code}</SimpleValue></Value>
<Value ColumnRef="nombre"><SimpleValue>{name}</SimpleValue></Value></Row></SimpleCodeList></gc:CodeList>
"""

MISSING = (
    "select business_key from marts.dead_letters where error_type = 'CODE_LIST_MISSING' "
    "order by business_key"
)


@pytest.fixture
def lake(sample_lake: SampleLake, tmp_path: Path) -> Lake:
    shutil.copytree(sample_lake.lake.path, tmp_path / "lake")
    return Lake(tmp_path / "lake")


def test_lists_reach_silver_and_refused_ones_the_dead_letters(
    lake: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shipped = rows(lake, "select count(*), count(name_en), count(*) filter (name_en = 'None') "
                         "from silver.codice_codes where source_file is null")  # fmt: skip
    assert shipped == [(59, 37, 0)], "the seed alone, empty names null"
    lists = tmp_path / "lists"
    lists.mkdir()
    for version, code, name in (
        ("2.08", "01", "Obra d'art"),
        ("2.9", "1", "Neuf"),
        ("2.10", "1", "Diez"),
    ):
        text = LIST.format(version=version, code=code, name=name)
        (lists / f"ContractCode-{version}.gc").write_text(text, "utf-8")
    (lists / "TenderResultCode-2.09.gc").write_text(LIST[:300], "utf-8")
    # Entries cite NUTS-2021; where that version is not here, the newest has the name.
    places = "select distinct place_nuts_code, place_nuts_code_name from silver.placsp_entry_versions " \
             "where place_nuts_code is not null order by 1"  # fmt: skip
    (code, unnamed), *others = rows(lake, places)
    assert unnamed is None
    nuts = LIST.replace("ContractCode", "NUTS").format(version="2024", code=code, name="Sitio")
    (lists / "NUTS-2024.gc").write_text(nuts, "utf-8")
    load_catalogue(lake, [str(lists)], pipeline_version="1")

    for _ in range(2):
        start_on(lake)
        outcome = invoke_dbt(
            lake,
            ["--log-level", "none", "build", "--select", "shipped_codes", "codice_codes",
             "dead_letters", "placsp_entry_versions"],
        )  # fmt: skip
        assert outcome.error is None and outcome.failures == []
        assert rows(
            lake,
            "select list_version, code, code_name, is_newest_version from silver.codice_codes "
            "where list_id = 'ContractCode' order by 1",
        ) == [
            ("2.08", "01", "Obra d'art", False),
            ("2.10", "1", "Diez", True),
            ("2.9", "1", "Neuf", False),
        ], "a loaded version replaces the shipped one as a whole"
        assert rows(lake, "select count(*) from silver.codice_codes") == [(59 - 11 + 3 + 1,)]
        [(name, error_type, message, node)] = rows(
            lake,
            "select source_file, error_type, error_message, record_type from marts.dead_letters "
            "where stage = 'catalogue' and error_type <> 'CODE_LIST_MISSING'",
        )
        assert Path(str(name)).name == "TenderResultCode-2.09.gc"
        assert (error_type, node) == ("NOT_WELL_FORMED", "codice_codes")
        assert "TenderResultCode-2.09.gc line" in str(message)
        assert rows(lake, places) == [(code, "Sitio"), *others], "names appear with their list"
        assert rows(lake, MISSING) == [("CPV2008",), ("NUTS",)], "that it was missing stays known"
        caplog.clear()
        print_summary(lake.path, {}, Console(file=io.StringIO()))
        [warning] = caplog.messages
        assert "1 code list(s)" in warning and ": CPV2008." in warning


def test_lists_that_records_cite_and_that_are_not_here_are_told_once(
    first_run: FirstRun, sample_lake: SampleLake, grown_lake: Lake
) -> None:
    cited = rows(
        sample_lake.lake,
        'select distinct regexp_extract(unnest(regexp_extract_all(payload, \'listURI="[^"]*"\')), '
        "'([^/]+)-[^-]+[.]gc', 1) as list_id from bronze.placsp_entries order by 1",
    )
    shipped = rows(sample_lake.lake, "select distinct list_id from silver.codice_codes")
    missing = [name for name in cited if name not in shipped]
    assert missing == [("CPV2008",), ("NUTS",)]
    assert rows(sample_lake.lake, MISSING) == missing
    [warning] = [line for line in first_run.told.splitlines() if "WARNING catalogue" in line]
    assert "2 code list(s)" in warning and "CPV2008, NUTS" in warning and "catalogue load" in warning
    message = MISSING.replace("business_key", "error_message, stage, record_type")
    assert rows(sample_lake.lake, message)[1] == (
        "codice_codes: records cite the code list NUTS (https://example.org/codice/cl/NUTS-2021.gc) and "
        "no version of it is here, so its codes are shown without names. Take its .gc file from its "
        "publisher, load it with 'lakehouse catalogue load' and run again: the names appear.",
        "catalogue",
        "codice_codes",
    )
    # The second delivery cites them too, and a golden file one that has no file's name.
    assert rows(grown_lake, MISSING) == [*missing, ("https://example.org/cpv",)]


def test_a_seed_says_what_its_file_says_and_is_written_when_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    shutil.copytree(PROJECT_ROOT / "dbt_project", project, ignore=shutil.ignore_patterns("target"))
    seed = project / "seeds" / "odd.csv"
    types = "{code: string, name: string}"
    (project / "seeds" / "odd.yml").write_text(
        f"version: 2\nseeds:\n  - name: odd\n    config: {{column_types: {types}}}\n", "utf-8"
    )
    lake = Lake(tmp_path / "lake")
    lake.create_operations()
    monkeypatch.setenv("LAKE", str(lake.path))
    monkeypatch.setenv("LAKEHOUSE_JARS", os.environ.get("LAKEHOUSE_JARS", str(PROJECT_ROOT / ".jars")))
    start_on(lake)

    def load(text: str) -> int:
        seed.write_text(text, "utf-8")
        done = dbtRunner().invoke(
            ["--log-level", "none", "seed", "--select", "odd", "--project-dir", str(project),
             "--profiles-dir", str(PROJECT_ROOT / "profiles"), "--target-path", str(tmp_path / "target"),
             "--log-path", str(tmp_path / "log")]
        )  # fmt: skip
        assert done.success, done.exception
        return lake.versions()["silver.odd"]

    first = load(ODD_SEED)
    assert rows(lake, "select * from silver.odd order by code") == [
        ("003", '100 % of "it", \\n and ${x} {{ y }}'), ("01", "l'Hospitalet"), ("02", None),
    ]  # fmt: skip
    assert load(ODD_SEED) == first, "an unchanged seed is not written again"
    assert load(ODD_SEED.replace("Hospitalet", "Escala")) > first
    assert rows(lake, "select count(*), max(name) from silver.odd") == [(3, "l'Escala")]
    load("code,name\n")
    assert rows(lake, "select count(*) from silver.odd") == [(0,)]
