"""Process between the agent and the command that it runs; the shim survives the agent.

The shim starts one command and writes its output to a log without secrets. Then the shim ends all
processes that the command left, and records the exit code. SIGTERM ends the command with a grace
period, SIGUSR1 at once. Secrets arrive on standard input: no file and no environment but the
command's own holds them.

The module needs only the standard library. The agent starts
``python -P -m autoscaler.node.shims.shim RECORD LOG`` with an order as JSON on standard input;
RECORD and LOG are file descriptors. The shim locks RECORD for its lifetime. The shim writes a line
with its process id to RECORD once the command runs. The last line is the exit code, as in
`subprocess`.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from autoscaler.clock import Clock, SystemClock
from autoscaler.domain.storage import CREDENTIAL_KEY
from autoscaler.node.shims.redaction import Redactor

SESSION_GRACE_SECONDS = 2.0
_PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_CHUNK_BYTES = 1 << 16
_POLL_SECONDS = 0.05
_CLEANUP_TIMEOUT_SECONDS = 20.0
_NOT_FOUND = 127
_NOT_EXECUTABLE = 126


@dataclass(frozen=True, slots=True)
class ShimOrder:
    """Command to run under a shim.

    `secrets` are values to redact, together with the credentials in `grant_file`, which may
    change while the command runs. `user` None is the agent's user. Processes that do not end
    within `grace_seconds` of SIGTERM are killed. `clear` is a cleanup command, which runs before
    and after the main command and may fail. `ends_with_agent`: the shim gets SIGTERM when the
    process that started it dies.
    """

    command: Sequence[str]
    directory: str
    environment: Mapping[str, str]
    secrets: Sequence[str] = ()
    user: int | None = None
    grace_seconds: float = SESSION_GRACE_SECONDS
    clear: Sequence[str] = ()
    ends_with_agent: bool = False
    grant_file: str | None = None


class Shim:
    """One command, from its start until all its processes have ended."""

    def __init__(self, order: ShimOrder, record: int, log: int, clock: Clock) -> None:
        self._order = order
        self._record = record
        self._log = log
        self._clock = clock
        self._redactor = Redactor(order.secrets)
        self._grant_version: tuple[str, int] | None = None
        self._exit_code: int | None = None
        self._kill_seconds: float | None = None
        self._fork_server: int | None = None
        self._output, self._input = os.pipe()
        self._has_output = True
        self._wakeup, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, lambda *_: None)

    def run(self) -> None:
        """Run the command, end the processes that it leaves, and record its exit code."""
        self._run_cleanup()
        command = self._start(self._order)
        os.close(self._input)
        os.write(self._record, f"{os.getpid()}\n".encode())
        while self._reap(command):
            self._wait_for_event()
        while chunk := os.read(self._output, _CHUNK_BYTES):
            self._log_output(chunk)
        self._write(self._redactor.finish())
        self._run_cleanup()
        os.write(self._record, f"{self._exit_code}\n".encode())

    def _start(self, order: ShimOrder, stdin: int = subprocess.DEVNULL) -> int | None:
        """Start the command; return its process id, or None with the exit code set."""
        try:
            process = subprocess.Popen(
                order.command,
                cwd=order.directory,
                env=order.environment,
                stdin=stdin,
                stdout=self._input,
                stderr=self._input,
                start_new_session=True,
                user=order.user,
                group=order.user,
                extra_groups=None if order.user is None else [],
            )
        except OSError as error:
            is_missing = isinstance(error, FileNotFoundError)
            reason = "not found" if is_missing else error.strerror
            self._write(f"castor: {error.filename}: {reason}\n".encode())
            self._exit_code = _NOT_FOUND if is_missing else _NOT_EXECUTABLE
            return None
        process.returncode = 0  # `_reap` waits for the process, not Popen
        return process.pid

    def _reap(self, command: int | None) -> bool:
        """Reap ended children, adopted ones included; return whether any child is left."""
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == command:
                    self._exit_code = os.waitstatus_to_exitcode(ended[1])
                    self._terminate()
        except ChildProcessError:
            return False
        return True

    def _wait_for_event(self) -> None:
        """Wait for output or a signal, and handle it."""
        wait_seconds = None if self._kill_seconds is None else _POLL_SECONDS
        watched = [self._wakeup, self._output] if self._has_output else [self._wakeup]
        ready = select.select(watched, [], [], wait_seconds)[0]
        if self._output in ready:
            chunk = os.read(self._output, _CHUNK_BYTES)
            self._log_output(chunk)
            self._has_output = chunk != b""
        if self._wakeup in ready:
            numbers = os.read(self._wakeup, _CHUNK_BYTES)
            if signal.SIGTERM in numbers:
                self._terminate()
            if signal.SIGUSR1 in numbers:
                self._kill_seconds = self._clock.monotonic()
        if self._kill_seconds is not None and self._clock.monotonic() >= self._kill_seconds:
            self._signal_all(signal.SIGKILL)

    def _terminate(self) -> None:
        if self._kill_seconds is None:
            self._kill_seconds = self._clock.monotonic() + self._order.grace_seconds
            self._signal_all(signal.SIGTERM)

    def _signal_all(self, signal_number: int) -> None:
        """Send a signal to all descendants of this process except the fork server."""
        descendants: list[int] = []
        parents = [os.getpid()]
        while parents:
            child_ids = [child for child in children(parents.pop()) if child != self._fork_server]
            descendants += child_ids
            parents += child_ids
        for process in descendants:
            with suppress(ProcessLookupError):
                os.kill(process, signal_number)

    def _log_output(self, chunk: bytes) -> None:
        """Write output of the command to the log, without secrets."""
        self._learn_credentials()
        self._write(self._redactor.feed(chunk))

    def _learn_credentials(self) -> None:
        """Redact the current credentials in the grant file too, which the agent renews."""
        name = self._order.grant_file
        if name is None:
            return
        with suppress(OSError, ValueError):
            version = name, os.stat(name).st_mtime_ns
            if version != self._grant_version:
                with open(name, "rb") as file:
                    grant = json.load(file)
                self._redactor.learn(grant[CREDENTIAL_KEY].values())
                self._grant_version = version

    def _write(self, text: bytes) -> None:
        # A full disk must not end the job; its output is lost meanwhile.
        with suppress(OSError):
            while text:
                text = text[os.write(self._log, text) :]

    def _run_cleanup(self) -> None:
        if not self._order.clear:
            return
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                self._order.clear,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_CLEANUP_TIMEOUT_SECONDS,
                check=False,
            )


def children(process: int) -> list[int]:
    """Return the ids of the child processes of a process; empty if it has ended."""
    child_ids: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{thread}/children") as file:
                child_ids += [int(name) for name in file.read().split()]
    return child_ids


def main() -> None:
    """Run the order on standard input, as the reaper of all its descendants."""
    agent = os.getppid()
    text = sys.stdin.buffer.read()
    if not text:
        return  # the agent died before it sent an order
    order = ShimOrder(**json.loads(text))
    record, log = int(sys.argv[1]), int(sys.argv[2])
    shim = Shim(order, record, log, SystemClock())
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if order.ends_with_agent:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != agent:
            return
    shim.run()


if __name__ == "__main__":
    main()
