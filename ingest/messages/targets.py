"""The configured targets: the source ``message_targets`` in the YAML beside the other contracts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructField, StructType

from ingest.contracts import Rule, document, rule_faults, rule_of, without_lines
from ingest.errors import ContractError
from ingest.messages.schemas import OUR_COLUMNS, column_count, name_conflict, parse_type

SOURCE = "message_targets"
"""Name of the dbt source whose tables are targets."""
QUARANTINE = "_quarantine"
"""What the table of refused rows is called after its target's name."""
_KEYS = {
    "version",
    "owner",
    "schema_window_minutes",
    "retry_minutes",
    "max_columns",
    "rules",
    "__line__",
}


@dataclass(frozen=True)
class Target:
    """A table that messages go to.

    Attributes:
        name: As messages name it, and the table in ``silver``.
        version: Of its contract.
        owner: Who is asked when its messages do not fit.
        schema: With which it begins, without the job's own columns.
        schema_window_minutes: For how long changes are gathered.
        retry_minutes: For how long a message that does not fit is retried.
        max_columns: How many columns of single values it may have.
        rules: What is refused of the rows that fit, in their order.
        terms_hash: Of the whole contract.
    """

    name: str
    version: str
    owner: str
    schema: StructType
    schema_window_minutes: int = 3
    retry_minutes: int = 15
    max_columns: int = 2000
    rules: tuple[Rule, ...] = ()
    terms_hash: str = ""

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables in ``silver`` that its messages stand in: one, or two if there are rules."""
        return (self.name, f"{self.name}{QUARANTINE}") if self.rules else (self.name,)

    @property
    def verdict_contract(self) -> str:
        """Version and hash of what decides a verdict."""
        return f"{self.version}+{self.terms_hash[:12]}"


def load_targets(folder: Path) -> dict[str, Target]:
    """Read the targets from a folder of dbt source YAML.

    Raises:
        ContractError: There is none, or one cannot work. All faults are named with file and line.
    """
    found: dict[str, Target] = {}
    faults: list[str] = []
    for path in sorted(folder.glob("*.yml")):
        for source in document(path).get("sources", []):
            for table in source.get("tables", []) if source.get("name") == SOURCE else ():
                if (table.get("config") or {}).get("meta", {}).get("quarantine_of"):
                    # Described for readers; what it holds follows from its target.
                    continue
                place = f"{path}:{table['__line__']}: target {table['name']}: "
                try:
                    found[table["name"]] = _target(table, path)
                except ContractError as error:
                    faults.append(place + str(error))
    if clash := sorted({n for t in found.values() for n in t.tables[1:]} & set(found)):
        faults.append(f"target {clash[0]}: another target's quarantine has that name. Rename it.")
    if faults:
        raise ContractError("Targets of messages that cannot work:\n  " + "\n  ".join(faults))
    if not found:
        raise ContractError(
            f"There is no target in {folder}. Add a table to the source {SOURCE}; "
            "docs/messages.md says how."
        )
    return found


def _target(table: Mapping[str, Any], path: Path) -> Target:
    terms = (table.get("config") or {}).get("meta", {}).get("target")
    if not isinstance(terms, Mapping):
        raise ContractError("it has no config.meta.target, which says owner and windows.")
    if unknown := sorted(set(terms) - _KEYS):
        raise ContractError(
            f"the key '{unknown[0]}' means nothing. Known are {', '.join(sorted(_KEYS))}."
        )
    for key in ("version", "owner"):
        if not terms.get(key):
            raise ContractError(f"it lacks {key}. Write it under config.meta.target.")
    numbers = {}
    for key in ("schema_window_minutes", "retry_minutes", "max_columns"):
        if key in terms:
            value = terms[key]
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ContractError(f"{key} is {value!r}. It must be a whole number from 1.")
            numbers[key] = value
    target = Target(
        name=str(table["name"]),
        version=str(terms["version"]),
        owner=str(terms["owner"]),
        schema=StructType(list(_columns(table.get("columns") or ()))),
        rules=_rules(terms.get("rules") or (), f"{path}:{{}}: target {table['name']}, "),
        terms_hash=hashlib.sha256(
            json.dumps(without_lines(table), sort_keys=True, default=str).encode()
        ).hexdigest(),
        **numbers,
    )
    if target.retry_minutes < target.schema_window_minutes:
        raise ContractError(
            f"retry_minutes is {target.retry_minutes} and schema_window_minutes "
            f"{target.schema_window_minutes}: no message would see its window end. Raise the former."
        )
    if column_count(target.schema) > target.max_columns:
        raise ContractError("it has more columns than its max_columns. Raise that.")
    return target


def _rules(terms: Any, where: str) -> tuple[Rule, ...]:
    rules = tuple(rule_of(rule) for rule in terms)
    faults = list(rule_faults(rules, where, ()))
    for rule in rules:
        place = f"{where.format(rule.line)}rule {rule.code}: "
        if rule.severity != "quarantine" or rule.stops:
            faults.append(
                place + "a target's rules have the severity quarantine and stop nothing: a row is in "
                "the table or in its quarantine."
            )
    if faults:
        raise ContractError("its rules cannot work:\n    " + "\n    ".join(faults))
    return rules


def _columns(columns: Any) -> Iterator[StructField]:
    seen: set[str] = set()
    for column in columns:
        name = str(column["name"])
        if name in OUR_COLUMNS:
            continue
        conflict = name_conflict(name, name, is_top=True)
        if conflict is not None:
            raise ContractError(f"column '{name}' cannot be: {conflict.message}.")
        if name.lower() in seen:
            raise ContractError(f"column '{name}' is there twice; Spark does not tell names by case.")
        seen.add(name.lower())
        if "data_type" not in column:
            raise ContractError(f"column '{name}' has no data_type. Write one, as in docs/messages.md.")
        yield StructField(name, parse_type(str(column["data_type"])))
