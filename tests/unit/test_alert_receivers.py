"""Receivers of alerts: a file, and web and mail servers on this machine that take or refuse them."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope
from office_lake import NOON

from ingest.alerting.conditions import Condition
from ingest.alerting.ledger import AlertEvent
from ingest.alerting.receivers import Receiver, receivers_of
from ingest.environment import PROJECT_ROOT
from ingest.errors import DeliveryError, InputError

LAKE = Path("/data/lake")
SCHEMA = json.loads((PROJECT_ROOT / "docs" / "alerts.schema.json").read_text("utf-8"))
MAIL = {"LAKEHOUSE_ALERT_MAIL_FROM": "lake@x.org", "LAKEHOUSE_ALERT_MAIL_TO": "ana@x.org, luis@x.org"}
LOGIN = {"LAKEHOUSE_ALERT_SMTP_USER": "lake", "LAKEHOUSE_ALERT_SMTP_PASSWORD": "s3cret"}
CONDITION = Condition(
    kind="open_above",
    record_type="orders",
    dataset="orders",
    subject="",
    owner="order-desk",
    value=12,
    threshold=10,
    unit="records",
    message="orders: 12 refused records wait for somebody, más que 10.",
    details=("a",),
)
RAISED = AlertEvent("e" * 32, "a" * 16, "raised", CONDITION, NOON, NOON)
OVER = AlertEvent("f" * 32, "b" * 16, "resolved", CONDITION, NOON + timedelta(hours=1), NOON)


def only(**variables: str) -> Receiver:
    (receiver,) = receivers_of(variables)
    return receiver


def send(receiver: Receiver) -> None:
    receiver.send(LAKE, [RAISED, OVER], NOON + timedelta(hours=2))


def checked(payload: dict[str, Any]) -> dict[str, Any]:
    jsonschema.validate(payload, SCHEMA)
    assert [alert["event_id"][0] for alert in payload["alerts"]] == ["e", "f"]
    return payload


# -- a file


def test_a_file_gets_a_line_for_each_payload(tmp_path: Path) -> None:
    receiver = only(LAKEHOUSE_ALERT_FILE=str(tmp_path / "alerts.jsonl"))
    send(receiver)
    send(receiver)

    lines = (tmp_path / "alerts.jsonl").read_text("utf-8").splitlines()
    assert len(lines) == 2
    first = checked(json.loads(lines[0]))
    assert first["lake"] == "/data/lake"
    assert first["alerts"][0] == {
        "event_id": "e" * 32,
        "alert_id": "a" * 16,
        "status": "raised",
        "kind": "open_above",
        "record_type": "orders",
        "dataset": "orders",
        "subject": "",
        "owner": "order-desk",
        "value": 12,
        "threshold": 10,
        "unit": "records",
        "details": ["a"],
        "message": "orders: 12 refused records wait for somebody, más que 10.",
        "raised_at": "2024-05-01T12:00:00.000000Z",
        "at": "2024-05-01T12:00:00.000000Z",
    }


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(DeliveryError, match="cannot be written: Is a directory"):
        send(only(LAKEHOUSE_ALERT_FILE=str(tmp_path)))


# -- a webhook


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.path, dict(self.headers), body))
        if self.server.stall.is_set():
            self.server.over.wait(30)
        self.send_response(self.server.code)
        self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.code = 204
        self.stall, self.over = threading.Event(), threading.Event()
        self.seen: list[tuple[str, dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hooks/T0KEN"


@pytest.fixture
def web() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


def test_a_webhook_gets_the_payload_and_its_token(
    web: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What somebody keeps for other programs is not sent along.
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login other password other")
    monkeypatch.setenv("HOME", str(tmp_path))

    send(only(LAKEHOUSE_ALERT_WEBHOOK_URL=web.url, LAKEHOUSE_ALERT_WEBHOOK_TOKEN="s3cret"))
    send(only(LAKEHOUSE_ALERT_WEBHOOK_URL=web.url))

    (path, headers, body), (_, bare, _) = web.seen
    assert (path, headers["Content-Type"]) == ("/hooks/T0KEN", "application/json")
    assert (headers["Authorization"], bare.get("Authorization")) == ("Bearer s3cret", None)
    checked(json.loads(body))


@pytest.mark.parametrize("code", [302, 307, 400, 500])
def test_a_webhook_that_does_not_take_it_is_said_without_its_secrets(web: Server, code: int) -> None:
    web.code = code
    with pytest.raises(DeliveryError, match=f"127.0.0.1 answered {code}") as caught:
        send(only(LAKEHOUSE_ALERT_WEBHOOK_URL=web.url, LAKEHOUSE_ALERT_WEBHOOK_TOKEN="s3cret"))
    assert len(web.seen) == 1, "and nobody else is told"
    assert not {"T0KEN", "s3cret"} & set(str(caught.value).split("/"))
    assert "T0KEN" not in str(caught.value)


def test_a_webhook_that_does_not_answer_is_not_waited_for(
    web: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.alerting.receivers.TIMEOUT_SECONDS", 0.2)
    web.stall.set()
    with pytest.raises(DeliveryError, match=r"did not answer \(ReadTimeout\)") as caught:
        send(only(LAKEHOUSE_ALERT_WEBHOOK_URL=web.url))
    assert "T0KEN" not in f"{caught.value}{caught.value.__cause__}"


def test_a_webhook_that_is_not_there_is_said() -> None:
    url = f"http://127.0.0.1:{free_port()}/hooks/T0KEN"
    with pytest.raises(DeliveryError, match=r"127.0.0.1 did not answer \(ConnectionError\)\Z"):
        send(only(LAKEHOUSE_ALERT_WEBHOOK_URL=url))


# -- mail


class Mailbox:
    """What a mail server took, and who logged in."""

    def __init__(self) -> None:
        self.mails: list[Envelope] = []
        self.logins: list[tuple[bytes, bytes]] = []

    async def handle_DATA(self, *seen: Any) -> str:  # noqa: N802 - as aiosmtpd names it
        self.mails.append(seen[2])
        return "250 OK"

    def login(self, _server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any) -> Any:
        self.logins.append((data.login, data.password))
        return AuthResult(success=data.password == b"s3cret", handled=False)

    def message(self) -> EmailMessage:
        """The one mail that came. No property: aiosmtpd looks at those of its handler."""
        (mail,) = self.mails
        found = message_from_bytes(mail.content or b"", policy=policy.default)
        assert isinstance(found, EmailMessage)
        return found


@pytest.fixture
def box() -> Mailbox:
    return Mailbox()


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """The side of a server whose certificate this machine believes."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "127.0.0.2").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    return context


