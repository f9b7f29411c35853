"""Options that several commands have."""

from __future__ import annotations

import getpass
import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])

lake_option = click.option(
    "--lake",
    "lake_path",
    type=click.Path(path_type=Path),
    default=lambda: os.environ.get("LAKE", "lake"),
    show_default="LAKE, else lake",
    help="Folder of the lake.",
)
format_option = click.option(
    "--format",
    "fmt",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
)
input_option = click.option(
    "--input", "inputs", multiple=True, help="Folder, file, glob or ZIP; may be given again."
)
dataset_option = click.option("--dataset", help="Dataset of files whose name and feed id do not say it.")
retry_option = click.option(
    "--retry-failed", is_flag=True, help="Try files again that failed with the same content."
)

follow_option = click.option(
    "--follow", is_flag=True, help="Keep running, and take what comes until stopped."
)


def interval_option(of_what: str) -> Callable[[_Command], _Command]:
    """The option ``--interval`` of a command that follows; of what its looks are, for the help."""
    return click.option(
        "--interval",
        type=click.IntRange(min=1),
        default=60,
        show_default=True,
        help=f"With --follow: seconds between two looks{of_what}.",
    )


def operator() -> str:
    """Who is logged in, as the system says it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return getpass.getuser()
