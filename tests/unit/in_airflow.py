"""Runs in Airflow's own environment: imports folders of DAGs as it does, and prints what is in them."""

import json
import os
import sys

from airflow.dag_processing.dagbag import DagBag

found = []
for folder, said in json.loads(sys.argv[1]):
    os.environ.update(said)
    bag = DagBag(dag_folder=folder)
    dags = {
        name: {
            "tasks": {
                task.task_id: {
                    "next": sorted(task.downstream_task_ids),
                    "retries": task.retries,
                    "delay": task.retry_delay.total_seconds(),
                    "trigger_rule": task.trigger_rule.value,
                    # As it is when it runs: Airflow takes it for a template.
                    "command": task.render_template(task.bash_command, {}),
                    "env": task.env,
                    "inherits": task.append_env,
                }
                for task in dag.topological_sort()
            },
            "at_once": dag.max_active_runs,
            "catchup": dag.catchup,
        }
        for name, dag in bag.dags.items()
    }
    found.append({"faults": bag.import_errors, "dags": dags})
sys.stdout.write("\n" + json.dumps(found) + "\n")
