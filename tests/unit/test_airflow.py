"""The DAG that ships, imported into a real Airflow, and its commands run as its tasks run them."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
from dbt.cli.main import cli as dbt

from ingest.cli import cli
from ingest.environment import PROJECT_ROOT, install_airflow

DAG = PROJECT_ROOT / "docs" / "airflow" / "lakehouse.py"
SAID = {"LAKE": "/data/lake", "LAKEHOUSE_INPUT": "/in/*.csv"}
SAYS = '#!/bin/sh\npwd\necho "$LAKE"\nfor word in "$@"; do echo "$word"; done\n'


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout at a path that no shell or template may read; its commands say what they were given."""
    root = tmp_path_factory.mktemp("checkout") / "it's {{ here }} $HOME"
    bin_folder = root / ".venv" / "bin"
    bin_folder.mkdir(parents=True)
    (root / "dbt_project").mkdir()
    (root / "docs" / "airflow").mkdir(parents=True)
    shutil.copy(DAG, root / "docs" / "airflow")
    for name in ("lakehouse", "dbt"):
        (bin_folder / name).write_text(SAYS)
        (bin_folder / name).chmod(0o755)
    return root


@pytest.fixture(scope="module")
def imported(home: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The DAG where it lies and through a link in Airflow's folder, in an environment that says all."""
    dags = tmp_path_factory.mktemp("dags")
    (dags / "lakehouse.py").symlink_to(home / "docs" / "airflow" / "lakehouse.py")
    asked = [(str(home / "docs" / "airflow"), {}), (str(dags), SAID)]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "LAKE", "PYTHON"))}
    done = subprocess.run(
        [install_airflow(), Path(__file__).with_name("in_airflow.py"), json.dumps(asked)],
        env={
            **kept,
            "AIRFLOW_HOME": str(home / "airflow"),
            # A busy machine is no fault of the file.
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "600",
        },
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    assert [one["faults"] for one in found] == [{}, {}]
    assert [list(one["dags"]) for one in found] == [["lakehouse"], ["lakehouse"]]
    return [one["dags"]["lakehouse"] for one in found]


@pytest.fixture(scope="module")
def dag(imported: list[dict[str, Any]]) -> dict[str, Any]:
    return imported[0]


def test_tasks_follow_each_other_and_are_tried_again(dag: dict[str, Any]) -> None:
    tasks = dag["tasks"]
    assert [(name, task["next"]) for name, task in tasks.items()] == [
        ("ingest", ["build"]),
        ("build", ["test"]),
        ("test", ["replay"]),
        ("replay", ["alert"]),
        ("alert", []),
    ]
    for name, task in tasks.items():
        # Each alert is told once: tried again, it would be well.
        assert (task["retries"], task["delay"]) == (0 if name == "alert" else 3, 120)
        assert task["trigger_rule"] == "all_success"
    assert (dag["at_once"], dag["catchup"]) == (1, False), "a lake takes one writer"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ingest", ["ingest", "--input", "{home}/landing", "--lake", "{home}/lake"]),
        ("build", ["run", "--input", "{home}/landing", "--lake", "{home}/lake"]),
        (
            "test",
            [
                *("build", "--profiles-dir", "../profiles", "--select", "law_results+"),
                *("--vars", "audit: full"),
            ],
        ),
        ("replay", ["replay", "--schedule", "--lake", "{home}/lake"]),
        ("alert", ["alert", "--lake", "{home}/lake"]),
    ],
)
def test_each_task_gives_its_words_to_a_command_that_knows_them(
    dag: dict[str, Any], home: Path, name: str, words: list[str]
) -> None:
    task = dag["tasks"][name]
    assert task["inherits"] is True
    done = subprocess.run(
        ["bash", "-c", task["command"]],
        env={"PATH": os.environ["PATH"], **task["env"]},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    folder, lake, *given = done.stdout.splitlines()
    assert given == [word.replace("{home}", str(home)) for word in words]
    assert (folder, lake) == (str(home / "dbt_project" if name == "test" else home), f"{home}/lake")
    command: click.Group = dbt if name == "test" else cli
    real = command.commands[given[0]]
    # dbt wants its folder of profiles to be there.
    real.make_context(given[0], [word.replace("../profiles", ".") for word in given[1:]])


def test_where_things_lie_may_be_said(imported: list[dict[str, Any]], home: Path) -> None:
    task = imported[1]["tasks"]["ingest"]
    assert task["env"] == {"LAKE": "/data/lake"}
    assert task["command"].startswith(f"cd {shlex.quote(str(home))} && ")
    assert task["command"].endswith(" ingest --input '/in/*.csv' --lake /data/lake")
