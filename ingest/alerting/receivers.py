"""Where alerts go: a file, a webhook, mail. What is secret comes from the environment alone."""

from __future__ import annotations

import logging
import os
import smtplib
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import SplitResult, urlsplit

from ingest.alerting.ledger import AlertEvent
from ingest.alerting.payload import as_json, headline, lines, make_payload
from ingest.environment import pipeline_version
from ingest.errors import DeliveryError, InputError
from ingest.feeds import OWN_MACHINE

if TYPE_CHECKING:
    from requests import PreparedRequest

log = logging.getLogger("lakehouse")
PREFIX = "LAKEHOUSE_ALERT_"
FILE = PREFIX + "FILE"
WEBHOOK_URL = PREFIX + "WEBHOOK_URL"
WEBHOOK_TOKEN = PREFIX + "WEBHOOK_TOKEN"
SMTP_URL = PREFIX + "SMTP_URL"
SMTP_USER = PREFIX + "SMTP_USER"
SMTP_PASSWORD = PREFIX + "SMTP_PASSWORD"
MAIL_FROM = PREFIX + "MAIL_FROM"
MAIL_TO = PREFIX + "MAIL_TO"
VARIABLES = (FILE, WEBHOOK_URL, WEBHOOK_TOKEN, SMTP_URL, SMTP_USER, SMTP_PASSWORD, MAIL_FROM, MAIL_TO)
# A run waits for a receiver that does not answer, so not for long.
TIMEOUT_SECONDS = 10.0


class Receiver(Protocol):
    """Somebody who is told."""

    @property
    def name(self) -> str:
        """By which the ledger knows it: its kind, of which there is one."""

    def send(self, lake: Path, events: Sequence[AlertEvent], sent_at: datetime) -> None:
        """Tell it of events, all at once.

        Raises:
            DeliveryError: It did not take them. Nothing secret is in the message.
        """


@dataclass(frozen=True)
class FileReceiver:
    """A file that gets a line of JSON for each payload."""

    path: Path
    name: str = "file"

    def send(self, lake: Path, events: Sequence[AlertEvent], sent_at: datetime) -> None:
        """See Receiver."""
        line = as_json(make_payload(lake, events, sent_at)) + "\n"
        try:
            # In one write at the end, so that whoever else writes there cuts no line in two.
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            with os.fdopen(descriptor, "wb", buffering=0) as file:
                file.write(line.encode())
                os.fsync(descriptor)
        except OSError as error:
            raise DeliveryError(f"{self.path} cannot be written: {error.strerror}") from error


@dataclass(frozen=True)
class Webhook:
    """A URL to which each payload is posted. The URL itself may be what is secret."""

    url: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    name: str = "webhook"

    def send(self, lake: Path, events: Sequence[AlertEvent], sent_at: datetime) -> None:
        """See Receiver."""
        import requests

        where = urlsplit(self.url).hostname
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"lakehouse/{pipeline_version()}",
            **({"Authorization": f"Bearer {self.token}"} if self.token else {}),
        }
        try:
            answer = requests.post(
                self.url,
                data=as_json(make_payload(lake, events, sent_at)).encode(),
                headers=headers,
                timeout=TIMEOUT_SECONDS,
                # A redirect would take the token, and the alert, to somebody else.
                allow_redirects=False,
                # Only what the environment says here: a .netrc would put its own in the header.
                auth=_keep_headers,
            )
        except requests.RequestException as error:
            # What requests says holds the URL.
            raise DeliveryError(f"{where} did not answer ({type(error).__name__})") from None
        if not 200 <= answer.status_code < 300:
            raise DeliveryError(f"{where} answered {answer.status_code} {answer.reason}")


def _keep_headers(request: PreparedRequest) -> PreparedRequest:
    return request


