"""Contracts: what a record type looks like, what is refused and why.

A contract is the ``config.meta.contract`` of a dbt source table. dbt reads the same file; it is read
here unrendered, so there is no Jinja in it outside descriptions.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from ingest.capture.csv_format import CsvFormat
from ingest.errors import ContractError, InputError
from ingest.pii import Pii, pii_faults, pii_of
from ingest.retention import retention_faults
from ingest.retry import retry_faults
from ingest.schema import parse_ddl
from ingest.thresholds import stop_faults, threshold_faults

SEVERITIES = ("warn", "quarantine", "drop", "fail")
STAGES = (
    "file_read",
    "xml_parsing",
    "csv_parsing",
    "json_parsing",
    "schema_validation",
    "business_rule",
    "transformation",
    "merge",
    "catalogue",
    "schema_migration",
)
# Judged again, a record must get the same verdict. Spark calls current_timestamp deterministic,
# because it is one value per statement; a verdict outlives the statement.
_VOLATILE = re.compile(
    r"\b(rand|randn|random|uuid|now|current_timestamp|current_date|current_time|localtimestamp"
    r"|monotonically_increasing_id|input_file_name|spark_partition_id|shuffle|current_user"
    r"|session_user)\b",
    re.IGNORECASE,
)
_TYPE = re.compile(
    r"(string|text|int|bigint|decimal\(\d+, ?\d+\)|boolean|date|instant|timestamp|native)\Z"
)


# A no-break blank, a narrow one and a thin one among them, as locales write them.
_MARKS = (".", ",", "'", "_", " ", "\u00a0", "\u202f", "\u2009", "\u2019")


class _LineLoader(yaml.SafeLoader):
    """Loads YAML and remembers on which line each mapping starts."""


def _mapping_with_line(loader: _LineLoader, node: yaml.MappingNode) -> dict[str, Any]:
    keys = [key.value for key, _ in node.value]
    for key in keys:
        if keys.count(key) > 1:
            raise yaml.MarkedYAMLError(
                problem=f"the key '{key}' is there twice", problem_mark=node.start_mark
            )
    loader.flatten_mapping(node)
    mapping = {str(k): v for k, v in loader.construct_mapping(node, deep=True).items()}
    mapping["__line__"] = node.start_mark.line + 1
    return mapping


_LineLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_with_line)


def without_lines(value: Any) -> Any:
    """What a YAML file says, without the lines on which it says it."""
    if isinstance(value, dict):
        return {k: without_lines(v) for k, v in value.items() if k != "__line__"}
    if isinstance(value, list):
        return [without_lines(item) for item in value]
    return value


@dataclass(frozen=True)
class Field:
    """A column of the judged table: where its text comes from and what it must be."""

    name: str
    expression: str
    type: str
    line: int
    formats: tuple[str, ...] = ()
    decimal_sign: str = "."
    thousands_mark: str = ""
    pii: Pii | None = None

    @property
    def spark_type(self) -> str:
        """The type of the judged column as Spark SQL writes it."""
        return (
            self.type.replace("instant", "timestamp")
            .replace("text", "string")
            .replace("native", "boolean")
        )

    @property
    def can_misfit(self) -> bool:
        """Whether a text may fail to convert to this type."""
        return self.type not in ("string", "text", "native", "array<string>")


@dataclass(frozen=True)
class Rule:
    """One fault that a record can have. See DESIGN, "Rules"."""

    code: str
    severity: str
    on_null: str
    stage: str
    reason: str
    why: str
    fix: str
    line: int
    when: str | None = None
    misfit: tuple[str, ...] = ()
    stops: bool = False
    owner: str | None = None

    def described(self, owner: str) -> dict[str, str | None]:
        """What whoever works off a record is told of the rule.

        Args:
            owner: The team of its contract, for a rule that names none.
        """
        return {
            "code": self.code,
            "severity": self.severity,
            "stage": self.stage,
            "why": self.why,
            "fix": self.fix,
            "owner": self.owner or owner,
        }


@dataclass(frozen=True)
class Dataset:
    """A dataset of a feed: which files are of it."""

    name: str
    prefix: str
    feed: str | None = None


@dataclass(frozen=True)
class Contract:
    """What a record type is. ``schema_ddl`` is the schema of the Bronze payload columns."""

    record_type: str
    version: str
    owner: str
    format: str
    schema_ddl: str
    feed: Mapping[str, Any]
    datasets: tuple[Dataset, ...]
    fields: tuple[Field, ...]
    rules: tuple[Rule, ...]
    path: Path
    line: int
    row_tag: str | None = None
    terms: Mapping[str, Any] = field(default_factory=dict, repr=False)
    personal: Mapping[str, Pii] = field(default_factory=dict)

    @property
    def personal_fields(self) -> dict[str, Pii]:
        """Fields that are personal: they say so, or are made of a Bronze column that is."""
        found = {}
        for item in self.fields:
            words = set(re.findall(r"\w+", item.expression))
            made_of = [p for name, p in self.personal.items() if name in words and not p.elements]
            if item.pii or made_of:
                found[item.name] = item.pii or made_of[0]
        return found

    @property
    def read_contract(self) -> str:
        """Version and hash of what decides how records are read: schema and feed."""
        text = json.dumps([self.schema_ddl, dict(self.feed), self.row_tag], sort_keys=True)
        return f"{self.version}+{hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:12]}"

    @property
    def terms_hash(self) -> str:
        """Hash of the whole contract, its schema included: has anything changed?"""
        text = json.dumps([self.schema_ddl, without_lines(self.terms)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def claims(self, name: str) -> bool:
        """Whether a file of that name is of this record type."""
        return any(fnmatch.fnmatch(name.lower(), p.lower()) for p in self.feed["files"])

    def dataset_of_name(self, name: str) -> str | None:
        """The dataset that a file's name says, by the longest prefix; None if it says none."""
        fitting = [d for d in self.datasets if name.lower().startswith(d.prefix.lower())]
        return max(fitting, key=lambda d: len(d.prefix)).name if fitting else None

    def dataset_of_feed(self, feed_id: str | None) -> str | None:
        """The dataset that a page's own feed id says; None if it says none."""
        for dataset in self.datasets:
            if feed_id and dataset.feed and dataset.feed in feed_id:
                return dataset.name
        return None


