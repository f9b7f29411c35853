"""Where feeds are published: ``ingest/feeds.yml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from ingest.errors import InputError

FEEDS_FILE = Path(__file__).with_name("feeds.yml")
# Without certificates a server can only be trusted that is this machine.
OWN_MACHINE = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True)
class Limits:
    """How much is asked of a publisher, and how long it is waited for.

    Attributes:
        delay_seconds: Pause between two requests.
        timeout_seconds: How long a connection may be without a byte.
        attempts: How often a file is tried without getting on by ``PROGRESS_BYTES``.
        backoff_seconds: Pause after a failed attempt, doubled with each, and as much again by chance.
        longest_wait_seconds: The most that a server may ask for by ``Retry-After``.
        slowest_bytes_per_second: A transfer below that is broken off and taken up again.
        max_zip_bytes: A larger archive is refused.
        max_page_bytes: A larger page is refused.
        max_pages: Pages of one feed in one call.
    """

    delay_seconds: float = 1.0
    timeout_seconds: float = 60.0
    attempts: int = 6
    backoff_seconds: float = 2.0
    longest_wait_seconds: float = 600.0
    slowest_bytes_per_second: float = 1000.0
    max_zip_bytes: int = 10_000_000_000
    max_page_bytes: int = 200_000_000
    max_pages: int = 2000


@dataclass(frozen=True)
class PublishedFeed:
    """Where one dataset is published.

    Attributes:
        dataset: Its name, as the contract has it.
        since: The first year.
        head: URL of the newest page.
        year: URL of a year's archive, with ``{year}``.
        month: The same of a month with ``{month:02}``; None where there are none.
    """

    dataset: str
    since: int
    head: str
    year: str
    month: str | None = None

    def archive(self, year: int, month: int | None) -> str:
        """Give the URL of an archive.

        Raises:
            InputError: Such an archive is not published.
        """
        if year < self.since:
            raise InputError(
                f"{self.dataset} is published from {self.since} on, so there is no archive of {year}. "
                f"Give a later year."
            )
        if month is None:
            return self.year.format(year=year)
        if self.month is None:
            raise InputError(
                f"{self.dataset} is published by year alone. Leave --month out to get all of {year}."
            )
        return self.month.format(year=year, month=month)


@dataclass(frozen=True)
class Feeds:
    """All feeds, and the only origins from which anything is fetched."""

    allowed: frozenset[str]
    limits: Limits
    datasets: Mapping[str, PublishedFeed]

    def feed(self, dataset: str) -> PublishedFeed:
        """Give the feed of a dataset.

        Raises:
            InputError: It is not published.
        """
        if dataset not in self.datasets:
            raise InputError(
                f"Where dataset '{dataset}' is published is not known. Known are "
                f"{', '.join(sorted(self.datasets))}; others are added to {FEEDS_FILE.name}."
            )
        return self.datasets[dataset]


def origin_of(url: str) -> str:
    """Give scheme, host and port of a URL, as the allow-list names them."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()


def load_feeds(path: Path = FEEDS_FILE) -> Feeds:
    """Read the file.

    Raises:
        InputError: It cannot be read, or names something that must not be fetched.
    """
    try:
        text: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
        feeds = Feeds(
            allowed=frozenset(str(item).lower().rstrip("/") for item in text["allowed"]),
            limits=Limits(**text.get("limits", {})),
            datasets={
                name: PublishedFeed(dataset=name, **where) for name, where in text["datasets"].items()
            },
        )
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} cannot be read as a list of feeds: {error!r}. See docs/feeds.md for its keys."
        ) from error
    for origin in feeds.allowed:
        parts = urlsplit(origin)
        if parts.scheme != "https" and parts.hostname not in OWN_MACHINE:
            raise InputError(
                f"{path} allows {origin}. Only https is allowed, because without a certificate nobody "
                f"knows who answers. Write https://, or take it out."
            )
    for feed in feeds.datasets.values():
        for url in (feed.head, feed.year, feed.month or feed.year):
            if origin_of(url) not in feeds.allowed:
                raise InputError(
                    f"{path}: {feed.dataset} is at {origin_of(url)}, which is not among the allowed "
                    f"origins. Add it there if it is the publisher's, or correct the URL."
                )
    return feeds
