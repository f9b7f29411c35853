"""The file that is inspected, the folder that is written, the widths: all that needs no Spark."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from ingest.capture.csv import CsvFormat
from ingest.cli import cli
from ingest.contracts import Contract, load_contracts
from ingest.errors import InputError
from ingest.inspection.folder import ReportFolder
from ingest.inspection.subject import Subject, check_unchanged, look, write_readable
from ingest.inspection.verdicts import field_count
from ingest.transform import models_dir

HEAD = "order_id,customer_id,sku,qty,order_ts,channel,note\n"
LINE = "A1,C1,S1,1,2024-05-01 00:00:00,web,x\n"
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
              schema: parcel STRING, weight STRING, sent STRING, seen STRING, pieces STRING, at STRING
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
                - {name: seen, from: seen, type: date}
                - {name: pieces, from: pieces, type: bigint, thousands_mark: " "}
                - {name: at, from: at, type: instant}
              rules:
                - code: MISFIT
                  misfit: [weight, sent, seen, pieces, at]
                  severity: quarantine
                  on_null: pass
                  stage: schema_validation
                  reason: parse
                  why: It is not what was agreed.
                  fix: Mend it.
"""


@pytest.fixture(scope="module")
def contracts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Contract]:
    folder = tmp_path_factory.mktemp("contracts")
    (folder / "parcels.yml").write_text(PARCELS, "utf-8")
    return load_contracts(models_dir()) | load_contracts(folder)


def subject_of(contracts: dict[str, Contract], folder: Path, data: bytes, **names: str) -> Subject:
    path = folder / names.get("name", "orders.csv")
    path.write_bytes(data)
    return look(contracts, names.get("record_type", "orders"), path)


def refusal(contracts: dict[str, Contract], path: Path, record_type: str = "orders") -> str:
    with pytest.raises(InputError) as caught:
        look(contracts, record_type, path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- What is refused


def test_a_record_type_must_be_there_and_be_csv(contracts: dict[str, Contract], tmp_path: Path) -> None:
    assert "Of CSV there are: orders, parcels." in refusal(contracts, tmp_path, "order")
    said = refusal(contracts, tmp_path, "placsp_entries")
    assert "is xml" in said and said.endswith("Name one of these: orders, parcels.")


def test_no_field_may_hide_what_the_quarantine_says(
    contracts: dict[str, Contract], tmp_path: Path
) -> None:
    parcels = contracts["parcels"]
    renamed = replace(parcels, fields=(replace(parcels.fields[0], name="reason"), *parcels.fields[1:]))
    said = refusal(contracts | {"parcels": renamed}, tmp_path / "x.csv", "parcels")
    assert "has a field reason, which is also what the quarantine says" in said


def test_a_file_must_be_there_and_be_a_file(contracts: dict[str, Contract], tmp_path: Path) -> None:
    assert "is a folder" in refusal(contracts, tmp_path)
    assert "is not there" in refusal(contracts, tmp_path / "no.csv")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "holds no record"),
        (HEAD.encode(), "a header and no record"),
        (LINE.encode(), "No line of the first 50 names a column"),
        (HEAD.replace(",", ";").encode() + b"1;2\n", "the file seems to have ';'"),
        (gzip.compress(b"packed", mtime=0), "gz"),
        (b"<!DOCTYPE html><html><body>gone</body></html>", "HTML"),
    ],
    ids=["nothing", "header", "no-header", "other-delimiter", "gzip", "page"],
)
def test_a_file_must_hold_records(
    contracts: dict[str, Contract], tmp_path: Path, data: bytes, said: str
) -> None:
    path = tmp_path / "orders.csv"
    path.write_bytes(data)
    refused = refusal(contracts, path)
    assert said in refused and refused.startswith(f"orders, {path}")


def test_a_broken_gzip_is_refused(contracts: dict[str, Contract], tmp_path: Path) -> None:
    path = tmp_path / "orders.csv.gz"
    path.write_bytes(gzip.compress((HEAD + LINE * 1000).encode())[:-20])
    assert "cannot be read" in refusal(contracts, path)


