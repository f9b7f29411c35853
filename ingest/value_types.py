"""Which type the texts of a column have, and what speaks against each stricter one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

MOST = 0.95
"""A type, key or rule is proposed where so many of the values there are fit: samples are dirty too."""


@dataclass(frozen=True)
class Type:
    """A type of a field, and which texts it takes.

    Attributes:
        name: As contracts write it.
        terms: What a field says beside it: format, decimal_sign, thousands_mark.
        takes: Whether a text without outer blanks is one of its values, as macros/typed.sql has it.
    """

    name: str
    takes: Callable[[str], bool] = field(compare=False)
    terms: Mapping[str, object] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The type and its terms in words."""
        said = ", ".join(f"{key} {value}" for key, value in self.terms.items())
        return f"{self.name} ({said})" if said else self.name


@dataclass(frozen=True)
class Evidence:
    """What speaks against a type or for a rule: how many values, and one of them."""

    what: str
    records: int
    line: int | None = None
    text: str | None = None

    def __str__(self) -> str:
        """In words."""
        shown = f", for example line {self.line}" if self.line else ""
        shown += f": {self.text!r}" if self.text is not None else ""
        return f"{self.what}: {self.records:,}{shown}"

    def without_text(self) -> Evidence:
        """The same without the value: contracts are shared, and personal data must not be."""
        return replace(self, text=None)


def _whole(mark: str = "") -> Callable[[str], bool]:
    m = re.escape(mark)
    digits = rf"(?:[0-9]{{1,19}}|[0-9]{{1,3}}(?:{m}[0-9]{{3}})+)" if mark else "[0-9]{1,19}"
    return _matcher(rf"[+-]?{digits}\Z")


def _number(sign: str, mark: str) -> Callable[[str], bool]:
    m = re.escape(mark)
    digits = rf"(?:[0-9]+|[0-9]{{1,3}}(?:{m}[0-9]{{3}})+)" if mark else "[0-9]+"
    return _matcher(rf"[+-]?{digits}(?:[{sign}][0-9]+)?\Z")


def _matcher(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda text: compiled.match(text) is not None


def _time(formats: Sequence[str]) -> Callable[[str], bool]:
    def takes(text: str) -> bool:
        return any(_as_time(text, _PYTHON_FORMATS[fmt]) for fmt in formats)

    return takes


def _as_time(text: str, fmt: str) -> datetime | None:
    # Python also reads 1/2/2024 as dd/MM/yyyy; Spark's format would write it with zeros.
    if len(text) != len(_EXAMPLE.strftime(fmt)):
        return None
    try:
        return datetime.strptime(text, fmt)
    except ValueError:
        return None


_EXAMPLE = datetime(2024, 10, 10, 10, 10, 10)
TEXT = Type("text", lambda _: True)
STRING = Type("string", lambda _: True)
# Spark's patterns as Python writes them. The first of two that fit equally is proposed.
_PYTHON_FORMATS = {
    f"{day}{clock}": f"{python_day}{python_clock}"
    for clock, python_clock in (
        ("", ""),
        (" HH:mm:ss", " %H:%M:%S"),
        ("'T'HH:mm:ss", "T%H:%M:%S"),
        (" HH:mm", " %H:%M"),
    )
    for day, python_day in (
        ("yyyy-MM-dd", "%Y-%m-%d"),
        ("dd/MM/yyyy", "%d/%m/%Y"),
        ("MM/dd/yyyy", "%m/%d/%Y"),
        ("dd.MM.yyyy", "%d.%m.%Y"),
        ("yyyy/MM/dd", "%Y/%m/%d"),
    )
}
INSTANT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})\Z"
)
_LOCALES = ((".", ""), (",", ""), (".", ","), (",", "."), (",", " "))


