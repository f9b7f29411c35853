"""What a person sees at the end of a run: one table, the commonest reasons, where to look next."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ingest.query import connect, tables_named

log = logging.getLogger("lakehouse")
_COUNTS = """
select dataset, record_type, sum(found), sum(accepted), sum(quarantined), sum(warned),
  sum("duplicate"), count(distinct source_file)
from marts.reconciliation where status = 'ingested' and found > 0 group by all order by all
"""
_REASONS = """
with codes as (
  select record_type, unnest(failure_reasons) as code from marts.dead_letters where record_id is not null
)
select codes.record_type, codes.code, count(*) as records, any_value(rules.why)
from codes join marts.dim_rules as rules
  on codes.record_type = rules.record_type and codes.code = rules.rule_code
group by all order by records desc, codes.code limit 5
"""
_FILES = "select status, count(distinct source_file) from bronze.files group by all order by all"
_IGNORED = """
select distinct source_file from bronze.files where status = 'ignored' order by source_file limit 10
"""
_OFFENDERS = """
select law, record_type, sum(offenders) from marts.law_results where offenders > 0
group by all order by all
"""
# The dead letter of a list that is here by now stays, as evidence.
_MISSING_LISTS = """
select business_key from marts.dead_letters where error_type = 'CODE_LIST_MISSING'
except
select unnest([list_id, regexp_replace(cited_as, '-[^-]+$', '')]) from silver.codice_codes
order by all
"""

# What the summary reads: without these there is none.
TABLES = frozenset(
    {
        *(("marts", name) for name in ("dead_letters", "dim_rules", "law_results", "reconciliation")),
        ("silver", "codice_codes"),
    }
)


def print_summary(
    lake: Path, phases: Mapping[str, float], console: Console, *, laws_checked: bool = True
) -> None:
    """Print the summary of a lake as it is now, and warn of code lists that are missing.

    Args:
        lake: The lake's folder.
        phases: Seconds per phase of this run, in order.
        console: Where to.
        laws_checked: Whether the laws were checked on what the lake holds now.
    """
    asked = " ".join((_COUNTS, _REASONS, _FILES, _IGNORED, _OFFENDERS, _MISSING_LISTS))
    with connect(lake, tables_named(lake, asked)) as connection:
        counts = connection.execute(_COUNTS).fetchall()
        reasons = connection.execute(_REASONS).fetchall()
        files = connection.execute(_FILES).fetchall()
        ignored = [row[0] for row in connection.execute(_IGNORED).fetchall()]
        offenders = connection.execute(_OFFENDERS).fetchall()
        missing = [row[0] for row in connection.execute(_MISSING_LISTS).fetchall()]

    if missing:
        log.warning(
            "catalogue: %d code list(s) that records cite are not here, so their codes have no names: "
            "%s. Load their .gc files with 'lakehouse catalogue load' and run again. They lie in "
            "marts.dead_letters, stage catalogue.",
            len(missing),
            ", ".join(missing),
        )
    table = Table(title="Records in the lake")
    for name in ("dataset", "record type"):
        table.add_column(name)
    for name in ("found", "accepted", "quarantined", "warned", "duplicates", "files"):
        table.add_column(name, justify="right")
    for row in counts:
        table.add_row(str(row[0]), str(row[1]), *(f"{int(n):,}" for n in row[2:]))
    console.print(table)
    console.print("Files: " + (", ".join(f"{n} {status}" for status, n in files) or "none"))
    for name in ignored:
        console.print(f"  ignored, no contract claims it: {name}", soft_wrap=True)
    if reasons:
        console.print("Commonest reasons for refusal, of all that was ever refused:")
        for record_type, code, number, why in reasons:
            console.print(f"  {number:>6,}  {record_type} {code}: {why}", soft_wrap=True)
    if phases:
        times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in phases.items())
        console.print(f"Time: {times}")
    if not laws_checked:
        console.print("[bold]The laws were not checked[/bold], because of what failed.")
    elif offenders:
        console.print("[bold]Laws are broken[/bold]; marts.law_results names the offenders:")
        for law, record_type, number in offenders:
            console.print(f"  {law} ({record_type}): {int(number):,}")
    else:
        console.print("Every law holds: nothing lost, nothing doubled, nothing without a reason.")
    console.print(
        f"Look next: lakehouse sql --lake '{lake}' \"select stage, error_type, error_message from "
        f'marts.dead_letters limit 10"',
        soft_wrap=True,
    )
