"""Real controllers killed at random moments, with real instances, agents, jobs and training.

    make test-kills ARGS=-s                    a line a kill
    CASTOR_KILLS=10 CASTOR_SEED=3 make test-kills

The seed fixes which moments are aimed at; what the controller is doing then is the machine's.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import psutil
import pytest

from autoscaler.clock import SystemClock
from autoscaler.domain.errors import Unavailable
from autoscaler.domain.instance import INSTANCE_TAG, CloudInstance, HeldInstance
from autoscaler.domain.intent import IntentKind, IntentState
from autoscaler.domain.job import JobPhase, JobSpec
from autoscaler.ledger.ledger import Ledger
from autoscaler.lighthouse.host import LighthouseHost
from autoscaler.spec.bundle import pack
from autoscaler.spec.job_file import load_job
from autoscaler.store.opening import open_store
from autoscaler.store.store import Store
from autoscaler.wire.client import Client
from autoscaler.wire.connection import connect
from providers.local.provider import LocalProvider
from providers.local.settings import LocalSettings
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


class Victim:
    """`castor serve`: killed, and started again on what is left."""

    def __init__(self, state: Path) -> None:
        cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[:2])
        self.state = state
        self._command = [
            *(sys.executable, "-P", "-m", "autoscaler.cli.app", "serve"),
            *("--state", str(state), "--port", "0", "--devices", cores),
            *("--boot-seconds", "0.1", "--checkpoint-seconds", "2"),
        ]
        self._log = state.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def end(self) -> None:
        self._end(signal.SIGTERM)

    @contextmanager
    def client(self) -> Iterator[Client]:
        """A client, once the controller has ticked."""
        with closing(
            wait_until(self._connected, seconds=60, description="a controller that answers")
        ) as client:
            yield client

    def calls(self) -> set[Path]:
        """Return the launches and terminations that the cloud has recorded."""
        instances = self.state / "local" / "instances"
        return {*instances.glob("*"), *instances.glob("*/terminate")}

    def last_lines(self) -> str:
        return self._log.read_text()[-4000:]

    def _connected(self) -> Client | None:
        assert self._process is not None
        assert self._process.poll() is None, f"it ended by itself:\n{self.last_lines()}"
        with suppress(Unavailable):
            client = connect(self.state)
            if client.fleet().ticked_seconds is not None:
                return client
            client.close()
        return None

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None


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
        self.victim = Victim(directory / "state")
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
    for process in _processes_of(story.victim.state):
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
            lambda: not _lighthouses(victim.state),
            seconds=30,
            description="the end of all lighthouses",
        )
    victim.end()
    with closing(open_store(f"sqlite:///{victim.state / 'castor.db'}")) as store:
        _assert_store_and_cloud_agree(store, victim.state)
    wait_until(
        lambda: not _processes_of(victim.state), seconds=15, description="the end of all processes"
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


def _assert_store_and_cloud_agree(store: Store, state: Path) -> None:
    """Assert that store and cloud agree on launches, ends and costs."""
    clock = SystemClock()
    local = LocalProvider(state / "local", store.settings.controller_id(), LocalSettings(), clock)
    seen = {each.tags[INSTANCE_TAG]: each for each in local.instances()}
    assert len(seen) == len(local.instances()), "an order was launched twice"
    ordered = [
        held
        for job in store.jobs.all()
        for held in store.instances.of_job(job.id, include_ended=True)
    ]
    assert seen.keys() <= {held.id for held in ordered}, "launched, and nobody knows it"
    for held in ordered:
        _assert_settled(store, held, seen.get(held.id))
    spent_usd = Ledger(store.ledger.entries()).by_instance(clock.now())
    billed_usd = {line.instance: line.usd for line in local.bill()}
    assert {seen[name].id for name in spent_usd} == billed_usd.keys()
    for name, usd in spent_usd.items():
        assert abs(usd - billed_usd[seen[name].id]) < Decimal("0.00001"), name
    kinds = Counter(event.kind for event in store.events.latest(limit=10_000))
    assert not kinds["orphan"] and not kinds["instance lost"] and not kinds["retry"], kinds
    print(f"{len(store.jobs.all())} jobs, {len(ordered)} orders, {len(seen)} instances")


def _assert_settled(store: Store, held: HeldInstance, seen: CloudInstance | None) -> None:
    """No call for this order is open, and its instance, if there ever was one, is gone."""
    intents = store.intents.of_instance(held.id)
    assert all(intent.state is not IntentState.PENDING for intent in intents), intents
    assert held.phase == "ended", held
    launches = [intent for intent in intents if intent.kind is IntentKind.LAUNCH]
    if seen is None:
        assert held.cloud_id is None and launches[0].state is IntentState.FAILED, held
    else:
        assert (held.cloud_id, launches[0].token) == (seen.id, seen.token)
        assert held.ended_seconds == pytest.approx(seen.ended_seconds)


def _lighthouses(state: Path) -> set[str]:
    host = LighthouseHost(state / "lighthouses", "127.0.0.1", SystemClock())
    return set(host.running())


def _processes_of(state: Path) -> list[psutil.Process]:
    """Whatever runs for this deployment: it names a place of its in its command or environment."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = [*process.cmdline(), *process.environ().values()]
            if any(str(state) in word for word in words):
                found.append(process)
    return found
