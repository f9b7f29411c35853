"""Every command of the README is run, in a copy of the project and in the README's order."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from conftest import Checkout, FirstRun
from deltalake import DeltaTable

from ingest.environment import PROJECT_ROOT

README = (PROJECT_ROOT / "README.md").read_text("utf-8")
SQL = ".venv/bin/lakehouse sql "
DBT_BY_HAND = 'cd dbt_project && LAKE="$PWD/../lake" ../.venv/bin/dbt build --profiles-dir ../profiles'

# Command -> what its output must say, as a pattern. Each ends with exit code 0.
RUN_HERE = {
    "make": r"(?s)Set-up.*\n  run .*\n  test .*\n  docs-serve ",
    "make run": r"(?s)licitaciones .*placsp_entries.*Every law holds",
    SQL + '"select stage, error_type, error_message from marts.dead_letters limit 5"': (
        r"(?s)stage .*(QTY|ORDER_TS|CORRUPT_RECORD)"
    ),
    SQL + '"select _source_file, _position, reason, failure_reasons, payload '
    'from silver.orders_quarantine limit 5"': r"(?s)reason .*orders_dirty\.csv",
    SQL + '"select severity, why, fix, owner from marts.dim_rules '
    "where record_type = 'orders' and rule_code = 'QTY_NOT_INTEGER'\"": (
        r"(?s)quarantine .*Stock is counted in pieces"
    ),
    SQL + '"select rule_code, batch_id, outcome, records from marts.rule_outcomes '
    'order by records desc limit 5"': r"QTY_BELOW_ONE",
    SQL + '--format csv "select source_file, found, accepted, quarantined, balance '
    'from marts.reconciliation"': r"(?m)^source_file,found,.*(\n.*,0)+\s*\Z",
    SQL + '"select entry_id, entry_updated, is_superseded, result_code_name, payable_amount '
    'from history.placsp_results order by 1, 2 limit 5"': r"(?s)is_superseded .*(true|false)",
    ".venv/bin/lakehouse quarantine list --dataset orders --limit 5": r"pending .*(QTY|ORDER|CORRUPT)",
    ".venv/bin/lakehouse purge --dry-run": r"\ANothing is to be removed\.$",
    ".venv/bin/lakehouse forget --value ana@example.org --dry-run": r"\ANothing is to be removed\.$",
    # The samples are beyond no threshold of their contracts.
    ".venv/bin/lakehouse alert": r"\ANothing new\.$",
    ".venv/bin/lakehouse metrics --format prometheus": (
        r'(?s)lakehouse_records\{dataset="orders",outcome="found",record_type="orders"\} 6000.0.*'
        r"lakehouse_law_offenders.* 0.0"
    ),
    ".venv/bin/lakehouse contract check": r"orders: \d+ fields, \d+ rules, sound",
}
# Command -> the test that runs it.
RUN_ELSEWHERE = {
    "make orders-lab": "test_the_sample_of_orders_is_inspected",
    "make sql": "test_the_prompt_answers",
    "make docs": "test_the_site_is_built_and_served",
    "make docs-serve": "test_the_site_is_built_and_served",
    DBT_BY_HAND: "test_dbt_by_hand_builds_and_fits_its_session_to_a_small_lake",
    "make test": "test_make_test_runs_this_test",
    ".ci/run": "test_make_test_runs_this_test",
}


def commands() -> list[str]:
    """The commands of README.md: each line of a shell block, and what stands as code in a sentence."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    lines = [
        line.strip()
        for kind, text in blocks
        if kind in ("sh", "bash")
        for line in text.replace("\\\n", " ").splitlines()
    ]
    sentences = re.sub(r"^```.*?^```$", "", README, flags=re.DOTALL | re.MULTILINE)
    lines += re.findall(r"`((?:make|\.ci/run)(?: [a-z-]+)?)`", sentences)
    return list(dict.fromkeys(line for line in lines if line and not line.startswith("#")))


@pytest.fixture(scope="module")
def checkout(first_run: FirstRun) -> Checkout:
    assert first_run.exit_code == 0, first_run.told
    return first_run.checkout


def dead_letters(checkout: Checkout) -> int:
    return DeltaTable(str(checkout.root / "lake" / "marts" / "dead_letters")).count()


def test_every_command_is_run_by_a_test() -> None:
    known = [*RUN_HERE, *RUN_ELSEWHERE]
    here = "".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    problems = [
        f"README.md: no test runs '{command}'. Add it to RUN_HERE in tests/integration/test_readme.py "
        f"with what its output must say, or to RUN_ELSEWHERE with the test that runs it."
        for command in commands()
        if command not in known
    ]
    problems += [
        f"tests/integration/test_readme.py: README.md does not say '{command}' any more. Delete it."
        for command in known
        if command not in commands()
    ]
    problems += [
        f"tests/integration/test_readme.py: '{command}' is to be run by {test}, which is not there."
        for command, test in RUN_ELSEWHERE.items()
        if f"def {test}(" not in here
    ]
    assert not problems, "\n".join(problems)


def test_make_run_takes_other_files_and_another_lake(checkout: Checkout) -> None:
    # Known content, and a lake that is there under another name: so nothing is to be done.
    (checkout.root / "the same lake").symlink_to("lake")
    told = checkout.shell("make run INPUT=samples/orders_dirty.csv LAKE='the same lake'")
    assert told.returncode == 0, told.stdout
    assert "Nothing new" in told.stdout


