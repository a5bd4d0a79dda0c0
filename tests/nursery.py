"""Processes forked from a server that has already imported modules; see scripts/nursery.py."""

from __future__ import annotations

import atexit
import functools
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

_SCRIPT = Path(__file__).parent / "scripts" / "nursery.py"


@dataclass(frozen=True)
class Order:
    """Program to run: `words` are a script or a module's name, and its arguments.

    Without `errors` the log also receives standard error.
    """

    words: Sequence[str]
    log: Path
    environment: Mapping[str, str]
    errors: Path | None = None


class ForkedProcess:
    """Process with the part of `subprocess.Popen`'s interface that tests need."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.ended = threading.Event()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self.ended.wait(timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        assert self.returncode is not None
        return self.returncode


class Nursery:
    """Server process that forks programs; it starts one program at a time."""

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-P", str(_SCRIPT), *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "RUST_LOG": "error", "OMP_NUM_THREADS": "1", **environment},
        )
        self._alive: dict[int, ForkedProcess] = {}
        self._started: queue.Queue[ForkedProcess] = queue.Queue()
        self._starting = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def start(self, order: Order) -> ForkedProcess:
        assert self._server.stdin is not None
        with self._starting:
            self._server.stdin.write(json.dumps(asdict(order), default=str).encode() + b"\n")
            self._server.stdin.flush()
            return self._started.get(timeout=180)

    def close(self) -> None:
        self._server.kill()
        self._server.wait()

    def _listen(self) -> None:
        assert self._server.stdout is not None
        for line in self._server.stdout:
            message = json.loads(line)
            if "pid" in message:
                process = ForkedProcess(message["pid"])
                self._alive[process.pid] = process
                self._started.put(process)
            else:
                process = self._alive.pop(message["ended"])
                process.returncode = message["code"]
                process.ended.set()


@functools.cache
def nursery(*modules: str, path: str | None = None) -> Nursery:
    """Return this test run's server that has imported `modules`; the first call starts it.

    With `path` the server searches that directory first, as with PYTHONPATH.
    """
    before = os.environ.get("PYTHONPATH")
    paths = os.pathsep.join(filter(None, (path, before)))
    started = Nursery(modules, {} if path is None else {"PYTHONPATH": paths})
    atexit.register(started.close)
    return started
