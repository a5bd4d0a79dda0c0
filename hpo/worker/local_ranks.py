"""Requests of the ranks of one instance, which share rank 0's channel to the driver.

Rank 0 sends its requests to the driver, and forwards the answers to the other ranks over a Unix
socket. Requests with an answer are numbered. A request of another rank that differs from rank 0's
request of that number is refused. Requests without an answer are sent by rank 0 only.
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
from hpo.protocol.requests import TrialRequest, answer_text, error_text, parse_request
from hpo.worker.interfaces import DriverChannel

ANSWER_TIMEOUT_SECONDS: Final = 1800.0
CLOSE_TIMEOUT_SECONDS: Final = 10.0
_CONNECT_SECONDS = 60.0
_RECONNECT_SECONDS = 0.05
_LONGEST_TEXT = 64 << 20  # all trials of a study


class LeadingRank:
    """Channel of rank 0, which also serves the other ranks."""

    def __init__(self, channel: DriverChannel, path: Path, ranks: int) -> None:
        self._channel = channel
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
        """Send a request of all ranks to the driver."""
        self._channel.tell(text)

    def ask(self, text: str, file: TrialFile | None = None) -> str:
        """Ask the driver for all ranks.

        Before `end`, wait until the other ranks have asked the same.

        A request with a file belongs to rank 0 alone.
        """
        if file is not None:
            return self._channel.ask(text, file)
        if parse_request(text).method == requests.END:
            self._wait_for_others()
        self._add(self._asked, text)
        answer = self._channel.ask(text)
        self._add(self._answers, answer)
        return answer

    def end_locally(self, text: str) -> None:
        """Let the ranks end while the trial continues on other instances."""
        self._add(self._asked, text)
        self._add(self._answers, answer_text(None))

    def close(self) -> None:
        """Wait until all ranks have the last answer, at most `CLOSE_TIMEOUT_SECONDS`."""
        self._wait_for_others()

    def _wait_for_others(self) -> None:
        def all_received() -> bool:
            received = (served >= len(self._answers) for served in self._served.values())
            return self._has_failed or all(received)

        with self._changed:
            self._changed.wait_for(all_received, CLOSE_TIMEOUT_SECONDS)

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
                error = _mismatch(message["rank"], text, self._asked[number])
                _send(stream, is_heard=True)
                if error is None:
                    self._wait_for(self._answers, number)
                    _send(stream, answer=self._answers[number])
                else:
                    self._fail(text, error)
                    _send(stream, answer=error_text(RuntimeError(error)))
                with self._changed:
                    self._served[message["rank"]] = number + 1
                    self._changed.notify_all()

    def _fail(self, text: str, cause: str) -> None:
        """End the trial, since a refused request is an error of its objective.

        A rank that ends by an error has reported the error itself, and its instance restarts.
        """
        if parse_request(text).method == requests.END:
            return
        self._channel.ask(requests.failure_request(cause, RuntimeError(cause)).text())
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
    """Channel of another rank, which receives the answers of rank 0."""

    def __init__(
        self,
        path: Path,
        rank: int,
        clock: Clock,
        answer_timeout_seconds: float = ANSWER_TIMEOUT_SECONDS,
    ) -> None:
        """Connect to rank 0; `answer_timeout_seconds` limits the wait for each answer."""
        self._rank = rank
        self._answer_timeout_seconds = answer_timeout_seconds
        self._connection = _connect_to_leader(path, clock)
        self._stream = self._connection.makefile("rwb")
        self._number = 0

    def tell(self, text: str) -> None:
        """Do nothing, since rank 0 sends the request."""

    def ask(self, text: str, file: TrialFile | None = None) -> str:
        """Return the answer to rank 0's same request.

        `file` is ignored, since only rank 0 sends files.

        Raises:
            RuntimeError: rank 0 has ended, or does not make the request in time.
        """
        number, self._number = self._number, self._number + 1
        self._connection.settimeout(self._answer_timeout_seconds)
        try:
            _send(self._stream, rank=self._rank, number=number, text=text)
            self._receive()
            self._connection.settimeout(None)
            answer: str = self._receive()["answer"]
        except TimeoutError:
            raise RuntimeError(
                f"rank {self._rank} has waited {self._answer_timeout_seconds:g} s for rank 0 to "
                f"{_request_text(parse_request(text))}: {_RULE}"
            ) from None
        return answer

    def limit_answer_timeout(self, seconds: float) -> None:
        """Set the limit of the wait for each answer."""
        self._answer_timeout_seconds = seconds

    def _receive(self) -> dict[str, Any]:
        try:
            line = self._stream.readline(_LONGEST_TEXT)
        except ConnectionError:
            line = b""
        if not line:
            raise RuntimeError(f"rank {self._rank} can't continue: rank 0 has ended")
        message: dict[str, Any] = json.loads(line)
        return message


_RULE = "every rank of a distributed objective makes the same calls of its trial, in one order"


def _mismatch(rank: int, text: str, leading: str) -> str | None:
    """Return the reason to refuse a rank's request; None if it equals the leading rank's."""
    request, expected = parse_request(text), parse_request(leading)
    if _request_key(request) == _request_key(expected):
        return None
    expected_text = _request_text(expected)
    return (
        f"rank {rank} is to {_request_text(request)} where rank 0 is to {expected_text}: {_RULE}"
    )


def _request_key(call: TrialRequest) -> tuple[object, ...]:
    """Return the identity of a request, without values that may differ between ranks."""
    keys = ("name", "distribution", "step", "key", "what")
    return call.method, *(call.arguments.get(name) for name in keys)


def _request_text(call: TrialRequest) -> str:
    match call.method:
        case requests.SUGGEST:
            return f"suggest {call.arguments['name']!r}"
        case requests.SHOULD_PRUNE:
            return f"ask should_prune after a report of step {call.arguments.get('step')}"
        case requests.END:
            return "end"
    return call.method


def _connect_to_leader(path: Path, clock: Clock) -> socket.socket:
    """Connect to rank 0; wait until its socket exists.

    Raises:
        RuntimeError: rank 0's socket does not appear in time.
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


def _send(stream: Any, **message: object) -> None:
    stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()
