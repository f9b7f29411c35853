"""One lake for the whole run: the samples, ingested, judged and tested once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ingest.lake import Lake
from ingest.main_job import Options, run_main_job
from ingest.sample import Manifest, generate


@dataclass(frozen=True)
class SampleLake:
    """The samples, what is known of them, and the lake that a run made of them."""

    samples: Path
    manifest: Manifest
    lake: Lake
    exit_code: int


@pytest.fixture(scope="session")
def sample_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SampleLake]:
    samples = tmp_path_factory.mktemp("samples")
    # A blank, an accent and a percent sign: names that break manifests and globs elsewhere.
    manifest = generate(samples, entries=40, orders=600)
    odd = samples / "sub folder" / "%20 año"
    odd.mkdir(parents=True)
    page = sorted(samples.glob("CPM_*.atom"))[0]
    page.rename(odd / page.name)
    lake = Lake(tmp_path_factory.mktemp("lake") / "lake")
    code = run_main_job(lake, Options(inputs=(str(samples),)))
    yield SampleLake(samples, manifest, lake, code)
