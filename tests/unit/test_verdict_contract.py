"""What decides a verdict, as the macro of dbt hashes it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import jinja2

from ingest.environment import PROJECT_ROOT

TERMS = {"version": "1.0.0", "rules": [{"code": "A", "when": "a < 1"}]}


def verdict_contract(**terms: Any) -> str:
    text = (PROJECT_ROOT / "macros" / "contract.sql").read_text("utf-8")
    asked = "contract(record_type))"
    assert text.count(f"dict({asked}") == 1
    environment = jinja2.Environment(extensions=["jinja2.ext.do"])
    environment.globals |= {
        "given": {**TERMS, **terms},
        "execute": True,
        "return": lambda value: value,
        "tojson": lambda value, sort_keys: json.dumps(value, sort_keys=sort_keys),
        "local_md5": lambda text: hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(),
    }
    # In dbt a call of a macro is what it returns, and here what it prints: no mapping.
    macros = environment.from_string(text.replace(asked, "given)")).module
    return str(macros.verdict_contract("orders")).strip()  # type: ignore[attr-defined]


def test_a_rule_decides_a_verdict_and_what_is_done_later_does_not() -> None:
    plain = verdict_contract()
    assert plain.startswith("1.0.0+") and len(plain) == len("1.0.0+") + 12
    assert verdict_contract(rules=[]) != plain
    assert verdict_contract(version="1.1.0") != plain
    assert verdict_contract(retry={"window_minutes": 60}, max_attempts=9) == plain
    assert verdict_contract(alerts={"open_above": 1000}) == plain
    assert verdict_contract(retention={"discarded": "90d"}) == plain
