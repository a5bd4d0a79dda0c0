"""Deployment of `castor` over a fake cloud, and the state of a job as all sides report it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autoscaler.clock import SystemClock
from autoscaler.domain.instance import InstancePhase
from autoscaler.lighthouse.host import LighthouseHost
from autoscaler.wire.client import Client
from autoscaler.wire.messages import JobView
from tests.builders.controllers import ticking_client
from tests.fakes.machines import Machines
from tests.training.fleet import wait_until

# A slow training that runs at full speed once the file named by its argument exists.
TRAIN = """
import os, sys, time, torch
from torch.utils.data import TensorDataset
from autoscaler.training import session

print("it begins", flush=True)
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
data = TensorDataset(torch.randn(256, 4), torch.randn(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
is_first = True
with session(model, optimizer, data, batch_size=16) as job:
    for x, y in job.batches(epochs=500):
        if is_first:
            print("goes on from", job.progress_examples, flush=True)
            open("begun.txt", "w").write("it has begun")
        is_first = False
        job.step((job.model(x) - y).square().mean())
        time.sleep(0.0 if os.path.exists(sys.argv[1]) else 0.1)
"""

JOB = """
name: {name}
command: [python, train.py, {hurry}]
objective: fastest
instances: {{min: 1, max: 1{offers}}}
checkpoint: {{interval: 2s}}
"""


class Deployment:
    """Processes of `castor` with the pools of `sources`.

    `environment` holds the variables that point `castor` at the fake clouds, `options` further
    ones of `castor serve`.
    """

    def __init__(
        self,
        directory: Path,
        environment: Mapping[str, str],
        *sources: str,
        options: Sequence[str] = (),
    ) -> None:
        self.state = directory / "state"
        self._directory = directory
        castor_variables = ("CASTOR_URL", "CASTOR_TOKEN", "CASTOR_STATE")
        self._environment = {
            **{name: os.environ[name] for name in os.environ if name not in castor_variables},
            "CASTOR_STATE": str(self.state),
            "COLUMNS": "200",
            **environment,
        }
        self.sources = sources
        self._serve = ["serve", "--port", "0", *options]
        for source in sources:
            self._serve += ["--pools", source]
        if sources:
            self._serve += ["--fleet-usd", "none"]
        self._process: subprocess.Popen[bytes] | None = None

    def castor(self, *arguments: str | Path) -> str:
        """Run a command of `castor`; return what it printed."""
        completed = subprocess.run(
            [sys.executable, "-P", "-m", "autoscaler.cli.app", *map(str, arguments)],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert completed.returncode == 0, completed.stderr + self.log()
        return completed.stdout

    def start(self) -> None:
        """Start the controller and wait until it answers."""
        with (self._directory / "controller.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "autoscaler.cli.app", *self._serve],
                env=self._environment,
                stdout=log,
                stderr=log,
            )
        self.client().close()

    @contextmanager
    def running(self) -> Iterator[Deployment]:
        """Yield the started deployment; at the end stop its controller and lighthouses."""
        try:
            self.start()
            yield self
        finally:
            self.end()
            self._end_lighthouses()

    def client(self) -> Client:
        return wait_until(self._connected, seconds=60, description="a controller that answers")  # type: ignore[no-any-return]

    def end(self, number: int = signal.SIGTERM) -> None:
        """End the controller with a signal, and wait for its exit."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

    def lose_state(self) -> None:
        """End the controller and its lighthouses at once, and delete its state directory."""
        self.end(signal.SIGKILL)
        self._end_lighthouses()
        shutil.rmtree(self.state)

    def _end_lighthouses(self) -> None:
        """End the lighthouses, which outlive their controller."""
        host = LighthouseHost(self.state / "lighthouses", "127.0.0.1", SystemClock())
        for job in host.running():
            host.release(job)

    def log(self) -> str:
        return (self._directory / "controller.log").read_text()[-6000:]

    def submit(self, name: str, offers: str = "") -> Path:
        """Submit a job; `offers` names the only permitted instance types, separated by commas.

        The training runs at full speed once the returned file exists.
        """
        directory = self._directory / name
        directory.mkdir()
        hurry = directory / "hurry"
        (directory / "train.py").write_text(TRAIN)
        specification = JOB.format(
            name=name, hurry=hurry, offers=f", offers: [{offers}]" if offers else ""
        )
        (directory / "job.yaml").write_text(specification)
        self.castor("submit", directory / "job.yaml")
        return hurry

    def resume(self, name: str) -> Path:
        """Resume a submitted job; return the file that lets its training run at full speed."""
        self.castor("resume", name)
        return self._directory / name / "hurry"

    def _connected(self) -> Client | None:
        assert self._process is not None and self._process.poll() is None, self.log()
        return ticking_client(self.state)


class ObservedJob:
    """One job as the controller and the cloud report it."""

    def __init__(self, deployment: Deployment, machines: Machines, job: str) -> None:
        self._deployment = deployment
        self._machines = machines
        self._job = job
        self._client = deployment.client()

    def job(self) -> JobView:
        return self._client.job(self._job)

    def step(self) -> int:
        """Return the last reported step; 0 without a report."""
        report = self.job().report
        return 0 if report is None else report.step

    def saved_step(self) -> int:
        """Return the step of the newest checkpoint; 0 if there is none."""
        report = self.job().report
        return 0 if report is None or report.checkpoint.step is None else report.checkpoint.step

    def training(self) -> set[str]:
        """Return the controller's ids of the job's instances that train."""
        instances = self.job().instances
        return {instance.id for instance in instances if instance.phase is InstancePhase.TRAINING}

    def wait_for(self, condition: Callable[[], Any], description: str) -> None:
        """Wait for a condition; fail with the job's state and the logs."""
        try:
            wait_until(condition, seconds=90, description=description)
        except AssertionError as error:
            printed = f"{self._deployment.log()}\n{self._machines.console()}"
            raise AssertionError(f"{error}\n{self.job()}\n{printed}") from None

    def wait_until_training(self, count: int, without: str | None = None) -> None:
        """Wait until exactly `count` instances are alive and all of them train."""

        def is_met() -> bool:
            alive = self._machines.alive()
            return len(self.training()) == count == len(alive) and without not in alive

        self.wait_for(is_met, f"{count} instances train, and nothing else runs")