def type_of(name: str, filled: list[tuple[int, str]]) -> tuple[Type, tuple[Evidence, ...]]:
    """The strictest type that takes most values, and what speaks against each stricter one."""
    if not filled:
        return STRING, (Evidence("no value is there to tell a type from", 0),)
    texts = [text for _, text in filled]
    against: list[Evidence] = []
    padded = _matcher(r"[+-]?0[0-9]")
    is_code = re.search(r"(^|_)(id|code|no|nr|number|zip|postcode|phone|sku)\Z", name) is not None
    for candidate in _candidates(texts):
        misses = [(line, text) for line, text in filled if not candidate.takes(text)]
        if len(misses) > len(filled) * (1 - MOST):
            against.append(_against(candidate, misses))
            continue
        if candidate.name in ("int", "bigint") or candidate.name.startswith("decimal"):
            zeros = [(line, text) for line, text in filled if padded(text)]
            if zeros:
                against.append(_against(candidate, zeros, "values begin with a zero that it would lose"))
                continue
            if is_code and candidate.name in ("int", "bigint"):
                against.append(Evidence(f"not {candidate.label}: the name says code, values refused", 0))
                continue
        doubt = _doubt(candidate, texts)
        if doubt:
            against.append(Evidence(f"not {candidate.label}: {doubt}, values", len(filled)))
            continue
        against.append(
            _against(candidate, misses) if misses else Evidence(f"{candidate.label}: values refused", 0)
        )
        return candidate, tuple(against)
    return STRING, tuple(against)


def _against(candidate: Type, misses: list[tuple[int, str]], why: str = "values refused") -> Evidence:
    line, text = misses[0] if misses else (None, None)
    return Evidence(f"{candidate.label}: {why}", len(misses), line, text)


def _candidates(texts: list[str]) -> Iterable[Type]:
    """Types from strict to loose."""
    widest = max((len(t) for t in texts if _whole()(t)), default=0)
    whole = "int" if widest <= 9 else "bigint"
    yield Type(whole, _whole())
    signs = Counter(sign for text in texts for sign in ".," if sign in text)
    if signs and any(character.isdigit() for text in texts[:100] for character in text):
        yield from sorted(_decimals(texts), key=lambda item: -sum(map(item.takes, texts)))[:1]
    yield Type("instant", lambda text: INSTANT.match(text) is not None)
    yield from _times(texts)


def _decimals(texts: list[str]) -> Iterable[Type]:
    for sign, mark in _LOCALES:
        takes = _number(sign, mark)
        fitting = [
            text.lstrip("+-").replace(mark, "") if mark else text.lstrip("+-")
            for text in texts
            if takes(text)
        ]
        if not fitting:
            continue
        whole = max(len(text.partition(sign)[0]) for text in fitting)
        scale = max(len(text.partition(sign)[2]) for text in fitting)
        terms: dict[str, object] = {}
        if sign != ".":
            terms["decimal_sign"] = sign
        if mark:
            terms["thousands_mark"] = mark
        if not scale:
            if mark:
                yield Type("bigint", _whole(mark), {"thousands_mark": mark})
            continue
        # Two more digits than were seen before the sign.
        precision = min(whole + 2 + scale, 38)
        yield Type(f"decimal({precision},{scale})", takes, terms)


def _times(texts: list[str]) -> Iterable[Type]:
    """A date or a timestamp in the formats that the values have, the commonest first."""
    some = texts[:2000]
    hits = {
        fmt: sum(_as_time(text, python) is not None for text in some)
        for fmt, python in _PYTHON_FORMATS.items()
    }
    for with_clock, name in ((False, "date"), (True, "timestamp")):
        ranked = sorted(
            (fmt for fmt in hits if ("HH" in fmt) == with_clock and hits[fmt]), key=lambda f: -hits[f]
        )
        chosen: list[str] = []
        left = some
        for fmt in ranked:
            rest = [text for text in left if not _as_time(text, _PYTHON_FORMATS[fmt])]
            # A format more where it explains values that no other does.
            if len(left) - len(rest) > len(some) * (1 - MOST) / 5:
                chosen.append(fmt)
                left = rest
        if not chosen:
            continue
        if chosen == ["yyyy-MM-dd"]:
            yield Type(name, _time(chosen))
        else:
            yield Type(name, _time(chosen), {"format": chosen[0] if len(chosen) == 1 else chosen})


def _doubt(candidate: Type, texts: list[str]) -> str | None:
    """Why a type that takes the values may misread them all, if it may."""
    if "decimal_sign" in candidate.terms or "thousands_mark" in candidate.terms:
        marked = [text for text in texts if "," in text or "." in text]
        if marked and all(re.fullmatch(r"[+-]?[0-9]{1,3}[.,][0-9]{3}", text) for text in marked):
            return "1,234 may be a thousand or one and a bit; ask the sender"
    formats = candidate.terms.get("format")
    if isinstance(formats, str) and formats.startswith("dd/MM"):
        other = _PYTHON_FORMATS[formats.replace("dd/MM", "MM/dd")]
        if all(_as_time(text, other) for text in texts if candidate.takes(text)):
            return "day and month may stand the other way round; ask the sender"
    return None
