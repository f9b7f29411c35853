"""What reports say, in each language: ``ingest/inspection/texts.yml``."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

TEXTS_FILE = Path(__file__).with_name("texts.yml")
LANGUAGES = ("en", "es", "ja", "ko")


@cache
def load() -> dict[str, Any]:
    """The file: ``texts``, by key and language, and ``rules``, by record type, code, part, language."""
    loaded: dict[str, Any] = yaml.safe_load(TEXTS_FILE.read_text("utf-8"))
    return loaded


def text(key: str, lang: str) -> str:
    """A text with its names in braces.

    Raises:
        KeyError: There is no such text.
    """
    return str(load()["texts"][key][lang])


def has_text(key: str) -> bool:
    """Whether there is such a text."""
    return key in load()["texts"]


def rule_text(record_type: str, code: str, part: str, lang: str) -> str | None:
    """The ``why`` or ``fix`` of a rule in another language than English; None where nobody wrote it."""
    found = load()["rules"].get(record_type, {}).get(code, {}).get(part, {}).get(lang)
    return None if found is None else str(found)
