"""Targets, messages and servers for tests of notifications."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext

from autoscaler.domain.notice import NoticeKey, NoticeKind, UserNotice
from autoscaler.notifications.base import Message, NotDelivered, NoticeSender, TargetOptions
from autoscaler.notifications.targets import NoticeFilter, Target
from autoscaler.tls import TlsFiles, keep_self_signed, self_signed_files
from tests.conformance.store_examples import NOW

SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
DEPLOYMENT = "1f0c2d34-5b6a-4c7d-8e9f-0a1b2c3d4e5f"
ALL_EVENTS = NoticeFilter(frozenset(NoticeKind))


def notice(text: str = "digits failed: <!channel> & co", **changes: object) -> UserNotice:
    """Return a notice of a failed job of Ada."""
    key = NoticeKey(NoticeKind.FAILED, "digits")
    values: dict[str, object] = {"job": "digits", "person": "ada", "team": "nlp", **changes}
    return UserNotice(key, NOW, text, figures={"spent_usd": 0.42}, **values)  # type: ignore[arg-type]


def message(of: UserNotice | None = None) -> Message:
    """Return a message to send."""
    of = of or notice()
    link = "https://castor.example.org/jobs/digits"
    return Message(of.id(DEPLOYMENT), of, DEPLOYMENT, link)


def private_file(directory: Path, name: str, text: str) -> Path:
    """Return a new file of mode 0600."""
    path = directory / name
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def options(
    directory: Path, environment: dict[str, str] | None = None, **values: object
) -> TargetOptions:
    """Return options of a target whose file is in `directory`."""
    return TargetOptions(values, directory, environment or {})


@dataclass
class ScriptedSender(NoticeSender):
    """NoticeSender whose attempts end with these errors, one after the other; None: accepted."""

    outcomes: list[Exception | None] = field(default_factory=list)
    sent: list[Message] = field(default_factory=list)
    hold: threading.Event | None = None

    def send(self, message: Message, now_seconds: float) -> None:
        if self.hold is not None:
            self.hold.wait()
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if outcome is not None:
            raise outcome
        self.sent.append(message)


def target(name: str = "ops", *outcomes: Exception | None, **changes: object) -> Target:
    """Return a target that gets all events."""
    values: dict[str, object] = {"filter": ALL_EVENTS, **changes}
    notifier = ScriptedSender(list(outcomes))
    return Target(name, "scripted", notifier=notifier, **values)  # type: ignore[arg-type]


def sent_by(of: Target) -> list[Message]:
    """Return the messages that a target of `target` has accepted."""
    assert isinstance(of.notifier, ScriptedSender)
    return of.notifier.sent


def refusal(is_final: bool = False, retry_after_seconds: float | None = None) -> NotDelivered:
    """Return the error of a target that does not accept a message."""
    return NotDelivered("example.org answered 500", is_final, retry_after_seconds)


@dataclass
class Received:
    """A request that a server received; names of headers are in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """HTTP server whose answers have these statuses, one after the other, then 204."""

    url: str
    requests: list[Received] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)


@contextmanager
def receiver(tls: TlsFiles | None = None) -> Iterator[Receiver]:
    """Yield a server on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            headers = {name.lower(): value for name, value in self.headers.items()}
            server_state.requests.append(Received(self.path, headers, self.rfile.read(length)))
            status, answer_headers, body = (
                server_state.answers.pop(0) if server_state.answers else (204, {}, b"")
            )
            self.send_response(status)
            for name, value in answer_headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        context = SSLContext(PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.certificate, tls.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "http" if tls is None else "https"
    server_state = Receiver(f"{scheme}://127.0.0.1:{server.server_port}/hook")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server_state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def certificate(directory: Path) -> TlsFiles:
    """Return the files of a certificate for 127.0.0.1 and localhost."""
    files = self_signed_files(directory)
    keep_self_signed(files, ("127.0.0.1", "localhost"), time.time())
    return files
