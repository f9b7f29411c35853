"""Small dirty samples with known numbers, the same bytes for the same arguments on every machine.

All text is invented. The structure is that of the public feeds: element names, prefixes and
namespaces are their standard, nothing else is theirs. Each fault stands in a record of its own, so
that what becomes of a record can be told from the fault's name.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from ingest.errors import InputError

# What becomes of a record or a file with the fault.
ORDER_FAULTS = {
    "qty_text": "parse",
    "qty_decimal_comma": "parse",
    "ts_other_format": "parse",
    "ts_impossible_day": "parse",
    "ts_year_0001": "parse",
    "missing_field": "parse",
    "extra_field": "parse",
    "qty_empty": "qty",
    "qty_zero": "qty",
    "qty_negative": "qty",
    "exact_repeat": "duplicate",
    "corrected_repeat": "superseding",
    "qty_padded": "sound",
    "quoted_comma": "sound",
    "doubled_quotes": "sound",
    "quoted_line_break": "sound",
    "accents": "sound",
}
ENTRY_FAULTS = {
    "unclosed_tag": "corrupt",
    "missing_id": "quarantined",
    "missing_updated": "quarantined",
    "updated_not_an_instant": "quarantined",
    "amount_with_comma": "quarantined",
    "unknown_element": "warned",
    "repeated_scalar": "warned",
    "award_year_0020": "warned",
    "end_year_4020": "warned",
    "bad_nif": "warned",
}
PAGE_FAULTS = {
    "truncated_page": "corrupt",
    "html_page": "failed",
    "empty_page": "failed",
    "latin1_page": "sound",
    "utf16_page": "sound",
    "unclaimed_file": "ignored",
}
FAULTS = (*ORDER_FAULTS, *ENTRY_FAULTS, *PAGE_FAULTS)

ORDER_COLUMNS = ("order_id", "customer_id", "sku", "qty", "order_ts", "channel", "note")
# Rows of each fault in a thousand.
_ORDER_SHARE = {"exact_repeat": 10, "corrected_repeat": 8, "qty_zero": 6, "qty_text": 5}
_ORDER_SHARE_ELSE = 4
_ENTRIES_PER_PAGE = 500

_ATOM = "http://www.w3.org/2005/Atom"
_TOMBSTONES = "http://purl.org/atompub/tombstones/1.0"
_CODICE = "urn:dgpe:names:draft:codice:schema:xsd:Common{}Components-2"
_PLACE = "urn:dgpe:names:draft:codice-place-ext:schema:xsd:Common{}Components-2"
_NAMESPACES = {
    "xmlns": _ATOM,
    "xmlns:cbc-place-ext": _PLACE.format("Basic"),
    "xmlns:cac-place-ext": _PLACE.format("Aggregate"),
    "xmlns:cbc": _CODICE.format("Basic"),
    "xmlns:cac": _CODICE.format("Aggregate"),
}
_SITE = "https://example.org/sindicacion"
_LISTS = "https://example.org/codice/cl"


class _Feed(NamedTuple):
    dataset: str
    prefix: str
    number: int
    path: str
    share: int


# Shares of the entries, in tenths.
_FEEDS = (
    _Feed(
        "licitaciones",
        "licitacionesPerfilesContratanteCompleto3",
        643,
        "licitacionesPerfilContratante",
        4,
    ),
    _Feed(
        "agregadas",
        "PlataformasAgregadasSinMenores",
        1044,
        "PlataformasAgregadasSinMenores",
        2,
    ),
    _Feed("menores", "contratosMenoresPerfilesContratantes", 1143, "datosAbiertosMenores", 2),
    _Feed("consultas", "CPM_SectorPublico", 1403, "CPM_SectorPublico", 1),
    _Feed("encargos", "EMP_SectorPublico", 1383, "EMP_SectorPublico", 1),
)
_BY_DATASET = {feed.dataset: feed for feed in _FEEDS}


@dataclass(frozen=True)
class OrderFacts:
    """Known numbers of the order file.

    Attributes:
        rows: Records after the header.
        parse_refused: Rows that do not parse or whose value does not fit its type, the rows of
            ``out_of_range`` included. A quantity with blanks around it fits.
        out_of_range: Rows whose year is outside 1990 to ten years ahead.
        qty_refused: Rows that parse, and whose quantity is empty or below 1.
        accepted: The rest.
        current: Distinct order_id among the accepted: the newest order_ts wins.
        superseded: Accepted rows for which a newer row of the same order_id was accepted.
        duplicates: Accepted rows whose whole text stands in the file before.
    """

    rows: int
    parse_refused: int
    out_of_range: int
    qty_refused: int
    accepted: int
    current: int
    superseded: int
    duplicates: int


@dataclass(frozen=True)
class EntryFacts:
    """Known numbers of the pages.

    Attributes:
        entries: ``<entry>`` records in readable pages, corrupt ones included.
        tombstones: ``<at:deleted-entry>`` records.
        corrupt: Entries that are no well-formed XML.
        quarantined: Entries that must not be accepted, corrupt ones included.
        accepted: The rest of the entries.
        current: Accepted entries that are the newest of their id and not deleted since.
        superseded: Accepted entries with a newer version.
        duplicates: Accepted entries of the same id, updated and text as one before.
        withdrawn: Newest entries of their id that were deleted at their instant or later.
    """

    entries: int
    tombstones: int
    corrupt: int
    quarantined: int
    accepted: int
    current: int
    superseded: int
    duplicates: int
    withdrawn: int


@dataclass(frozen=True)
class FileFacts:
    """Known numbers of one file. ``status`` is what ``bronze.files`` must say."""

    name: str
    status: str
    dataset: str | None = None
    encoding: str | None = None
    entries: int = 0
    tombstones: int = 0
    orders: int = 0
    corrupt: int = 0


@dataclass(frozen=True)
class Manifest:
    """What was written, and the numbers that any reader must come to.

    Attributes:
        seed: The seed it was made from.
        files: Every file, by name.
        faults: Records, or files, of each fault that was asked for.
        orders: Known numbers of the order file.
        placsp: Known numbers of the pages together.
        placsp_by_dataset: The same by dataset.
    """

    seed: int
    files: tuple[FileFacts, ...]
    faults: dict[str, int]
    orders: OrderFacts
    placsp: EntryFacts
    placsp_by_dataset: dict[str, EntryFacts]


def generate(
    out: Path, *, entries: int, orders: int, faults: bool | Sequence[str] = True, seed: int = 1
) -> Manifest:
    """Write samples below a folder.

    Args:
        out: The folder; made where it is not there. Files of the same names are overwritten.
        entries: Distinct sound entries over all datasets. Versions, repeats, tombstones and
            entries with a fault come on top.
        orders: Rows of ``orders_dirty.csv``, faulty ones and repeats included; 0 writes none.
        faults: All, none, or those named.
        seed: Other seeds give other bytes with the same numbers.

    Returns:
        The known numbers.

    Raises:
        InputError: A fault has an unknown name, or a number is negative.
    """
    chosen = _chosen(faults)
    if entries < 0 or orders < 0:
        raise InputError(
            f"{entries} entries and {orders} orders were asked for. Neither can be negative; 0 "
            f"writes none of them."
        )
    out.mkdir(parents=True, exist_ok=True)
    told: Counter[str] = Counter(dict.fromkeys(chosen, 0))
    files: list[FileFacts] = []
    order_facts = OrderFacts(0, 0, 0, 0, 0, 0, 0, 0)
    if orders:
        text, order_facts, missing_fields = _orders(
            random.Random(f"orders {seed}"), orders, chosen, told
        )
        (out / "orders_dirty.csv").write_bytes(text.encode("utf-8"))
        files.append(
            FileFacts(
                "orders_dirty.csv",
                "ingested",
                "orders",
                "utf-8",
                orders=orders,
                corrupt=missing_fields,
            )
        )
    pages = _Pages(random.Random(f"pages {seed}"), chosen, told)
    if entries:
        pages.write(out, entries)
        files.extend(pages.files)
    return Manifest(
        seed=seed,
        files=tuple(sorted(files, key=lambda facts: facts.name)),
        faults=dict(told),
        orders=order_facts,
        placsp=pages.facts(None),
        placsp_by_dataset={feed.dataset: pages.facts(feed.dataset) for feed in _FEEDS},
    )


def _chosen(faults: bool | Sequence[str]) -> tuple[str, ...]:
    if isinstance(faults, bool):
        return FAULTS if faults else ()
    unknown = [name for name in faults if name not in FAULTS]
    if unknown:
        raise InputError(
            f"Unknown fault {', '.join(map(repr, unknown))}. Nothing was written. Faults of orders:"
            f" {', '.join(ORDER_FAULTS)}. Faults of entries: {', '.join(ENTRY_FAULTS)}. Faults of "
            f"pages: {', '.join(PAGE_FAULTS)}. 'all' and 'none' mean all and none of them."
        )
    return tuple(name for name in FAULTS if name in faults)


# --- Orders ---------------------------------------------------------------------------------------

_CHANNELS = ("web", "phone", "shop", "partner")
_NOTES = ("", "", "deliver in the morning", "gift", "call first", "leave at the door")
_ACCENTS = (
    "Entrega por la mañana",
    "Año nuevo: sin prisa",
    "Façade grüner Weg",
    "Não tocar à porta",
)


def _orders(
    rng: random.Random, rows: int, chosen: Sequence[str], told: Counter[str]
) -> tuple[str, OrderFacts, int]:
    """The text of the order file, its known numbers, and rows with a wrong number of fields."""
    kinds: list[str] = []
    room = rows // 2
    for name in chosen:
        if name in ORDER_FAULTS and room:
            share = _ORDER_SHARE.get(name, _ORDER_SHARE_ELSE)
            number = min(max(1, rows * share // 1000), room)
            kinds.extend([name] * number)
            room -= number
    repeats = [name for name in kinds if name in ("exact_repeat", "corrected_repeat")]
    in_place = [name for name in kinds if name not in ("exact_repeat", "corrected_repeat")]
    first_rows = rows - len(repeats)
    places = rng.sample(range(first_rows), len(in_place))
    kind_at = dict(zip(places, in_place, strict=True))
    # Half of the rows at least are plain, so there is a plain row for each repeat.
    plain = [index for index in range(first_rows) if index not in kind_at]
    repeated = dict(zip(rng.sample(plain, len(repeats)), repeats, strict=True))
    lines: list[tuple[int, int, str]] = []
    for index in range(first_rows):
        values = _order(rng, index)
        kind = kind_at.get(index)
        lines.append((index, 0, _order_line(values, kind, rng) if kind else ",".join(values)))
        if index in repeated:
            if repeated[index] == "corrected_repeat":
                at = datetime.strptime(values[4], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
                values[4] = f"{at + timedelta(days=1):%Y-%m-%d %H:%M:%S}"
                values[3] = str(int(values[3]) + 1)
            # The repeat comes anywhere after its first.
            lines.append((rng.randrange(index, first_rows), 1 + index, ",".join(values)))
    lines.sort()
    told.update(kinds)
    number_of = Counter(kinds)
    refused = Counter(ORDER_FAULTS[name] for name in kinds)
    accepted = rows - refused["parse"] - refused["qty"]
    facts = OrderFacts(
        rows=rows,
        parse_refused=refused["parse"],
        out_of_range=number_of["ts_year_0001"],
        qty_refused=refused["qty"],
        accepted=accepted,
        current=accepted - len(repeats),
        superseded=number_of["corrected_repeat"],
        duplicates=number_of["exact_repeat"],
    )
    text = "\n".join((",".join(ORDER_COLUMNS), *(line for _, _, line in lines))) + "\n"
    return text, facts, number_of["missing_field"] + number_of["extra_field"]


def _order(rng: random.Random, index: int) -> list[str]:
    at = datetime(2024, 5, 1, tzinfo=UTC) + timedelta(seconds=7 * index + rng.randrange(7))
    return [
        f"O{index + 1:08d}",
        f"C{rng.randrange(100_000):05d}",
        f"SKU-{rng.randrange(10_000):04d}",
        str(rng.randrange(1, 100)),
        f"{at:%Y-%m-%d %H:%M:%S}",
        rng.choice(_CHANNELS),
        rng.choice(_NOTES),
    ]


def _order_line(values: list[str], kind: str, rng: random.Random) -> str:
    """The line of an order that is broken, or written, in one way."""
    order = dict(zip(ORDER_COLUMNS, values, strict=True))
    note = order["note"] or "fragile"
    other_format = datetime.strptime(order["order_ts"], "%Y-%m-%d %H:%M:%S").strftime("%d/%m/%Y %H:%M")
    changes = {
        "qty_text": {"qty": "two"},
        "qty_decimal_comma": {"qty": '"1,5"'},
        "qty_empty": {"qty": ""},
        "qty_zero": {"qty": "0"},
        "qty_negative": {"qty": f"-{order['qty']}"},
        "qty_padded": {"qty": f"  {order['qty']} "},
        "ts_other_format": {"order_ts": other_format},
        "ts_impossible_day": {"order_ts": "2024-02-31 " + order["order_ts"][11:]},
        "ts_year_0001": {"order_ts": "0001-01-01 00:00:00"},
        "extra_field": {"note": f"{note}, please"},
        "quoted_comma": {"note": f'"{note}, please"'},
        "doubled_quotes": {"note": f'"the ""{note}"" one"'},
        "quoted_line_break": {"note": f'"{note}\nsecond line, with a comma"'},
        "accents": {"note": rng.choice(_ACCENTS)},
    }
    order.update(changes.get(kind, {}))
    if kind == "missing_field":
        del order["channel"]
    return ",".join(order.values())


# --- Pages ----------------------------------------------------------------------------------------


@dataclass
class _Element:
    """An XML element: text or children."""

    tag: str
    content: str | list[_Element] = ""
    attributes: dict[str, str] = field(default_factory=dict)

    def render(self, indent: int | None) -> str:
        """The element's text; pretty with four blanks a level, or on one line."""
        attributes = "".join(f" {name}={quoteattr(v)}" for name, v in self.attributes.items())
        if not self.content:
            return f"<{self.tag}{attributes}/>"
        if isinstance(self.content, str):
            return f"<{self.tag}{attributes}>{escape(self.content)}</{self.tag}>"
        if indent is None:
            inside = "".join(child.render(None) for child in self.content)
        else:
            pad = "\n" + "    " * (indent + 1)
            inside = "".join(pad + child.render(indent + 1) for child in self.content)
            inside += "\n" + "    " * indent
        return f"<{self.tag}{attributes}>{inside}</{self.tag}>"

    def child(self, *tags: str) -> _Element:
        """The first descendant by a path of tags."""
        element = self
        for tag in tags:
            assert isinstance(element.content, list)
            element = next(c for c in element.content if c.tag == tag)
        return element

    @property
    def children(self) -> list[_Element]:
        assert isinstance(self.content, list)
        return self.content


