"""Process of the job that outlives the agent; the next agent finds it by its record file."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import psutil

from autoscaler.domain.errors import Conflict
from autoscaler.domain.trial import WORKER_COMMAND
from autoscaler.node.shims.shim import ShimOrder
from autoscaler.node.shims.warm_process import WarmProcess


class Process:
    """One process at a time, under a shim. The file `record` holds the state of the last one.

    The shim holds the lock of the record while the process runs, so that any agent can check it.
    For one thread at a time.
    """

    def __init__(self, record: Path, log: Path, environment: Mapping[str, str]) -> None:
        """Set the environment of the shim; the order has that of the process."""
        self._record = record
        self._log = log
        self._environment = environment
        self._shim: subprocess.Popen[bytes] | None = None
        self._warm: WarmProcess | None = None
        self.on_end: Callable[[], None] = lambda: None

    def forget(self) -> None:
        """Delete the record of the last process, which must have ended."""
        self._record.unlink(missing_ok=True)

    def start(self, order: ShimOrder, held: Sequence[int] = ()) -> None:
        """Start the command of `order`; its record replaces that of the last process.

        The shim keeps the descriptors `held` open until its end.

        Raises:
            Conflict: the last process is still running.
            OSError: the shim can't be started.
        """
        with self._record.open("ab") as record, self._log.open("ab") as log:
            self._log.chmod(0o600)
            try:
                fcntl.flock(record, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Conflict(
                    f"{self._record}: its process is running; stop the process first"
                ) from None
            record.truncate(0)
            descriptors = (record.fileno(), log.fileno())
            if self._start_warm(order, *descriptors):
                return
            shim = (sys.executable, "-P", "-m", "autoscaler.node.shims.shim")
            self._shim = subprocess.Popen(
                [*shim, *(str(number) for number in descriptors)],
                pass_fds=(*descriptors, *held),
                stdin=subprocess.PIPE,
                env=self._environment,
                start_new_session=True,
            )
        assert self._shim.stdin is not None
        with suppress(BrokenPipeError), self._shim.stdin as orders:
            orders.write(json.dumps(asdict(order)).encode())
        threading.Thread(target=self._watch, args=(self._shim,), daemon=True).start()

    def _start_warm(self, order: ShimOrder, record: int, log: int) -> bool:
        """Start a trial's worker from a warm process; return False if that is not possible."""
        if tuple(order.command) != WORKER_COMMAND:
            return False
        if self._warm is None or not self._warm.fits(order):
            if self._warm is not None:
                self._warm.end()
            self._warm = WarmProcess(order, self._environment, lambda: self.on_end())
        self._shim = self._warm.shim
        return self._warm.begin(order, record, log)

    @property
    def is_alive(self) -> bool:
        """Whether the process, or a process that it left, is running."""
        if self._shim is not None:
            self._shim.poll()  # reaps an ended shim
        try:
            with self._record.open("rb") as record:
                fcntl.flock(record, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            pass
        return False

    @property
    def exit_code(self) -> int | None:
        """Exit code of the last process; None if it is running or never ran.

        The code is -9 if the shim was killed, and the shim's own if the shim failed to start.
        """
        if self.is_alive:
            return None
        match self._lines():
            case []:
                return (self._shim and self._shim.returncode) or None
            case [_, exit_code, *_]:
                return int(exit_code)
        return -signal.SIGKILL

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` for the process; return whether it has ended."""
        if self._shim is not None:
            with suppress(subprocess.TimeoutExpired):
                self._shim.wait(seconds)
        return not self.is_alive

    def stop(self) -> None:
        """End the process with the grace period of its order. Repeated calls are allowed."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process at once."""
        self._signal(signal.SIGUSR1)

    def _watch(self, shim: subprocess.Popen[bytes]) -> None:
        shim.wait()
        self.on_end()

    def _signal(self, number: int) -> None:
        lines = self._lines()
        if lines and self.is_alive:
            with suppress(ProcessLookupError):
                os.kill(int(lines[0]), number)

    def _lines(self) -> list[str]:
        with suppress(FileNotFoundError):
            text = self._record.read_text()
            return text[: text.rfind("\n") + 1].splitlines()
        return []


def kill_marked(name: str, value: str) -> None:
    """Kill every process with this environment variable, after the death of its shim."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(name) == value:
                process.kill()
