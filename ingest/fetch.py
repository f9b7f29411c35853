"""Published files into a landing folder: archives of a year or month, and pages since the last time.

Pages are followed from the newest to older ones until known ground. A walk that did not get there is
remembered with the page at which it stopped, because what it left out lies behind pages that look
known.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from ingest.capture.page import PageHead, read_page_head
from ingest.download import Downloader, Stamp, TryAgainError
from ingest.errors import FetchError, FileReadError, InputError
from ingest.feeds import Limits, PublishedFeed
from ingest.sources import FETCH_FOLDER

log = logging.getLogger("lakehouse")


@dataclass(frozen=True)
class Fetched:
    """What became of one published file: ``new``, or ``known`` where it is what was here already."""

    path: Path
    status: str
    size_bytes: int


class Landing:
    """A folder that files of one dataset are fetched to. One process at a time may."""

    def __init__(
        self, folder: Path, feed: PublishedFeed, downloader: Downloader, limits: Limits
    ) -> None:
        """Touches nothing yet.

        Args:
            folder: Where to; it is made.
            feed: Where the dataset is published.
            downloader: Fetches.
            limits: Sizes, and how many pages a call may take.
        """
        self._folder, self._feed, self._downloader, self._limits = folder, feed, downloader, limits
        self._state_path = folder / FETCH_FOLDER / "state.json"
        self._state: dict[str, Any] = {}

    def fetch_archive(self, year: int, month: int | None = None) -> Fetched:
        """Bring the archive of a year or month, unless the one that is here is still the newest.

        Raises:
            FetchError: It cannot be had.
            InputError: It is not published, or another process fetches to this folder.
        """
        url = self._feed.archive(year, month)
        target = self._folder / safe_name(url)
        with self._locked():
            part = self._part(url)
            stamp = self._downloader.get(
                url,
                part,
                max_bytes=self._limits.max_zip_bytes,
                check=_check_zip,
                known=self._stamp(url, target),
            )
            if stamp is None:
                return Fetched(target, "known", target.stat().st_size)
            before = self._files.get(url, {}).get("sha256") if target.is_file() else None
            # An archive takes the place of its earlier edition: it holds that and more.
            part.replace(target)
            digest = _sha256(target)
            self._remember(url, target, stamp, digest)
            return Fetched(target, "known" if digest == before else "new", target.stat().st_size)

    def fetch_since_last(
        self, known: frozenset[str], *, until: datetime | None = None, forget_gap: bool = False
    ) -> Iterator[Fetched]:
        """Bring the newest page and the ones before it, until known ground.

        Known ground is a page whose content is in the lake or was fetched before, a page older than
        the newest one of the last whole walk, one older than ``until``, and the end of the feed.

        Args:
            known: sha256 of page contents that are in the lake.
            until: How far back to go at most.
            forget_gap: Give up what an earlier walk did not reach.

        Yields:
            Each page that came.

        Raises:
            FetchError: A page cannot be had, or there was no known ground within the most pages of a
                call. What came stays, and the next call goes on from there.
            InputError: Another process fetches to this folder.
        """
        with self._locked():
            if forget_gap:
                self._state.pop("walk", None)
            left = self._limits.max_pages
            if "walk" in self._state:
                log.info("%s: going on where the last walk stopped.", self._feed.dataset)
                for page in self._walk(known, until, left):
                    left -= 1
                    yield page
            self._state["walk"] = {"next": self._feed.head, "urls": [], "pages": [], "newest": ""}
            yield from self._walk(known, until, left)

    def _walk(self, known: frozenset[str], until: datetime | None, left: int) -> Iterator[Fetched]:
        walk = self._state["walk"]
        # What this walk brought looks known, and what lies behind it is not.
        ground = known.union(item["sha256"] for item in self._files.values()) - set(walk["pages"])
        limits = [limit for limit in (until, _instant(self._state.get("newest"))) if limit]
        while walk["next"]:
            url = walk["next"]
            if url in walk["urls"]:
                raise FetchError(
                    f"{self._feed.dataset}: the pages lead back to {url}, which was read before, so the "
                    f"older ones cannot be reached. Load their months with --year and --month, then run "
                    f"again with --forget-gap."
                )
            if left <= 0:
                raise FetchError(
                    f"{self._feed.dataset}: no known ground after {self._limits.max_pages} pages. Run "
                    f"again to go on from {url}; or load the years with --year and say with --until "
                    f"how far back to go."
                )
            left -= 1
            page, digest, head = self._page(url, ground)
            if page.status == "new":
                yield page
            updated = head.updated
            if not walk["newest"] and updated:
                walk["newest"] = updated.astimezone(UTC).isoformat(timespec="microseconds")
            if digest in ground or (updated and any(updated < limit for limit in limits)):
                break
            if head.next_url is None and head.fault is not None:
                raise FetchError(
                    f"{self._feed.dataset}: {url} is damaged before it says which page is next "
                    f"({head.fault}). The page itself is kept. Run again later, when it may be mended; "
                    f"or load its month with --year and --month and then run with --forget-gap."
                )
            walk["urls"].append(url)
            walk["next"] = urljoin(url, head.next_url) if head.next_url else None
            self._save()
        self._state["newest"] = max(walk["newest"], self._state.get("newest", ""))
        del self._state["walk"]
        self._save()

    def _page(self, url: str, ground: frozenset[str]) -> tuple[Fetched, str, PageHead]:
        """Bring one page; give its hash too, and what it says of itself."""
        kept = self._files.get(url, {})
        target = self._folder / kept.get("name", safe_name(url))
        part = self._part(url)
        try:
            stamp = self._downloader.get(
                url,
                part,
                max_bytes=self._limits.max_page_bytes,
                check=_check_page,
                known=self._stamp(url, target),
            )
        except FetchError as error:
            raise FetchError(
                f"{self._feed.dataset}: {error} What came before is kept. If the page is gone for good, "
                f"load its month with --year and --month and then run with --forget-gap."
            ) from error
        if stamp is None:
            data, digest = target.read_bytes(), str(kept["sha256"])
            return Fetched(target, "known", len(data)), digest, read_page_head(data)
        data = part.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        target = self._place(safe_name(url), digest)
        part.replace(target)
        if digest not in ground:
            # Kept in the same step as the page: else a walk that is killed here would take its own
            # page for known ground.
            self._state["walk"]["pages"].append(digest)
        self._remember(url, target, stamp, digest)
        status = "known" if digest == kept.get("sha256") else "new"
        return Fetched(target, status, len(data)), digest, read_page_head(data)

    def _place(self, name: str, digest: str) -> Path:
        """Where a page goes: the newest page changes under one name, and no content is written over."""
        target = self._folder / name
        if target.exists() and _sha256(target) != digest:
            return target.with_name(f"{target.stem}_{digest[:8]}{target.suffix}")
        return target

    @property
    def _files(self) -> dict[str, dict[str, Any]]:
        files: dict[str, dict[str, Any]] = self._state.setdefault("files", {})
        return files

    def _part(self, url: str) -> Path:
        return self._state_path.with_name(f"{safe_name(url)}.part")

    def _stamp(self, url: str, target: Path) -> Stamp | None:
        """The edition that is here, if the file is still what was fetched."""
        kept = self._files.get(url)
        if kept is None or not target.is_file() or target.stat().st_size != kept["size_bytes"]:
            return None
        return Stamp(kept["etag"], kept["last_modified"])

    def _remember(self, url: str, target: Path, stamp: Stamp, digest: str) -> None:
        self._files[url] = {
            "name": target.name,
            "size_bytes": target.stat().st_size,
            "sha256": digest,
            "etag": stamp.etag,
            "last_modified": stamp.last_modified,
            "fetched_at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        self._save()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._state_path.parent.mkdir(parents=True, exist_ok=True)
        with self._state_path.with_name("lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InputError(
                    f"Another process fetches to {self._folder} now. Wait for it, or name another "
                    f"folder with --out."
                ) from error
            try:
                self._state = json.loads(self._state_path.read_text("utf-8"))
            except FileNotFoundError:
                self._state = {}
            except ValueError as error:
                raise InputError(
                    f"{self._state_path} is damaged ({error}). Delete it: files are then asked for "
                    f"anew, and none is doubled in the lake."
                ) from error
            yield

    def _save(self) -> None:
        unfinished = self._state_path.with_suffix(".tmp")
        unfinished.write_text(json.dumps(self._state, indent=1, sort_keys=True), "utf-8")
        unfinished.replace(self._state_path)


def safe_name(url: str) -> str:
    """Give a file name for what a URL names: its last part, of letters, digits, dot, dash and _.

    Raises:
        FetchError: The URL names no file.
    """
    last = PurePosixPath(unquote(urlsplit(url).path)).name
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", last).lstrip(".")[-200:]
    if not name:
        raise FetchError(f"{url} names no file, so it is not fetched. Correct it in feeds.yml.")
    return name


def _check_zip(part: Path) -> None:
    try:
        with zipfile.ZipFile(part) as archive:
            archive.infolist()
    except (zipfile.BadZipFile, OSError) as error:
        raise TryAgainError(f"what came is no whole ZIP ({error})") from error


def _check_page(part: Path) -> None:
    try:
        head = read_page_head(part.read_bytes())
    except FileReadError as error:
        raise FetchError(
            f"What came is no page of a feed: {error} Nothing was kept; try again later."
        ) from error
    if head.fault:
        raise TryAgainError(f"the page is not well-formed, {head.fault}", published_so=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _instant(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
