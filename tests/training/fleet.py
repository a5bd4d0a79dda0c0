"""Replicas of one job as real processes, with a real lighthouse and stand-ins for the agents."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
from torch.distributed import TCPStore

from autoscaler.clock import SystemClock
from autoscaler.domain.errors import Unavailable
from autoscaler.domain.job import BatchSpec
from autoscaler.domain.training import Engine, TrainingDirective, TrainingSetup
from autoscaler.lighthouse.host import LighthouseHost, LighthouseSettings
from autoscaler.lighthouse.order import LighthouseDirectory
from autoscaler.lighthouse.supervisor import find_torchft
from autoscaler.training.collectives.ports import bound_store
from autoscaler.unix_socket import listen
from tests.builders.waiting import wait_until
from tests.nursery import Order, nursery

SCRIPTS = Path(__file__).parent / "scripts"
_LAST_MESSAGE_SECONDS = 10.0
# Modules that every replica imports; optimizers import torch._dynamo.
_IMPORTED = (
    "torch",
    "torch._dynamo",
    "autoscaler.training.opening",
    "autoscaler.training.training_session",
)


def imported(path: str | None) -> tuple[str, ...]:
    """Return the modules that a replica imports.

    They include torchft's if it is installed and the replica has no `path` of its own.
    """
    if path or find_torchft() is None:
        return _IMPORTED
    return (*_IMPORTED, "autoscaler.training.members.quorum")


class Lighthouse:
    """A job's lighthouse, or the roster in its place, under its real supervisor."""

    def __init__(
        self, directory: Path, engine: Engine | None = None, join_timeout_seconds: float = 1.0
    ) -> None:
        settings = LighthouseSettings(join_timeout_seconds=join_timeout_seconds, engine=engine)
        self._host = LighthouseHost(directory, "127.0.0.1", SystemClock(), settings)
        self._directory = LighthouseDirectory(directory / "job")
        self.address = self._started()

    def kill(self) -> None:
        """Kill the server; its supervisor starts no other until `start`."""
        self.stop_supervisor()
        self.kill_server()

    def lose(self) -> None:
        """Kill server and supervisor, as if their host was lost; `start` restores both."""
        supervisor, (server,) = self._supervisor, self._supervisor.children()
        supervisor.kill()
        wait_until(lambda: self._directory.supervisor is None)
        wait_until(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE)

    def start(self) -> None:
        if self._directory.supervisor is not None:
            self.continue_supervisor()
        assert self._started() == self.address

    def _started(self) -> str:
        """Start the server; return its address. The controller repeats such calls, too."""

        def ensured() -> str:
            with suppress(Unavailable):
                return self._host.ensure("job")
            return ""

        return str(wait_until(ensured, "a lighthouse"))

    def end(self) -> None:
        if self._directory.supervisor is not None:
            self.continue_supervisor()
        self._host.release("job")

    def kill_server(self) -> None:
        """Kill the server; its supervisor starts another unless it is stopped."""
        (server,) = self._supervisor.children()
        server.kill()

    def stop_supervisor(self) -> None:
        """Suspend the supervisor, so that it starts no server."""
        self._supervisor.suspend()

    def continue_supervisor(self) -> None:
        """Resume the suspended supervisor."""
        self._supervisor.resume()

    @property
    def _supervisor(self) -> psutil.Process:
        assert self._directory.supervisor is not None
        return psutil.Process(self._directory.supervisor)


class Roster(Lighthouse):
    """Roster, which replaces the lighthouse if torchft is not installed."""

    def __init__(self, directory: Path, engine: Engine | None = Engine.ROSTER) -> None:
        super().__init__(directory, engine, join_timeout_seconds=0.3)


def roster_of(engine: Engine, directory: Path) -> Roster | None:
    """Return the roster for a `Fleet`; None for torchft, whose lighthouse the fleet starts."""
    return Roster(directory / "lighthouses") if engine is Engine.ROSTER else None


def engine_here() -> Engine:
    """Return the engine of this installation: torchft's quorum, else the roster."""
    return Engine.ROSTER if find_torchft() is None else Engine.QUORUM


def whole_lines(trace: Path) -> list[dict[str, Any]]:
    """Return the lines of a trace, without a last one that is written just now."""
    *lines, _ = trace.read_text().split("\n")
    return [json.loads(line) for line in lines]


