"""Code lists: what is read, what is refused and why, and that a second load adds nothing."""

from __future__ import annotations

import csv
import zipfile
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingest.catalogue import load_catalogue, write_seed
from ingest.cli import cli
from ingest.environment import PROJECT_ROOT
from ingest.errors import FileReadError, InputError
from ingest.genericode import cited_as, read_code_list
from ingest.lake import RUN_FAILURES, Lake

HEAD = """<gc:CodeList xmlns:gc="http://docs.oasis-open.org/codelist/ns/genericode/1.0/">
<Identification><ShortName>UrgencyCode</ShortName><Version>2.10</Version>
<CanonicalUri>urn:codice:UrgencyCode</CanonicalUri><LocationUri>http://there/UrgencyCode-2.10.gc</LocationUri>
</Identification>"""
COLUMNS = """<ColumnSet><Column Id="code"><Data Type="normalizedString" xml:lang="en"/></Column>
<Column Id="nombre"><Data Type="string"/></Column>
<Column Id="name"><Data Type="string" Lang="en"/></Column>
<Column Id="nom"><Data Type="string" xml:lang="ca"/></Column>
<Column Id="since"><Data Type="date"/></Column>
<Key Id="codeKey"><ColumnRef Ref="code"/></Key></ColumnSet>"""


def row(**values: str) -> str:
    cells = [
        f'<Value ColumnRef="{name}"><SimpleValue>{value}</SimpleValue></Value>'
        for name, value in values.items()
    ]
    return f"<Row>{''.join(cells)}</Row>"


def listing(*rows: str, head: str = HEAD, columns: str = COLUMNS) -> str:
    return f"{head}{columns}<SimpleCodeList>{''.join(rows)}</SimpleCodeList></gc:CodeList>"


SOUND = listing(row(code="01", nombre="L'urgent", name="", nom=" Urgència ", since="2020-01-01"))


def test_codes_are_text_and_names_are_by_language() -> None:
    found = read_code_list(SOUND.encode(), "UrgencyCode-2.10.gc")

    assert (found.list_id, found.version, found.canonical_uri) == (
        "UrgencyCode", "2.10", "urn:codice:UrgencyCode",
    )  # fmt: skip
    [code] = found.codes
    assert code.code == "01"
    assert code.names == {"es": "L'urgent", "ca": "Urgència"}
    assert code.row_values["since"] == "2020-01-01"
    assert code.row_values["nom"] == " Urgència "


def test_a_value_without_a_reference_is_of_the_next_column() -> None:
    cells = "<Value><SimpleValue>1</SimpleValue></Value><Value><SimpleValue>Uno</SimpleValue></Value>"
    [code] = read_code_list(listing(f"<Row>{cells}</Row>").encode(), "a.gc").codes
    assert (code.code, code.names) == ("1", {"es": "Uno"})


def test_a_list_in_latin_1_keeps_its_accents() -> None:
    text = '<?xml version="1.0" encoding="ISO-8859-1"?>' + listing(row(code="1", nombre="Gestión"))
    [code] = read_code_list(text.encode("latin-1"), "a.gc").codes
    assert code.names == {"es": "Gestión"}


def test_a_row_that_repeats_another_is_no_fault() -> None:
    same = row(code="1", nombre="Uno")
    found = read_code_list(listing(same, same).encode(), "a.gc")
    assert (len(found.codes), found.repeats) == (1, 1)


def test_the_published_name_is_how_feeds_cite_a_list() -> None:
    found = read_code_list(SOUND.encode(), "a.gc")
    assert cited_as(found, "Urgency-2.10.gc") == "Urgency-2.10"
    assert cited_as(found, "UrgencyCode-2.10 (1).gc") == "UrgencyCode-2.10"
    assert cited_as(found, "UrgencyCode-2.11.gc") == "UrgencyCode-2.10", "the content knows better"


