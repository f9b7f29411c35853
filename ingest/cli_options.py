"""Options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path

import click

lake_option = click.option(
    "--lake",
    "lake_path",
    type=click.Path(path_type=Path),
    default=lambda: os.environ.get("LAKE", "lake"),
    show_default="LAKE, else lake",
    help="Folder of the lake.",
)
