import csv
import fcntl
import io
import json
import logging
import os
import pty
import select
import shutil
import subprocess
import sys
import termios
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ingest.environment import PROJECT_ROOT
from ingest.errors import InputError
from ingest.query import connect, lake_tables, run_query, tables_named, terminal_safe

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def fill(lake: Path) -> Path:
    """A lake with one finished and one unfinished batch."""
    tables = {
        "bronze/batches": {"batch_id": ["b1", "b2"], "status": ["finished", "started"]},
        "bronze/files": {"batch_id": ["b1", "b2"], "source_file": ["one.csv", "two.csv"]},
        "bronze/orders": {
            "_batch_id": ["b1", "b1", "b2"],
            "_dataset": ["orders", "or ders", "orders"],
            "lines": [[{"sku": "x", "qty": 1}], [], None],
        },
        "silver/orders": {
            "order_id": ["1"],
            "net": [Decimal("10.50")],
            "at": [NOON],
            "raw": [b"\xff\x00"],
        },
        "marts/dead_letters": {"payload": ["[red]a[/red] \x1b[31m\u00e9"], "n": [float("nan")]},
    }
    for name, columns in tables.items():
        table = pa.table(columns)
        partition = ["_dataset"] if "_dataset" in columns else None
        write_deltalake(str(lake / name), table, partition_by=partition)
    (lake / "_state").mkdir()
    return lake


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("lakes") / "lake")


def rows(lake: Path, sql: str) -> list[dict[str, object]]:
    found = json.loads(run_query(lake, sql, "json"))
    assert isinstance(found, list)
    return found


def test_every_table_is_a_view_in_its_schema(lake: Path) -> None:
    assert [f"{table.schema}.{table.name}" for table in lake_tables(lake)] == [
        "bronze.batches",
        "bronze.files",
        "bronze.orders",
        "marts.dead_letters",
        "silver.orders",
    ]
    assert rows(lake, "select count(*) as n from silver.orders") == [{"n": 1}]


def test_a_bare_name_is_looked_for_in_marts_then_silver_then_bronze(lake: Path) -> None:
    assert rows(lake, "select order_id from orders") == [{"order_id": "1"}]
    assert rows(lake, "select count(*) as n from files, dead_letters") == [{"n": 1}]


def test_bronze_shows_finished_batches_alone(lake: Path) -> None:
    assert rows(lake, "select distinct _batch_id from bronze.orders") == [{"_batch_id": "b1"}]
    assert rows(lake, "select source_file from bronze.files") == [{"source_file": "one.csv"}]
    assert rows(lake, "select count(*) as n from bronze.batches") == [{"n": 2}]


def test_a_batch_is_seen_as_soon_as_it_is_finished(tmp_path: Path) -> None:
    lake = fill(tmp_path / "lake")
    with connect(lake) as connection:
        count = "select count(*) from bronze.orders"
        assert connection.execute(count).fetchall() == [(2,)]
        write_deltalake(
            str(lake / "bronze" / "batches"),
            pa.table({"batch_id": ["b2"], "status": ["finished"]}),
            mode="append",
        )
        assert connection.execute(count).fetchall() == [(3,)]


def test_without_a_table_of_batches_no_batch_is_finished(tmp_path: Path) -> None:
    lake = fill(tmp_path / "lake")
    shutil.rmtree(lake / "bronze" / "batches")
    assert rows(lake, "select count(*) as n from bronze.orders") == [{"n": 0}]


def test_nested_and_partitioned_tables_are_read(lake: Path) -> None:
    found = rows(lake, "select _dataset, lines from bronze.orders order by _dataset")
    assert found == [
        {"_dataset": "or ders", "lines": []},
        {"_dataset": "orders", "lines": [{"sku": "x", "qty": 1}]},
    ]


