"""What makes the stream over a folder wake the ingest."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql.datasource import ReadLimit

from ingest.landing import LandingReader, listing


def test_new_content_under_a_known_name_is_another_state(tmp_path: Path) -> None:
    page = tmp_path / "%20 a:b año.atom"
    page.write_text("one")
    before, stat = listing([str(tmp_path)]), page.stat()
    assert listing([str(tmp_path)]) == before

    replacement = tmp_path.parent / "replacement"
    replacement.write_text("two")
    # As an unpacked archive does: same name, same size, same time of change.
    os.utime(replacement, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    replacement.replace(page)

    assert listing([str(tmp_path)]) != before


def test_a_new_hidden_file_and_one_gone_are_other_states(tmp_path: Path) -> None:
    empty = listing([str(tmp_path)])
    (tmp_path / "_hidden").write_text("x")
    assert listing([str(tmp_path)]) != empty
    (tmp_path / "_hidden").unlink()
    assert listing([str(tmp_path)]) == empty


def test_an_input_that_went_away_is_a_state_and_no_error(tmp_path: Path) -> None:
    there = listing([str(tmp_path)])
    assert listing([str(tmp_path / "gone")]) not in ("", there)


def test_each_start_wakes_once_and_then_only_what_changed_does(tmp_path: Path) -> None:
    def latest(reader: LandingReader) -> dict[str, str]:
        return reader.latestOffset(reader.initialOffset(), ReadLimit())

    reader = LandingReader([str(tmp_path)], "first")
    assert latest(reader) == latest(reader) != reader.initialOffset()
    assert latest(LandingReader([str(tmp_path)], "second")) != latest(reader)

    now = LandingReader([str(tmp_path)], "third")
    now.prepareForTriggerAvailableNow()
    target = latest(now)
    (tmp_path / "later").write_text("x")
    assert latest(now) == target
