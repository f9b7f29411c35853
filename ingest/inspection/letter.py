"""The report as a letter: its parts in order, in one language, whatever they are written as."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ingest.inspection.findings import Findings, RefusedRecord, RefusingRule, Shown
from ingest.inspection.texts import has_text, rule_text, text
from ingest.query import terminal_safe


@dataclass(frozen=True)
class Code:
    """What a file or program says: never read as anything but text."""

    text: str


@dataclass(frozen=True)
class English:
    """A sentence that nobody translated."""

    text: str


Inline = str | int | Code | English
"""A piece of a line. A number is a count or a line."""
Line = Sequence[Inline]


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the title."""

    level: int
    line: Line


@dataclass(frozen=True)
class Paragraph:
    """A paragraph."""

    line: Line


@dataclass(frozen=True)
class Table:
    """A table. Numbers stand in cells of their own."""

    caption: Line
    headings: Sequence[str]
    rows: Sequence[Sequence[Line]]


@dataclass(frozen=True)
class Chart:
    """Bars with their numbers; the same numbers stand in a table beside it."""

    title: str
    bars: Sequence[tuple[str, int]]


NONE = "\u2013"
"""What stands in a cell of numbers where there is none."""
Part = Heading | Paragraph | Table | Chart
_Texts = Callable[..., list[Inline]]


def letter(findings: Findings, lang: str) -> Iterator[Part]:
    """The report's parts, in order.

    Args:
        findings: What was found.
        lang: In which language.
    """
    said = partial(_said, lang)
    facts = findings.facts
    file = Code(shown(facts["file"]))
    yield Heading(1, said("title", file=file))
    yield Paragraph(said("greeting"))
    yield Paragraph(
        said(
            "received",
            file=file,
            record_type=Code(facts["record_type"]),
            version=facts["contract_version"],
        )
    )
    yield Table(
        said("records"),
        [text("records", lang), text("number", lang)],
        [
            [said("all_received"), [findings.received]],
            [said("in_order"), [findings.clean]],
            [said("broken"), [findings.broken]],
            [said("returned"), [findings.returned]],
        ],
    )
    if findings.quarantined:
        yield Paragraph(said("ask", section=text("quarantined", lang)))
    else:
        yield Paragraph(said("nothing_to_mend"))
    yield from _remarks(findings, said)
    yield Paragraph(said("regards", owner=facts["owner"]))
    yield from _inference(findings, lang, said)
    yield from _modes(findings, lang, said)
    yield from _quarantined(findings, lang, said)
    yield Paragraph(
        said(
            "provenance",
            file=file,
            bytes=facts["size_bytes"],
            sha256=Code(facts["file_sha256"]),
            encoding=facts["encoding"],
            at=facts["inspected_at"],
        )
    )


def shown(value: str) -> str:
    """A text on one line in which nothing acts: line ends, controls, turns of writing are visible."""
    return terminal_safe(value).replace("\n", "\\n").replace("\t", "\\t")


def _said(lang: str, key: str, **values: Inline | Line) -> list[Inline]:
    """A text with its values in it, each still what it is."""
    pieces: list[Inline] = []
    for before, name, _, _ in string.Formatter().parse(text(key, lang)):
        if before:
            pieces.append(before)
        if name is not None:
            value = values[name]
            pieces.extend([value] if isinstance(value, str | int | Code | English) else value)
    return pieces


def _value(value: Shown | None, said: _Texts) -> Line:
    if value is None or not value.length:
        return said("empty")
    code = Code(shown(value.start))
    if value.length == len(value.start):
        return [code]
    return said("shortened", shown=code, characters=value.length)


def _remarks(findings: Findings, said: _Texts) -> Iterator[Part]:
    """What concerns the file as a whole, and cost no record."""
    facts = findings.facts
    if facts["is_encoding_guessed"]:
        yield Paragraph(said("encoding_guessed", encoding=facts["encoding"]))
    if facts["header_line"]:
        yield Paragraph(said("lines_above_header", line=facts["header_line"]))
    for key in ("missing_columns", "extra_columns"):
        if facts[key]:
            yield Paragraph(said(key, columns=_listed(facts[key])))


def _listed(names: Sequence[str]) -> Line:
    return _joined(", ", ([Code(shown(name))] for name in names))


def _joined(separator: str, lines: Iterable[Line]) -> list[Inline]:
    pieces: list[Inline] = []
    for line in lines:
        pieces += [separator, *line]
    return pieces[1:]


def _inference(findings: Findings, lang: str, said: _Texts) -> Iterator[Part]:
    yield Heading(2, said("inference"))
    yield Paragraph(said("inference_intro"))
    columns = findings.misinferred
    if not columns:
        yield Paragraph(said("inference_right"))
        return
    yield Table(
        said("inference_columns"),
        [text(key, lang) for key in ("column", "agreed", "inferred", "values_at_fault")],
        [[[Code(c.name)], [Code(c.agreed)], [Code(c.inferred)], [c.values]] for c in columns],
    )
    blameless = [column.name for column in columns if not column.values]
    if blameless:
        yield Paragraph(said("no_value_at_fault", columns=_listed(blameless)))
    rows: list[list[Line]] = [
        [[line], [Code(column.name)], _value(value, said)]
        for column in columns
        for line, value in column.examples
    ]
    if rows:
        yield Table(
            said("inference_values"), [text(key, lang) for key in ("line", "column", "value")], rows
        )
    most = max(len(column.examples) for column in columns)
    if any(column.values > len(column.examples) for column in columns):
        yield Paragraph(said("inference_first", shown=most))


