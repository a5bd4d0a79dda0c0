"""The computer under all deployments: every local instance, whoever owns it.

Its state is the directory ``instances/``; one lock makes its changes one after the other, across
threads and processes.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from autoscaler.clock import Clock
from providers.local.instance import (
    LOST,
    TERMINATED,
    InstanceEnd,
    InstanceRecord,
    LocalInstance,
    create_instance,
)
from providers.local.leftovers import find_leftovers, kill_leftovers


class LocalHost:
    """Keeps instances with their machines. `inherited` are the variables a machine may see."""

    def __init__(self, directory: Path, inherited: Sequence[str], clock: Clock) -> None:
        self._directory = directory.resolve()
        self._inherited = inherited
        self._clock = clock
        self._known: dict[str, LocalInstance] = {}
        (self._directory / "instances").mkdir(parents=True, exist_ok=True)

    def instances(self) -> list[LocalInstance]:
        """All there ever were, the oldest first."""
        found = [
            self._known.setdefault(name, LocalInstance(self._directory / "instances" / name))
            for name in os.listdir(self._directory / "instances")
        ]
        return sorted(found, key=lambda instance: instance.record.launched_seconds)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else changes the host meanwhile. Not re-entrant."""
        with (self._directory / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def add(self, record: InstanceRecord, user_data: str) -> LocalInstance:
        """Create an instance and start its machine. The caller is `alone`."""
        path = self._directory / "instances" / record.id
        instance = create_instance(path, record, user_data)
        self._start_machine(instance)
        return instance

    def attend(self) -> None:
        """See to the instances without a machine: start it, if none ever lived, or bury them.

        The caller is `alone`.
        """
        for instance in self.instances():
            if not instance.is_unattended:
                continue
            if instance.has_started:
                self._bury(instance)
            elif instance.is_told_to_end:
                instance.record_end(InstanceEnd(self._clock.now(), TERMINATED))
            else:
                self._start_machine(instance)

    def _start_machine(self, instance: LocalInstance) -> None:
        """Returns when the machine lives; if it can't, its console says why.

        The lock is taken here and passed on, so that at no moment two could be started.
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

    def _bury(self, instance: LocalInstance) -> None:
        """Kill what a lost machine left, then record the end.

        Whatever still ran used its cores until now; if nothing did, the whole computer was off
        from about when the machine was last seen.
        """
        leftovers = find_leftovers(instance.disk)
        ended_seconds = self._clock.now() if leftovers else instance.seen_seconds
        if kill_leftovers(instance.disk, self._clock):
            instance.record_end(InstanceEnd(ended_seconds, LOST))
