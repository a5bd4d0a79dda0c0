"""The line between a training process and the node agent beside it: a Unix socket.

Each message is one line of JSON, an object with a "kind". The agent may be killed and come back:
what could not be sent waits, bounded, and the last directive heard stays in force.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, get_args

from autoscaler.clock import Clock
from autoscaler.domain.goodput import StepParameters
from autoscaler.domain.job import BatchSpec
from autoscaler.domain.report import TrainingReport
from autoscaler.domain.training import TrainingDirective, TrainingSetup
from autoscaler.domain.transfer import MeterReading
from autoscaler.objects import Meter
from autoscaler.unix_socket import connect

_log = logging.getLogger(__name__)

_WAITING_MESSAGES = 1000
_RECONNECT_SECONDS = 0.5
_SETUP_SECONDS = 60.0
_TELL_SECONDS = 2.0


class Channel:
    """One leader's connection to its agent. Sending never blocks training.

    What `meter` counts is told as it changes, and to each agent anew: all that was counted, so
    that it does not matter what got lost with an earlier one.
    """

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._outgoing: deque[Mapping[str, Any]] = deque(maxlen=_WAITING_MESSAGES)
        self._changed = threading.Condition()
        self._directive = TrainingDirective()
        self._setup: TrainingSetup | None = None
        self._closed = False
        self._socket: socket.socket | None = None
        self._untold: MeterReading | None = None
        self.meter = Meter()
        self.meter.on_news = self._tell_transfer
        threading.Thread(target=self._listen, name="castor-channel-in", daemon=True).start()
        threading.Thread(target=self._speak, name="castor-channel-out", daemon=True).start()

    @property
    def directive(self) -> TrainingDirective:
        """The last one heard."""
        return self._directive

    def setup(self) -> TrainingSetup:
        """What the agent says once at the start.

        Raises:
            TimeoutError: it says nothing.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._setup is not None, _SETUP_SECONDS):
                raise TimeoutError(f"the node agent does not answer on {self._path}")
            assert self._setup is not None
            return self._setup

    def report(self, report: TrainingReport) -> None:
        """Tell the state of the job's training; only the deciding replica does."""
        self._send({"kind": "report", "report": asdict(report)})

    def stepped(self, steps: int, step: int) -> None:
        """Tell that this start has made `steps` steps, the last of them the job's step `step`."""
        self._send({"kind": "stepped", "steps": steps, "step": step})

    def left(self) -> None:
        """Tell that this replica has left at a step boundary, as it was asked to."""
        self._send({"kind": "left"})

    def finished(self, is_complete: bool = True, stop_reason: str | None = None) -> None:
        """Report that the job has ended and its state is saved.

        `is_complete`: training has reached its total. `stop_reason`: why the script has stopped it
        before.
        """
        reason = None if is_complete else stop_reason
        self._send({"kind": "finished", "is_complete": is_complete, "stop_reason": reason})

    def done(self) -> None:
        """Tell that this replica's part is over; the deciding one tells when the job's is."""
        self._send({"kind": "done"})

    def diverged(self) -> None:
        """Tell that the script fails as training diverged: to start it again would not help."""
        self._send({"kind": "diverged"})

    def out_of_memory(self, device_limit: int | None = None) -> None:
        """Report that the script fails as memory ran out.

        `device_limit` are the examples that a device takes at once in the next start; None: a
        device has too little memory for the job.
        """
        self._send(_out_of_memory(device_limit))

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Send what waits, within the timeout, and hang up."""
        with self._changed:
            self._changed.wait_for(lambda: not self._has_to_say, timeout_seconds)
            self._closed = True
            self._changed.notify_all()
        if self._socket is not None:
            self._socket.close()

    def _send(self, message: Mapping[str, Any]) -> None:
        with self._changed:
            self._outgoing.append(message)
            self._changed.notify_all()

    @property
    def _has_to_say(self) -> bool:
        return bool(self._outgoing) or self._untold is not None

    def _tell_transfer(self) -> None:
        with self._changed:
            reading = self.meter.read()
            self._untold = reading if reading.transfer else None
            self._changed.notify_all()

    def _speak(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or (self._has_to_say and self._socket))
                if self._closed:
                    return
                message, connection = self._next_message(), self._socket
            try:
                assert connection is not None
                connection.sendall(_line(message))
            except OSError:
                self._hang_up(connection)
                continue
            with self._changed:
                self._said(message)
                self._changed.notify_all()

    def _next_message(self) -> Mapping[str, Any] | MeterReading:
        """What was sent goes first: it may cost more than all the rest has to say."""
        return self._outgoing[0] if self._untold is None else self._untold

    def _said(self, message: Mapping[str, Any] | MeterReading) -> None:
        if message is self._untold:
            self._untold = None
        elif not isinstance(message, MeterReading):
            self._outgoing.popleft()

    def _listen(self) -> None:
        while not self._closed:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connect(connection, Path(self._path))
                with self._changed:
                    self._socket = connection
                    self._tell_transfer()
                with connection.makefile("r", encoding="utf-8") as lines:
                    for line in lines:
                        self._hear(json.loads(line))
            except (OSError, ValueError) as error:
                _log.debug("the agent's socket: %s", error)
            self._hang_up(connection)
            self._clock.sleep(_RECONNECT_SECONDS)

    def _hang_up(self, connection: socket.socket | None) -> None:
        with self._changed:
            if self._socket is connection:
                self._socket = None
        if connection is not None:
            connection.close()

    def _hear(self, message: Mapping[str, Any]) -> None:
        with self._changed:
            if message.get("kind") == "setup":
                self._setup = setup_from(message["setup"])
            elif message.get("kind") == "directive":
                self._directive = directive_from(message["directive"])
            self._changed.notify_all()


def tell_out_of_memory(path: str, device_limit: int | None) -> None:
    """Tell the agent at `path` what `Channel.out_of_memory` does, from a rank without a channel.

    An agent that is away is not told.
    """
    with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_TELL_SECONDS)
        connect(connection, Path(path))
        connection.sendall(_line(_out_of_memory(device_limit)))
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16):  # until the agent has read it and hangs up
            pass


def _out_of_memory(device_limit: int | None) -> Mapping[str, Any]:
    if device_limit is None:
        return {"kind": "out of memory"}
    return {"kind": "device limit", "examples": device_limit}


def _line(message: Mapping[str, Any] | MeterReading) -> bytes:
    if isinstance(message, MeterReading):
        message = {"kind": "transfer", "transfer": asdict(message)}
    return json.dumps(message).encode() + b"\n"


def setup_from(values: Mapping[str, Any]) -> TrainingSetup:
    """The setup that `dataclasses.asdict` took apart."""
    batch = values["batch"]
    maxima = tuple((kind, most) for kind, most in batch["kind_maxima"])
    return TrainingSetup(**{**values, "batch": BatchSpec(**{**batch, "kind_maxima": maxima})})


def directive_from(values: Mapping[str, Any]) -> TrainingDirective:
    """The directive that `dataclasses.asdict` took apart."""
    throughput = values.get("throughput")
    return TrainingDirective(
        drain=bool(values["drain"]),
        throughput=None if throughput is None else _parameters_from(throughput),
        checkpoint_interval_seconds=values.get("checkpoint_interval_seconds"),
    )


def _parameters_from(values: Mapping[str, Any]) -> StepParameters:
    """The parameters of the one throughput model that has these names.

    Raises:
        ValueError: none has.
    """
    for model in get_args(StepParameters):
        if {field.name for field in fields(model)} == values.keys():
            parameters: StepParameters = model(**values)
            return parameters
    raise ValueError(f"no throughput model has the parameters {', '.join(values)}")
