import gzip
import hashlib
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.errors import ContractError, InputError
from ingest.messages.receiving import Again, cut, new_files, received, receiver
from ingest.messages.sample import SHARES, generate_messages
from ingest.messages.targets import load_targets
from ingest.transform import models_dir

TARGETS = ("customer_updates", "order_events")


@given(
    st.lists(st.binary(max_size=12).map(lambda raw: raw.replace(b"\n", b"")), max_size=6), st.booleans()
)
def test_lines_stand_where_they_say_and_blank_ones_are_counted(lines: list[bytes], ends: bool) -> None:
    content = b"\n".join(lines) + (b"\n" if ends else b"")
    found = list(cut(io.BytesIO(content)))
    if not content.startswith(b"\xef\xbb\xbf"):
        assert [line.raw for line in found] == [raw for raw in lines if raw.strip()]
    for line in found:
        assert content[line.offset : line.offset + line.length] == line.raw
        assert content[: line.offset].count(b"\n") == line.position - 1


@given(st.lists(st.integers(0, 25), max_size=5), st.booleans())
def test_a_line_that_is_too_long_is_measured_and_let_go(sizes: list[int], ends: bool) -> None:
    lines = [b"x" * size for size in sizes]
    content = b"\n".join(lines) + (b"\n" if ends else b"")
    found = {line.position: line for line in cut(io.BytesIO(content), longest=8)}
    for position, raw in enumerate(lines, 1):
        if raw:
            assert found[position].length == len(raw)
            assert found[position].raw == (raw if len(raw) <= 8 else None)


def test_a_byte_order_mark_belongs_to_the_file() -> None:
    [line] = cut(io.BytesIO(b"\xef\xbb\xbf{}\n"))
    assert (line.raw, line.offset, line.length) == (b"{}", 3, 2)


def row(raw: bytes) -> dict[str, object]:
    [line] = cut(io.BytesIO(raw + b"\n"))
    return received(line, "a.jsonl", "f" * 64, TARGETS)


def test_what_is_no_utf8_is_kept_as_bytes_and_all_else_as_text() -> None:
    broken = row(b'{"target": "\xff"}')
    assert (broken["payload"], broken["_payload_bytes"]) == (None, b'{"target": "\xff"}')
    assert broken["error_type"] == "NOT_UTF8"
    refused = row("{ñ".encode())
    assert (refused["payload"], refused["stage"]) == ("{ñ", "json_parsing")
    sound = row(b'{"target": "order_events", "data": {}, "x": 1}')
    assert (sound["stage"], sound["target"], sound["_unparsed"]) == (None, "order_events", ["x"])


def test_a_line_too_long_is_refused_with_where_it_stands() -> None:
    [line] = cut(io.BytesIO(b"x" * 9 + b"\n"), longest=8)
    found = received(line, "a.jsonl", "f" * 64, TARGETS)
    assert (found["error_type"], found["_byte_length"], found["payload"]) == (
        "MESSAGE_TOO_LARGE",
        9,
        None,
    )


def test_files_are_known_by_content_and_only_json_lines_are_taken(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"{}\n")
    (tmp_path / "%20 b: ñ.NDJSON").write_bytes(b"{}\n[]\n")
    (tmp_path / "again.jsonl.gz").write_bytes(gzip.compress(b"{}\n"))
    (tmp_path / "orders.csv").write_bytes(b"a,b\n")
    (tmp_path / "broken.jsonl.gz").write_bytes(b"no gzip")
    digest = hashlib.sha256(b"{}\n").hexdigest()

    files, failed = new_files([str(tmp_path)], {})
    assert sorted(f.source.file_name for f in files) == ["%20 b: ñ.NDJSON", "a.jsonl"]
    assert ["broken.jsonl.gz" in str(error) for error in failed] == [True]
    files, _ = new_files([str(tmp_path)], {digest})
    assert [f.source.file_name for f in files] == ["%20 b: ñ.NDJSON"]
    with pytest.raises(InputError, match="nothing"):
        new_files([str(tmp_path / "none*")], set())


def run_receiver(path: Path, digest: str) -> list[dict[str, object]]:
    import pyarrow as pa

    file = {"path": str(path), "member": None, "name": path.name, "sha256": digest}
    batches = receiver(TARGETS)(iter([pa.RecordBatch.from_pylist([file])]))
    return [row for batch in batches for row in batch.to_pylist()]


def test_a_worker_gives_a_row_per_line_and_a_broken_file_costs_that_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    content = b'{"target": "order_events", "data": {}, "event_ts": "2024-05-01T10:00:00Z"}\n{\n'
    path.write_bytes(gzip.compress(content))
    rows = run_receiver(path, hashlib.sha256(content).hexdigest())
    assert [row["_position"] for row in rows] == [1, 2]
    assert len({row["_record_id"] for row in rows}) == 2
    changed = run_receiver(path, "0" * 64)[-1]
    assert (changed["stage"], changed["error_type"]) == ("file_read", "CHANGED_WHILE_READ")
    assert (changed["_file_sha256"], changed["_message_id"]) == ("0" * 64, None)
    path.write_bytes(gzip.compress(b"{}\n" * 1000)[:-20])
    assert run_receiver(path, "1" * 64)[-1]["stage"] == "file_read"
    path.unlink()
    assert run_receiver(path, "1" * 64)[-1]["error_type"] == "UNREADABLE"