def test_a_file_that_changes_is_told(contracts: dict[str, Contract], tmp_path: Path) -> None:
    subject = subject_of(contracts, tmp_path, (HEAD + LINE).encode())
    check_unchanged(subject)
    (tmp_path / "orders.csv").write_text(HEAD + LINE + LINE)
    with pytest.raises(InputError, match="changed while it was inspected"):
        check_unchanged(subject)


def test_the_command_says_what_is_wrong_and_exits_with_2(tmp_path: Path) -> None:
    told = CliRunner().invoke(cli, ["inspect", "order", "x.csv", "--out", str(tmp_path / "out")])
    assert isinstance(told.exception, InputError)
    assert not (tmp_path / "out").exists() and not list(tmp_path.iterdir())
    told = CliRunner().invoke(cli, ["inspect", "orders", "x", "--out", "o", "--lang", "fr"])
    assert (told.exit_code, "'en', 'es', 'ja', 'ko'" in told.output) == (2, True)


# --- How Spark's reader is told


def test_the_columns_stand_in_the_headers_order(contracts: dict[str, Contract], tmp_path: Path) -> None:
    data = "Note,order_ts,QTY,a `b`,order_id,,a `b`,_corrupt,extra\n,,1,,A,,,,\n"
    subject = subject_of(contracts, tmp_path, data.encode(), name="[any] name")
    assert subject.ddl == (
        "note STRING, order_ts TIMESTAMP, qty INT, `a ``b``` STRING, order_id STRING, "
        "column_6 STRING, column_7 STRING, column_8 STRING, extra STRING"
    )
    assert subject.read_options["timestampFormat"] == "yyyy-MM-dd HH:mm:ss"
    assert subject.read_options["escape"] == subject.read_options["quote"] == '"'


def test_a_type_is_read_where_sparks_reader_can_be_told_how_it_is_written(
    contracts: dict[str, Contract], tmp_path: Path
) -> None:
    data = "at;pieces;seen;sent;weight;Nº\n;;;;1,5;é\n".encode("windows-1252")
    subject = subject_of(contracts, tmp_path, data, record_type="parcels")
    assert subject.ddl == (
        "at TIMESTAMP, pieces STRING, seen STRING, sent DATE, weight DECIMAL(9,2), parcel STRING"
    )
    options = subject.read_options
    assert (options["sep"], options["locale"], options["dateFormat"]) == (";", "de-DE", "dd/MM/yyyy")
    assert "timestampFormat" not in options


@pytest.mark.parametrize(
    ("line", "spans"),
    [
        ('A,C,S,1,2024-05-01 00:00:00,web,"a\nb"\n', True),
        # A quote that is never closed spans nothing: its line is one corrupt record.
        ('A,C,S,1,2024-05-01 00:00:00,web,"a\nb\n', False),
        ('A,C,S,1,2024-05-01 00:00:00,web,"a, b"\r\n', False),
        ('A,"a\nb"\n', True),
    ],
)
def test_lines_are_read_together_only_where_a_record_spans_them(
    contracts: dict[str, Contract], tmp_path: Path, line: str, spans: bool
) -> None:
    subject = subject_of(contracts, tmp_path, (HEAD + LINE + line).encode())
    assert subject.read_options["multiLine"] == str(spans).lower()


def test_a_file_that_spark_can_read_is_linked(contracts: dict[str, Contract], tmp_path: Path) -> None:
    subject = subject_of(contracts, tmp_path, (HEAD + LINE).encode(), name="_a:b[c].csv")
    write_readable(subject, tmp_path / "file.csv")
    assert (tmp_path / "file.csv").readlink() == tmp_path / "_a:b[c].csv"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("orders.csv", ("printed: today\r\n\r\n" + HEAD + LINE).replace("x\n", "é\r\n").encode()),
        ("orders.csv.gz", gzip.compress((HEAD + LINE).replace("x\n", "é\r\n").encode(), mtime=0)),
        ("orders.csv", (HEAD + LINE).replace("x\n", "é\r\n").encode("utf-16")),
    ],
    ids=["lines-above", "gzip", "utf-16"],
)
def test_other_files_are_copied_from_the_header_on_as_utf8(
    contracts: dict[str, Contract], tmp_path: Path, name: str, data: bytes
) -> None:
    subject = subject_of(contracts, tmp_path, data, name=name)
    write_readable(subject, tmp_path / "file.csv")
    # All lines end as the first does: Spark takes its end for that of all.
    expected = HEAD.replace("\n", "\r\n") + LINE.replace("x\n", "é\r\n")
    assert (tmp_path / "file.csv").read_bytes() == expected.encode()