def test_a_table_that_spark_wrote_is_read(tmp_path: Path) -> None:
    # The log as Spark writes it: protocol 1/2, Spark's schema and partition value as text.
    source = tmp_path / "source"
    write_deltalake(str(source), pa.table({"id": pa.array([1, 2], pa.int32())}))
    data = next(source.glob("*.parquet"))
    table = tmp_path / "lake" / "silver" / "entries"
    (table / "_delta_log").mkdir(parents=True)
    (table / "p=a%20b").mkdir()
    shutil.copy(data, table / "p=a%20b" / "part-0.snappy.parquet")
    field = {"nullable": True, "metadata": {}}
    schema = {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "integer"} | field,
            {"name": "p", "type": "string"} | field,
        ],
    }
    actions: list[dict[str, object]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "5b0c9f0e-0000-4000-8000-000000000000",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(schema),
                "partitionColumns": ["p"],
                "configuration": {},
                "createdTime": 0,
            }
        },
        {
            "add": {
                # A path in the log is a URI: the folder's own '%' is escaped once more.
                "path": "p=a%2520b/part-0.snappy.parquet",
                "partitionValues": {"p": "a b"},
                "size": data.stat().st_size,
                "modificationTime": 0,
                "dataChange": True,
            }
        },
    ]
    log = table / "_delta_log" / "00000000000000000000.json"
    log.write_text("\n".join(json.dumps(action) for action in actions))
    assert rows(tmp_path / "lake", "select id, p from entries order by id") == [
        {"id": 1, "p": "a b"},
        {"id": 2, "p": "a b"},
    ]


@pytest.mark.parametrize("name", ["a lake", "o'clock", 'say "lake"', "\u00e9\u00f1", "#1?", "[l]*"])
def test_a_lake_may_lie_anywhere(lake: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(lake, tmp_path / name)
    assert rows(tmp_path / name, "select count(*) as n from bronze.orders") == [{"n": 2}]


@pytest.mark.parametrize("name", ["a%20lake", "50%"])
def test_a_path_that_duckdb_misreads_is_refused_with_a_way_out(
    lake: Path, tmp_path: Path, name: str
) -> None:
    shutil.copytree(lake, tmp_path / name)
    with pytest.raises(InputError, match="Rename or copy the lake"):
        connect(tmp_path / name)


def test_formats(lake: Path) -> None:
    query = 'select order_id, net, "at", raw, [1, 2] as many, null as none, true as yes from orders'
    assert rows(lake, query) == [
        {
            "order_id": "1",
            "net": "10.50",
            "at": "2024-05-01 12:00:00+00:00",
            "raw": "0xff00",
            "many": [1, 2],
            "none": None,
            "yes": True,
        }
    ]
    header, row = csv.reader(io.StringIO(run_query(lake, query, "csv")))
    assert header == ["order_id", "net", "at", "raw", "many", "none", "yes"]
    assert row == ["1", "10.50", "2024-05-01 12:00:00+00:00", "0xff00", "[1, 2]", "", "true"]
    table = run_query(lake, query)
    assert "order_id" in table and "10.50" in table and table.endswith("(1 row)")


def test_json_is_json_whatever_the_values_and_names_are(lake: Path) -> None:
    assert rows(lake, "select n, 1 as a, 2 as a from dead_letters") == [{"n": "nan", "a": 1, "a_2": 2}]


def test_a_table_shows_dirty_text_and_does_not_obey_it(lake: Path) -> None:
    shown = run_query(lake, "select payload from dead_letters")
    assert "[red]a[/red] \\x1b[31m\u00e9" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("sql", "part"),
    [
        ("select * from nothing", "nothing does not exist"),
        ("selct 1", "selct"),
        ("select nope from orders", '"nope" not found'),
        ("", "no SQL statement"),
        ("-- only this", "no SQL statement"),
    ],
)
def test_wrong_sql_is_told_in_one_line(lake: Path, sql: str, part: str) -> None:
    with pytest.raises(InputError) as refused:
        run_query(lake, sql)
    assert part in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_is_no_lake_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "begun" / "bronze" / "orders" / "_delta_log").mkdir(parents=True)
    for name, part in {
        "nowhere": "is not there",
        "file": "is a file",
        "empty": "holds no Delta table",
        "begun": "holds no Delta table",
    }.items():
        with pytest.raises(InputError, match=part) as refused:
            connect(tmp_path / name)
        assert "\n" not in str(refused.value)


