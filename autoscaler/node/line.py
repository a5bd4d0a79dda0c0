"""The agent's end of the Unix socket: what the training process says, and what it is told.

One line of JSON a message, an object with a "kind". What comes in was written by the job's own
code: what is not a message is passed over.
"""

from __future__ import annotations

import contextlib
import json
import logging
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

from autoscaler.domain.errors import SpecError
from autoscaler.domain.report import MOST_REASON_LETTERS, TrainingReport
from autoscaler.domain.report_rules import MOST_STEPS, Refusals, sound_report
from autoscaler.domain.training import TrainingDirective, TrainingSetup
from autoscaler.domain.transfer import MeterReading
from autoscaler.domain.trial import TrialAnswer, TrialCall
from autoscaler.unix_socket import listen
from autoscaler.wire.codec import decode

_log = logging.getLogger(__name__)

_LONGEST_MESSAGE = 1 << 20
_NO_MESSAGE = (ValueError, TypeError, KeyError, SpecError, OverflowError, RecursionError)
_SEND_TIMEOUT = struct.pack("ll", 1, 0)  # seconds, microseconds: a stopped peer must not stop us


@dataclass(frozen=True, slots=True)
class Stepped:
    """This start has made `steps` steps."""

    steps: int


@dataclass(frozen=True, slots=True)
class EndedEarly:
    """The script has ended training before its total; `reason` is its own, if it gives one."""

    reason: str | None


@dataclass(frozen=True, slots=True)
class DeviceLimit:
    """Memory ran out: a device of this kind takes at most so many examples at once."""

    examples: int


class Word(Enum):
    """What is said without more."""

    LEFT = auto()
    DONE = auto()
    FINISHED = auto()
    DIVERGED = auto()
    OUT_OF_MEMORY = auto()


Message = Stepped | TrainingReport | EndedEarly | DeviceLimit | Word


class Line:
    """Serves the socket at `path` for as long as the agent lives; calls `on_news` for messages.

    Whoever connects hears the setup, then the directive in force, then every new one. What a
    trial asks does not wait for a turn of the agent: `on_call` has it at once. So has `on_reading`
    what was sent and fetched.
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
        """Tell everyone who connects `setup`, and let `user` connect."""
        if user is not None:
            os.chown(self._path, user, user)
        with self._lock:
            self._setup = setup
            for connection in self._connections:
                _say(connection, "setup", asdict(setup))

    def direct(self, directive: TrainingDirective) -> None:
        """Let `directive` be in force."""
        with self._lock:
            if directive == self._directive:
                return
            self._directive = directive
            for connection in self._connections:
                self._say_directive(connection)

    def forget_caller(self) -> None:
        """Let nobody have connected: before another start of the script."""
        self._has_caller = False

    @property
    def has_caller(self) -> bool:
        """Whether a process has connected since `forget_caller`."""
        return self._has_caller

    def answer(self, answer: TrialAnswer) -> None:
        """Tell the trial's worker an answer."""
        with self._lock:
            for connection in self._connections:
                _say(connection, "answer", asdict(answer))

    def hear(self) -> list[Message]:
        """What was said since the last time."""
        heard = []
        with contextlib.suppress(Empty):
            while True:
                heard.append(self._messages.get_nowait())
        return heard

    @property
    def is_quiet(self) -> bool:
        """Nobody is connected, so nothing more will be heard."""
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
                    _say(connection, "setup", asdict(self._setup))
                self._say_directive(connection)
            threading.Thread(
                target=self._listen, args=(connection,), name="castor-line-in", daemon=True
            ).start()

    def _listen(self, connection: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError), connection.makefile("rb") as lines:
                while line := lines.readline(_LONGEST_MESSAGE):
                    message = parse_message(line)
                    if isinstance(message, TrialCall):
                        self._take(message, connection)
                    elif isinstance(message, MeterReading):
                        self._on_reading(message)
                    elif message is not None:
                        self._messages.put(message)
                        self._on_news()
        finally:
            with self._lock:
                self._connections.remove(connection)
            connection.close()

    def _take(self, call: TrialCall, connection: socket.socket) -> None:
        """Have a call kept, and say so; one that can't be is passed over, and comes again."""
        try:
            self._on_call(call)
        except OSError as error:
            _log.error("a call of the trial can't be kept: %s", error)
            return
        with self._lock:
            _say(connection, "kept", {"number": call.number})

    def _say_directive(self, connection: socket.socket) -> None:
        if self._directive is not None:
            _say(connection, "directive", asdict(self._directive))


def parse_message(line: bytes) -> Message | TrialCall | MeterReading | None:
    """The message that a line is; None if it is none."""
    try:
        message = json.loads(line)
        match message["kind"]:
            case "stepped":
                return Stepped(min(max(int(message["steps"]), 0), MOST_STEPS))
            case "report":
                return _sound(decode(TrainingReport, json.dumps(message["report"])))
            case "call":
                return decode(TrialCall, json.dumps(message["call"]))
            case "transfer":
                return decode(MeterReading, json.dumps(message["transfer"]))
            case "left":
                return Word.LEFT
            case "done":
                return Word.DONE
            case "finished":
                return _finished(message)
            case "diverged":
                return Word.DIVERGED
            case "out of memory":
                return Word.OUT_OF_MEMORY
            case "device limit":
                return DeviceLimit(int(message["examples"]))
    except _NO_MESSAGE as error:
        _log.warning("the training process says what is no message: %s", error)
    return None


def _finished(message: Mapping[str, Any]) -> Word | EndedEarly:
    if message.get("is_complete", True):
        return Word.FINISHED
    reason = message.get("stop_reason")
    if reason is None:
        return EndedEarly(None)
    shown = "".join(letter for letter in str(reason) if letter.isprintable())
    return EndedEarly(shown[:MOST_REASON_LETTERS])


def _sound(report: TrainingReport) -> TrainingReport:
    """Return the report without values that can't be used.

    Raises:
        SpecError: the state of training itself can't be used.
    """
    refusals = Refusals()
    sound = sound_report(report, refusals)
    if sound is None:
        raise SpecError("; ".join(refusals.texts))
    for text in refusals.texts:
        _warn_once(text)
    return sound


@lru_cache(maxsize=128)
def _warn_once(text: str) -> None:
    """Log what was left out of a report; reports come each second."""
    _log.warning("left out of a report of training: %s", text)


def _say(connection: socket.socket, kind: str, body: dict[str, Any]) -> None:
    try:
        connection.sendall(json.dumps({"kind": kind, kind: body}).encode() + b"\n")
    except OSError:
        # It has hung up, or does not listen: then it may connect again. Its own thread forgets it.
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
