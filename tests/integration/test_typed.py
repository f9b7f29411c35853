"""Typed values on real Spark: a value says what its text says, or it is null. Values by hand."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import jinja2
import pytest
from pyspark.sql import SparkSession

from ingest.bronze import parse_csv
from ingest.contracts import load_contracts
from ingest.environment import PROJECT_ROOT
from ingest.session import start_session
from ingest.transform import models_dir

DMY = "dd/MM/yyyy"
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("int", {}, {"12": 12, " 7 ": 7, "-3": -3, "1,5": None, "1.0": None, "1.234": None, "": None}),
    (
        "int",
        {"thousands_mark": "."},
        {"1.234": 1234, "1234": 1234, "-1.234.567": -1234567, "1.23": None, "12.34": None, "1,5": None},
    ),
    ("int", {"thousands_mark": "'"}, {"1'234": 1234, "1''234": None, "9'999'999'999": None}),
    ("bigint", {"thousands_mark": "\u00a0"}, {"9\u00a0999\u00a0999\u00a0999": 9999999999}),
    (
        "decimal(6,2)",
        {},
        {"1.5": Decimal("1.50"), "1.239": None, "1,5": None, "1.2300": Decimal("1.23"), "99999.1": None},
    ),
    (
        "decimal(9,2)",
        {"decimal_sign": ",", "thousands_mark": "."},
        {
            "1.234,56": Decimal("1234.56"),
            "0,5": Decimal("0.50"),
            "1.5": None,
            "1.234": Decimal("1234.00"),
            "1,234": None,
            "12345678,00": None,
        },
    ),
    ("decimal(9,2)", {"decimal_sign": ","}, {"1,50": Decimal("1.50"), "1.50": None}),
    ("decimal(9,2)", {"thousands_mark": ","}, {"1,234.5": Decimal("1234.50"), "1,5": None}),
    ("date", {}, {"2024-02-29": date(2024, 2, 29), "2023-02-29": None, "29/02/2024": None}),
    ("date", {"format": DMY}, {"31/12/2024": date(2024, 12, 31), "1/2/2024": None, "2024-01-01": None}),
    (
        "date",
        {"format": [DMY, "MM/dd/yyyy"]},
        {
            "31/12/2024": date(2024, 12, 31),
            "12/31/2024": date(2024, 12, 31),
            # Which is meant cannot be known; where both mean one day it can.
            "01/02/2024": None,
            "02/02/2024": date(2024, 2, 2),
        },
    ),
    (
        "timestamp",
        {"format": ["yyyy-MM-dd'T'HH:mm:ss", "dd.MM.yyyy HH:mm"]},
        {
            "2024-05-01T10:00:00": datetime(2024, 5, 1, 10),
            "01.05.2024 10:00": datetime(2024, 5, 1, 10),
            "2024-05-01 10:00:00": None,
            "2024-02-31T10:00:00": None,
        },
    ),
]


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return start_session()


@pytest.fixture(scope="module")
def macros() -> Any:
    """The macros of typed.sql as dbt would render them."""
    text = "".join(
        (PROJECT_ROOT / "macros" / name).read_text("utf-8") for name in ("sql_string.sql", "typed.sql")
    )
    return jinja2.Environment(extensions=["jinja2.ext.do"]).from_string(text).module


@pytest.mark.parametrize("ansi", ["false", "true"])
@pytest.mark.parametrize(("type_", "terms", "values"), CASES)
def test_a_typed_value_says_what_its_text_says(
    spark: SparkSession,
    macros: Any,
    type_: str,
    terms: dict[str, Any],
    values: dict[str, Any],
    ansi: str,
) -> None:
    sql = str(macros.typed("text", type_, **terms))
    frame = spark.createDataFrame([(text,) for text in values], "text string")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        found = dict(frame.selectExpr("text", f"{sql} as value").collect())
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert found == values


def test_a_record_without_quotes_is_split_as_sparks_parser_would(spark: SparkSession) -> None:
    """The shortcut for records without a quote, beside from_csv on the same text."""
    contract = load_contracts(models_dir())["orders"]
    texts = {
        "1,c,s,2,t,w,n": ("1", "c", "s", "2", "t", "w", "n"),
        ",,,,,,": (None,) * 7,
        " 1 ,c , s,2,,\t,x\\y": (" 1 ", "c ", " s", "2", None, "\t", "x\\y"),
        "#1,c,s,2,t,w,null": ("#1", "c", "s", "2", "t", "w", "null"),
        '1,"c,d",s,"2",t,"w ""x""","a\r\nb"': ("1", "c,d", "s", "2", "t", 'w "x"', "a\r\nb"),
        '1,5" pipe,s,2,t,"",n': ("1", '5" pipe', "s", "2", "t", None, "n"),
        '1,"x"z,s,2,t,w,n': ("1", '"x"z', "s", "2", "t", "w", "n"),
    }
    headers = ("order_id", "customer_id", "sku", "qty", "order_ts", "channel", "note")
    cut = spark.createDataFrame([(text,) for text in texts], "payload string")
    rows = parse_csv(cut, contract, headers).select("payload", "parsed.*").collect()
    assert {row[0]: tuple(row)[1:-1] for row in rows} == texts
    assert all(row[-1] is None for row in rows)
    # The same through the parser: a quote in another column keeps the shortcut out.
    plain = [text for text in texts if '"' not in text]
    quoted = spark.createDataFrame([(f'{text},"q"',) for text in plain], "payload string")
    rows = parse_csv(quoted, contract, (*headers, "q")).select("payload", "parsed.*").collect()
    assert {row[0].removesuffix(',"q"'): tuple(row)[1:8] for row in rows} == {t: texts[t] for t in plain}
