"""A lake of refused and accepted orders in every encoding of Parquet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import ColumnProperties, DeltaTable, WriterProperties, write_deltalake
from office_lake import make_lake, record_ids

from ingest.lake import Lake

ENCODINGS = {
    "plain": WriterProperties(
        compression="UNCOMPRESSED",
        default_column_properties=ColumnProperties(dictionary_enabled=False, encoding="PLAIN"),
    ),
    "dictionary": WriterProperties(
        compression="SNAPPY", default_column_properties=ColumnProperties(dictionary_enabled=True)
    ),
    "delta_byte_array": WriterProperties(
        compression="UNCOMPRESSED",
        default_column_properties=ColumnProperties(
            dictionary_enabled=False, encoding="DELTA_BYTE_ARRAY"
        ),
    ),
    "delta_length": WriterProperties(
        compression="ZSTD",
        default_column_properties=ColumnProperties(
            dictionary_enabled=False, encoding="DELTA_LENGTH_BYTE_ARRAY"
        ),
    ),
}
ACCEPTED, REPLACED = 2, 7


def make_privacy_lake(folder: Path) -> Lake:
    """The lake of ``make_lake`` with verdicts, dispositions, Silver, dead letters and history.

    Order 2 is accepted and current, and its note is ``gift``; 7 gave way to it. 3, 4 and 6 are refused,
    and the note of 4 is ``call "first",`` and a line more. A table of parties without records
    mentions ``gift``.
    """
    lake = make_lake(folder)
    bronze = DeltaTable(str(lake.path / "bronze" / "orders")).to_pyarrow_table()
    ids = record_ids(lake)
    # As Spark leaves it: an earlier version, and a checksum of a version with statistics.
    write(lake, "bronze/orders", bronze, mode="overwrite")
    table = DeltaTable(str(lake.path / "bronze" / "orders"))
    table.alter.set_table_properties({"delta.appendOnly": "true"})
    checksum = lake.path / "bronze" / "orders" / "_delta_log" / f"{1:020}.crc"
    checksum.write_text(json.dumps({"allFiles": [{"stats": '{"minValues":{"note":"gift"}}'}]}))
    rows = bronze.to_pylist()
    says = ("_record_id", "order_id", "customer_id", "note")
    verdicts = [
        {**{c: row[c] for c in says}, "failure_reasons": [] if row["_position"] in (2, 7) else ["X"]}
        for row in rows
    ]
    write(lake, "silver/orders_judged", pa.Table.from_pylist(verdicts))
    dispositions = [
        {"_record_id": ids[2], "order_id": "O1", "disposition": "current", "by_record_id": None},
        {"_record_id": ids[7], "order_id": "O5", "disposition": "superseded", "by_record_id": ids[2]},
    ]
    write(lake, "silver/orders_dispositions", pa.Table.from_pylist(dispositions))
    for number, properties in enumerate(ENCODINGS.values()):
        # Each encoding is one file of Silver.
        row = {"record_id": ids[2], "order_id": "O1", "note": "gift", "pair": [{"of": "gift"}]}
        others = [{**row, "record_id": f"other{number}{i}", "note": f"given{i}"} for i in range(3)]
        others = [{**other, "pair": None} for other in others]
        table = pa.Table.from_pylist([row, *others])
        write(lake, "silver/orders", table, writer_properties=properties)
    letters = [
        {
            "dead_letter_id": f"l{row['_position']}",
            "record_id": row["_record_id"],
            "dataset": "orders",
            "payload": row["payload"],
            "business_key": row["order_id"],
            "error_message": "orders line: qty is 'two'",
        }
        for row in rows
        if row["_position"] in (3, 4, 6)
    ]
    write(
        lake,
        "marts/dead_letters",
        pa.Table.from_pylist(letters),
        partition_by=["dataset"],
        configuration={"delta.appendOnly": "true"},
    )
    parties = [{"party_name": "A gift, Ltd"}, {"party_name": "Another"}]
    write(lake, "silver/placsp_parties", pa.Table.from_pylist(parties))
    logs = lake.state / "dbt"
    logs.mkdir(parents=True)
    (logs / "dbt.log").write_text("qty of gift")
    (logs / "manifest.json").write_text("{}")
    return lake


def write(lake: Lake, name: str, table: pa.Table, mode: str = "append", **options: Any) -> None:
    """Write a table in one commit."""
    write_deltalake(str(lake.path / name), table, mode=mode, **options)  # type: ignore[call-overload]
