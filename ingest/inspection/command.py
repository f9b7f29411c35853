"""The command ``lakehouse inspect``."""

from __future__ import annotations

from pathlib import Path

import click

from ingest.inspection.texts import LANGUAGES


@click.command()
@click.argument("record_type")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder to write; new, empty, or with --force that of an earlier report.",
)
@click.option(
    "--lang",
    type=click.Choice(LANGUAGES),
    default="en",
    show_default=True,
    help="Language of the report.",
)
@click.option(
    "--event-log",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for Spark's event logs: each step is an application of its own then.",
)
@click.option("--force", is_flag=True, help="Replace an earlier report.")
def inspect(
    record_type: str, file: Path, out: Path, lang: str, event_log: Path | None, force: bool
) -> None:
    """Look at a partner's CSV: what is inferred, what each read mode does, what is sound, and why not.

    The folder gets the results as Parquet, JSON and text, and a report to send back, as Markdown and
    as HTML. The lake is not touched.

    Example: lakehouse inspect orders orders_2024-05.csv --out report --lang ja
    """
    # What needs Spark is imported when it is needed, so that help is quick.
    from ingest.contracts import load_contracts
    from ingest.inspection.folder import ReportFolder
    from ingest.inspection.run import Options, inspect_file
    from ingest.inspection.subject import look
    from ingest.transform import models_dir

    ReportFolder(out, force=force)
    subject = look(load_contracts(models_dir()), record_type, file)
    findings = inspect_file(subject, Options(out, lang, event_log, force))
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in findings.reasons.items())
    click.echo(
        f"{findings.received:,} records: {findings.clean:,} clean, {findings.quarantined:,} quarantined"
        f"{f' ({reasons})' if reasons else ''}."
    )
    click.echo(
        f"Spark alone: PERMISSIVE flags {findings.malformed:,}, DROPMALFORMED writes "
        f"{findings.dropped:,}, and its count() says {findings.count_only:,}."
    )
    click.echo(f"The report is {out / 'report.html'}")
