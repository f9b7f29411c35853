"""The generator: the same bytes each time, and numbers that an independent reader comes to."""

import csv
import dataclasses
import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

from ingest.environment import PROJECT_ROOT
from ingest.errors import InputError
from ingest.sample import (
    ENTRY_FAULTS,
    FAULTS,
    ORDER_COLUMNS,
    ORDER_FAULTS,
    PAGE_FAULTS,
    Manifest,
    OrderFacts,
    generate,
)

ATOM = "{http://www.w3.org/2005/Atom}"
AT = "{http://purl.org/atompub/tombstones/1.0}"
PREFIXES = {
    "licitacionesPerfilesContratanteCompleto3": "licitaciones",
    "PlataformasAgregadasSinMenores": "agregadas",
    "contratosMenoresPerfilesContratantes": "menores",
    "CPM_SectorPublico": "consultas",
    "EMP_SectorPublico": "encargos",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest]:
    out = tmp_path_factory.mktemp("sample")
    return out, generate(out, entries=60, orders=6000)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def order_rows(folder: Path) -> list[list[str]]:
    with (folder / "orders_dirty.csv").open(encoding="utf-8", newline="") as stream:
        header, *rows = csv.reader(stream)
    assert tuple(header) == ORDER_COLUMNS
    return rows


def is_timestamp(text: str) -> bool:
    try:
        at = datetime.strptime(text, "%Y-%m-%d %H:%M:%S")
    except ValueError:
        return False
    return 1990 <= at.year <= 2036


def recount_orders(rows: list[list[str]]) -> dict[str, int]:
    """What the issue says of orders, in the plainest words."""
    parse = qty = 0
    accepted = []
    for row in rows:
        if len(row) != 7 or not is_timestamp(row[4]):
            parse += 1
        elif row[3].strip() == "":
            qty += 1
        elif not re.fullmatch(r"[+-]?\d+", row[3].strip()):
            parse += 1
        elif int(row[3]) < 1:
            qty += 1
        else:
            accepted.append(tuple(row))
    newest: dict[str, str] = {}
    for row in accepted:
        newest[row[0]] = max(row[4], newest.get(row[0], ""))
    distinct = set(accepted)
    return {
        "rows": len(rows),
        "parse_refused": parse,
        "qty_refused": qty,
        "accepted": len(accepted),
        "current": len(newest),
        "superseded": sum(row[4] < newest[row[0]] for row in distinct),
        "duplicates": len(accepted) - len(distinct),
    }


def test_two_runs_give_the_same_bytes_and_another_seed_gives_others(tmp_path, made):
    again = generate(tmp_path / "again", entries=60, orders=6000)
    assert again == made[1]
    assert content(tmp_path / "again") == content(made[0])
    other = generate(tmp_path / "other", entries=60, orders=6000, seed=2)
    assert other.orders == made[1].orders
    assert other.placsp == made[1].placsp
    changed = content(tmp_path / "other")
    assert changed.keys() == content(made[0]).keys()
    page = "CPM_SectorPublico_20240102_030000.atom"
    assert changed["orders_dirty.csv"] != content(made[0])["orders_dirty.csv"]
    assert changed[page] != content(made[0])[page]


def test_the_bytes_do_not_change_between_versions_of_python(made):
    """Whoever changes the generator on purpose changes these numbers with it."""
    rows = order_rows(made[0])
    assert rows[0][0] == "O00000001"
    assert made[1].orders == OrderFacts(
        rows=6000,
        parse_refused=174,
        out_of_range=24,
        qty_refused=84,
        accepted=5742,
        current=5634,
        superseded=48,
        duplicates=60,
    )
    assert (made[1].placsp.entries, made[1].placsp.tombstones) == (99, 25)


@pytest.mark.parametrize("orders", [1, 2, 3, 10, 50, 6000])
def test_the_known_numbers_of_orders_are_those_of_the_file(tmp_path, orders):
    facts = generate(tmp_path, entries=0, orders=orders).orders
    known = dataclasses.asdict(facts)
    assert known.pop("out_of_range") <= facts.parse_refused
    assert recount_orders(order_rows(tmp_path)) == known
    assert facts.rows == orders