def _rendezvous(ranks: int) -> tuple[TCPStore | None, list[dict[str, str]]]:
    """Return the ranks' rendezvous store and variables, as torchrun would set them.

    The store is None for a single rank.
    """
    if ranks == 1:
        return None, [{}]
    store, port = bound_store("127.0.0.1")
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    shared |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "none"}
    of_ranks = [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
    return store, of_ranks


class ReplicaProcess:
    """Processes of one instance: one for each rank, and the socket that the agent would serve."""

    def __init__(
        self,
        setup: TrainingSetup,
        script: str,
        directory: Path,
        environment: dict[str, str],
        ranks: int = 1,
        path: str | None = None,
        on_call: Callable[[str, str], str] = lambda replica, text: "",
        modules: tuple[str, ...] = (),
    ) -> None:
        self.name = setup.replica
        self._on_call = on_call
        self.messages: list[dict[str, Any]] = []
        self.log = directory / f"{self.name}.log"
        self.logs = [self.log, *(Path(f"{self.log}{rank}") for rank in range(1, ranks))]
        self.trace = directory / f"{self.name}.trace"
        self._setup = setup
        self._directive = TrainingDirective()
        self._connections: list[socket.socket] = []
        self._listeners: list[threading.Thread] = []
        address = directory / f"{self.name}.sock"
        self._server = listen(address)
        threading.Thread(target=self._serve, daemon=True).start()
        environment = {
            **os.environ,
            "CASTOR_SOCKET": str(address),
            "RUST_LOG": "error",
            "OMP_NUM_THREADS": "1",
            "TRACE": str(self.trace),
            **environment,
        }
        start = nursery(*imported(path), *modules, path=path).start
        self._store, of_ranks = _rendezvous(ranks)
        self.ranks = [
            start(Order((str(SCRIPTS / script),), log, {**environment, **of_rank}))
            for log, of_rank in zip(self.logs, of_ranks, strict=True)
        ]
        self.process = self.ranks[0]

    def direct(self, directive: TrainingDirective) -> None:
        self._directive = directive
        for connection in self._connections:
            self._say(connection, "directive", asdict(directive))

    def kill(self) -> None:
        for rank in self.ranks:
            if rank.poll() is None:
                with suppress(ProcessLookupError):  # the rank has just ended
                    os.killpg(rank.pid, signal.SIGKILL)
        self.wait()

    def wait(self, seconds: float | None = None) -> int:
        """Wait until all ranks have ended and their messages are read.

        Return 0 if each has exited with 0.
        """
        status = max(abs(rank.wait(seconds)) for rank in self.ranks)
        for listener in list(self._listeners):
            listener.join(_LAST_MESSAGE_SECONDS)
        return status

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in list(self.messages) if message["kind"] == kind]

    @property
    def reports(self) -> list[dict[str, Any]]:
        return [message["report"] for message in self.of_kind("report")]

    @property
    def step(self) -> int:
        stepped = self.of_kind("stepped")
        return stepped[-1]["step"] if stepped else 0

    def steps(self, rank: int = 0) -> list[dict[str, Any]]:
        """Return the trace of a rank; scripts add the rank to the names of other ranks' traces."""
        trace = Path(f"{self.trace}{rank or ''}")
        if not trace.exists():
            return []
        return whole_lines(trace)

    def close(self) -> None:
        """Close the socket and its connections, after the end of the process."""
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._say(connection, "setup", asdict(self._setup))
            self._say(connection, "directive", asdict(self._directive))
            listener = threading.Thread(target=self._listen, args=(connection,), daemon=True)
            listener.start()
            self._listeners.append(listener)

    def _listen(self, connection: socket.socket) -> None:
        # A replica that is killed before it reads an answer resets the connection.
        with suppress(ConnectionResetError), connection.makefile() as lines:
            for line in lines:
                self.messages.append(json.loads(line))
                if self.messages[-1]["kind"] == "call":
                    self._answer(connection, self.messages[-1]["call"])

    def _answer(self, connection: socket.socket, call: dict[str, Any]) -> None:
        """Acknowledge a trial's call, and answer it."""
        number = call["number"]
        self._say(connection, "kept", {"number": number})
        answer = self._on_call(self.name, call["text"])
        self._say(connection, "answer", {"number": number, "text": answer})

    def _say(self, connection: socket.socket, kind: str, body: dict[str, Any]) -> None:
        try:
            connection.sendall(json.dumps({"kind": kind, kind: body}).encode() + b"\n")
        except OSError:
            self._connections.remove(connection)


class Fleet:
    """Replicas of one job.

    `modules`: further modules that the replicas import, and are forked with.
    """

    modules: tuple[str, ...] = ()

    def __init__(self, directory: Path, roster: Lighthouse | None = None, **setup: Any) -> None:
        roster = roster or roster_of(engine_here(), directory)
        self._directory = directory
        self.on_call: Callable[[str, str], str] = lambda replica, text: ""
        self.lighthouse = roster or Lighthouse(directory / "lighthouses")
        self.replicas: list[ReplicaProcess] = []
        self.checkpoints = directory / "checkpoints"
        self.setup = replace(
            TrainingSetup(
                job="job",
                replica="",
                attempt=1,
                device_kind="cpu-core",
                lighthouse=self.lighthouse.address,
                bind_address="127.0.0.1",
                peer_token="secret",
                checkpoint_directory=str(self.checkpoints),
                checkpoint_interval_seconds=1e9,
                checkpoints_kept=2,
                batch=BatchSpec(),
                total_examples=None,
                heartbeat_timeout_seconds=1.5,
                collective_timeout_seconds=20.0,
            ),
            **setup,
        )

    def start(
        self,
        script: str = "regression.py",
        ranks: int = 1,
        path: str | None = None,
        **environment: str,
    ) -> ReplicaProcess:
        setup = replace(self.setup, replica=f"r{len(self.replicas)}")
        replica = ReplicaProcess(
            setup, script, self._directory, environment, ranks, path, self.on_call, self.modules
        )
        self.replicas.append(replica)
        return replica

    def stop(self) -> None:
        for replica in self.replicas:
            replica.kill()
        self.lighthouse.end()