@dataclass(frozen=True)
class ChildContract:
    """What a record holds many of. ``record_type`` is the table; ``expression`` gives the raw parts."""

    record_type: str
    of: str
    expression: str
    fields: tuple[Field, ...]
    rules: tuple[Rule, ...]
    path: Path
    line: int

    @property
    def terms_hash(self) -> str:
        """Hash of all that decides a verdict on a child."""
        parts = [self.of, self.expression, repr(self.fields), [repr(rule) for rule in self.rules]]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


_AnyContract = TypeVar("_AnyContract", Contract, ChildContract)


def load_contracts(folder: Path) -> dict[str, Contract]:
    """Read every contract below a folder of dbt source YAML.

    Raises:
        ContractError: A contract cannot work. All faults are named, each with file and line.
    """
    tables = (
        (path, table)
        for path in sorted(folder.glob("*.yml"))
        for source in document(path).get("sources", [])
        for table in source.get("tables", [])
    )
    contracts = _load(tables, "contract", _contract)
    deletions = {c.terms["withdrawn_by"]["record_type"] for c in contracts if "withdrawn_by" in c.terms}
    held = [c for c in contracts if c.record_type in deletions and "stop_above" in c.terms]
    for contract in held:
        raise ContractError(
            f"{contract.path}:{contract.line}: {contract.record_type}: stop_above is there, and its "
            "records delete others, so that what a publisher took back would stay. Take it out."
        )
    if not contracts:
        raise ContractError(f"There is no contract in {folder}. Add a source table with one.")
    return {contract.record_type: contract for contract in contracts}


