"""A controller in a child process, restarted when it dies and ended with its parent process."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError, Conflict, Unavailable
from autoscaler.domain.job import SecretReference

if TYPE_CHECKING:  # controllers import this module, and no client
    from autoscaler.wire.client import Client

_START_SECONDS = 120.0  # three starts that fail, on a machine whose cores train
_END_SECONDS = 30.0
GIVE_BACK_SECONDS: Final = 180.0  # longer than a drain, unless checkpoints take a minute
LOCK_FILE: Final = "lock"  # locked by the controller that serves from the state directory
_POLL_SECONDS = 0.03
_LAST_LINES = 30
_REFUSALS = 3  # ends with an error of a controller that starts, after which it isn't started again
_SUPERVISOR_LOCK_FILE = "keeper.lock"

_log = logging.getLogger(__name__)


class SupervisedController:
    """A `castor serve` process on the directory `state`, restarted by `keep_alive` when it dies.

    If this process dies, the controller stops its jobs, terminates all instances and ends.
    """

    def __init__(
        self, state: Path, cores: Sequence[int], clock: Clock, options: Sequence[str] = ()
    ) -> None:
        self.state = state
        self._clock = clock
        self._log = state / "controller.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._command = [
            *(sys.executable, "-P", "-m", "autoscaler.cli.app", "serve"),
            *("--state", str(state), "--port", "0"),
            *("--devices", ",".join(str(core) for core in cores)),
            *("--parent", str(os.getpid())),
            *options,
        ]

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the directory for this process once an earlier controller in it has ended.

        Raises:
            Conflict: another process holds the lock, or the earlier controller does not end.
        """
        with (self.state / _SUPERVISOR_LOCK_FILE).open("w") as lock:
            if not _is_ours(lock):
                raise Conflict(
                    f"another process runs on {self.state}: wait until it has ended, or choose "
                    "another name"
                )
            self._await_end_of_other()
            yield

    def _await_end_of_other(self) -> None:
        deadline, is_logged = self._clock.now() + GIVE_BACK_SECONDS + _END_SECONDS, False
        while True:
            with (self.state / LOCK_FILE).open("a") as lock:
                if _is_ours(lock):
                    return
            if not is_logged:
                _log.warning(
                    "a controller of a process that died is ending in %s: waiting for it",
                    self.state,
                )
                is_logged = True
            if self._clock.now() > deadline:
                raise Conflict(f"another controller runs on {self.state}: stop it")
            self._clock.sleep(_POLL_SECONDS)

    @contextmanager
    def running(self) -> Iterator[Client]:
        """Run the controller while the context lasts, and yield a client of it."""
        self._start()
        client = self._connected()
        try:
            yield client
        finally:
            client.close()

    def keep_alive(self) -> None:
        """Restart the controller if it has died."""
        if self._process is not None and self._process.poll() is not None:
            self._start()

    def terminate_all(self) -> bool:
        """Stop every job, wait until all instances are terminated, and end the controller.

        Returns:
            False if an instance is still held, after `GIVE_BACK_SECONDS` or Ctrl-C.
        """
        if self._process is None:
            return True
        is_held = True
        with contextlib.suppress(KeyboardInterrupt, CastorError):
            self.keep_alive()
            is_held = self._holds_after_stopping()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_END_SECONDS)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            self._process.kill()
        return not is_held

    def _holds_after_stopping(self) -> bool:
        client = self._connected()
        for job in client.jobs(include_ended=False):
            with contextlib.suppress(Conflict):  # the job has just ended
                client.stop(job.id)
        deadline = self._clock.now() + GIVE_BACK_SECONDS
        while (is_held := bool(client.fleet().instances)) and self._clock.now() < deadline:
            self._clock.sleep(_POLL_SECONDS)
        client.close()
        return is_held

    def _has_refused(self) -> bool:
        """Return whether the process ended with an error, and not by a signal."""
        return self._process is not None and (self._process.poll() or 0) > 0

    def _last_line(self) -> str:
        *_, line = self.last_lines().splitlines() or ["it says nothing"]
        return line.removeprefix("castor: ")

    def last_lines(self) -> str:
        """Return the last 30 lines of the controller's log; empty if there is no log."""
        if not self._log.exists():
            return ""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-_LAST_LINES:])

    def _start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def _connected(self) -> Client:
        from autoscaler.wire.connection import connect

        deadline, refusals = self._clock.now() + _START_SECONDS, 0
        while True:
            try:
                client = connect(self.state)
                if client.fleet().ticked_seconds is not None:
                    return client
            except Unavailable:
                refusals += self._has_refused()
                if refusals == _REFUSALS:
                    raise Unavailable(
                        f"the controller does not start: {self._last_line()}; see {self._log}"
                    ) from None
                self.keep_alive()
            if self._clock.now() > deadline:
                raise Unavailable(
                    f"the controller does not start within {_START_SECONDS:.0f} s: see {self._log}"
                )
            self._clock.sleep(_POLL_SECONDS)


def _is_ours(lock: IO[str]) -> bool:
    """Lock the file until it is closed; return whether that succeeded."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def secret_options(references: Mapping[str, SecretReference]) -> tuple[str, ...]:
    """Return the options of `castor serve` that allow its jobs these secrets and no others.

    A directory that does not exist is left out: the job is refused because the secret can't be
    read.
    """
    variables = sorted(
        {reference.variable for reference in references.values() if reference.variable}
    )
    files = [
        Path(reference.file).expanduser() for reference in references.values() if reference.file
    ]
    directories = sorted({str(file.absolute().parent) for file in files if file.parent.is_dir()})
    return (
        *(("--secret-variables", ",".join(variables)) if variables else ()),
        *(option for directory in directories for option in ("--secrets", directory)),
    )


def cores_here() -> tuple[int, ...]:
    """Return the CPU cores that this process may run on.

    Raises:
        Unavailable: this system can't pin processes to cores.
    """
    if not hasattr(os, "sched_getaffinity"):
        raise Unavailable("the local provider pins processes to CPU cores, which needs Linux")
    return tuple(sorted(os.sched_getaffinity(0)))