def _code(tag: str, value: str, code_list: str) -> _Element:
    return _Element(tag, value, {"listURI": f"{_LISTS}/{code_list}.gc"})


def _amount(tag: str, cents: int) -> _Element:
    whole, rest = divmod(cents, 100)
    text = f"{whole}.{rest:02d}".rstrip("0").rstrip(".")
    return _Element(tag, text, {"currencyID": "EUR"})


def _party_id(scheme: str, value: str) -> _Element:
    return _Element("cac:PartyIdentification", [_Element("cbc:ID", value, {"schemeName": scheme})])


def _party_name(name: str) -> _Element:
    return _Element("cac:PartyName", [_Element("cbc:Name", name)])


@dataclass(frozen=True)
class _Style:
    """How pages of some years are written."""

    year: int
    pretty: bool
    tombstones_on_feed: bool
    absolute_links: bool


_OLD = _Style(2021, pretty=True, tombstones_on_feed=False, absolute_links=False)
_NEW = _Style(2024, pretty=False, tombstones_on_feed=True, absolute_links=True)

_WORKS = ("Limpieza", "Suministro", "Conservación", "Señalización", "Mantenimiento", "Reparación")
_THINGS = ("de equipos de ejemplo", "de la vía de prueba", "del edificio inventado", "& accesorios")
_CPVS = ("03110000", "09310000", "45233223", "79140000", "90910000")


