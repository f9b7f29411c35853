"""Results of an inspection, made by hand and without Spark."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

HOSTILE = "<script>alert(1)</script>|`x`\x00\u202egnp\r\nnext & 'last'"
LONG = "é" * 1_000_000
_ERROR = pa.struct([("error_class", pa.string()), ("message", pa.string())])
_QUARANTINE = pa.schema(
    [
        ("order_id", pa.string()),
        ("qty", pa.int32()),
        ("_position", pa.int32()),
        ("_fields", pa.int32()),
        ("_parse_error", _ERROR),
        ("_misfits", pa.list_(pa.string())),
        ("failure_reasons", pa.list_(pa.string())),
        ("reason", pa.string()),
        ("payload", pa.string()),
    ]
)
_INFERENCE = pa.schema([("column", pa.string()), ("_position", pa.int32()), ("value", pa.string())])
RULES = [
    ("CORRUPT_RECORD", "parse", "csv_parsing", [], False),
    ("QTY_NOT_INTEGER", "parse", "schema_validation", ["qty"], True),
    ("QTY_MISSING", "qty", "business_rule", ["qty"], False),
    ("QTY_BELOW_ONE", "qty", "business_rule", ["qty"], False),
]


def rows(folder: Path, name: str, schema: pa.Schema, values: list[tuple[object, ...]]) -> None:
    (folder / name).mkdir(parents=True)
    columns = [[row[i] for row in values] for i in range(len(schema))]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), folder / name / "part-0.parquet")


def results(folder: Path, *, sound: bool = False, record_type: str = "orders") -> Path:
    """Ten records: six clean, one of six fields, one 'two', one empty, one of a long text below one."""
    one = pa.schema([("order_id", pa.string())])
    read = pa.schema([("order_id", pa.string()), ("_corrupt", pa.string())])
    corrupt = [] if sound else [("A7", "A7,1,x"), ("A8", HOSTILE)]
    refused: list[tuple[object, ...]] = [
        (None, None, 8, 6, ("FIELD_COUNT", "found 6"), [], ["CORRUPT_RECORD"], "parse", "A7,1,x"),
        ("A8", None, 9, 7, None, [f"qty is '{HOSTILE}'"], ["QTY_NOT_INTEGER"], "parse", HOSTILE),
        ("A9", None, 12, 7, None, [], ["QTY_MISSING"], "qty", "A9,,"),
        ("A10", -3, 13, 7, None, [], ["QTY_BELOW_ONE", "OTHER"], "qty", LONG),
    ]
    rows(folder, "clean", one, [(f"A{i}",) for i in range(1, 11 if sound else 7)])
    rows(folder, "quarantine", _QUARANTINE, [] if sound else refused[::-1])
    rows(folder, "permissive", read, [(f"A{i}", None) for i in range(10 - len(corrupt))] + corrupt)
    rows(folder, "dropped", one, [(f"A{i}",) for i in range(10 - len(corrupt))])
    values = [("qty", 9, HOSTILE), *(("qty", 20 + i, f"v{i}") for i in range(24))]
    rows(folder, "inference", _INFERENCE, [] if sound else values)
    files = {
        "drop_count.json": {"count_only": 10 - len(corrupt) // 2, "written": 10 - len(corrupt)},
        "width.json": {"7": 10} if sound else {"6": 1, "7": 9},
        "inspection.json": {
            "record_type": record_type,
            "contract_version": "1.2.3",
            "owner": "order-desk",
            "inspected_at": "2024-05-02T00:00:00+00:00",
            "file": "orders <b>&.csv",
            "file_sha256": "ab" * 32,
            "size_bytes": 4321,
            "encoding": "windows-1252",
            "is_encoding_guessed": not sound,
            "header_line": None if sound else 3,
            "missing_columns": [] if sound else ["note"],
            "extra_columns": [] if sound else ["colour|<i>"],
            "fields": 7,
            "is_read_across_lines": False,
            "columns": [
                {"name": "order_id", "agreed": "string", "inferred": "string"},
                {"name": "qty", "agreed": "int", "inferred": "int" if sound else "string"},
            ],
            "rules": [
                {
                    "code": code,
                    "reason": reason,
                    "stage": stage,
                    "why": f"Why {code} <em>.",
                    "fix": f"Fix {code}.",
                    "fields": fields,
                    "is_misfit": is_misfit,
                }
                for code, reason, stage, fields, is_misfit in RULES
            ],
        },
    }
    if not sound:
        files["width_naive.json"] = {"6": 1, "7": 8, "8": 2}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), "utf-8")
    failed = (
        "NONE\n" if sound else f"MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION\nline 9\n{HOSTILE}\n"
    )
    (folder / "failfast.txt").write_text(failed, "utf-8", newline="")
    return folder
