"""Instances for a driver: each job gets one, and its objective runs in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import optuna
import pytest

from autoscaler.clock import Clock, SystemClock
from autoscaler.domain.errors import NotAllowed
from autoscaler.domain.job import JobPhase, JobSpec
from autoscaler.domain.trial import TrialCall
from autoscaler.wire.client import StudyClient
from autoscaler.wire.messages import JoinRequest
from autoscaler.wire.node_client import NodeClient
from autoscaler.wire.study_messages import TrialCalls
from hpo.driver.driver import Driver
from hpo.worker.process import run_trial
from tests.hpo.lines import Objective, WorkerDied
from tests.service.conftest import TOKEN, Api

_CLOCK = SystemClock()
TEMPLATE = JobSpec("sweep", ("python", "-m", "worker"), study="sweep")


class NodeLine:
    """Channel of a worker, which is also its instance's agent.

    The worker dies after `calls` calls, and at the end of the test.
    """

    is_over = False

    def __init__(self, node: NodeClient, started_seconds: float, calls: int | None) -> None:
        self._node = node
        self._incarnation = node.begin_trial(started_seconds)
        self._number = 0
        self._last = calls

    def tell(self, text: str) -> None:
        if self._number == self._last:
            raise WorkerDied
        self._number += 1
        call = TrialCall(self._number, text)
        self._node.tell_trial(TrialCalls(self._incarnation, (call,)))

    def ask(self, text: str) -> str:
        self.tell(text)
        while not self.is_over:
            for answer in self._node.trial_answers(self._incarnation, self._number - 1, 1.0):
                if answer.number == self._number:
                    return answer.text
        raise WorkerDied


class NodePlace(NodeLine):
    """Channel of a worker that runs short trials one after another in one process."""

    must_drain = False

    def checkpoint_directory(self) -> Path:
        raise NotImplementedError

    def remote_checkpoints(self) -> None:
        raise NotImplementedError

    def report_steps(self, steps: int) -> None:
        raise NotImplementedError

    def report_left(self) -> None:
        raise NotImplementedError

    def ask_unless_draining(self, text: str) -> str | None:
        return self.ask(text)


class Site:
    """Deployment that gives each job an instance and runs its objective in a thread.

    With a `worker_clock` workers continue with further trials after short ones.
    """

    def __init__(self, api: Api, objective: Objective) -> None:
        self.api = api
        self.objective = objective
        self.deaths: dict[str, list[int]] = {}
        self.failing: dict[str, str] = {}  # causes of failure of jobs that fail after their deaths
        self.worker_clock: Clock | None = None
        self.most_at_once = 0
        self._seen: set[str] = set()
        self._lines: list[NodeLine] = []
        self._threads: list[threading.Thread] = []
        self._is_over = False
        self._world_turns = threading.Lock()
        self._starter = threading.Thread(target=self._start_instances)
        self._starter.start()

    def close(self) -> None:
        self._is_over = True
        self.api.woken.set()
        self._starter.join()
        for line in self._lines:
            line.is_over = True
        for thread in self._threads:
            thread.join(60.0)
            assert not thread.is_alive()

    def _start_instances(self) -> None:
        while True:
            self.api.woken.clear()
            if self._is_over:
                return
            alive = [job.id for job in self.api.world.store.jobs.alive()]
            self.most_at_once = max(self.most_at_once, len(alive))
            for job in alive:
                if job not in self._seen:
                    self._seen.add(job)
                    self._give(job)
            self.api.woken.wait()

    def _give(self, job: str) -> None:
        world = self.api.world
        with self._world_turns:
            world.set_target(job, 1)
            world.tick(1, agents=False)
        held = next(iter(world.store.instances.of_job(job)), None)
        if held is None:  # the driver has stopped the job
            return
        self.api.authentication.issue(held)
        node = self.api.node()
        node.join(JoinRequest(self.api.authentication.join_token(held), held.id))
        thread = threading.Thread(target=self._work, args=(job, node))
        self._threads.append(thread)
        thread.start()

    def take_back(self, job: str) -> None:
        """End all instances of the job."""
        world = self.api.world
        with self._world_turns:
            world.set_target(job, 0)
            world.tick(4)
        assert not world.store.instances.of_job(job)

    def _work(self, job: str, node: NodeClient) -> None:
        last = [] if job in self.failing else [None]
        for start, calls in enumerate([*self.deaths.get(job, []), *last]):
            try:
                shares = self.worker_clock is not None
                line = (NodePlace if shares else NodeLine)(node, float(start), calls)
            except NotAllowed:  # the job was stopped meanwhile
                return
            self._lines.append(line)
            line.is_over = self._is_over  # the test may have ended just before
            try:
                if isinstance(line, NodePlace) and self.worker_clock is not None:
                    run_trial(self.objective, line, line, self.worker_clock)
                else:
                    run_trial(self.objective, line)
            except WorkerDied:
                continue
            except SystemExit:  # the worker has ended its process
                return
        if line.is_over:
            return
        world = self.api.world
        if job in self.failing:
            world.store.jobs.set_phase(job, JobPhase.FAILED, 1.0, self.failing[job])
            return
        held = next(instance for instance in world.store.instances.of_job(job))
        if not world.store.jobs.get(job).phase.is_final:
            with self._world_turns:
                world.complete(held)
                world.tick(2, agents=False)


@pytest.fixture
def site_of(api: Api) -> Iterator[Callable[[Objective], Site]]:
    sites = []

    def make(objective: Objective) -> Site:
        sites.append(Site(api, objective))
        return sites[-1]

    yield make
    for site in sites:
        site.close()


def study_of(seed: int = 3, storage: optuna.storages.BaseStorage | None = None) -> optuna.Study:
    return optuna.create_study(
        study_name="sweep",
        storage=storage,
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=seed),
        pruner=optuna.pruners.SuccessiveHalvingPruner(1, reduction_factor=2),
    )


def driver_of(
    site: Site, study: optuna.Study, holder: str = "ada", clock: Clock = _CLOCK
) -> Driver:
    line = StudyClient(site.api.url, TOKEN, "sweep")
    return Driver(study, TEMPLATE, site.api.client, line, holder, clock)