def test_a_message_that_is_sent_again_is_no_repeat_and_says_whom_it_follows() -> None:
    raw = b'{"target": "order_events", "data": {}, "event_ts": "2024-05-01T10:00:00Z"}'
    [line] = cut(io.BytesIO(raw))
    first = received(line, "a.jsonl", "f" * 64, TARGETS)
    again = received(line, "b.jsonl", "e" * 64, TARGETS, Again("r1", 2, is_corrected=False))
    corrected = received(line, "b.jsonl", "e" * 64, TARGETS, Again("r1", 2, is_corrected=True))
    assert first["_message_id"] == corrected["_message_id"] != again["_message_id"]
    assert (first["_supersedes"], first["_attempt"]) == (None, 1)
    assert (again["_supersedes"], again["_attempt"]) == ("r1", 2)


# -- the sample


def test_the_sample_is_the_same_each_time_and_says_what_it_holds(tmp_path: Path) -> None:
    manifest = generate_messages(tmp_path / "one", messages=1000)
    again = generate_messages(tmp_path / "two", messages=1000)
    other = generate_messages(tmp_path / "two", messages=1000, seed=2)

    content = Path(manifest.file).read_bytes()
    assert content == Path(again.file).read_bytes() != Path(other.file).read_bytes()
    assert content.count(b"\n") == sum(manifest.ways.values()) == 1000
    assert set(manifest.ways) == {*SHARES, "customer_updates", "order_events"}
    rows = [received(line, "a", "f", TARGETS) for line in cut(io.BytesIO(content))]
    refused = sum(manifest.ways[way] for way in ("no_json", "no_target", "unknown_target"))
    assert sum(row["stage"] is not None for row in rows) == refused
    assert len({row["_message_id"] for row in rows}) == 1000 - manifest.ways["repeat"]


# -- contracts of targets


def write(folder: Path, target: dict[str, object] | None, columns: list[dict[str, str]]) -> Path:
    table: dict[str, object] = {"name": "parcels", "columns": columns}
    if target is not None:
        table["config"] = {"meta": {"target": target}}
    (folder / "m.yml").write_text(
        json.dumps({"sources": [{"name": "message_targets", "tables": [table]}]})
    )
    return folder


SOUND: dict[str, object] = {"version": "1.0.0", "owner": "depot"}
RULE: dict[str, object] = {
    "code": "NO_ID",
    "when": "id is null",
    "severity": "quarantine",
    "on_null": "refuse",
    "stage": "business_rule",
    "reason": "key",
    "why": "No one can be told from another.",
    "fix": "Add the id.",
}


def test_a_target_is_read_with_its_defaults_and_without_the_jobs_columns(tmp_path: Path) -> None:
    columns = [{"name": "_key", "data_type": "string"}, {"name": "id", "data_type": "struct<a:int>"}]
    target = load_targets(write(tmp_path, SOUND, columns))["parcels"]
    assert target.schema.simpleString() == "struct<id:struct<a:int>>"
    assert (target.schema_window_minutes, target.retry_minutes, target.max_columns) == (3, 15, 2000)


@pytest.mark.parametrize(
    ("target", "columns", "said"),
    [
        (None, [], "no config.meta.target"),
        ({"version": "1"}, [], "lacks owner"),
        ({**SOUND, "window": 3}, [], "'window' means nothing"),
        ({**SOUND, "retry_minutes": 0}, [], "retry_minutes is 0"),
        ({**SOUND, "schema_window_minutes": 0}, [], "must be a whole number from 1"),
        ({**SOUND, "schema_window_minutes": True}, [], "must be a whole number"),
        ({**SOUND, "schema_window_minutes": 20}, [], "window end"),
        (
            {**SOUND, "max_columns": 1},
            [{"name": "a", "data_type": "struct<b:int,c:int>"}],
            "more columns",
        ),
        (SOUND, [{"name": "a", "data_type": "text"}], "'text', which is no type"),
        (SOUND, [{"name": "a"}], "no data_type"),
        ({**SOUND, "rules": [{**RULE, "on_null": None}]}, [], "rule NO_ID: on_null is missing"),
        ({**SOUND, "rules": [RULE, RULE]}, [], "the code is there twice"),
        ({**SOUND, "rules": [{**RULE, "severity": "warn"}]}, [], "severity quarantine"),
        ({**SOUND, "rules": [{**RULE, "when": "rand() > 1"}]}, [], "not deterministic"),
        (SOUND, [{"name": "a b", "data_type": "int"}], "cannot be"),
        (SOUND, [{"name": "a", "data_type": "int"}, {"name": "A", "data_type": "int"}], "there twice"),
    ],
)
def test_a_target_that_cannot_work_is_told_with_its_file(
    tmp_path: Path, target: dict[str, object] | None, columns: list[dict[str, str]], said: str
) -> None:
    with pytest.raises(ContractError, match=r"m\.yml:1: target parcels") as told:
        load_targets(write(tmp_path, target, columns))
    assert said in str(told.value)


def test_a_target_with_rules_has_a_quarantine_that_no_other_target_may_be(tmp_path: Path) -> None:
    columns = [{"name": "id", "data_type": "string"}]
    target = load_targets(write(tmp_path, {**SOUND, "rules": [RULE]}, columns))["parcels"]
    assert target.tables == ("parcels", "parcels_quarantine")
    assert [rule.code for rule in target.rules] == ["NO_ID"]
    second = json.loads((tmp_path / "m.yml").read_text())
    table = dict(second["sources"][0]["tables"][0], name="parcels_quarantine")
    second["sources"][0]["tables"].append(table)
    (tmp_path / "m.yml").write_text(json.dumps(second))
    with pytest.raises(ContractError, match="another target's quarantine"):
        load_targets(tmp_path)


def test_a_folder_without_targets_is_told(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="no target"):
        load_targets(tmp_path)


def test_the_projects_targets_are_sound() -> None:
    assert set(load_targets(models_dir())) == set(TARGETS)
