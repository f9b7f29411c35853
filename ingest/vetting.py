"""Asking Spark whether the rules of a contract can work, before any row moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from ingest.bronze import table_ddl
from ingest.contracts import ChildContract, Contract, Field
from ingest.errors import ContractError
from ingest.schema import LINEAGE_DDL

# What the children's rules may ask beside the children themselves; see macros/children.sql.
_BESIDE_CHILDREN = (
    "_dataset STRING, _source_file STRING, _position INT, _batch_id STRING, _ingested_at TIMESTAMP"
)


def vet(
    spark: SparkSession, contracts: dict[str, Contract], children: Sequence[ChildContract] = ()
) -> None:
    """Check that every expression and predicate parses, finds its columns and is deterministic.

    Raises:
        ContractError: Some cannot work. Each is named with the contract's file and line.
    """
    faults = [fault for contract in contracts.values() for fault in _faults(spark, contract)]
    for contract in contracts.values():
        own = [child for child in children if child.of == contract.record_type]
        faults.extend(_child_faults(spark, contract, own))
    if faults:
        raise ContractError("Contracts that cannot work:\n  " + "\n  ".join(faults))


def _faults(spark: SparkSession, contract: Contract) -> Iterator[str]:
    bronze = spark.createDataFrame([], table_ddl(contract))
    columns = [LINEAGE_DDL, "_corrupt_record STRING", "_unparsed ARRAY<STRING>"]
    answers = _asked(bronze, [field.expression for field in contract.fields])
    for field, (found, fault) in zip(contract.fields, answers, strict=True):
        place = f"{contract.path}:{field.line}: {contract.record_type}, field {field.name}"
        if fault:
            yield f"{place}: from {fault}"
        if found is None:
            continue
        if field.type == "native":
            columns.append(f"`{field.name}` {found}")
            continue
        if found.upper() != _text_type(field):
            yield f"{place}: from gives {found}, but a {field.type} is made from {_text_type(field)}."
        columns.append(f"`{field.name}` {field.spark_type}")
        columns.append(f"`raw_{field.name}` {_text_type(field)}")
    typed = spark.createDataFrame([], ", ".join(columns))
    yield from _rule_faults(typed, contract, "(\n{}\n)", "boolean")


def _child_faults(
    spark: SparkSession, contract: Contract, children: Sequence[ChildContract]
) -> Iterator[str]:
    """The same for what a record holds many of: expressions over one element, called `child`."""
    bronze = spark.createDataFrame([], table_ddl(contract))
    verdict_types = {field.name: field.spark_type for field in contract.fields}
    beside = {*contract.terms["key"], contract.terms.get("order_by")} & set(verdict_types)
    columns = [_BESIDE_CHILDREN, *(f"`{name}` {verdict_types[name]}" for name in sorted(beside))]
    answers = _asked(bronze, [child.expression for child in children])
    for child, (found, fault) in zip(children, answers, strict=True):
        place = f"{child.path}:{child.line}: {child.record_type}"
        if fault:
            yield f"{place}: from {fault}"
        if found is None:
            continue
        if not found.startswith("array<"):
            yield f"{place}: from gives {found}; it must give an array with one element per row."
            continue
        fields = ["ordinal: int"]
        elements = _asked(
            bronze,
            [f"transform({child.expression}, child -> (\n{f.expression}\n))" for f in child.fields],
        )
        for field, (element, fault) in zip(child.fields, elements, strict=True):
            column = f"{child.path}:{field.line}: {child.record_type}, column {field.name}"
            if fault:
                yield f"{column}: from {fault}"
            if element is None:
                continue
            element = element[len("array<") : -1]
            if field.type != "native" and element.upper() != _text_type(field):
                yield (
                    f"{column}: from gives {element}, but a {field.type} is made "
                    f"from {_text_type(field)}."
                )
            fields.append(f"`{field.name}`: {element if field.type == 'native' else field.spark_type}")
        columns.append(f"`{child.record_type}` ARRAY<STRUCT<{', '.join(fields)}>>")
    typed = spark.createDataFrame([], ", ".join(columns))
    for child in children:
        over = f"transform({child.record_type}, child -> (\n{{}}\n))"
        yield from _rule_faults(typed, child, over, "array<boolean>")


def _rule_faults(
    typed: DataFrame, contract: Contract | ChildContract, over: str, wanted: str
) -> Iterator[str]:
    """What is wrong with predicates, asked as ``over`` puts them; each must give the wanted type."""
    rules = [(rule, rule.when) for rule in contract.rules if rule.when is not None]
    answers = _asked(typed, [over.replace("{}", when) for _, when in rules])
    for (rule, _), (found, fault) in zip(rules, answers, strict=True):
        place = f"{contract.path}:{rule.line}: {contract.record_type}, rule {rule.code}"
        if fault:
            yield f"{place}: when {fault}"
        if found not in (None, wanted):
            yield f"{place}: when must say yes or no, and gives {found}."


def _asked(frame: DataFrame, expressions: Sequence[str]) -> list[tuple[str | None, str | None]]:
    """The type that each expression gives over a frame's columns, and what is wrong with it.

    Asked together, because each question costs Spark as much as all; one by one where one fails.
    """
    try:
        found = frame.selectExpr(*(f"({text}) as value_{i}" for i, text in enumerate(expressions)))
        sound = found._jdf.queryExecution().analyzed().deterministic()
    except (AnalysisException, ParseException) as error:
        if len(expressions) == 1:
            said = str(error).strip().splitlines()[0]
            return [(None, f"is no working SQL over the columns there are: {said}")]
    else:
        fault = None if sound else "is not deterministic; judged again it would say something else."
        if sound or len(expressions) == 1:
            types = {field.name: field.dataType.simpleString() for field in found.schema.fields}
            return [(types[f"value_{i}"], fault) for i in range(len(expressions))]
    return [answer for text in expressions for answer in _asked(frame, [text])]


def _text_type(field: Field) -> str:
    return "ARRAY<STRING>" if field.type.startswith("array<") else "STRING"
