"""The commands ``lakehouse quarantine ...`` as an operator gives them."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable, write_deltalake
from office_lake import NOON, make_lake, record_ids

from ingest.cli import cli
from ingest.environment import PROJECT_ROOT
from ingest.errors import InputError, LakehouseError, TransitionError
from ingest.lake import QUARANTINE_EVENTS, Lake
from ingest.office.commands import quarantine
from ingest.office.events import TABLE

BECAUSE = ("--because", "a test")
# The process that a user starts, but for the script's name.
START = "import sys; from ingest.cli import main; sys.exit(main())"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return make_lake(tmp_path)


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake that no test writes to."""
    return make_lake(tmp_path_factory.mktemp("still"))


def run(lake: Lake, *words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["quarantine", *words, "--lake", str(lake.path)], input=stdin)


def good(lake: Lake, *words: str, stdin: str | None = None) -> str:
    result = run(lake, *words, stdin=stdin)
    assert result.exception is None, f"{result.exception}\n{result.output}"
    return result.stdout


def refused(lake: Lake, *words: str, stdin: str | None = None) -> LakehouseError:
    result = run(lake, *words, stdin=stdin)
    assert isinstance(result.exception, LakehouseError), result.output
    return result.exception


def events(lake: Lake) -> list[dict[str, object]]:
    rows = lake.read("bronze", TABLE, QUARANTINE_EVENTS.names).to_pylist()
    return sorted(rows, key=lambda row: row["at"])


# -- list and show


def test_list_shows_what_is_open_and_how_much(still: Lake) -> None:
    result = run(still, "list", "--dataset", "orders", "--limit", "2")
    assert "QTY_NOT_INTEGER" in result.stdout
    assert "(2 rows)" in result.stdout
    assert result.stderr == "2 of 4 records; --limit 0 shows all.\n"


def test_list_for_programs_gives_all_and_whole_ids(still: Lake) -> None:
    rows = json.loads(good(still, "list", "--format", "json"))
    assert len(rows) == 7
    assert rows[3]["record_id"] == record_ids(still)[3]
    table = list(csv.DictReader(io.StringIO(good(still, "list", "--format", "csv"))))
    assert [row["record_id"] for row in table] == [row["record_id"] for row in rows]
    assert table[6]["reasons"] == "ORDER_ID_MISSING ORDER_TS_MISSING"


def test_list_leaves_out_what_is_closed_unless_it_is_asked_for(lake: Lake) -> None:
    good(lake, "discard", record_ids(lake)[3], *BECAUSE)
    assert len(json.loads(good(lake, "list", "--format", "json"))) == 6
    assert len(json.loads(good(lake, "list", "--format", "json", "--state", "all"))) == 7
    (row,) = json.loads(good(lake, "list", "--format", "json", "--state", "discarded"))
    assert (row["last_event"], row["last_reason"]) == ("discarded", "a test")


def test_show_tells_all_of_a_record_and_no_terminal_obeys_it(still: Lake) -> None:
    text = good(still, "show", record_ids(still)[3][:10], "--unmasked")
    assert "QTY_NOT_INTEGER (quarantine, schema_validation)" in text
    assert "why: Stock is counted in pieces." in text
    assert "fix: Write the quantity as a whole number in digits." in text
    assert "did not convert: qty is 'two'" in text
    assert "orders_dirty.csv, line 3" in text
    assert "Lines around (from the file, which is what it was)" in text
    assert ">       3 | S2,O2" in text
    assert "        2 | S1,O1" in text
    assert "\\x1b[31mred" in text
    assert "\x1b" not in text


def test_show_places_a_parser_s_fault_in_the_file(still: Lake) -> None:
    text = good(still, "show", record_ids(still, "placsp_entries")[3], "--unmasked")
    assert "licitacionesPerfilesContratanteCompleto3_a.atom, record 3" in text
    assert re.search(r"parser: mismatched tag.*line 8 column \d+", text)
    assert ">       8 | <entry><id>https://x/3</i></entry>" in text


@pytest.mark.parametrize("change", ["gone", "changed"])
def test_show_says_when_the_file_is_not_what_it_was(lake: Lake, tmp_path: Path, change: str) -> None:
    file = tmp_path / "orders_dirty.csv"
    file.unlink() if change == "gone" else file.write_text("sku,order_id\nother,content\n")
    text = good(lake, "show", record_ids(lake)[4], "--unmasked")
    assert "is gone or holds something else by now" in text
    assert ">       1 | S3,O3,C3" in text
    assert "other,content" not in text


