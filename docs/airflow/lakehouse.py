"""The lakehouse as an Airflow DAG: ingest, build, test, replay, alert, each by a command of the project.

Put this file, or a link to it, into Airflow's folder of DAGs. Airflow and the project need not share an
environment: tasks call what ``make setup`` made. It asks the environment for

    LAKEHOUSE_HOME     the checkout; by default the one that this file, or what it links to, lies in
    LAKEHOUSE_INPUT    folder or glob in which files arrive; by default ``landing`` in the checkout
    LAKE               the lake; by default ``lake`` in the checkout

Each task may be tried again as often as need be: what a killed one did counts whole or not at all, and
what is done is not done twice. One run at a time, because a lake takes one writer.
"""

from __future__ import annotations

import os
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

HOME = Path(os.environ.get("LAKEHOUSE_HOME") or Path(__file__).resolve().parents[2])
LAKE = os.environ.get("LAKE") or str(HOME / "lake")
INPUT = os.environ.get("LAKEHOUSE_INPUT") or str(HOME / "landing")
LAKEHOUSE = HOME / ".venv" / "bin" / "lakehouse"
DBT = HOME / ".venv" / "bin" / "dbt"


def call(task_id: str, *words: str | Path, folder: Path = HOME) -> BashOperator:
    """A task that runs one command in a folder of the checkout. A path in it may hold anything."""
    command = " ".join(shlex.quote(str(word)) for word in words)
    return BashOperator(
        task_id=task_id,
        # dbt's profile asks the shell where it is.
        bash_command=f"{{% raw %}}cd {shlex.quote(str(folder))} && {command}{{% endraw %}}",
        env={"LAKE": LAKE},
        append_env=True,
    )


with DAG(
    dag_id="lakehouse",
    description="New files to Bronze, judged and tested; refused records that may pass go again",
    doc_md=__doc__,
    schedule="@hourly",
    start_date=datetime(2024, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={
        "owner": "lakehouse",
        "retries": 3,
        # Somebody may hold the lake, or the network be away: each pause is longer than the last.
        "retry_delay": timedelta(minutes=2),
        "retry_exponential_backoff": True,
        "max_retry_delay": timedelta(minutes=30),
        "execution_timeout": timedelta(hours=6),
    },
) as dag:
    ingest = call("ingest", LAKEHOUSE, "ingest", "--input", INPUT, "--lake", LAKE)
    # The main job: it judges and builds what is new in Bronze, and says which statement failed.
    build = call("build", LAKEHOUSE, "run", "--input", INPUT, "--lake", LAKE)
    # The build has checked the laws on what it touched. This is every law, record by record.
    test = call(
        "test",
        *(DBT, "build", "--profiles-dir", "../profiles", "--select", "law_results+"),
        *("--vars", "audit: full"),
        folder=HOME / "dbt_project",
    )
    replay = call("replay", LAKEHOUSE, "replay", "--schedule", "--lake", LAKE)
    alert = call("alert", LAKEHOUSE, "alert", "--lake", LAKE)
    # It fails where an alert is new, and tells each once: tried again, it would be well.
    alert.retries = 0
    ingest >> build >> test >> replay >> alert
