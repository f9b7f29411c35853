"""A first contract from a sample file: what each column seems to be, and what speaks against more.

Nothing is decided here for good. Every proposal says how many values of the sample it would refuse
and shows one, so that the person who edits the contract can weigh it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from pathlib import Path

from ingest.capture import csv
from ingest.capture.encoding import detect_csv
from ingest.contracts import Contract, feed_of
from ingest.errors import InputError
from ingest.sources import Source
from ingest.value_types import MOST, TEXT, Evidence, Type, type_of

# Records of the sample that are looked at: more change the numbers, hardly the proposal.
SAMPLE_RECORDS = 100_000
_DELIMITERS = ",;\t|"
_LINES_FOR_DELIMITER = 200
_FEW_VALUES = 12
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
# Names that tables of this project have already beside a contract's fields, and words of SQL.
_TAKEN = {
    *(
        "payload",
        "reason",
        "failure_reasons",
        "warnings",
        "is_dropped",
        "detected_at",
        "record_id",
        "disposition",
    ),
    *("by_record_id", "all", "and", "anti", "any", "as", "between", "by"),
    *("case", "cast", "cross", "date", "distinct", "else", "end", "except"),
    *("exists", "false", "for", "from", "full", "group", "having", "in"),
    *("inner", "intersect", "into", "interval", "is", "join", "lateral", "left"),
    *("like", "limit", "minus", "natural", "not", "null", "on", "or"),
    *("order", "outer", "over", "partition", "right", "select", "semi", "set"),
    *("some", "table", "then", "timestamp", "to", "true", "union", "unique"),
    *("user", "using", "values", "when", "where", "window", "with"),
}
_PII: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("email", r"e?_?mail", re.compile(r"[^@\s]+@[^@\s]+\.[A-Za-z]{2,}")),
    ("phone", r"phone|tel|mobile|fax", re.compile(r"\+[0-9][0-9 ()/-]{7,}")),
    ("bank_account", r"iban|account", re.compile(r"[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}")),
    ("identity_number", r"dni|nif|nie|ssn|passport|tax_?id", re.compile(r"[XYZ]?[0-9]{7,8}[A-Z]")),
    ("ip_address", r"ip|ip_?addr\w*", re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){3}")),
    ("name", r"(first|last|full|sur|customer|contact|person)_?name|surname", re.compile(r"(?!)")),
    ("address", r"address|street|postcode|zip\w*", re.compile(r"(?!)")),
    ("birth_date", r"birth\w*|dob", re.compile(r"(?!)")),
    ("identifier", r"(customer|client|user|person|patient|employee)_?(id|no)", re.compile(r"(?!)")),
)  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """A candidate rule, with the records of the sample that it would refuse or flag."""

    code: str
    fault: str
    is_misfit: bool
    severity: str
    stage: str
    reason: str
    why: str
    fix: str
    on_null: str
    evidence: Evidence
    stops: bool = False


@dataclass(frozen=True)
class Column:
    """A column of the sample and what it is proposed to be."""

    header: str
    name: str
    type: Type
    values: int
    nulls: int
    distinct: int
    against: tuple[Evidence, ...]
    pii: str | None
    pii_evidence: str


@dataclass(frozen=True)
class Proposal:
    """A contract to start from, and the evidence for it."""

    name: str
    sample: str
    owner: str
    fmt: csv.CsvFormat
    encoding: csv.Encoding
    records: int
    corrupt: int
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    key_evidence: str
    order_by: str
    rules: tuple[Rule, ...]
    prefix: str
    findings: tuple[str, ...]


def propose(name: str, sample: Path, contracts: Mapping[str, Contract], owner: str) -> Proposal:
    """Propose a contract for files like one.

    Args:
        name: The record type to be.
        sample: A CSV file, packed with gzip or not.
        contracts: The contracts that are there.
        owner: The team that will work off what is refused.

    Raises:
        InputError: The name or the file cannot be what a contract is made from.
        FileReadError: The file cannot be read as CSV.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name in _TAKEN:
        raise InputError(
            f"'{name}' cannot be the name of a record type, because tables are called after it. Use "
            f"lower case letters, digits and _, a noun in the plural, such as parcels."
        )
    if name in contracts:
        raise InputError(
            f"There is a contract of {name} already, in {contracts[name].path}. Nothing was written. "
            f"Edit it, or take another name."
        )
    if not sample.is_file():
        raise InputError(f"{sample} is no file. Give a sample of the feed; nothing was written.")
    if claiming := feed_of(contracts, sample.name):
        raise InputError(
            f"{sample.name} is claimed by the contract of {claiming[0].record_type} already "
            f"({', '.join(claiming[0].feed['files'])}). A file is of one feed. Nothing was written. "
            f"Rename the sample as its files will be called, or narrow that contract's feed."
        )
    source = Source(str(sample.absolute()))
    fmt, encoding, header = _shape(source)
    with source.open() as stream:
        records = list(islice(csv.cut(stream, fmt, header), SAMPLE_RECORDS))
    if not records:
        raise InputError(
            f"{sample} holds no record below its header. A contract is proposed from values. Give a "
            f"sample with some hundred records; nothing was written."
        )
    lines = [record.position for record in records if record.error is None]
    rows = [
        [fmt.unquoted(part.decode("utf-8")) for part in fmt.fields(record.payload.encode())]
        for record in records
        if record.error is None
    ]
    if not rows:
        raise InputError(
            f"{sample}: no record has as many fields as the header. Look at the delimiter, which "
            f"seems to be {fmt.delimiter!r}. Nothing was written."
        )
    named = [(old, new) for old, new in zip(header.names, header.columns, strict=True) if new]
    indexes = [header.columns.index(new) for _, new in named]
    columns = [
        _column(old, str(new), [(line, row[i]) for line, row in zip(lines, rows, strict=True)])
        for i, (old, new) in zip(indexes, named, strict=True)
    ]
    key, key_evidence = _key(columns, [[row[i] for i in indexes] for row in rows])
    columns = [replace(column, type=TEXT) if column.name in key else column for column in columns]
    proposal = Proposal(
        name=name,
        sample=sample.name,
        owner=owner,
        fmt=fmt,
        encoding=encoding,
        records=len(records),
        corrupt=len(records) - len(rows),
        columns=tuple(columns),
        key=key,
        key_evidence=key_evidence,
        order_by=_order_by(columns),
        rules=(),
        prefix=_prefix(sample.name) or name,
        findings=tuple(finding.message for finding in header.findings),
    )
    values = {c.name: [row[i] for row in rows] for c, i in zip(columns, indexes, strict=True)}
    corrupt = next((r.position for r in records if r.error is not None), None)
    return replace(proposal, rules=tuple(_rules(proposal, values, lines, corrupt)))