def test_show_tells_the_story(lake: Lake) -> None:
    record_id = record_ids(lake)[3]
    good(lake, "investigate", record_id, "--because", "asked", "--actor", "ana", "--evidence", "T-1")
    good(lake, "correct", record_id, "--set", "qty = '2'", *BECAUSE)
    text = good(lake, "show", record_id, "--unmasked")
    assert "investigated by ana: asked\n    evidence: T-1" in text
    assert "evidence: --set qty = '2'" in text
    assert "      S2,O2,C2,2,2024-05-01 00:00:00,phone" in text
    found = json.loads(good(lake, "show", record_id, "--unmasked", "--format", "json"))
    assert [event["event_type"] for event in found["history"]] == ["investigated", "corrected"]
    assert found["fields"]["order_id"] == "O2"
    assert found["state"] == "corrected"


# -- events


def test_show_tells_what_the_runs_did(lake: Lake) -> None:
    ids = record_ids(lake)
    assert "Life" not in good(lake, "show", ids[3]), "no run has written it yet"
    events = [
        (1, "captured", "orders_dirty.csv, position 3", ids[7]),
        (2, "judged", "refused", None),
        # The office knows it better, and says it itself.
        (3, "corrected", "mended", None),
    ]
    named = ("event_number", "event_type", "reason", "other_record_id")
    table = pa.Table.from_pylist(
        [
            {
                **dict(zip(named, event, strict=True)),
                "record_id": ids[3],
                "happened_at": NOON,
                "verdict_contract": None,
                "batch_id": "b1",
            }
            for event in reversed(events)
        ]
    ).cast(HISTORY)
    write_deltalake(str(lake.path / "marts" / "record_history"), table)
    text = good(lake, "show", ids[3])
    assert (
        "Life, as of the last run\n"
        f"  2024-05-01 12:00:00 UTC captured: orders_dirty.csv, position 3 (for {ids[7][:12]})\n"
        "  2024-05-01 12:00:00 UTC judged: refused\n"
        "\nHistory: nothing has happened to it yet"
    ) in text
    life = json.loads(good(lake, "show", ids[3], "--format", "json"))["life"]
    assert [event["event_type"] for event in life] == ["captured", "judged"]
    assert "Life" not in good(lake, "show", ids[4])


HISTORY = pa.schema(
    [
        ("event_number", pa.int32()),
        *((name, pa.string()) for name in ("event_type", "reason", "other_record_id", "record_id")),
        ("happened_at", pa.timestamp("us", tz="UTC")),
        *((name, pa.string()) for name in ("verdict_contract", "batch_id")),
    ]
)


def test_an_event_names_its_actor(lake: Lake) -> None:
    ids = record_ids(lake)
    assert good(lake, "discard", ids[3], ids[4][:9], *BECAUSE, "--actor", "ana") == (
        "2 records discarded by ana.\n"
    )
    assert {(e["record_id"], e["event_type"], e["actor"], e["reason"]) for e in events(lake)} == {
        (ids[3], "discarded", "ana", "a test"),
        (ids[4], "discarded", "ana", "a test"),
    }


def test_without_a_name_the_system_s_user_did_it(lake: Lake) -> None:
    import pwd

    good(lake, "investigate", record_ids(lake)[3], *BECAUSE)
    assert events(lake)[0]["actor"] == pwd.getpwuid(os.getuid()).pw_name


def test_without_a_reason_nothing_is_done(lake: Lake) -> None:
    assert "Give --because" in str(refused(lake, "discard", record_ids(lake)[3]))
    assert events(lake) == []


@pytest.mark.parametrize("command", ["investigate", "discard", "correct"])
def test_a_dry_run_says_much_and_does_nothing(lake: Lake, command: str) -> None:
    more = ["--set", "qty = '2'"] if command == "correct" else []
    text = good(lake, command, "--reason", "QTY_NOT_INTEGER", *more, "--dry-run")
    assert text.startswith("2 records would be ")
    assert record_ids(lake)[3][:12] in text
    assert events(lake) == []


def test_a_dry_run_of_an_expression_shows_before_and_after(still: Lake) -> None:
    text = good(still, "correct", record_ids(still)[3], "--set", "qty = '2'", "--dry-run")
    assert "qty: 'two' -> '2'" in text
    assert "S2,O2,C2,2,2024-05-01 00:00:00,phone,\\x1b[31mred" in text


