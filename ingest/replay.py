"""Re-entry as a run: refused records are sent through the gate again, judged, and told of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Console

from ingest.ingestion import Findings
from ingest.lake import Lake
from ingest.main_job import (
    Phases,
    ingest_findings,
    judge_and_report,
    make_console,
    session_starter,
    usable_contracts,
)
from ingest.office import messages, reentry, schedule
from ingest.office.actions import Note, chosen
from ingest.office.refused import Filter, Office, Refused
from ingest.office.telling import counted, tell_left
from ingest.progress import make_progress
from ingest.query import connect, identifier, literal

if TYPE_CHECKING:
    from ingest.messages.receiving import Again


@dataclass(frozen=True)
class ReplayOptions:
    """What a user may ask of a replay.

    Attributes:
        ids: Records by id, or by the start of it.
        wanted: Or by filter; where neither is given, those that are corrected.
        note: Who, and why.
        scheduled_at: Or those that are due at this instant; see ``ingest.office.schedule``.
        limit: The most records, the oldest first; None for all.
        dry_run: Say what would be done, and do nothing.
    """

    ids: Sequence[str] = ()
    wanted: Filter = field(default_factory=Filter)
    note: Note = field(default_factory=lambda: Note("", ""))
    scheduled_at: datetime | None = None
    limit: int | None = None
    dry_run: bool = False


def run_replay(lake: Lake, options: ReplayOptions) -> int:
    """Send refused records through the gate again. The caller holds the lake's lock.

    Killed before the batch counts, nothing happened; killed after it, the next replay completes it.
    Twice, the second finds nothing to do.

    Args:
        lake: The lake.
        options: What the user asks for.

    Returns:
        See ``run_main_job``; also 1 where records that were named were left out.

    Raises:
        LakehouseError: Wrong use, or something that the user can mend.
    """
    console, phases = make_console(), Phases()
    note = options.note
    if options.scheduled_at is None:
        usable_contracts(None)
    if not options.dry_run and (told := reentry.settle(lake, note.actor, note.because)):
        console.print(f"{counted(told)} of a replay that was cut short got their event.")
    if not options.dry_run and (told := messages.settle(lake, note.actor, note.because)):
        console.print(f"{counted(told)} of a replay of messages that was cut short got their event.")
    with Office(lake, bronze=True, now=options.scheduled_at) as office:
        records, waiting = _chosen(office, options)
        of_messages = [r for r in records if r.record_type == messages.RECORD_TYPE][: options.limit]
        sent, left = messages.plan(office, of_messages)
        framed, not_framed = reentry.plan_some(
            office,
            [r for r in records if r.record_type != messages.RECORD_TYPE],
            None if options.limit is None else options.limit - len(sent),
        )
        left += not_framed
        number = len(sent) + sum(len(again) for again in framed.values())
        tell_left(left)
        if options.dry_run:
            console.print(f"{counted(number)} would be sent through the gate again.{waiting}")
            return 0
        # What has nothing to do needs no Java.
        contracts = usable_contracts(None) if framed or sent else {}
        files = reentry.write_files(lake, contracts, framed)
    failed = _send_messages(lake, sent, note, console) if sent else 0
    if sent and not files and not _is_built(lake):
        # A lake of messages alone: nothing is there that dbt could judge.
        return failed or (1 if left and options.ids else 0)
    if not files and not sent:
        why = "see above" if left else "none is due" if options.scheduled_at else "none waits for it"
        console.print(f"No record was sent: {why}.{waiting}")
        if options.scheduled_at is not None and reentry.is_judged(lake):
            return 0
        usable_contracts(None)
        # One that was cut short may have left some to be judged.
        code = judge_and_report(lake, phases, console, None) if _is_built(lake) else 0
        return code or (1 if left and options.ids else 0)
    if not files:
        code = judge_and_report(lake, phases, console, session_starter(lake, 0))
        return code or failed or (1 if left and options.ids else 0)
    session = session_starter(lake, sum(file.size_bytes for file in files))
    batch = ingest_findings(
        lake, contracts, Findings(new=files), reentry.COMMAND, phases, make_progress(), session
    )
    reentry.settle(lake, note.actor, note.because)
    code = judge_and_report(lake, phases, console, session)
    if batch is not None:
        _tell(lake, batch, [frame.record_type for frame in framed], console)
    return code or failed or (1 if left and options.ids else 0)


def _is_built(lake: Lake) -> bool:
    return ("bronze", "batches") in lake.tables() and bool(lake.finished_batches())


def _send_messages(lake: Lake, sent: Sequence[tuple[str, Again]], note: Note, console: Console) -> int:
    """Send messages through their gate again, and say what became of them; the job's exit code."""
    # What starts Spark is imported where it is needed.
    from ingest.cli_messages import told
    from ingest.messages.job import run_messages

    path, lines = messages.write_file(lake, sent)
    outcome = run_messages(lake, [str(path)], messages.targets(), reentries=lines)
    messages.settle(lake, note.actor, note.because)
    console.print(f"{counted(len(sent))} sent again, messages: {outcome.received} received.")
    for line in told(outcome):
        console.print(line, markup=False, highlight=False)
    return outcome.exit_code


def _chosen(office: Office, options: ReplayOptions) -> tuple[list[Refused], str]:
    """The records that are meant, and what is to be said of those that wait for their time."""
    if options.scheduled_at is not None:
        plan = schedule.look(office, options.scheduled_at)
        if plan.next_at is None:
            return list(plan.due), ""
        wait = "waits for its" if plan.later == 1 else "wait for their"
        first = f"{plan.next_at:%Y-%m-%d %H:%M} UTC"
        return list(plan.due), f" {counted(plan.later)} {wait} time, the first until {first}."
    wanted = options.wanted
    if not options.ids and wanted.is_empty:
        wanted = Filter(states=("corrected",))
    return chosen(office, options.ids, wanted, "reentered")[0], ""


def _tell(lake: Lake, batch: str, record_types: Sequence[str], console: Console) -> None:
    """Say what became of the records that were sent again."""
    tables = set(lake.tables())
    for record_type in dict.fromkeys(record_types):
        names = {f"{record_type}_judged", f"{record_type}_dispositions"}
        if not {("silver", name) for name in names} <= tables:
            continue
        with connect(lake.path, {f"silver.{name}" for name in names}) as connection:
            found = connection.execute(
                f"""
                select
                  coalesce(decided.disposition, 'refused: ' || judged.failure_reasons[1], 'not judged'),
                  count(*)
                from (
                  select * from silver.{identifier(record_type + "_judged")}
                  where _batch_id = {literal(batch)}
                  qualify row_number() over (partition by _record_id order by _verdict_pass desc) = 1
                ) as judged
                left join silver.{identifier(record_type + "_dispositions")} as decided
                  on decided._record_id = judged._record_id
                group by 1
                order by 2 desc, 1
                """
            ).fetchall()
        told = ", ".join(f"{number} {what}" for what, number in found)
        console.print(f"Sent again, {record_type}: {told or 'nothing yet'}.")
