"""The main job on the samples: known numbers, twice, more, anew, broken, killed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import OF_A_BATCH, SampleLake, commits, rows, table_contents
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from ingest import transform
from ingest.environment import PROJECT_ROOT
from ingest.lake import Lake
from ingest.main_job import Options, run_main_job
from ingest.session import start_on
from ingest.transform import invoke_dbt


def test_refused_records_are_no_failure(sample_lake: SampleLake) -> None:
    assert sample_lake.exit_code == 0


def test_every_file_is_reconciled_with_what_the_generator_wrote(sample_lake: SampleLake) -> None:
    found = {
        (Path(str(name)).name, kind): (count, corrupt)
        for name, kind, count, corrupt in rows(
            sample_lake.lake,
            "select source_file, record_type, found, corrupt from marts.reconciliation "
            "where status = 'ingested'",
        )
    }
    expected = {}
    for file in sample_lake.manifest.files:
        if file.status != "ingested":
            continue
        if file.dataset == "orders":
            expected[(file.name, "orders")] = (file.orders, file.corrupt)
        else:
            expected[(file.name, "placsp_entries")] = (file.entries, file.corrupt)
            expected[(file.name, "placsp_deleted_entries")] = (file.tombstones, 0)
    assert found == expected
    assert rows(sample_lake.lake, "select * from marts.reconciliation where balance <> 0") == []


def test_failed_and_ignored_files_are_known_by_name(sample_lake: SampleLake) -> None:
    found = {
        (Path(str(name)).name, status)
        for name, status in rows(
            sample_lake.lake,
            "select source_file, status from bronze.files where status <> 'ingested'",
        )
    }
    assert found == {(f.name, f.status) for f in sample_lake.manifest.files if f.status != "ingested"}
    letters = rows(
        sample_lake.lake, "select source_file from marts.dead_letters where stage = 'file_read'"
    )
    assert len(letters) == sum(f.status == "failed" for f in sample_lake.manifest.files)


def test_orders_agree_with_the_generator(sample_lake: SampleLake) -> None:
    facts = sample_lake.manifest.orders
    reasons = dict(
        rows(sample_lake.lake, "select reason, count(*) from silver.orders_quarantine group by all")
    )
    assert reasons == {
        "parse": facts.parse_refused,
        "qty": facts.qty_refused,
    }
    states = dict(
        rows(
            sample_lake.lake,
            "select disposition, count(*) from silver.orders_dispositions group by all",
        )
    )
    assert states == {
        "current": facts.current, "superseded": facts.superseded, "duplicate": facts.duplicates,
    }  # fmt: skip
    assert rows(sample_lake.lake, "select count(*) from silver.orders") == [(facts.current,)]


def test_entries_agree_with_the_generator(sample_lake: SampleLake) -> None:
    facts = sample_lake.manifest.placsp
    states = dict(
        rows(
            sample_lake.lake,
            "select disposition, count(*) from silver.placsp_entries_dispositions group by all",
        )
    )
    quarantined = rows(sample_lake.lake, "select count(*) from silver.placsp_entries_quarantine")
    assert quarantined == [(facts.quarantined,)]
    assert states == {
        "current": facts.current,
        "superseded": facts.superseded,
        "duplicate": facts.duplicates,
        "withdrawn": facts.withdrawn,
    }
    deleted = rows(sample_lake.lake, "select count(*) from silver.placsp_entries where is_deleted")
    assert deleted == [(facts.withdrawn,)]


def test_payloads_are_the_bytes_of_the_files(grown_lake: Lake) -> None:
    checked = 0
    read = cache(Path.read_bytes)
    for record_type in ("orders", "placsp_entries", "placsp_deleted_entries"):
        for name, offset, length, encoding, payload, raw in rows(
            grown_lake,
            "select _source_file, _byte_offset, _byte_length, _encoding, payload, _payload_bytes "
            f"from bronze.{record_type}",
        ):
            data = read(Path(str(name)))[int(str(offset)) : int(str(offset)) + int(str(length))]
            assert (data if raw is not None else data.decode(str(encoding))) == (
                bytes(raw) if isinstance(raw, bytes | bytearray) else payload
            )
            checked += 1
    assert checked > 6000


def test_a_dead_letter_says_what_why_and_how(sample_lake: SampleLake) -> None:
    [(message,)] = rows(
        sample_lake.lake,
        "select error_message from marts.dead_letters where error_type = 'QTY_NOT_INTEGER' "
        "and error_message like '%''two''%' limit 1",
    )
    assert "orders_dirty.csv line" in str(message)
    assert "qty is 'two'" in str(message)
    assert "whole number" in str(message)


def test_what_the_schema_does_not_hold_is_counted(sample_lake: SampleLake) -> None:
    paths = [str(p) for (p,) in rows(sample_lake.lake, "select path from marts.schema_drift")]
    assert any(path.endswith("[]") for path in paths), "the repeated scalar"
    assert len(paths) >= 2, "and the unknown element"


def test_a_rule_that_struck_nothing_still_has_its_row(sample_lake: SampleLake) -> None:
    outcomes = rows(
        sample_lake.lake,
        "select outcome, records from marts.rule_outcomes where rule_code = 'ORDER_ID_MISSING'",
    )
    assert outcomes == [("PASS", 0)]


def test_a_second_run_adds_nothing(sample_lake: SampleLake, capsys: pytest.CaptureFixture[str]) -> None:
    before = sample_lake.lake.versions()
    assert run_main_job(sample_lake.lake, Options(inputs=(str(sample_lake.samples),))) == 0
    assert sample_lake.lake.versions() == before
    assert "Nothing new" in capsys.readouterr().out


def test_known_bytes_under_another_name_are_known(grown_lake: Lake) -> None:
    assert rows(grown_lake, "select * from bronze.files where source_file like '%orders_again%'") == []


def test_an_older_version_never_overwrites_a_newer_one(grown_lake: Lake) -> None:
    late = rows(
        grown_lake,
        "select d.disposition from silver.orders_dispositions d join bronze.orders b "
        "on b._record_id = d._record_id where b._source_file like '%orders_old.csv'",
    )
    assert late == [("superseded",)]
    assert rows(grown_lake, "select * from silver.orders where note = 'late'") == []


def test_names_that_differ_by_case_are_different_names(grown_lake: Lake) -> None:
    assert rows(
        grown_lake,
        "select id, title, link[1]._href, list_sort(_unparsed) from bronze.placsp_entries "
        "where payload like '%example.org/case/1%'",
    ) == [
        (
            "https://example.org/case/1", "t", "https://example.org/yes",
            ["entry/ID", "entry/Title", "entry/link/@HREF", "entry/link/@Href"],
        )
    ]  # fmt: skip


def test_full_refresh_gives_the_same_tables_as_incremental(grown_lake: Lake, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    shutil.copytree(grown_lake.path, lake.path)
    assert run_main_job(lake, Options(inputs=(str(lake.path / "silver"),), full_refresh=True)) == 0
    incremental, anew = table_contents(grown_lake), table_contents(lake)
    assert anew.keys() == incremental.keys()
    for table, contents in incremental.items():
        assert anew[table] == contents, table
    letters = "select dead_letter_id from marts.dead_letters order by 1"
    assert rows(lake, letters) == rows(grown_lake, letters)


def test_each_broken_law_is_noticed(sample_lake: SampleLake, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    shutil.copytree(sample_lake.lake.path, lake.path)

    def table(name: str) -> DeltaTable:
        found = DeltaTable(str(lake.path / name.replace(".", "/")))
        if found.metadata().configuration.get("delta.appendOnly") == "true":
            found.alter.set_table_properties({"delta.appendOnly": "false"})
        return found

    def some(sql: str) -> str:
        return str(rows(lake, sql)[0][0])

    # A row dropped from Silver.
    dropped = some("select record_id from silver.orders order by 1 limit 1")
    table("silver.orders").delete(f"record_id = '{dropped}'")
    # A reason emptied, and a verdict that is null.
    emptied = some("select _record_id from silver.orders_quarantine order by 1 limit 1")
    table("silver.orders_quarantine").update(
        predicate=f"_record_id = '{emptied}'", updates={"failure_reasons": "make_array()"}
    )
    null = some("select record_id from silver.placsp_entries where len(warnings) = 0 order by 1 limit 1")
    table("silver.placsp_entries_judged").update(
        predicate=f"_record_id = '{null}'", updates={"warnings": "NULL"}
    )
    # A record in quarantine and in Silver.
    both = some("select record_id from silver.orders order by 1 desc limit 1")
    quarantined = table("silver.orders_quarantine")
    copied = quarantined.to_pyarrow_table().slice(0, 1).to_pylist()
    copied[0]["_record_id"] = both
    write_deltalake(
        str(lake.path / "silver/orders_quarantine"),
        pa.Table.from_pylist(copied, schema=quarantined.to_pyarrow_table().schema),
        mode="append",
    )
    # A byte of a payload changed.
    changed = some("select _record_id from bronze.placsp_entries order by 1 limit 1")
    table("bronze.placsp_entries").update(
        predicate=f"_record_id = '{changed}'", updates={"payload": "concat(payload, 'x')"}
    )
    # A text that went without an event.
    silent = some("select _record_id from bronze.placsp_entries order by 1 desc limit 1")
    table("bronze.placsp_entries").update(
        predicate=f"_record_id = '{silent}'", updates={"payload": "NULL"}
    )
    # A doubled file.
    files = table("bronze.files").to_pyarrow_table()
    doubled = [r for r in files.to_pylist() if r["record_type"] == "orders"][:1]
    lake.append("files", [{**doubled[0], "source_file": "/elsewhere/orders.csv"}])
    # A dead letter gone, a cause that does not exist.
    gone = some("select dead_letter_id from marts.dead_letters where record_type = 'orders' limit 1")
    table("marts.dead_letters").delete(f"dead_letter_id = '{gone}'")
    failed = some("select dead_letter_id from marts.dead_letters where stage = 'file_read' limit 1")
    table("marts.dead_letters").delete(f"dead_letter_id = '{failed}'")
    table("silver.orders_dispositions").update(
        predicate="disposition = 'superseded'", updates={"by_record_id": "'nobody'"}
    )
    table("silver.orders_judged").update(
        predicate=f"_record_id = '{both}'", updates={"_misfits": "make_array('qty is ''two''')"}
    )

    start_on(lake)
    outcome = invoke_dbt(
        lake,
        ["--log-level", "none", "build", "--select", "law_results", "laws_hold",
         "--vars", json.dumps({"audit": "full"})],
    )  # fmt: skip
    assert outcome.failed_tests == ["laws_hold"]
    broken = dict(
        rows(
            lake,
            "select law, sum(offenders)::int from marts.law_results where offenders > 0 group by all",
        )
    )
    assert set(broken) == {
        "capture", "complement", "reasons", "disposition", "payload", "idempotence", "evidence",
        "isolation", "fidelity",
    }  # fmt: skip
    examples = dict(
        rows(
            lake,
            "select law, string_agg(array_to_string(examples, ' '), ' ') from marts.law_results "
            "where offenders > 0 group by all",
        )
    )
    assert emptied in str(examples["reasons"]) and null in str(examples["reasons"])
    assert changed in str(examples["payload"]) and silent in str(examples["payload"])
    assert both in str(examples["complement"]) and dropped in str(examples["complement"])


# Where a run is killed, in the order in which it gets there; last the marker that makes a batch count.
# A replay and a stream are killed in their own stories.
COMMITS = (
    "bronze/placsp_entries", "bronze/files", "bronze/batches", "silver/placsp_entries_dispositions",
)  # fmt: skip


def test_killed_at_every_commit_and_files_in_another_order_give_the_same_tables(
    sample_lake: SampleLake, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake")
    # The newest pages first, and the tombstones of the others before their entries.
    files = sorted(path for path in sample_lake.samples.rglob("*") if path.is_file())
    inputs = tuple(str(path) for path in files[len(files) // 2 :])
    command = [
        sys.executable, "-c", "import sys; from ingest.cli import main; sys.exit(main())",
        "run", "--lake", str(lake.path),
    ]  # fmt: skip
    for name in inputs:
        command += ["--input", name]
    for place in COMMITS:
        before = commits(lake.path / place)
        process = subprocess.Popen(command, cwd=PROJECT_ROOT, stderr=subprocess.DEVNULL)
        while commits(lake.path / place) == before:
            assert process.poll() is None, f"it ended before {place} was written"
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if place in COMMITS[:2]:
            assert lake.finished_batches() == set(), "killed before its marker"
            for schema, table in {("bronze", "orders"), ("bronze", "placsp_entries")} & set(
                lake.tables()
            ):
                assert rows(lake, f"select count(*) from {schema}.{table}") == [(0,)], "half a batch"
    assert run_main_job(lake, Options(inputs=inputs)) == 0
    assert len(lake.finished_batches()) == 1
    assert run_main_job(lake, Options(inputs=(str(sample_lake.samples),))) == 0
    assert len(lake.finished_batches()) == 2
    for record_type in ("orders", "placsp_entries", "placsp_deleted_entries"):
        ids = f"select _record_id from bronze.{record_type} order by 1"
        assert rows(lake, ids) == rows(sample_lake.lake, ids)
    letters = "select dead_letter_id from marts.dead_letters order by 1"
    assert rows(lake, letters) == rows(sample_lake.lake, letters)
    # Of exact repeats the one that was ingested first counts, so its place may differ, and nothing else.
    aside = OF_A_BATCH | {"record_id", "_record_id", "by_record_id", "_source_file", "_position"}
    uninterrupted = table_contents(sample_lake.lake, aside)
    interrupted = table_contents(lake, aside)
    assert interrupted.keys() == uninterrupted.keys()
    # Outcomes of rules are told per batch: here there are two.
    for table in interrupted.keys() - {"rule_outcomes"}:
        assert interrupted[table] == uninterrupted[table], table


class SecondWriter:
    """Somebody else who commits to a table over and over: each commit writes its rows anew, as they are.

    A MERGE that read the table before such a commit can no longer take away the files that it read.
    """

    def __init__(self, table: Path, is_done: Callable[[], bool]) -> None:
        self._table, self._is_done = table, is_done
        self._thread = threading.Thread(target=self._write)
        self.commits = 0

    def _write(self) -> None:
        while not self._is_done():
            # Where Spark was first, it is this writer's turn to try again.
            with suppress(CommitFailedError):
                DeltaTable(str(self._table)).update(updates={"record_id": "record_id"})
                self.commits += 1
            # Often enough to meet every MERGE, seldom enough to leave it the processor.
            time.sleep(0.25)

    def __enter__(self) -> SecondWriter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()


def test_a_merge_that_fails_is_a_dead_letter_and_what_it_would_have_written_comes_later(
    sample_lake: SampleLake,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake = Lake(tmp_path / "lake")
    shutil.copytree(sample_lake.lake.path, lake.path)
    monkeypatch.setattr(transform, "BACKOFF_SECONDS", 0.1)
    silver = lake.path / "silver"
    sound = lake.versions()
    # An order that will be decided anew stands there twice, so Silver gets it twice for one key.
    [(order,)] = rows(lake, "select order_id from silver.orders order by 1 limit 1")
    decisions = DeltaTable(str(silver / "orders_dispositions")).to_pyarrow_table()
    twice = decisions.filter((pc.field("order_id") == order) & (pc.field("disposition") == "current"))
    write_deltalake(str(silver / "orders_dispositions"), twice, mode="append")
    # Lots have a column of another shape than the model gives.
    lots = DeltaTable(str(silver / "placsp_lots")).to_pyarrow_table()
    at = lots.schema.get_field_index("lot_id")
    misfit = pa.nulls(len(lots), pa.struct([("text", pa.string())]))
    write_deltalake(
        str(silver / "placsp_lots"), lots.set_column(at, "lot_id", misfit),
        mode="overwrite", schema_mode="overwrite",
    )  # fmt: skip
    more = tmp_path / "more"
    more.mkdir()
    (more / "orders_older.csv").write_text(
        "order_id,customer_id,sku,qty,order_ts,channel,note\n"
        f"{order},C-1,SKU-1,7,1999-01-01 00:00:00,web,older\n"
        "O-new,C-1,SKU-1,7,2024-01-01 00:00:00,web,newer\n"
        "O-refused,C-1,SKU-1,two,2024-01-01 00:00:00,web,\n"
    )
    page = "licitacionesPerfilesContratanteCompleto3_20240701_090000.atom"
    shutil.copy(Path(__file__).parent / "damaged_children.atom", more / page)
    ended = threading.Event()
    monkeypatch.setattr(transform, "MERGE_ATTEMPTS", 2)
    with SecondWriter(silver / "placsp_winners", ended.is_set) as writer:
        try:
            assert run_main_job(lake, Options(inputs=(str(more),))) == 1
        finally:
            ended.set()
    assert writer.commits

    failed = {
        str(node): (stage, kind, str(message))
        for node, stage, kind, message in rows(
            lake,
            "select record_type, stage, error_type, error_message from marts.dead_letters "
            "where stage in ('merge', 'transformation') and record_id is null",
        )
    }
    assert failed.keys() == {"orders", "placsp_lots", "placsp_winners"}
    for node, (stage, _, message) in failed.items():
        assert stage == "merge"
        assert f"{node} failed as a whole" in message and "run again" in message
    assert failed["orders"][1] == "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"
    assert "two rows for one key" in failed["orders"][2]
    assert "not the columns that the model gives" in failed["placsp_lots"][2]
    assert "lot_id" in failed["placsp_lots"][2] and "SubqueryAlias" not in failed["placsp_lots"][2]
    assert failed["placsp_winners"][1].startswith("DELTA_CONCURRENT_")
    assert "Another writer" in failed["placsp_winners"][2]
    assert "attempt 2 of 2" in caplog.text
    assert "placsp_parties was not built, because it hangs on what failed" in caplog.text
    assert "laws were not checked" in capsys.readouterr().out
    # Neighbours were built, and their dead letters are told in the same run.
    of_entry = "where entry_id = 'https://example.org/children/1'"
    results = f"select ordinal from silver.placsp_results {of_entry}"
    winners = f"select party_name from silver.placsp_winners {of_entry}"
    lots_of_entry = f"select ordinal, lot_id from silver.placsp_lots {of_entry}"
    new = "select note from silver.orders where order_id = 'O-new'"
    assert rows(lake, results) == [(3,)]
    assert rows(lake, "select reason from silver.orders_quarantine where order_id = 'O-refused'") == [
        ("parse",)
    ]
    refused = "select count(*) from marts.dead_letters where business_key like '%O-refused%'"
    assert rows(lake, refused) == [(1,)]
    assert [rows(lake, sql) for sql in (winners, lots_of_entry, new)] == [[], [], []]

    # Mended, the next run catches up, although no new file came and a writer still is in its way.
    for name in ("orders_dispositions", "placsp_lots"):
        DeltaTable(str(silver / name)).restore(sound[f"silver.{name}"])
    caplog.clear()
    monkeypatch.undo()
    monkeypatch.setattr(transform, "BACKOFF_SECONDS", 0.1)
    over = threading.Event()
    with SecondWriter(silver / "placsp_winners", lambda: "attempt 2 of" in caplog.text or over.is_set()):
        try:
            assert run_main_job(lake, Options(inputs=(str(more),))) == 0
        finally:
            over.set()
    assert "another writer committed to the table of placsp_winners" in caplog.text
    assert [rows(lake, sql) for sql in (winners, lots_of_entry, new)] == [
        [("A winner",)], [(1, "1")], [("newer",)],
    ]  # fmt: skip
    assert rows(lake, results) == [(3,)]
    assert "Every law holds" in capsys.readouterr().out
