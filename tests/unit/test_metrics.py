"""Metrics: a lake as Prometheus and OpenLineage read it, in files and at servers on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from alert_lake import add_path, fill, make_alert_lake, start_batch, with_alerts
from click.testing import CliRunner, Result
from office_lake import NOON, record_ids
from prometheus_client.parser import text_string_to_metric_families

from ingest.alerting.telling import evaluate
from ingest.cli import cli
from ingest.errors import DeliveryError, InputError
from ingest.lake import Lake
from ingest.office.actions import Note, happen
from ingest.office.refused import Office

RUN = "c0ffee00-0000-4000-8000-000000000000"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with an alert, a record that was discarded, and what dbt leaves of a build."""
    lake = make_alert_lake(tmp_path_factory.mktemp("metrics"))
    start_batch(lake, "b2", NOON + timedelta(hours=1))
    lake.append(
        "files",
        [
            {
                "batch_id": "b2", "record_type": "orders", "dataset": "orders", "status": status,
                "source_file": f"/in/{name}", "file_sha256": name, "records": records,
                "ingested_at": NOON,
            }
            for name, status, records in (
                ("x.csv", "ingested", 3), ("y.csv", "ingested", 4), ("z", "failed", 0),
            )
        ],
    )  # fmt: skip
    add_path(lake, 'a"\\b', NOON)
    fill(
        lake,
        "law_results",
        [{"law": "capture", "record_type": "orders", "offenders": 2, "checked_at": NOON}],
    )
    struck = {"record_type": "orders", "severity": "quarantine", "batch_id": "b2", "asked": 7}
    fill(lake, "rule_outcomes", [{**struck, "rule_code": "QTY_MISSING", "records": 2}])
    fill(lake, "rule_outcomes", [{**struck, "rule_code": "ORDER_ID_MISSING", "records": 0}])
    fill(lake, "rule_outcomes", [{**struck, "rule_code": "QTY_MISSING", "records": 9, "batch_id": "b1"}])
    evaluate(lake, [], NOON + timedelta(days=1), contracts=with_alerts(open_above=3))
    with Office(lake) as office:
        happen(office, office.find([record_ids(lake)[3]]), "discarded", Note("ana", "a test order"))
    write_dbt(lake)
    return lake


def write_dbt(lake: Lake) -> None:
    """What dbt leaves, as far as it is looked at."""

    def model(
        name: str, schema: str, reads: list[str], materialized: str = "incremental"
    ) -> dict[str, Any]:
        return {
            "name": name, "alias": name, "schema": schema, "resource_type": "model",
            "config": {"materialized": materialized}, "depends_on": {"nodes": reads},
            "columns": {"qty": {"name": "qty", "data_type": "int", "description": "Pieces."}},
        }  # fmt: skip

    source = {"name": "orders", "identifier": "orders", "schema": "bronze", "resource_type": "source"}
    manifest = {
        "nodes": {
            "m.stg": model("stg_orders", "silver", ["s.orders"], "ephemeral"),
            "m.judged": model("orders_judged", "silver", ["m.stg"]),
            "m.orders": model("orders", "silver", ["m.judged", "m.judged"]),
        },
        "sources": {"s.orders": {**source, "config": {}, "columns": {}}},
    }

    def result(name: str, status: str, message: str = "OK") -> dict[str, Any]:
        times = {
            "started_at": "2024-05-01T12:02:00.000000Z",
            "completed_at": "2024-05-01T12:03:00.000000Z",
        }
        return {"unique_id": name, "status": status, "message": message, "timing": [times]}

    results = {
        "metadata": {"invocation_id": RUN},
        "args": {"which": "build"},
        "results": [
            result("m.judged", "success"),
            result("m.orders", "error", "[CAST_INVALID_INPUT] The value 'maria' of ..."),
            {**result("m.gone", "skipped"), "timing": []},
        ],
    }
    (lake.state / "dbt").mkdir(parents=True)
    (lake.state / "dbt" / "manifest.json").write_text(json.dumps(manifest))
    (lake.state / "dbt" / "run_results.json").write_text(json.dumps(results))


class Server(ThreadingHTTPServer):
    """Takes everything, or refuses it; and what came."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.code = 200
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.command, self.path, dict(self.headers), body))
        self.send_response(self.server.code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_PUT(self) -> None:
        self.do_POST()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def run(lake: Lake, *words: str, **environment: str) -> Result:
    return CliRunner(env=environment).invoke(cli, ["metrics", "--lake", str(lake.path), *words])


def good(lake: Lake, *words: str, **environment: str) -> str:
    result = run(lake, *words, **environment)
    assert result.exception is None, result.output
    return result.stdout


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Every number by its name and the values of its labels, in the order of their names."""
    return {
        (sample.name.removeprefix("lakehouse_"), *(value for _, value in sorted(sample.labels.items()))):
            sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }  # fmt: skip


# -- Prometheus


