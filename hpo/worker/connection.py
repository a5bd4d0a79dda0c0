"""Connection of a worker to the agent of its instance, for requests and answers.

The agent may be killed and restarted. The connection then sends unacknowledged and unanswered
requests again.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autoscaler.clock import Clock
from autoscaler.domain.errors import CheckpointError, ProviderError
from autoscaler.domain.trial import TrialCall, TrialFile
from autoscaler.objects import Meter, Objects, open_grant
from autoscaler.unix_socket import connect

_log = logging.getLogger(__name__)

_RECONNECT_SECONDS = 0.2


class TrialConnection:
    """Channel to the driver through the instance's agent, for one start of a trial's script.

    Requests are numbered from 1. The object is thread-safe. Transfers that `meter` counts are
    reported as they change.
    """

    def __init__(
        self, path: Path, clock: Clock, drain_timeout_seconds: float | None = None
    ) -> None:
        """Connect to the socket `path`.

        A draining worker that has no answer after `drain_timeout_seconds` ends, since there may be
        no driver. None: it waits without a limit.
        """
        self._path = path
        self._drain_timeout_seconds = drain_timeout_seconds
        self._clock = clock
        self._changed = threading.Condition()
        self._socket: socket.socket | None = None
        self._last_number = 0
        self._unstored: dict[int, TrialCall] = {}
        self._unanswered: dict[int, TrialCall] = {}
        self._answers: dict[int, str] = {}
        self._directory: Path | None = None
        self._remote_location: tuple[str, str] | None = None
        self._is_closed = False
        self.must_drain = False
        self.meter = Meter()
        self.meter.on_news = self._report_transfer
        threading.Thread(target=self._listen, name="castor-trial-line", daemon=True).start()

    def tell(self, text: str) -> None:
        """Send a request without an answer; return once the agent has stored it."""
        with self._changed:
            number = self._send_numbered(text, is_question=False)
            self._changed.wait_for(lambda: number not in self._unstored)

    def ask(self, text: str, file: TrialFile | None = None) -> str:
        """Send a request and return its answer; wait without a limit unless the worker drains.

        A `file` in the checkpoint directory is sent along; it must exist until the answer arrives.

        Raises:
            SystemExit: the worker has to drain, and no answer arrives.
        """
        with self._changed:
            number = self._send_numbered(text, is_question=True, file=file)
            self._await_answer(number)
            return self._answers.pop(number)

    def ask_unless_draining(self, text: str) -> str | None:
        """Ask the driver; return None if the worker has to drain before there is an answer."""
        with self._changed:
            number = self._send_numbered(text, is_question=True)
            self._changed.wait_for(lambda: number in self._answers or self.must_drain)
            return self._answers.pop(number, None)

    def checkpoint_directory(self) -> Path:
        """Return the directory of the trial's checkpoints; wait until the agent reports it."""
        with self._changed:
            self._changed.wait_for(lambda: self._directory is not None)
            assert self._directory is not None
            return self._directory

    def remote_checkpoints(self) -> Objects | None:
        """Return the remote store of the trial's checkpoints; None without one.

        Raises:
            CheckpointError: the store can't be opened.
        """
        self.checkpoint_directory()
        if self._remote_location is None:
            return None
        location, grant_file = self._remote_location
        try:
            return open_grant(Path(grant_file), location, meter=self.meter)
        except ProviderError as error:
            raise CheckpointError(str(error)) from error

    def report_steps(self, steps: int) -> None:
        """Report the number of completed steps to the agent."""
        with self._changed:
            self._send({"kind": "stepped", "steps": steps})

    def report_left(self) -> None:
        """Report to the agent that the worker ends because it was asked to drain."""
        with self._changed:
            self._send({"kind": "left"})

    def report_finished(self) -> None:
        """Report to the agent that the trial has ended."""
        with self._changed:
            self._send({"kind": "finished"})

    def report_done(self) -> None:
        """Report to the agent that this instance's part of the trial is done."""
        with self._changed:
            self._send({"kind": "done"})

    def close(self) -> None:
        """Close the connection."""
        with self._changed:
            self._is_closed = True
            if self._socket is not None:
                self._socket.close()

    def _await_answer(self, number: int) -> None:
        def is_answered() -> bool:
            return number in self._answers

        while not is_answered():
            self._changed.wait_for(lambda: is_answered() or self._may_time_out)
            is_settled = self._changed.wait_for(
                lambda: is_answered() or not self._may_time_out, self._drain_timeout_seconds
            )
            if not is_settled:
                self._send({"kind": "left"})
                raise SystemExit(0)

    @property
    def _may_time_out(self) -> bool:
        return self.must_drain and self._drain_timeout_seconds is not None

    def _send_numbered(self, text: str, is_question: bool, file: TrialFile | None = None) -> int:
        self._last_number += 1
        call = TrialCall(self._last_number, text, file, is_question)
        self._unstored[call.number] = call
        if is_question:
            self._unanswered[call.number] = call
        self._send_call(call)
        return call.number

    def _report_transfer(self) -> None:
        with self._changed:
            reading = self.meter.read()
            if reading.transfer:
                self._send({"kind": "transfer", "transfer": asdict(reading)})

    def _send_call(self, call: TrialCall) -> None:
        self._send({"kind": "call", "call": asdict(call)})

    def _send(self, message: Mapping[str, Any]) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self._socket = None  # the next connection sends the message again

    def _listen(self) -> None:
        while not self._is_closed:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connect(connection, self._path)
                with connection.makefile("r", encoding="utf-8") as lines:
                    self._resume(connection)
                    for line in lines:
                        self._receive(json.loads(line))
            except (OSError, ValueError) as error:
                _log.debug("the agent's socket: %s", error)
            connection.close()
            self._clock.sleep(_RECONNECT_SECONDS)

    def _resume(self, connection: socket.socket) -> None:
        """Use this connection, and send open requests again."""
        with self._changed:
            self._socket = connection
            self._report_transfer()
            for _, call in sorted({**self._unstored, **self._unanswered}.items()):
                self._send_call(call)

    def _receive(self, message: dict[str, Any]) -> None:
        with self._changed:
            match message.get("kind"):
                case "kept":
                    self._unstored.pop(message["kept"]["number"], None)
                case "answer":
                    number = message["answer"]["number"]
                    self._unstored.pop(number, None)
                    if self._unanswered.pop(number, None) is not None:
                        self._answers[number] = message["answer"]["text"]
                case "setup":
                    setup = message["setup"]
                    if setup.get("depot") is not None:
                        self._remote_location = setup["depot"], setup["grant_file"]
                    self._directory = Path(setup["checkpoint_directory"])
                case "directive":
                    self.must_drain = bool(message["directive"]["drain"])
            self._changed.notify_all()
