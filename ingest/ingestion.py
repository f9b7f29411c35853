"""One batch: from files to Bronze, with a marker at its end that makes its rows count."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from ingest import bronze
from ingest.contracts import Contract
from ingest.lake import Lake
from ingest.progress import Progress
from ingest.sources import ProbedFile, Source, probe

log = logging.getLogger("lakehouse")


@dataclass
class Findings:
    """What a look at the input found, before anything is written."""

    new: list[ProbedFile] = field(default_factory=list)
    failed: list[ProbedFile] = field(default_factory=list)
    ignored: list[ProbedFile] = field(default_factory=list)
    known: list[ProbedFile] = field(default_factory=list)

    @property
    def anything_to_write(self) -> bool:
        """Whether a batch is due."""
        return bool(self.new or self.failed or self.ignored)

    @property
    def new_bytes(self) -> int:
        """Size of what will be captured."""
        return sum(file.size_bytes for file in self.new)

    @property
    def new_records(self) -> int:
        """Records of what will be captured, by the independent count."""
        return sum(part.records_found for file in self.new for part in file.parts)


def look(
    sources: Sequence[Source | ProbedFile],
    lake: Lake,
    contracts: Mapping[str, Contract],
    progress: Progress,
    *,
    dataset: str | None = None,
    retry_failed: bool = False,
) -> Findings:
    """Look at every file that was found once: what is new, known, broken or nobody's."""
    known = lake.known_files()
    findings = Findings()
    seen: set[tuple[str, str | None]] = set()
    progress.start("looking at files", len(sources))
    for source in sources:
        if isinstance(source, ProbedFile):
            probed = source
            if known.get((probed.file_sha256, probed.record_type)) or known.get(
                (probed.file_sha256, f"ignored {probed.source.name}")
            ):
                probed.status = "known"
        else:
            probed = probe(source, contracts, known, dataset=dataset, retry_failed=retry_failed)
        # The same bytes twice in one input are known bytes the second time.
        if probed.status == "new":
            if (probed.file_sha256, probed.record_type) in seen:
                probed.status = "known"
            seen.add((probed.file_sha256, probed.record_type))
        getattr(findings, probed.status).append(probed)
        progress.advance(sum(part.records_found for part in probed.parts), size_bytes=probed.size_bytes)
    progress.stop()
    return findings


