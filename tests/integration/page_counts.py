"""What pages hold beside what a lake made of them: counts and sums of amounts, by dataset.

The pages are read with Python's own parser: no Spark, no dbt, and nothing of ingest's. Every element is
to be in Silver (the current version), in history (superseded, or an exact repeat) or in a quarantine.

    .venv/bin/python tests/integration/page_counts.py <folder of pages> <lake>
"""

from __future__ import annotations

import hashlib
import re
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import duckdb
from rich import box
from rich.console import Console
from rich.table import Table

from ingest.query import connect, literals

ENTRY = "{http://www.w3.org/2005/Atom}entry"
BUDGET = "{*}ProcurementProject/{*}BudgetAmount/"
AWARD = "{*}AwardedTenderedProject/{*}LegalMonetaryTotal/"
# Per table: the elements that are a row each, wherever they stand in an entry, and amounts under them.
ELEMENTS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "placsp_lots": (
        ("ProcurementProjectLot",),
        {
            "budget_tax_exclusive_amount": BUDGET + "{*}TaxExclusiveAmount",
            "budget_total_amount": BUDGET + "{*}TotalAmount",
        },
    ),
    "placsp_results": (
        ("TenderResult",),
        {
            "tax_exclusive_amount": AWARD + "{*}TaxExclusiveAmount",
            "payable_amount": AWARD + "{*}PayableAmount",
            "lowest_tender_amount": "{*}LowerTenderAmount",
            "highest_tender_amount": "{*}HigherTenderAmount",
        },
    ),
    "placsp_winners": (("WinningParty",), {}),
    "placsp_buyers": (("LocatedContractingParty",), {}),
    "placsp_cpv": (("RequiredCommodityClassification",), {}),
    "placsp_documents": (
        (
            "LegalDocumentReference",
            "TechnicalDocumentReference",
            "AdditionalDocumentReference",
            "GeneralDocumentDocumentReference",
        ),
        {},
    ),
    "placsp_criteria": (("AwardingCriteria",), {}),
    "placsp_guarantees": (
        ("RequiredFinancialGuarantee",),
        {"liability_amount": "{*}LiabilityAmount"},
    ),
    "placsp_modifications": (
        ("ContractModification",),
        {
            "tax_exclusive_amount": "{*}ContractModificationLegalMonetaryTotal/{*}TaxExclusiveAmount",
            "final_tax_exclusive_amount": "{*}FinalLegalMonetaryTotal/{*}TaxExclusiveAmount",
        },
    ),
    "placsp_funding": (("FundingProgramCode", "FundingProgram"), {}),
    "placsp_consultations": (("PreliminaryMarketConsultationStatus",), {}),
}
ENTRY_AMOUNTS = {
    "estimated_overall_amount": "EstimatedOverallContractAmount",
    "budget_tax_exclusive_amount": "TaxExclusiveAmount",
    "budget_total_amount": "TotalAmount",
}
# Documents that stand with notices have a shape of their own; they are counted as notices are.
ASIDE = {"placsp_documents": "document_kind not in ('notice', 'consultation')"}
# What an amount must look like to be one; others are refused and in no sum.
AMOUNT = re.compile(r"[+-]?[0-9]{1,17}([.][0-9]{1,2}0*)?")

# A table, and `rows` or one of its amounts.
Item = tuple[str, str]
Amounts = defaultdict[Item, Decimal]
# By dataset and place.
Found = defaultdict[tuple[str, str], Amounts]
PLACES = ("pages", "shown", "superseded", "repeated", "refused", "in refused entries")


@dataclass(frozen=True)
class Line:
    """Of one dataset and item: how much the pages hold, and how much of it is where in the lake."""

    dataset: str
    item: Item
    amounts: dict[str, Decimal]

    @property
    def missing(self) -> Decimal:
        """What is nowhere; below zero what is there twice."""
        return self.amounts["pages"] - sum(self.amounts[place] for place in PLACES[1:])


@dataclass(frozen=True)
class Comparison:
    """All lines, and the pages that could not be counted or are not in the lake."""

    lines: list[Line]
    not_well_formed: list[Path]
    not_in_lake: list[Path]


def compare(pages: Iterable[Path], lake: Path) -> Comparison:
    """Count pages, and what a lake holds of them."""
    held: dict[tuple[str, int], Amounts] = {}
    names: dict[str, Path] = {}
    broken = []
    for page in pages:
        content = page.read_bytes()
        try:
            root = ET.fromstring(content)
        except ET.ParseError:
            broken.append(page)
            continue
        sha256 = hashlib.sha256(content).hexdigest()
        names[sha256] = page
        for position, entry in enumerate(root.iter(ENTRY), start=1):
            held[sha256, position] = in_entry(entry)
    with connect(lake) as connection:
        return _compare(connection, held, names, broken)


def in_entry(entry: ET.Element) -> Amounts:
    """How many rows of each table an entry holds, and the sums of its amounts."""
    found: Amounts = defaultdict(Decimal)
    found["placsp_entries", "rows"] = Decimal(1)
    for column, name in ENTRY_AMOUNTS.items():
        path = "{*}ContractFolderStatus/" + BUDGET + "{*}" + name
        found["placsp_entries", column] += _sum(entry, path)
    for table, (tags, amounts) in ELEMENTS.items():
        for element in (element for tag in tags for element in entry.iterfind(".//{*}" + tag)):
            found[table, "rows"] += 1
            for column, path in amounts.items():
                found[table, column] += _sum(element, path)
    return found


def _sum(element: ET.Element, path: str) -> Decimal:
    # Blanks and line breaks around a text are of XML; a no-break space is not.
    texts = [(each.text or "").strip(" \t\r\n") for each in element.iterfind(path)]
    return sum((Decimal(text) for text in texts if AMOUNT.fullmatch(text)), Decimal(0))