# -- How the file is written


def _shape(source: Source) -> tuple[csv.CsvFormat, csv.Encoding, csv.Header]:
    """Find delimiter, encoding and header of a sample, and name its columns."""
    with source.open() as stream:
        encoding = detect_csv(stream, None, ',"')
    best: tuple[float, int, list[str], str] | None = None
    for delimiter in _DELIMITERS:
        bare = csv.CsvFormat((), delimiter=delimiter, header=False)
        with source.open() as stream:
            top = csv.read_header(stream, bare, encoding)
        with source.open() as stream:
            records = list(islice(csv.cut(stream, bare, top), _LINES_FOR_DELIMITER))
        payloads = [record.payload.encode() for record in records]
        split = [bare.fields(payload) for payload in payloads]
        (width, times), *_ = Counter(map(len, split)).most_common(1)
        share = times / len(split)
        # The first line of the commonest width: what stands above it is a title.
        first = [part.decode() for part in next(f for f in split if len(f) == width)]
        found = (share if width > 1 else 0.0, width, first, delimiter)
        if best is None or found[:2] > best[:2]:
            best = found
    assert best is not None
    _, width, fields, delimiter = best
    bare = csv.CsvFormat((), delimiter=delimiter)
    headers = [bare.unquoted(text.strip("\ufeff")) for text in fields]
    while len(headers) > 1 and not headers[-1]:
        headers.pop()
    has_header = len(set(headers)) == len(headers) and all(
        text and not re.fullmatch(r"[\d.,:/+ -]+", text) for text in headers
    )
    spellings = Counter(map(bare.canonical, headers))
    if has_header and (alike := [text for text in headers if spellings[bare.canonical(text)] > 1]):
        raise InputError(
            f"The header of {source.name} names two columns alike: {', '.join(alike)}. Columns are "
            f"matched without case and blanks. Rename one in the file; nothing was written."
        )
    columns = _names(headers if has_header else [""] * width)
    aliases = {
        old: new
        for old, new in zip(headers, columns, strict=True)
        if has_header and bare.canonical(old) != bare.canonical(new)
    }
    fmt = csv.CsvFormat(
        tuple(columns),
        delimiter=delimiter,
        header=has_header,
        encoding=encoding.name if encoding.evidence else None,
        aliases=aliases,
    )
    with source.open() as stream:
        return fmt, encoding, csv.read_header(stream, fmt, encoding)


