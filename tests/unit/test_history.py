"""Which files are of a year, and how they are parted into batches."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from ingest.contracts import load_contracts
from ingest.history import choose, split, year_of_name
from ingest.sources import ProbedFile, Source, find_sources
from ingest.transform import models_dir

MENORES = "contratosMenoresPerfilesContratantes"
PAGE = (
    '<feed xmlns="http://www.w3.org/2005/Atom"><id>https://example.org/{feed}/x.atom</id>'
    "<updated>{updated}</updated><entry><id>1</id><updated>2019-05-05T00:00:00Z</updated></entry></feed>"
)


@pytest.mark.parametrize(
    ("name", "year"),
    [
        (f"{MENORES}_20200103_041019.atom", 2020),
        (f"{MENORES}_20200103_041019_1.atom", 2020),
        (f"{MENORES}_2020.zip", 2020),
        (f"{MENORES}_202006.zip", 2020),
        ("orders_2020-06.csv", 2020),
        ("sindicacion_1143.atom", None),
        ("page_203000.atom", None),
        ("page_20201399.atom", None),
        (f"{MENORES}.atom", None),
    ],
)
def test_the_year_that_a_name_says(name: str, year: int | None) -> None:
    assert year_of_name(name) == year


def test_others_are_left_with_the_reason(tmp_path: Path) -> None:
    def page(
        name: str, feed: str = "sindicacion_1143", updated: str = "2020-12-31T23:50:00+01:00"
    ) -> None:
        (tmp_path / name).write_text(PAGE.format(feed=feed, updated=updated))

    page(f"{MENORES}_20200103_041019.atom", updated="2019-12-30T00:00:00Z")
    page(f"{MENORES}_20210103_041019.atom")
    page(f"{MENORES}.atom")
    page("head of 2019.atom", updated="2019-12-31T00:00:00Z")
    page("nobody's.atom", feed="elsewhere")
    page("page_20200105.atom", updated="2021-01-01T00:00:00Z")
    page("other feed_2020.atom", feed="sindicacion_1044")
    page("PlataformasAgregadasSinMenores_20200103_031345.atom")
    (tmp_path / "empty.atom").write_bytes(b"")
    (tmp_path / f"{MENORES}_20200104_041019.atom").write_bytes(b"")
    (tmp_path / "orders_2020.csv").write_text("order_id\n")
    (tmp_path / "README.txt").write_text("x")
    with zipfile.ZipFile(tmp_path / f"{MENORES}_2020.zip", "w") as archive:
        archive.writestr(f"{MENORES}.atom", PAGE.format(feed="x", updated="2021-01-01T00:00:00Z"))
        archive.writestr(f"{MENORES}_20191231_041019.atom", "x")
    (tmp_path / f"{MENORES}_202011.zip").write_bytes(b"no zip")
    (tmp_path / f"{MENORES}_201911.zip").write_bytes(b"no zip")

    choice = choose(list(find_sources([str(tmp_path)])), load_contracts(models_dir()), "menores", 2020)

    taken = [item.source.name if isinstance(item, ProbedFile) else item.name for item in choice.taken]
    prefix = f"{tmp_path}/"
    assert {name.removeprefix(prefix) for name in taken} == {
        f"{MENORES}_20200103_041019.atom",
        f"{MENORES}_20200104_041019.atom",  # Broken, and its name says it: the ingest tells of it.
        f"{MENORES}.atom",
        f"{MENORES}_2020.zip!{MENORES}.atom",
        f"{MENORES}_202011.zip",
        "nobody's.atom",
        "page_20200105.atom",
    }
    left = {name.removeprefix(prefix): why for name, why in choice.left}
    assert "empty" in left.pop("empty.atom")
    assert left == {
        f"{MENORES}_20210103_041019.atom": "of 2021",
        "head of 2019.atom": "of 2019",
        "other feed_2020.atom": "of agregadas",
        "PlataformasAgregadasSinMenores_20200103_031345.atom": "of agregadas",
        "orders_2020.csv": "of orders",
        "README.txt": "claimed by no contract",
        f"{MENORES}_2020.zip!{MENORES}_20191231_041019.atom": "of 2019",
        f"{MENORES}_201911.zip": "of 2019",
    }


def test_a_batch_ends_with_the_file_that_fills_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    members = [Source(str(tmp_path / "x.zip"), name, 4) for name in "bcd"]
    gone = Source(str(tmp_path / "gone"))
    sources: list[Source | ProbedFile] = [gone, Source(str(tmp_path / "a")), *members]

    parts = list(split(sources, 8))

    assert parts == [[gone, sources[1], members[0]], [members[1], members[2]]]
    assert list(split([], 8)) == []
