"""E-mail through a mail server on this machine, which speaks SMTP with STARTTLS and a login."""

from __future__ import annotations

import base64
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext

import pytest

from autoscaler.domain.errors import SpecError
from autoscaler.notifications.base import NotDelivered
from autoscaler.notifications.mail import MailSender
from autoscaler.tls import TlsFiles
from tests.notifications.examples import certificate, message, notice, options, private_file

PASSWORD = "a password"


@dataclass
class MailServer:
    """Mail server: what it took, and the commands and addresses that it refuses."""

    port: int = 0
    mails: list[tuple[str, list[str], bytes]] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)
    was_encrypted: list[bool] = field(default_factory=list)
    refusals: dict[str, str] = field(default_factory=dict)


class _Dialogue(socketserver.StreamRequestHandler):
    """One connection: a line of the client is a command, and each gets a reply."""

    state: MailServer
    context: SSLContext | None
    is_encrypted = False

    def setup(self) -> None:
        super().setup()
        self.sender, self.recipients = "", list[str]()

    def handle(self) -> None:
        self.reply("220 mail.example.org")
        while line := self.rfile.readline():
            command = line.decode().strip()
            word, _, rest = command.partition(" ")
            refusals, verb = self.state.refusals, word.upper()
            refusal = refusals.get(command.upper()) or refusals.get(verb)
            if refusal is not None:
                self.reply(refusal)
            elif verb == "QUIT":
                self.reply("221 bye")
                return
            else:
                self.carry_out(verb, rest)

    def carry_out(self, verb: str, rest: str) -> None:
        if verb == "EHLO":
            extra = "AUTH PLAIN" if self.is_encrypted else "STARTTLS"
            self.reply("250-mail.example.org", f"250 {extra}")
        elif verb == "STARTTLS" and self.context is not None:
            self.reply("220 go on")
            self.request = self.context.wrap_socket(self.request, server_side=True)
            self.rfile = self.request.makefile("rb")
            self.wfile = self.request.makefile("wb", buffering=0)
            self.is_encrypted = True
        elif verb == "AUTH":
            _, user, password = base64.b64decode(rest.split()[1]).decode().split("\0")
            self.state.logins.append(user)
            self.reply("235 welcome" if password == PASSWORD else "535 wrong password")
        elif verb == "MAIL":
            self.sender = rest.partition("<")[2].partition(">")[0]
            self.reply("250 ok")
        elif verb == "RCPT":
            self.recipients.append(rest.partition("<")[2].partition(">")[0])
            self.reply("250 ok")
        elif verb == "DATA":
            self.reply("354 go on")
            lines = iter(self.rfile.readline, b".\r\n")
            text = b"".join(line.removeprefix(b".") for line in lines)
            self.state.mails.append((self.sender, self.recipients, text))
            self.state.was_encrypted.append(self.is_encrypted)
            self.reply("250 taken")
        else:
            self.reply("250 ok")

    def reply(self, *lines: str) -> None:
        self.wfile.write("".join(f"{line}\r\n" for line in lines).encode())


@contextmanager
def mail_server(
    files: TlsFiles | None = None, from_the_start: bool = False
) -> Iterator[MailServer]:
    """Yield a server, with STARTTLS, or with encryption from the start."""
    context = None
    if files is not None:
        context = SSLContext(PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.certificate, files.key)
    state = MailServer()
    handler = type("Handler", (_Dialogue,), {"state": state, "context": context})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        if from_the_start and context is not None:
            handler.is_encrypted = True
            server.socket = context.wrap_socket(server.socket, server_side=True)
        state.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()


def mailer(
    directory: Path, server: MailServer, host: str = "localhost", **values: object
) -> MailSender:
    common = {
        "to": ["ops@example.org", "ada@example.org"],
        "from": "castor@example.org",
        "server": host,
        "port": server.port,
    }
    return MailSender(options(directory, **{**common, **values}))


def encrypted(
    directory: Path, server: MailServer, files: TlsFiles, **values: object
) -> MailSender:
    private_file(directory, "password", PASSWORD)
    login = {"user": "castor", "password_file": "password", "ca_file": str(files.certificate)}
    return mailer(directory, server, **{**login, **values})  # type: ignore[arg-type]


def test_a_message_arrives_over_starttls_after_a_login(tmp_path: Path) -> None:
    files = certificate(tmp_path)
    with mail_server(files) as server:
        encrypted(tmp_path, server, files).send(message(), 0.0)
    ((sender, recipients, text),) = server.mails
    assert (sender, recipients) == ("castor@example.org", ["ops@example.org", "ada@example.org"])
    assert (server.logins, server.was_encrypted) == (["castor"], [True])
    mail = message_from_bytes(text, policy=default)
    assert mail["Subject"] == "[castor] digits: failed"
    assert mail["To"] == "ops@example.org, ada@example.org"
    assert mail["Message-ID"].startswith(f"<{message().id}@")
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail.get_content().splitlines()[:4] == [  # type: ignore[attr-defined]
        "digits failed: <!channel> & co",
        "",
        "Owner: ada",
        "Page: https://castor.example.org/jobs/digits",
    ]


