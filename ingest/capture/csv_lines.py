"""Finding where records begin and end in a block of CSV, all of them at once.

In a block that begins with a record, and whose quotes all stand where quotes may, a line end or
delimiter is inside quotes where an odd number of quotes stands before it. The first quote that
stands elsewhere ends this: from its record on, the block is cut record by record.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ingest.capture.csv_format import CsvFormat

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_LF, _CR, _NUL, _BLANK, _TAB = 10, 13, 0, 32, 9


class Found(NamedTuple):
    """Records that stand one after another at the start of a block.

    Attributes:
        starts: Where each begins in the block.
        stops: Where each ends, its line end excluded.
        breaks: Line ends inside each.
        delimiters: Delimiters outside quotes in each.
        blank: Which are blank lines.
        nul: Which hold a NUL byte.
        at: Where every delimiter outside quotes is, in the block.
        end: Bytes that the records and their line ends take.
        sound: False where a record was met that must be cut by itself.
    """

    starts: Numbers
    stops: Numbers
    breaks: Numbers
    delimiters: Numbers
    blank: Flags
    nul: Flags
    at: Numbers
    end: int
    sound: bool


def find(block: bytes, fmt: CsvFormat, *, at_end: bool) -> Found | None:
    """Find the records of a block.

    Args:
        block: Bytes of which the first is the first of a record.
        fmt: How the feed writes its CSV.
        at_end: Whether the file ends with the block.

    Returns:
        The records that end in the block; None where there is none that can be told this way.
    """
    escaped = fmt.quote and fmt.escape != fmt.quote and fmt.escape.encode() in block
    if escaped:
        return None
    data = np.frombuffer(block, dtype=np.uint8)
    lines = _line_ends(data, block, at_end)
    delimiter = ord(fmt.delimiter)
    at = np.flatnonzero(data == delimiter)
    limit = len(block)
    closed_at_end = True
    if fmt.quote and fmt.quote.encode() in block:
        is_quote = data == ord(fmt.quote)
        limit = _first_odd_quote(data, np.flatnonzero(is_quote), fmt, delimiter)
        # Wraps around at 256, which leaves odd and even as they are.
        inside = np.cumsum(is_quote.view(np.uint8), dtype=np.uint8) & 1
        at = at[inside[at] == 0]
        ends = lines[(inside[lines] == 0) & (lines < limit)]
        closed_at_end = not inside[-1]
    else:
        ends = lines
    sound = limit == len(block)
    stops = ends - ((data[ends] == _LF) & (ends > 0) & (data[ends - 1] == _CR))
    if at_end and sound and closed_at_end and (not len(ends) or ends[-1] < limit - 1):
        ends, stops = np.append(ends, limit), np.append(stops, limit)
    if not len(ends):
        return None
    starts = np.concatenate(([0], ends[:-1] + 1))
    breaks = np.diff(np.searchsorted(lines, ends), prepend=-1) - 1
    too_long = (breaks > 0) & (
        (breaks >= fmt.max_record_lines) | (stops - starts > fmt.max_record_bytes)
    )
    if too_long.any():
        sound = False
        first = int(np.argmax(too_long))
        if not first:
            return None
        starts, stops, ends, breaks = (part[:first] for part in (starts, stops, ends, breaks))
    delimiters = np.diff(np.searchsorted(at, ends), prepend=0)
    return Found(
        starts=starts,
        stops=stops,
        breaks=breaks,
        delimiters=delimiters,
        blank=_blank(data, starts, stops, delimiters),
        nul=_with(data == _NUL, ends) if b"\0" in block else np.zeros(len(ends), dtype=np.bool_),
        at=at,
        end=min(int(ends[-1]) + 1, len(block)),
        sound=sound,
    )


def _line_ends(data: npt.NDArray[np.uint8], block: bytes, at_end: bool) -> Numbers:
    """The last byte of each line end. A CR at the end of the block may be half of a CRLF."""
    is_end = data == _LF
    if b"\r" in block:
        # Not before an LF, which then ends the line.
        is_end[:-1] |= (data[:-1] == _CR) & (data[1:] != _LF)
        is_end[-1] |= at_end and data[-1] == _CR
    return np.flatnonzero(is_end)


def _first_odd_quote(
    data: npt.NDArray[np.uint8], quotes: Numbers, fmt: CsvFormat, delimiter: int
) -> int:
    """Where the first quote stands that neither opens, closes nor doubles; else the block's length."""
    beside = [delimiter, _LF, _CR]
    if fmt.escape == fmt.quote:
        beside.append(ord(fmt.quote))
    may_stand = np.zeros(256, dtype=np.bool_)
    may_stand[beside] = True
    opening, closing = quotes[::2], quotes[1::2]
    last = len(data) - 1
    wrong_opening = opening[~(may_stand[data[opening - 1]] | (opening == 0))]
    wrong_closing = closing[~(may_stand[data[np.minimum(closing + 1, last)]] | (closing == last))]
    return min(
        int(wrong_opening[0]) if len(wrong_opening) else len(data),
        int(wrong_closing[0]) if len(wrong_closing) else len(data),
    )


def _blank(data: npt.NDArray[np.uint8], starts: Numbers, stops: Numbers, delimiters: Numbers) -> Flags:
    if delimiters.all():
        return np.zeros(len(starts), dtype=np.bool_)
    shown = np.cumsum((data != _BLANK) & (data != _TAB), dtype=np.int64)
    shown = np.concatenate(([0], shown))
    blank: Flags = (delimiters == 0) & (shown[stops] == shown[starts])
    return blank


def _with(marks: Flags, ends: Numbers) -> Flags:
    """Which records hold a mark."""
    return np.diff(np.searchsorted(np.flatnonzero(marks), ends), prepend=0) > 0