@pytest.fixture
def mail_server(box: Mailbox) -> Iterator[Callable[..., str]]:
    """Starts a server, and gives where it listens."""
    started: list[Controller] = []

    def start(host: str = "127.0.0.1", **more: Any) -> str:
        controller = Controller(box, hostname=host, port=free_port(), **more)
        controller.start()
        started.append(controller)
        return f"{host}:{controller.port}"

    yield start
    for controller in started:
        controller.stop()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_a_mail_says_it_in_words_and_has_the_payload(
    mail_server: Callable[..., str], box: Mailbox
) -> None:
    send(only(LAKEHOUSE_ALERT_SMTP_URL=f"smtp://{mail_server()}", **MAIL))

    message = box.message()
    assert box.mails[0].rcpt_tos == ["ana@x.org", "luis@x.org"]
    assert message["Subject"] == "[lakehouse] 1 raised, 1 resolved: orders"
    assert (message["From"], message["Auto-Submitted"]) == ("lake@x.org", "auto-generated")
    text, attached = message.iter_parts()
    said = text.get_content()
    assert "raised    orders: 12 refused records wait for somebody, más que 10." in said
    assert "resolved  orders: open_above, raised at 2024-05-01 12:00 UTC, is over." in said
    assert attached.get_filename() == "alerts.json"
    checked(json.loads(attached.get_content()))


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
def test_a_login_goes_over_tls(
    mail_server: Callable[..., str], box: Mailbox, trusted: ssl.SSLContext, scheme: str
) -> None:
    # STARTTLS, or TLS from the first byte on; a server takes no login before.
    tls: dict[str, Any] = {"tls_context": trusted}
    if scheme == "smtps":
        tls = {"ssl_context": trusted, "auth_require_tls": False}
    where = mail_server(authenticator=box.login, auth_required=True, **tls)
    send(only(LAKEHOUSE_ALERT_SMTP_URL=f"{scheme}://{where}", **MAIL, **LOGIN))

    assert box.logins == [(b"lake", b"s3cret")]
    assert box.message()["To"] == "ana@x.org, luis@x.org"