def test_a_broken_table_costs_that_table(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lake = fill(tmp_path / "lake")
    (lake / "silver" / "orders" / "_delta_log" / "00000000000000000000.json").write_text("{}")
    with caplog.at_level(logging.WARNING):
        assert rows(lake, "select count(*) as n from dead_letters") == [{"n": 1}]
        assert caplog.text == "", "nobody asked for the broken one"
        assert rows(lake, "select count(*) as n from dead_letters, bronze.orders") == [{"n": 2}]
    assert "silver/orders cannot be read as a Delta table" in caplog.text


def test_nothing_is_written_into_the_lake(lake: Path) -> None:
    before = sorted(lake.rglob("*"))
    with pytest.raises(InputError):
        run_query(lake, "insert into silver.orders (order_id) values ('2')")
    run_query(lake, "create table silver.mine as select 1 as one")
    assert sorted(lake.rglob("*")) == before


SHELL = "import sys; from pathlib import Path; from ingest.query import shell; shell(Path(sys.argv[1]))"


def test_the_prompt_reads_a_pipe(lake: Path) -> None:
    typed = (
        ".tables\nselect count(*) as files\nfrom bronze.files\n;\nselct 1;\n"
        ".what\nselect 'a;\nb' as text; -- done\nselect 7 * 6 as last"
    )
    told = subprocess.run(
        [sys.executable, "-c", SHELL, str(lake)],
        input=typed,
        capture_output=True,
        text=True,
        cwd=PROJECT_ROOT,
        check=True,
        timeout=60,
    )
    assert told.stderr == ""
    assert "marts.dead_letters" in told.stdout
    assert told.stdout.count("(1 row)") == 3
    assert "selct" in told.stdout and ".what is unknown" in told.stdout
    assert "42" in told.stdout


def test_the_prompt_on_a_terminal_can_be_interrupted_and_keeps_a_history(
    lake: Path, tmp_path: Path
) -> None:
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SHELL, str(lake)],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        # Ctrl-C reaches what the terminal belongs to.
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        cwd=PROJECT_ROOT,
        env={**os.environ, "HOME": str(tmp_path), "TERM": "dumb"},
    )
    os.close(follower)
    shown = ""

    def wait_for(text: str) -> None:
        nonlocal shown
        until = time.monotonic() + 30
        while text not in shown:
            ready, _, _ = select.select([leader], [], [], max(0.0, until - time.monotonic()))
            assert ready, shown
            shown += os.read(leader, 65_536).decode()
        shown = shown.split(text, 1)[1]

    try:
        wait_for("lake> ")
        os.write(leader, b"select 40 + 2\n")
        wait_for("  ... ")
        os.write(leader, b"as answer;\n")
        wait_for("42")
        wait_for("lake> ")
        os.write(leader, b"select 1 as dropped")
        wait_for("dropped")
        os.write(leader, b"\x03")
        wait_for("lake> ")
        # One that takes days. What is typed is told before it works, so it is given time to begin.
        os.write(
            leader, b"select count(*) from range(1000000000000) as a(i), range(1000) where i < 0;\n"
        )
        wait_for("i < 0;")
        time.sleep(1)
        os.write(leader, b"\x03")
        wait_for("Stopped.")
        wait_for("lake> ")
        os.write(leader, b".quit\n")
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(leader)
    assert "as answer;" in (tmp_path / ".lakehouse_history").read_text()


def test_only_the_tables_that_are_asked_for_get_a_view_and_batches_do(lake: Path) -> None:
    with connect(lake, {"bronze.orders"}) as connection:
        found = connection.execute("select table_schema, table_name from information_schema.tables")
        assert sorted(found.fetchall()) == [("bronze", "batches"), ("bronze", "orders")]
        # The view still leaves out what an unfinished batch wrote.
        assert connection.execute("select count(*) from bronze.orders").fetchall() == [(2,)]


def test_the_tables_that_sql_may_read_are_found_by_their_names(lake: Path) -> None:
    assert tables_named(lake, 'select * from "silver"."Orders" o') == {"bronze.orders", "silver.orders"}
    assert tables_named(lake, "with a as (select 1) select * from a, files") == {"bronze.files"}
    for of_no_table in (
        "select 1",
        "show tables",
        "select * from information_schema.tables, files",
        # A view of history reads other tables than the one whose name it has.
        "select * from history.orders",
    ):
        assert tables_named(lake, of_no_table) is None
    # A name that SQL puts together is found on the second try.
    assert rows(lake, "select count(*) as n from query_table('dead_' || 'letters'), bronze.batches") == [
        {"n": 2}
    ]
    assert len(rows(lake, "select table_name from information_schema.tables")) == 5


