"""The benchmark: what a run costs, beside Spark's own readers in the same minute on the same machine.

Ratios of one run can be compared between machines; seconds cannot. Each measurement has a process and
a JVM of its own, but for the warm ones, which take turns in one.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ingest.environment import PROJECT_ROOT
from ingest.errors import InputError

ROUNDS = 3
PARTS = ("run", "capture", "hostile", "growth", "messages")
MEGABYTES = (30, 300)
# A day of the feeds is about this many bytes.
DAY_BYTES = 3_000_000
_ENTRY_ID = re.compile(rb"(<id>|\bref=\")([^<\"]+)")
_UPDATED = re.compile(rb"(<updated>)[^<T]+")


@dataclass(frozen=True)
class Measurement:
    """One line of the table: a figure, its unit, and what it is to be, if that is set."""

    name: str
    value: float
    unit: str
    goal: str = ""

    def __str__(self) -> str:
        """In one line."""
        return f"{self.name}: {self.value:,.2f} {self.unit}" + (f" ({self.goal})" if self.goal else "")


def run_bench(
    inputs: Path,
    out: Path,
    console: Console,
    *,
    parts: Collection[str] = PARTS,
    megabytes: Sequence[int] = MEGABYTES,
) -> Path:
    """Measure on a folder of pages, print one table and write it as JSON.

    Args:
        inputs: Folder with ATOM pages, searched in depth.
        out: Folder for the JSON file.
        console: Where the table goes.
        parts: ``run``: the main job, twice; ``capture``: files to Bronze beside Spark's own readers;
            ``hostile``: pages that would make cutting quadratic; ``growth``: a year, and a day on top
            of it; ``messages``: JSON messages with few and many schema changes, and a stampede.
        megabytes: Sizes of the year, in MB. The pages are repeated under new ids until they have each.

    Each figure is told as soon as it is there; what broke off leaves a table and a file of what came
    before.

    Returns:
        The JSON file.

    Raises:
        InputError: The folder holds no page.
        CalledProcessError: A measurement failed; what it said stands above.
    """
    inputs = inputs.absolute()
    pages = _pages(inputs)
    began, found = time.monotonic(), list[Measurement]()
    try:
        with tempfile.TemporaryDirectory(prefix="lakehouse-bench-") as scratch:
            for item in _measure(inputs, pages, Path(scratch), parts, sorted(megabytes)):
                found.append(item)
                console.print(f"{time.monotonic() - began:7,.0f} s  {item}", highlight=False)
    finally:
        file = _write(found, inputs, pages, out, console)
    return file


def _measure(
    inputs: Path, pages: Sequence[Path], scratch: Path, parts: Collection[str], megabytes: Sequence[int]
) -> Iterator[Measurement]:
    if "run" in parts:
        yield from _main_job(inputs, scratch / "main")
    if "capture" in parts:
        yield from _capture(pages, scratch / "capture")
    if "hostile" in parts:
        yield from _hostile()
    if "growth" in parts:
        yield from _growth(pages, scratch / "growth", megabytes)
    if "messages" in parts:
        yield from _messages(scratch / "messages")


def _write(
    found: Sequence[Measurement], inputs: Path, pages: Sequence[Path], out: Path, console: Console
) -> Path:
    table = Table("what", "measured", "unit", "goal", title=f"Benchmark on {inputs}")
    for item in found:
        table.add_row(item.name, f"{item.value:,.2f}", item.unit, item.goal)
    console.print(table)
    now = datetime.now(UTC)
    out.mkdir(parents=True, exist_ok=True)
    file = out / f"bench-{now:%Y%m%dT%H%M%SZ}.json"
    result = {
        "measured_at": now.isoformat(),
        "cores": os.cpu_count(),
        "input_bytes": sum(page.stat().st_size for page in pages),
        "measurements": [asdict(item) for item in found],
    }
    file.write_text(json.dumps(result, indent=1), "utf-8")
    return file


def _pages(folder: Path) -> list[Path]:
    pages = sorted(folder.rglob("*.atom"))
    if not pages:
        raise InputError(
            f"{folder} holds no .atom page to measure on. Name a folder that does: INPUT=..."
        )
    return pages


def _alone(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """Call a function in a process of its own; what it returned, and the seconds from start to end."""
    with tempfile.NamedTemporaryFile(suffix=".json") as answer:
        began = time.monotonic()
        call = json.dumps([function.__name__, arguments, answer.name])
        subprocess.run([sys.executable, "-m", "ingest.bench", call], cwd=PROJECT_ROOT, check=True)
        return json.loads(Path(answer.name).read_text("utf-8")), time.monotonic() - began


# ---- The whole main job ----------------------------------------------------------------------------


def _main_job(inputs: Path, lake: Path) -> list[Measurement]:
    first, seconds = _alone(_run, str(inputs), str(lake))
    again, seconds_again = _alone(_run, str(inputs), str(lake))
    return [
        Measurement("whole run, empty lake", seconds, "s", "< 180, aim 120"),
        *(Measurement(f"  {name}", value, "s") for name, value in first["phases"].items()),
        Measurement("  driver's peak memory", first["peak_mb"], "MB", "< 4096"),
        Measurement("second run, nothing new", seconds_again, "s", "< 30, aim 5"),
        Measurement("  exit codes that were not 0", bool(first["code"]) + bool(again["code"]), "", "0"),
    ]


def _run(inputs: str, lake: str) -> dict[str, Any]:
    from ingest.lake import Lake
    from ingest.main_job import Options, Phases, run_main_job

    phases = Phases()
    with contextlib.redirect_stdout(io.StringIO()):
        code = run_main_job(Lake(Path(lake)), Options(inputs=(inputs,)), phases)
    records = Lake(Path(lake)).read("bronze", "batches", ["records"]).column("records")
    return {
        "code": code,
        "phases": dict(phases),
        "peak_mb": _peak_megabytes(),
        "records": sum(records.to_pylist()),
    }


def _peak_megabytes() -> float:
    """Most memory that this process's JVM held, its heap and all else; Linux says, elsewhere 0."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    with contextlib.suppress(OSError, AttributeError):
        status = Path(f"/proc/{gateway.proc.pid}/status").read_text("utf-8")
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    return 0.0