def test_a_message_arrives_over_tls_from_the_start(tmp_path: Path) -> None:
    files = certificate(tmp_path)
    with mail_server(files, from_the_start=True) as server:
        encrypted(tmp_path, server, files, encryption="tls").send(message(), 0.0)
    assert (server.logins, server.was_encrypted) == (["castor"], [True])


def test_a_certificate_that_is_not_trusted_gets_no_password(tmp_path: Path) -> None:
    files = certificate(tmp_path)
    with mail_server(files) as server:
        notifier = encrypted(tmp_path, server, files, ca_file=None)
        with pytest.raises(NotDelivered, match="certificate verify failed"):
            notifier.send(message(), 0.0)
    assert (server.logins, server.mails) == ([], [])


def test_a_server_without_encryption_gets_no_message(tmp_path: Path) -> None:
    with mail_server() as server:
        server.refusals["STARTTLS"] = "454 not now"
        with pytest.raises(NotDelivered, match="454: not now") as refused:
            mailer(tmp_path, server).send(message(), 0.0)
        assert not refused.value.is_final
        plain = mailer(tmp_path, server, encryption="none", insecure=True)
        plain.send(message(), 0.0)
    assert server.was_encrypted == [False]


@pytest.mark.parametrize(
    ("command", "reply", "is_final", "words"),
    [
        ("DATA", "554 no spam", True, "answered 554: no spam"),
        ("DATA", "451 later", False, "answered 451: later"),
        ("AUTH", "535 wrong", False, "answered 535: wrong"),
        ("RCPT", "450 later", False, r"refused ada@example\.org \(450 later\), ops@"),
        ("RCPT", "550 unknown", True, r"\(550 unknown\)$"),
        ("RCPT TO:<ada@example.org>", "550 unknown", True, "the others have it"),
        ("RCPT TO:<ada@example.org>", "450 later", True, "the others have it"),
    ],
)
def test_refusals_of_the_server(
    tmp_path: Path, command: str, reply: str, is_final: bool, words: str
) -> None:
    files = certificate(tmp_path)
    with mail_server(files) as server:
        server.refusals[command.upper()] = reply
        with pytest.raises(NotDelivered, match=words) as refused:
            encrypted(tmp_path, server, files).send(message(), 0.0)
    assert refused.value.is_final is is_final
    assert PASSWORD not in str(refused.value)
    assert len(server.mails) == ("TO:" in command)


def test_a_server_that_is_away_and_one_of_a_metadata_service(tmp_path: Path) -> None:
    with mail_server() as server:
        pass
    with pytest.raises(NotDelivered, match=r"localhost: .*refused"):
        mailer(tmp_path, server).send(message(), 0.0)
    with pytest.raises(NotDelivered, match="nothing is sent"):
        mailer(tmp_path, server, host="169.254.169.254").send(message(), 0.0)


def test_a_hostile_notice_adds_no_header(tmp_path: Path) -> None:
    with mail_server() as server:
        hostile = notice("text\r\n.\r\nBcc: all@example.org", job="a\r\nBcc: all@example.org")
        notifier = mailer(tmp_path, server, encryption="none", insecure=True)
        notifier.send(message(hostile), 0.0)
    mail = message_from_bytes(server.mails[0][2], policy=default)
    assert "Bcc" not in mail
    assert mail["Subject"] == "[castor] a\\x0d\\x0aBcc: all@example.org: failed"


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({"to": "nobody"}, "to.0", "write it like ops@example.org"),
        ({"to": ["ada@example.org", "a b@example.org"]}, "to.1", "no address"),
        ({"to": []}, "to", "is empty"),
        ({"from": "a@b\nBcc: c@d"}, "from", "no address"),
        ({"encryption": "none"}, "encryption", "insecure: true"),
        ({"encryption": "ssl"}, "encryption", "must be"),
        ({"user": "castor"}, "password_file", "needs password_file"),
        ({"password_variable": "PASSWORD"}, "user", "is required with a password"),
        ({"password": "hush"}, "password", "must not be in this file"),
        ({"port": 0}, "port", "at least 1"),
        ({"ca_file": "none.pem"}, "ca_file", "can't be read"),
    ],
)
def test_wrong_options(tmp_path: Path, values: dict[str, object], field: str, words: str) -> None:
    with pytest.raises(SpecError, match=words) as refused:
        mailer(tmp_path, MailServer(port=25), **values)
    assert refused.value.field == field
    assert "hush" not in str(refused.value)