def test_each_kind_of_broken_order_is_there_as_often_as_told(made):
    rows = order_rows(made[0])
    text = (made[0] / "orders_dirty.csv").read_text(encoding="utf-8")
    by_id: dict[str, list[list[str]]] = {}
    for row in rows:
        by_id.setdefault(row[0], []).append(row)
    pairs = [found for found in by_id.values() if len(found) > 1]
    found = {
        "qty_text": sum(row[3] == "two" for row in rows),
        "qty_decimal_comma": sum(row[3] == "1,5" for row in rows),
        "qty_empty": sum(row[3] == "" for row in rows),
        "qty_zero": sum(row[3] == "0" for row in rows),
        "qty_negative": sum(row[3].startswith("-") for row in rows),
        "qty_padded": sum(row[3] != row[3].strip() for row in rows),
        "ts_other_format": sum("/" in row[4] for row in rows),
        "ts_impossible_day": sum(row[4].startswith("2024-02-31") for row in rows),
        "ts_year_0001": sum(row[4].startswith("0001") for row in rows),
        "missing_field": sum(len(row) == 6 for row in rows),
        "extra_field": sum(len(row) == 8 for row in rows),
        "exact_repeat": sum(a == b for a, b in pairs),
        "corrected_repeat": sum(a != b and a[4] < b[4] for a, b in pairs),
        "quoted_comma": sum("," in row[-1] and "\n" not in row[-1] for row in rows),
        "doubled_quotes": sum('"' in row[-1] for row in rows),
        "quoted_line_break": sum("\n" in row[-1] for row in rows),
        "accents": sum(not row[-1].isascii() for row in rows),
    }
    assert found == {name: made[1].faults[name] for name in ORDER_FAULTS}
    assert text.count("\n") == 1 + 6000 + found["quoted_line_break"]
    assert made[1].faults["qty_text"] == 30, "a known number, and not just any"


def test_without_faults_all_is_clean(tmp_path):
    manifest = generate(tmp_path, entries=40, orders=500, faults=False)
    assert manifest.faults == {}
    assert manifest.orders == OrderFacts(500, 0, 0, 0, 500, 500, 0, 0)
    assert b'"' not in (tmp_path / "orders_dirty.csv").read_bytes()
    assert (manifest.placsp.corrupt, manifest.placsp.quarantined) == (0, 0)
    assert {facts.status for facts in manifest.files} == {"ingested"}
    for path in tmp_path.glob("*.atom"):
        ET.parse(path)


def test_faults_can_be_chosen_by_name(tmp_path):
    manifest = generate(tmp_path, entries=20, orders=1000, faults=["qty_text", "html_page"])
    assert manifest.faults == {"qty_text": 5, "html_page": 1}
    assert manifest.orders.parse_refused == 5
    assert manifest.orders.accepted == 995
    assert [f.name for f in manifest.files if f.status != "ingested"] == [
        "contratosMenoresPerfilesContratantes_20240604_030000.atom"
    ]


def test_an_unknown_fault_is_refused_with_the_names_there_are(tmp_path):
    with pytest.raises(InputError) as caught:
        generate(tmp_path / "none", entries=1, orders=1, faults=["qty_text", "gremlins"])
    assert "'gremlins'" in str(caught.value)
    assert all(name in str(caught.value) for name in FAULTS)
    assert not (tmp_path / "none").exists()
    with pytest.raises(InputError, match="negative"):
        generate(tmp_path, entries=-1, orders=1)


def test_none_of_one_kind(tmp_path):
    assert generate(tmp_path / "a", entries=0, orders=5).placsp.entries == 0
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["orders_dirty.csv"]
    assert generate(tmp_path / "b", entries=5, orders=0).orders.rows == 0
    assert not (tmp_path / "b" / "orders_dirty.csv").exists()