def test_a_filter_asks_and_without_a_terminal_refuses(lake: Lake) -> None:
    error = refused(lake, "discard", "--dataset", "orders", *BECAUSE)
    assert str(error).startswith("4 records would be discarded, and nobody is there to ask.")
    assert events(lake) == []
    assert "4 records discarded" in good(lake, "discard", "--dataset", "orders", *BECAUSE, "--yes")


@pytest.mark.parametrize(("answer", "count"), [("n", 0), ("y", 4)])
def test_a_filter_asks_on_a_terminal(lake: Lake, answer: str, count: int) -> None:
    words = ["quarantine", "discard", "--dataset", "orders", *BECAUSE, "--lake", str(lake.path)]
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", START, *words], cwd=PROJECT_ROOT, stdin=child, stdout=subprocess.PIPE
    )
    os.close(child)
    os.write(parent, f"{answer}\n".encode())
    output = process.communicate(timeout=60)[0].decode()
    os.close(parent)
    assert "4 records will be discarded. Go on?" in output
    assert process.returncode == (0 if count else 130)
    assert len(events(lake)) == count


def test_of_ids_all_must_do(lake: Lake) -> None:
    ids = record_ids(lake)
    good(lake, "discard", ids[3], *BECAUSE, "--actor", "ana")
    error = refused(lake, "correct", ids[3], ids[4], "--set", "qty = '2'", *BECAUSE)
    assert isinstance(error, TransitionError)
    assert "is discarded (by ana at" in str(error)
    assert len(events(lake)) == 1


def test_a_filter_takes_only_what_the_event_may_happen_to(lake: Lake) -> None:
    good(lake, "discard", record_ids(lake)[3], *BECAUSE)
    assert good(lake, "discard", "--dataset", "orders", *BECAUSE, "--yes").startswith("3 records")
    assert good(lake, "reopen", "--dataset", "orders", *BECAUSE, "--yes").startswith("4 records")
    error = refused(lake, "reopen", "--dataset", "orders", *BECAUSE, "--yes")
    assert "No record that can be reopened fits" in str(error)


def test_a_filter_by_state_says_what_it_leaves(lake: Lake) -> None:
    ids = record_ids(lake)
    good(lake, "discard", ids[3], *BECAUSE)
    words = ["investigate", "--dataset", "orders", "--state", "discarded", "--state", "pending"]
    result = run(lake, *words, *BECAUSE, "--yes")
    assert result.stdout.startswith("3 records investigated")
    assert f"1, such as {ids[3][:12]}: Record ... is discarded" in result.stderr


def test_ids_may_come_from_a_file_or_a_pipe(lake: Lake, tmp_path: Path) -> None:
    ids = record_ids(lake)
    (tmp_path / "ids.txt").write_text(f"# the red ones\n{ids[3]}\n\n{ids[4][:8]}  # why not\n")
    assert "2 records" in good(lake, "investigate", "--ids-from", str(tmp_path / "ids.txt"), *BECAUSE)
    assert "1 record " in good(lake, "investigate", "--ids-from", "-", *BECAUSE, stdin=ids[6] + "\n")
    assert "names no record" in str(refused(lake, "discard", "--ids-from", "-", *BECAUSE, stdin="\n"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["discard"], "No record is named"),
        (["discard", "abcd1234", "--dataset", "orders"], "by id or by filter, not by both"),
        (["discard", "zzzz1234"], "is no refused record"),
        (["discard", "--dataset", "odrers"], "dataset 'odrers'. Known:"),
        (["correct", "--dataset", "orders"], "in one way: --set"),
        (["correct", "--dataset", "orders", "--editor", "--set", "qty = '1'"], "in one way"),
        (["correct", "--dataset", "orders", "--editor"], "4 records are meant, and one text"),
        (["correct", "--older-than", "1d", "--set", "note = '1'"], "of several record types"),
        (["export", "--dataset", "orders", "--out", "x.xlsx"], "Name it .csv, .json or .xml"),
        (["export", "--state", "purged", "--out", "x.csv"], "No record fits"),
    ],
)
def test_wrong_use_is_told(still: Lake, words: list[str], told: str) -> None:
    reason = [] if words[0] == "export" else BECAUSE
    assert told in str(refused(still, *words, *reason))
    assert events(still) == []


# -- corrections


def test_a_mass_correction_is_one_commit_and_says_what_comes_next(lake: Lake) -> None:
    words = ["correct", "--reason", "QTY_NOT_INTEGER", "--set", "qty = '2'", *BECAUSE, "--yes"]
    before = lake.version(TABLE)
    text = good(lake, *words)
    assert text.startswith("2 records corrected by ")
    assert "Corrections wait in bronze.quarantine_events" in text
    assert lake.version(TABLE) == before + 1
    assert [e["corrected_payload"] for e in events(lake) if e["record_id"] == record_ids(lake)[3]] == [
        "S2,O2,C2,2,2024-05-01 00:00:00,phone,\x1b[31mred"
    ]


