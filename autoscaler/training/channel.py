"""Connection between a training process and its node agent: a Unix socket.

Each message is one line of JSON, an object with a "kind". The agent may be killed and restarted:
unsent messages are queued, up to a bound, and the last directive stays in force.
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

_MAX_QUEUED_MESSAGES = 1000
_RECONNECT_SECONDS = 0.5
_SETUP_TIMEOUT_SECONDS = 60.0
_SEND_TIMEOUT_SECONDS = 2.0


class AgentConnection:
    """Connection of an instance's leader to its node agent. Sending never blocks training.

    Each change of `meter` is sent as the total so far, also to a restarted agent, so that lost
    messages do not matter.
    """

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._outgoing: deque[Mapping[str, Any]] = deque(maxlen=_MAX_QUEUED_MESSAGES)
        self._changed = threading.Condition()
        self._directive = TrainingDirective()
        self._setup: TrainingSetup | None = None
        self._closed = False
        self._socket: socket.socket | None = None
        self._unsent_reading: MeterReading | None = None
        self.meter = Meter()
        self.meter.on_news = self._queue_transfer
        threading.Thread(target=self._receive_loop, name="castor-channel-in", daemon=True).start()
        threading.Thread(target=self._send_loop, name="castor-channel-out", daemon=True).start()

    @property
    def directive(self) -> TrainingDirective:
        """The last directive received."""
        return self._directive

    def setup(self) -> TrainingSetup:
        """Return the setup that the agent sends once at the start. Blocks.

        Raises:
            TimeoutError: the agent sends none within `_SETUP_TIMEOUT_SECONDS`.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._setup is not None, _SETUP_TIMEOUT_SECONDS):
                raise TimeoutError(f"the node agent does not answer on {self._path}")
            assert self._setup is not None
            return self._setup

    def report(self, report: TrainingReport) -> None:
        """Send a report of the job's training; only the deciding replica does."""
        self._send({"kind": "report", "report": asdict(report)})

    def stepped(
        self, steps: int, step: int, paused_seconds: float = 0.0, lost_seconds: float = 0.0
    ) -> None:
        """Report `steps` steps since this start, the last of them the job's step `step`.

        Of the time since the first step, changes of membership and checkpoints took
        `paused_seconds`, and steps that were lost `lost_seconds`.
        """
        halts = {"paused_seconds": paused_seconds, "lost_seconds": lost_seconds}
        self._send({"kind": "stepped", "steps": steps, "step": step, **halts})

    def phase(self, name: str | None, seconds: float = 0.0) -> None:
        """Report a phase without steps that takes at most `seconds`; None ends the last one."""
        self._send({"kind": "phase", "name": name, "seconds": seconds})

    def waits(self) -> None:
        """Report that this replica waits for the others, until its next step."""
        self._send({"kind": "waits"})

    def left(self) -> None:
        """Report that this replica has left at a step boundary, as requested."""
        self._send({"kind": "left"})

    def finished(self, is_complete: bool = True, stop_reason: str | None = None) -> None:
        """Report that the job has ended and its state is saved.

        Args:
            is_complete: whether training has reached its total.
            stop_reason: why the script stopped training early; None if it did not.
        """
        reason = None if is_complete else stop_reason
        self._send({"kind": "finished", "is_complete": is_complete, "stop_reason": reason})

    def done(self) -> None:
        """Report the end of this replica's part; the deciding replica reports the job's end."""
        self._send({"kind": "done"})

    def diverged(self) -> None:
        """Report that training diverged, so that starting the script again would not help."""
        self._send({"kind": "diverged"})

    def out_of_memory(self, device_limit: int | None = None) -> None:
        """Report that the script fails as memory ran out.

        `device_limit` is the most examples per device for the next start. None means that a device
        has too little memory for the job.
        """
        self._send(_out_of_memory(device_limit))

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Send queued messages within the timeout, and disconnect."""
        with self._changed:
            self._changed.wait_for(lambda: not self._has_unsent, timeout_seconds)
            self._closed = True
            self._changed.notify_all()
        if self._socket is not None:
            self._socket.close()

    def _send(self, message: Mapping[str, Any]) -> None:
        with self._changed:
            self._outgoing.append(message)
            self._changed.notify_all()

    @property
    def _has_unsent(self) -> bool:
        return bool(self._outgoing) or self._unsent_reading is not None

    def _queue_transfer(self) -> None:
        with self._changed:
            reading = self.meter.read()
            self._unsent_reading = reading if reading.transfer else None
            self._changed.notify_all()

    def _send_loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or (self._has_unsent and self._socket))
                if self._closed:
                    return
                message, connection = self._next_message(), self._socket
            try:
                assert connection is not None
                connection.sendall(_encode(message))
            except OSError:
                self._disconnect(connection)
                continue
            with self._changed:
                self._mark_sent(message)
                self._changed.notify_all()

    def _next_message(self) -> Mapping[str, Any] | MeterReading:
        """Return the next message; a transfer reading goes first, as it may cost most."""
        return self._outgoing[0] if self._unsent_reading is None else self._unsent_reading

    def _mark_sent(self, message: Mapping[str, Any] | MeterReading) -> None:
        if message is self._unsent_reading:
            self._unsent_reading = None
        elif not isinstance(message, MeterReading):
            self._outgoing.popleft()

    def _receive_loop(self) -> None:
        while not self._closed:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connect(connection, Path(self._path))
                with self._changed:
                    self._socket = connection
                    self._queue_transfer()
                with connection.makefile("r", encoding="utf-8") as lines:
                    for line in lines:
                        self._receive(json.loads(line))
            except (OSError, ValueError) as error:
                _log.debug("the agent's socket: %s", error)
            self._disconnect(connection)
            self._clock.sleep(_RECONNECT_SECONDS)

    def _disconnect(self, connection: socket.socket | None) -> None:
        with self._changed:
            if self._socket is connection:
                self._socket = None
        if connection is not None:
            connection.close()

    def _receive(self, message: Mapping[str, Any]) -> None:
        with self._changed:
            if message.get("kind") == "setup":
                self._setup = setup_from(message["setup"])
            elif message.get("kind") == "directive":
                self._directive = directive_from(message["directive"])
            self._changed.notify_all()


def tell_out_of_memory(path: str, device_limit: int | None) -> None:
    """Send `AgentConnection.out_of_memory` to the agent at `path`, from a rank without a channel.

    An agent that can't be reached is ignored.
    """
    with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_SEND_TIMEOUT_SECONDS)
        connect(connection, Path(path))
        connection.sendall(_encode(_out_of_memory(device_limit)))
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16):  # until the agent has read the message and disconnects
            pass


def _out_of_memory(device_limit: int | None) -> Mapping[str, Any]:
    if device_limit is None:
        return {"kind": "out of memory"}
    return {"kind": "device limit", "examples": device_limit}


def _encode(message: Mapping[str, Any] | MeterReading) -> bytes:
    if isinstance(message, MeterReading):
        message = {"kind": "transfer", "transfer": asdict(message)}
    return json.dumps(message).encode() + b"\n"


def setup_from(values: Mapping[str, Any]) -> TrainingSetup:
    """Return the setup from the values of its `dataclasses.asdict`."""
    batch = values["batch"]
    maxima = tuple((kind, maximum) for kind, maximum in batch["kind_maxima"])
    return TrainingSetup(**{**values, "batch": BatchSpec(**{**batch, "kind_maxima": maxima})})


def directive_from(values: Mapping[str, Any]) -> TrainingDirective:
    """Return the directive from the values of its `dataclasses.asdict`."""
    throughput = values.get("throughput")
    return TrainingDirective(
        drain=bool(values["drain"]),
        throughput=None if throughput is None else _parameters_from(throughput),
        checkpoint_interval_seconds=values.get("checkpoint_interval_seconds"),
    )


def _parameters_from(values: Mapping[str, Any]) -> StepParameters:
    """Return the parameters of the throughput model whose fields have these names.

    Raises:
        ValueError: no model has them.
    """
    for model in get_args(StepParameters):
        if {field.name for field in fields(model)} == values.keys():
            parameters: StepParameters = model(**values)
            return parameters
    raise ValueError(f"no throughput model has the parameters {', '.join(values)}")