@pytest.mark.parametrize("command", RUN_HERE)
def test_a_command_does_what_is_said(checkout: Checkout, command: str) -> None:
    letters = dead_letters(checkout)
    told = checkout.shell(command)
    assert told.returncode == 0, told.stdout
    assert re.search(RUN_HERE[command], told.stdout), told.stdout
    assert dead_letters(checkout) == letters, "built on what was there"


def test_the_sample_of_orders_is_inspected(orders_lab: FirstRun) -> None:
    # In a copy of its own, so that the one on which others build is not waited for.
    assert orders_lab.exit_code == 0, orders_lab.told
    assert re.search(r"6,000 records: 5,742 clean, 258 quarantined", orders_lab.told), orders_lab.told
    assert (orders_lab.checkout.root / "lab" / "orders" / "report.html").is_file()


def test_the_prompt_answers(checkout: Checkout) -> None:
    told = checkout.shell("make sql", input="select count(*) as letters from marts.dead_letters;\n")
    assert told.returncode == 0, told.stdout
    assert re.search(r"letters\W+[1-9]\d+", told.stdout), told.stdout


def test_make_test_runs_this_test(checkout: Checkout) -> None:
    # It cannot be run from here: it would run itself.
    steps = checkout.shell("make --dry-run test").stdout
    for step in (
        "ruff check",
        "ruff format --check",
        "mypy",
        "sqlfluff",
        "lint dbt_project",
        "-m pytest",
    ):
        assert step in steps, f"make test does not call {step}:\n{steps}"
    assert re.search(r"^make test\b", (PROJECT_ROOT / ".ci" / "run").read_text("utf-8"), re.MULTILINE)
    assert "tests/integration" in (PROJECT_ROOT / "pyproject.toml").read_text("utf-8")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def fetched(address: str, process: subprocess.Popen[str], log: Path) -> bytes:
    """What a server gives that is starting."""
    for _ in range(600):
        assert process.poll() is None, log.read_text()
        try:
            with urlopen(address, timeout=10) as answer:
                return bytes(answer.read())
        except (URLError, ConnectionError):
            time.sleep(0.5)
    raise AssertionError(f"{address} did not answer: {log.read_text()}")


@pytest.fixture(scope="module")
def site(checkout: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The address of the site that `make docs-serve` shows, and the log: it calls `make docs` first."""
    port = free_port()
    log = tmp_path_factory.mktemp("site") / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            ["make", "docs-serve", f"ARGS=--port {port}"],
            cwd=checkout.root,
            # No browser is to open.
            env={**checkout.environment(), "BROWSER": "true"},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )
    try:
        fetched(f"http://localhost:{port}/", process, log)
        yield f"http://localhost:{port}", log.read_text()
    finally:
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise


def document(address: str) -> dict[str, Any]:
    with urlopen(address, timeout=60) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return found


def test_the_site_is_built_and_served(checkout: Checkout, site: tuple[str, str]) -> None:
    address, log = site
    with urlopen(address, timeout=60) as answer:
        page = answer.read().decode()
    assert answer.status == 200
    assert "<title>dbt Docs</title>" in page
    place = re.search(r"The site is (.+\.html)", log)
    assert place, log
    whole = checkout.root / place.group(1)
    assert "model.lakehouse.dead_letters" in whole.read_text("utf-8"), "the site in one file"


def test_lineage_runs_unbroken_from_source_to_mart(site: tuple[str, str]) -> None:
    manifest = document(f"{site[0]}/manifest.json")

    def reached(start: str, edges: dict[str, list[str]]) -> set[str]:
        found, todo = set(), [start]
        while todo:
            for node in edges.get(todo.pop(), []):
                if node not in found:
                    found.add(node)
                    todo.append(node)
        return found

    nodes = manifest["nodes"]
    models = [name for name, node in nodes.items() if node["resource_type"] == "model"]
    marts = {name for name in models if nodes[name]["fqn"][1] == "marts"}
    assert len(marts) >= 6
    rootless = [
        name
        for name in models
        if not any(node in manifest["sources"] for node in reached(name, manifest["parent_map"]))
    ]
    assert not rootless, f"{rootless} hang on no source. Say with ref() what they are made of."
    # The chain of a feed's pages is told by a Silver table, and no mart has more to say of it.
    ends = marts | {"model.lakehouse.placsp_feed_pages"}
    dead_ends = [
        name
        for name, source in manifest["sources"].items()
        # What the job of messages writes for its readers and for itself is an end already.
        if source["source_name"] != "message_targets"
        and source["name"] not in ("messages_waiting", "message_files", "schema_changes")
        and not ends & reached(name, manifest["child_map"])
    ]
    assert not dead_ends, f"no mart hangs on {dead_ends}. Read them with source() in a stg_ model."


def test_the_site_shows_the_columns_of_every_table(site: tuple[str, str]) -> None:
    manifest, catalog = document(f"{site[0]}/manifest.json"), document(f"{site[0]}/catalog.json")
    tables = [
        name
        for name, node in manifest["nodes"].items()
        if node["resource_type"] == "model" and node["config"]["materialized"] != "ephemeral"
    ]
    bare = [name for name in tables if not catalog["nodes"].get(name, {}).get("columns")]
    assert not bare, f"the site shows no columns of {bare}"