def _load(
    nodes: Iterable[tuple[Path, Mapping[str, Any]]],
    key: str,
    make: Callable[[Mapping[str, Any], Mapping[str, Any], Path], _AnyContract],
) -> list[_AnyContract]:
    """Make a contract of each table or model that has one under a key of its ``config.meta``."""
    made: list[_AnyContract] = []
    faults: list[str] = []
    for path, node in nodes:
        terms = node.get("config", {}).get("meta", {}).get(key)
        if terms is None:
            continue
        try:
            contract = make(node, terms, path)
        except (KeyError, TypeError, AttributeError) as error:
            faults.append(
                f"{path}:{terms.get('__line__', '?')}: the contract of {node['name']} lacks "
                f"{error}. See docs/contracts.md for the keys a contract has."
            )
            continue
        faults.extend(_faults(contract))
        made.append(contract)
    if faults:
        raise ContractError("Contracts that cannot work:\n  " + "\n  ".join(faults))
    return made


def _contract(table: Mapping[str, Any], terms: Mapping[str, Any], path: Path) -> Contract:
    record_type = table["name"]
    if "schema_file" in terms:
        ddl_path = path.parent / terms["schema_file"]
        if not ddl_path.is_file():
            raise ContractError(
                f"{path}:{terms['__line__']}: schema_file {terms['schema_file']} of {record_type} is "
                f"not beside it. Write the schema there, or inline as schema."
            )
        ddl = ddl_path.read_text(encoding="utf-8").strip()
    else:
        ddl = str(terms["schema"])
    feed = without_lines(terms["feed"])
    return Contract(
        record_type=record_type,
        version=str(terms["version"]),
        owner=str(terms["owner"]),
        format=str(terms["format"]),
        schema_ddl=ddl,
        feed=feed,
        datasets=tuple(Dataset(**d) for d in feed["datasets"]),
        fields=tuple(_field(f) for f in terms["fields"]),
        rules=tuple(rule_of(r) for r in terms["rules"]),
        path=path,
        line=int(terms["__line__"]),
        row_tag=terms.get("row_tag"),
        terms=terms,
        personal=_personal(table),
    )


def _personal(node: Mapping[str, Any]) -> dict[str, Pii]:
    """Columns of a table or model that its YAML marks as personal."""
    said = {c["name"]: pii_of(c.get("config", {}).get("meta", {})) for c in node.get("columns", ())}
    return {name: pii for name, pii in said.items() if pii is not None}


def _field(terms: Mapping[str, Any]) -> Field:
    formats = terms.get("format") or ()
    return Field(
        name=str(terms["name"]),
        expression=str(terms["from"]).strip(),
        type=str(terms["type"]),
        line=int(terms["__line__"]),
        formats=(formats,) if isinstance(formats, str) else tuple(map(str, formats)),
        decimal_sign=str(terms.get("decimal_sign", ".")),
        thousands_mark=str(terms.get("thousands_mark") or ""),
        pii=pii_of(terms),
    )


def rule_of(terms: Mapping[str, Any], stage: str | None = None) -> Rule:
    """Read a rule of a contract; ``rule_faults`` says what is wrong with it.

    Args:
        terms: As the YAML has it.
        stage: At which it is asked, where the contract does not say.

    Raises:
        KeyError: It has no code.
    """
    return Rule(
        code=str(terms["code"]),
        severity=str(terms.get("severity")),
        on_null=str(terms.get("on_null")),
        stage=stage or str(terms.get("stage")),
        reason=str(terms.get("reason")),
        why=str(terms.get("why") or ""),
        fix=str(terms.get("fix") or ""),
        line=int(terms["__line__"]),
        when=str(terms["when"]).strip() if terms.get("when") is not None else None,
        misfit=tuple(terms.get("misfit") or ()),
        stops=bool(terms.get("stops")),
        owner=terms.get("owner"),
    )


def load_children(folder: Path) -> list[ChildContract]:
    """Read the contracts of what records hold many of: ``config.meta.child`` of dbt models.

    Args:
        folder: Folder of the models' YAML, searched in depth.

    Raises:
        ContractError: One cannot work. All faults are named, each with file and line.
    """
    models = (
        (path, model)
        for path in sorted(folder.rglob("*.yml"))
        for model in document(path).get("models", [])
    )
    return _load(models, "child", _child)


