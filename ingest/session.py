"""The Spark session: one per process, with Delta and a catalog that is rebuilt from the lake."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import yaml
from pyspark.sql import SparkSession

from ingest.environment import PROJECT_ROOT, cds_options, check_java, jar_paths
from ingest.lake import SCHEMAS, Lake

CORES = os.cpu_count() or 2
# Input from which on the optimising compiler pays for itself.
LONG_RUN_BYTES = 200_000_000


@dataclass(frozen=True)
class SmallLake:
    """What is different where input and lake together are small: ``small_lake`` in dbt_project.yml.

    dbt sets the same where it is called by hand.

    Attributes:
        bytes: Up to how much is small.
        settings: Spark's settings for it.
    """

    bytes: int
    settings: Mapping[str, str]


@cache
def small_lake() -> SmallLake:
    """Read what is different where input and lake are small."""
    project = yaml.safe_load((PROJECT_ROOT / "dbt_project" / "dbt_project.yml").read_text("utf-8"))
    return SmallLake(**project["vars"]["small_lake"])


def start_session(
    *,
    input_bytes: int = 0,
    lake_bytes: int = 0,
    memory: str = "3g",
    jvm_options: Sequence[str] | None = None,
    scratch: Path | None = None,
    application: str = "lakehouse",
    event_log: Path | None = None,
) -> SparkSession:
    """Start Spark for this process, or return the session that is there.

    Args:
        input_bytes: Size of what will be read: a short run starts quicker with the first compiler
            alone, a long one is slower with it.
        lake_bytes: Size of what is there: with little of both, queries are not compiled.
        memory: Heap of the driver. Beside it a JVM has another half gigabyte to a whole one.
        jvm_options: Options instead of those of the class archive.
        scratch: Folder for Spark's own temporary files.
        application: Name of the Spark application.
        event_log: Folder that is there, for a log of the application's jobs; one file, plain.

    Raises:
        EnvironmentProblemError: Java or the locked jars are missing.
    """
    if SparkSession.getActiveSession() is None:
        check_java()
    # pyspark writes every refused statement as JSON, trace and all, beside the error it raises.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    # Workers must run the interpreter in use, not the first python3 on the path.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    options = list(cds_options() if jvm_options is None else jvm_options)
    # By default a JVM on two cores collects with one thread while all others wait: a tenth of a run.
    options.append("-XX:+UseParallelGC")
    # Else the young generation is full all the time in a run of small statements, and the old one and
    # the space of classes grow by whole collections: four of them before the first rule is vetted.
    options += ["-XX:InitialHeapSize=1g", "-XX:NewSize=512m", "-XX:MetaspaceSize=256m"]
    # Where the system gives them on request: a sixth of all processor time of a run on the samples, on a
    # virtual machine, where a page that is touched first is dear. Elsewhere it changes nothing.
    options.append("-XX:+UseTransparentHugePages")
    # With the first compiler alone the default is a fifth of this, and a run of all models fills it; the
    # JVM then stops compiling and only interprets.
    options.append("-XX:ReservedCodeCacheSize=256m")
    is_short = input_bytes < LONG_RUN_BYTES
    is_small = input_bytes + lake_bytes < small_lake().bytes
    if is_short:
        options.append("-XX:TieredStopAtLevel=1")
    log_settings = Path(__file__).parent / "log4j2.properties"
    options.append(f"-Dlog4j2.configurationFile={log_settings.as_uri()}")
    settings = {
        "spark.driver.extraClassPath": os.pathsep.join(str(path) for path in jar_paths()),
        "spark.driver.extraJavaOptions": " ".join(f'"{o}"' for o in options),
        "spark.driver.memory": memory,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        # Small tables: else each commit runs 50 and each shuffle 200 tasks.
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.databricks.delta.snapshotPartitions": str(CORES),
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(CORES),
        "spark.sql.adaptive.enabled": str(not is_short).lower(),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
        **(small_lake().settings if is_small else {}),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str((scratch or Path(tempfile.gettempdir())) / "spark-warehouse"),
    }
    if scratch is not None:
        settings["spark.local.dir"] = str(scratch)
    if event_log is not None:
        settings |= {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": event_log.absolute().as_uri(),
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
        }
    builder = SparkSession.builder.master(f"local[{CORES}]").appName(application)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def start_on(lake: Lake, **settings: Any) -> SparkSession:
    """Start Spark with a catalog that says what the lake's folders hold.

    A session that is there and is on another lake is stopped first: its catalog could only be emptied
    by dropping schemas, and that deletes the folders at which they lie.

    Args:
        lake: The lake.
        **settings: See ``start_session``.
    """
    active = SparkSession.getActiveSession()
    if active is not None and not _is_on(active, lake):
        active.stop()
    spark = start_session(lake_bytes=lake.size(small_lake().bytes), **settings)
    spark.sparkContext.setLogLevel("ERROR")
    for schema in SCHEMAS:
        folder = _literal(lake.path / schema)
        spark.sql(f"create schema if not exists {schema} location {folder}")
    # The macro register_lake does the same for a plain `dbt build`.
    for schema, table in lake.tables():
        register_table(spark, lake, schema, table)
    return spark


def register_table(spark: SparkSession, lake: Lake, schema: str, table: str) -> None:
    """Tell the session's catalog of a table that lies in the lake."""
    location = _literal(lake.table_path(schema, table))
    spark.sql(f"create table if not exists {schema}.`{table}` using delta location {location}")


def _is_on(spark: SparkSession, lake: Lake) -> bool:
    if "bronze" not in {row.namespace for row in spark.sql("show schemas").collect()}:
        return True
    described = {row[0]: row[1] for row in spark.sql("describe schema bronze").collect()}
    location = str(described.get("Location", "")).removeprefix("file:")
    return Path(unquote(location)) == lake.path / "bronze"


def _literal(path: Path) -> str:
    text = str(path).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


def warm_up(jvm_options: list[str]) -> None:
    """Run a session that loads the classes which a run needs; see ``build_class_archive``.

    Args:
        jvm_options: Options for the JVM that is started.
    """
    with tempfile.TemporaryDirectory() as folder:
        spark = start_session(jvm_options=jvm_options, scratch=Path(folder))
        spark.sparkContext.setLogLevel("ERROR")
        path = f"{folder}/warm_up"
        spark.sql(
            f"create table delta.`{path}` using delta as select cast(id as string) as id, "
            "from_xml('<a><b>1</b></a>', 'b STRING').b as b, from_csv('1,2', 'c STRING, d STRING').c "
            "as c from range(10)"
        )
        spark.sql(
            f"merge into delta.`{path}` as t using (select '3' as id, 'x' as b, 'y' as c) as s "
            "on t.id = s.id when matched then update set * when not matched then insert *"
        )
        spark.sql(
            f"select b, count(*), max_by(id, c), row_number() over (partition by b order by b) "
            f"from delta.`{path}` group by b"
        ).collect()
