"""Where in a record a value stands: the paths of a Bronze table's columns."""

from __future__ import annotations

import re
from typing import NamedTuple

from ingest.contracts import Contract
from ingest.errors import InputError
from ingest.schema import TEXT_FIELD, Node, parse_ddl

_STEP = re.compile(r"([A-Za-z_][\w-]*)(?:\[([1-9]\d*)\])?\Z")


class Step(NamedTuple):
    """One name of a path; ``number`` counts from 1 and is None where it is not said."""

    name: str
    number: int | None = None


class Path(NamedTuple):
    """A path to one text of a record, as Bronze names it.

    Attributes:
        steps: Elements from the record inwards; for CSV the one column.
        attribute: Without Spark's ``_``, where the text is that of an attribute.
    """

    steps: tuple[Step, ...]
    attribute: str | None = None

    def __str__(self) -> str:
        """As one writes it."""
        names = [s.name if s.number is None else f"{s.name}[{s.number}]" for s in self.steps]
        return ".".join([*names, f"_{self.attribute}"] if self.attribute else names)


def plain_fields(contract: Contract) -> dict[str, str]:
    """Fields of a contract that are one text of the record, as (name, its path in Bronze).

    Left out are fields that are worked out, and those that hold several texts.
    """
    root = parse_ddl(contract.schema_ddl)
    found = {}
    for field in contract.fields:
        try:
            path = _walk(root, field.expression)
        except InputError:
            continue
        if path is not None and not _repeats(root, path):
            found[field.name] = field.expression
    return found


def resolve(contract: Contract, text: str) -> Path:
    """Read a path as a user writes it.

    Args:
        contract: Of the record type.
        text: A column of Bronze, ``Party.PartyName[2].Name`` in depth, ``link[1]._href`` for an
            attribute; or the name of a field of the contract that is one text of the record.

    Raises:
        InputError: There is no such text in a record.
    """
    root = parse_ddl(contract.schema_ddl)
    path = _walk(root, text)
    if path is None:
        fields = plain_fields(contract)
        if text in fields:
            path = _walk(root, fields[text])
    if path is None:
        raise InputError(
            f"'{text}' is no column and no field of {contract.record_type}. Columns: "
            f"{', '.join(_names(root))}. Fields: {', '.join(plain_fields(contract))}."
        )
    return path


def _walk(root: Node, text: str) -> Path | None:
    """Follow a path; None if it is none from its first step on.

    Raises:
        InputError: It leaves the schema further in, or does not end at a text.
    """
    node = root
    steps: list[Step] = []
    parts = text.split(".")
    for number, part in enumerate(parts):
        match = _STEP.match(part)
        if match is None:
            return None
        name, index = match[1], int(match[2]) if match[2] else None
        is_last = number == len(parts) - 1
        if is_last and steps and name == TEXT_FIELD and node.has_text:
            return Path(tuple(steps))
        if is_last and index is None and name[:1] == "_" and name[1:] in node.attributes:
            return Path(tuple(steps), name[1:])
        if name not in node.children:
            if not steps:
                return None
            raise InputError(
                f"'{text}': {steps[-1].name} has no {name}. It has: {', '.join(_names(node))}."
            )
        node = node.children[name]
        if index is not None and not node.is_array:
            raise InputError(
                f"'{text}': {name} does not repeat, so it has no number. Leave [{index}] out."
            )
        steps.append(Step(name, index))
    if node.children or not node.has_text:
        raise InputError(f"'{text}' holds more than a text. Name one of: {', '.join(_names(node))}.")
    return Path(tuple(steps))


def _names(node: Node) -> list[str]:
    return [*node.children, *(f"_{name}" for name in sorted(node.attributes))]


def _repeats(root: Node, path: Path) -> bool:
    node = root
    for step in path.steps:
        node = node.children[step.name]
        if node.is_array:
            return True
    return False