def _child(model: Mapping[str, Any], terms: Mapping[str, Any], path: Path) -> ChildContract:
    fields = []
    for column in model["columns"]:
        meta = column.get("config", {}).get("meta", {})
        if "from" in meta:
            fields.append(_field({**meta, "name": column["name"], "__line__": column["__line__"]}))
    return ChildContract(
        record_type=str(model["name"]),
        of=str(terms["of"]),
        expression=str(terms["from"]).strip(),
        fields=tuple(fields),
        rules=tuple(rule_of(r, stage="transformation") for r in terms["rules"]),
        path=path,
        line=int(terms["__line__"]),
    )


def document(path: Path) -> dict[str, Any]:
    """Read a YAML file; each mapping says under ``__line__`` where it starts.

    Raises:
        ContractError: It is no YAML.
    """
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_LineLoader)
    except yaml.YAMLError as error:
        raise ContractError(f"{path} is no YAML: {error}. Mend the file.") from error
    return document or {}


def _faults(contract: Contract | ChildContract) -> Iterable[str]:
    """What is wrong with a contract, as far as its text tells."""
    names = {f.name for f in contract.fields}
    if isinstance(contract, Contract):
        yield from _reading_faults(contract)
        yield from _personal_faults(contract)
        yield from _key_faults(contract, names)
        stages = {rule.stage for rule in contract.rules if rule.severity != "warn"}
        for line, fault in (
            *retry_faults(contract.terms, stages),
            *threshold_faults(contract.terms),
            *stop_faults(contract.terms),
            *retention_faults(contract.terms),
        ):
            yield f"{contract.path}:{line}: {contract.record_type}: {fault}"
    for item in contract.fields:
        yield from _field_faults(contract, item)
    yield from rule_faults(contract.rules, f"{contract.path}:{{}}: {contract.record_type}, ", names)
    covered = {name for rule in contract.rules for name in rule.misfit}
    for item in contract.fields:
        if item.can_misfit and item.name not in covered:
            yield (
                f"{contract.path}:{item.line}: {contract.record_type}, field {item.name}: no rule "
                f"lists it under misfit, so a text that is no {item.type} would become null in silence. "
                f"Add it to one."
            )


def rule_faults(rules: Iterable[Rule], where: str, names: Collection[str]) -> Iterable[str]:
    """What is wrong with rules, as far as their text tells.

    Args:
        rules: In their order.
        where: What each fault begins with; ``{}`` stands for the rule's line.
        names: Of the fields that may not convert.
    """
    seen: set[str] = set()
    for rule in rules:
        place = f"{where.format(rule.line)}rule {rule.code}: "
        if not re.fullmatch(r"[A-Z][A-Z0-9_]*", rule.code):
            yield place + (
                "a code is UPPER_SNAKE and states the fault, because people and tests refer to it. "
                "Write it as in QTY_BELOW_ONE."
            )
        if rule.code in seen:
            yield place + (
                "the code is there twice, so that a refused row would not say which of the two struck. "
                "Give one of them another name."
            )
        seen.add(rule.code)
        if rule.severity not in SEVERITIES:
            yield place + (
                f"severity is '{rule.severity}'. It must be one of {', '.join(SEVERITIES)}, because it "
                f"decides what becomes of the record."
            )
        if rule.on_null not in ("refuse", "pass"):
            yield (
                place + "on_null is missing. Say what a predicate that is null means: refuse or pass; "
                "there is no default, because a forgotten null is how bad rows get through."
            )
        if rule.stage not in STAGES:
            yield place + (
                f"stage is '{rule.stage}'. It must be one of {', '.join(STAGES)}, because dead letters "
                f"are counted by it."
            )
        if not rule.why or not rule.fix:
            yield place + (
                "it lacks why or fix. Whoever finds a refused row needs both. Write a sentence each."
            )
        if (rule.when is None) == (not rule.misfit):
            yield place + (
                "it needs either when (a predicate) or misfit (fields that did not convert): with "
                "neither it never strikes, with both it is not said which counts. Keep one."
            )
        for name in rule.misfit:
            if name not in names:
                yield place + (
                    f"misfit names '{name}', which is no field of the contract, so that no text of it "
                    f"could be found wanting. Fields are {', '.join(sorted(names))}."
                )
        if rule.when and (found := _VOLATILE.search(rule.when)):
            yield (
                place + f"it uses {found.group(0)}, which is not deterministic: judged again, a record "
                "would get another verdict. Compare with a column such as _ingested_at."
            )