def test_of_ids_an_expression_must_correct_all(lake: Lake) -> None:
    ids = record_ids(lake)
    error = refused(lake, "correct", ids[3], ids[6], "--set", "qty = '2'", *BECAUSE)
    assert "all must be corrected, so none was" in str(error)
    assert events(lake) == []


def test_a_text_from_a_file_corrects_a_record(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "mended.csv").write_text("S4,O4,C4,5,2024-05-01 00:00:00,web,gift\n")
    good(lake, "correct", record_ids(lake)[6], "--from", str(tmp_path / "mended.csv"), *BECAUSE)
    (event,) = events(lake)
    assert event["corrected_payload"] == "S4,O4,C4,5,2024-05-01 00:00:00,web,gift"
    assert str(event["evidence"]).startswith(f"{tmp_path / 'mended.csv'} sha256:")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"S4,O4,C4,5,2024-05-01 00:00:00,web", "what it was, so there is nothing to correct"),
        (b"S4,O4", "found 2 fields"),
        (b"\xff", "not UTF-8 at byte 1"),
    ],
)
def test_a_text_that_mends_nothing_is_refused(
    still: Lake, tmp_path: Path, text: bytes, told: str
) -> None:
    (tmp_path / "text").write_bytes(text)
    words = ["correct", record_ids(still)[6], "--from", str(tmp_path / "text"), *BECAUSE]
    assert told in str(refused(still, *words))


def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    path = tmp_path / "editor"
    path.write_text(f'#!/bin/sh\n{script} "$1"\n')
    path.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(path))


