"""Fetching from a real server on this machine that misbehaves in every way that servers do."""

from __future__ import annotations

import email.utils
import hashlib
import io
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from ingest.capture.page import read_page_head
from ingest.cli import cli
from ingest.contracts import load_contracts
from ingest.download import Downloader
from ingest.errors import FetchError, FileReadError, InputError, LakehouseError
from ingest.feeds import Feeds, Limits, PublishedFeed, load_feeds, origin_of
from ingest.fetch import Fetched, Landing, safe_name
from ingest.lake import Lake
from ingest.sources import Source, find_sources
from ingest.transform import models_dir

Answer = Callable[["Handler"], None]
LIMITS = Limits(
    delay_seconds=1, timeout_seconds=1, attempts=4, backoff_seconds=2, longest_wait_seconds=60,
    slowest_bytes_per_second=1000, max_zip_bytes=100_000, max_page_bytes=10_000, max_pages=10,
)  # fmt: skip


class Handler(BaseHTTPRequestHandler):
    """Gives the next answer that a test wrote for the path; the last one for good."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.server.seen.append((self.path, dict(self.headers)))
        answers = self.server.answers.get(self.path, [status(404)])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        answer(self)

    def say(self, code: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        headers.setdefault("Content_Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Answers by path, and the requests that came."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, list[Answer]] = {}
        self.seen: list[tuple[str, dict[str, str]]] = []

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def headers(self, name: str) -> list[str | None]:
        return [headers.get(name) for _, headers in self.seen]


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def status(code: int, **headers: str) -> Answer:
    return lambda handler: handler.say(code, b"no", **headers)


def file(body: bytes, etag: str | None = '"1"', **headers: str) -> Answer:
    """A decent server: ranges, conditions, an ETag."""

    def answer(handler: Handler) -> None:
        tags = {"ETag": etag} if etag else {}
        wanted = handler.headers.get("Range")
        if etag and handler.headers.get("If-None-Match") == etag:
            handler.say(304, **tags)
        elif wanted and handler.headers.get("If-Range") == etag:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            content_range = f"bytes {start}-{len(body) - 1}/{len(body)}"
            handler.say(206, body[start:], Content_Range=content_range, **tags)
        else:
            handler.say(200, body, **tags, **headers)

    return answer


def cut(body: bytes, after: int, etag: str = '"1"') -> Answer:
    """Announces all of it and hangs up."""

    def answer(handler: Handler) -> None:
        handler.say(200, body[:after], Content_Length=str(len(body)), ETag=etag)
        handler.close_connection = True

    return answer


def stall(body: bytes, after: int) -> Answer:
    """Announces all of it and falls silent."""

    def answer(handler: Handler) -> None:
        handler.say(200, body[:after], Content_Length=str(len(body)), ETag='"1"')
        # Longer than the client waits; the test ends when it goes on.
        time.sleep(1.5)
        handler.close_connection = True

    return answer


def archive(name: str = "a.atom", text: str = "x" * 500) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file_:
        # A ZipInfo of its own has a fixed date: the same call gives the same bytes.
        file_.writestr(zipfile.ZipInfo(name), text)
    return packed.getvalue()


def page(updated: str, next_: str | None = None, body: str = "") -> bytes:
    link = f'<link href="{next_}" rel="next"/>' if next_ else ""
    return (
        f'<feed xmlns="http://www.w3.org/2005/Atom">{link}<updated>{updated}</updated>'
        f"<entry><updated>2001-01-01T00:00:00Z</updated>{body}</entry></feed>"
    ).encode()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def landing(server: Server, clock: Clock, tmp_path: Path) -> Landing:
    return new_landing(server, clock, tmp_path)


def new_landing(server: Server, clock: Clock, tmp_path: Path, limits: Limits = LIMITS) -> Landing:
    base = f"{server.origin}/menores"
    feed = PublishedFeed(
        "menores", 2018, f"{base}/m.atom", base + "/m_{year}.zip", base + "/m_{year}{month:02}.zip"
    )
    downloader = Downloader(frozenset([server.origin]), limits, sleep=clock.sleep, clock=clock)
    return Landing(tmp_path / "landing", feed, downloader, limits)


ZIP = "/menores/m_2020.zip"
HEAD = "/menores/m.atom"


# -- archives


def test_an_archive_comes_whole_and_its_month_has_two_digits(server: Server, landing: Landing) -> None:
    server.answers["/menores/m_202006.zip"] = [file(archive())]
    fetched = landing.fetch_archive(2020, 6)
    assert fetched == Fetched(fetched.path, "new", len(archive()))
    assert fetched.path.name == "m_202006.zip" and fetched.path.read_bytes() == archive()


@pytest.mark.parametrize("broken", [cut(archive(), 200), stall(archive(), 200)], ids=["cut", "slow"])
def test_a_broken_download_is_gone_on_with(server: Server, landing: Landing, broken: Answer) -> None:
    server.answers[ZIP] = [broken, file(archive())]
    assert landing.fetch_archive(2020).path.read_bytes() == archive()
    assert server.headers("Range") == [None, "bytes=200-"]
    assert server.headers("If-Range") == [None, '"1"']


def test_it_is_gone_on_with_by_the_next_call_too(server: Server, clock: Clock, tmp_path: Path) -> None:
    server.answers[ZIP] = [cut(archive(), 200)]
    with pytest.raises(FetchError, match="broke off after 200 bytes"):
        new_landing(server, clock, tmp_path).fetch_archive(2020)
    assert not (tmp_path / "landing" / "m_2020.zip").exists()
    server.seen.clear()
    server.answers[ZIP] = [file(archive())]
    assert new_landing(server, clock, tmp_path).fetch_archive(2020).path.read_bytes() == archive()
    assert server.headers("Range") == ["bytes=200-"]


def test_another_edition_is_not_glued_to_the_beginning_of_the_old(
    server: Server, landing: Landing
) -> None:
    newer = archive(text="y" * 700)
    server.answers[ZIP] = [cut(archive(), 200), file(newer, '"2"')]
    assert landing.fetch_archive(2020).path.read_bytes() == newer


def test_without_a_strong_stamp_a_download_starts_anew(server: Server, landing: Landing) -> None:
    server.answers[ZIP] = [cut(archive(), 200, 'W/"1"'), file(archive(), None)]
    assert landing.fetch_archive(2020).path.read_bytes() == archive()
    assert server.headers("Range") == [None, None]


def test_a_server_that_goes_on_elsewhere_is_not_believed(server: Server, landing: Landing) -> None:
    def elsewhere(handler: Handler) -> None:
        handler.say(206, archive()[100:], Content_Range=f"bytes 100-600/{len(archive())}")

    server.answers[ZIP] = [cut(archive(), 200), elsewhere, file(archive())]
    assert landing.fetch_archive(2020).path.read_bytes() == archive()


def test_less_of_a_range_than_was_asked_for_is_not_the_whole(server: Server, landing: Landing) -> None:
    def slice_(handler: Handler) -> None:
        whole = archive()
        handler.say(206, whole[200:300], Content_Range=f"bytes 200-299/{len(whole)}", ETag='"1"')

    server.answers[ZIP] = [cut(archive(), 200), slice_, file(archive())]
    assert landing.fetch_archive(2020).path.read_bytes() == archive()
    assert server.headers("Range") == [None, "bytes=200-", "bytes=300-"]


def test_an_archive_is_asked_for_again_and_replaced_when_it_changed(
    server: Server, landing: Landing
) -> None:
    server.answers[ZIP] = [file(archive())]
    assert landing.fetch_archive(2020).status == "new"
    assert landing.fetch_archive(2020).status == "known"
    assert server.headers("If-None-Match") == [None, '"1"']
    newer = archive(text="z" * 800)
    server.answers[ZIP] = [file(newer, '"2"')]
    fetched = landing.fetch_archive(2020)
    assert fetched.status == "new" and fetched.path.read_bytes() == newer


def test_an_archive_that_someone_damaged_here_is_fetched_again(server: Server, landing: Landing) -> None:
    server.answers[ZIP] = [file(archive())]
    path = landing.fetch_archive(2020).path
    path.write_bytes(b"short")
    assert landing.fetch_archive(2020).path.read_bytes() == archive()


def test_the_server_says_how_long_to_wait(server: Server, landing: Landing, clock: Clock) -> None:
    soon = email.utils.format_datetime(datetime.fromtimestamp(time.time() + 30, UTC), usegmt=True)
    server.answers[ZIP] = [
        status(429, Retry_After="17"), status(503, Retry_After=soon), status(503, Retry_After="soon"),
        file(archive()),
    ]  # fmt: skip
    landing.fetch_archive(2020)
    assert 17 in clock.slept
    assert any(25 < seconds < 31 for seconds in clock.slept)


def test_pauses_grow_and_attempts_end(server: Server, landing: Landing, clock: Clock) -> None:
    server.answers[ZIP] = [status(503)]
    with pytest.raises(FetchError, match=r"answers 503, at the last of 4 attempts\. Run again"):
        landing.fetch_archive(2020)
    assert len(server.seen) == 4
    [_, second, third] = [s for s in clock.slept if s != 1]
    assert 4 <= second <= 6 and 8 <= third <= 10


def test_a_server_that_wants_too_long_a_wait_ends_the_call(server: Server, landing: Landing) -> None:
    server.answers[ZIP] = [status(429, Retry_After="7200")]
    with pytest.raises(FetchError, match="7200 s"):
        landing.fetch_archive(2020)
    assert len(server.seen) == 1


def test_requests_are_a_politeness_delay_apart(server: Server, landing: Landing, clock: Clock) -> None:
    server.answers[ZIP] = [file(archive())]
    landing.fetch_archive(2020)
    landing.fetch_archive(2020)
    assert clock.slept == [1]


def test_what_is_not_published_is_not_asked_for_twice(server: Server, landing: Landing) -> None:
    with pytest.raises(FetchError, match=r"answers 404\. It is not published"):
        landing.fetch_archive(2020)
    assert len(server.seen) == 1


def test_a_web_page_is_no_archive(server: Server, landing: Landing, tmp_path: Path) -> None:
    server.answers[ZIP] = [
        lambda handler: handler.say(200, b"<html>Mantenimiento", Content_Type="text/html; charset=x")
    ]
    with pytest.raises(FetchError, match="web page"):
        landing.fetch_archive(2020)
    assert [p.name for p in (tmp_path / "landing").rglob("*.zip*")] == []


def test_what_is_no_zip_is_refused_whatever_it_says(server: Server, landing: Landing) -> None:
    server.answers[ZIP] = [file(b"<html>Mantenimiento</html>", Content_Type="application/zip")]
    with pytest.raises(FetchError, match=r"no whole ZIP.*came twice"):
        landing.fetch_archive(2020)
    assert len(server.seen) == 2


def test_a_length_that_is_too_short_is_noticed(server: Server, landing: Landing) -> None:
    short = file(archive()[:-50])
    server.answers[ZIP] = [short, file(archive())]
    assert landing.fetch_archive(2020).path.read_bytes() == archive()


@pytest.mark.parametrize("announced", [True, False])
def test_what_is_too_large_is_refused(
    server: Server, clock: Clock, tmp_path: Path, announced: bool
) -> None:
    def large(handler: Handler) -> None:
        if announced:
            handler.say(200, archive())
            return
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(archive() * 100)
        handler.close_connection = True

    server.answers[ZIP] = [large]
    small = Limits(max_zip_bytes=300, attempts=1, timeout_seconds=1)
    with pytest.raises(FetchError, match="300"):
        new_landing(server, clock, tmp_path, small).fetch_archive(2020)
    assert list((tmp_path / "landing").rglob("*.part")) == []


def test_a_trickle_is_broken_off(server: Server, clock: Clock, tmp_path: Path) -> None:
    def trickle(handler: Handler) -> None:
        handler.say(200, archive()[:100], Content_Length=str(len(archive())), ETag='"1"')
        for _ in range(3):
            clock.now += 20
            time.sleep(0.02)
            handler.wfile.write(b"x")
        handler.close_connection = True

    server.answers[ZIP] = [trickle, file(archive())]
    landing = new_landing(server, clock, tmp_path)
    landing.fetch_archive(2020)
    assert len(server.seen) == 2


def test_a_redirect_is_followed_to_allowed_origins_alone(server: Server, landing: Landing) -> None:
    server.answers["/there.zip"] = [file(archive())]
    server.answers[ZIP] = [status(302, Location="/there.zip")]
    assert landing.fetch_archive(2020).status == "new"
    elsewhere = f"http://localhost:{server.server_port}/there.zip"
    server.answers["/menores/m_2021.zip"] = [status(301, Location=elsewhere)]
    server.seen.clear()
    with pytest.raises(FetchError, match="none of the allowed origins"):
        landing.fetch_archive(2021)
    assert len(server.seen) == 1


def test_redirects_end(server: Server, landing: Landing) -> None:
    server.answers[ZIP] = [status(307, Location=ZIP)]
    with pytest.raises(FetchError, match="redirects more than"):
        landing.fetch_archive(2020)


def test_a_certificate_that_proves_nothing_ends_the_call(server: Server, clock: Clock) -> None:
    # A server that speaks no TLS at all is the simplest that cannot prove who it is.
    origin = server.origin.replace("http:", "https:")
    downloader = Downloader(frozenset([origin]), LIMITS, sleep=clock.sleep, clock=clock)
    with pytest.raises(FetchError, match="certificate is not valid"):
        downloader.get(f"{origin}/x", Path("unused"), max_bytes=1, check=lambda _: None)


def test_years_that_are_not_published_are_wrong_use(landing: Landing) -> None:
    with pytest.raises(InputError, match="from 2018 on"):
        landing.fetch_archive(2012)


# -- pages


def names(files: Iterator[Fetched]) -> list[str]:
    return [item.path.name for item in files]


def chain(server: Server, *pages: tuple[str, bytes]) -> None:
    for name, data in pages:
        server.answers[f"/menores/{name}"] = [file(data, f'"{hashlib.sha256(data).hexdigest()}"')]


P1 = page("2025-01-01T00:00:00+01:00")
P2 = page("2025-02-01T00:00:00+01:00", "p1.atom")


def test_pages_are_followed_by_relative_and_absolute_links(server: Server, landing: Landing) -> None:
    p3 = page("2025-03-01T00:00:00+01:00", f"{server.origin}/menores/p2.atom")
    chain(server, ("m.atom", p3), ("p2.atom", P2), ("p1.atom", P1))
    assert names(landing.fetch_since_last(frozenset())) == ["m.atom", "p2.atom", "p1.atom"]
    server.seen.clear()
    assert names(landing.fetch_since_last(frozenset())) == []
    assert [path for path, _ in server.seen] == [HEAD], "the newest page has not changed: nothing more"


def test_a_page_that_the_lake_has_is_known_ground(server: Server, landing: Landing) -> None:
    p3 = page("2025-03-01T00:00:00+01:00", "p2.atom")
    chain(server, ("m.atom", p3), ("p2.atom", P2), ("p1.atom", P1))
    known = frozenset([hashlib.sha256(P2).hexdigest()])
    assert names(landing.fetch_since_last(known))[0] == "m.atom"
    assert [path for path, _ in server.seen] == [HEAD, "/menores/p2.atom"]


def test_the_newest_page_is_never_written_over(server: Server, landing: Landing) -> None:
    chain(server, ("m.atom", P2), ("p1.atom", P1))
    list(landing.fetch_since_last(frozenset()))
    # The page that was the newest got a name of its own, and other bytes with it.
    renamed = page("2025-02-01T00:00:00+01:00", "p1.atom", body="<id/>")
    p3 = page("2025-03-01T00:00:00+01:00", "p2.atom")
    chain(server, ("m.atom", p3), ("p2.atom", renamed))
    found = {item.path.name: item.path.read_bytes() for item in landing.fetch_since_last(frozenset())}
    assert found == {f"m_{hashlib.sha256(p3).hexdigest()[:8]}.atom": p3, "p2.atom": renamed}


def test_a_page_older_than_the_last_walk_is_known_ground(server: Server, landing: Landing) -> None:
    chain(server, ("m.atom", P2), ("p1.atom", P1))
    list(landing.fetch_since_last(frozenset()))
    p3 = page("2025-03-01T00:00:00+01:00", "x1.atom")
    # Published anew with other bytes: its content is unknown, its time is not.
    chain(server, ("m.atom", p3), ("x1.atom", page("2025-01-31T22:59:00Z", "x0.atom")))
    assert len(list(landing.fetch_since_last(frozenset()))) == 2
    assert "/menores/x0.atom" not in [path for path, _ in server.seen]


def test_until_says_how_far_back_to_go(server: Server, landing: Landing) -> None:
    p3 = page("2025-03-01T00:00:00+01:00", "p2.atom")
    chain(server, ("m.atom", p3), ("p2.atom", P2), ("p1.atom", P1))
    until = datetime(2025, 2, 15, tzinfo=UTC)
    assert names(landing.fetch_since_last(frozenset(), until=until)) == ["m.atom", "p2.atom"]


def test_a_walk_that_broke_off_leaves_no_gap(server: Server, clock: Clock, tmp_path: Path) -> None:
    p4 = page("2025-04-01T00:00:00+01:00", "p3.atom")
    p3 = page("2025-03-01T00:00:00+01:00", "p2.atom")
    chain(server, ("m.atom", p4), ("p3.atom", p3), ("p2.atom", P2), ("p1.atom", P1))
    whole = server.answers.pop("/menores/p2.atom")
    with pytest.raises(FetchError, match=r"p2\.atom: the server answers 404.*--forget-gap"):
        list(new_landing(server, clock, tmp_path).fetch_since_last(frozenset()))
    # The pages that came were ingested meanwhile, so they look like known ground; a new one came too.
    known = frozenset(hashlib.sha256(data).hexdigest() for data in (p4, p3))
    chain(server, ("m.atom", page("2025-05-01T00:00:00+01:00", "p4.atom")), ("p4.atom", p4))
    server.answers["/menores/p2.atom"] = whole

    found = names(new_landing(server, clock, tmp_path).fetch_since_last(known))

    assert found[:2] == ["p2.atom", "p1.atom"]
    assert found[2].startswith("m_")


def test_a_walk_that_was_killed_leaves_no_gap(server: Server, clock: Clock, tmp_path: Path) -> None:
    p3 = page("2025-03-01T00:00:00+01:00", "p2.atom")
    chain(server, ("m.atom", p3), ("p2.atom", P2), ("p1.atom", P1))
    walk = new_landing(server, clock, tmp_path).fetch_since_last(frozenset())
    next(walk)
    # A generator that is closed here stopped between keeping the page and going on.
    walk.close()

    assert names(new_landing(server, clock, tmp_path).fetch_since_last(frozenset())) == [
        "p2.atom", "p1.atom",
    ]  # fmt: skip


def test_a_gap_can_be_given_up(server: Server, landing: Landing) -> None:
    p3 = page("2025-03-01T00:00:00+01:00", "p2.atom")
    chain(server, ("m.atom", p3))
    for _ in range(2):
        with pytest.raises(FetchError, match=r"p2\.atom"):
            list(landing.fetch_since_last(frozenset()))
    assert names(landing.fetch_since_last(frozenset(), forget_gap=True)) == []


def test_a_chain_that_leads_back_is_told(server: Server, landing: Landing) -> None:
    chain(server, ("m.atom", page("2025-03-01T00:00:00Z", "p2.atom")))
    chain(server, ("p2.atom", page("2025-02-01T00:00:00Z", "m.atom")))
    with pytest.raises(FetchError, match="lead back to"):
        list(landing.fetch_since_last(frozenset()))
    assert len(server.seen) == 2


def test_a_call_takes_so_many_pages_and_the_next_goes_on(server: Server, landing: Landing) -> None:
    for number in range(25):
        link = f"p{number + 1}.atom" if number < 24 else None
        name = "m.atom" if number == 0 else f"p{number}.atom"
        stamp = f"2025-01-{28 - number:02}T00:00:00Z"
        chain(server, (name, page(stamp, link)))
    for _ in range(2):
        with pytest.raises(FetchError, match="no known ground after 10 pages"):
            list(landing.fetch_since_last(frozenset()))
    assert len(list(landing.fetch_since_last(frozenset()))) == 5
    paths = [path for path, _ in server.seen]
    assert len(paths) == 26 and paths.count(HEAD) == 2


def test_a_next_page_elsewhere_is_not_fetched(server: Server, landing: Landing) -> None:
    chain(server, ("m.atom", page("2025-03-01T00:00:00Z", "http://localhost:1/p2.atom")))
    with pytest.raises(FetchError, match="none of the allowed origins"):
        list(landing.fetch_since_last(frozenset()))


def test_a_damaged_page_is_taken_when_it_is_published_so(server: Server, landing: Landing) -> None:
    damaged = page("2025-03-01T00:00:00Z", "p1.atom")[:-20]
    chain(server, ("m.atom", damaged), ("p1.atom", P1))
    assert names(landing.fetch_since_last(frozenset())) == ["m.atom", "p1.atom"]
    assert [path for path, _ in server.seen] == [HEAD, HEAD, "/menores/p1.atom"]


def test_a_page_that_was_damaged_on_its_way_is_fetched_again(server: Server, landing: Landing) -> None:
    server.answers[HEAD] = [file(P1[:-20]), file(P1)]
    [fetched] = landing.fetch_since_last(frozenset())
    assert fetched.path.read_bytes() == P1


def test_what_is_no_feed_is_not_kept(server: Server, landing: Landing, tmp_path: Path) -> None:
    for body in (b"<html><body>Error</body></html>", b"", b"<a xmlns='http://www.w3.org/2005/Atom'/>"):
        server.answers[HEAD] = [file(body, Content_Type="application/atom+xml")]
        with pytest.raises(FetchError, match="no page of a feed"):
            list(landing.fetch_since_last(frozenset()))
    assert list((tmp_path / "landing").rglob("*.atom*")) == []


def test_what_a_page_says_of_itself_is_not_what_its_entries_say() -> None:
    head = read_page_head(page("2025-03-01T00:00:00.5+01:00", "a &amp; b.atom"))
    assert head.next_url == "a & b.atom"
    assert head.updated == datetime(2025, 2, 28, 23, 0, 0, 500_000, tzinfo=UTC)
    assert read_page_head(page("yesterday")).updated is None
    with pytest.raises(FileReadError):
        read_page_head(b"<entry/>")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://h/a/m%20o_2020.zip?x=1", "m_o_2020.zip"),
        ("https://h/a/..%2F..%2Fetc%2Fpasswd", "passwd"),
        ("https://h/.hidden", "hidden"),
        ("https://h/año:1.atom", "a_o_1.atom"),
    ],
)
def test_names_are_made_safe(url: str, name: str) -> None:
    assert safe_name(url) == name


def test_a_url_without_a_name_is_refused() -> None:
    with pytest.raises(FetchError):
        safe_name("https://h/")


def test_notes_of_fetch_are_no_input(server: Server, landing: Landing, tmp_path: Path) -> None:
    server.answers[HEAD] = [file(P1)]
    list(landing.fetch_since_last(frozenset()))
    assert list(find_sources([str(tmp_path / "landing")])) == [
        Source(str(tmp_path / "landing" / "m.atom"))
    ]


def test_two_processes_do_not_fetch_to_one_folder(server: Server, clock: Clock, tmp_path: Path) -> None:
    chain(server, ("m.atom", P2), ("p1.atom", P1))
    walk = new_landing(server, clock, tmp_path).fetch_since_last(frozenset())
    next(walk)
    with pytest.raises(InputError, match="Another process"):
        new_landing(server, clock, tmp_path).fetch_archive(2020)
    walk.close()


# -- the file of feeds, and the command


def test_the_project_knows_where_every_dataset_of_a_contract_is_published() -> None:
    feeds = load_feeds()
    contract = load_contracts(models_dir())["placsp_entries"]
    assert set(feeds.datasets) == {dataset.name for dataset in contract.datasets}
    for dataset in contract.datasets:
        feed = feeds.datasets[dataset.name]
        for url in (feed.head, feed.archive(2022, None), feed.archive(2022, 6) if feed.month else ""):
            assert not url or contract.dataset_of_name(safe_name(url)) == dataset.name
            assert not url or f"/{dataset.feed}/" in url
        assert origin_of(feed.head) in feeds.allowed
    assert feeds.datasets["menores"].archive(2020, 6).endswith("_202006.zip")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"allowed": ["http://example.org"]}, "Only https"),
        ({"allowed": ["https://elsewhere.example"]}, "not among the allowed"),
        ({"limits": {"hurry": 1}}, "cannot be read"),
        ({"datasets": []}, "cannot be read"),
    ],
)
def test_a_file_of_feeds_that_cannot_work_is_told(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    sound = {
        "allowed": ["https://h.example"],
        "datasets": {"a": {"since": 1, "head": "https://h.example/a", "year": "https://h.example/y"}},
    }
    path = tmp_path / "feeds.yml"
    path.write_text(yaml.safe_dump(sound | change), "utf-8")
    with pytest.raises(InputError, match=words):
        load_feeds(path)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--year", "2020", "--since-last", "--dataset", "menores"],
        ["--year", "2020"],
        ["--since-last", "--month", "2"],
        ["--since-last", "--out", "x"],
        ["--dataset", "nothing", "--since-last"],
        ["--dataset", "consultas", "--year", "2022", "--month", "1"],
    ],
)
def test_wrong_use_is_told(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["fetch", *arguments])
    assert isinstance(done.exception, LakehouseError) and done.exception.exit_code == 2
    assert not (tmp_path / "landing").exists()


def test_the_command_goes_on_after_a_feed_that_fails(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    base = server.origin
    feeds = {
        "allowed": [base],
        "limits": {"delay_seconds": 0, "backoff_seconds": 0, "attempts": 1},
        "datasets": {
            name: {"since": 2018, "head": f"{base}/{name}.atom", "year": f"{base}/{name}_{{year}}.zip"}
            for name in ("agregadas", "menores")
        },
    }
    (tmp_path / "feeds.yml").write_text(yaml.safe_dump(feeds), "utf-8")
    server.answers["/menores.atom"] = [file(P1)]
    lake = Lake(tmp_path / "lake")

    done = CliRunner().invoke(
        cli, ["fetch", "--since-last", "--feeds", "feeds.yml", "--lake", str(lake.path)]
    )

    assert isinstance(done.exception, FetchError)
    assert "agregadas.atom: the server answers 404" in str(done.exception)
    assert (tmp_path / "landing" / "menores" / "menores.atom").read_bytes() == P1
    assert "Next: lakehouse run --input 'landing/menores'" in done.output


def test_feeds_know_their_datasets() -> None:
    with pytest.raises(InputError, match="Known are"):
        Feeds(frozenset(), LIMITS, {}).feed("orders")