# ---- Files to Bronze -------------------------------------------------------------------------------


def _capture(pages: Sequence[Path], scratch: Path) -> list[Measurement]:
    names = [str(page) for page in pages]
    # The sum of both is what a user waits for at the first batch of a day; start of Spark aside.
    ours, _ = _alone(_ingest_once, names, str(scratch / "cold"))
    native, _ = _alone(_native_once, names, str(scratch / "native"))
    warm, _ = _alone(_warm_rounds, names, str(scratch / "warm"))
    size = sum(page.stat().st_size for page in pages) / 1e6
    return [
        Measurement("files to Bronze, cold", ours, "s"),
        Measurement("two native reads to Delta, cold", native, "s"),
        Measurement("  ratio", ours / native, "", "< 1, aim 0.6"),
        Measurement("files to Bronze, warm", warm["ours"], "s"),
        Measurement("two native reads to Delta, warm", warm["native"], "s"),
        Measurement("  ratio", warm["ours"] / warm["native"], "", "< 1, aim 0.6"),
        Measurement("  rate of ours, warm", size / warm["ours"], "MB/s"),
    ]


def _ingest_once(pages: list[str], scratch: str) -> float:
    return next(_ingest_times(pages, Path(scratch)))


def _native_once(pages: list[str], scratch: str) -> float:
    return next(_native_times(pages, Path(scratch)))


def _warm_rounds(pages: list[str], scratch: str) -> dict[str, float]:
    """Both in turn in one JVM; the first round of each only warms it."""
    ours, native = [], []
    ingest_times = _ingest_times(pages, Path(scratch) / "ours")
    native_times = _native_times(pages, Path(scratch) / "native")
    for _ in range(1 + ROUNDS):
        ours.append(next(ingest_times))
        native.append(next(native_times))
    return {"ours": statistics.median(ours[1:]), "native": statistics.median(native[1:])}


def _fresh_pages(pages: Sequence[str], folder: Path, mark: str) -> Path:
    """Copy pages with a comment behind the last tag: the same records, and content not yet known."""
    for number, page in enumerate(pages):
        # A folder each: pages of two datasets may have one name, and the name's prefix matters.
        copy = folder / mark / str(number) / Path(page).name
        copy.parent.mkdir(parents=True)
        copy.write_bytes(Path(page).read_bytes() + f"<!-- {mark} -->".encode())
    return folder / mark


def _ingest_times(pages: Sequence[str], scratch: Path) -> Iterator[float]:
    """Seconds per round to look at all pages and to write them to Bronze, Spark's start aside."""
    from ingest.lake import Lake
    from ingest.main_job import Options, Phases, ingest_new

    lake = Lake(scratch / "lake")
    for number in itertools.count():
        folder = _fresh_pages(pages, scratch / "pages", f"round {number}")
        phases = Phases()
        ingest_new(lake, Options(inputs=(str(folder),)), "bench", phases, builds=False)
        yield phases["look"] + phases["ingest"]


