"""Lighthouses of all jobs of one deployment; they survive a restart of the controller."""

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
from autoscaler.lighthouse.order import LighthouseDirectory, LighthouseSpec
from autoscaler.lighthouse.supervisor import find_torchft

_START_SECONDS = 15.0
_END_SECONDS = 5.0
_POLL_SECONDS = 0.02
_LOCK = ".lock"  # not a valid name of a job
# Other systems let no server listen at a port that another socket is bound to.
_KEEPS_PORT = sys.platform == "linux"
_INHERITED = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class LighthouseSettings:
    """Timeouts and engine of lighthouses.

    A server waits `join_timeout_seconds` for the peers of a joining replica. A replica without a
    heartbeat for `heartbeat_timeout_seconds` is lost. With `engine` None, jobs use torchft's
    quorum where torchft is installed, and Castor's own roster elsewhere.
    """

    join_timeout_seconds: float = 1.0
    heartbeat_timeout_seconds: float = 1.5
    engine: Engine | None = None


class LighthouseHost:
    """Host of lighthouses, each under its own supervisor process.

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
        """Start the job's lighthouse unless it runs; return its address.

        The address stays the same, unless the lighthouse was down and another program took its
        port, or torchft was uninstalled. The scheme of the address names the job's engine.

        Raises:
            Unavailable: the lighthouse does not start; the call can be repeated.
        """
        with self._errors_as_unavailable(job), self._locked():
            lighthouse = LighthouseDirectory(inside(self._directory, job))
            order = lighthouse.order
            if order is None or lighthouse.supervisor is None:
                order = self._start(lighthouse, order)
            self._wait_for(lighthouse, order)
            return order.address

    def release(self, job: str) -> None:
        """End the job's lighthouse, if it has one.

        Raises:
            Unavailable: the lighthouse does not end; the call can be repeated.
        """
        try:
            lighthouse = LighthouseDirectory(inside(self._directory, job))
        except SpecError:  # `ensure` creates no lighthouse with an invalid name
            return
        if not lighthouse.path.exists():
            return
        with self._errors_as_unavailable(job), self._locked():
            deadline_seconds = self._clock.monotonic() + _END_SECONDS
            while (supervisor := lighthouse.supervisor) is not None:
                with suppress(ProcessLookupError):
                    os.kill(supervisor, signal.SIGTERM)
                if self._clock.monotonic() > deadline_seconds:
                    raise Unavailable(
                        f"the lighthouse of {job} does not end: see process {supervisor}"
                    )
                self._clock.sleep(_POLL_SECONDS)
            lighthouse.remove()

    def running(self) -> Mapping[str, str]:
        """Return the addresses of all lighthouses that have a supervisor, by job."""
        addresses = {}
        for path in self._directory.glob("*/"):
            lighthouse = LighthouseDirectory(path)
            order = lighthouse.order
            if order is not None and lighthouse.supervisor is not None:
                addresses[path.name] = order.address
        return addresses

    def _start(
        self, lighthouse: LighthouseDirectory, order: LighthouseSpec | None
    ) -> LighthouseSpec:
        """Start a supervisor that inherits the locked lock file, so that only one can run.

        On Linux it also inherits a socket bound to the server's port, so that no other program
        gets this port before the server listens, or while it is restarted.
        """
        lighthouse.path.mkdir(parents=True, exist_ok=True)
        reserved = self._reserve_port(order.port if order is not None else 0)
        order = LighthouseSpec(
            bind_address=self._bind_address,
            port=int(reserved.getsockname()[1]),
            join_timeout_seconds=self._settings.join_timeout_seconds,
            heartbeat_timeout_seconds=self._settings.heartbeat_timeout_seconds,
            engine=self._engine(order),
        )
        lighthouse.write_order(order)
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        command = (sys.executable, "-P", "-m", "autoscaler.lighthouse.supervisor")
        with reserved, lighthouse.lock.open("a+") as lock, lighthouse.log.open("ab") as log:
            if not _KEEPS_PORT:
                reserved.close()
            fcntl.flock(lock, fcntl.LOCK_EX)
            subprocess.run(
                [*command, str(lighthouse.path), str(lock.fileno())],
                pass_fds=(lock.fileno(), *((reserved.fileno(),) if _KEEPS_PORT else ())),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**environment, "RUST_LOG": "error"},
                start_new_session=True,
                check=False,
            )
        return order

    def _engine(self, order: LighthouseSpec | None) -> Engine:
        """Return the engine of the job's earlier lighthouse if available, else the default."""
        if find_torchft() is None:
            return Engine.ROSTER
        earlier_engine = order.engine if order is not None else None
        return earlier_engine or self._settings.engine or Engine.QUORUM

    def _reserve_port(self, preferred: int) -> socket.socket:
        """Return a socket bound to the port `preferred` if that is free, else to any free one."""
        for port in (preferred, 0):
            reserved = socket.socket()
            try:
                reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                reserved.bind((self._bind_address, port))
            except OSError:
                reserved.close()
            else:
                return reserved
        raise Unavailable(f"no free port on {self._bind_address}: check the address")

    def _wait_for(self, lighthouse: LighthouseDirectory, order: LighthouseSpec) -> None:
        deadline_seconds = self._clock.monotonic() + _START_SECONDS
        while not _accepts_connections(order):
            if self._clock.monotonic() > deadline_seconds:
                raise Unavailable(f"{order.address} does not answer: see {lighthouse.log}")
            self._clock.sleep(_POLL_SECONDS)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the deployment's lighthouses while the context lasts."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with (self._directory / _LOCK).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _errors_as_unavailable(self, job: str) -> Iterator[None]:
        """Translate errors in the context into `Unavailable`, with the job and the directory."""
        try:
            yield
        except (OSError, ValueError, SpecError) as error:
            raise Unavailable(f"the lighthouse of {job} in {self._directory}: {error}") from error


def _accepts_connections(order: LighthouseSpec) -> bool:
    try:
        socket.create_connection((order.bind_address, order.port), timeout=1.0).close()
    except OSError:
        return False
    return True
