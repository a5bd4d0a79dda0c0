"""Replicas of one job as real processes, with a real lighthouse and a stand-in for each agent."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil

from autoscaler.clock import SystemClock
from autoscaler.domain.job import BatchSpec
from autoscaler.domain.training import Engine, TrainingDirective, TrainingSetup
from autoscaler.lighthouse.host import LighthouseHost, LighthouseSettings
from autoscaler.lighthouse.order import LighthouseDirectory

SCRIPTS = Path(__file__).parent / "scripts"


def wait_until(condition: Callable[[], Any], seconds: float = 30.0, what: str = "") -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s: {what}")


class Lighthouse:
    """torchft's own lighthouse, on a port that stays the same over restarts."""

    def __init__(self, log: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._log = log
        self.address = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [
                str(Path(sys.executable).with_name("torchft_lighthouse")),
                *("--bind", f"127.0.0.1:{self.port}", "--min_replicas", "1"),
                *("--join_timeout_ms", "1000", "--heartbeat_timeout_ms", "1500"),
            ],
            stdout=self._log.open("ab"),
            stderr=subprocess.STDOUT,
            env={**os.environ, "RUST_LOG": "error"},
        )
        wait_until(self._answers, what="the lighthouse")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=0.2).close()
        except OSError:
            return False
        return True


class Roster:
    """What takes the lighthouse's place where torchft is missing, under its supervisor."""

    def __init__(self, directory: Path, engine: Engine | None = Engine.RESTART) -> None:
        settings = LighthouseSettings(join_timeout_seconds=0.3, engine=engine)
        self._host = LighthouseHost(directory, "127.0.0.1", SystemClock(), settings)
        self._directory = LighthouseDirectory(directory / "job")
        self.address = self._host.ensure("job")

    def kill(self) -> None:
        self._host.release("job")

    def kill_server(self) -> None:
        """Its supervisor starts another, unless it is stopped."""
        (server,) = self._supervisor.children()
        server.kill()

    def stop_supervisor(self) -> None:
        self._supervisor.suspend()

    def continue_supervisor(self) -> None:
        self._supervisor.resume()

    @property
    def _supervisor(self) -> psutil.Process:
        assert self._directory.supervisor is not None
        return psutil.Process(self._directory.supervisor)


class ReplicaProcess:
    """One instance: a process of the script, and the socket that its agent would serve."""

    def __init__(
        self,
        setup: TrainingSetup,
        script: str,
        directory: Path,
        environment: dict[str, str],
        ranks: int = 1,
    ) -> None:
        self.name = setup.replica
        self.messages: list[dict[str, Any]] = []
        self.log = directory / f"{self.name}.log"
        self.trace = directory / f"{self.name}.trace"
        self._setup = setup
        self._directive = TrainingDirective()
        self._connections: list[socket.socket] = []
        self._path = tempfile.mktemp(prefix="castor-", suffix=".sock")
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(self._path)
        self._server.listen()
        threading.Thread(target=self._serve, daemon=True).start()
        command = [sys.executable, str(SCRIPTS / script)]
        if ranks > 1:
            torchrun = str(Path(sys.executable).with_name("torchrun"))
            command = [
                torchrun,
                "--standalone",
                f"--nproc-per-node={ranks}",
                str(SCRIPTS / script),
            ]
        self.process = subprocess.Popen(
            command,
            stdout=self.log.open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={
                **os.environ,
                "CASTOR_SOCKET": self._path,
                "RUST_LOG": "error",
                "OMP_NUM_THREADS": "1",
                "TRACE": str(self.trace),
                **environment,
            },
        )

    def direct(self, directive: TrainingDirective) -> None:
        self._directive = directive
        for connection in self._connections:
            self._say(connection, "directive", asdict(directive))

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in list(self.messages) if message["kind"] == kind]

    @property
    def reports(self) -> list[dict[str, Any]]:
        return [message["report"] for message in self.of_kind("report")]

    @property
    def step(self) -> int:
        stepped = self.of_kind("stepped")
        return stepped[-1]["step"] if stepped else 0

    def steps(self) -> list[dict[str, Any]]:
        if not self.trace.exists():
            return []
        lines = self.trace.read_text().splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]

    def _serve(self) -> None:
        while True:
            connection, _ = self._server.accept()
            self._connections.append(connection)
            self._say(connection, "setup", asdict(self._setup))
            self._say(connection, "directive", asdict(self._directive))
            threading.Thread(target=self._listen, args=(connection,), daemon=True).start()

    def _listen(self, connection: socket.socket) -> None:
        with connection.makefile() as lines:
            self.messages.extend(json.loads(line) for line in lines)

    def _say(self, connection: socket.socket, kind: str, body: dict[str, Any]) -> None:
        try:
            connection.sendall(json.dumps({"kind": kind, kind: body}).encode() + b"\n")
        except OSError:
            self._connections.remove(connection)


class Fleet:
    """The replicas of one job."""

    def __init__(self, directory: Path, roster: Roster | None = None, **setup: Any) -> None:
        self._directory = directory
        self.lighthouse: Lighthouse | Roster = roster or Lighthouse(directory / "lighthouse.log")
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
        self, script: str = "regression.py", ranks: int = 1, **environment: str
    ) -> ReplicaProcess:
        setup = replace(self.setup, replica=f"r{len(self.replicas)}")
        replica = ReplicaProcess(setup, script, self._directory, environment, ranks)
        self.replicas.append(replica)
        return replica

    def stop(self) -> None:
        for replica in self.replicas:
            if replica.process.poll() is None:
                replica.kill()
        self.lighthouse.kill()
