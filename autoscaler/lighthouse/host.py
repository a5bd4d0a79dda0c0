"""The lighthouses of all jobs of one deployment, found again after its controller was killed."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from autoscaler.clock import Clock
from autoscaler.domain.errors import SpecError, Unavailable
from autoscaler.domain.paths import inside
from autoscaler.domain.training import Engine
from autoscaler.lighthouse.order import LighthouseDirectory, LighthouseOrder
from autoscaler.lighthouse.supervisor import find_torchft

_START_SECONDS = 15.0
_END_SECONDS = 5.0
_LOOK_SECONDS = 0.02
_LOCK = ".lock"  # no job has this name
_INHERITED = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class LighthouseSettings:
    """How long a server waits for a joiner's peers, and for a silent replica's next heartbeat.

    `engine` None: torchft's quorum where torchft is installed, a roster of our own elsewhere.
    """

    join_timeout_seconds: float = 1.0
    heartbeat_timeout_seconds: float = 1.5
    engine: Engine | None = None


class LighthouseHost:
    """Starts, finds and ends lighthouses, each under a supervisor of its own.

    Safe to use from several threads and processes. Linux only.
    """

    def __init__(
        self,
        directory: Path,
        bind_address: str,
        clock: Clock,
        settings: LighthouseSettings = LighthouseSettings(),
    ) -> None:
        self._directory = directory.resolve()
        self._bind_address = bind_address
        self._clock = clock
        self._settings = settings

    def ensure(self, job: str) -> str:
        """The address of the job's lighthouse, which runs.

        The address is the same every time, unless another program has taken the port of one that
        did not run, or torchft has gone since. Its scheme tells the job's engine.

        Raises:
            Unavailable: it does not start; the same call may be made again.
        """
        with self._trouble(job), self._alone():
            lighthouse = LighthouseDirectory(inside(self._directory, job))
            order = lighthouse.order
            if order is None or lighthouse.supervisor is None:
                order = self._start(lighthouse, order)
            self._wait_for(lighthouse, order)
            return order.address

    def release(self, job: str) -> None:
        """End the job's lighthouse, if it has one.

        Raises:
            Unavailable: it does not end; the same call may be made again.
        """
        try:
            lighthouse = LighthouseDirectory(inside(self._directory, job))
        except SpecError:  # `ensure` has made none of that name
            return
        if not lighthouse.path.exists():
            return
        with self._trouble(job), self._alone():
            deadline_seconds = self._clock.monotonic() + _END_SECONDS
            while (supervisor := lighthouse.supervisor) is not None:
                with suppress(ProcessLookupError):
                    os.kill(supervisor, signal.SIGTERM)
                if self._clock.monotonic() > deadline_seconds:
                    raise Unavailable(
                        f"the lighthouse of {job} does not end: see process {supervisor}"
                    )
                self._clock.sleep(_LOOK_SECONDS)
            lighthouse.remove()

    def running(self) -> Mapping[str, str]:
        """The addresses of all lighthouses that have a supervisor, by job."""
        found = {}
        for path in self._directory.glob("*/"):
            lighthouse = LighthouseDirectory(path)
            order = lighthouse.order
            if order is not None and lighthouse.supervisor is not None:
                found[path.name] = order.address
        return found

    def _start(
        self, lighthouse: LighthouseDirectory, order: LighthouseOrder | None
    ) -> LighthouseOrder:
        """Start a supervisor; the lock is taken here and passed on, so that there is one only."""
        lighthouse.path.mkdir(parents=True, exist_ok=True)
        order = LighthouseOrder(
            bind_address=self._bind_address,
            port=self._free_port(order.port if order is not None else 0),
            join_timeout_seconds=self._settings.join_timeout_seconds,
            heartbeat_timeout_seconds=self._settings.heartbeat_timeout_seconds,
            engine=self._engine(order),
        )
        lighthouse.write_order(order)
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        command = (sys.executable, "-P", "-m", "autoscaler.lighthouse.supervisor")
        with lighthouse.lock.open("a+") as lock, lighthouse.log.open("ab") as log:
            fcntl.flock(lock, fcntl.LOCK_EX)
            subprocess.run(
                [*command, str(lighthouse.path), str(lock.fileno())],
                pass_fds=(lock.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**environment, "RUST_LOG": "error"},
                start_new_session=True,
                check=False,
            )
        return order

    def _engine(self, order: LighthouseOrder | None) -> Engine:
        """What the job has been told before, as long as that can be had."""
        if find_torchft() is None:
            return Engine.ROSTER
        told = order.engine if order is not None else None
        return told or self._settings.engine or Engine.QUORUM

    def _free_port(self, preferred: int) -> int:
        """`preferred` if it can be had, else any."""
        for port in (preferred, 0):
            with socket.socket() as probe, suppress(OSError):
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((self._bind_address, port))
                return int(probe.getsockname()[1])
        raise Unavailable(f"no port can be had on {self._bind_address}: check the address")

    def _wait_for(self, lighthouse: LighthouseDirectory, order: LighthouseOrder) -> None:
        deadline_seconds = self._clock.monotonic() + _START_SECONDS
        while not _answers(order):
            if self._clock.monotonic() > deadline_seconds:
                raise Unavailable(f"{order.address} does not answer: see {lighthouse.log}")
            self._clock.sleep(_LOOK_SECONDS)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else changes the deployment's lighthouses meanwhile."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with (self._directory / _LOCK).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _trouble(self, job: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, SpecError) as error:
            raise Unavailable(f"the lighthouse of {job} in {self._directory}: {error}") from error


def _answers(order: LighthouseOrder) -> bool:
    try:
        socket.create_connection((order.bind_address, order.port), timeout=1.0).close()
    except OSError:
        return False
    return True