def test_a_server_whose_certificate_proves_nothing_gets_nothing(
    mail_server: Callable[..., str], box: Mailbox
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    where = mail_server(authenticator=box.login, tls_context=context)

    with pytest.raises(DeliveryError, match=r"127\.0\.0\.1: SSLCertVerificationError"):
        send(only(LAKEHOUSE_ALERT_SMTP_URL=f"smtp://{where}", **MAIL, **LOGIN))
    assert (box.logins, box.mails) == ([], [])


def test_another_machine_gets_nothing_in_the_clear(
    mail_server: Callable[..., str], box: Mailbox, trusted: ssl.SSLContext
) -> None:
    with pytest.raises(DeliveryError, match=r"127\.0\.0\.2: SMTPNotSupportedError"):
        send(only(LAKEHOUSE_ALERT_SMTP_URL=f"smtp://{mail_server('127.0.0.2')}", **MAIL))
    assert box.mails == []

    where = mail_server("127.0.0.2", tls_context=trusted)
    send(only(LAKEHOUSE_ALERT_SMTP_URL=f"smtp://{where}", **MAIL))
    assert len(box.mails) == 1


def test_a_wrong_login_is_said_without_it(
    mail_server: Callable[..., str], box: Mailbox, trusted: ssl.SSLContext
) -> None:
    where = mail_server(authenticator=box.login, tls_context=trusted)
    wrong = {**LOGIN, "LAKEHOUSE_ALERT_SMTP_PASSWORD": "wr0ng"}
    with pytest.raises(DeliveryError, match=r"answered 535 \(SMTPAuthenticationError\)\Z"):
        send(only(LAKEHOUSE_ALERT_SMTP_URL=f"smtp://{where}", **MAIL, **wrong))


def test_a_mail_server_that_is_not_there_is_said() -> None:
    with pytest.raises(DeliveryError, match=r"127\.0\.0\.1: ConnectionRefusedError"):
        send(only(LAKEHOUSE_ALERT_SMTP_URL=f"smtp://127.0.0.1:{free_port()}", **MAIL))


# -- what the environment says


def test_the_environment_names_receivers_and_nothing_names_none() -> None:
    assert receivers_of({"HOME": "/x", "LAKEHOUSE_ALERT_FILE": ""}) == []
    every = receivers_of(
        {
            "LAKEHOUSE_ALERT_FILE": "alerts.jsonl",
            "LAKEHOUSE_ALERT_WEBHOOK_URL": "https://hooks.x.org/1",
            "LAKEHOUSE_ALERT_SMTP_URL": "smtps://mail.x.org",
            **MAIL,
        }
    )
    assert [receiver.name for receiver in every] == ["file", "webhook", "mail"]
    assert "hooks.x.org" not in repr(every), "an error that shows its values shows no secret"


URL, SMTP = "LAKEHOUSE_ALERT_WEBHOOK_URL", "LAKEHOUSE_ALERT_SMTP_URL"
FAULTS = {
    "a variable with a slip": ({"LAKEHOUSE_ALERT_WEBHOK_URL": "x"}, "WEBHOK_URL means nothing"),
    "a token for nobody": ({"LAKEHOUSE_ALERT_WEBHOOK_TOKEN": "s3cret"}, "WEBHOOK_URL is not. Set both"),
    "a webhook in the clear": ({URL: "http://x.org/s3cret"}, "is no https address"),
    "no address": ({URL: "x.org/s3cret"}, "is no https or http address"),
    "a port that is none": ({URL: "https://x.org:s3cret/"}, "is no https or http address"),
    "mail to nobody": ({SMTP: "smtp://x.org"}, "MAIL_FROM, LAKEHOUSE_ALERT_MAIL_TO is not set"),
    "a user without a password": (
        {SMTP: "smtp://x.org", **MAIL, "LAKEHOUSE_ALERT_SMTP_USER": "lake"},
        "one is set. Set both or neither",
    ),
    "a login in an address": ({SMTP: "smtp://lake:s3cret@x.org", **MAIL}, "has a login in it"),
    "a header in an address": (
        {SMTP: "smtp://x.org", **MAIL, "LAKEHOUSE_ALERT_MAIL_TO": "a@x.org\nBcc: b@x.org"},
        "which is no address",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_work_is_said_without_its_value(fault: str) -> None:
    variables, said = FAULTS[fault]
    with pytest.raises(InputError) as caught:
        receivers_of(variables)
    assert said in str(caught.value)
    assert "s3cret" not in str(caught.value)