NO_KEY = COLUMNS.replace('Id="code"', 'Id="k1"').replace('Ref="code"', 'Ref="k9"')
BROKEN = {
    "EMPTY_FILE": b"",
    "HTML_PAGE": b"<!DOCTYPE html><html><body>Error 503</body></html>",
    "NOT_XML": b"code;name\n1;Uno\n",
    "NOT_WELL_FORMED": SOUND.encode()[:-30],
    "NOT_GENERICODE": b"<feed xmlns='http://www.w3.org/2005/Atom'><entry/></feed>",
    "DOCTYPE": b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/hostname">]>' + SOUND.encode(),
    "NO_LIST_ID": listing(row(code="1"), head=HEAD.replace("UrgencyCode", "")).encode(),
    "NO_VERSION": SOUND.replace("<Version>2.10</Version>", "").encode(),
    "NO_CODE_COLUMN": listing(row(k1="1"), columns=NO_KEY).encode(),
    "NO_ROW": listing().encode(),
    "MISSING_CODE": listing(row(code="1"), row(nombre="Dos")).encode(),
    "DUPLICATE_CODE": listing(row(code="1", nombre="a"), row(code="1", nombre="b")).encode(),
    "WRONG_ENCODING": listing(row(code="1", nombre="Gestión")).encode("latin-1"),
    "UNKNOWN_ENCODING": b'<?xml version="1.0" encoding="martian"?>' + SOUND.encode(),
    "COMPRESSED_FILE": b"\x1f\x8b" + SOUND.encode(),
}


@pytest.mark.parametrize(("error_type", "data"), BROKEN.items(), ids=BROKEN)
def test_a_broken_list_says_what_is_wrong(error_type: str, data: bytes) -> None:
    with pytest.raises(FileReadError) as refused:
        read_code_list(data, "some.gc")
    assert refused.value.error_type == error_type
    assert len(str(refused.value).split()) > 10


def test_utf_8_that_calls_itself_latin_1_is_refused() -> None:
    text = '<?xml version="1.0" encoding="ISO-8859-1"?>' + listing(row(code="1", nombre="Gestión"))
    with pytest.raises(FileReadError) as refused:
        read_code_list(text.encode("utf-8"), "some.gc")
    assert refused.value.error_type == "WRONG_ENCODING"


@settings(deadline=None)
@given(st.binary(max_size=300), st.integers(0, len(SOUND.encode())))
# Inside a namespace's name.
@example(b"}", SOUND.index("http") + 4)
def test_damage_is_refused_or_harmless_and_never_anything_else(noise: bytes, place: int) -> None:
    whole = SOUND.encode()
    for data in (noise, whole[:place] + noise + whole[place:], whole[:place]):
        with suppress(FileReadError):
            read_code_list(data, "some.gc")


def load(lake: Lake, *inputs: Path) -> list[tuple[str, str]]:
    done = load_catalogue(lake, [str(path) for path in inputs], pipeline_version="1")
    return [(Path(item.source_file).name, item.status) for item in done]


def in_bronze(lake: Lake) -> list[tuple[str, str, str]]:
    table = lake.read("bronze", "codice_codes", ["list_id", "list_version", "code"])
    return sorted((r["list_id"], r["list_version"], r["code"]) for r in table.to_pylist())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lists = tmp_path / "lists"
    lists.mkdir()
    (lists / "UrgencyCode-2.10.gc").write_text(SOUND, "utf-8")
    (lists / "Broken-1.0.gc").write_bytes(BROKEN["NO_ROW"])
    (lists / "README.md").write_text("no list", "utf-8")
    return lists


