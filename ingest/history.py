"""A year of a dataset into Bronze and Silver, in batches of which each counts for itself."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from ingest import ingestion
from ingest.capture import xml
from ingest.contracts import Contract, feed_of
from ingest.errors import FileReadError, InputError
from ingest.lake import Lake
from ingest.main_job import (
    Phases,
    ingest_findings,
    judge_and_report,
    make_console,
    session_starter,
    usable_contracts,
)
from ingest.progress import describe_rate, make_progress
from ingest.sources import ProbedFile, Source, find_sources

log = logging.getLogger("lakehouse")
# `_2020`, `_202006`, `_20200103_041019`, `_2020-06`; digits that are no month or day end no year.
_YEAR = re.compile(r"_((?:19|20)\d\d)(?:-?(?:0[1-9]|1[0-2])(?:-?(?:0[1-9]|[12]\d|3[01]))?)?(?!\d)")


@dataclass(frozen=True)
class HistoryOptions:
    """What a user may ask. See the options of ``lakehouse history``."""

    inputs: Sequence[str]
    dataset: str
    year: int
    batch_bytes: int = 250_000_000
    build_each: bool = False
    retry_failed: bool = False


@dataclass
class Choice:
    """Files that are of the year and dataset, and why each of the others is not."""

    taken: list[Source | ProbedFile]
    left: list[tuple[str, str]]


def load_history(lake: Lake, options: HistoryOptions) -> int:
    """Load a year. The caller holds the lake's lock.

    Each batch has a marker of its own, so that a kill costs the batch at hand and no other: what is
    in Bronze is known to the next call by its content, and skipped.

    Args:
        lake: The lake.
        options: What the user asks for.

    Returns:
        The highest exit code of the builds: see ``run_main_job``.

    Raises:
        LakehouseError: No file is of that year, or something else that the user can mend.
    """
    console = make_console()
    phases = Phases()
    began = time.monotonic()
    contracts = usable_contracts(options.dataset)
    with phases.time("choose"):
        choice = choose(list(find_sources(options.inputs)), contracts, options.dataset, options.year)
    for name, why in choice.left:
        console.print(f"  left, {why}: {name}", soft_wrap=True, markup=False)
    if not choice.taken:
        raise InputError(
            f"None of {len(choice.left)} files is of dataset {options.dataset} and year {options.year}, "
            f"so nothing was loaded. Check --dataset and --year, or load them with 'lakehouse run', "
            f"which asks for no year."
        )
    parts = list(split(choice.taken, options.batch_bytes))
    progress = make_progress()
    session: Callable[[], SparkSession] | None = None
    code = files = records = size = 0
    for number, part in enumerate(parts, start=1):
        with phases.time("look"):
            findings = ingestion.look(
                part,
                lake,
                contracts,
                progress,
                dataset=options.dataset,
                retry_failed=options.retry_failed,
            )
        if findings.anything_to_write:
            session = session or session_starter(lake, sum(map(_size, choice.taken)))
            ingest_findings(lake, contracts, findings, "history", phases, progress, session)
        files += len(part)
        records += findings.new_records
        size += findings.new_bytes
        log.info(
            "history: batch %d of %d %s; %d of %d files, %s",
            number,
            len(parts),
            "is in Bronze" if findings.anything_to_write else "was known",
            files,
            len(choice.taken),
            describe_rate(records, size, time.monotonic() - began),
        )
        if options.build_each and findings.anything_to_write:
            code = max(code, judge_and_report(lake, phases, console, session))
    in_bronze = sum(phases.get(name, 0.0) for name in ("look", "ingest"))
    if not options.build_each or session is None:
        # Also where all was known: a load that was killed before its build is completed by the next.
        code = judge_and_report(lake, phases, console, session)
    console.print(
        f"{options.dataset} {options.year}: {describe_rate(records, size, time.monotonic() - began)} "
        f"all told; into Bronze alone: {describe_rate(records, size, in_bronze)}",
        soft_wrap=True,
    )
    return code


def choose(
    sources: Sequence[Source | ProbedFile],
    contracts: Mapping[str, Contract],
    dataset: str,
    year: int,
) -> Choice:
    """Part the files of a dataset and year from all others.

    A file's name says both, or its archive's name does; where neither says it, the page itself does,
    by its feed's ``id`` and ``updated``. A page that says no dataset is of the one asked for.

    Args:
        sources: What was found; files that cannot be opened go by their names alone.
        contracts: By record type.
        dataset: The dataset.
        year: The year.

    Returns:
        Each source once, on one of the two sides.
    """
    choice = Choice([], [])
    for item in sources:
        readable = not isinstance(item, ProbedFile)
        source = item.source if isinstance(item, ProbedFile) else item
        why = _why_not(source, contracts, dataset, year, readable=readable)
        if why is None:
            choice.taken.append(item)
        else:
            choice.left.append((source.name, why))
    return choice


def _why_not(
    source: Source, contracts: Mapping[str, Contract], dataset: str, year: int, *, readable: bool
) -> str | None:
    """Why a file is not of the dataset and year; None where it is."""
    of_year = year_of_name(source.member or "") or year_of_name(Path(source.path).name)
    if not readable:
        # Its name alone can speak; where it is silent, people must hear of the damage.
        return f"of {of_year}" if of_year not in (None, year) else None
    claiming = feed_of(contracts, source.file_name)
    if not claiming:
        return "claimed by no contract"
    contract = claiming[0]
    of_dataset = contract.dataset_of_name(source.file_name)
    if dataset not in {known.name for known in contract.datasets}:
        return f"of {of_dataset or contract.record_type}"
    if of_dataset in (None, dataset) and contract.format == "xml" and not (of_dataset and of_year):
        try:
            page = source.read()
            of_dataset = of_dataset or contract.dataset_of_feed(xml.feed_id(page))
            of_year = of_year or _leading_year(xml.feed_text(page, "updated"))
        except FileReadError as error:
            if of_year is None:
                return f"of no year that can be told ({error})"
    if of_dataset not in (None, dataset):
        return f"of {of_dataset}"
    if of_year is None:
        return "of no year that its name or its feed says"
    return f"of {of_year}" if of_year != year else None


def year_of_name(name: str) -> int | None:
    """The year that a file's name says, behind a ``_``; None if it says none."""
    found = _YEAR.search(name)
    return int(found[1]) if found else None


def _leading_year(instant: str | None) -> int | None:
    # As the publisher writes it, in the publisher's own time.
    found = re.match(r"(\d{4})-", instant or "")
    return int(found[1]) if found else None


def split(
    sources: Sequence[Source | ProbedFile], batch_bytes: int
) -> Iterator[list[Source | ProbedFile]]:
    """Part sources into batches that reach a size; the same input is always parted the same way.

    Args:
        sources: In the order in which they are to be loaded.
        batch_bytes: A batch ends with the file that brings it to this many bytes.
    """
    part: list[Source | ProbedFile] = []
    size = 0
    for source in sources:
        part.append(source)
        size += _size(source)
        if size >= batch_bytes:
            yield part
            part, size = [], 0
    if part:
        yield part


def _size(source: Source | ProbedFile) -> int:
    if isinstance(source, ProbedFile):
        return 0
    if source.member:
        return source.member_bytes
    try:
        return Path(source.path).stat().st_size
    except OSError:
        # It cannot be read; the look at it says so.
        return 0