def _key_faults(contract: Contract, names: set[str]) -> Iterable[str]:
    """What keeps versions of one thing from being told."""
    for name in [*contract.terms.get("key", ()), contract.terms.get("order_by")]:
        if name is not None and name not in names | {"_dataset", "_ingested_at"}:
            yield (
                f"{contract.path}:{contract.line}: {contract.record_type}: key or order_by names "
                f"'{name}', which is no field of the contract, so that versions of one thing could "
                f"not be told. Name a field, or add it to fields."
            )


def _reading_faults(contract: Contract) -> Iterable[str]:
    """What keeps files from being read as the contract says."""
    place = f"{contract.path}:{contract.line}: {contract.record_type}: "
    try:
        schema = parse_ddl(contract.schema_ddl)
        if contract.format == "csv":
            CsvFormat.of_feed(tuple(schema.children), contract.feed)
    except ContractError as error:
        yield place + str(error)
    except (TypeError, ValueError, AttributeError) as error:
        yield place + f"a key of the feed has a value of the wrong kind: {error}. See docs/contracts.md."


def _personal_faults(contract: Contract) -> Iterable[str]:
    """What would let a personal value be shown."""
    place = f"{contract.path}:{contract.line}: {contract.record_type}, "
    marked = {item.name: item.pii for item in contract.fields if item.pii}
    for fault in pii_faults({**contract.personal, **marked}):
        yield place + fault
    for item in contract.fields:
        if item.name in contract.personal_fields and item.can_misfit and item.pii is None:
            yield (
                f"{contract.path}:{item.line}: {contract.record_type}, field {item.name}: it is made of "
                "a personal column and may not convert, and what is said then quotes its text. Give the "
                "field its own pii, such as {kind: birth_date, mask: drop}: then it is not quoted."
            )


def _field_faults(contract: Contract | ChildContract, item: Field) -> Iterable[str]:
    """What is wrong with how a field is typed."""
    place = f"{contract.path}:{item.line}: {contract.record_type}, field {item.name}: "
    inner = item.type[6:-1] if item.type.startswith("array<") else item.type
    if not _TYPE.match(inner):
        yield place + (
            f"type '{item.type}' is unknown. Use string, text, int, bigint, decimal(p,s), boolean, "
            f"date, instant, timestamp with a format, native, or array<...> of these."
        )
    if inner == "timestamp" and not item.formats:
        yield place + "a timestamp needs its format, for example yyyy-MM-dd HH:mm:ss."
    if item.formats and inner not in ("timestamp", "date"):
        yield place + f"a format is for timestamp and date, not for {item.type}. Leave it out."
    is_number = inner in ("int", "bigint") or inner.startswith("decimal")
    if (item.thousands_mark or item.decimal_sign != ".") and not is_number:
        yield place + f"marks are for numbers, not for {item.type}. Leave them out."
    if item.decimal_sign not in (".", ",") or item.thousands_mark not in ("", *_MARKS):
        yield place + (
            f"decimal_sign is '{item.decimal_sign}' and thousands_mark '{item.thousands_mark}'. The "
            f"first is '.' or ',', the second one of . , ' _ or a blank: others stand in no number."
        )
    if item.decimal_sign == item.thousands_mark:
        yield place + (
            f"'{item.decimal_sign}' is decimal sign and thousands mark at once, so that 1"
            f"{item.decimal_sign}234 has two meanings. Say which of the two it is."
        )


def feed_of(contracts: Mapping[str, Contract], name: str) -> list[Contract]:
    """The contracts that claim a file of that name: the record types it can hold."""
    return [c for c in contracts.values() if c.claims(name)]


def check_dataset(contracts: Mapping[str, Contract], dataset: str) -> None:
    """Refuse a ``--dataset`` that no contract knows.

    Raises:
        InputError: No contract has the dataset.
    """
    known = sorted({d.name for c in contracts.values() for d in c.datasets})
    if dataset not in known:
        raise InputError(f"Dataset '{dataset}' is in no contract. Known datasets: {', '.join(known)}.")
