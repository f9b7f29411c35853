"""A small lake with refused records, cut by the real cutters and written without Spark."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from ingest.capture import csv, xml
from ingest.capture.encoding import detect_csv
from ingest.capture.records import Record
from ingest.contracts import Contract, load_contracts
from ingest.lake import Lake
from ingest.schema import TEXT_FIELD, Node, parse_ddl
from ingest.sources import csv_format, xml_format
from ingest.transform import models_dir

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
CONTRACTS = load_contracts(models_dir())
PAGE = """<feed xmlns="http://www.w3.org/2005/Atom" xmlns:at="http://purl.org/atompub/tombstones/1.0"
  xmlns:cbc="urn:dgpe:names:draft:codice:schema:xsd:CommonBasicComponents-2"
  xmlns:p="urn:dgpe:names:draft:codice-place-ext:schema:xsd:CommonAggregateComponents-2">
<id>https://x/sindicacion_643</id>
"""
_TYPES = {"int": pa.int32(), "bigint": pa.int64(), "date": pa.date32(), "boolean": pa.bool_()}
_ERROR = pa.struct(
    [
        ("error_class", pa.string()),
        ("message", pa.string()),
        ("line", pa.int32()),
        ("column", pa.int32()),
    ]
)


def make_lake(folder: Path, *, attempts: Mapping[str, int] | None = None) -> Lake:
    """A lake with a CSV file and an XML page, some of whose records are refused.

    Orders by line: 2 sound, 3 'two' pieces, 4 '1,5' pieces with a quoted note that spans two lines
    (3 and 4 are QTY_NOT_INTEGER), 6 has a field too few, 7 no order_id. Entries by ordinal: 1 sound,
    2 with a wrong instant and two results, 3 not well-formed. Tombstone 1 lacks its ref.

    Args:
        folder: An empty folder; the files lie in it, and the lake in ``lake``.
        attempts: Which time at the gate an order was, by order_id; 1 where it says nothing.
    """
    source = folder / "orders_dirty.csv"
    source.write_bytes(
        b"sku,order_id,customer_id,qty,order_ts,channel,note\r\n"
        b"S1,O1,C1,4,2024-05-01 00:00:00,web,gift\r\n"
        b"S2,O2,C2,two,2024-05-01 00:00:00,phone,\x1b[31mred\r\n"
        b'S3,O3,C3,"1,5",2024-05-01 00:00:00,web,"call ""first"",\r\nthen ring"\r\n'
        b"S4,O4,C4,5,2024-05-01 00:00:00,web\r\n"
        b"S5,,C5,6,2024-05-01 00:00:00,shop,=1+1\r\n"
    )
    page = folder / "licitacionesPerfilesContratanteCompleto3_a.atom"
    page.write_text(
        PAGE + '<at:deleted-entry when="2024-05-01T10:00:00Z" />\n'
        "<entry><id>https://x/1</id><title>One</title><updated>2024-01-01T00:00:00Z</updated></entry>\n"
        "<entry><id>https://x/2</id><title type='text'>Two &amp; <!-- kept -->more</title>"
        "<updated>ayer</updated><link href='https://x/d?id=2&amp;v=1'/><p:ContractFolderStatus>"
        "<cbc:ContractFolderID>F/2</cbc:ContractFolderID>"
        "<p:TenderResult><cbc:AwardDate>2024-02-01</cbc:AwardDate></p:TenderResult>"
        "<p:TenderResult><cbc:AwardDate>1.2.2024</cbc:AwardDate></p:TenderResult>"
        "</p:ContractFolderStatus></entry>\n"
        "<entry><id>https://x/3</i></entry>\n</feed>\n",
        "utf-8",
    )
    lake = Lake(folder / "lake")
    lake.create_operations()
    lake.append("batches", [{"batch_id": "b1", "started_at": NOON, "status": "finished"}])
    _write_orders(lake, source, attempts)
    _write_page(lake, page)
    # What records hold many of has a quarantine, too, and no record in it.
    children = pa.schema([("record_id", pa.string()), ("table_name", pa.string())])
    _write(lake, "silver/placsp_children_quarantine", [{"record_id": "x"}], children)
    return lake


def record_ids(lake: Lake, record_type: str = "orders") -> dict[int, str]:
    """Ids of the captured records by position."""
    rows = lake.read("bronze", record_type, ["_position", "_record_id"]).to_pylist()
    return {row["_position"]: row["_record_id"] for row in rows}


def _write_orders(lake: Lake, source: Path, attempts: Mapping[str, int] | None) -> None:
    contract, data = CONTRACTS["orders"], source.read_bytes()
    shape = csv_format(contract)
    encoding = detect_csv(io.BytesIO(data), shape.encoding, shape.signs)
    header = csv.read_header(io.BytesIO(data), shape, encoding)
    rows = []
    for record in csv.cut(io.BytesIO(data), shape, header):
        values = [shape.unquoted(raw.decode()) or None for raw in shape.fields(record.payload.encode())]
        parsed = {} if record.error else dict(zip(header.names, values, strict=True))
        rows.append({**_lineage(record, source, data, "orders", "orders"), **parsed})
    _write(lake, "bronze/orders", rows, bronze_schema(contract))
    reasons = {
        3: ["QTY_NOT_INTEGER"], 4: ["QTY_NOT_INTEGER"], 6: ["CORRUPT_RECORD"],
        7: ["ORDER_ID_MISSING", "ORDER_TS_MISSING"],
    }  # fmt: skip
    refused = [
        {
            **row,
            "qty": int(row["qty"]) if (row.get("qty") or "").isdigit() else None,
            "order_ts": NOON,
            "failure_reasons": reasons[row["_position"]],
            "_misfits": [f"qty is '{row.get('qty')}'"] if row["_position"] in (3, 4) else [],
            "_attempt": (attempts or {}).get(row.get("order_id") or "", 1),
        }
        for row in rows
        if row["_position"] in reasons
    ]
    schema = quarantine_schema(contract)
    if attempts is not None:
        schema = schema.append(pa.field("_attempt", pa.int32()))
    _write(lake, "silver/orders_quarantine", refused, schema)


def _write_page(lake: Lake, page: Path) -> None:
    data = page.read_bytes()
    parsed = {
        1: {"id": "https://x/1", "title": "One", "updated": "2024-01-01T00:00:00Z"},
        2: {
            "id": "https://x/2",
            "title": "Two & more",
            "updated": "ayer",
            "link": [{"_href": "https://x/d?id=2&v=1"}],
            "ContractFolderStatus": {
                "ContractFolderID": "F/2",
                "TenderResult": [{"AwardDate": "2024-02-01"}, {"AwardDate": "1.2.2024"}],
            },
        },
        3: {},
    }
    for record_type, values, reasons in (
        ("placsp_entries", parsed, {2: ["UPDATED_NOT_AN_INSTANT"], 3: ["CORRUPT_RECORD"]}),
        ("placsp_deleted_entries", {1: {"_when": "2024-05-01T10:00:00Z"}}, {1: ["REF_MISSING"]}),
    ):
        contract = CONTRACTS[record_type]
        rows = [
            {**_lineage(record, page, data, record_type, "licitaciones"), **values[record.position]}
            for record in xml.cut(data, xml_format(contract))
        ]
        _write(lake, f"bronze/{record_type}", rows, bronze_schema(contract))
        typed = {2: {"entry_id": "https://x/2", "title": "Two & more"}}
        refused = [
            {
                **row,
                **dict.fromkeys(values[row["_position"]]),
                **typed.get(row["_position"], {}),
                "failure_reasons": reasons[row["_position"]],
                "_misfits": [],
            }
            for row in rows
            if row["_position"] in reasons
        ]
        _write(lake, f"silver/{record_type}_quarantine", refused, quarantine_schema(contract))


def _lineage(
    record: Record, source: Path, data: bytes, record_type: str, dataset: str
) -> dict[str, Any]:
    digest = hashlib.sha256(data).hexdigest()
    identity = f"{record_type}|{dataset}|{digest}||{record.position}"
    return {
        "_record_id": hashlib.sha256(identity.encode()).hexdigest(),
        "_dataset": dataset,
        "_batch_id": "b1",
        "_source_file": str(source),
        "_file_sha256": digest,
        "_position": record.position,
        "_byte_offset": record.byte_offset,
        "_byte_length": record.byte_length,
        "_encoding": "utf-8",
        # Later in the file is younger here, so that ages differ.
        "_ingested_at": NOON + timedelta(hours=record.position),
        "_read_contract": CONTRACTS[record_type].read_contract,
        "payload": record.payload,
        "_parse_error": record.error._asdict() if record.error else None,
        "is_dropped": False,
        "detected_at": NOON,
        "_judged_at": NOON,
        "_verdict_contract": "1.0.0+abc",
    }


_LINEAGE = [
    ("_record_id", pa.string()),
    ("_dataset", pa.string()),
    ("_batch_id", pa.string()),
    ("_source_file", pa.string()),
    ("_file_sha256", pa.string()),
    ("_position", pa.int32()),
    ("_ingested_at", pa.timestamp("us", tz="UTC")),
    ("_read_contract", pa.string()),
    ("_parse_error", _ERROR),
]


def bronze_schema(contract: Contract) -> pa.Schema:
    """As ingest makes it, as far as the office looks at it."""
    root = parse_ddl(contract.schema_ddl)
    return pa.schema(
        [
            *_LINEAGE,
            ("_byte_offset", pa.int64()),
            ("_byte_length", pa.int64()),
            ("_encoding", pa.string()),
            ("payload", pa.string()),
            ("_payload_bytes", pa.binary()),
            *((name, _type_of(node)) for name, node in root.children.items()),
            *((f"_{name}", pa.string()) for name in sorted(root.attributes)),
        ]
    )


def quarantine_schema(contract: Contract) -> pa.Schema:
    """As dbt makes it; see macros/verdicts.sql."""
    return pa.schema(
        [
            *_LINEAGE,
            *((field.name, _field_type(field.spark_type)) for field in contract.fields),
            ("failure_reasons", pa.list_(pa.string())),
            ("_misfits", pa.list_(pa.string())),
            ("is_dropped", pa.bool_()),
            ("detected_at", pa.timestamp("us", tz="UTC")),
            ("_verdict_contract", pa.string()),
            ("_judged_at", pa.timestamp("us", tz="UTC")),
            ("payload", pa.string()),
        ]
    )


def _field_type(text: str) -> pa.DataType:
    if text.startswith("array<"):
        return pa.list_(_field_type(text[6:-1]))
    if text.startswith("decimal("):
        precision, scale = text[8:-1].split(",")
        return pa.decimal128(int(precision), int(scale))
    if text == "timestamp":
        return pa.timestamp("us", tz="UTC")
    return _TYPES.get(text, pa.string())


def _type_of(node: Node) -> pa.DataType:
    inner: pa.DataType = pa.string()
    if node.children or node.attributes:
        names = [(f"_{name}", pa.string()) for name in sorted(node.attributes)]
        names += [(TEXT_FIELD, pa.string())] if node.has_text else []
        inner = pa.struct([*names, *((name, _type_of(child)) for name, child in node.children.items())])
    return pa.list_(inner) if node.is_array else inner


def _write(lake: Lake, name: str, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
    table = pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
    write_deltalake(str(lake.path / name), table, mode="append")
