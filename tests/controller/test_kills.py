"""Real controllers killed at random moments, with real instances, agents, jobs and training.

    make test-kills ARGS=-s                    a line a kill
    CASTOR_KILLS=10 CASTOR_SEED=3 make test-kills

The seed fixes which moments are aimed at; what the controller is doing then is the machine's.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from autoscaler.domain.errors import Unavailable
from autoscaler.domain.job import JobPhase, JobSpec
from autoscaler.spec.bundle import pack
from autoscaler.spec.job_file import load_job
from autoscaler.store.opening import open_store
from autoscaler.wire.client import Client
from tests.controller.killed import (
    KilledController,
    lighthouses_of,
    processes_of,
    require_agreement,
)
from tests.training.fleet import wait_until

KILLS = int(os.environ.get("CASTOR_KILLS", "50"))
SEED = int(os.environ.get("CASTOR_SEED", "0"))
SESSIONLESS = "its script exited with status 0; it opened no training session"

TRAIN = """
import sys, time, torch
from torch.utils.data import TensorDataset
from autoscaler.training import session

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
data = TensorDataset(torch.randn(256, 4), torch.randn(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with session(model, optimizer, data, batch_size=16) as job:
    for x, y in job.batches(epochs=int(sys.argv[1])):
        job.step((job.model(x) - y).square().mean())
        time.sleep(0.02)
"""
EXAMPLES = 256

COUNT = """
import sys, time

for number in range(int(sys.argv[1])):
    print(number, flush=True)
    time.sleep(0.1)
"""

SMALL = "{min: 1, max: 1, offers: [local-small], spot: false}"
ANY = "{min: 1, max: 2, spot: false}"


@dataclass(frozen=True)
class Work:
    """A job to be submitted, and how many times over it goes."""

    spec: JobSpec
    archive: Path
    rounds: int

    @property
    def trains(self) -> bool:
        return self.spec.name.startswith("train")


class Story:
    """Random submissions and kills of one deployment."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.victim = KilledController(directory / "state")
        self.submitted: list[Work] = []
        self._directory = directory
        self.chance = chance

    def submit(self, client: Client, kind: str, rounds: int) -> None:
        """Have one more job; what breaks off is made good by `submit_missing`."""
        work = self._work(kind, rounds)
        self.submitted.append(work)
        with suppress(Unavailable):
            client.submit(work.spec, work.archive)

    def submit_missing(self) -> None:
        """Submit again what was broken off before it arrived."""
        with self.victim.client() as client:
            arrived = {job.id for job in client.jobs()}
            for work in self.submitted:
                if work.spec.name not in arrived:
                    client.submit(work.spec, work.archive)

    def while_it_starts(self) -> None:
        self._wait(2.0)

    def at_a_submission(self) -> None:
        with self.victim.client() as client:
            submission = threading.Thread(target=self._count, args=(client,))
            submission.start()
            self._wait(0.5)
            self.victim.kill()
            submission.join()

    def at_news_of_an_instance(self) -> None:
        """Orders, launches, terminations, and what agents tell."""
        with self.victim.client() as client:
            self._have_work(client)
            known = client.fleet().instances
            with suppress(AssertionError):
                wait_until(lambda: client.fleet().instances != known, seconds=4.0)
            self._wait(0.5)

    def at_a_call_to_the_cloud(self) -> None:
        """Wait for a call's effect, whose outcome may not be stored yet."""
        with self.victim.client() as client:
            self._have_work(client)
            known, deadline = self.victim.calls(), time.monotonic() + 8.0
            while self.victim.calls() <= known and time.monotonic() < deadline:
                time.sleep(0.002)
            self._wait(0.05)

    def at_any_time(self) -> None:
        with self.victim.client() as client:
            self._have_work(client)
            self._wait(2.0)

    def _have_work(self, client: Client) -> None:
        """Let there be a job that comes and goes beside those that train."""
        if not any(job.id.startswith("count") for job in client.jobs(include_ended=False)):
            self._count(client)

    def _count(self, client: Client) -> None:
        self.submit(client, "count", self.chance.randint(3, 15))

    def _wait(self, at_most_seconds: float) -> None:
        time.sleep(self.chance.uniform(0.0, at_most_seconds))

    def _work(self, kind: str, rounds: int) -> Work:
        name = f"{kind}-{len(self.submitted)}"
        folder = self._directory / name
        folder.mkdir()
        (folder / "script.py").write_text(TRAIN if kind == "train" else COUNT)
        instances = ANY if kind == "train" else SMALL
        text = f"name: {name}\ncommand: python script.py {rounds}\ninstances: {instances}\n"
        (folder / "job.yaml").write_text(text)
        job_file = load_job(folder / "job.yaml", time.time())
        archive = folder.with_suffix(".tar.gz")
        bundle = pack(job_file.working_directory, archive)
        return Work(replace(job_file.spec, bundle=bundle.sha256), archive, rounds)


MOMENTS: tuple[Callable[[Story], None], ...] = (
    Story.while_it_starts,
    Story.at_a_submission,
    Story.at_news_of_an_instance,
    Story.at_a_call_to_the_cloud,
    Story.at_a_call_to_the_cloud,
    Story.at_any_time,
)


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    story = Story(tmp_path, random.Random(SEED))
    yield story
    story.victim.kill()
    for process in processes_of(story.victim.state):
        with suppress(psutil.Error):
            process.kill()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_controllers_killed_at_random_leak_double_and_lose_nothing(story: Story) -> None:
    began_seconds = time.monotonic()
    victim = story.victim
    for number in range(KILLS):
        victim.start()
        if number % 25 == 0:
            with victim.client() as client:
                story.submit(client, "train", 150)
        moment = story.chance.choice(MOMENTS)
        moment(story)
        victim.kill()
        at_seconds = time.monotonic() - began_seconds
        print(f"kill {number + 1}, {at_seconds:.1f} s: {moment.__name__.replace('_', ' ')}")
    victim.start()
    story.submit_missing()
    with victim.client() as client:
        wait_until(
            lambda: not client.jobs(include_ended=False),
            seconds=600,
            description="the end of all jobs",
        )
        wait_until(
            lambda: not client.fleet().instances,
            seconds=60,
            description="the return of all instances",
        )
        _assert_done_once(client, story.submitted)
        wait_until(
            lambda: not lighthouses_of(victim.state),
            seconds=30,
            description="the end of all lighthouses",
        )
    victim.end()
    with closing(open_store(f"sqlite:///{victim.state / 'castor.db'}")) as store:
        require_agreement(store, victim.state)
        kinds = Counter(event.kind for event in store.events.latest(limit=10_000))
        assert not kinds["orphan"] and not kinds["instance lost"] and not kinds["retry"], kinds
    wait_until(
        lambda: not processes_of(victim.state), seconds=15, description="the end of all processes"
    )


def _assert_done_once(client: Client, submitted: list[Work]) -> None:
    """Require each submitted job to have finished at its first attempt, its work done once."""
    jobs = {job.id: job for job in client.jobs()}
    assert jobs.keys() == {work.spec.name for work in submitted}
    for work in submitted:
        job = jobs[work.spec.name]
        told = f"{job.id} is {job.phase} at attempt {job.attempt}: {job.cause}; {job.last_lines}"
        assert (job.phase, job.attempt) == (JobPhase.FINISHED, 1), told
        assert job.cause == (None if work.trains else SESSIONLESS), told
        if work.trains:
            assert job.report is not None
            assert job.report.progress_examples == pytest.approx(work.rounds * EXAMPLES)
        else:
            written = "".join(part.text for part in client.logs(job.id, {}))
            assert written.split() == [str(number) for number in range(work.rounds)], job.id