def _names(headers: Sequence[str]) -> list[str]:
    names: list[str] = []
    for number, header in enumerate(headers, start=1):
        # Letters without their accents.
        plain = unicodedata.normalize("NFKD", header.casefold()).encode("ascii", "ignore").decode()
        name = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")
        if not _WORD.match(name):
            name = f"column_{number}"
        if name in _TAKEN:
            name = f"{name}_value"
        while name in names:
            name = f"{name}_{number}"
        names.append(name)
    return names


def _prefix(file_name: str) -> str:
    """What names of the feed's files begin with: the letters before a date or a number."""
    found = re.match(r"[A-Za-z]+(?:[_-][A-Za-z]+)*", file_name.split(".")[0])
    return found.group() if found else ""


# -- What a column is


def _column(header: str, name: str, values: list[tuple[int, str]]) -> Column:
    """What a column is proposed to be, from its values and the lines on which they stand."""
    filled = [(line, text) for line, text in values if text]
    chosen, against = type_of(name, filled)
    pii, pii_evidence = _pii_of(name, [text for _, text in filled])
    return Column(
        header=header,
        name=name,
        type=chosen,
        values=len(filled),
        nulls=len(values) - len(filled),
        distinct=len({text for _, text in filled}),
        against=tuple(e.without_text() for e in against) if pii else against,
        pii=pii,
        pii_evidence=pii_evidence,
    )


def _pii_of(name: str, texts: list[str]) -> tuple[str | None, str]:
    for kind, names, pattern in _PII:
        hits = sum(pattern.fullmatch(text) is not None for text in texts)
        if texts and hits > len(texts) / 2:
            return kind, f"{hits:,} of {len(texts):,} values look like it"
        if re.search(rf"(^|_)({names})(_|\Z)", name):
            return kind, "its name says so"
    return None, ""


# -- What identifies and orders records


def _key(columns: list[Column], rows: list[list[str]]) -> tuple[tuple[str, ...], str]:
    """The columns that seem to say which thing a record is about."""
    total = len(rows)

    def fit(indexes: Sequence[int]) -> tuple[int, int]:
        there = [values for row in rows if all(values := tuple(row[i] for i in indexes))]
        return len(there), len(set(there))

    def named_like_a_key(index: int) -> bool:
        return re.search(r"(^|_)(id|key|no|nr|number|code|uuid)\Z", columns[index].name) is not None

    able = [
        i
        for i, column in enumerate(columns)
        if not column.type.name.startswith(("decimal", "timestamp", "instant", "date"))
    ]
    for size, pool in ((1, able), (2, able[:12])):
        found = []
        for indexes in combinations(pool, size):
            there, distinct = fit(indexes)
            if there >= total * MOST and distinct >= there * MOST:
                found.append((not all(map(named_like_a_key, indexes)), indexes, there, distinct))
        if found:
            _, indexes, there, distinct = min(found)
            names = tuple(columns[i].name for i in indexes)
            return names, (
                f"{distinct:,} different keys in {there:,} records that have one; {total - there:,} "
                f"lack it"
            )
    first = max(range(len(columns)), key=lambda i: (columns[i].distinct, -i))
    return (columns[first].name,), (
        f"NO COLUMN AND NO PAIR IS A KEY: {columns[first].name} has the most values, "
        f"{columns[first].distinct:,} in {total:,} records. Records with one value of it would "
        f"supersede each other. Put the right key here"
    )


def _order_by(columns: list[Column]) -> str:
    times = [c for c in columns if c.type.name in ("timestamp", "instant", "date")]
    times.sort(
        key=lambda c: (
            re.search(r"updat|modif|chang", c.name) is None,
            c.type.name == "date",
        )
    )
    return times[0].name if times else "_ingested_at"


# -- Rules


