"""The ranks of one instance, and the one line that they have to the driver of their study.

Rank 0 has the line. What it is answered goes to the others over a Unix socket, so that all hear
the same at the same call: calls are numbered, and one that is not rank 0's of that number is
refused. Only what is asked is numbered; what the others tell has been told by rank 0.
"""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from autoscaler.clock import Clock
from autoscaler.domain.trial import TrialFile
from autoscaler.unix_socket import connect, listen
from hpo.protocol import requests
from hpo.protocol.requests import Call, answer_text, read_call, refusal_text
from hpo.worker.interfaces import Asks

PATIENCE_SECONDS: Final = 1800.0
FAREWELL_SECONDS: Final = 10.0
_CONNECT_SECONDS = 60.0
_RECONNECT_SECONDS = 0.05
_LONGEST_TEXT = 64 << 20  # all trials of a study


class LeadingRank:
    """Rank 0's way to the driver, and the other ranks'."""

    def __init__(self, line: Asks, path: Path, ranks: int) -> None:
        self._line = line
        self._changed = threading.Condition()
        self._asked: list[str] = []
        self._answers: list[str] = []
        self._has_failed = False
        self._served = dict.fromkeys(range(1, ranks), 0)
        if ranks > 1:
            server = listen(path)
            threading.Thread(
                target=self._accept, args=(server,), name="castor-crew", daemon=True
            ).start()

    def tell(self, text: str) -> None:
        """Say it to the driver, for all ranks."""
        self._line.tell(text)

    def ask(self, text: str, file: TrialFile | None = None) -> str:
        """Ask the driver, for all ranks. Before it ends the others are to have asked the same.

        A file is this rank's own affair.
        """
        if file is not None:
            return self._line.ask(text, file)
        if read_call(text).method == requests.END:
            self._wait_for_others()
        self._add(self._asked, text)
        answer = self._line.ask(text)
        self._add(self._answers, answer)
        return answer

    def end_untold(self, text: str) -> None:
        """Let the ranks end, and the trial go on without them."""
        self._add(self._asked, text)
        self._add(self._answers, answer_text(None))

    def close(self) -> None:
        """Return when all have heard the last answer, or won't."""
        self._wait_for_others()

    def _wait_for_others(self) -> None:
        def all_heard() -> bool:
            heard = (served >= len(self._answers) for served in self._served.values())
            return self._has_failed or all(heard)

        with self._changed:
            self._changed.wait_for(all_heard, FAREWELL_SECONDS)

    def _accept(self, server: socket.socket) -> None:
        while True:
            connection, _ = server.accept()
            threading.Thread(
                target=self._serve, args=(connection,), name="castor-crew-rank", daemon=True
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection, connection.makefile("rwb") as stream:
            while line := stream.readline(_LONGEST_TEXT):
                message = json.loads(line)
                number, text = message["number"], message["text"]
                self._wait_for(self._asked, number)
                error = _out_of_step(message["rank"], text, self._asked[number])
                _say(stream, is_heard=True)
                if error is None:
                    self._wait_for(self._answers, number)
                    _say(stream, answer=self._answers[number])
                else:
                    self._fail(text, error)
                    _say(stream, answer=refusal_text(RuntimeError(error)))
                with self._changed:
                    self._served[message["rank"]] = number + 1
                    self._changed.notify_all()

    def _fail(self, text: str, cause: str) -> None:
        """End the trial: what was refused is a mistake in its objective.

        A rank that ends by an error is none: it has said so, and its instance is started again.
        """
        if read_call(text).method == requests.END:
            return
        self._line.ask(requests.failure(cause, RuntimeError(cause)).text())
        with self._changed:
            self._has_failed = True
            self._changed.notify_all()

    def _add(self, texts: list[str], text: str) -> None:
        with self._changed:
            texts.append(text)
            self._changed.notify_all()

    def _wait_for(self, texts: list[str], number: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(texts) > number)


class FollowingRank:
    """Another rank's way to the driver: what rank 0 is answered."""

    def __init__(
        self, path: Path, rank: int, clock: Clock, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Rank 0 is waited for, and refused to be waited for longer than that."""
        self._rank = rank
        self._patience_seconds = patience_seconds
        self._connection = _connected(path, clock)
        self._stream = self._connection.makefile("rwb")
        self._number = 0

    def tell(self, text: str) -> None:
        """Nothing: rank 0 tells it."""

    def ask(self, text: str, file: TrialFile | None = None) -> str:
        """What rank 0 is answered to its same call. Only rank 0 sends files.

        Raises:
            RuntimeError: rank 0 has gone, or does not ask.
        """
        number, self._number = self._number, self._number + 1
        self._connection.settimeout(self._patience_seconds)
        try:
            _say(self._stream, rank=self._rank, number=number, text=text)
            self._hear()
            self._connection.settimeout(None)
            answer: str = self._hear()["answer"]
        except TimeoutError:
            raise RuntimeError(
                f"rank {self._rank} has waited {self._patience_seconds:g} s for rank 0 to "
                f"{_described(read_call(text))}: {_RULE}"
            ) from None
        return answer

    def give_up_soon(self, seconds: float) -> None:
        """Wait for rank 0 no longer than so from now on."""
        self._patience_seconds = seconds

    def _hear(self) -> dict[str, Any]:
        try:
            line = self._stream.readline(_LONGEST_TEXT)
        except ConnectionError:
            line = b""
        if not line:
            raise RuntimeError(f"rank {self._rank} is left alone: rank 0 has ended")
        message: dict[str, Any] = json.loads(line)
        return message


_RULE = "every rank of a distributed objective makes the same calls of its trial, in one order"


def _out_of_step(rank: int, text: str, leading: str) -> str | None:
    """Why a rank's call is refused; None if it is the leading rank's."""
    own, expected = read_call(text), read_call(leading)
    if _what(own) == _what(expected):
        return None
    there = _described(expected)
    return f"rank {rank} is to {_described(own)} where rank 0 is to {there}: {_RULE}"


def _what(call: Call) -> tuple[object, ...]:
    """What a call is about: the ranks may have come to different values."""
    known = ("name", "distribution", "step", "key", "what")
    return call.method, *(call.arguments.get(name) for name in known)


def _described(call: Call) -> str:
    match call.method:
        case requests.SUGGEST:
            return f"suggest {call.arguments['name']!r}"
        case requests.SHOULD_PRUNE:
            return f"ask should_prune after a report of step {call.arguments.get('step')}"
        case requests.END:
            return "end"
    return call.method


def _connected(path: Path, clock: Clock) -> socket.socket:
    """A connection with rank 0, which may come later.

    Raises:
        RuntimeError: it does not come.
    """
    until_seconds = clock.monotonic() + _CONNECT_SECONDS
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connect(connection, path)
            return connection
        except OSError as error:
            connection.close()
            if clock.monotonic() > until_seconds:
                raise RuntimeError(f"rank 0 does not come: {error}") from None
        clock.sleep(_RECONNECT_SECONDS)


def _say(stream: Any, **message: object) -> None:
    stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()
