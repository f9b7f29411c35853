"""One file over HTTP, from servers that break off, stall, redirect and answer with something else.

A download goes on where it broke off, as long as the server says that it is still the same file.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import logging
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urljoin

import requests
from urllib3.exceptions import HTTPError, InvalidHeader, MaxRetryError
from urllib3.util import Retry

from ingest.environment import pipeline_version
from ingest.errors import FetchError
from ingest.feeds import Limits, origin_of

log = logging.getLogger("lakehouse")
# So much more of a file is progress, after which attempts are counted anew.
PROGRESS_BYTES = 1_000_000
# The rate of a transfer is not looked at before so many seconds.
RATE_AFTER_SECONDS = 30.0
MAX_REDIRECTS = 5
_CHUNK_BYTES = 1 << 16
_TRY_AGAIN = {408, 425, 429, 500, 502, 503, 504}
_REDIRECTS = {301, 302, 303, 307, 308}
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


@dataclass(frozen=True)
class Stamp:
    """By what a server knows one edition of a file."""

    etag: str | None = None
    last_modified: str | None = None

    @property
    def condition(self) -> dict[str, str]:
        """Headers that ask for the file only if it is another edition."""
        headers = {}
        if self.etag:
            headers["If-None-Match"] = self.etag
        if self.last_modified:
            headers["If-Modified-Since"] = self.last_modified
        return headers

    @property
    def resumable(self) -> str | None:
        """What ``If-Range`` takes: a strong ETag, else the date; None where nothing is safe."""
        if self.etag and not self.etag.startswith("W/"):
            return self.etag
        return self.last_modified


class TryAgainError(Exception):
    """An attempt failed in a way that another may not.

    Attributes:
        after: Seconds for which the server asks to be left alone.
        published_so: The file is damaged, but usable: if the same comes again, it is published so and
            taken.
    """

    def __init__(self, reason: str, *, after: float | None = None, published_so: bool = False) -> None:
        super().__init__(reason)
        self.after = after
        self.published_so = published_so


class Downloader:
    """Fetches files from the allowed origins, one at a time.

    Certificates are always checked: there is no way to turn that off. Proxies and certificate bundles
    of the environment (``HTTPS_PROXY``, ``REQUESTS_CA_BUNDLE``) are honoured.
    """

    def __init__(
        self,
        allowed: frozenset[str],
        limits: Limits,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Sends nothing yet.

        Args:
            allowed: Origins, ``https://host``.
            limits: What is asked of servers.
            sleep: Waits so many seconds.
            clock: Seconds that only grow.
        """
        self._allowed, self._limits, self._sleep, self._clock = allowed, limits, sleep, clock
        self._session = requests.Session()
        self._session.headers["User-Agent"] = f"lakehouse/{pipeline_version()}"
        # Ranges and lengths are of the file as it is, not of what a server packs for the way.
        self._session.headers["Accept-Encoding"] = "identity"
        self._last_request: float | None = None

    def get(
        self,
        url: str,
        part: Path,
        *,
        max_bytes: int,
        check: Callable[[Path], None],
        known: Stamp | None = None,
    ) -> Stamp | None:
        """Fetch a file into ``part``, or learn that it is still the edition that is known.

        Args:
            url: Where it is.
            part: Where to. What an earlier call left there is gone on with.
            max_bytes: A larger file is refused.
            check: Looks at the whole file; raises TryAgainError or FetchError.
            known: The edition that is here already.

        Returns:
            The new edition's stamp, with the whole file in ``part``; None where it is the known one.

        Raises:
            FetchError: It cannot be had. What came of it stays in ``part``.
        """
        fresh = Retry(
            total=self._limits.attempts - 1,
            backoff_factor=self._limits.backoff_seconds,
            backoff_jitter=self._limits.backoff_seconds,
            retry_after_max=10**9,
        )
        retry = fresh
        damaged: set[str] = set()
        while True:
            before = _size(part)
            try:
                stamp = self._attempt(url, part, max_bytes, known)
                if stamp is not None:
                    _check(url, part, check, damaged)
                    _stamp_file(part).unlink()
                return stamp
            except TryAgainError as error:
                if _size(part) - before >= PROGRESS_BYTES:
                    retry = fresh
                retry = self._wait(url, retry, error)

    def _wait(self, url: str, retry: Retry, error: TryAgainError) -> Retry:
        try:
            retry = retry.increment("GET", url, error=error)
        except MaxRetryError as exhausted:
            raise FetchError(
                f"{url} cannot be had: {error}, at the last of {self._limits.attempts} attempts. Run "
                f"again later; what has come is kept and gone on with."
            ) from exhausted
        if error.after is not None and error.after > self._limits.longest_wait_seconds:
            raise FetchError(
                f"{url}: {error}, and the server asks to be left alone for {error.after:.0f} s, longer "
                f"than longest_wait_seconds. Run again after that."
            ) from error
        pause = retry.get_backoff_time() if error.after is None else error.after
        log.info("%s: %s. Trying again in %.1f s.", url, error, pause)
        self._sleep(pause)
        return retry

    def _attempt(self, url: str, part: Path, max_bytes: int, known: Stamp | None) -> Stamp | None:
        have = _size(part)
        kept = _read_stamp(part, url)
        headers: dict[str, str] = {}
        if have and kept is not None and kept.resumable:
            headers = {"Range": f"bytes={have}-", "If-Range": kept.resumable}
        else:
            _drop(part)
            if known is not None:
                headers = known.condition
        with self._open(url, headers) as response:
            if response.status_code == 304 and known is not None and "Range" not in headers:
                return None
            start = self._accept(response, url, part, have)
            total = self._announced(response, start)
            if (total or 0) > max_bytes:
                _drop(part)
                raise FetchError(
                    f"{url} would take {total:,} bytes, and {max_bytes:,} is the most. See whether it "
                    f"is the right file; if it is, raise the limit in feeds.yml."
                )
            stamp = Stamp(response.headers.get("ETag"), response.headers.get("Last-Modified"))
            if start == 0:
                _write_stamp(part, url, stamp)
            self._receive(response, url, part, start, max_bytes)
        size = _size(part)
        if total is not None and size != total:
            raise TryAgainError(f"it broke off after {size:,} of {total:,} bytes")
        return stamp

    def _open(self, url: str, headers: dict[str, str]) -> requests.Response:
        """Send a request and follow redirects, each to an allowed origin only."""
        asked = url
        for _ in range(MAX_REDIRECTS + 1):
            if origin_of(url) not in self._allowed:
                led = f"{asked} leads to {url}" if url != asked else url
                raise FetchError(
                    f"{led}, which is at none of the allowed origins, so it is not fetched. If it is "
                    f"the publisher's, add {origin_of(url)} to 'allowed' in feeds.yml."
                )
            self._be_polite()
            try:
                response = self._session.get(
                    url,
                    headers=headers,
                    stream=True,
                    allow_redirects=False,
                    timeout=self._limits.timeout_seconds,
                )
            except requests.exceptions.SSLError as error:
                raise FetchError(
                    f"{url}: the server's certificate is not valid: {error}. Nothing is fetched from a "
                    f"server that cannot prove who it is. Where a proxy signs with a certificate of its "
                    f"own, name its bundle by REQUESTS_CA_BUNDLE."
                ) from error
            except requests.exceptions.RequestException as error:
                raise TryAgainError(f"no answer ({error})") from error
            if response.status_code not in _REDIRECTS or "Location" not in response.headers:
                return response
            response.close()
            url = urljoin(url, response.headers["Location"])
        raise FetchError(f"{asked} redirects more than {MAX_REDIRECTS} times. Correct it in feeds.yml.")

    def _be_polite(self) -> None:
        if self._last_request is not None:
            left = self._limits.delay_seconds - (self._clock() - self._last_request)
            if left > 0:
                self._sleep(left)
        self._last_request = self._clock()

    def _accept(self, response: requests.Response, url: str, part: Path, have: int) -> int:
        """Say from which byte on the answer goes; raise where it is none."""
        status = response.status_code
        if status in _TRY_AGAIN:
            after = response.headers.get("Retry-After")
            seconds = None
            with suppress(InvalidHeader):
                seconds = Retry().parse_retry_after(after) if after else None
            raise TryAgainError(f"the server answers {status}", after=seconds)
        if status == 416:
            # What is here is longer than the file is now.
            _drop(part)
            raise TryAgainError("the file is another one by now")
        if status not in (200, 206):
            missing = " It is not published, or not yet, or no longer." if status in (404, 410) else ""
            raise FetchError(
                f"{url}: the server answers {status}.{missing} Check year, month and feeds.yml, or try "
                f"again later."
            )
        packed = response.headers.get("Content-Encoding", "identity")
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind in ("text/html", "application/xhtml+xml"):
            raise FetchError(
                f"{url}: the server answers with a web page ({kind}), mostly a notice that it is being "
                f"mended, and not with the file. Nothing was kept; look at it in a browser, or try "
                f"again later."
            )
        if packed != "identity":
            raise FetchError(
                f"{url}: the server sends the file packed as {packed}, although it was asked not to, so "
                f"lengths cannot be checked. Tell the publisher."
            )
        if status == 200:
            _drop(part)
            return 0
        found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if found is None or int(found[1]) != have:
            _drop(part)
            raise TryAgainError("the server goes on at another place than it was asked to")
        return have

    @staticmethod
    def _announced(response: requests.Response, start: int) -> int | None:
        """The whole file's size as the server says it, or None."""
        found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if found and found[2] != "*":
            return int(found[2])
        length = response.headers.get("Content-Length", "")
        return start + int(length) if length.isdigit() else None

    def _receive(
        self, response: requests.Response, url: str, part: Path, start: int, max_bytes: int
    ) -> None:
        began, size = self._clock(), start
        with part.open("ab" if start else "wb") as out:
            while True:
                try:
                    chunk = response.raw.read1(_CHUNK_BYTES)
                except (HTTPError, http.client.HTTPException, OSError) as error:
                    # urllib3's own words say the same in three layers.
                    words = f"it broke off after {size:,} bytes ({type(error).__name__})"
                    raise TryAgainError(words) from error
                if not chunk:
                    return
                size += len(chunk)
                if size > max_bytes:
                    _drop(part)
                    raise FetchError(
                        f"{url} is larger than {max_bytes:,} bytes, the most that is taken. See whether "
                        f"it is the right file; if it is, raise the limit in feeds.yml."
                    )
                out.write(chunk)
                seconds = self._clock() - began
                slowest = self._limits.slowest_bytes_per_second
                if seconds > RATE_AFTER_SECONDS and (size - start) / seconds < slowest:
                    raise TryAgainError(f"it comes at less than {slowest:,.0f} bytes/s")