def test_an_editor_corrects_a_record(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor(tmp_path, monkeypatch, "sed -i -e 's/1,5/15/' -e '$a\\'")
    good(lake, "correct", record_ids(lake)[4], "--editor", *BECAUSE)
    (event,) = events(lake)
    assert event["corrected_payload"] == (
        'S3,O3,C3,"15",2024-05-01 00:00:00,web,"call ""first"",\r\nthen ring"'
    )


def test_what_was_written_in_an_editor_is_never_lost(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor(tmp_path, monkeypatch, "sed -i 's/web/web,gift,and more/'")
    error = refused(lake, "correct", record_ids(lake)[6], "--editor", *BECAUSE)
    assert "found 8 fields" in str(error)
    kept = re.search(r"kept in (\S+):", str(error))
    assert kept is not None
    file = Path(kept[1])
    assert file.read_text() == "S4,O4,C4,5,2024-05-01 00:00:00,web,gift,and more"
    assert file.stat().st_mode & 0o077 == 0
    file.unlink()


def test_an_editor_that_saves_nothing_does_nothing(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor(tmp_path, monkeypatch, "true")
    assert "saved nothing" in str(refused(lake, "correct", record_ids(lake)[6], "--editor", *BECAUSE))


def test_who_edits_too_long_is_told(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record_id = record_ids(lake)[3]
    discard = f"quarantine discard {record_id} --because quicker --actor maria --lake {lake.path}"
    (tmp_path / "quick.py").write_text(
        f"import sys; sys.path.insert(0, {str(PROJECT_ROOT)!r})\n"
        f"from ingest.cli import cli; cli({discard.split()!r})\n"
    )
    editor(tmp_path, monkeypatch, f"{sys.executable} {tmp_path / 'quick.py'} && sed -i 's/two/2/'")
    error = refused(lake, "correct", record_id, "--editor", *BECAUSE)
    assert "Somebody else worked on 1 of these records" in str(error)
    assert "discarded by maria at" in str(error)
    kept = re.search(r"kept in (\S+):", str(error))
    assert kept is not None
    Path(kept[1]).unlink()
    assert [event["event_type"] for event in events(lake)] == ["discarded"]


# -- out and back


@pytest.mark.parametrize("fmt", ["csv", "json", "xml"])
def test_a_partner_mends_a_file(lake: Lake, tmp_path: Path, fmt: str) -> None:
    file = tmp_path / f"partner.{fmt}"
    assert "4 records are in" in good(lake, "export", "--dataset", "orders", "--out", str(file))
    text = file.read_bytes().decode()
    mended = re.sub(r'(O2,C2,S2,|"qty": "|name="qty">)two', r"\g<1>2", text, count=1)
    assert mended != text
    file.write_bytes(mended.encode())

    assert "1 record would be corrected" in good(lake, "import", str(file), "--dry-run")
    assert "nobody is there to ask" in str(refused(lake, "import", str(file), *BECAUSE))
    result = good(lake, "import", str(file), *BECAUSE, "--yes")

    assert "3 records came back as they went, and are skipped." in result
    assert "1 record corrected" in result
    (event,) = events(lake)
    assert event["record_id"] == record_ids(lake)[3]
    assert str(event["evidence"]).startswith(f"partner.{fmt} sha256:")
    # The same file again adds nothing; another text for that record is told who was first.
    result = good(lake, "import", str(file), *BECAUSE, "--yes")
    assert "4 records came back as they went" in result
    assert "Nothing in it corrects anything." in result
    file.write_bytes(re.sub(r'(O2,C2,S2,|"qty": "|name="qty">)2', r"\g<1>3", mended, count=1).encode())
    result = run(lake, "import", str(file), *BECAUSE, "--yes")
    assert "is corrected (by " in result.stderr
    assert len(events(lake)) == 1


def test_nothing_is_applied_unless_all_is_sound_or_part_is_asked_for(lake: Lake, tmp_path: Path) -> None:
    file = tmp_path / "partner.csv"
    ids = record_ids(lake)
    file.write_text(f"record_id,raw_qty\n{ids[3]},2\n{'f' * 64},1\n{ids[4]}\n")

    result = run(lake, "import", str(file), *BECAUSE, "--yes")
    assert isinstance(result.exception, InputError)
    assert "partner.csv line 3: 'ffff" in result.stderr
    assert "partner.csv line 4: it has 1 cells" in result.stderr
    assert events(lake) == []

    result = run(lake, "import", str(file), *BECAUSE, "--yes", "--partial")
    assert result.exit_code == 1
    assert [event["record_id"] for event in events(lake)] == [ids[3]]


# -- the house


def commands() -> list[str]:
    return sorted(quarantine.commands)


def test_the_commands_are_these() -> None:
    assert commands() == [
        "correct", "discard", "export", "import", "investigate", "list", "reopen", "show",
    ]  # fmt: skip


@pytest.mark.parametrize("name", commands())
def test_every_command_has_help_with_an_example_that_parses(name: str) -> None:
    command = quarantine.commands[name]
    text = " ".join((command.help or "").split())
    example = re.search(rf"Example: lakehouse quarantine {name} (.+)$", text)
    assert example is not None
    import shlex

    words = shlex.split(example[1])
    if name == "import":
        words[0] = str(PROJECT_ROOT / "README.md")
    command.make_context(name, words)


def test_an_age_is_a_number_and_a_unit(still: Lake) -> None:
    result = run(still, "list", "--older-than", "soon")
    assert result.exit_code == 2
    assert "is no age. Write a number and m, h, d or w" in result.output
    assert isinstance(quarantine, click.Group)


@pytest.mark.parametrize("words", [["list"], ["show"], ["discard"]])
def test_no_command_starts_spark(lake: Lake, words: list[str]) -> None:
    record_id = [] if words == ["list"] else [record_ids(lake)[3]]
    more = [*BECAUSE] if words == ["discard"] else []
    script = (
        "import sys; from ingest.cli import main; code = main();\n"
        "heavy = {'pyspark', 'dbt', 'pandas', 'pyarrow.dataset'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "quarantine", *words, *record_id, *more, "--lake", lake.path],
        cwd=PROJECT_ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_no_error_message_is_obeyed_by_a_terminal(lake: Lake) -> None:
    words = ["quarantine", "correct", record_ids(lake)[3], "--set", "note = cast(note as int)", *BECAUSE]
    done = subprocess.run(
        [sys.executable, "-c", START, *words, "--lake", lake.path],
        cwd=PROJECT_ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "'\\x1b[31mred'" in done.stderr


def test_the_evidence_is_as_it_was_after_all_that(lake: Lake) -> None:
    good(lake, "correct", "--reason", "QTY_NOT_INTEGER", "--set", "qty = '2'", *BECAUSE, "--yes")
    good(lake, "reopen", "--reason", "QTY_NOT_INTEGER", *BECAUSE, "--yes")
    good(lake, "discard", "--dataset", "orders", *BECAUSE, "--yes")
    for name in ("bronze/orders", "silver/orders_quarantine"):
        assert DeltaTable(str(lake.path / name)).version() == 0
