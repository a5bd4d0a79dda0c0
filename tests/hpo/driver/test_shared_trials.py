"""Trials that two instances hold at once, with a real controller and driver between."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import optuna
import pytest

from autoscaler.clock import SystemClock
from autoscaler.wire.client import StudyClient
from autoscaler.wire.messages import JoinRequest
from hpo.driver.driver import Driver
from hpo.driver.run_limits import RunLimits
from hpo.worker.objective_run import begin_trial, run_objective, send_end
from hpo.worker.trial import RemoteTrial
from tests.hpo.lines import Objective, WorkerDied, record
from tests.hpo.objectives import curve
from tests.hpo.site import TEMPLATE, NodeLine, Site, study_of
from tests.service.conftest import TOKEN, Api

SHARED = replace(TEMPLATE, distributed=True)


class PairedSite(Site):
    """Gives each job two instances. The second ends only when the study has the first's end."""

    def __init__(self, api: Api, objective: Objective, study: optuna.Study) -> None:
        self.study = study
        self.ended: list[str] = []
        self._told: list[threading.Event] = []
        self._over: list[threading.Event] = []
        super().__init__(api, objective)

    def drive(self, trials: int) -> None:
        line = StudyClient(self.api.url, TOKEN, "sweep")
        driver = Driver(self.study, SHARED, self.api.client, line, "ada", SystemClock())
        driver.run(RunLimits(trials=trials, at_once=1))

    def _give(self, job: str) -> None:
        order = len(self._told)
        self._told.append(threading.Event())
        self._over.append(threading.Event())
        world = self.api.world
        with self._world_turns:
            world.set_target(job, 2)
            world.tick(1, agents=False)
        for number, held in enumerate(world.store.instances.of_job(job)):
            self.api.authentication.issue(held)
            node = self.api.node()
            node.join(JoinRequest(self.api.authentication.join_token(held), held.id))
            line = NodeLine(node, 1.0, None)
            self._lines.append(line)
            arguments = (job, order, number, line)
            self._threads.append(threading.Thread(target=self._be, args=arguments))
        for thread in self._threads[-2:]:
            thread.start()

    def _be(self, job: str, order: int, number: int, line: NodeLine) -> None:
        try:
            trial = begin_trial(line, is_shared=True)
            assert isinstance(trial, RemoteTrial)
            end = run_objective(self.objective, trial)
            if number == 1:
                assert self._told[order].wait(60.0)
            elif order > 0:
                assert self._over[order - 1].wait(60.0), "the driver is there as long"
            send_end(line, end)
        except WorkerDied:
            return
        self.ended.append(job)
        self._told[order].set()
        if number == 1:
            self._over[order].set()
            world = self.api.world
            with self._world_turns:
                world.complete(world.store.instances.of_job(job)[0])
                world.tick(2, agents=False)


@pytest.fixture
def site_of(api: Api) -> Iterator[Callable[[Objective], PairedSite]]:
    sites = []

    def make(objective: Objective) -> PairedSite:
        sites.append(PairedSite(api, objective, study_of()))
        return sites[-1]

    yield make
    for site in sites:
        site.close()


def test_trials_that_two_hold_are_what_they_are_alone(
    site_of: Callable[[Objective], PairedSite],
) -> None:
    site, expected = site_of(curve), study_of()
    expected.optimize(curve, n_trials=2)
    site.drive(trials=2)
    found = [record(trial) for trial in site.study.trials]
    assert found == [record(trial) for trial in expected.trials]
    first_job = site.study.trials[0].user_attrs["castor:job"]
    assert site.ended.count(first_job) == 2, "who is late hears it too"
