"""The command ``lakehouse metrics``."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import click

from ingest.cli_options import lake_option
from ingest.errors import InputError
from ingest.lake import Lake


@click.command()
@lake_option
@click.option(
    "--format",
    "fmt",
    type=click.Choice(["prometheus", "openlineage"]),
    default="prometheus",
    show_default=True,
    help="The lake in numbers, or what the last run read and wrote.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write, in one step; standard output where neither it nor --url is given.",
)
@click.option("--url", help="Server to send to: a Pushgateway, or one that takes OpenLineage.")
def metrics(lake_path: Path, fmt: str, out: Path | None, url: str | None) -> None:
    """Give a lake to other tools: Prometheus text, or OpenLineage events as lines of JSON.

    No Spark is needed. An OpenLineage server's key is read from OPENLINEAGE_API_KEY, the namespace of
    jobs from OPENLINEAGE_NAMESPACE (lakehouse where not set).

    Example: lakehouse metrics --format prometheus --out /var/lib/node_exporter/lakehouse.prom

    Example: lakehouse metrics --format openlineage --url http://localhost:5000
    """
    if url is not None:
        _check(url)
    if out is not None and not out.absolute().parent.is_dir():
        raise InputError(f"{out} cannot be written: its folder is not there. Make it first.")
    lake = Lake(lake_path)
    if fmt == "prometheus":
        _prometheus(lake, out, url)
    else:
        _openlineage(lake, out, url)


def _prometheus(lake: Lake, out: Path | None, url: str | None) -> None:
    from ingest.metrics import prometheus

    if out is not None:
        prometheus.write(lake, out)
        click.echo(f"Written: {out}")
    if url is not None:
        prometheus.push(lake, url)
        click.echo("Sent.")
    if out is None and url is None:
        click.echo(prometheus.as_text(lake), nl=False)


def _openlineage(lake: Lake, out: Path | None, url: str | None) -> None:
    from ingest.metrics import openlineage

    if out is not None:
        openlineage.write(lake, out)
        click.echo(f"Written: {out}")
    if url is not None:
        click.echo(f"Sent: {openlineage.send(lake, url, os.environ)} events.")
    if out is None and url is None:
        click.echo(openlineage.as_lines(lake), nl=False)


def _check(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{url} is no address of a server. Write http://host:port or https://host.")
    if parts.password:
        raise InputError("The address holds a password, which the command line shows to everybody.")