def _check(url: str, part: Path, check: Callable[[Path], None], damaged: set[str]) -> None:
    """Look at a whole file; what is not what it should be does not stay to be gone on with."""
    try:
        check(part)
    except TryAgainError as error:
        with part.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest in damaged and error.published_so:
            log.warning("%s. It came twice, so it is published so.", error)
            return
        _drop(part)
        if digest in damaged:
            raise FetchError(
                f"{url}: {error}, and the same came twice, so it is published so. Tell the publisher, "
                f"and try again later."
            ) from error
        damaged.add(digest)
        raise
    except FetchError:
        _drop(part)
        raise


def _size(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0


def _drop(part: Path) -> None:
    part.unlink(missing_ok=True)
    _stamp_file(part).unlink(missing_ok=True)


def _stamp_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.stamp")


def _write_stamp(part: Path, url: str, stamp: Stamp) -> None:
    _stamp_file(part).write_text(json.dumps({"url": url, **asdict(stamp)}), "utf-8")


def _read_stamp(part: Path, url: str) -> Stamp | None:
    """The edition of which ``part`` is the beginning; None where that is not known."""
    try:
        note = json.loads(_stamp_file(part).read_text("utf-8"))
        return Stamp(note["etag"], note["last_modified"]) if note["url"] == url else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
