"""Local cloud for one test, which leaves no process behind."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil

from autoscaler.clock import Clock, SystemClock
from autoscaler.domain.instance import CloudState, LaunchRequest
from autoscaler.domain.offer import Offer, Purchase
from providers.base import Provider
from providers.local.instance import LocalInstance
from providers.local.provider import LocalProvider
from providers.local.settings import LocalSettings, default_catalogue
from tests.builders.waiting import wait_until
from tests.conformance.provider import OURS, order, state

DEADLINE_SECONDS = 60.0

SLEEPER = ("/bin/sh", "-c", "exec sleep 600", "agent")

# A notice lasts long enough to be seen by a test on a busy machine.
QUICK = LocalSettings(
    catalogue=default_catalogue(boot_seconds=0.0),
    notice_period_seconds=3.0,
    grace_seconds=0.3,
    agent=SLEEPER,
)


def python_agent(code: str) -> tuple[str, ...]:
    """Return an agent that runs `code`; its working directory is the instance's disk."""
    return (sys.executable, "-P", "-c", code)


class LocalCloud:
    """Directory of local instances, for `tests.conformance.provider`."""

    def __init__(self, directory: Path, settings: LocalSettings = QUICK) -> None:
        self.directory = directory
        self.settings = settings

    def connect(self, controller: str = OURS, clock: Clock | None = None) -> LocalProvider:
        return LocalProvider(self.directory, controller, self.settings, clock or SystemClock())

    def wait_until(self, condition: Callable[[], object]) -> None:
        wait_until(condition, seconds=DEADLINE_SECONDS)

    def exhaust(self, provider: Provider) -> str:
        for token in range(len(self.settings.devices)):
            provider.launch(order(provider, f"fill-{token}"))
        return order(provider, "any").offer

    def reclaim(self, provider: Provider, instance_id: str) -> None:
        assert isinstance(provider, LocalProvider)
        provider.reclaim(instance_id)

    def remains(self, instance_id: str) -> Sequence[int]:
        """Return the processes of the instance, found by their environment and command."""
        mark = os.fsencode(self.path(instance_id)) + b"/"
        return [pid for pid in processes() if mark in environment_and_command(pid)]

    def path(self, instance_id: str) -> Path:
        return self.directory.resolve() / "instances" / instance_id

    def disk(self, instance_id: str) -> Path:
        return self.path(instance_id) / "disk"

    def machine(self, instance_id: str) -> int:
        """Return the process of the instance's machine.

        A forked child has the machine's command until it executes its own program.
        """
        name = os.fsencode(self.path(instance_id))
        pids = {
            pid
            for pid in processes()
            if b"providers.local.machine" in (command := command_of(pid)) and name in command
        }
        (machine,) = [pid for pid in pids if parent_of(pid) not in pids]
        return machine

    def kill_machine(self, instance_id: str) -> None:
        os.kill(self.machine(instance_id), signal.SIGKILL)
        wait_until(lambda: not LocalInstance(self.path(instance_id)).has_machine)

    def launch_running(self, provider: LocalProvider, request: LaunchRequest) -> str:
        instance = provider.launch(request)
        wait_until(lambda: state(provider, instance.id) is CloudState.RUNNING)
        return instance.id

    def close(self) -> None:
        """End all instances, also those of other controllers."""
        paths = list((self.directory / "instances").glob("*"))
        instances = [LocalInstance(path) for path in paths if (path / "lock").exists()]
        for instance in instances:
            instance.tell_to_end()
        wait_until(lambda: not any(instance.has_machine for instance in instances))
        for pid in [pid for path in paths for pid in self.remains(path.name)]:
            os.kill(pid, signal.SIGKILL)


def processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def parent_of(pid: int) -> int | None:
    try:
        return psutil.Process(pid).ppid()
    except psutil.NoSuchProcess:
        return None


def environment_and_command(pid: int) -> bytes:
    """Return a process's environment and command; empty for a zombie."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes() + command_of(pid)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def spot_offer(reclaims_per_hour: float) -> Offer:
    """Return a spot offer of one core with a reclaim rate."""
    small = default_catalogue(boot_seconds=0.0)[0]
    return replace(
        small,
        id="hazardous",
        purchase=Purchase.SPOT,
        usd_per_hour=Decimal("0.01"),
        reclaims_per_hour=reclaims_per_hour,
    )


def read_json(path: Path) -> Any:
    """Return the content of a file that another process writes; None if it is incomplete."""
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