def test_a_broken_list_costs_that_list(folder: Path, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")

    assert load(lake, folder) == [("Broken-1.0.gc", "refused"), ("UrgencyCode-2.10.gc", "loaded")]
    assert in_bronze(lake) == [("UrgencyCode", "2.10", "01")]
    [letter] = lake.read(
        "bronze", "run_failures", ["stage", "error_type", "source_file", "error_message"]
    ).to_pylist()
    assert (letter["stage"], letter["error_type"]) == ("catalogue", "NO_ROW")
    assert letter["source_file"].endswith("Broken-1.0.gc")
    assert "Broken-1.0.gc" in letter["error_message"]


def test_a_second_load_adds_nothing_under_whatever_name(folder: Path, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    load(lake, folder)
    before = lake.versions()
    (folder / "UrgencyCode-2.10.gc").rename(folder / "renamed.gc")

    assert load(lake, folder) == [("Broken-1.0.gc", "refused"), ("renamed.gc", "known")]
    assert lake.versions() == before


def test_a_newer_version_stands_beside_the_old(folder: Path, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    load(lake, folder)
    newer = tmp_path / "UrgencyCode-2.11.gc"
    newer.write_text(SOUND.replace("2.10", "2.11"), "utf-8")

    assert load(lake, newer) == [("UrgencyCode-2.11.gc", "loaded")]
    assert [version for _, version, _ in in_bronze(lake)] == ["2.10", "2.11"]


def test_lists_are_read_from_zips_and_by_name(folder: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "lists.zip", "w") as archive:
        archive.write(folder / "UrgencyCode-2.10.gc", "UrgencyCode-2.10.gc")
    (tmp_path / "bad.zip").write_bytes(b"PK no zip")
    (tmp_path / "list.xml").write_text(SOUND.replace("2.10", "2.12"), "utf-8")
    lake = Lake(tmp_path / "lake")

    found = load(lake, tmp_path / "lists.zip", tmp_path / "bad.zip", tmp_path / "list.xml")

    assert [status for _, status in found] == ["loaded", "refused", "loaded"]


def test_a_folder_without_lists_is_wrong_use(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(InputError, match=r"ends in \.gc"):
        load(Lake(tmp_path / "lake"), tmp_path / "in")
    assert not (tmp_path / "lake").exists()


def test_a_table_of_an_earlier_version_gains_the_new_columns(folder: Path, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    path = lake.table_path("bronze", "run_failures")
    path.mkdir(parents=True)
    earlier = pa.schema([f for f in RUN_FAILURES if f.name not in ("source_file", "file_sha256")])
    DeltaTable.create(str(path), earlier, configuration={"delta.appendOnly": "true"})

    load(lake, folder)

    assert lake.read("bronze", "run_failures", ["source_file"]).num_rows == 1


def test_the_command_tells_lists_and_refusals(folder: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["catalogue", "load", str(folder), "--lake", str(tmp_path / "lake")])
    assert done.exit_code == 0, done.output
    assert "UrgencyCode" in done.output and "the list has no <Row>" in done.output
    assert "1 loaded, 1 refused" in done.output


def test_a_seed_is_sorted_and_holds_what_was_asked_for(folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "codes.tsv"
    table.write_text('list\tversion\tcode\tnombre\nStatusCode\t1.0\t02\tDicho "Dos"\n', "utf-8")
    out = tmp_path / "seed.csv"

    assert write_seed([str(folder)], ["UrgencyCode-2.10", "StatusCode-1.0"], out, table=table) == {
        "StatusCode-1.0": 1, "UrgencyCode-2.10": 1,
    }  # fmt: skip
    with out.open(encoding="utf-8", newline="") as lines:
        found = [(r["cited_as"], r["code"], r["name_es"], r["name_en"]) for r in csv.DictReader(lines)]
    assert found == [
        ("StatusCode-1.0", "02", 'Dicho "Dos"', ""), ("UrgencyCode-2.10", "01", "L'urgent", ""),
    ]  # fmt: skip
    with pytest.raises(InputError, match="OtherCode-1"):
        write_seed([str(folder)], ["OtherCode-1"], out)


def test_the_shipped_codes_name_every_code_of_their_lists_once() -> None:
    with (PROJECT_ROOT / "seeds" / "shipped_codes.csv").open(encoding="utf-8", newline="") as lines:
        found = list(csv.DictReader(lines))
    assert len({(r["cited_as"], r["code"]) for r in found}) == len(found) == 59
    assert all(r["cited_as"] == f"{r['list_id']}-{r['list_version']}" for r in found)
    assert all(r["name_es"] for r in found)
