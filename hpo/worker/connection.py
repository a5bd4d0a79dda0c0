"""A worker's line to the agent of its instance: calls go out, answers come in.

The agent may be killed and come back: what it has not kept, or what was not answered, is said
again.
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


class TrialLine:
    """Calls of one start of a trial's script, numbered from 1. Safe to share between threads.

    What `meter` counts of the trial's states is told as it changes.
    """

    def __init__(
        self, path: Path, clock: Clock, leaves_after_seconds: float | None = None
    ) -> None:
        """Whoever is to leave, and is not answered for so long, leaves: there may be no driver
        any more. None: it waits on.
        """
        self._path = path
        self._leaves_after_seconds = leaves_after_seconds
        self._clock = clock
        self._changed = threading.Condition()
        self._socket: socket.socket | None = None
        self._last_number = 0
        self._not_kept: dict[int, TrialCall] = {}
        self._not_answered: dict[int, TrialCall] = {}
        self._answers: dict[int, str] = {}
        self._directory: Path | None = None
        self._depot: tuple[str, str] | None = None
        self._is_closed = False
        self.must_leave = False
        self.meter = Meter()
        self.meter.on_news = self._tell_transfer
        threading.Thread(target=self._listen, name="castor-trial-line", daemon=True).start()

    def tell(self, text: str) -> None:
        """Say something; returns when it can't get lost any more with this process."""
        with self._changed:
            number = self._say(text, is_question=False)
            self._changed.wait_for(lambda: number not in self._not_kept)

    def ask(self, text: str, file: TrialFile | None = None) -> str:
        """Ask something; returns its answer, however long there is nobody to give it.

        A `file` of the checkpoint directory goes along; it must be there until the answer is.

        Raises:
            SystemExit: the worker leaves, for it is to, and nobody answers.
        """
        with self._changed:
            number = self._say(text, is_question=True, file=file)
            self._await_answer(number)
            return self._answers.pop(number)

    def ask_unless_leaving(self, text: str) -> str | None:
        """As `ask`, but None if the worker is to leave before there is an answer."""
        with self._changed:
            number = self._say(text, is_question=True)
            self._changed.wait_for(lambda: number in self._answers or self.must_leave)
            return self._answers.pop(number, None)

    def checkpoint_directory(self) -> Path:
        """Where the trial's states are kept, as the agent says once it is there."""
        with self._changed:
            self._changed.wait_for(lambda: self._directory is not None)
            assert self._directory is not None
            return self._directory

    def depot(self) -> Objects | None:
        """Where states are kept beyond the instance's disk, as the agent says.

        Raises:
            CheckpointError: it can't be reached from here.
        """
        self.checkpoint_directory()
        if self._depot is None:
            return None
        place, grant_file = self._depot
        try:
            return open_grant(Path(grant_file), place, meter=self.meter)
        except ProviderError as error:
            raise CheckpointError(str(error)) from error

    def stepped(self, steps: int) -> None:
        """Tell the agent that so many steps are done."""
        with self._changed:
            self._send({"kind": "stepped", "steps": steps})

    def left(self) -> None:
        """Tell the agent that the worker ends because it was asked to."""
        with self._changed:
            self._send({"kind": "left"})

    def finished(self) -> None:
        """Tell the agent that the trial has ended, whatever else it was told."""
        with self._changed:
            self._send({"kind": "finished"})

    def done(self) -> None:
        """Tell the agent that nothing is left to do here; others go on with the trial."""
        with self._changed:
            self._send({"kind": "done"})

    def close(self) -> None:
        """Hang up."""
        with self._changed:
            self._is_closed = True
            if self._socket is not None:
                self._socket.close()

    def _await_answer(self, number: int) -> None:
        def is_answered() -> bool:
            return number in self._answers

        while not is_answered():
            self._changed.wait_for(lambda: is_answered() or self._may_leave)
            is_settled = self._changed.wait_for(
                lambda: is_answered() or not self._may_leave, self._leaves_after_seconds
            )
            if not is_settled:
                self._send({"kind": "left"})
                raise SystemExit(0)

    @property
    def _may_leave(self) -> bool:
        return self.must_leave and self._leaves_after_seconds is not None

    def _say(self, text: str, is_question: bool, file: TrialFile | None = None) -> int:
        self._last_number += 1
        call = TrialCall(self._last_number, text, file, is_question)
        self._not_kept[call.number] = call
        if is_question:
            self._not_answered[call.number] = call
        self._send_call(call)
        return call.number

    def _tell_transfer(self) -> None:
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
            self._socket = None  # it is said again on the next connection

    def _listen(self) -> None:
        while not self._is_closed:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connect(connection, self._path)
                with connection.makefile("r", encoding="utf-8") as lines:
                    self._take_up(connection)
                    for line in lines:
                        self._hear(json.loads(line))
            except (OSError, ValueError) as error:
                _log.debug("the agent's socket: %s", error)
            connection.close()
            self._clock.sleep(_RECONNECT_SECONDS)

    def _take_up(self, connection: socket.socket) -> None:
        """Speak over this connection, and say again what is open."""
        with self._changed:
            self._socket = connection
            self._tell_transfer()
            for _, call in sorted({**self._not_kept, **self._not_answered}.items()):
                self._send_call(call)

    def _hear(self, message: dict[str, Any]) -> None:
        with self._changed:
            match message.get("kind"):
                case "kept":
                    self._not_kept.pop(message["kept"]["number"], None)
                case "answer":
                    number = message["answer"]["number"]
                    self._not_kept.pop(number, None)
                    if self._not_answered.pop(number, None) is not None:
                        self._answers[number] = message["answer"]["text"]
                case "setup":
                    setup = message["setup"]
                    if setup.get("depot") is not None:
                        self._depot = setup["depot"], setup["grant_file"]
                    self._directory = Path(setup["checkpoint_directory"])
                case "directive":
                    self.must_leave = bool(message["directive"]["drain"])
            self._changed.notify_all()
