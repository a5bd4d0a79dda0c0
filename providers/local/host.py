"""Host of all local instances, of every deployment.

Its state is the directory ``instances/``. One lock serialises changes across threads and
processes.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from autoscaler.clock import Clock
from providers.local.instance import (
    LOST,
    TERMINATED,
    InstanceEnd,
    InstanceRecord,
    LocalInstance,
    create_instance,
)
from providers.metadata import DIRECTORY_VARIABLE

_ATTEMPTS = 20
_PAUSE_SECONDS = 0.05


class LocalHost:
    """Registry of the host's instances and their machines.

    A machine sees the environment variables named in `inherited` only.
    """

    def __init__(self, directory: Path, inherited: Sequence[str], clock: Clock) -> None:
        self._directory = directory.resolve()
        self._inherited = inherited
        self._clock = clock
        self._instances: dict[str, LocalInstance] = {}
        (self._directory / "instances").mkdir(parents=True, exist_ok=True)

    def instances(self) -> list[LocalInstance]:
        """Return every instance ever created, the oldest first."""
        instances = [
            self._instances.setdefault(name, LocalInstance(self._directory / "instances" / name))
            for name in os.listdir(self._directory / "instances")
        ]
        return sorted(instances, key=lambda instance: instance.record.launched_seconds)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the host's lock, which excludes all other changes. Not re-entrant."""
        with (self._directory / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def add(self, record: InstanceRecord, user_data: str) -> LocalInstance:
        """Create an instance and start its machine. The caller holds the lock (`alone`)."""
        path = self._directory / "instances" / record.id
        instance = create_instance(path, record, user_data)
        self._start_machine(instance)
        return instance

    def attend(self) -> None:
        """Handle the instances without a machine. The caller holds the lock (`alone`).

        A machine that never ran is started, unless the instance is to end. If a machine was lost,
        its processes are killed and its end is recorded.
        """
        for instance in self.instances():
            if not instance.is_unattended:
                continue
            if instance.has_started:
                self._end_lost(instance)
            elif instance.is_told_to_end:
                instance.record_end(InstanceEnd(self._clock.now(), TERMINATED))
            else:
                self._start_machine(instance)

    def _start_machine(self, instance: LocalInstance) -> None:
        """Start an instance's machine and return once the machine runs or has failed.

        The instance's console has the error. The instance's lock is taken here and passed on, so
        that never two machines start.
        """
        environment = {name: os.environ[name] for name in self._inherited if name in os.environ}
        with instance.lock.open("r+") as lock, instance.console.open("ab") as console:
            fcntl.flock(lock, fcntl.LOCK_EX)
            command = (sys.executable, "-P", "-m", "providers.local.machine")
            subprocess.run(
                [*command, str(instance.path), str(lock.fileno())],
                pass_fds=(lock.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env=environment,
                start_new_session=True,
                check=False,
            )

    def _end_lost(self, instance: LocalInstance) -> None:
        """Kill the processes of a lost machine, then record the end.

        Surviving processes used the cores until now. Without any, the host was off from about when
        the machine was last seen.
        """
        orphans = _find_orphans(instance.disk)
        ended_seconds = self._clock.now() if orphans else instance.seen_seconds
        if _kill_orphans(instance.disk, self._clock):
            instance.record_end(InstanceEnd(ended_seconds, LOST))


def _find_orphans(disk: Path) -> set[psutil.Process]:
    """Return the processes of the instance with this disk, and their descendants.

    An environment variable marks the processes. A process that dropped the variable and has left
    its parent is not found.
    """
    processes: set[psutil.Process] = set()
    for process in psutil.process_iter():
        try:
            if process.environ().get(DIRECTORY_VARIABLE) == str(disk):
                processes |= {process, *process.children(recursive=True)}
        except psutil.Error:
            continue
    return processes


def _kill_orphans(disk: Path, clock: Clock) -> bool:
    """Kill the processes of an instance; return False if some remain after a second."""
    for _ in range(_ATTEMPTS):
        orphans = _find_orphans(disk)
        if not orphans:
            return True
        for process in orphans:
            try:
                process.kill()
            except psutil.Error:
                continue
        clock.sleep(_PAUSE_SECONDS)
    return False