def _native_times(pages: Sequence[str], scratch: Path) -> Iterator[float]:
    """Seconds per round for what one would write by hand: two reads of all files, each to Delta."""
    from ingest.contracts import load_contracts
    from ingest.session import start_session
    from ingest.transform import models_dir

    contracts = load_contracts(models_dir())
    for number in itertools.count():
        folder = _fresh_pages(pages, scratch / "pages", f"round {number}")
        spark = start_session(input_bytes=0)
        began = time.monotonic()
        for record_type, row_tag in (
            ("placsp_entries", "entry"),
            ("placsp_deleted_entries", "at:deleted-entry"),
        ):
            (
                spark.read.format("xml")
                .schema(f"{contracts[record_type].schema_ddl}, _corrupt_record STRING")
                .option("rowTag", row_tag)
                .option("mode", "PERMISSIVE")
                .option("ignoreNamespace", "true")
                .option("nullValue", "")
                .option("useLegacyXMLParser", "true")
                .option("recursiveFileLookup", "true")
                .load(str(folder))
                .write.format("delta")
                .save(str(scratch / f"{record_type} {number}"))
            )
        yield time.monotonic() - began


# ---- Pages made to be slow -------------------------------------------------------------------------

# What a page repeats, and how it ends: each begins something that looks for its end in all that follows.
HOSTILE_UNITS = (
    "<", "<!--", "<![CDATA[", "<?", "<entry>", '<entry "', "<!DOCTYPE '", "<a xmlns='u'>", "</entry",
    "<x:entry xmlns:x='u'>", "<entry><a></entry>", "<entry><?<![CDATA[", "?>]]>-->",
    "<entry><x xmlns='u'>",
)  # fmt: skip
HOSTILE_ENDS = ("", "<entry/><!-- --><![CDATA[ ]]><? ?>")
HOSTILE_BYTES = 200_000


def hostile_page(unit: str, end: str, size: int) -> bytes:
    """A page of about ``size`` bytes that repeats ``unit`` and ends with ``end``."""
    return f'<feed xmlns="http://www.w3.org/2005/Atom">{unit * (size // len(unit))}{end}'.encode()


def _hostile() -> list[Measurement]:
    """How many times as long a page of four times the size takes, the worst of all; quadratic is 16."""
    from ingest.capture.xml import count, cut
    from ingest.contracts import load_contracts
    from ingest.sources import xml_format
    from ingest.transform import models_dir

    entry = xml_format(load_contracts(models_dir())["placsp_entries"])

    def seconds(page: bytes) -> float:
        began = time.process_time()
        for _ in cut(page, entry):
            pass
        count(page, entry)
        return time.process_time() - began

    took = {
        (unit, end): [
            min(seconds(hostile_page(unit, end, size)) for _ in range(ROUNDS))
            for size in (HOSTILE_BYTES, 4 * HOSTILE_BYTES)
        ]
        for unit in HOSTILE_UNITS
        for end in HOSTILE_ENDS
    }
    # Of what takes hardly any time the ratio is noise.
    ratios = {page: large / max(small, 0.02) for page, (small, large) in took.items()}
    worst = max(ratios, key=lambda page: ratios[page])
    return [
        Measurement(f"page of {HOSTILE_BYTES / 1e6} MB of {worst[0]!r}", took[worst][0], "s"),
        Measurement("  one four times as large", ratios[worst], "times as long", "< 8"),
    ]


# ---- More of it ------------------------------------------------------------------------------------


