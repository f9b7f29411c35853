"""Rules that cannot work are named, each with its line, before any row moves; real Spark says which."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from ingest.contracts import load_children, load_contracts
from ingest.errors import ContractError
from ingest.session import start_session
from ingest.transform import models_dir, silver_dir
from ingest.vetting import vet

CONTRACTS = load_contracts(models_dir())
CHILDREN = load_children(silver_dir())


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return start_session()


def test_the_contracts_that_ship_can_work(spark: SparkSession) -> None:
    vet(spark, CONTRACTS, CHILDREN)


def test_each_fault_is_named_and_its_neighbours_are_not(spark: SparkSession) -> None:
    orders = CONTRACTS["orders"]
    faulty = {"QTY_MISSING": "gty is null", "QTY_BELOW_ONE": "qty < rand()", "ORDER_TS_MISSING": "qty"}
    rules = tuple(replace(rule, when=faulty.get(rule.code, rule.when)) for rule in orders.rules)
    fields = tuple(
        replace(field, expression="nota" if field.name == "note" else field.expression)
        for field in orders.fields
    )
    lots = next(child for child in CHILDREN if child.record_type == "placsp_lots")
    first, *others = lots.rules
    children = [replace(lots, rules=(replace(first, when="child.lot = 1"), *others))]
    with pytest.raises(ContractError) as refusal:
        vet(spark, {**CONTRACTS, "orders": replace(orders, rules=rules, fields=fields)}, children)
    head, *told = str(refusal.value).split("\n  ")
    assert head == "Contracts that cannot work:"
    lines = {rule.code: rule.line for rule in rules}
    expected = [
        ("field note", "cannot be resolved"),
        (f"orders.yml:{lines['QTY_MISSING']}: orders, rule QTY_MISSING", "Did you mean"),
        (f"orders.yml:{lines['QTY_BELOW_ONE']}: orders, rule QTY_BELOW_ONE", "not deterministic"),
        (f"orders.yml:{lines['ORDER_TS_MISSING']}: orders, rule ORDER_TS_MISSING", "gives int"),
        (f"placsp_children.yml:{first.line}: placsp_lots, rule {first.code}", "`lot`"),
    ]
    assert len(told) == len(expected), told
    for line, (place, why) in zip(told, expected, strict=True):
        assert place in line and why in line, line