def _modes(findings: Findings, lang: str, said: _Texts) -> Iterator[Part]:
    yield Heading(2, said("modes"))
    yield Paragraph(said("modes_intro"))
    none: Line = [NONE]
    yield Table(
        said("modes"),
        [text(key, lang) for key in ("mode", "effect", "rows_written", "malformed")] + ["count()"],
        [
            [
                [Code("PERMISSIVE")], said("permissive_effect"),
                [findings.permissive], [findings.malformed], none,
            ],
            [
                [Code("DROPMALFORMED")], said("dropped_effect"),
                [findings.dropped], none, [findings.count_only],
            ],
            [[Code("FAILFAST")], said("failfast_effect"), none, none, none],
        ],
    )  # fmt: skip
    agrees = findings.count_only == findings.dropped
    yield Paragraph(
        said(
            "count_agrees" if agrees else "count_lies",
            count_only=findings.count_only,
            written=findings.dropped,
        )
    )
    if findings.condition is None:
        yield Paragraph(said("nothing_stopped"))
    else:
        line = findings.failed_line
        yield Table(
            said("stopped_at"),
            [text(key, lang) for key in ("condition", "line", "text")],
            [
                [
                    [Code(findings.condition)],
                    [int(line)] if line.isdecimal() else ["?"],
                    _value(findings.failed_text, said),
                ]
            ],
        )
    if findings.permissive != findings.received:
        yield Paragraph(said("other_rows", rows=findings.permissive, records=findings.received))
    if findings.malformed != findings.broken:
        yield Paragraph(said("other_broken", malformed=findings.malformed, broken=findings.broken))
    yield Heading(3, said("widths"))
    yield Paragraph(said("widths_intro", fields=findings.facts["fields"]))
    yield Chart(text("widths", lang), list(findings.widths.items()))
    widths, naive = findings.widths, findings.widths_naive
    headings = [text("fields", lang), text("lines", lang)]
    keys = sorted({*widths, *(naive or {})}, key=int)
    rows: list[list[Line]] = [[[int(key)], [widths.get(key, 0)]] for key in keys]
    if naive is not None:
        headings.append(text("lines_naive", lang))
        rows = [[*row, [naive.get(key, 0)]] for key, row in zip(keys, rows, strict=True)]
    yield Table(said("widths"), headings, rows)


def _quarantined(findings: Findings, lang: str, said: _Texts) -> Iterator[Part]:
    yield Heading(2, said("quarantined"))
    yield Paragraph(said("quarantine_intro", clean=findings.clean, quarantined=findings.quarantined))
    if not findings.quarantined:
        return
    yield Chart(text("reasons", lang), list(findings.reasons.items()))
    yield Table(
        said("reasons"),
        [text(key, lang) for key in ("reason", "records")],
        [[[Code(reason)], [records]] for reason, records in findings.reasons.items()],
    )
    yield Table(
        said("rule"),
        [text(key, lang) for key in ("rule", "reason", "records")],
        [[[Code(rule.code)], [Code(rule.reason)], [rule.records]] for rule in findings.rules],
    )
    for rule in findings.rules:
        yield from _rule(findings, rule, lang, said)


def _rule(findings: Findings, rule: RefusingRule, lang: str, said: _Texts) -> Iterator[Part]:
    yield Heading(3, [Code(rule.code)])
    for part, english in (("why", rule.why), ("fix", rule.fix)):
        translated = rule_text(findings.facts["record_type"], rule.code, part, lang)
        sentence: Inline = translated or (english if lang == "en" else English(english))
        yield Paragraph(said(part, **{part: sentence}))
    yield Table(
        said("lines_of_rule", code=Code(rule.code)),
        [text(key, lang) for key in ("line", "what_is_wrong", "record_text")],
        [[[row.line], _fault(findings, row, said), _value(row.text, said)] for row in rule.rows],
    )
    if rule.records > len(rule.rows):
        more = rule.records - len(rule.lines)
        lines: list[Line] = [[line] for line in rule.lines]
        lines += [said("and_more", more=more)] if more else []
        yield Paragraph(
            said(
                "first_of_rule",
                shown=len(rule.rows),
                records=rule.records,
                lines=_joined(", ", lines),
            )
        )


def _fault(findings: Findings, row: RefusedRecord, said: _Texts) -> Line:
    """What is wrong with a record: why it does not parse, else the values that the rule is about."""
    if row.error_class:
        if not has_text(row.error_class):
            return [Code(row.error_class)]
        return said(
            row.error_class,
            found=row.fields,
            expected=findings.facts["fields"],
            encoding=findings.facts["encoding"],
        )
    faults = ([Code(name), ": ", *_value(value, said)] for name, value in row.values)
    return _joined("; ", faults) or [NONE]