def ingest(
    spark: Callable[[], SparkSession],
    lake: Lake,
    contracts: Mapping[str, Contract],
    findings: Findings,
    progress: Progress,
    *,
    command: str,
    pipeline_version: str,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> str | None:
    """Write one batch: records to Bronze, a row per file, and last the batch's marker.

    Killed anywhere before the marker, nothing of it counts, and the next run takes the same files
    again.

    Args:
        spark: Gives the session; not called where there is nothing for it to do.
        lake: Where to.
        contracts: By record type.
        findings: What was found by ``look``.
        progress: Told of each step.
        command: For the record: what was run.
        pipeline_version: Version of this package.
        now: The clock.

    Returns:
        The batch's id, or None where there was nothing to write.
    """
    if not findings.anything_to_write:
        return None
    started_at = now()
    batch = bronze.Batch(
        batch_id=f"{started_at:%Y%m%dT%H%M%S%f}Z-{secrets.token_hex(3)}",
        started_at=started_at,
        pipeline_version=pipeline_version,
    )
    files = {
        record_type: [
            file
            for file in findings.new
            if any(p.record_type == record_type and p.records_found for p in file.parts)
        ]
        for record_type in contracts
    }
    due = [record_type for record_type in contracts if files[record_type]]
    counts: dict[str, dict[str, tuple[int, int]]] = {}
    if due:
        session = spark()
        progress.start("capturing", sum(len(files[record_type]) for record_type in due))
        # Side by side: while Spark plans the one on the driver, workers cut and parse the other.
        with ThreadPoolExecutor(max_workers=len(due)) as pool:
            jobs = {
                pool.submit(
                    bronze.capture, session, lake, contracts[record_type], files[record_type], batch
                ): record_type
                for record_type in due
            }
            for job in as_completed(jobs):
                job.result()
                record_type = jobs[job]
                counts[record_type] = bronze.captured(lake, contracts[record_type], batch)
                progress.advance(
                    sum(n for n, _ in counts[record_type].values()),
                    files=len(files[record_type]),
                    size_bytes=sum(file.size_bytes for file in files[record_type]),
                )
        progress.stop()
    rows = [row for file in findings.new for row in _new_rows(file, counts, batch)]
    rows += [_row(file, batch, status="failed") for file in findings.failed]
    rows += [_row(file, batch, status="ignored") for file in findings.ignored]
    lake.append("files", rows)
    lake.append("feed_pages", [_page_row(file, batch) for file in findings.new if file.head])
    _warn(rows)
    lake.append(
        "batches",
        [
            {
                "batch_id": batch.batch_id,
                "started_at": started_at,
                "finished_at": now(),
                "command": command,
                "pipeline_version": pipeline_version,
                "files_ingested": len({r["source_file"] for r in rows if r["status"] == "ingested"}),
                "files_failed": len({r["source_file"] for r in rows if r["status"] == "failed"}),
                "files_ignored": len({r["source_file"] for r in rows if r["status"] == "ignored"}),
                "records": sum(int(str(r["records"] or 0)) for r in rows),
                "corrupt_records": sum(int(str(r["corrupt_records"] or 0)) for r in rows),
                "status": "finished",
            }
        ],
    )
    return batch.batch_id


def _page_row(file: ProbedFile, batch: bronze.Batch) -> dict[str, object]:
    assert file.head is not None
    found = {part.record_type: part.records_found for part in file.parts}
    return {
        "source_file": file.source.name,
        "file_sha256": file.file_sha256,
        "dataset": file.dataset,
        "batch_id": batch.batch_id,
        "feed_id": file.head.feed_id,
        "feed_updated": file.head.updated,
        **{f"{name}_url": file.head.links.get(name) for name in ("self", "first", "prev", "next")},
        "entries": found.get("placsp_entries"),
        "tombstones": found.get("placsp_deleted_entries"),
    }


def _row(file: ProbedFile, batch: bronze.Batch, *, status: str) -> dict[str, object]:
    return {
        "source_file": file.source.name,
        "file_sha256": file.file_sha256,
        "size_bytes": file.size_bytes,
        "modified_at": file.modified_at,
        "dataset": file.dataset,
        "record_type": file.record_type,
        "batch_id": batch.batch_id,
        "ingested_at": batch.started_at,
        "records_found": 0,
        "records": 0,
        "corrupt_records": 0,
        "status": status,
        "error_type": file.error_type,
        "error_message": file.error_message,
    }


def _new_rows(
    file: ProbedFile,
    counts: Mapping[str, Mapping[str, tuple[int, int]]],
    batch: bronze.Batch,
) -> list[dict[str, object]]:
    rows = []
    for part in file.parts:
        records, corrupt = counts.get(part.record_type, {}).get(file.source.name, (0, 0))
        row = _row(file, batch, status="ingested") | {
            "record_type": part.record_type,
            "records_found": part.records_found,
            "records": records,
            "corrupt_records": corrupt,
        }
        if part.records_found and not records:
            row["status"] = "failed"
            row["error_type"] = "CHANGED_WHILE_READ"
            row["error_message"] = (
                f"{file.source.name} held {part.records_found} records when it was looked at, and "
                f"none of that content was there to be captured. Someone changed or removed it "
                f"meanwhile; run again."
            )
        rows.append(row)
    return rows


def _warn(rows: Sequence[Mapping[str, object]]) -> None:
    """One WARNING per dataset and stage: how many were refused, and where they lie."""
    failed = [r for r in rows if r["status"] == "failed"]
    if failed:
        log.warning(
            "file_read: %d file(s) could not be read, for example %s "
            "They lie in marts.dead_letters, stage file_read.",
            len(failed),
            failed[0]["error_message"],
        )
    found = [r for r in rows if r["status"] == "ingested" and r["error_type"]]
    if found:
        log.warning(
            "schema_validation: %d file(s) differ from what was agreed and were read all the same, for "
            "example %s They lie in marts.dead_letters, stage schema_validation.",
            len(found),
            found[0]["error_message"],
        )
    corrupt: dict[tuple[object, object], int] = {}
    for row in rows:
        if row["corrupt_records"]:
            key = (row["dataset"], row["record_type"])
            corrupt[key] = corrupt.get(key, 0) + int(str(row["corrupt_records"]))
    for (dataset, record_type), number in sorted(corrupt.items(), key=str):
        log.warning(
            "%s: %d %s record(s) do not parse. They lie in bronze.%s with _corrupt_record, and will "
            "stand in silver.%s_quarantine.",
            dataset,
            number,
            record_type,
            record_type,
            record_type,
        )