@pytest.mark.parametrize("entries", [1, 5, 60, 200])
def test_the_known_numbers_of_pages_are_those_of_the_files(tmp_path, entries, monkeypatch):
    monkeypatch.setattr("ingest.sample._ENTRIES_PER_PAGE", 20)
    manifest = generate(tmp_path, entries=entries, orders=0)
    assert sorted(p.name for p in tmp_path.iterdir()) == [facts.name for facts in manifest.files]
    versions: dict[tuple[str, str], list[tuple[datetime, str]]] = {}
    deletions: dict[tuple[str, str], datetime] = {}
    totals: Counter[str] = Counter()
    for facts in manifest.files:
        data = (tmp_path / facts.name).read_bytes()
        if facts.status != "ingested":
            assert facts.name == "README.txt" or b"<entry" not in data
            continue
        dataset = next(d for prefix, d in PREFIXES.items() if facts.name.startswith(prefix))
        assert facts.dataset == dataset
        text = data.decode("utf-16" if facts.encoding == "utf-16-le" else str(facts.encoding))
        pieces = re.split(r"(?=<entry>)", text)[1:]
        head = text[text.index("<feed") : text.index(">", text.index("<feed")) + 1]
        corrupt = 0
        for piece in pieces:
            piece = piece[: piece.find("</entry>") + 8] if "</entry>" in piece else piece
            try:
                (entry,) = ET.fromstring(head + piece + "</feed>")
            except ET.ParseError:
                corrupt += 1
                totals["quarantined"] += 1
                continue
            entry_id, updated = entry.findtext(f"{ATOM}id"), entry.findtext(f"{ATOM}updated")
            amounts = [e.text for e in entry.iter() if "currencyID" in e.attrib]
            if (
                entry_id is None
                or not re.fullmatch(r"[-0-9T:.]+\+\d\d:\d\d", updated or "")
                or not all(re.fullmatch(r"\d+(\.\d{1,2})?", str(amount)) for amount in amounts)
            ):
                totals["quarantined"] += 1
                continue
            at = datetime.fromisoformat(str(updated))
            versions.setdefault((dataset, entry_id), []).append((at, piece))
        tombstones = re.findall(r'<at:deleted-entry ref="([^"]+)" when="([^"]+)"', text)
        for ref, when in tombstones:
            deletions[dataset, ref] = datetime.fromisoformat(when)
        assert (facts.entries, facts.tombstones, facts.corrupt) == (
            len(pieces),
            len(tombstones),
            corrupt,
        )
        totals.update(entries=len(pieces), tombstones=len(tombstones), corrupt=corrupt)
    for key, found in versions.items():
        totals["accepted"] += len(found)
        totals["duplicates"] += len(found) - len(set(found))
        totals["superseded"] += len(set(found)) - 1
        newest = max(at for at, _ in found)
        withdrawn = key in deletions and deletions[key] >= newest
        totals["withdrawn" if withdrawn else "current"] += 1
    known = dataclasses.asdict(manifest.placsp)
    assert {name: totals[name] for name in known} == known
    if entries >= 60:
        assert all(known.values()), "every kind is there"
    if entries == 200:
        feed = "licitacionesPerfilesContratanteCompleto3_2021"
        assert len([f for f in manifest.files if f.name.startswith(feed)]) == 2
    by_dataset = [dataclasses.asdict(facts) for facts in manifest.placsp_by_dataset.values()]
    assert {name: sum(facts[name] for facts in by_dataset) for name in known} == known