def _compare(
    connection: duckdb.DuckDBPyConnection,
    held: dict[tuple[str, int], Amounts],
    names: dict[str, Path],
    broken: list[Path],
) -> Comparison:
    known = connection.execute("select distinct file_sha256 from bronze.files where status = 'ingested'")
    in_lake = {sha256 for (sha256,) in known.fetchall()}
    connection.execute(
        f"""
        create temp table records as
        select _file_sha256, _position, _record_id as record_id, judged._dataset as dataset,
          coalesce(disposition, 'refused') as place
        from silver.placsp_entries_judged as judged
        left join silver.placsp_entries_dispositions using (_record_id)
        where _file_sha256 in (select unnest({literals(names)}))
          and _verdict_pass = (select max(_verdict_pass) from silver.placsp_entries_judged)
        """
    )
    found: Found = defaultdict(lambda: defaultdict(Decimal))
    rows = connection.execute("select _file_sha256, _position, dataset, place from records").fetchall()
    for sha256, position, dataset, place in rows:
        # A record that the pages do not hold is one too many, and shows as such.
        entry = held.pop((sha256, position), {})
        for item, amount in entry.items():
            found[dataset, "pages"][item] += amount
            if place == "refused":
                found[dataset, "in refused entries"][item] += amount
    for (sha256, _), entry in held.items():
        for item, amount in entry.items() if sha256 in in_lake else ():
            found["(no record)", "pages"][item] += amount
    _entries(connection, found)
    for table, (_, sums) in ELEMENTS.items():
        _children(connection, found, table, list(sums))
    items = [("placsp_entries", name) for name in ("rows", *ENTRY_AMOUNTS)]
    items += [(table, name) for table, (_, sums) in ELEMENTS.items() for name in ("rows", *sums)]
    lines = [
        Line(dataset, item, {place: found[dataset, place][item] for place in PLACES})
        for dataset in sorted({dataset for dataset, _ in found})
        for item in items
    ]
    return Comparison(
        [line for line in lines if any(line.amounts.values())],
        broken,
        [page for sha256, page in names.items() if sha256 not in in_lake],
    )


def _entries(connection: duckdb.DuckDBPyConnection, found: Found) -> None:
    """Add what the lake holds of the entries themselves."""
    sums = ", ".join(["count(*)", *(f"sum({column})" for column in ENTRY_AMOUNTS)])
    select, records = f"select records.dataset, {sums}", "join records using (record_id)"
    judged = "(select *, _record_id as record_id from silver.placsp_entries_judged)"
    newest = "_verdict_pass = (select max(_verdict_pass) from silver.placsp_entries_judged)"
    for place, query in {
        "shown": f"{select} from silver.placsp_entries {records}",
        "superseded": f"{select} from silver.placsp_entry_versions {records} where is_superseded",
        "repeated": f"{select} from {judged} {records} where place = 'duplicate' and {newest}",
    }.items():
        _add(connection, found, place, "placsp_entries", list(ENTRY_AMOUNTS), query)


def _children(
    connection: duckdb.DuckDBPyConnection, found: Found, table: str, amounts: list[str]
) -> None:
    """Add what the lake holds of one table of children."""
    aside = ASIDE.get(table, "true")
    sums = ", ".join(["count(*)", *(f"sum({column})" for column in amounts)])
    select, records = f"select records.dataset, {sums}", "join records using (record_id)"
    held = (
        "(select record_id, child.failure_reasons, unnest(child.row) from "
        f"(select record_id, unnest({table}) as child from silver.placsp_entries_children))"
    )
    quarantined = (
        f"select record_id, ordinal from silver.placsp_children_quarantine where table_name = '{table}' "
        "and len(failure_reasons) > 0"
    )
    for place, query in {
        "shown": f"from silver.{table} {records} where {aside}",
        "superseded": f"from history.{table} {records} where is_superseded and {aside}",
        "repeated": f"from {held} {records} where place = 'duplicate' and len(failure_reasons) = 0 "
        f"and {aside}",
        "refused": f"from {held} join ({quarantined}) using (record_id, ordinal) {records} "
        f"where {aside}",
    }.items():
        _add(connection, found, place, table, amounts, f"{select} {query}")


def _add(
    connection: duckdb.DuckDBPyConnection,
    found: Found,
    place: str,
    table: str,
    amounts: list[str],
    query: str,
) -> None:
    for dataset, *values in connection.execute(f"{query} group by all").fetchall():
        for name, value in zip(("rows", *amounts), values, strict=True):
            found[dataset, place][table, name] += value or 0


def main(folder: str, lake: str) -> int:
    """Print the comparison; 0 where nothing is missing."""
    compared = compare(sorted(Path(folder).rglob("*.atom")), Path(lake))
    table = Table("dataset", "table", "what", box=box.SIMPLE_HEAD)
    for place in (*PLACES, "missing"):
        table.add_column(place, justify="right")
    for line in compared.lines:
        values = [*line.amounts.values(), line.missing]
        shape = ",.0f" if line.item[1] == "rows" else ",.2f"
        table.add_row(line.dataset, *line.item, *(format(value, shape) for value in values))
    console = Console(width=220)
    console.print(table)
    for what, pages in (
        ("not counted, no well-formed XML", compared.not_well_formed),
        ("not in the lake", compared.not_in_lake),
    ):
        for page in pages:
            console.print(f"{what}: {page}")
    missing = [line for line in compared.lines if line.missing]
    console.print(f"{len(missing)} of {len(compared.lines)} lines differ.")
    return 1 if missing or compared.not_in_lake or not compared.lines else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
