"""What the last run read and wrote, as OpenLineage events.

From the lake's newest batch, and from what dbt left of its last command on the lake. The adapter that
the OpenLineage project has for dbt does not know the ``session`` method, by which dbt runs here.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from openlineage.client.event_v2 import (
    Dataset,
    InputDataset,
    Job,
    OutputDataset,
    Run,
    RunEvent,
    RunState,
)
from openlineage.client.facet_v2 import (
    data_quality_assertions_dataset as quality,
)
from openlineage.client.facet_v2 import (
    error_message_run,
    job_type_job,
    output_statistics_output_dataset,
    parent_run,
    schema_dataset,
    symlinks_dataset,
)
from openlineage.client.serde import Serde
from openlineage.client.transport.http import HttpConfig, HttpTransport

from ingest.environment import pipeline_version
from ingest.errors import DeliveryError, InputError
from ingest.lake import Lake
from ingest.query import connect, lake_tables, literal
from ingest.transform import NodeFailure

NAMESPACE = "OPENLINEAGE_NAMESPACE"
API_KEY = "OPENLINEAGE_API_KEY"
PRODUCER = f"urn:lakehouse:{pipeline_version()}"
_FILES = "file"
# The same run told twice is the same run.
_IDS = uuid.UUID("5b1c1f0e-6f0b-5b0e-9d0e-2f3a8f0c7a11")


@dataclass(frozen=True)
class _Dbt:
    """What dbt left: its project, and the results of its last command."""

    manifest: Mapping[str, Any]
    results: Mapping[str, Any]

    def node(self, name: str) -> Mapping[str, Any]:
        """A model, seed or source; an empty mapping where the project has it no more."""
        nodes: Mapping[str, Any] = self.manifest["nodes"]
        found: Mapping[str, Any] = nodes.get(name) or self.manifest["sources"].get(name) or {}
        return found

    def tables_below(self, names: Sequence[str]) -> Iterator[str]:
        """Nodes that are tables; of one that is none, those that it reads."""
        for name in names:
            node = self.node(name)
            if node.get("config", {}).get("materialized") == "ephemeral":
                yield from self.tables_below(node["depends_on"]["nodes"])
            elif node:
                yield name


def events(lake: Lake) -> list[RunEvent]:
    """The events of the newest batch and of dbt's last command, the oldest first.

    Raises:
        InputError: It is no lake.
    """
    lake_tables(lake.path)
    found = [*_batch_events(lake), *_dbt_events(lake)]
    return sorted(found, key=lambda event: str(event.eventTime))


def as_lines(lake: Lake) -> str:
    """The events, each a line of JSON."""
    return "".join(Serde.to_json(event) + "\n" for event in events(lake))


def send(lake: Lake, url: str, environment: Mapping[str, str]) -> int:
    """Send the events to a server, and say how many it took.

    Args:
        lake: The lake.
        url: Its address, without the path of the API.
        environment: Says the key, where the server wants one.

    Raises:
        DeliveryError: It did not take one of them.
    """
    said: dict[str, Any] = {"url": url}
    if key := environment.get(API_KEY):
        said["auth"] = {"type": "api_key", "apiKey": key}
    told = events(lake)
    try:
        transport = HttpTransport(HttpConfig.from_dict(said))
        for event in told:
            transport.emit(event)
        transport.close()
    except (OSError, ValueError) as error:
        raise DeliveryError(
            f"The server did not take the events: {type(error).__name__}: {error}. Look whether it is "
            "there, and try again: what comes twice is the same run to it."
        ) from error
    return len(told)


# -- the newest batch


def _batch_events(lake: Lake) -> Iterator[RunEvent]:
    """Files to Bronze."""
    if ("bronze", "files") not in lake.tables():
        return
    with connect(lake.path, {"bronze.files", "bronze.batches"}) as connection:
        batches = connection.execute(
            "select batch_id, command, started_at, finished_at from bronze.batches "
            "where status = 'finished' and finished_at is not null order by batch_id desc limit 1"
        ).fetchall()
        for batch_id, command, started_at, finished_at in batches:
            files = connection.execute(
                "select source_file, record_type, records from bronze.files "
                f"where batch_id = {literal(batch_id)} and status = 'ingested' order by all"
            ).fetchall()
            inputs = [InputDataset(_FILES, path) for path in dict.fromkeys(row[0] for row in files)]
            outputs = []
            for record_type in sorted({row[1] for row in files}):
                rows = sum(row[2] or 0 for row in files if row[1] == record_type)
                outputs.append(_table(lake, "bronze", record_type, rows=rows))
            run = Run(_id("batch", batch_id))
            job = _job("ingest", command or "ingest")
            yield _event(RunState.START, started_at, run, job, inputs, outputs)
            yield _event(RunState.COMPLETE, finished_at, run, job, inputs, outputs)


# -- dbt's last command


def _dbt_events(lake: Lake) -> Iterator[RunEvent]:
    """Table to table."""
    dbt = _read_dbt(lake)
    if dbt is None:
        return
    asked = _assertions(lake)
    invocation = dbt.results["metadata"]["invocation_id"]
    parent = parent_run.ParentRunFacet(
        run=parent_run.Run(_id("dbt", invocation)),
        job=parent_run.Job(_namespace(), f"dbt {dbt.results['args'].get('which', 'build')}"),
    )
    for result in dbt.results["results"]:
        node = dbt.node(result["unique_id"])
        timing = [t for t in result["timing"] if t["started_at"] and t["completed_at"]]
        is_table = node.get("resource_type") == "model" and result["status"] in ("success", "error")
        if not is_table or not timing:
            continue
        inputs = [
            _input(lake, dbt.node(name), asked)
            for name in dict.fromkeys(dbt.tables_below(node["depends_on"]["nodes"]))
        ]
        output = _table(lake, node["schema"], node["alias"], node=node)
        facets: dict[str, Any] = {"parent": parent}
        job = _job(f"dbt.{node['name']}", "MODEL", integration="DBT")
        run_id = _id("dbt", invocation, result["unique_id"])
        began, ended = timing[0]["started_at"], timing[-1]["completed_at"]
        yield _event(
            RunState.START, _instant(began), Run(run_id, facets=dict(facets)), job, inputs, [output]
        )
        state = RunState.COMPLETE
        if result["status"] == "error":
            state = RunState.FAIL
            # What Spark says may quote a record, and the receiver is another house.
            error = NodeFailure(node["name"], "model", str(result["message"])).error_type
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
                f"{error}: see bronze.run_failures of the lake", "SQL"
            )
        yield _event(state, _instant(ended), Run(run_id, facets=facets), job, inputs, [output])


def _read_dbt(lake: Lake) -> _Dbt | None:
    folder = lake.state / "dbt"
    try:
        manifest, results = (
            json.loads((folder / name).read_text("utf-8"))
            for name in ("manifest.json", "run_results.json")
        )
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise InputError(
            f"{folder} holds no whole manifest.json and run_results.json: {error}. If a run is at work, "
            "try again after it; else run again."
        ) from error
    return _Dbt(manifest, results)


def _assertions(lake: Lake) -> dict[str, list[quality.Assertion]]:
    """What each rule found in the newest batch of its record type."""
    if ("marts", "rule_outcomes") not in lake.tables():
        return {}
    with connect(lake.path, {"marts.rule_outcomes"}) as connection:
        rows = connection.execute(
            """
            select record_type, rule_code, severity, sum(records)
            from marts.rule_outcomes
            group by record_type, rule_code, severity, batch_id
            qualify batch_id = max(batch_id) over (partition by record_type)
            order by all
            """
        ).fetchall()
    found: dict[str, list[quality.Assertion]] = {}
    for record_type, code, severity, struck in rows:
        # The standard knows two severities; a record that is refused stops no run.
        assertion = quality.Assertion(
            code, success=not struck, severity="error" if severity == "fail" else "warn"
        )
        found.setdefault(record_type, []).append(assertion)
    return found


def _input(
    lake: Lake, node: Mapping[str, Any], asked: Mapping[str, list[quality.Assertion]]
) -> InputDataset:
    schema, name = node["schema"], node.get("alias") or node["identifier"]
    # Columns are told by what writes a table; nothing here writes those of Bronze.
    table = _dataset(lake, schema, name, node if schema == "bronze" else {})
    facets: dict[str, Any] = {}
    if schema == "bronze" and name in asked:
        facets["dataQualityAssertions"] = quality.DataQualityAssertionsDatasetFacet(asked[name])
    return InputDataset(table.namespace, table.name, facets=table.facets, inputFacets=facets)


def _table(
    lake: Lake, schema: str, name: str, *, node: Mapping[str, Any] | None = None, rows: int | None = None
) -> OutputDataset:
    table = _dataset(lake, schema, name, node or {})
    facets: dict[str, Any] = {}
    if rows is not None:
        facets["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=rows
        )
    return OutputDataset(table.namespace, table.name, facets=table.facets, outputFacets=facets)


def _dataset(lake: Lake, schema: str, name: str, node: Mapping[str, Any]) -> Dataset:
    """A table, named by its folder as the standard names what lies in files, and by its SQL name."""
    facets: dict[str, Any] = {
        "symlinks": symlinks_dataset.SymlinksDatasetFacet(
            [symlinks_dataset.Identifier(_namespace(), f"{schema}.{name}", "TABLE")]
        )
    }
    columns = [
        schema_dataset.SchemaDatasetFacetFields(
            column["name"], type=column.get("data_type"), description=column.get("description") or None
        )
        for column in node.get("columns", {}).values()
    ]
    if columns:
        facets["schema"] = schema_dataset.SchemaDatasetFacet(columns)
    return Dataset(_FILES, str(lake.table_path(schema, name)), facets=facets)


def _job(name: str, job_type: str, integration: str = "LAKEHOUSE") -> Job:
    facet = job_type_job.JobTypeJobFacet("BATCH", integration, jobType=job_type.upper())
    return Job(_namespace(), name, facets={"jobType": facet})


def _event(
    state: RunState,
    at: datetime,
    run: Run,
    job: Job,
    inputs: Sequence[InputDataset],
    outputs: Sequence[OutputDataset],
) -> RunEvent:
    return RunEvent(
        eventTime=at.isoformat(),
        run=run,
        job=job,
        eventType=state,
        producer=PRODUCER,
        inputs=list(inputs),
        outputs=list(outputs),
    )


def _namespace() -> str:
    return os.environ.get(NAMESPACE) or "lakehouse"


def _id(*parts: str) -> str:
    return str(uuid.uuid5(_IDS, "|".join(parts)))


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def write(lake: Lake, path: Path) -> None:
    """Write the events to a file in one step, in place of what was there."""
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_text(as_lines(lake), "utf-8")
    unfinished.replace(path)
