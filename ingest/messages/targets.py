"""The configured targets: the source ``message_targets`` in the YAML beside the other contracts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructField, StructType

from ingest.contracts import document
from ingest.errors import ContractError
from ingest.messages.schemas import OUR_COLUMNS, column_count, name_conflict, parse_type

SOURCE = "message_targets"
"""Name of the dbt source whose tables are targets."""
_KEYS = {"version", "owner", "schema_window_minutes", "retry_minutes", "max_columns", "__line__"}


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
    """

    name: str
    version: str
    owner: str
    schema: StructType
    schema_window_minutes: int = 3
    retry_minutes: int = 15
    max_columns: int = 2000


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
                place = f"{path}:{table['__line__']}: target {table['name']}: "
                try:
                    found[table["name"]] = _target(table)
                except ContractError as error:
                    faults.append(place + str(error))
    if faults:
        raise ContractError("Targets of messages that cannot work:\n  " + "\n  ".join(faults))
    if not found:
        raise ContractError(
            f"There is no target in {folder}. Add a table to the source {SOURCE}; "
            "docs/messages.md says how."
        )
    return found


def _target(table: Mapping[str, Any]) -> Target:
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