def _rules(
    proposal: Proposal,
    values: Mapping[str, list[str]],
    lines: list[int],
    corrupt: int | None,
) -> Iterable[Rule]:
    """Candidate rules, in the order in which they are asked."""
    total = len(lines)
    personal = {column.name for column in proposal.columns if column.pii}
    yield Rule(
        "CORRUPT_RECORD", "_corrupt_record is not null", False, "quarantine", "csv_parsing", "parse",
        "A record with too many or too few fields has its values in wrong columns from the fault on.",
        "Quote the field that holds the delimiter, or add the missing field, and send the line again.",
        "pass", Evidence("refuses", proposal.corrupt, corrupt), stops=True,
    )  # fmt: skip

    def struck(name: str, is_faulty: Callable[[str], bool]) -> Evidence:
        hits = [i for i, value in enumerate(values[name]) if is_faulty(value)]
        if not hits:
            return Evidence("refuses", 0)
        found = Evidence("refuses", len(hits), lines[hits[0]], values[name][hits[0]])
        return found.without_text() if name in personal else found

    for column in proposal.columns:
        name, code, kind = column.name, column.name.upper(), column.type
        if kind.name not in ("text", "string"):
            yield Rule(
                f"{code}_NOT_{kind.name.split('(')[0].upper()}",
                f"[{name}]", True, "quarantine", "schema_validation", "parse",
                f"A text that is no {kind.label} has no value that could be worked with, and a guess "
                f"would be invented data.",
                f"Write {name} as agreed and send the line again.", "pass",
                struck(name, lambda value, takes=kind.takes: bool(value) and not takes(value)),  # type: ignore[misc]
            )  # fmt: skip
    for name in proposal.key:
        yield Rule(
            f"{name.upper()}_MISSING", f"{name} is null or {name} = ''", False, "quarantine",
            "schema_validation", "key",
            f"{name} is of the key. Two records without it cannot be told apart.",
            f"Add {name} and send the line again.", "refuse", struck(name, lambda value: not value),
        )  # fmt: skip
    for column in proposal.columns:
        yield from _candidates_of(column, proposal.key, total, values[column.name], struck)
    yield Rule(
        "UNPARSED_CONTENT", "size(_unparsed) > 0", False, "warn", "schema_validation", "drift",
        "The file has columns that the contract does not know. They are in the payload only.",
        "Look at the mart schema_drift; add the column to the contract and raise its version.",
        "pass", Evidence("flags", 0),
    )  # fmt: skip


def _candidates_of(
    column: Column,
    key: tuple[str, ...],
    total: int,
    texts: list[str],
    struck: Callable[[str, Callable[[str], bool]], Evidence],
) -> Iterable[Rule]:
    name, code = column.name, column.name.upper()
    is_typed = column.type.name not in ("text", "string")
    raw = f"raw_{name}" if column.type.name != "string" else name
    if name not in key and column.nulls <= total * (1 - MOST):
        yield Rule(
            f"{code}_MISSING", f"{raw} is null or trim({raw}) = ''", False, "warn", "business_rule",
            name, f"Hardly any record of the sample lacks {name}.",
            f"Find out whether {name} may be empty; make this rule refuse, or delete it.", "refuse",
            replace(struck(name, lambda value: not value), what="flags"),
        )  # fmt: skip
    is_number = column.type.name in ("int", "bigint") or column.type.name.startswith("decimal")
    if is_number:
        below = struck(name, lambda value: value.startswith("-") and column.type.takes(value))
        if below.records <= column.values * (1 - MOST):
            yield Rule(
                f"{code}_BELOW_ZERO", f"{name} < 0", False, "warn", "business_rule", name,
                f"Hardly any {name} of the sample is below zero.",
                f"Find out whether {name} may be below zero; make this rule refuse, or delete it.",
                "pass", replace(below, what="flags"),
            )  # fmt: skip
    elif is_typed:
        yield Rule(
            f"{code}_OUT_OF_RANGE", f"year({name}) not between 1990 and year(_ingested_at) + 10", False,
            "warn", "business_rule", name,
            "A year such as 0001 or 4020 is a default value or a slip, and would be first or last for "
            "ever.",
            f"Correct {name} and send the line again.", "pass",
            replace(struck(name, _out_of_range(column.type)), what="flags"),
        )  # fmt: skip
    elif not column.pii:
        common = Counter(text for text in texts if text).most_common()
        often = sorted(text for text, times in common if times >= max(2, total * 0.01))
        covered = sum(times for text, times in common if text in set(often))
        if name not in key and 2 <= len(often) <= _FEW_VALUES and covered >= column.values * MOST:
            listed = ", ".join(
                "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'" for text in often
            )
            known = set(often)
            yield Rule(
                f"{code}_UNKNOWN", f"trim({name}) <> '' and trim({name}) not in ({listed})", False,
                "warn", "business_rule", name,
                f"Nearly every {name} of the sample is one of {len(often)} values.",
                f"Find out which values {name} may have; complete the list and make this rule refuse, "
                f"or delete it.", "pass",
                replace(struck(name, lambda value: bool(value) and value not in known), what="flags"),
            )  # fmt: skip


def _out_of_range(kind: Type) -> Callable[[str], bool]:
    def is_faulty(text: str) -> bool:
        found = re.search(r"(?<![0-9])([0-9]{4})(?![0-9])", text)
        # Ten years are left to come: what is proposed must not change with the day it is proposed.
        return bool(kind.takes(text) and found and not 1990 <= int(found[1]) <= 2090)

    return is_faulty