def test_a_feed_without_header_is_copied_from_its_first_record(
    contracts: dict[str, Contract], tmp_path: Path
) -> None:
    orders = contracts["orders"]
    bare = replace(orders, feed={**orders.feed, "header": False})
    subject = subject_of(contracts | {"orders": bare}, tmp_path, LINE.encode("utf-16"))
    write_readable(subject, tmp_path / "file.csv")
    assert (tmp_path / "file.csv").read_bytes() == LINE.encode()
    assert (subject.read_options["header"], subject.records_found) == ("false", 1)


# --- Widths


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", 1),
        ("a", 1),
        ("a,", 2),
        (",,", 3),
        ('a,"b,c",d', 3),
        ('a,"b\n,""c"",",d', 3),
        ('a,"b" c,d', 3),
        ('a,b "c,d"', 3),
        # Never closed: from there on a delimiter is a delimiter.
        ('a,"b,c,d', 4),
        ('"a', 1),
        ('a,"', 2),
    ],
)
def test_fields_are_counted_with_a_mind_to_quotes(text: str, fields: int) -> None:
    assert field_count(text.encode(), CsvFormat(("a",))) == fields


def test_fields_are_counted_by_the_feeds_own_signs() -> None:
    assert field_count(b"a|'b|c'|d", CsvFormat(("a",), delimiter="|", quote="'", escape="'")) == 3
    assert field_count(b'a\t"b\tc', CsvFormat(("a",), delimiter="\t", quote="")) == 3


# --- The folder


def write(out: Path, text: str, *, force: bool = False) -> None:
    with ReportFolder(out, force=force) as partial:
        (partial / "report.md").write_text(text)


def test_a_folder_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out [1]"
    with pytest.raises(ZeroDivisionError), ReportFolder(out, force=False) as partial:
        (partial / "report.md").write_text("half")
        assert not out.exists()
        raise ZeroDivisionError
    assert not list(out.parent.iterdir())
    write(out, "whole")
    assert (out / "report.md").read_text() == "whole"
    assert [path.name for path in out.parent.iterdir()] == ["out [1]"]


def test_an_earlier_report_is_replaced_only_on_request(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    write(out, "first")
    (out / "failfast.txt").write_text("of the first")
    with pytest.raises(InputError, match="holds a report already"):
        write(out, "second")
    with pytest.raises(ZeroDivisionError), ReportFolder(out, force=True):
        raise ZeroDivisionError
    assert (out / "report.md").read_text() == "first", "a run that failed takes nothing away"
    write(out, "second", force=True)
    assert [path.name for path in out.iterdir()] == ["report.md"]
    assert (out / "report.md").read_text() == "second"
    assert list(tmp_path.iterdir()) == [out]


def test_what_is_of_no_report_is_never_removed(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="which is of no report"):
        write(tmp_path, "report", force=True)
    with pytest.raises(InputError, match="is a file"):
        write(tmp_path / "mine.txt", "report", force=True)
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_file_that_comes_meanwhile_keeps_its_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(InputError, match="of no report"), ReportFolder(out, force=False):
        out.mkdir()
        (out / "mine.txt").write_text("mine")
    assert [path.name for path in out.iterdir()] == ["mine.txt"]


def test_what_a_killed_run_left_is_no_part_of_the_next(tmp_path: Path) -> None:
    left = tmp_path / ".out.partial"
    (left / "clean").mkdir(parents=True)
    (left / "clean" / "part-0.parquet").write_text("half")
    (left / "failfast.txt").symlink_to("/etc/hostname")
    write(tmp_path / "out", "whole")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.md"]
    assert not left.exists()


def test_two_inspections_do_not_write_one_folder(tmp_path: Path) -> None:
    told = pytest.raises(InputError, match="is being written by another inspection")
    with ReportFolder(tmp_path / "out", force=False), told:
        write(tmp_path / "out", "second")
    assert (tmp_path / "out").is_dir()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written: Not a directory"):
        write(tmp_path / "file" / "out", "report")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