def fill_children(lake: Path) -> Path:
    """Two versions of an entry, one of them there twice, with a sound and a refused lot in each."""

    def lots(name: str) -> list[dict[str, object]]:
        uri = "https://example.org/Nuts-2.0.gc"
        found: list[dict[str, object]] = []
        for ordinal, reasons in enumerate(([], ["LOT_ID_MISSING"]), start=1):
            row = {"ordinal": ordinal, "lot_name": name, "nuts_code": "ES1", "nuts_code_list_uri": uri}
            found.append({"row": row, "failure_reasons": reasons, "warnings": ["W"], "text": None})
        return found

    of_lots = pa.list_(
        pa.struct(
            [
                ("row", pa.struct([("ordinal", pa.int32())] + [
                    (name, pa.string()) for name in ("lot_name", "nuts_code", "nuts_code_list_uri")
                ])),
                ("failure_reasons", pa.list_(pa.string())),
                ("warnings", pa.list_(pa.string())),
                ("text", pa.string()),
            ]
        )
    )  # fmt: skip
    records = ["old", "new", "again"]
    tables = {
        "things_children": pa.table(
            {
                "_refused_count": [1] * 3,
                "record_id": records,
                "entry_id": ["e"] * 3,
                "_cited_lists": pa.array([[]] * 3, pa.list_(pa.string())),
                "_verdict_contract": ["c"] * 3,
                "lots": pa.array([lots(name) for name in records], of_lots),
            }
        ),
        "things_dispositions": pa.table(
            {
                "_record_id": records,
                "disposition": ["superseded", "withdrawn", "duplicate"],
                "_decided_at": [NOON] * 3,
            }
        ),
        "codice_codes": pa.table(
            {
                "list_id": ["Nuts", "Nuts"],
                "cited_as": ["Nuts-1.0", "Nuts-3.0"],
                "code": ["ES1", "ES1"],
                "code_name": ["once", "Noroeste"],
                "is_newest_version": [False, True],
            }
        ),
    }
    for name, table in tables.items():
        write_deltalake(str(lake / "silver" / name), table)
    return lake


def test_history_shows_the_sound_children_of_each_version_once(tmp_path: Path) -> None:
    lake = fill_children(tmp_path / "lake")
    assert rows(lake, "select * exclude (_decided_at) from history.lots order by is_superseded") == [
        {
            "entry_id": "e", "record_id": record, "ordinal": 1, "lot_name": record, "nuts_code": "ES1",
            "nuts_code_list_uri": "https://example.org/Nuts-2.0.gc", "nuts_code_name": "Noroeste",
            "warnings": ["W"], "_verdict_contract": "c", "is_superseded": record == "old",
        }
        for record in ("new", "old")
    ]  # fmt: skip
    # Who asks for something else does not wait for these views.
    with connect(lake, {f"silver.{table.name}" for table in lake_tables(lake)}) as connection:
        views = connection.execute("select view_name from duckdb_views() where schema_name = 'history'")
        assert views.fetchall() == []
    told = subprocess.run(
        [sys.executable, "-c", SHELL, str(lake)],
        input=".tables", capture_output=True, text=True, cwd=PROJECT_ROOT, check=True, timeout=60,
    )  # fmt: skip
    assert told.stdout.splitlines()[-1] == "history.lots"


def test_without_what_history_is_read_with_there_is_none_and_all_else_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake = fill_children(tmp_path / "lake")
    (lake / "silver" / "things_dispositions").rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="history"):
        run_query(lake, "select * from history.lots")
    write_deltalake(str(lake / "silver" / "things_dispositions"), pa.table({"other": [1]}))
    with caplog.at_level(logging.WARNING), connect(lake) as connection:
        assert connection.execute("select count(*) from codice_codes").fetchall() == [(2,)]
    assert "The views of history cannot be made" in caplog.text and "run again" in caplog.text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é\t\n", "plain é\t\n"),
        ("\x1b[31m\r\x7f\x9b", "\\x1b[31m\\x0d\\x7f\\x9b"),
        ("abc\u202edcba", "abc\\u202edcba"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, shown: str) -> None:
    assert terminal_safe(text) == shown
