"""A look at another kind of instance and back, with real instances, agents and training."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from autoscaler.domain.job import JobPhase
from autoscaler.spec.bundle import pack
from autoscaler.spec.job_file import load_job
from autoscaler.wire.client import Client
from tests.builders.controllers import ticking_client
from tests.controller.look_and_return import AWAY, HOME
from tests.controller.test_kills import EXAMPLES, TRAIN
from tests.training.fleet import wait_until

ROOT = Path(__file__).parents[2]
ROUNDS = 100_000
JOB = f"""
name: looker
command: python train.py {ROUNDS}
instances: {{min: 1, max: 1, spot: false}}
"""


class Site:
    """The controller as a process, and a client of it."""

    def __init__(self, directory: Path) -> None:
        self.state = directory / "state"
        self._log = directory / "controller.log"
        command = [sys.executable, "-m", "tests.controller.look_and_return", str(self.state)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)

    def connected(self) -> Client | None:
        assert self._process.poll() is None, self._log.read_text()[-4000:]
        return ticking_client(self.state)

    def launches(self) -> int:
        return len(list((self.state / "local" / "instances").glob("*")))

    def end(self) -> None:
        self._process.kill()
        self._process.wait(30)
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if str(self.state) in " ".join(process.cmdline()):
                    process.kill()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    try:
        yield site
    finally:
        site.end()


def submit(client: Client, directory: Path) -> None:
    folder = directory / "looker"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    (folder / "job.yaml").write_text(JOB)
    job_file = load_job(folder / "job.yaml", time.time())
    archive = folder.with_suffix(".tar.gz")
    bundle = pack(job_file.working_directory, archive)
    client.submit(replace(job_file.spec, bundle=bundle.sha256), archive)


def offers_at_work(client: Client) -> list[str]:
    return sorted(held.offer for held in client.fleet().instances)


def standby_events(client: Client) -> list[str]:
    return [event.text for event in client.job("looker").events if event.kind == "standby"]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two instances need two cores")
@pytest.mark.timeout(600)
def test_the_way_back_from_a_look_boots_nothing(site: Site, tmp_path: Path) -> None:
    with closing(
        wait_until(site.connected, seconds=120, description="a controller that answers")
    ) as client:
        submit(client, tmp_path)
        wait_until(
            lambda: HOME in offers_at_work(client), seconds=60, description="the first instance"
        )
        (first,) = (held.id for held in client.fleet().instances)
        wait_until(
            lambda: offers_at_work(client) == [AWAY, HOME],
            seconds=120,
            description="both instances",
        )
        wait_until(
            lambda: offers_at_work(client) == [HOME], seconds=240, description="the way back"
        )
        assert [held.id for held in client.fleet().instances] == [first]
        before = client.job("looker").report
        assert before is not None

        def goes_on() -> bool:
            report = client.job("looker").report
            return report is not None and report.step > before.step

        wait_until(goes_on, seconds=60, description="training at home")
        assert site.launches() == 2, "one boot at home, one away"
        again, pause = standby_events(client)
        assert "paused while 1 x local-away is measured" in pause
        assert again == f"{first} trains again, after standby"
        job = client.job("looker")
        assert (job.phase, job.attempt) == (JobPhase.RUNNING, 1)
        assert before.progress_examples < ROUNDS * EXAMPLES
        client.stop("looker")
        wait_until(
            lambda: not client.fleet().instances,
            seconds=60,
            description="the return of all instances",
        )