def test_the_numbers_are_those_of_the_lake(lake: Lake) -> None:
    found = samples(good(lake))

    assert found["records", "orders", "found", "orders"] == 5
    assert found["records", "orders", "quarantined", "orders"] == 4
    assert found["files", "orders", "ingested"] == 3
    assert found["files", "orders", "failed"] == 1
    assert found["last_batch_timestamp_seconds", "run"] == NOON.timestamp() + 3600
    assert found["rule_records", "orders", "QTY_MISSING", "quarantine"] == 11
    assert found["law_offenders", "capture", "orders"] == 2
    assert found["schema_drift_paths", "orders", "orders"] == 1
    # As people left them since the last run.
    assert found["refused_records", "orders", "orders", "QTY_NOT_INTEGER", "discarded"] == 1
    assert found["refused_records", "orders", "orders", "QTY_NOT_INTEGER", "pending"] == 1
    assert found["oldest_open_timestamp_seconds", "orders", "orders"] == NOON.timestamp() + 4 * 3600
    raised = ("alert_raised_timestamp_seconds", "orders", "open_above", "orders", "")
    assert found[raised] == NOON.timestamp() + 86400


def test_a_lake_without_marts_gives_what_it_has(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.create_operations()
    assert "lakehouse_files{" not in good(lake)
    assert "lakehouse_law_offenders" not in good(lake)


def test_the_numbers_go_to_a_file_and_to_a_pushgateway(
    lake: Lake, tmp_path: Path, server: Server
) -> None:
    out = tmp_path / "lakehouse.prom"
    assert "Written" in good(lake, "--out", str(out), "--url", server.origin)

    ((method, path, _, body),) = server.seen
    assert (method, path) == ("PUT", "/metrics/job/lakehouse")
    assert samples(body.decode()) == samples(out.read_text()) == samples(good(lake))
    assert list(tmp_path.iterdir()) == [out]


# -- OpenLineage


def lineage(lake: Lake, **environment: str) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in good(lake, "--format", "openlineage", **environment).splitlines()
    ]


def test_events_say_what_the_newest_batch_read_and_wrote(lake: Lake) -> None:
    start, complete = [event for event in lineage(lake) if event["job"]["name"] == "ingest"]

    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert complete["eventTime"] == "2024-05-01T13:01:00+00:00"
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert [(item["namespace"], item["name"]) for item in complete["inputs"]] == [
        ("file", "/in/x.csv"),
        ("file", "/in/y.csv"),
    ]
    (output,) = complete["outputs"]
    assert output["name"] == str(lake.path / "bronze" / "orders")
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 7
    assert output["facets"]["symlinks"]["identifiers"][0]["name"] == "bronze.orders"


def test_events_say_what_dbt_read_and_wrote_and_what_rules_found(lake: Lake) -> None:
    events = {(e["job"]["name"], e["eventType"]): e for e in lineage(lake, OPENLINEAGE_NAMESPACE="prod")}

    judged = events["dbt.orders_judged", "COMPLETE"]
    assert judged["job"]["namespace"] == "prod"
    assert judged["run"]["facets"]["parent"]["job"]["name"] == "dbt build"
    (source,) = judged["inputs"]
    assert source["name"] == str(lake.path / "bronze" / "orders"), "through the model that is no table"
    assertions = source["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert [(a["assertion"], a["success"], a["severity"]) for a in assertions] == [
        ("ORDER_ID_MISSING", True, "warn"),
        ("QTY_MISSING", False, "warn"),
    ]
    assert judged["outputs"][0]["facets"]["schema"]["fields"][0]["type"] == "int"

    failed = events["dbt.orders", "FAIL"]
    assert [item["name"] for item in failed["inputs"]] == [str(lake.path / "silver" / "orders_judged")]
    said = failed["run"]["facets"]["errorMessage"]["message"]
    assert said == "CAST_INVALID_INPUT: see bronze.run_failures of the lake", "and no value of a record"
    assert not any("gone" in name for name, _ in events)


def test_events_go_to_a_file_and_to_a_server_with_its_key(
    lake: Lake, tmp_path: Path, server: Server
) -> None:
    out = tmp_path / "events.jsonl"
    words = ("--format", "openlineage", "--out", str(out), "--url", server.origin)
    assert "Sent: 6 events." in good(lake, *words, OPENLINEAGE_API_KEY="s3cret")

    assert {(method, path) for method, path, _, _ in server.seen} == {("POST", "/api/v1/lineage")}
    assert {headers["Authorization"] for _, _, headers, _ in server.seen} == {"Bearer s3cret"}
    sent = [json.loads(body) for *_, body in server.seen]
    written = [json.loads(line) for line in out.read_text().splitlines()]
    assert sent == written == lineage(lake), "and asked again, the same runs"


# -- what goes wrong


@pytest.mark.parametrize("fmt", ["prometheus", "openlineage"])
def test_a_server_that_does_not_take_it_is_said(lake: Lake, server: Server, fmt: str) -> None:
    server.code = 403
    result = run(lake, "--format", fmt, "--url", server.origin)
    assert isinstance(result.exception, DeliveryError)
    assert "403" in str(result.exception) and "try again" in str(result.exception)


@pytest.mark.parametrize("fmt", ["prometheus", "openlineage"])
def test_wrong_use_is_said(lake: Lake, tmp_path: Path, fmt: str) -> None:
    for words in (
        ("--url", "localhost:9091"),
        ("--url", "https://me:s3cret@x.org"),
        ("--out", str(tmp_path / "nowhere" / "x")),
    ):
        assert isinstance(run(lake, "--format", fmt, *words).exception, InputError)
    assert isinstance(run(Lake(tmp_path / "none"), "--format", fmt).exception, InputError)
