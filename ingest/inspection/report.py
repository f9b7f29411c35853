"""The report as files: Markdown, and one HTML page that needs nothing beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from ingest.inspection.findings import Findings
from ingest.inspection.letter import (
    NONE,
    Chart,
    Code,
    English,
    Heading,
    Inline,
    Line,
    Paragraph,
    Part,
    Table,
    letter,
)

_STYLE = Path(__file__).with_name("report.css")
_MARKS = re.compile(r"([\\`*_{}\[\]<>#|~&])")
_BAR_WIDTH, _BAR_HEIGHT, _LABEL_WIDTH, _ROW_HEIGHT = 420, 18, 150, 28
_LABEL_LENGTH = 20


def write_reports(findings: Findings, lang: str, folder: Path) -> None:
    """Write ``report.md`` and ``report.html`` into a folder."""
    parts = list(letter(findings, lang))
    (folder / "report.md").write_text(markdown(parts), "utf-8")
    (folder / "report.html").write_text(html(parts, lang), "utf-8")


def markdown(parts: Sequence[Part]) -> str:
    """The report as Markdown with GitHub's tables. Numbers are digits alone, so that they are found."""
    return "\n\n".join(filter(None, map(_markdown_part, parts))) + "\n"


def _markdown_part(part: Part) -> str:
    if isinstance(part, Heading):
        return f"{'#' * part.level} {_markdown_line(part.line)}"
    if isinstance(part, Paragraph):
        return _markdown_line(part.line)
    if isinstance(part, Table):
        rows = [[_markdown_line([heading]) for heading in part.headings]]
        numbers = [_is_of_numbers(part, column) for column in range(len(part.headings))]
        rows.append(["---:" if is_number else "---" for is_number in numbers])
        rows += [[_markdown_line(cell, in_table=True) for cell in row] for row in part.rows]
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)
    # A chart's numbers stand in the table beside it.
    return ""


def _is_of_numbers(table: Table, column: int) -> bool:
    cells = [row[column] for row in table.rows if list(row[column]) != [NONE]]
    return bool(cells) and all(len(cell) == 1 and isinstance(cell[0], int) for cell in cells)


def _markdown_line(line: Line, *, in_table: bool = False) -> str:
    return "".join(_markdown_piece(piece, in_table=in_table) for piece in line)


def _markdown_piece(piece: Inline, *, in_table: bool) -> str:
    if isinstance(piece, int):
        return str(piece)
    if isinstance(piece, Code):
        # A fence longer than any in the text; blanks keep a backtick at its edge apart.
        runs = re.findall(r"`+", piece.text)
        fence = "`" * (max(map(len, runs), default=0) + 1)
        pad = " " if piece.text[:1] in ("`", " ") or piece.text[-1:] in ("`", " ") else ""
        code = piece.text.replace("|", "\\|") if in_table else piece.text
        return f"{fence}{pad}{code}{pad}{fence}"
    said = piece.text if isinstance(piece, English) else piece
    return _MARKS.sub(r"\\\1", said)


def html(parts: Sequence[Part], lang: str) -> str:
    """The report as one HTML page: no script, nothing from elsewhere."""
    title = next(part for part in parts if isinstance(part, Heading))
    above: Line | str = ""
    written = []
    for number, part in enumerate(parts):
        if isinstance(part, Table):
            # What the heading above says is said again only to those who hear the page.
            is_repeated = _plain(part.caption) == _plain(above)
            written.append("\n".join(_html_table(part, is_repeated=is_repeated)))
            continue
        if isinstance(part, Chart):
            is_repeated = part.title == _plain(above)
            written.append("\n".join(_html_chart(part, f"part-{number}", is_repeated=is_repeated)))
            above = part.title
            continue
        if isinstance(part, Heading):
            above = part.line
        written.append(_html_part(part))
    body = "\n".join(written)
    return (
        f'<!DOCTYPE html>\n<html lang="{lang}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # Were anything to slip through: no script runs and nothing is fetched.
        f'<meta http-equiv="Content-Security-Policy" '
        f"content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f'<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(_plain(title.line))}</title>\n<style>\n{_STYLE.read_text('utf-8')}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _plain(line: Line | str) -> str:
    return "".join(piece.text if isinstance(piece, Code | English) else str(piece) for piece in line)


def _html_part(part: Heading | Paragraph) -> str:
    tag = f"h{part.level}" if isinstance(part, Heading) else "p"
    return f"<{tag}>{_html_line(part.line)}</{tag}>"


def _html_table(table: Table, *, is_repeated: bool) -> Iterator[str]:
    unseen = ' class="unseen"' if is_repeated else ""
    yield f'<div class="table"><table>\n<caption{unseen}>{_html_line(table.caption)}</caption>'
    numbers = [_is_of_numbers(table, column) for column in range(len(table.headings))]
    kinds = [' class="number"' if is_number else "" for is_number in numbers]
    heads = zip(kinds, table.headings, strict=True)
    yield (
        "<thead><tr>"
        + "".join(f'<th scope="col"{kind}>{escape(heading)}</th>' for kind, heading in heads)
        + "</tr></thead>\n<tbody>"
    )
    for row in table.rows:
        first, *rest = (_html_line(cell) for cell in row)
        cells = "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds[1:], rest, strict=True))
        yield f'<tr><th scope="row"{kinds[0]}>{first}</th>{cells}</tr>'
    yield "</tbody>\n</table></div>"


def _html_line(line: Line) -> str:
    return "".join(map(_html_piece, line))


def _html_piece(piece: Inline) -> str:
    if isinstance(piece, int):
        return str(piece)
    if isinstance(piece, Code):
        # What is written from right to left turns nothing around it.
        return f"<code><bdi>{escape(piece.text)}</bdi></code>"
    if isinstance(piece, English):
        return f'<span lang="en">{escape(piece.text)}</span>'
    return escape(piece)


def _html_chart(chart: Chart, name: str, *, is_repeated: bool) -> Iterator[str]:
    most = max((number for _, number in chart.bars), default=0) or 1
    height = _ROW_HEIGHT * len(chart.bars)
    width = _LABEL_WIDTH + _BAR_WIDTH + 90
    told = "; ".join(f"{label}: {number}" for label, number in chart.bars)
    unseen = ' class="unseen"' if is_repeated else ""
    yield f"<figure>\n<figcaption{unseen}>{escape(chart.title)}</figcaption>"
    yield (
        f'<svg role="img" aria-labelledby="{name}-title {name}-told" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">\n<title id="{name}-title">{escape(chart.title)}</title>\n'
        f'<desc id="{name}-told">{escape(told)}</desc>'
    )
    for row, (label, number) in enumerate(chart.bars):
        top = row * _ROW_HEIGHT + (_ROW_HEIGHT - _BAR_HEIGHT) / 2
        middle = row * _ROW_HEIGHT + _ROW_HEIGHT / 2
        # A bar that is there can be seen, however short beside the longest.
        size = max(number * _BAR_WIDTH / most, 2 if number else 0)
        short = label if len(label) <= _LABEL_LENGTH else label[: _LABEL_LENGTH - 1] + "…"
        yield (
            f'<text x="{_LABEL_WIDTH - 8}" y="{middle}" class="label">{escape(short)}</text>'
            f'<rect x="{_LABEL_WIDTH}" y="{top}" width="{size:.1f}" height="{_BAR_HEIGHT}" rx="2"/>'
            f'<text x="{_LABEL_WIDTH + size + 6:.1f}" y="{middle}" class="count">{number}</text>'
        )
    yield "</svg>\n</figure>"
