"""The verdict on records by the macros with which dbt judges them, so that there is one verdict.

They are rendered here without dbt: an inspected file is in no lake.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

import jinja2

from ingest.contracts import Contract, Field
from ingest.environment import PROJECT_ROOT

_FILES = ("sql_string", "typed", "judge", "verdicts")
_MACRO = re.compile(r"\{%-?\s*macro\s+(\w+)\s*\(.*?\{%-?\s*endmacro\s*-?%\}", re.DOTALL)
_Macro = Callable[..., Any]


class _ReturnedError(Exception):
    """What a macro gives by dbt's ``return`` instead of a text."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class Judge:
    """Renders the SQL that judges the records of a record type."""

    def __init__(self, contract: Contract, records: str, judged_at: datetime) -> None:
        """Load the macros.

        Args:
            contract: Whose records are judged.
            records: Name of the view that holds them, shaped as their Bronze table.
            judged_at: The instant of the verdict, in UTC.
        """
        self._contract = contract
        # dbt's macros find each other by name, and a name from the context as well.
        context: dict[str, _Macro] = {
            "return": _return,
            "ref": lambda _: records,
            # No record of a file that is in no lake was ever purged.
            "unpurged": lambda _: records,
            "contract": lambda _: contract.terms,
            "verdict_contract": lambda _: contract.version,
            "judged_progress": lambda _: {
                "pass": 1,
                "after_batch": None,
                "judged_at": f"timestamp'{judged_at:%Y-%m-%d %H:%M:%S}Z'",
            },
        }
        environment = jinja2.Environment(extensions=["jinja2.ext.do"])
        environment.globals.update(context)
        self._macros: dict[str, _Macro] = {}
        for name in _FILES:
            text = (PROJECT_ROOT / "macros" / f"{name}.sql").read_text("utf-8")
            # Each by itself: within one template they would call each other past dbt's return.
            for found in _MACRO.finditer(text):
                template = environment.from_string(found[0])
                self._macros[found[1]] = partial(_call, template, found[1])
        environment.globals.update(self._macros | context)

    def verdicts(self) -> str:
        """SQL: a row per record, typed, with ``failure_reasons`` in the contract's order."""
        return str(self._macros["judge"](self._contract.record_type))

    def reason(self, failure_reasons: str) -> str:
        """SQL: the group of the first of the codes that an expression gives."""
        return str(self._macros["reason_of"](self._contract.record_type, failure_reasons))

    def typed(self, text: str, field: Field) -> str:
        """SQL: the value of a field that the text which an expression gives stands for, else null."""
        return str(
            self._macros["typed"](
                text, field.type, list(field.formats), field.decimal_sign, field.thousands_mark
            )
        )


def _return(value: Any) -> None:
    raise _ReturnedError(value)


def _call(template: jinja2.Template, name: str, *args: Any, **kwargs: Any) -> Any:
    try:
        return getattr(template.module, name)(*args, **kwargs)
    except _ReturnedError as returned:
        return returned.value
