"""The office's small lake with what alerts and metrics ask of it beside, written without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from office_lake import CONTRACTS, NOON, make_lake

from ingest.contracts import Contract
from ingest.lake import Lake

_INSTANT = pa.timestamp("us", tz="UTC")
_TABLES = {
    "reconciliation": [
        ("record_type", pa.string()), ("dataset", pa.string()), ("batch_id", pa.string()),
        ("status", pa.string()), ("found", pa.int64()), ("bronze", pa.int64()),
        ("accepted", pa.int64()), ("quarantined", pa.int64()), ("warned", pa.int64()),
        ("source_file", pa.string()), ("balance", pa.int64()), ("held", pa.int64()),
    ],
    "dead_letters": [
        ("dead_letter_id", pa.string()), ("record_type", pa.string()), ("dataset", pa.string()),
        ("stage", pa.string()), ("error_type", pa.string()), ("batch_id", pa.string()),
        ("record_id", pa.string()),
    ],
    "recurring_causes": [
        ("record_type", pa.string()), ("dataset", pa.string()), ("cause", pa.string()),
        ("owner", pa.string()), ("refused", pa.int64()), ("first_seen_at", _INSTANT),
    ],
    "schema_drift": [
        ("record_type", pa.string()), ("dataset", pa.string()), ("path", pa.string()),
        ("records", pa.int64()), ("first_seen_at", _INSTANT), ("last_seen_at", _INSTANT),
    ],
    "law_results": [
        ("law", pa.string()), ("record_type", pa.string()), ("batch_id", pa.string()),
        ("offenders", pa.int64()), ("checked_at", _INSTANT),
    ],
    "rule_outcomes": [
        ("record_type", pa.string()), ("rule_code", pa.string()), ("severity", pa.string()),
        ("batch_id", pa.string()), ("asked", pa.int64()), ("records", pa.int64()),
    ],
}  # fmt: skip
# Of the five orders of the first batch four are refused.
_REFUSED = ("QTY_NOT_INTEGER", "QTY_NOT_INTEGER", "CORRUPT_RECORD", "ORDER_ID_MISSING")


def make_alert_lake(folder: Path) -> Lake:
    """A lake whose first batch, ``b1``, came at noon: five orders, of which four were refused."""
    lake = make_lake(folder)
    add_file(lake, "b1", NOON)
    for name in _TABLES:
        fill(lake, name, [])
    add_batch(lake, "b1", records=5, refused=_REFUSED)
    for code in set(_REFUSED):
        add_cause(lake, code, NOON)
    return lake


def start_batch(lake: Lake, batch_id: str, at: datetime, command: str = "run") -> None:
    """A batch that took a minute."""
    row = {"batch_id": batch_id, "started_at": at, "status": "finished", "command": command}
    lake.append("batches", [{**row, "finished_at": at + timedelta(minutes=1)}])


def add_file(lake: Lake, batch_id: str, at: datetime, **said: Any) -> None:
    """A file of orders that could be read."""
    row = {"source_file": f"orders_{batch_id}.csv", "record_type": "orders", "dataset": "orders"}
    row |= {"file_sha256": batch_id, "status": "ingested"}
    lake.append("files", [{**row, "batch_id": batch_id, "ingested_at": at, **said}])


def add_batch(lake: Lake, batch_id: str, *, records: int, refused: Sequence[str]) -> None:
    """What became of the orders of a batch: so many, and why each of the refused was."""
    row = {"record_type": "orders", "dataset": "orders", "batch_id": batch_id}
    counts = {"found": records, "bronze": records, "accepted": records - len(refused)}
    counts |= {"quarantined": len(refused), "warned": 0, "balance": 0}
    fill(lake, "reconciliation", [{**row, "status": "ingested", **counts}])
    letters = [
        {**row, "error_type": code, "record_id": f"{batch_id}.{n}"} for n, code in enumerate(refused)
    ]
    fill(lake, "dead_letters", letters)


def add_cause(lake: Lake, cause: str, first_seen_at: datetime, **said: Any) -> None:
    """A cause of refusal."""
    row = {"record_type": "orders", "dataset": "orders", "cause": cause, "owner": "order-desk"}
    fill(lake, "recurring_causes", [{**row, "refused": 3, "first_seen_at": first_seen_at, **said}])


def add_path(lake: Lake, path: str, first_seen_at: datetime) -> None:
    """A path that payloads of orders have and the schema does not hold."""
    row = {"record_type": "orders", "dataset": "orders", "path": path, "records": 1}
    fill(lake, "schema_drift", [{**row, "first_seen_at": first_seen_at, "last_seen_at": first_seen_at}])


def fill(lake: Lake, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows to a mart; what they do not say is null."""
    table = pa.Table.from_pylist([dict(row) for row in rows], schema=pa.schema(_TABLES[name]))
    write_deltalake(str(lake.table_path("marts", name)), table, mode="append")


def with_alerts(**said: Any) -> dict[str, Contract]:
    """The contracts, of which that of orders alone has thresholds."""
    changed = {}
    for name, contract in CONTRACTS.items():
        terms = {
            key: value for key, value in contract.terms.items() if key not in ("alerts", "stop_above")
        }
        changed[name] = replace(contract, terms=terms | ({"alerts": said} if name == "orders" else {}))
    return changed
