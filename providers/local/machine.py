"""Machine of one local instance: a small process that outlives the controller.

The machine boots and runs the node agent, and starts the agent again after it ends. It keeps the
process tree on the instance's cores. It reclaims the instance on request or at its drawn time, and
ends the instance. The machine runs on the instance's own cores, so its load is the instance's.
Requests are files in the instance's directory (`providers.local.instance`). SIGTERM requests the
end.

The command is ``python -P -m providers.local.machine DIRECTORY DESCRIPTOR``. The descriptor holds
the instance's lock while the machine runs. The command returns once the machine runs.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterable, Set
from contextlib import suppress
from pathlib import Path

from autoscaler.clock import Clock, SystemClock
from providers.local.instance import RECLAIMED, TERMINATED, InstanceEnd, LocalInstance
from providers.metadata import reclaim_notice

_TICK_SECONDS = 0.1
_CONFINE_SECONDS = 1.0
_RESTART_SECONDS = 0.5
_KILL_INTERVAL_SECONDS = 0.02
_PR_SET_CHILD_SUBREAPER = 36


class Machine:
    """Life of one instance, from power-on until none of its processes runs."""

    def __init__(self, instance: LocalInstance, clock: Clock) -> None:
        self._instance = instance
        self._record = instance.record
        self._cores = frozenset(instance.record.devices)
        self._clock = clock
        self._started_seconds = clock.now()
        self._confine_due_seconds = self._started_seconds
        self._agent: int | None = None
        self._agent_due_seconds = self._started_seconds + self._record.boot_seconds

    def run(self) -> None:
        """Run the instance until its end, then record the end."""
        while (cause := self._cause_of_end()) is None:
            self._tick()
            self._clock.sleep(_TICK_SECONDS)
        self._end_processes()
        self._instance.record_end(InstanceEnd(self._clock.now(), cause))

    def _cause_of_end(self) -> str | None:
        if self._instance.is_told_to_end:
            return TERMINATED
        reclaim_seconds = reclaim_notice(self._instance.metadata)
        if reclaim_seconds is not None and self._clock.now() >= reclaim_seconds:
            return RECLAIMED
        return None

    def _tick(self) -> None:
        self._instance.show_alive()
        self._reap()
        if self._agent is None and self._clock.now() >= self._agent_due_seconds:
            self._start_agent()
        if self._clock.now() >= self._confine_due_seconds:
            confine(descendants(), self._cores)
            self._confine_due_seconds = self._clock.now() + _CONFINE_SECONDS
        if self._is_to_be_reclaimed() and reclaim_notice(self._instance.metadata) is None:
            self._instance.give_notice(self._clock.now() + self._record.notice_period_seconds)

    def _start_agent(self) -> None:
        self._instance.set_running()
        command = [*self._record.agent, str(self._instance.user_data)]
        environment = {**os.environ, **self._instance.metadata.environment()}
        try:
            self._agent = os.posix_spawnp(
                command[0],
                command,
                environment,
                # Python ignores these two signals, and a child inherits ignored signals.
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
            )
        except OSError as error:
            print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
            self._agent_due_seconds = self._clock.now() + _RESTART_SECONDS

    def _is_to_be_reclaimed(self) -> bool:
        hazard_seconds = self._record.reclaim_after_seconds
        age_seconds = self._clock.now() - self._started_seconds
        return self._instance.is_told_to_be_reclaimed or (
            hazard_seconds is not None and age_seconds >= hazard_seconds
        )

    def _end_processes(self) -> None:
        """End all descendants; return once the kernel reports no child."""
        send_signal(descendants(), signal.SIGTERM)
        kill_after_seconds = self._clock.now() + self._record.grace_seconds
        while self._reap():
            if self._clock.now() >= kill_after_seconds:
                send_signal(descendants(), signal.SIGKILL)
            self._clock.sleep(_KILL_INTERVAL_SECONDS)

    def _reap(self) -> bool:
        """Reap ended children, including adopted ones; return whether any child is left."""
        try:
            while child := os.waitpid(-1, os.WNOHANG)[0]:
                if child == self._agent:
                    self._agent = None
                    self._agent_due_seconds = self._clock.now() + _RESTART_SECONDS
        except ChildProcessError:
            return False
        return True


def main() -> None:
    """Start the instance's machine, detached from the process that started this command."""
    instance, lock = LocalInstance(Path(sys.argv[1])), int(sys.argv[2])
    os.set_inheritable(lock, False)
    os.sched_setaffinity(0, instance.record.devices)
    os.chdir(instance.disk)
    instance.show_alive()
    if os.fork() > 0:
        return
    become_subreaper()
    signal.signal(signal.SIGTERM, lambda *_: instance.tell_to_end())
    Machine(instance, SystemClock()).run()


def become_subreaper() -> None:
    """Make this process adopt every descendant whose parent ends (prctl(2)).

    Raises:
        OSError: the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def descendants() -> list[int]:
    """Return the descendants of this process; very new or just orphaned ones may be missing."""
    processes: list[int] = []
    parents = [os.getpid()]
    while parents:
        children = _children(parents.pop())
        processes += children
        parents += children
    return processes


def confine(processes: Iterable[int], cores: Set[int]) -> None:
    """Restrict every thread of `processes` to `cores`."""
    for process in processes:
        for thread in _threads(process):
            with suppress(ProcessLookupError):
                allowed = os.sched_getaffinity(thread)
                if not allowed <= cores:
                    os.sched_setaffinity(thread, (allowed & cores) or cores)


def send_signal(processes: Iterable[int], number: int) -> None:
    """Send a signal to the processes that still run."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def _threads(process: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{process}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _children(process: int) -> list[int]:
    children: list[int] = []
    for thread in _threads(process):
        with (
            suppress(FileNotFoundError, ProcessLookupError),
            open(f"/proc/{process}/task/{thread}/children") as file,
        ):
            children += [int(name) for name in file.read().split()]
    return children


if __name__ == "__main__":
    main()
