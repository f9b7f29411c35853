"""One inspection: a file, the contract it is held to, and the folder with what was found."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from ingest.errors import EnvironmentProblemError, InputError
from ingest.inspection import modes, verdicts
from ingest.inspection.findings import Findings, first_malformed, recount
from ingest.inspection.folder import ReportFolder
from ingest.inspection.report import write_reports
from ingest.inspection.subject import Subject, check_unchanged, write_readable
from ingest.session import start_session
from ingest.transform import MESSAGE_LENGTH

NOTHING_MALFORMED = "NONE"
"""First line of failfast.txt where FAILFAST found nothing to fail on."""


@dataclass(frozen=True)
class Options:
    """How to inspect.

    Attributes:
        out: The folder to write.
        lang: Language of the report.
        event_log: Folder for one event log per step; None: one application does all, without a log.
        force: Replace an earlier report.
    """

    out: Path
    lang: str
    event_log: Path | None = None
    force: bool = False


def inspect_file(subject: Subject, options: Options) -> Findings:
    """Inspect a file on real Spark and write everything that was found.

    Args:
        subject: The file.
        options: How.

    Raises:
        InputError: The folder cannot be written, or the file changed meanwhile.
        EnvironmentProblemError: Spark cannot read or write, for example because a disk is full.
    """
    started_at = datetime.now(UTC).replace(microsecond=0)
    folder = ReportFolder(options.out, force=options.force)
    applications = _Applications(subject.file.size_bytes, _event_log(options.event_log))
    with folder as out, tempfile.TemporaryDirectory(prefix="lakehouse-inspect-") as scratch:
        try:
            _write_results(subject, applications, started_at, Path(scratch), out)
        except (PySparkException, Py4JJavaError) as error:
            said = " ".join(str(error).split())[:MESSAGE_LENGTH]
            raise EnvironmentProblemError(
                f"Spark could not inspect {subject.file.source.name}: {said} Nothing was written. Look "
                f"whether the disk is full, then run again."
            ) from error
        finally:
            applications.end()
        check_unchanged(subject)
        findings = recount(out)
        write_reports(findings, options.lang, out)
    return findings


class _Applications:
    """The Spark session: one for all steps, or with an event log one application for each."""

    def __init__(self, input_bytes: int, event_log: Path | None) -> None:
        self._input_bytes = input_bytes
        self._event_log = event_log

    @contextmanager
    def step(self, name: str) -> Iterator[SparkSession]:
        """The session of a step. Times are written in microseconds, in which there is a year 0001."""
        if self._event_log is None:
            spark = start_session(input_bytes=self._input_bytes)
        else:
            # One context at a time; the JVM stays.
            self.end()
            spark = start_session(
                input_bytes=self._input_bytes,
                application=f"spk-schema-{name}",
                event_log=self._event_log,
            )
        spark.sparkContext.setLogLevel("ERROR")
        setting = "spark.sql.parquet.outputTimestampType"
        spark.conf.set(setting, "TIMESTAMP_MICROS")
        try:
            yield spark
        finally:
            spark.conf.unset(setting)

    def end(self) -> None:
        """End the application of a step: its log is whole then."""
        active = SparkSession.getActiveSession()
        if self._event_log is not None and active is not None:
            active.stop()


def _event_log(folder: Path | None) -> Path | None:
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be made for the event logs: {error.strerror}. Name another folder with "
            f"--event-log."
        ) from error
    return folder


def _write_results(
    subject: Subject, applications: _Applications, started_at: datetime, work: Path, out: Path
) -> None:
    path, records = work / "file.csv", work / "records"
    write_readable(subject, path)
    (out / "schema.ddl").write_text(subject.ddl + "\n", "utf-8")
    with applications.step("infer") as spark:
        inferred = modes.infer(spark, subject, path)
        (out / "inferred.txt").write_text(inferred.simpleString() + "\n", "utf-8")
    with applications.step("load") as spark:
        modes.write_permissive(spark, subject, path, out / "permissive")
    with applications.step("drop") as spark:
        _write_json(out / "drop_count.json", modes.write_dropped(spark, subject, path, out / "dropped"))
    with applications.step("failfast") as spark:
        condition = modes.fail_fast(spark, subject, path, work / "failfast")
    with applications.step("width") as spark:
        verdicts.write_records(spark, subject, started_at, work)
        minded, naive = verdicts.widths(spark, subject, records)
        _write_json(out / "width.json", minded)
        if naive != minded:
            _write_json(out / "width_naive.json", naive)
    with applications.step("clean") as spark:
        verdicts.write_verdicts(spark, subject, records, started_at, work, out)
        verdicts.write_inference(spark, subject, inferred, records, started_at, out / "inference")
    _write_failure(condition, records, out)
    _write_json(out / "inspection.json", _facts(subject, inferred, started_at))


def _write_failure(condition: str | None, records: Path, out: Path) -> None:
    """Write which condition FAILFAST fails on, and the first record of the file that meets it."""
    lines = [condition or NOTHING_MALFORMED]
    if condition:
        found = first_malformed(records, out / "permissive")
        lines += [f"line {found[0]}", found[1]] if found else []
    (out / "failfast.txt").write_text("\n".join(lines) + "\n", "utf-8", newline="")


def _facts(subject: Subject, inferred: StructType, started_at: datetime) -> dict[str, Any]:
    """What the report says of the file and the contract, besides what is counted."""
    header, contract = subject.header, subject.contract
    found = {finding.error_type for finding in header.findings}
    types = [field.dataType.simpleString() for field in inferred]
    return {
        "record_type": contract.record_type,
        "contract_version": contract.version,
        "owner": contract.owner,
        "inspected_at": started_at.isoformat(),
        "file": Path(subject.file.source.path).name,
        "file_sha256": subject.file.file_sha256,
        "size_bytes": subject.file.size_bytes,
        "encoding": header.encoding,
        "is_encoding_guessed": "ENCODING_GUESSED" in found,
        "header_line": header.lines if "LINES_ABOVE_HEADER" in found else None,
        "missing_columns": list(header.missing),
        "extra_columns": list(header.extra),
        "fields": len(header.names),
        "is_read_across_lines": subject.spans_lines,
        "columns": [
            {"name": column.name, "agreed": column.agreed_type, "inferred": type_name}
            for column, type_name in zip(subject.columns, types, strict=False)
            if column.field is not None
        ],
        "rules": [
            {
                "code": rule.code,
                "reason": rule.reason,
                "stage": rule.stage,
                "why": rule.why,
                "fix": rule.fix,
                "is_misfit": bool(rule.misfit),
                "fields": [
                    field.name
                    for field in contract.fields
                    if field.name in rule.misfit or field.name in _words(rule.when)
                ],
            }
            for rule in contract.rules
            if rule.severity != "warn"
        ],
    }


def _words(predicate: str | None) -> set[str]:
    """The fields that a predicate may ask."""
    return {word.removeprefix("raw_") for word in re.findall(r"\w+", predicate or "")}


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", "utf-8")
