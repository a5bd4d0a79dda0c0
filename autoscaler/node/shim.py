"""The process between the agent and what it runs: it stays when the agent dies.

It starts one command, writes what the command prints to a log without the secrets, ends whatever
the command leaves running, and tells the exit code. SIGTERM ends the command with a grace period,
SIGUSR1 at once. Secrets reach it through its standard input: they are in no file and in no
environment but the command's own.

Only the standard library. Started as ``python -P -m autoscaler.node.shim RECORD LOG`` with an
order as JSON on standard input; both are descriptors. RECORD is locked as long as the shim lives;
it gets a line with the shim's process id once the command runs, and one with the exit code, as
`subprocess` has it, when it has ended.
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
from autoscaler.node.redaction import Redactor

_PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_CHUNK_BYTES = 1 << 16
_LOOK_SECONDS = 0.05
_CLEAR_SECONDS = 20.0
_NOT_FOUND = 127
_NOT_EXECUTABLE = 126


@dataclass(frozen=True, slots=True)
class Order:
    """What to run.

    `secrets` are the values to redact; so are the credentials that `grant_file` has, or comes to
    have while the command runs. With `user` None the command runs as the agent's user.
    What does not end within `grace_seconds` of SIGTERM is killed. `clear` is a command that
    removes what the main one may have left elsewhere; it runs before and after it, and may fail.
    `ends_with_agent`: the death of the process that started the shim is a SIGTERM.
    """

    command: Sequence[str]
    directory: str
    environment: Mapping[str, str]
    secrets: Sequence[str] = ()
    user: int | None = None
    grace_seconds: float = 2.0
    clear: Sequence[str] = ()
    ends_with_agent: bool = False
    grant_file: str | None = None


class Shim:
    """One command, from its start until nothing of it runs any more."""

    def __init__(self, order: Order, record: int, log: int, clock: Clock) -> None:
        self._order = order
        self._record = record
        self._log = log
        self._clock = clock
        self._redactor = Redactor(order.secrets)
        self._granted: tuple[str, int] | None = None
        self._exit_code: int | None = None
        self._kill_seconds: float | None = None
        self._stays: int | None = None
        self._output, self._input = os.pipe()
        self._has_output = True
        self._woken, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, lambda *_: None)

    def run(self) -> None:
        """Run the command, end what it leaves, and record its exit code."""
        self._clear()
        command = self._start(self._order)
        os.close(self._input)
        os.write(self._record, f"{os.getpid()}\n".encode())
        while self._has_children(command):
            self._serve()
        while chunk := os.read(self._output, _CHUNK_BYTES):
            self._take(chunk)
        self._write(self._redactor.finish())
        self._clear()
        os.write(self._record, f"{self._exit_code}\n".encode())

    def _start(self, order: Order, stdin: int = subprocess.DEVNULL) -> int | None:
        """The process of the command; None, and an exit code, if it can't be started."""
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
        process.returncode = 0  # it is waited for here, with all that the command leaves behind
        return process.pid

    def _has_children(self, command: int | None) -> bool:
        """Take note of children that died, adopted ones too. Whether any is left."""
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == command:
                    self._exit_code = os.waitstatus_to_exitcode(ended[1])
                    self._end()
        except ChildProcessError:
            return False
        return True

    def _serve(self) -> None:
        """Wait for output or a signal, and see to it."""
        wait_seconds = None if self._kill_seconds is None else _LOOK_SECONDS
        watched = [self._woken, self._output] if self._has_output else [self._woken]
        ready = select.select(watched, [], [], wait_seconds)[0]
        if self._output in ready:
            chunk = os.read(self._output, _CHUNK_BYTES)
            self._take(chunk)
            self._has_output = chunk != b""
        if self._woken in ready:
            numbers = os.read(self._woken, _CHUNK_BYTES)
            if signal.SIGTERM in numbers:
                self._end()
            if signal.SIGUSR1 in numbers:
                self._kill_seconds = self._clock.monotonic()
        if self._kill_seconds is not None and self._clock.monotonic() >= self._kill_seconds:
            self._send(signal.SIGKILL)

    def _end(self) -> None:
        if self._kill_seconds is None:
            self._kill_seconds = self._clock.monotonic() + self._order.grace_seconds
            self._send(signal.SIGTERM)

    def _send(self, number: int) -> None:
        """Send a signal to every process below this one, but for the one that stays."""
        found: list[int] = []
        parents = [os.getpid()]
        while parents:
            below = [each for each in children(parents.pop()) if each != self._stays]
            found += below
            parents += below
        for process in found:
            with suppress(ProcessLookupError):
                os.kill(process, number)

    def _take(self, chunk: bytes) -> None:
        """Take what the command has printed."""
        self._learn_credential()
        self._write(self._redactor.feed(chunk))

    def _learn_credential(self) -> None:
        """Redact what the grant's file holds now, too: the agent renews it."""
        name = self._order.grant_file
        if name is None:
            return
        with suppress(OSError, ValueError):
            found = name, os.stat(name).st_mtime_ns
            if found != self._granted:
                with open(name, "rb") as file:
                    grant = json.load(file)
                self._redactor.learn(grant[CREDENTIAL_KEY].values())
                self._granted = found

    def _write(self, text: bytes) -> None:
        # A full disk must not end the job; what it prints meanwhile is lost.
        with suppress(OSError):
            while text:
                text = text[os.write(self._log, text) :]

    def _clear(self) -> None:
        if not self._order.clear:
            return
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                self._order.clear,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_CLEAR_SECONDS,
                check=False,
            )


def children(process: int) -> list[int]:
    """The processes that have this one as their parent."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{thread}/children") as file:
                found += [int(name) for name in file.read().split()]
    return found


def main() -> None:
    """Run what standard input orders, as the reaper of all that comes of it."""
    agent = os.getppid()
    text = sys.stdin.buffer.read()
    if not text:
        return  # the agent died before it could order anything
    order = Order(**json.loads(text))
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
