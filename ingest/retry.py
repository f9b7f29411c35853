"""When a refused record is sent through the gate again by itself: the ``retry`` of a contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeGuard

from ingest.terms import mapping_fault

MAX_ATTEMPTS = 3
"""How often a record may come through the gate where its contract says nothing."""
KEYS = ("window_minutes", "delay_minutes", "backoff", "stages")
_BACKOFF = 2.0
# Ten years: what is longer is no window, and instants have an end.
_LONGEST_MINUTES = 5_256_000
_STEEPEST = 100
# A pause that grew this often is as long as any window, and its factor still is a number.
_MOST_TIMES = 64


@dataclass(frozen=True)
class RetryPolicy:
    """What a contract says of records that nobody corrected.

    Attributes:
        window: For how long after its first arrival a record is sent again by itself.
        delay: The pause before its second time at the gate.
        backoff: By how much each further pause is longer than the one before.
        stages: Stages whose faults may go away by themselves.
        max_attempts: How often a record may come through the gate.
    """

    window: timedelta
    delay: timedelta
    backoff: float = _BACKOFF
    stages: frozenset[str] = frozenset()
    max_attempts: int = MAX_ATTEMPTS

    def due_at(self, since: datetime, attempt: int) -> datetime:
        """When a record is due that was refused at its latest attempt.

        Args:
            since: From when the pause counts.
            attempt: Which time at the gate that was, from 1.
        """
        times = self.backoff ** min(attempt - 1, _MOST_TIMES)
        # A pause that is longer than the window never ends in it, and its end might be no instant.
        return since + self.delay * min(times, self.window / self.delay + 1)


def max_attempts(terms: Mapping[str, Any]) -> int:
    """How often a contract lets a record come through the gate."""
    return int(terms.get("max_attempts", MAX_ATTEMPTS))


def retry_policy(terms: Mapping[str, Any]) -> RetryPolicy | None:
    """The policy of a contract that :func:`retry_faults` found sound; None where it has none."""
    retry = terms.get("retry")
    if retry is None:
        return None
    return RetryPolicy(
        window=timedelta(minutes=retry["window_minutes"]),
        delay=timedelta(minutes=retry["delay_minutes"]),
        backoff=float(retry.get("backoff", _BACKOFF)),
        stages=frozenset(retry.get("stages", ())),
        max_attempts=max_attempts(terms),
    )


def retry_faults(terms: Mapping[str, Any], stages: set[str]) -> Iterator[tuple[int, str]]:
    """What keeps a contract's ``max_attempts`` and ``retry`` from working.

    Args:
        terms: The contract, with the line of each mapping.
        stages: The stages of its rules that refuse.

    Yields:
        The line, and what is wrong, why, and how to go on.
    """
    line = int(terms["__line__"])
    most = terms.get("max_attempts", MAX_ATTEMPTS)
    if not _is_whole(most) or most < 1:
        fault = (
            f"max_attempts is {most!r}. It must be a whole number from 1, because it counts how "
            "often a record may come through the gate."
        )
        yield line, fault
    if "retry" not in terms:
        return
    no_mapping = mapping_fault(
        terms,
        "retry",
        like="with window_minutes and delay_minutes",
        without="only corrected records are sent again by themselves",
    )
    if no_mapping:
        yield line, no_mapping
        return
    retry = terms["retry"]
    for faults in (_unknown_keys(retry), _pause_faults(retry), _stage_faults(retry, stages)):
        for fault in faults:
            yield int(retry["__line__"]), f"retry, {fault}"


def _unknown_keys(retry: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(set(retry) - {*KEYS, "__line__"}):
        yield f"the key '{key}' means nothing. Keys are {', '.join(KEYS)}."


def _pause_faults(retry: Mapping[str, Any]) -> Iterator[str]:
    minutes = []
    for key in ("window_minutes", "delay_minutes"):
        value = retry.get(key)
        if _is_whole(value) and 1 <= value <= _LONGEST_MINUTES:
            minutes.append(value)
        else:
            yield (
                f"{key} is {value!r}. It must be a whole number of minutes from 1 to "
                f"{_LONGEST_MINUTES}, because nothing else says when a record is sent again."
            )
    if len(minutes) > 1 and minutes[1] > minutes[0]:
        yield (
            f"delay_minutes is {minutes[1]} and window_minutes {minutes[0]}, so that no record would "
            "ever be sent again. Make the window longer or the delay shorter."
        )
    backoff = retry.get("backoff", _BACKOFF)
    if not _is_number(backoff) or not 1 <= backoff <= _STEEPEST:
        yield (
            f"backoff is {backoff!r}. It must be a number from 1 to {_STEEPEST}: each pause is so many "
            "times the one before."
        )


def _stage_faults(retry: Mapping[str, Any], stages: set[str]) -> Iterator[str]:
    named = retry.get("stages", [])
    if not isinstance(named, list):
        yield f"stages is {named!r}. It must be a list of stages, such as [schema_migration]."
        return
    for stage in named:
        if not isinstance(stage, str) or stage not in stages:
            yield (
                f"stages names {stage!r}, and no rule that refuses is of that stage, so that no record "
                "would be sent again for it. Stages of this contract: "
                f"{', '.join(sorted(stages)) or 'none'}."
            )


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