def _growth(pages: Sequence[Path], scratch: Path, megabytes: Sequence[int]) -> Iterator[Measurement]:
    """A year at each size, and then days of the same pages on each of these lakes, in turn."""
    rates, lakes = [], []
    for wanted in megabytes:
        folder, lake = scratch / f"pages {wanted}", scratch / f"lake {wanted}"
        size = _repeat_pages(pages, folder, wanted * 1_000_000) / 1e6
        year, seconds = _alone(_run, str(folder), str(lake))
        rates.append(size / seconds)
        lakes.append(lake)
        yield Measurement(f"a year of {size:,.0f} MB, whole run", seconds, "s")
        for name, value in year["phases"].items():
            yield Measurement(f"  {name}", value, "s")
        yield Measurement("  rate", rates[-1], "MB/s")
        yield Measurement("  rate", year["records"] / seconds, "records/s")
        yield Measurement("  driver's peak memory", year["peak_mb"], "MB", "< 4096")
        yield Measurement("  exit code", year["code"], "", "0")
    if len(rates) > 1:
        yield Measurement("  rate of the largest to the least", rates[-1] / rates[0], "", ">= 1")
    # In turn, so that what else the machine does befalls all alike.
    days: list[list[float]] = [[] for _ in lakes]
    for number in range(ROUNDS):
        for times, lake in zip(days, lakes, strict=True):
            folder = _day(pages, scratch / f"day {number}", number)
            run, seconds = _alone(_run, str(folder), str(lake))
            times.append(seconds)
            yield Measurement(f"day {number + 1} on {lake.name} MB", seconds, "s")
            for name, value in run["phases"].items():
                yield Measurement(f"  {name}", value, "s")
            yield Measurement("  exit code", run["code"], "", "0")
    medians = [statistics.median(times) for times in days]
    if len(medians) > 1:
        ratio = medians[-1] / medians[0]
        yield Measurement("a day on the largest to the least, medians", ratio, "", "<= 1.3")


def _repeat_pages(pages: Sequence[Path], folder: Path, size: int) -> int:
    """Write pages again and again under new ids until they have a size; the bytes written."""
    written = 0
    for copy in itertools.count():
        for number, page in enumerate(pages):
            target = folder / f"{copy}" / f"{number}" / page.name
            target.parent.mkdir(parents=True)
            written += target.write_bytes(_ENTRY_ID.sub(rb"\g<1>\g<2>-%d" % copy, page.read_bytes()))
            if written >= size:
                return written
    raise AssertionError("it counts on for ever")


def _day(pages: Sequence[Path], folder: Path, number: int) -> Path:
    """Write a day: pages up to its size, the same for every lake, and each day later than the last.

    Each page comes twice: its entries are new versions of known ones, and under other ids new ones.
    """
    if folder.exists():
        return folder
    at = rb"\g<1>%s" % str(datetime.now(UTC).date() + timedelta(days=number)).encode()
    left = DAY_BYTES
    # From the shortest on: so all datasets that have short pages are among them.
    for place, page in enumerate(sorted(pages, key=lambda page: page.stat().st_size)):
        text = _UPDATED.sub(at, page.read_bytes())
        for mark in (b"0", b"of day %d" % number):
            target = folder / f"{place} {mark.decode()}" / page.name
            target.parent.mkdir(parents=True)
            left -= target.write_bytes(_ENTRY_ID.sub(rb"\g<1>\g<2>-" + mark, text))
        if left <= 0:
            break
    return folder


# ---- JSON messages -------------------------------------------------------------------------------


def _messages(scratch: Path) -> list[Measurement]:
    from ingest.messages.bench import SHAPES, STAMPEDE

    found: list[Measurement] = []
    for shapes in SHAPES:
        measured, _ = _alone(_message_rate, str(scratch / f"{shapes} shapes"), shapes)
        found += [
            Measurement(f"messages, {shapes} schema changes per window", measured["rate"], "messages/s"),
            Measurement("  alterations in three windows", measured["alterations"], "", "<= 3"),
            Measurement("  exit code", measured["code"], "", "0"),
        ]
    told, _ = _alone(_message_stampede, str(scratch / "stampede"))
    number, shapes = STAMPEDE
    return [
        *found,
        Measurement(f"stampede of {number:,} messages with {shapes:,} shapes", told["window"], "s"),
        Measurement("  before it, to receive them and find that none fits", told["received"], "s"),
        Measurement("  that waited", told["waited"], "messages", f"{number:,}"),
        Measurement("  alterations", told["alterations"], "", "1"),
        Measurement("  landed", told["landed"], "messages", f"{number:,}"),
        Measurement("  exit code", told["code"], "", "0"),
    ]


def _message_rate(scratch: str, shapes: int) -> dict[str, float]:
    from ingest.messages.bench import rate

    return rate(scratch, shapes)


def _message_stampede(scratch: str) -> dict[str, float]:
    from ingest.messages.bench import stampede

    return stampede(scratch)


if __name__ == "__main__":
    # One measurement in a process of its own; see _alone.
    name, arguments, answer = json.loads(sys.argv[1])
    Path(answer).write_text(json.dumps(globals()[name](*arguments)), "utf-8")
