"""NoticeSender by e-mail, over SMTP with encryption."""

from __future__ import annotations

import smtplib
import socket
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from autoscaler.domain.errors import SpecError
from autoscaler.domain.text import has_controls, quoted
from autoscaler.notifications.base import Message, NotDelivered, NoticeSender, TargetOptions
from autoscaler.notifications.http_post import (
    TIMEOUT_SECONDS,
    addresses_of,
    allowed_address,
    trust_of,
)
from autoscaler.spec.forms import Form, one_or_many
from autoscaler.wire.http import usual_trust

_MOST_ADDRESSES: Final = 50
_LONGEST_ADDRESS: Final = 254
_PERMANENT: Final = 500
_REFUSED_LOGIN: Final = 535


class MailEncryption(StrEnum):
    """MailEncryption of the connection to a mail server: by STARTTLS, from the start, or none."""

    STARTTLS = "starttls"
    TLS = "tls"
    NONE = "none"


_PORTS: Final = {MailEncryption.STARTTLS: 587, MailEncryption.TLS: 465, MailEncryption.NONE: 25}


class MailForm(Form):
    """Options of e-mail. A user needs a password, in a file or a variable."""

    to: Annotated[tuple[str, ...], one_or_many(), Field(min_length=1, max_length=_MOST_ADDRESSES)]
    sender: str = Field(alias="from")
    server: str
    port: int | None = Field(default=None, ge=1, le=65535)
    encryption: MailEncryption = MailEncryption.STARTTLS
    user: str | None = None
    password_file: str | None = None
    password_variable: str | None = None
    insecure: bool = False
    ca_file: str | None = None


class MailSender(NoticeSender):
    """E-mail through a server that takes messages for delivery."""

    def __init__(self, options: TargetOptions) -> None:
        """Check the options; nothing is sent.

        Raises:
            SpecError: an option can't be used.
        """
        form = options.as_form(MailForm)
        for index, address in enumerate(form.to):
            _require_address(address, f"to.{index}")
        _require_address(form.sender, "from")
        if form.encryption is MailEncryption.NONE and not form.insecure:
            raise SpecError(
                "messages would travel in the clear: write starttls or tls, or add insecure: true "
                "in a network that you trust",
                "encryption",
            )
        self._form = form
        self._port = form.port or _PORTS[form.encryption]
        self._password = None
        if form.user is not None:
            self._password = options.secret("password", form.password_file, form.password_variable)
        elif form.password_file or form.password_variable:
            raise SpecError("is required with a password", "user")
        authority = None if form.ca_file is None else options.folder / Path(form.ca_file)
        self._trust = usual_trust() if authority is None else trust_of(authority)

    def send(self, message: Message, now_seconds: float) -> None:
        """Send a message to all addresses; one that the server refuses does not stop the rest."""
        mail = mail_of(message, self._form.sender, self._form.to)
        try:
            with self._connected() as server:
                refused = server.send_message(mail, self._form.sender, self._form.to)
        except smtplib.SMTPRecipientsRefused as error:
            refused = error.recipients
        except smtplib.SMTPResponseException as error:
            text = error.smtp_error
            words = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
            is_final = error.smtp_code >= _PERMANENT and error.smtp_code != _REFUSED_LOGIN
            reason = f"{self._form.server} answered {error.smtp_code}: {words}"
            raise NotDelivered(reason, is_final) from None
        except (smtplib.SMTPException, OSError, SpecError) as error:
            raise NotDelivered(f"{self._form.server}: {error}") from None
        self._require_none(refused)

    def _require_none(self, refused: dict[str, tuple[int, bytes]]) -> None:
        """Check that the server has refused no address.

        Raises:
            NotDelivered: it has. It is not final if the server has taken no address, and may
                take some later.
        """
        if not refused:
            return
        may_pass_later = any(code < _PERMANENT for code, _ in refused.values())
        has_none = len(refused) == len(self._form.to)
        reasons = ", ".join(
            f"{address} ({code} {words.decode(errors='replace')})"
            for address, (code, words) in sorted(refused.items())
        )
        others = "" if has_none else "; the others have it"
        raise NotDelivered(
            f"{self._form.server} refused {reasons}{others}",
            is_final=not (has_none and may_pass_later),
        )

    def _connected(self) -> smtplib.SMTP:
        """Return a connection to the server, encrypted and logged in."""
        form = self._form
        server: smtplib.SMTP
        if form.encryption is MailEncryption.TLS:
            server = _SmtpOverTls(
                form.server, self._port, timeout=TIMEOUT_SECONDS, context=self._trust
            )
        else:
            server = _Smtp(form.server, self._port, timeout=TIMEOUT_SECONDS)
        try:
            if form.encryption is MailEncryption.STARTTLS:
                server.starttls(context=self._trust)
            if form.user is not None and self._password is not None:
                server.login(form.user, self._password.read())
        except BaseException:
            server.close()
            raise
        return server


class _CheckedAddress(smtplib.SMTP):
    """Connection to a server whose address is checked first."""

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        address = allowed_address(host, port, addresses_of)
        made: socket.socket = super()._get_socket(address, port, timeout)  # type: ignore[misc]
        return made


class _Smtp(_CheckedAddress):
    """Connection without encryption, at first."""


class _SmtpOverTls(_CheckedAddress, smtplib.SMTP_SSL):
    """Connection with encryption from the start."""


def mail_of(message: Message, sender: str, to: tuple[str, ...]) -> EmailMessage:
    """Return a message as an e-mail in plain text."""
    notice = message.notice
    mail = EmailMessage()
    mail["Subject"] = f"[castor] {message.title}"
    mail["From"] = sender
    mail["To"] = ", ".join(to)
    mail["Date"] = format_datetime(datetime.fromtimestamp(notice.at_seconds, UTC))
    mail["Message-ID"] = f"<{message.id}@castor.{message.deployment}>"
    mail["Auto-Submitted"] = "auto-generated"
    owner = "" if notice.person is None else f"Owner: {notice.person}\n"
    link = "" if message.link is None else f"Page: {message.link}\n"
    mail.set_content(
        f"{message.text}\n\n{owner}{link}Kind: {notice.key.kind}\n"
        f"Deployment: {message.deployment}\n"
    )
    return mail


def _require_address(address: str, key: str) -> None:
    """Check an e-mail address.

    Raises:
        SpecError: it is none.
    """
    name, at, domain = address.rpartition("@")
    is_plain = address.isascii() and not has_controls(address) and not set(address) & set(' <>,;"')
    if not (at and name and domain and is_plain and len(address) <= _LONGEST_ADDRESS):
        raise SpecError(f"{quoted(address)} is no address: write it like ops@example.org", key)
