"""Instances of a real local cloud, each with a real agent, and a stand-in for the controller."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil

from autoscaler.clock import SystemClock
from autoscaler.domain.instance import CloudState, InstancePhase
from autoscaler.domain.job import JobSpec
from autoscaler.spec.bundle import pack
from providers.local.provider import LocalProvider
from providers.local.settings import LocalSettings, default_catalogue
from tests.builders.waiting import wait_until
from tests.conformance.provider import OURS, order
from tests.node.controller import FakeController
from tests.providers.local.cloud import LocalCloud

SCRIPTS = Path(__file__).parent / "scripts"
STEADY = (sys.executable, "-P", str(SCRIPTS / "steady.py"))


class Site:
    """Instances of one job. The local cloud is opened by the first `launch`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.settings: dict[str, Any] = {"launcher": ["-P", str(SCRIPTS / "launcher.py")]}
        self.notice_seconds = 10.0
        self.variables: dict[str, str] = {}
        self.python = sys.executable
        self._cloud: LocalCloud | None = None
        self._provider: LocalProvider | None = None
        self.controller: FakeController

    def serve(
        self, spec: JobSpec, secrets: dict[str, str] | None = None, files: Path | None = None
    ) -> FakeController:
        """Start a controller for a job, with `files` as its working directory."""
        archive = self.directory / "bundle.tar.gz"
        if files is not None:
            spec = replace(spec, bundle=pack(files, archive).sha256)
        checkpoints = self.directory / "checkpoints"
        self.controller = FakeController(spec, checkpoints, secrets or {})
        self.controller.bundle = archive if files is not None else None
        return self.controller

    def launch(self, name: str = "job-0", devices: int = 1) -> LaunchedInstance:
        """Launch an instance with its agent."""
        provider = self._connect()
        offer = provider.offers()[devices - 1]
        user_data = {
            "controller": self.controller.url,
            "join_token": f"token of {name}",
            "instance": name,
        }
        request = replace(order(provider, name), offer=offer.id, user_data=json.dumps(user_data))
        with patch.dict(os.environ, self.variables):
            launched = provider.launch(request)
        assert self._cloud is not None
        return LaunchedInstance(name, launched.id, self._cloud, provider, self.controller)

    def close(self) -> None:
        for console in self.directory.glob("cloud/instances/*/console.log"):
            print(f"{console}:\n{console.read_text()}")  # pytest shows it where a test failed
        if self._cloud is not None:
            self._cloud.close()
        if hasattr(self, "controller"):
            self.controller.close()

    def _connect(self) -> LocalProvider:
        if self._provider is None:
            agent = (self.python, "-P", str(SCRIPTS / "agent.py"), json.dumps(self.settings))
            settings = LocalSettings(
                catalogue=default_catalogue(boot_seconds=0.0),
                notice_period_seconds=self.notice_seconds,
                grace_seconds=0.5,
                agent=agent,
                inherited=("PATH", *self.variables),
            )
            self._cloud = LocalCloud(self.directory / "cloud", settings)
            self._provider = self._cloud.connect(OURS, SystemClock())
        return self._provider


class LaunchedInstance:
    """Instance, and the reports of its agent."""

    def __init__(
        self,
        name: str,
        cloud_id: str,
        cloud: LocalCloud,
        provider: LocalProvider,
        controller: FakeController,
    ) -> None:
        self.name = name
        self.id = cloud_id
        self.disk = cloud.disk(cloud_id)
        self.work = self.disk / "work"
        self._cloud = cloud
        self._provider = provider
        self._controller = controller

    @property
    def console(self) -> str:
        return (self.disk.parent / "console.log").read_text()

    @property
    def phase(self) -> InstancePhase | None:
        reports = self._controller.of(self.name)
        return reports[-1].phase if reports else None

    @property
    def is_complete(self) -> bool:
        return any(report.is_complete for report in self._controller.of(self.name))

    @property
    def is_off(self) -> bool:
        instances = {instance.id: instance for instance in self._provider.instances()}
        return instances[self.id].state is CloudState.TERMINATED

    def wait_for(self, phase: InstancePhase, seconds: float = 60.0) -> None:
        try:
            wait_until(lambda: self.phase is phase, f"phase {phase}", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}, is {self.phase}\n{self.console}") from None

    def starts(self) -> list[int]:
        """Return the process ids of the script's starts."""
        lines = (line.split() for line in self.trace().splitlines())
        return [int(words[1]) for words in lines if words[0] == "start"]

    def trace(self) -> str:
        """Return the trace that the script has written."""
        trace = self.work / "trace"
        return trace.read_text() if trace.exists() else ""

    def reclaim(self) -> None:
        self._provider.reclaim(self.id)

    def agent(self) -> psutil.Process | None:
        children = psutil.Process(self._cloud.machine(self.id)).children()
        return next((child for child in children if _runs(child, "agent.py")), None)

    def kill_agent(self) -> None:
        """Kill the agent as the kernel might; the machine soon starts another one."""
        agent = self.agent()
        assert agent is not None
        agent.send_signal(signal.SIGKILL)
        agent.wait()
        wait_until(self.agent, "the next agent")

    def processes(self, mark: str) -> list[psutil.Process]:
        """Return running processes of the instance with `mark` in their command."""
        remains = set(self._cloud.remains(self.id))
        return [
            process
            for process in psutil.process_iter()
            if process.pid in remains and _runs(process, mark)
        ]


def _runs(process: psutil.Process, mark: str) -> bool:
    try:
        return mark in " ".join(process.cmdline())
    except psutil.Error:
        return False
