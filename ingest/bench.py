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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ingest.environment import PROJECT_ROOT
from ingest.errors import InputError

ROUNDS = 3
_ENTRY_ID = re.compile(rb"(<id>|\bref=\")([^<\"]+)")


@dataclass(frozen=True)
class Measurement:
    """One line of the table: a figure, its unit, and what it is to be, if that is set."""

    name: str
    value: float
    unit: str
    goal: str = ""


def run_bench(inputs: Path, out: Path, megabytes: int | None, console: Console) -> Path:
    """Measure on a folder of pages, print one table and write it as JSON.

    Args:
        inputs: Folder with ATOM pages, searched in depth.
        out: Folder for the JSON file.
        megabytes: Also ingest the pages repeated under new ids, up to this size.
        console: Where the table goes.

    Returns:
        The JSON file.

    Raises:
        InputError: The folder holds no page.
    """
    inputs = inputs.absolute()
    pages = _pages(inputs)
    with tempfile.TemporaryDirectory(prefix="lakehouse-bench-") as scratch:
        found = [
            *_main_job(inputs, Path(scratch) / "main"),
            *_capture(pages, Path(scratch) / "capture"),
        ]
        if megabytes:
            found += _large(pages, Path(scratch) / "large", megabytes)
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
    return {"code": code, "phases": dict(phases), "peak_mb": _peak_megabytes()}


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
        ingest_new(lake, Options(inputs=(str(folder),)), "bench", phases)
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


# ---- Much of it ------------------------------------------------------------------------------------


def _large(pages: Sequence[Path], scratch: Path, megabytes: int) -> list[Measurement]:
    folder = scratch / "pages"
    size = _repeat_pages(pages, folder, megabytes * 1_000_000)
    found, _ = _alone(_ingest_large, str(folder), str(scratch / "lake"))
    return [
        Measurement(f"files to Bronze, {size / 1e6:,.0f} MB", found["seconds"], "s"),
        Measurement("  rate", size / 1e6 / found["seconds"], "MB/s"),
        Measurement("  driver's peak memory", found["peak_mb"], "MB", "< 4096"),
    ]


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


def _ingest_large(folder: str, lake: str) -> dict[str, float]:
    from ingest.lake import Lake
    from ingest.main_job import Options, Phases, ingest_new

    phases = Phases()
    ingest_new(Lake(Path(lake)), Options(inputs=(folder,)), "bench", phases)
    return {"seconds": phases["look"] + phases["ingest"], "peak_mb": _peak_megabytes()}


if __name__ == "__main__":
    # One measurement in a process of its own; see _alone.
    name, arguments, answer = json.loads(sys.argv[1])
    Path(answer).write_text(json.dumps(globals()[name](*arguments)), "utf-8")
