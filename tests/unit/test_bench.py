"""The benchmark's inputs and ratios, without Spark: what a year and a day are made of."""

from __future__ import annotations

import io
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ingest import bench

PAGE = (
    "<feed><entry><id>https://example.org/1</id><updated>2020-01-02T10:00:00.000+01:00</updated></entry>"
    '<at:deleted-entry ref="https://example.org/2" when="2020-01-03T10:00:00.000+01:00"/></feed>'
)


@pytest.fixture
def pages(tmp_path: Path) -> list[Path]:
    found = []
    for name in ("a.atom", "b.atom"):
        page = tmp_path / "pages" / name
        page.parent.mkdir(exist_ok=True)
        page.write_text(PAGE.replace("/1<", f"/{name}<"))
        found.append(page)
    return found


def ids(folder: Path) -> list[str]:
    texts = [page.read_text() for page in sorted(folder.rglob("*.atom"))]
    return [found for text in texts for found in re.findall(r"<id>([^<]+)", text)]


def test_a_year_is_pages_under_new_ids_until_it_has_its_size(pages: list[Path], tmp_path: Path) -> None:
    size = bench._repeat_pages(pages, tmp_path / "year", 5 * len(PAGE))
    copies = sorted((tmp_path / "year").rglob("*.atom"))
    assert size == sum(page.stat().st_size for page in copies) >= 5 * len(PAGE)
    assert len(ids(tmp_path / "year")) == len(set(ids(tmp_path / "year"))) == len(copies)
    assert 'ref="https://example.org/2-2"' in copies[-1].read_text()


def test_a_day_is_newer_versions_of_known_entries_and_new_ones(
    pages: list[Path], tmp_path: Path
) -> None:
    bench._repeat_pages(pages, tmp_path / "year", 1)
    first, second = (bench._day(pages, tmp_path / f"day {n}", n) for n in (0, 1))
    known = set(ids(tmp_path / "year"))
    assert known & set(ids(first)) == known
    assert set(ids(first)) & set(ids(second)) == {f"https://example.org/{p.name}-0" for p in pages}
    assert all("2020-01-02" not in page.read_text() for page in first.rglob("*.atom"))
    assert bench._day(pages, tmp_path / "day 0", 0) == first, "the same for every lake"


def test_growth_is_told_as_ratios_of_one_run(
    pages: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    took = {"pages 1": 10.0, "pages 2": 4.0, "day": 3.0}

    def alone(function: Callable[..., Any], folder: str, lake: str) -> tuple[Any, float]:
        name = Path(folder).name
        run = {"code": 0, "phases": {"dbt": 1.0}, "peak_mb": 5.0, "records": 100}
        seconds = took.get(name, took["day"] * (2 if lake.endswith("2") else 1))
        return run, seconds

    monkeypatch.setattr(bench, "_alone", alone)
    console = Console(file=io.StringIO(), width=140)
    file = bench.run_bench(
        pages[0].parent, tmp_path / "out", console, parts=["growth"], megabytes=[2, 1]
    )
    told = {item["name"]: item["value"] for item in json.loads(file.read_text())["measurements"]}
    assert told["  rate of the largest to the least"] == pytest.approx(2 / 1 * 10 / 4, rel=0.01)
    assert told["a day on the largest to the least, medians"] == 2.0
    # Each as soon as it is there, and in the table.
    assert console.file.getvalue().count("day 3 on lake") == 4  # type: ignore[attr-defined]


def test_what_was_measured_is_kept_when_a_later_measurement_breaks_off(
    pages: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def alone(function: Callable[..., Any], folder: str, lake: str) -> tuple[Any, float]:
        if Path(folder).name != "pages 1":
            raise subprocess.CalledProcessError(1, "bench")
        return {"code": 0, "phases": {}, "peak_mb": 5.0, "records": 100}, 1.0

    monkeypatch.setattr(bench, "_alone", alone)
    console, out = Console(file=io.StringIO()), tmp_path / "out"
    with pytest.raises(subprocess.CalledProcessError):
        bench.run_bench(pages[0].parent, out, console, parts=["growth"], megabytes=[1, 2])
    [file] = out.iterdir()
    assert any(
        item["name"].startswith("a year of 1 MB")
        for item in json.loads(file.read_text())["measurements"]
    )
