"""A controller in a process of its own that is started again when it dies, and ends with us."""

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
from typing import IO, Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError, Conflict, Unavailable
from autoscaler.domain.job import SecretReference
from autoscaler.wire.client import Client
from autoscaler.wire.connection import connect

_START_SECONDS = 30.0
_END_SECONDS = 30.0
GIVE_BACK_SECONDS: Final = 180.0  # more than a drain takes, but for checkpoints of a minute
LOCK_FILE: Final = "lock"  # of whoever serves from a state directory
_POLL_SECONDS = 0.1
_LINES = 30
_KEEPER_FILE = "keeper.lock"

_log = logging.getLogger(__name__)


class SupervisedController:
    """`castor serve` on the directory `state`, kept alive as a service supervisor would.

    If this process dies, it stops its jobs, gives everything back and ends.
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
        """Keep the directory for this process; wait until what a dead one left there has ended.

        Raises:
            Conflict: another process keeps it, or its controller does not end.
        """
        with (self.state / _KEEPER_FILE).open("w") as keeper:
            if not _is_ours(keeper):
                raise Conflict(
                    f"another process runs on {self.state}: wait until it has ended, or take "
                    "another name"
                )
            self._await_end_of_other()
            yield

    def _await_end_of_other(self) -> None:
        deadline, is_told = self._clock.now() + GIVE_BACK_SECONDS + _END_SECONDS, False
        while True:
            with (self.state / LOCK_FILE).open("a") as lock:
                if _is_ours(lock):
                    return
            if not is_told:
                _log.warning(
                    "a controller of a process that died is ending in %s: waiting for it",
                    self.state,
                )
                is_told = True
            if self._clock.now() > deadline:
                raise Conflict(f"another controller runs on {self.state}: stop it")
            self._clock.sleep(_POLL_SECONDS)

    @contextmanager
    def running(self) -> Iterator[Client]:
        """A client of the controller, which runs while this lasts."""
        self._start()
        client = self._connected()
        try:
            yield client
        finally:
            client.close()

    def keep_alive(self) -> None:
        """Start the controller again if it has died."""
        if self._process is not None and self._process.poll() is not None:
            self._start()

    def give_everything_back(self) -> bool:
        """Stop every job, wait until nothing is held any more, and end the controller.

        False if something is still held: it took too long, or Ctrl-C was pressed.
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
            with contextlib.suppress(Conflict):  # it has just ended
                client.stop(job.id)
        deadline = self._clock.now() + GIVE_BACK_SECONDS
        while (is_held := bool(client.fleet().instances)) and self._clock.now() < deadline:
            self._clock.sleep(_POLL_SECONDS)
        client.close()
        return is_held

    def last_lines(self) -> str:
        """The end of the controller's log."""
        if not self._log.exists():
            return ""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-_LINES:])

    def _start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def _connected(self) -> Client:
        deadline = self._clock.now() + _START_SECONDS
        while True:
            try:
                client = connect(self.state)
                if client.fleet().ticked_seconds is not None:
                    return client
            except Unavailable:
                self.keep_alive()
            if self._clock.now() > deadline:
                raise Unavailable("the controller does not start")
            self._clock.sleep(_POLL_SECONDS)


def _is_ours(lock: IO[str]) -> bool:
    """Whether nobody else holds the lock; it is held until the file is closed."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def secret_options(references: Mapping[str, SecretReference]) -> tuple[str, ...]:
    """Return the options with which `castor serve` gives these secrets to its jobs, and no more.

    A directory that does not exist is left out: the job is refused, as its secret can't be read.
    """
    variables = sorted({named.variable for named in references.values() if named.variable})
    files = [Path(named.file).expanduser() for named in references.values() if named.file]
    directories = sorted({str(file.absolute().parent) for file in files if file.parent.is_dir()})
    return (
        *(("--secret-variables", ",".join(variables)) if variables else ()),
        *(option for directory in directories for option in ("--secrets", directory)),
    )


def cores_here() -> tuple[int, ...]:
    """The cores that this process may run on.

    Raises:
        Unavailable: this system pins no processes to cores.
    """
    if not hasattr(os, "sched_getaffinity"):
        raise Unavailable("the local provider pins processes to cores, which needs Linux")
    return tuple(sorted(os.sched_getaffinity(0)))
