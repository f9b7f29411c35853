"""A lake in numbers, as Prometheus reads them. Asked of its tables without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import duckdb
from prometheus_client import CollectorRegistry, generate_latest, push_to_gateway, write_to_textfile
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ingest.alerting import ledger
from ingest.errors import DeliveryError
from ingest.lake import Lake
from ingest.office.refused import Office
from ingest.query import connect, lake_tables

JOB = "lakehouse"
TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class Measure:
    """A metric: what it says, its labels, and the SQL that gives their values and the number.

    Attributes:
        name: After ``lakehouse_``. Gauges all: what a lake holds may also become less.
        says: One sentence.
        labels: Columns of the SQL but the last, which is the number.
        sql: Over the tables of the lake.
        tables: Which it reads; without them it is left out.
    """

    name: str
    says: str
    labels: tuple[str, ...]
    sql: str
    tables: frozenset[str]


_RECONCILED = frozenset({"marts.reconciliation"})
MEASURES = (
    Measure(
        "records",
        "Records of all files by what became of them; one that was warned of is accepted too.",
        ("dataset", "record_type", "outcome"),
        """
        select dataset, record_type, outcome, records
        from (
          select dataset, record_type, sum(found)::double as found, sum(accepted)::double as accepted,
            sum(quarantined)::double as quarantined, sum(warned)::double as warned
          from marts.reconciliation where status = 'ingested' group by all
        ) unpivot (records for outcome in (found, accepted, quarantined, warned))
        """,
        _RECONCILED,
    ),
    Measure(
        "unbalanced_records",
        "Records that are found and not accounted for, or the other way round: 0, or a law is broken.",
        ("dataset", "record_type"),
        "select dataset, record_type, sum(abs(balance))::double from marts.reconciliation group by all",
        _RECONCILED,
    ),
    Measure(
        "files",
        "Files by what became of them.",
        ("dataset", "status"),
        "select dataset, status, count(distinct file_sha256) from bronze.files group by all",
        frozenset({"bronze.files"}),
    ),
    Measure(
        "last_file_timestamp_seconds",
        "When the newest file came that could be read.",
        ("dataset",),
        "select dataset, epoch(max(ingested_at)) from bronze.files where status = 'ingested' "
        "group by dataset",
        frozenset({"bronze.files"}),
    ),
    Measure(
        "last_batch_timestamp_seconds",
        "When the newest batch began.",
        ("command",),
        "select command, epoch(max(started_at)) from bronze.batches where status = 'finished' "
        "group by command",
        frozenset({"bronze.batches"}),
    ),
    Measure(
        "rule_records",
        "Records that a rule struck, over all batches under their newest contract.",
        ("record_type", "rule_code", "severity"),
        "select record_type, rule_code, severity, sum(records)::double from marts.rule_outcomes "
        "group by all",
        frozenset({"marts.rule_outcomes"}),
    ),
    Measure(
        "law_offenders",
        "Records or files that break a law: 0, or something was lost, doubled or left without a reason.",
        ("law", "record_type"),
        "select law, record_type, sum(offenders)::double from marts.law_results group by all",
        frozenset({"marts.law_results"}),
    ),
    Measure(
        "laws_checked_timestamp_seconds",
        "When the laws were checked last.",
        (),
        "select epoch(max(checked_at)) from marts.law_results having count(*) > 0",
        frozenset({"marts.law_results"}),
    ),
    Measure(
        "schema_drift_paths",
        "Paths that payloads have and the schema does not hold.",
        ("dataset", "record_type"),
        "select dataset, record_type, count(*) from marts.schema_drift group by all",
        frozenset({"marts.schema_drift"}),
    ),
)
# These are asked of the office, whose states are as people left them and not as the last run saw them.
OFFICE_MEASURES = (
    Measure(
        "refused_records",
        "Refused records by state and by the first rule that struck.",
        ("dataset", "record_type", "state", "rule_code"),
        "select dataset, record_type, state, reasons[1], count(*) from refused group by all",
        frozenset(),
    ),
    Measure(
        "oldest_open_timestamp_seconds",
        "When the oldest refused record came that waits for somebody.",
        ("dataset", "record_type"),
        "select dataset, record_type, epoch(min(since)) from refused "
        "where state in ('pending', 'investigated', 'corrected', 'exhausted') and since is not null "
        "group by all",
        frozenset(),
    ),
)


class LakeCollector(Collector):
    """A lake as it is when it is asked."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        # No lake is a fault of whoever asks, and no lake without numbers.
        lake_tables(lake.path)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Every metric whose tables are there."""
        tables = {f"{schema}.{table}" for schema, table in self._lake.tables()}
        possible = [measure for measure in MEASURES if measure.tables <= tables]
        if possible:
            wanted = frozenset[str]().union(*(measure.tables for measure in possible))
            with connect(self._lake.path, wanted) as connection:
                for measure in possible:
                    yield _family(measure, connection)
        if any(t.startswith("silver.") and t.endswith("_quarantine") for t in tables):
            with Office(self._lake) as office:
                for measure in OFFICE_MEASURES:
                    yield _family(measure, office.connection)
        yield _alerts(self._lake)


def registry_of(lake: Lake) -> CollectorRegistry:
    """A registry with the metrics of one lake and nothing else.

    Raises:
        InputError: It is no lake.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LakeCollector(lake))
    return registry


def as_text(lake: Lake) -> str:
    """The metrics in the text format."""
    return generate_latest(registry_of(lake)).decode()


def write(lake: Lake, path: Path) -> None:
    """Write them to a file in one step, as the node exporter's textfile collector wants it."""
    write_to_textfile(str(path), registry_of(lake))


def push(lake: Lake, url: str) -> None:
    """Send them to a Pushgateway, in place of what it had of this job.

    Raises:
        DeliveryError: It did not take them.
    """
    try:
        push_to_gateway(url, JOB, registry_of(lake), timeout=TIMEOUT_SECONDS)
    except (OSError, ValueError) as error:
        raise DeliveryError(
            f"The Pushgateway did not take the metrics: {type(error).__name__}: {error}. Look whether "
            "it is there, and try again."
        ) from error


def _family(measure: Measure, connection: duckdb.DuckDBPyConnection) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"lakehouse_{measure.name}", measure.says, labels=measure.labels)
    # In one order, so that two files can be compared.
    for *labels, number in sorted(connection.execute(measure.sql).fetchall(), key=str):
        family.add_metric([str(label or "") for label in labels], float(number))
    return family


def _alerts(lake: Lake) -> GaugeMetricFamily:
    """The alerts that stand, as they were told."""
    family = GaugeMetricFamily(
        "lakehouse_alert_raised_timestamp_seconds",
        "When an alert was raised that stands.",
        labels=("dataset", "record_type", "kind", "subject"),
    )
    for event in ledger.read(lake).standing:
        about = event.condition
        labels = [about.dataset, about.record_type, about.kind, about.subject]
        family.add_metric(labels, _seconds(event.raised_at))
    return family


def _seconds(at: datetime) -> float:
    return at.timestamp()