def test_the_styles_of_several_years_are_there(made):
    pages = {name: data for name, data in content(made[0]).items() if name.endswith(".atom")}
    old = pages["licitacionesPerfilesContratanteCompleto3_20210102_030000.atom"].decode()
    new = pages["licitacionesPerfilesContratanteCompleto3_20240102_030000.atom"].decode()
    assert re.search(r"<at:deleted-entry [^>]*xmlns:at=[^>]*/>", old)
    assert "xmlns:at" not in old[: old.index("<author>")]
    assert 'rel="next" href="licitaciones' in old
    assert "\n        <id>" in old
    assert "xmlns:at" in new[: new.index("<author>")]
    assert {"ANULADA", "CERRADA"} == set(re.findall(r'<at:comment type="(\w+)"/>', new))
    assert 'rel="next" href="https://' in new
    assert new.count("\n") == 2, "a declaration and one line"
    lots = re.findall(r"<cac:ProcurementProjectLot>", old + new)
    assert len(lots) > 2
    assert len(re.findall(r"<cbc:ProcurementProjectLotID>[12]<", old + new)) == len(lots)
    assert re.search(r">03110000<", old), "a CPV code with a leading zero"
    assert re.search(r"Date>\d{4}-\d\d-\d\d\+01:00<", old), "a date with a zone"


def test_each_fault_of_an_entry_or_page_is_there_once(made):
    pages = {name: data for name, data in content(made[0]).items() if name.endswith(".atom")}
    faulty = pages["licitacionesPerfilesContratanteCompleto3_20240601_030000.atom"].decode()
    entries = re.findall(r"<entry>.*?</entry>", faulty, re.S)
    found = {
        "unclosed_tag": sum(
            e.count("<cbc:ContractFolderID>") > e.count("</cbc:ContractFolderID>") for e in entries
        ),
        "missing_id": sum("<id>" not in e for e in entries),
        "missing_updated": sum("<updated>" not in e for e in entries),
        "updated_not_an_instant": sum("<updated>ayer" in e for e in entries),
        "amount_with_comma": sum(">1.234,56<" in e for e in entries),
        "unknown_element": sum("<cbc:InventedNote>" in e for e in entries),
        "repeated_scalar": sum(e.count("</cbc:ContractFolderID>") == 2 for e in entries),
        "award_year_0020": sum("<cbc:AwardDate>0020-" in e for e in entries),
        "end_year_4020": sum("<cbc:EndDate>4020-" in e for e in entries),
        "bad_nif": sum('schemeName="NIF">UTE 17<' in e for e in entries),
        "truncated_page": sum(
            b"<feed" in data and b"</feed>" not in data and not data.startswith(b"\xff\xfe")
            for data in pages.values()
        ),
        "html_page": sum(data.startswith(b"<!DOCTYPE html>") for data in pages.values()),
        "empty_page": sum(data == b"" for data in pages.values()),
        "latin1_page": sum(b'encoding="ISO-8859-1"' in data for data in pages.values()),
        "utf16_page": sum(data.startswith(b"\xff\xfe<\x00") for data in pages.values()),
        "unclaimed_file": sum(name == "README.txt" for name in content(made[0])),
    }
    assert found == {name: made[1].faults[name] for name in (*ENTRY_FAULTS, *PAGE_FAULTS)}
    assert set(found.values()) == {1}
    assert len(entries) == 2 * len(ENTRY_FAULTS) + 1, "a sound one around each"
    latin = next(data for data in pages.values() if b"ISO-8859-1" in data)
    with pytest.raises(UnicodeDecodeError):
        latin.decode("utf-8")


def test_every_element_is_in_the_schema_but_the_invented_one(made):
    ddl = (PROJECT_ROOT / "dbt_project/models/bronze/placsp_entries.ddl").read_text()
    known = set(re.findall(r"(\w+)(?=:? (?:STRING|STRUCT|ARRAY))", ddl))
    written: set[str] = set()
    for facts in made[1].files:
        if facts.status != "ingested" or not facts.name.endswith(".atom"):
            continue
        text = (
            (made[0] / facts.name)
            .read_bytes()
            .decode("utf-16" if facts.encoding == "utf-16-le" else str(facts.encoding))
        )
        for entry in re.findall(r"<entry>.*?</entry>", text, re.S):
            written.update(re.findall(r"<(?:[-\w]+:)?(\w+)", entry))
    assert written - known == {"entry", "InventedNote"}


def test_the_manifest_is_json(made):
    again = json.loads(json.dumps(dataclasses.asdict(made[1])))
    assert again["orders"]["rows"] == 6000
    assert set(again["faults"]) == set(FAULTS)