class _Written(NamedTuple):
    """A sound entry as it was written: what decides what becomes of it."""

    dataset: str
    entry_id: str
    updated: datetime
    digest: str


class _Pages:
    """Writes the pages of all feeds and keeps the numbers."""

    def __init__(self, rng: random.Random, chosen: Sequence[str], told: Counter[str]) -> None:
        self._rng = rng
        self._chosen = frozenset(chosen)
        self._told = told
        self._written: list[_Written] = []
        self._deleted: list[tuple[str, str, datetime]] = []
        self._quarantined: Counter[str] = Counter()
        self._out = Path()
        self.files: list[FileFacts] = []

    def write(self, out: Path, entries: int) -> None:
        """Write all pages."""
        self._out = out
        tenths = 0
        for feed in _FEEDS:
            # Cumulative, so that the parts add up to the whole.
            first = entries * tenths // 10
            tenths += feed.share
            self._feed(feed, entries * tenths // 10 - first)
        self._faulty_page()
        self._other_pages()

    def facts(self, dataset: str | None) -> EntryFacts:
        """The known numbers of one dataset, or of all."""
        files = [f for f in self.files if f.status == "ingested" and dataset in (None, f.dataset)]
        written = [w for w in self._written if dataset in (None, w.dataset)]
        quarantined = sum(n for d, n in self._quarantined.items() if dataset in (None, d))
        deleted: dict[tuple[str, str], datetime] = {}
        for name, ref, when in self._deleted:
            deleted[name, ref] = max(when, deleted.get((name, ref), when))
        newest: dict[tuple[str, str], datetime] = {}
        for entry in written:
            key = (entry.dataset, entry.entry_id)
            newest[key] = max(entry.updated, newest.get(key, entry.updated))
        distinct = len(set(written))
        withdrawn = sum(1 for key, at in newest.items() if key in deleted and deleted[key] >= at)
        return EntryFacts(
            entries=sum(f.entries for f in files),
            tombstones=sum(f.tombstones for f in files),
            corrupt=sum(f.corrupt for f in files),
            quarantined=quarantined,
            accepted=len(written),
            current=len(newest) - withdrawn,
            superseded=distinct - len(newest),
            duplicates=len(written) - distinct,
            withdrawn=withdrawn,
        )

    def _feed(self, feed: _Feed, entries: int) -> None:
        """The older half of a feed's ids in the old style, the newer half in the new one."""
        old = list(range(entries // 2))
        new = list(range(entries // 2, entries))
        old_entries = [self._entry(feed, number, _OLD, 1) for number in old]
        tombstones = [self._tombstone(feed, 900_001, _OLD, None)]
        if len(old) > 1:
            tombstones.append(self._tombstone(feed, old[1], _OLD, None))
        if len(old) > 2:
            # Deleted, and then published again in the newer pages.
            tombstones.append(self._tombstone(feed, old[2], _OLD, None))
        new_entries = [self._entry(feed, number, _NEW, 1) for number in new]
        new_entries += [self._entry(feed, number, _NEW, 2) for number in old[2::5]]
        if new:
            # An exact repeat in one page.
            new_entries.append(new_entries[0])
        new_tombstones = [self._tombstone(feed, 900_002, _NEW, "CERRADA")]
        if len(new) > 1:
            new_tombstones.append(self._tombstone(feed, new[1], _NEW, "ANULADA"))
        for style, items, deletions in (
            (_OLD, old_entries, tombstones),
            (_NEW, new_entries, new_tombstones),
        ):
            for part in range(0, max(len(items), 1), _ENTRIES_PER_PAGE):
                self._page(
                    feed,
                    f"{feed.prefix}_{style.year}0102_{30000 + part // _ENTRIES_PER_PAGE:06d}.atom",
                    style,
                    items[part : part + _ENTRIES_PER_PAGE],
                    deletions if part == 0 else [],
                )

    def _faulty_page(self) -> None:
        """One page with a sound entry before and after each entry that has a fault."""
        names = [name for name in ENTRY_FAULTS if name in self._chosen]
        if not names:
            return
        feed = _BY_DATASET["licitaciones"]
        style = _Style(2024, pretty=True, tombstones_on_feed=True, absolute_links=True)
        texts: list[str] = []
        corrupt = 0
        for place, name in enumerate(names):
            sound = self._entry(feed, 500_000 + 2 * place, style, 1)
            texts.append(self._sound(feed, sound, style))
            broken = self._entry(feed, 500_001 + 2 * place, style, 1)
            _break(broken, name)
            text = broken.render(1)
            if name == "unclosed_tag":
                text = text.replace("</cbc:ContractFolderID>", "", 1)
            if ENTRY_FAULTS[name] == "warned":
                self._note(feed, broken, text)
            else:
                self._quarantined[feed.dataset] += 1
                corrupt += ENTRY_FAULTS[name] == "corrupt"
            self._told[name] += 1
            texts.append(text)
        texts.append(self._sound(feed, self._entry(feed, 500_000 + 2 * len(names), style, 1), style))
        name = f"{feed.prefix}_20240601_030000.atom"
        self._write(name, self._page_text(feed, name, style, texts, []), "utf-8")
        self.files.append(
            FileFacts(name, "ingested", feed.dataset, "utf-8", entries=len(texts), corrupt=corrupt)
        )

    def _other_pages(self) -> None:
        """Pages that are broken, or written in another encoding, as a whole."""
        style = _NEW
        if "truncated_page" in self._chosen:
            feed = _BY_DATASET["menores"]
            name = f"{feed.prefix}_20240602_030000.atom"
            pretty = _Style(2024, pretty=True, tombstones_on_feed=True, absolute_links=True)
            sound = [self._entry(feed, 600_000 + i, pretty, 1) for i in range(2)]
            texts = [self._sound(feed, entry, pretty) for entry in sound]
            texts.append(self._entry(feed, 600_002, pretty, 1).render(1))
            text = self._page_text(feed, name, pretty, texts, [])
            self._write(name, text[: text.rindex("</cbc:ContractFolderID>") - 2], "utf-8")
            self._quarantined[feed.dataset] += 1
            self.files.append(FileFacts(name, "ingested", "menores", "utf-8", entries=3, corrupt=1))
            self._told["truncated_page"] += 1
        for fault, dataset, encoding, declared in (
            ("latin1_page", "agregadas", "iso-8859-1", "ISO-8859-1"),
            ("utf16_page", "consultas", "utf-16-le", "UTF-16"),
        ):
            if fault in self._chosen:
                feed = _BY_DATASET[dataset]
                name = f"{feed.prefix}_20240603_030000.atom"
                entries = [self._entry(feed, 700_000 + i, style, 1) for i in range(2)]
                self._page(feed, name, style, entries, [], encoding, declared)
                self._told[fault] += 1
        if "html_page" in self._chosen:
            name = "contratosMenoresPerfilesContratantes_20240604_030000.atom"
            self._write(
                name,
                "<!DOCTYPE html>\n<html><head><title>503</title></head><body><p>The service is not "
                "available.</p></body></html>\n",
                "utf-8",
            )
            self.files.append(FileFacts(name, "failed"))
            self._told["html_page"] += 1
        if "empty_page" in self._chosen:
            name = "EMP_SectorPublico_20240605_030000.atom"
            self._write(name, "", "utf-8")
            self.files.append(FileFacts(name, "failed"))
            self._told["empty_page"] += 1
        if "unclaimed_file" in self._chosen:
            self._write("README.txt", "Samples. No contract claims this file.\n", "utf-8")
            self.files.append(FileFacts("README.txt", "ignored"))
            self._told["unclaimed_file"] += 1

    def _page(
        self,
        feed: _Feed,
        name: str,
        style: _Style,
        entries: Sequence[_Element],
        tombstones: Sequence[_Element],
        encoding: str = "utf-8",
        declared: str = "UTF-8",
    ) -> None:
        texts = [self._sound(feed, entry, style) for entry in entries]
        deletions = [tombstone.render(1 if style.pretty else None) for tombstone in tombstones]
        text = self._page_text(feed, name, style, texts, deletions, declared)
        self._write(name, text, encoding)
        self.files.append(
            FileFacts(
                name,
                "ingested",
                feed.dataset,
                encoding,
                entries=len(texts),
                tombstones=len(deletions),
            )
        )

    def _page_text(
        self,
        feed: _Feed,
        name: str,
        style: _Style,
        entries: Sequence[str],
        tombstones: Sequence[str],
        declared: str = "UTF-8",
    ) -> str:
        base = f"{_SITE}/sindicacion_{feed.number}/"
        head_page = f"{feed.prefix}.atom"
        older = f"{feed.prefix}_{style.year - 1}1231_030000.atom"
        prefix = base if style.absolute_links else ""
        links = [
            _Element("link", "", {"href": prefix + name, "rel": "self"}),
            _Element("link", "", {"href": prefix + head_page, "rel": "first"}),
            # Attributes come in any order.
            _Element("link", "", {"rel": "next", "href": prefix + older}),
        ]
        head = [
            _Element("author", [_Element("name", "Example platform"), _Element("uri", _SITE)]),
            _Element("id", base + head_page),
            *links,
            _Element("title", f"Sample of {feed.dataset}, all of it invented"),
            _Element("updated", f"{style.year}-01-02T03:00:12.506+01:00"),
        ]
        namespaces = dict(_NAMESPACES)
        if style.tombstones_on_feed:
            namespaces["xmlns:at"] = _TOMBSTONES
        attributes = "".join(f' {key}="{value}"' for key, value in namespaces.items())
        parts = [element.render(1 if style.pretty else None) for element in head]
        parts += [*tombstones, *entries]
        between = "\n    " if style.pretty else ""
        opening = f'<?xml version="1.0" encoding="{declared}" standalone="yes"?>\n<feed{attributes}>'
        return opening + between + between.join(parts) + ("\n" if style.pretty else "") + "</feed>\n"

    def _write(self, name: str, text: str, encoding: str) -> None:
        mark = b"\xff\xfe" if encoding == "utf-16-le" else b""
        (self._out / name).write_bytes(mark + text.encode(encoding))

    def _sound(self, feed: _Feed, entry: _Element, style: _Style) -> str:
        text = entry.render(1 if style.pretty else None)
        self._note(feed, entry, text)
        return text

    def _note(self, feed: _Feed, entry: _Element, text: str) -> None:
        entry_id, updated = entry.child("id").content, entry.child("updated").content
        assert isinstance(entry_id, str)
        assert isinstance(updated, str)
        digest = hashlib.sha256(text.encode()).hexdigest()
        at = datetime.fromisoformat(updated)
        self._written.append(_Written(feed.dataset, entry_id, at, digest))

    def _tombstone(self, feed: _Feed, number: int, style: _Style, comment: str | None) -> _Element:
        when = f"{style.year}-02-01T12:00:00.250+01:00"
        ref = _entry_id(feed, number)
        self._deleted.append((feed.dataset, ref, datetime.fromisoformat(when)))
        attributes = {"ref": ref, "when": when}
        if not style.tombstones_on_feed:
            attributes["xmlns:at"] = _TOMBSTONES
        content = [_Element("at:comment", "", {"type": comment})] if comment else ""
        return _Element("at:deleted-entry", content, attributes)

    def _entry(self, feed: _Feed, number: int, style: _Style, version: int) -> _Element:
        """A sound entry. A second version is newer than any of the old style."""
        rng = self._rng
        name = f"{rng.choice(_WORKS)} {rng.choice(_THINGS)} {number}"
        zone = timezone(timedelta(hours=1))
        at = datetime(style.year, 1, 2, 9, tzinfo=zone) + timedelta(
            seconds=number % 86_400, milliseconds=rng.randrange(1000)
        )
        head = [
            _Element("id", _entry_id(feed, number)),
            _Element("link", "", {"href": f"https://example.org/detalle?id={number}&v={version}"}),
            _Element("summary", f"Id: {number}/{style.year}; {name}", {"type": "text"}),
            _Element("title", name),
            _Element("updated", at.isoformat(timespec="milliseconds")),
        ]
        if feed.dataset == "consultas":
            body = self._consultation(name, number, style)
        else:
            body = self._folder(feed, name, number, style)
        return _Element("entry", [*head, body])

    def _buyer(self, number: int) -> _Element:
        return _Element(
            "cac-place-ext:LocatedContractingParty",
            [
                _code("cbc:ContractingPartyTypeCode", "3", "ContractingAuthorityCode-2.10"),
                _Element(
                    "cac:Party",
                    [
                        _party_id("DIR3", f"L{number % 10**8:08d}"),
                        _party_id("NIF", f"P{number % 10**7:07d}A"),
                        _party_name(f"Diputación de Ejemplo {number % 50}"),
                        _Element(
                            "cac:PostalAddress",
                            [
                                _Element("cbc:CityName", "Ejemplo"),
                                _Element("cbc:PostalZone", f"0{number % 10000:04d}"),
                            ],
                        ),
                    ],
                ),
                _Element(
                    "cac-place-ext:ParentLocatedParty",
                    [
                        _party_name("Provincia de Ejemplo"),
                        _Element("cac-place-ext:ParentLocatedParty", [_party_name("Sector de Ejemplo")]),
                    ],
                ),
            ],
        )

    def _classifications(self, number: int) -> Iterator[_Element]:
        for code in _CPVS[: 1 + number % 2]:
            yield _Element(
                "cac:RequiredCommodityClassification",
                [_code("cbc:ItemClassificationCode", code, "CPV2008-2.04")],
            )

    def _folder(self, feed: _Feed, name: str, number: int, style: _Style) -> _Element:
        rng = self._rng
        cents = rng.randrange(100_000, 50_000_000)
        has_lots = feed.dataset == "licitaciones" and number % 3 == 0
        status = rng.choice(("PUB", "EV", "ADJ", "RES"))
        children = [
            _Element("cbc:ContractFolderID", f"{number}/{style.year}"),
            _Element(
                "cbc-place-ext:ContractFolderStatusCode",
                status,
                {
                    "languageID": "es",
                    "listURI": f"{_LISTS}/SyndicationContractFolderStatusCode-2.04.gc",
                },
            ),
            self._buyer(number),
            _Element(
                "cac:ProcurementProject",
                [
                    _Element("cbc:Name", name),
                    _code("cbc:TypeCode", rng.choice("123"), "ContractCode-2.08"),
                    _Element(
                        "cac:BudgetAmount",
                        [
                            _amount("cbc:EstimatedOverallContractAmount", cents),
                            _amount("cbc:TotalAmount", cents * 121 // 100),
                            _amount("cbc:TaxExclusiveAmount", cents),
                        ],
                    ),
                    *self._classifications(number),
                    _Element(
                        "cac:RealizedLocation",
                        [_code("cbc:CountrySubentityCode", "ES300", "NUTS-2021")],
                    ),
                    _Element(
                        "cac:PlannedPeriod",
                        [
                            _Element("cbc:StartDate", f"{style.year}-03-01+01:00"),
                            _Element("cbc:EndDate", f"{style.year + 1}-02-28+01:00"),
                        ],
                    ),
                ],
            ),
        ]
        lots = ("1", "2") if has_lots else ()
        for lot in lots:
            children.append(
                _Element(
                    "cac:ProcurementProjectLot",
                    [
                        _Element("cbc:ID", lot, {"schemeName": "ID_LOTE"}),
                        _Element(
                            "cac:ProcurementProject",
                            [
                                _Element("cbc:Name", f"{name}, lote {lot}"),
                                _Element(
                                    "cac:BudgetAmount",
                                    [
                                        _amount("cbc:TotalAmount", cents * 121 // 200),
                                        _amount("cbc:TaxExclusiveAmount", cents // 2),
                                    ],
                                ),
                                *self._classifications(number),
                            ],
                        ),
                    ],
                )
            )
        children.extend(self._result(number, style, cents // 2, lot) for lot in lots or ("",))
        children.append(
            _Element(
                "cac:TenderingProcess",
                [_code("cbc:ProcedureCode", "1", "SyndicationTenderingProcessCode-2.07")],
            )
        )
        return _Element("cac-place-ext:ContractFolderStatus", children)

    def _result(self, number: int, style: _Style, cents: int, lot: str) -> _Element:
        awarded = [
            _Element(
                "cac:LegalMonetaryTotal",
                [
                    _amount("cbc:TaxExclusiveAmount", cents),
                    _amount("cbc:PayableAmount", cents * 121 // 100),
                ],
            )
        ]
        if lot:
            awarded.insert(0, _Element("cbc:ProcurementProjectLotID", lot))
        return _Element(
            "cac:TenderResult",
            [
                _code("cbc:ResultCode", "8", "TenderResultCode-2.09"),
                _Element("cbc:AwardDate", f"{style.year}-02-{1 + number % 28:02d}"),
                _Element("cbc:ReceivedTenderQuantity", str(1 + number % 5)),
                _Element(
                    "cac:WinningParty",
                    [
                        _party_id("NIF", f"B{number % 10**8:08d}"),
                        _party_name(f"Empresa de Ejemplo {number}, S.L."),
                    ],
                ),
                _Element("cac:AwardedTenderedProject", awarded),
            ],
        )

    def _consultation(self, name: str, number: int, style: _Style) -> _Element:
        return _Element(
            "cac-place-ext:PreliminaryMarketConsultationStatus",
            [
                _Element("cbc:PreliminaryMarketConsultationID", f"CPM {number}/{style.year}"),
                _Element(
                    "cbc-place-ext:PreliminaryMarketConsultationStatusCode",
                    "PUB",
                    {
                        "languageID": "es",
                        "listURI": f"{_LISTS}/PreliminaryMarketConsultationStatusCode-2.09.gc",
                    },
                ),
                _Element("cbc:ConsultationName", name),
                _Element("cbc:PlannedDate", f"{style.year}-01-10"),
                _Element("cbc:LimitDate", f"{style.year}-02-10"),
                self._buyer(number),
                _Element(
                    "cac:ProcurementProject",
                    [
                        _Element("cbc:Name", name),
                        _code("cbc:TypeCode", "2", "ContractCode-2.08"),
                        *self._classifications(number),
                    ],
                ),
            ],
        )


def _entry_id(feed: _Feed, number: int) -> str:
    return f"{_SITE}/{feed.path}/{1_000_000 + number}"


def _break(entry: _Element, fault: str) -> None:
    """Put one fault into a sound entry of a contract folder."""
    folder = entry.child("cac-place-ext:ContractFolderStatus")
    project = folder.child("cac:ProcurementProject")
    result = folder.child("cac:TenderResult")
    match fault:
        case "missing_id":
            entry.children.remove(entry.child("id"))
        case "missing_updated":
            entry.children.remove(entry.child("updated"))
        case "updated_not_an_instant":
            entry.child("updated").content = "ayer por la tarde"
        case "amount_with_comma":
            project.child("cac:BudgetAmount", "cbc:TotalAmount").content = "1.234,56"
        case "unknown_element":
            project.children.append(_Element("cbc:InventedNote", "not in the schema"))
        case "repeated_scalar":
            folder.children.insert(1, _Element("cbc:ContractFolderID", "a second id"))
        case "award_year_0020":
            result.child("cbc:AwardDate").content = "0020-02-14"
        case "end_year_4020":
            project.child("cac:PlannedPeriod", "cbc:EndDate").content = "4020-12-31"
        case "bad_nif":
            result.child("cac:WinningParty", "cac:PartyIdentification", "cbc:ID").content = "UTE 17"
