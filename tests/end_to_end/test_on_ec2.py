"""A real job on the fake EC2 through the whole path, as a person would have it: from the shell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("boto3", reason="the extra aws is not installed")
pytest.importorskip("moto", reason="moto is not installed")

from autoscaler.clock import SystemClock
from autoscaler.domain.errors import Unavailable
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobPhase
from autoscaler.wire.client import Client
from autoscaler.wire.connection import connect
from autoscaler.wire.messages import JobView
from tests.end_to_end.ground import lay_ground
from tests.fakes.aws.machines import REGION, Machines
from tests.fakes.aws.server import FakeAws
from tests.training.fleet import wait_until

KEY = "AKIAENDTOEND"
NOTICE_SECONDS = 20.0

TRAIN = """
import sys, time, torch
from torch.utils.data import TensorDataset
from autoscaler.training.session import session

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
data = TensorDataset(torch.randn(256, 4), torch.randn(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with session(model, optimizer, data, batch_size=16) as job:
    for x, y in job.batches(epochs=int(sys.argv[1])):
        job.step((job.model(x) - y).square().mean())
        time.sleep(0.05)
"""

JOB = """
name: {name}
command: [python, train.py, "{epochs}"]
objective: fastest
instances: {{min: 1, max: 2}}
checkpoint: {{interval: 5s}}
"""


class Deployment:
    """`castor` on one deployment over the fake EC2."""

    def __init__(self, directory: Path, url: str, source: str) -> None:
        self.state = directory / "state"
        self._directory = directory
        own = ("CASTOR_URL", "CASTOR_TOKEN", "CASTOR_STATE")
        self._environment = {
            **{name: os.environ[name] for name in os.environ if name not in own},
            "CASTOR_STATE": str(self.state),
            "AWS_ENDPOINT_URL": url,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": "secret",
            "COLUMNS": "200",
        }
        self._serve = ["serve", "--port", "0", "--pools", source]
        self._process: subprocess.Popen[bytes] | None = None

    def castor(self, *words: str | Path) -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "autoscaler.cli.app", *map(str, words)],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr + self.log()
        return done.stdout

    def start(self) -> None:
        with (self._directory / "controller.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "autoscaler.cli.app", *self._serve],
                env=self._environment,
                stdout=log,
                stderr=log,
            )

    def client(self) -> Client:
        return wait_until(self._connected, 60, "a controller that answers")  # type: ignore[no-any-return]

    def end(self, number: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

    def log(self) -> str:
        return (self._directory / "controller.log").read_text()[-6000:]

    def submit(self, name: str, epochs: int) -> None:
        directory = self._directory / name
        directory.mkdir()
        (directory / "train.py").write_text(TRAIN)
        (directory / "job.yaml").write_text(JOB.format(name=name, epochs=epochs))
        self.castor("submit", directory / "job.yaml")

    def _connected(self) -> Client | None:
        assert self._process is not None and self._process.poll() is None, self.log()
        with suppress(Unavailable):
            client = connect(self.state)
            if client.fleet().ticked_seconds is not None:
                return client
            client.close()
        return None


@pytest.fixture
def fake() -> Iterator[FakeAws]:
    fake = FakeAws(SystemClock())
    yield fake
    fake.close()


@pytest.fixture
def machines(fake: FakeAws, tmp_path: Path) -> Iterator[Machines]:
    machines = Machines(fake, KEY, tmp_path / "machines")
    yield machines
    machines.close()


@pytest.fixture
def deployment(fake: FakeAws, tmp_path: Path) -> Iterator[Deployment]:
    deployment = Deployment(tmp_path, fake.url, lay_ground(fake, KEY))
    deployment.start()
    yield deployment
    deployment.end()


@pytest.mark.aws
@pytest.mark.timeout(400)
def test_a_job_trains_grows_is_reclaimed_and_ends(
    deployment: Deployment, machines: Machines
) -> None:
    client, account = deployment.client(), machines.account
    deployment.submit("words", epochs=150)

    def trained() -> set[str]:
        job = client.job("words")
        return {one.id for one in job.instances if one.phase is InstancePhase.TRAINING}

    def look(condition: Callable[[JobView], Any], what: str) -> Any:
        try:
            return wait_until(lambda: condition(client.job("words")), 90, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{deployment.log()}\n{machines.console()}") from None

    look(lambda job: len(trained()) == 2, "two instances train")
    taken = account.alive()[0]
    before = trained()
    machines.reclaim(taken, NOTICE_SECONDS)
    look(lambda job: taken not in account.alive(), "what was taken back has ended")
    look(lambda job: len(trained()) == 2 and trained() != before, "another takes its place")
    job = look(lambda job: job.phase.is_final and job, "the job ends")
    assert job.phase is JobPhase.FINISHED, job.cause
    wait_until(lambda: not account.alive(), 30, "everything is given back")
    print(deployment.castor("status", "--all"), deployment.castor("costs"), sep="\n")
