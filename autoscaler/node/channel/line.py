"""Agent's end of the Unix socket to the training process.

Each message is one line of JSON, an object with a "kind". The job's own code writes the incoming
lines; lines that are not valid messages are ignored.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum, auto
from functools import lru_cache
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from autoscaler.domain.activity import phase_name
from autoscaler.domain.errors import SpecError
from autoscaler.domain.report import MOST_REASON_LETTERS, TrainingReport
from autoscaler.domain.report_rules import MOST_STEPS, Refusals, sound_report
from autoscaler.domain.rules import LONGEST_SECONDS
from autoscaler.domain.training import TrainingDirective, TrainingSetup
from autoscaler.domain.transfer import MeterReading
from autoscaler.domain.trial import TrialAnswer, TrialCall
from autoscaler.unix_socket import listen
from autoscaler.wire.codec import decode

_log = logging.getLogger(__name__)

_MAX_MESSAGE_BYTES = 1 << 20
_INVALID_MESSAGE_ERRORS = (
    ValueError,
    TypeError,
    KeyError,
    SpecError,
    OverflowError,
    RecursionError,
)
_SEND_TIMEOUT = struct.pack("ll", 1, 0)  # (seconds, microseconds); a stopped peer must not block


@dataclass(frozen=True, slots=True)
class Stepped:
    """Number of training steps that this start has made, and seconds of it without steps.

    `paused_seconds` were for changes of membership and checkpoints, `lost_seconds` for steps that
    were lost.
    """

    steps: int
    paused_seconds: float = 0.0
    lost_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class EndedEarly:
    """End of training before its total; `reason` is from the script, None if it gives none."""

    reason: str | None


@dataclass(frozen=True, slots=True)
class DeviceLimit:
    """Most `examples` at once that a device of this kind can take, after memory ran out."""

    examples: int


@dataclass(frozen=True, slots=True)
class DeclaredPhase:
    """Phase without steps that the script declares, for at most `seconds`; None ends the last."""

    name: str | None
    seconds: float


class Word(Enum):
    """Messages without content."""

    WAITS = auto()
    LEFT = auto()
    DONE = auto()
    FINISHED = auto()
    DIVERGED = auto()
    OUT_OF_MEMORY = auto()


_WORDS = {
    "waits": Word.WAITS,
    "left": Word.LEFT,
    "done": Word.DONE,
    "diverged": Word.DIVERGED,
    "out of memory": Word.OUT_OF_MEMORY,
}

Message = Stepped | TrainingReport | EndedEarly | DeviceLimit | DeclaredPhase | Word


class Line:
    """Server of the socket at `path`, for as long as the agent lives.

    A new connection gets the setup, then the directive in force, then every new directive.
    `on_call` gets each call of a trial and `on_reading` each count of transfers, at once and from
    another thread. `on_news` is called after each other message.
    """

    def __init__(
        self,
        path: Path,
        on_news: Callable[[], None],
        on_call: Callable[[TrialCall], None] = lambda call: None,
        on_reading: Callable[[MeterReading], None] = lambda reading: None,
    ) -> None:
        self._path = path
        self._on_news = on_news
        self._on_call = on_call
        self._on_reading = on_reading
        self._messages: SimpleQueue[Message] = SimpleQueue()
        self._lock = threading.Lock()
        self._connections: list[socket.socket] = []
        self._setup: TrainingSetup | None = None
        self._directive: TrainingDirective | None = None
        self._has_caller = False
        self._server = listen(path)
        threading.Thread(target=self._accept, name="castor-line", daemon=True).start()

    def open_to(self, setup: TrainingSetup, user: int | None) -> None:
        """Send `setup` to present and later connections, and let `user` connect."""
        if user is not None:
            os.chown(self._path, user, user)
        with self._lock:
            self._setup = setup
            for connection in self._connections:
                _send(connection, "setup", asdict(setup))

    def direct(self, directive: TrainingDirective) -> None:
        """Send `directive` to present and later connections, if it is new."""
        with self._lock:
            if directive == self._directive:
                return
            self._directive = directive
            for connection in self._connections:
                self._send_directive(connection)

    def forget_caller(self) -> None:
        """Reset `has_caller`, before another start of the script."""
        self._has_caller = False

    @property
    def has_caller(self) -> bool:
        """Whether a process has connected since `forget_caller`."""
        return self._has_caller

    def answer(self, answer: TrialAnswer) -> None:
        """Send an answer to the worker of the trial."""
        with self._lock:
            for connection in self._connections:
                _send(connection, "answer", asdict(answer))

    def hear(self) -> list[Message]:
        """Return the messages since the last call."""
        messages = []
        with contextlib.suppress(Empty):
            while True:
                messages.append(self._messages.get_nowait())
        return messages

    @property
    def is_quiet(self) -> bool:
        """Whether no process is connected, so that no more messages arrive."""
        with self._lock:
            return not self._connections

    def _accept(self) -> None:
        while True:
            connection, _ = self._server.accept()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_TIMEOUT)
            with self._lock:
                self._has_caller = True
                self._connections.append(connection)
                if self._setup is not None:
                    _send(connection, "setup", asdict(self._setup))
                self._send_directive(connection)
            threading.Thread(
                target=self._listen, args=(connection,), name="castor-line-in", daemon=True
            ).start()

    def _listen(self, connection: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError), connection.makefile("rb") as lines:
                while line := lines.readline(_MAX_MESSAGE_BYTES):
                    message = parse_message(line)
                    if isinstance(message, TrialCall):
                        self._store_call(message, connection)
                    elif isinstance(message, MeterReading):
                        self._on_reading(message)
                    elif message is not None:
                        self._messages.put(message)
                        self._on_news()
        finally:
            with self._lock:
                self._connections.remove(connection)
            connection.close()

    def _store_call(self, call: TrialCall, connection: socket.socket) -> None:
        """Store a call and confirm it. The worker repeats a call that is not confirmed."""
        try:
            self._on_call(call)
        except OSError as error:
            _log.error("a call of the trial can't be stored: %s", error)
            return
        with self._lock:
            _send(connection, "kept", {"number": call.number})

    def _send_directive(self, connection: socket.socket) -> None:
        if self._directive is not None:
            _send(connection, "directive", asdict(self._directive))


def parse_message(line: bytes) -> Message | TrialCall | MeterReading | None:
    """Return the message in a line; None if the line is not a valid message."""
    try:
        message = json.loads(line)
        match message["kind"]:
            case "stepped":
                return _parse_stepped(message)
            case "report":
                return _usable_report(decode(TrainingReport, json.dumps(message["report"])))
            case "call":
                return decode(TrialCall, json.dumps(message["call"]))
            case "transfer":
                return decode(MeterReading, json.dumps(message["transfer"]))
            case "finished":
                return _parse_finished(message)
            case "phase":
                return _parse_phase(message)
            case "device limit":
                return DeviceLimit(int(message["examples"]))
            case word:
                return _WORDS.get(word)
    except _INVALID_MESSAGE_ERRORS as error:
        _log.warning("ignored an invalid message of the training process: %s", error)
    return None


def _parse_stepped(message: Mapping[str, Any]) -> Stepped:
    seconds = (float(message.get(name, 0.0)) for name in ("paused_seconds", "lost_seconds"))
    paused_seconds, lost_seconds = (
        min(max(value, 0.0), LONGEST_SECONDS) if math.isfinite(value) else 0.0 for value in seconds
    )
    steps = min(max(int(message["steps"]), 0), MOST_STEPS)
    return Stepped(steps, paused_seconds, lost_seconds)


def _parse_phase(message: Mapping[str, Any]) -> DeclaredPhase:
    if message.get("name") is None:
        return DeclaredPhase(None, 0.0)
    return DeclaredPhase(*phase_name(message["name"], message["seconds"]))


def _parse_finished(message: Mapping[str, Any]) -> Word | EndedEarly:
    if message.get("is_complete", True):
        return Word.FINISHED
    reason = message.get("stop_reason")
    if reason is None:
        return EndedEarly(None)
    printable = "".join(letter for letter in str(reason) if letter.isprintable())
    return EndedEarly(printable[:MOST_REASON_LETTERS])


def _usable_report(report: TrainingReport) -> TrainingReport:
    """Return the report without unusable values.

    Raises:
        SpecError: the state of training itself is unusable.
    """
    refusals = Refusals()
    usable = sound_report(report, refusals)
    if usable is None:
        raise SpecError("; ".join(refusals.texts))
    for text in refusals.texts:
        _warn_once(text)
    return usable


@lru_cache(maxsize=128)
def _warn_once(text: str) -> None:
    """Log each problem of a report once, because reports arrive each second."""
    _log.warning("left out of a report of training: %s", text)


def _send(connection: socket.socket, kind: str, body: dict[str, Any]) -> None:
    try:
        connection.sendall(json.dumps({"kind": kind, kind: body}).encode() + b"\n")
    except OSError:
        # The peer has closed, or does not read and may connect again. Its thread removes it.
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
