"""Batches that a contract's ``stop_above`` holds back from Silver, and letting them in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ingest.environment import pipeline_version
from ingest.errors import InputError
from ingest.lake import Lake
from ingest.query import connect, lake_tables


@dataclass(frozen=True)
class StoppedBatch:
    """A batch of a dataset whose accepted records are held back.

    Attributes:
        record_type: Whose contract stops it.
        dataset: The dataset.
        batch_id: The batch.
        held: Accepted records that are held.
        quarantined: Records that were refused.
    """

    record_type: str
    dataset: str
    batch_id: str
    held: int
    quarantined: int

    @property
    def told(self) -> str:
        """What is known of it, in one line, with how to go on."""
        return (
            f"{self.dataset}: batch {self.batch_id} is stopped: {self.quarantined:,} records of "
            f"{self.record_type} are in quarantine, and {self.held:,} that were accepted are held back "
            f"from Silver. Mend the contract and run again, or: lakehouse release {self.batch_id} "
            f"--dataset {self.dataset} --because ..."
        )


def stopped_batches(lake: Lake) -> list[StoppedBatch]:
    """The batches that are stopped, as the last run saw it, but for those released since.

    Raises:
        InputError: It is no lake.
    """
    names = {f"{table.schema}.{table.name}" for table in lake_tables(lake.path)}
    if "marts.reconciliation" not in names:
        return []
    released = {
        (row["record_type"], row["dataset"], row["batch_id"])
        for row in lake.read(
            "bronze", "batch_releases", ["record_type", "dataset", "batch_id"]
        ).to_pylist()
    }
    with connect(lake.path, {"marts.reconciliation"}) as connection:
        columns = {row[0] for row in connection.execute("describe marts.reconciliation").fetchall()}
        if "held" not in columns:
            return []
        rows = connection.execute(
            "select record_type, dataset, batch_id, sum(held)::bigint, sum(quarantined)::bigint "
            "from marts.reconciliation group by all having sum(held) > 0 order by all"
        ).fetchall()
    return [StoppedBatch(*row) for row in rows if row[:3] not in released]


def release(
    lake: Lake, batch_id: str, dataset: str, actor: str, reason: str, at: datetime
) -> list[StoppedBatch]:
    """Let a stopped batch of a dataset into Silver with the next run.

    Args:
        lake: The lake.
        batch_id: The batch.
        dataset: Its dataset.
        actor: Who lets it in.
        reason: Why, in words.
        at: The instant.

    Returns:
        What is let in, one for each record type.

    Raises:
        InputError: No such batch is stopped, or nobody says why.
    """
    if not actor.strip() or not reason.strip():
        raise InputError(
            "A release names an actor and a reason, because years later somebody will ask. Give --actor "
            "and --because."
        )
    stopped = stopped_batches(lake)
    chosen = [item for item in stopped if (item.batch_id, item.dataset) == (batch_id, dataset)]
    if not chosen:
        known = ", ".join(f"{item.batch_id} of {item.dataset}" for item in stopped)
        raise InputError(
            f"No batch {batch_id} of {dataset} is stopped. "
            + (f"Stopped: {known}." if known else "None is.")
        )
    lake.create_operations()
    lake.append(
        "batch_releases",
        [
            {
                "record_type": item.record_type,
                "dataset": item.dataset,
                "batch_id": item.batch_id,
                "actor": actor,
                "reason": reason,
                "at": at,
                "pipeline_version": pipeline_version(),
            }
            for item in chosen
        ],
    )
    return chosen
