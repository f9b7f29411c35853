"""Tables that only Spark can write: those whose columns were widened in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from ingest.privacy.delta import conditions, drop_log_before

_NOW = "'delta.deletedFileRetentionDuration' = 'interval 0 seconds'"
_USUAL = "'delta.deletedFileRetentionDuration' = 'interval 1 week'"


class SparkTable:
    """See :class:`ingest.privacy.delta.Table`."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        """Take a table.

        Args:
            spark: The session.
            path: The table's folder.
        """
        self._spark = spark
        self._path = path
        self._name = "delta.`" + str(path).replace("`", "``") + "`"

    def delete(self, id_column: str, record_ids: Sequence[str]) -> int:
        """See :class:`ingest.privacy.delta.Table`."""
        return sum(
            int(self._spark.sql(f"delete from {self._name} where {condition}").collect()[0][0])
            for condition in conditions(id_column, record_ids)
        )

    def update(self, id_column: str, record_ids: Sequence[str], values: Mapping[str, str]) -> int:
        """See :class:`ingest.privacy.delta.Table`."""
        told = ", ".join(f"`{column}` = {sql}" for column, sql in values.items())
        return sum(
            int(self._spark.sql(f"update {self._name} set {told} where {condition}").collect()[0][0])
            for condition in conditions(id_column, record_ids)
        )

    def clean(self, *, append_only: bool) -> None:
        """See :class:`ingest.privacy.delta.Table`."""
        appends = f", 'delta.appendOnly' = '{str(append_only).lower()}'"
        self._set_properties(_NOW)
        self._spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        self._spark.sql(f"vacuum {self._name} retain 0 hours")
        # Its commit brings no row, so that the newest commit of the log has no statistics.
        self._set_properties(_NOW)
        java = self._spark._jvm
        assert java is not None
        log = java.org.apache.spark.sql.delta.DeltaLog.forTable(
            self._spark._jsparkSession, str(self._path)
        )
        log.checkpoint(log.update(False, java.scala.Option.empty(), java.scala.Option.empty()))
        drop_log_before(self._path, int(DeltaTable(str(self._path)).version()))
        log.clearCache()
        self._set_properties(_USUAL + appends)

    def _set_properties(self, properties: str) -> None:
        self._spark.sql(f"alter table {self._name} set tblproperties ({properties})")