@dataclass(frozen=True)
class Mail:
    """A mail for each payload: the alerts in words, and the JSON beside them."""

    server: SplitResult
    sender: str
    recipients: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    name: str = "mail"

    def send(self, lake: Path, events: Sequence[AlertEvent], sent_at: datetime) -> None:
        """See Receiver."""
        try:
            with self._connect() as server:
                refused = server.send_message(self._message(lake, events, sent_at))
        except smtplib.SMTPResponseException as error:
            # What a server says to a login may quote it.
            said = f"answered {error.smtp_code}"
            raise DeliveryError(f"{self.server.hostname} {said} ({type(error).__name__})") from None
        except (smtplib.SMTPException, OSError) as error:
            raise DeliveryError(f"{self.server.hostname}: {type(error).__name__}") from None
        for recipient in refused:
            # The others have it, and would get it again each time.
            log.error("alerts: %s takes no mail for %s.", self.server.hostname, recipient)

    def _connect(self) -> smtplib.SMTP:
        host, context = str(self.server.hostname), ssl.create_default_context()
        if self.server.scheme == "smtps":
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                host, self.server.port or 465, timeout=TIMEOUT_SECONDS, context=context
            )
        else:
            server = smtplib.SMTP(host, self.server.port or 25, timeout=TIMEOUT_SECONDS)
        try:
            if self.server.scheme == "smtp":
                server.ehlo()
                # To another machine nothing goes in the clear: where it has no TLS this fails.
                if server.has_extn("starttls") or host not in OWN_MACHINE:
                    server.starttls(context=context)
            if self.user is not None:
                server.login(self.user, self.password or "")
        except BaseException:
            server.close()
            raise
        return server

    def _message(self, lake: Path, events: Sequence[AlertEvent], sent_at: datetime) -> EmailMessage:
        message = EmailMessage()
        message["Subject"] = headline(events)
        message["From"] = self.sender
        message["To"] = ", ".join(self.recipients)
        message["Date"] = format_datetime(sent_at)
        message["Message-ID"] = make_msgid(domain="lakehouse.invalid")
        # No answer by a machine that says its owner is away.
        message["Auto-Submitted"] = "auto-generated"
        message.set_content("\n\n".join([*lines(events), f"Lake: {lake}"]) + "\n")
        message.add_attachment(
            as_json(make_payload(lake, events, sent_at)).encode(),
            maintype="application",
            subtype="json",
            filename="alerts.json",
        )
        return message


def receivers_of(environment: Mapping[str, str]) -> list[Receiver]:
    """The receivers that the environment names.

    Args:
        environment: Variables; an empty one counts as not there.

    Raises:
        InputError: One of them cannot work. Its value is not quoted, it may be secret.
    """
    said = {name: environment[name] for name in VARIABLES if environment.get(name)}
    strange = sorted(name for name in environment if name.startswith(PREFIX) and name not in VARIABLES)
    if strange:
        raise InputError(
            f"{strange[0]} means nothing, so whoever set it would wait for alerts. Known are "
            f"{', '.join(VARIABLES)}."
        )
    return [*_file(said), *_webhook(said), *_mail(said)]


def _file(said: Mapping[str, str]) -> Iterator[Receiver]:
    if FILE in said:
        yield FileReceiver(Path(said[FILE]).absolute())


def _webhook(said: Mapping[str, str]) -> Iterator[Receiver]:
    if WEBHOOK_URL not in said:
        if WEBHOOK_TOKEN in said:
            raise InputError(f"{WEBHOOK_TOKEN} is set and {WEBHOOK_URL} is not. Set both or neither.")
        return
    url = _url(WEBHOOK_URL, said[WEBHOOK_URL], ("https", "http"))
    if url.scheme != "https" and url.hostname not in OWN_MACHINE:
        raise InputError(
            f"{WEBHOOK_URL} is no https address. Without a certificate nobody knows who gets the "
            "alert. Write https://; http is for this machine alone."
        )
    yield Webhook(said[WEBHOOK_URL], said.get(WEBHOOK_TOKEN))


def _mail(said: Mapping[str, str]) -> Iterator[Receiver]:
    names = (SMTP_URL, MAIL_FROM, MAIL_TO)
    lacking = [name for name in names if name not in said]
    if len(lacking) == len(names) and not {SMTP_USER, SMTP_PASSWORD} & set(said):
        return
    if lacking:
        raise InputError(f"Mail needs {', '.join(names)}; {', '.join(lacking)} is not set.")
    if (SMTP_USER in said) != (SMTP_PASSWORD in said):
        raise InputError(f"Of {SMTP_USER} and {SMTP_PASSWORD} one is set. Set both or neither.")
    server = _url(SMTP_URL, said[SMTP_URL], ("smtp", "smtps"))
    if server.username or server.password:
        raise InputError(f"{SMTP_URL} has a login in it. Put it into {SMTP_USER} and {SMTP_PASSWORD}.")
    recipients = tuple(part.strip() for part in said[MAIL_TO].split(",") if part.strip())
    for name, address in ((MAIL_FROM, said[MAIL_FROM]), *((MAIL_TO, item) for item in recipients)):
        if "@" not in address or any(character in address for character in "\r\n"):
            raise InputError(f"{name} holds {address!r}, which is no address. Write name@host.")
    yield Mail(server, said[MAIL_FROM], recipients, said.get(SMTP_USER), said.get(SMTP_PASSWORD))


def _url(name: str, text: str, schemes: Sequence[str]) -> SplitResult:
    try:
        url = urlsplit(text)
        whole = url.scheme in schemes and url.hostname and (url.port is None or url.port > 0)
    except ValueError:
        whole = False
    if not whole:
        raise InputError(f"{name} is no {' or '.join(schemes)} address. Write {schemes[0]}://host/...")
    return url
