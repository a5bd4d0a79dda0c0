"""One driver after another: whose study it is, and what the earlier one has left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from autoscaler.clock import SystemClock
from autoscaler.domain.errors import Conflict
from autoscaler.domain.job import JobPhase, JobSpec
from autoscaler.wire.client import Client, StudyClient
from autoscaler.wire.messages import JobView, JoinRequest
from autoscaler.wire.study_messages import StudyLease
from hpo.driver.driver import Driver
from hpo.driver.ended_trials import EndedTrial
from hpo.driver.run_limits import RunLimits
from hpo.driver.trial_server import begin_new_trial
from hpo.protocol.requests import TrialRequest
from tests.hpo.lines import Objective
from tests.hpo.objectives import curve
from tests.hpo.site import TEMPLATE, NodeLine, Site, driver_of, study_of
from tests.service.conftest import TOKEN, Api


def test_a_driver_takes_up_what_an_earlier_one_left(site_of: Callable[[Objective], Site]) -> None:
    """One that died after it began two trials, of which one's job was never handed in."""
    site, study = site_of(curve), study_of()
    for number in range(2):
        begin_new_trial(study).bind(f"sweep-{number}")
    site.api.client.submit(replace(TEMPLATE, name="sweep-0"))
    study.ask()  # somebody else's
    driver_of(site, study).run(RunLimits(trials=1, at_once=2))
    states = [trial.state for trial in study.trials]
    assert states[2] is TrialState.RUNNING
    assert all(state.is_finished() for state in (states[0], states[1], states[3]))


def test_a_driver_whose_lease_ran_out_goes_on_unless_another_has_the_study(
    site_of: Callable[[Objective], Site], api: Api
) -> None:
    site, study = site_of(curve), study_of()
    driver = driver_of(site, study)
    driver.on_end = lambda ended: api.world.clock.sleep(31.0)
    driver.run(RunLimits(trials=2, at_once=1))
    assert len(study.trials) == 2

    def overtaken(ended: EndedTrial) -> None:
        api.world.clock.sleep(31.0)
        StudyClient(api.url, TOKEN, "sweep").lease(StudyLease("bob", 30.0))

    driver = driver_of(site, study)
    driver.on_end = overtaken
    with pytest.raises(Conflict, match="driven by bob"):
        driver.run(RunLimits(trials=2, at_once=1))


def test_a_driver_that_was_overtaken_leaves_the_jobs_to_the_other_one(api: Api) -> None:
    """One that slept, as a laptop does, while another took the study over."""
    study, line = study_of(), StudyClient(api.url, TOKEN, "sweep")

    class Sleeping(StudyClient):
        def calls(self, holder: str, wait_seconds: float, beyond: int = 0) -> tuple[()]:
            api.world.clock.sleep(31.0)
            line.lease(StudyLease("bob", 30.0))
            raise Conflict("study sweep is driven by bob")

    asleep = Sleeping(api.url, TOKEN, "sweep")
    with pytest.raises(Conflict, match="driven by bob"):
        Driver(study, TEMPLATE, api.client, asleep, "ada", SystemClock()).run(RunLimits(trials=1))
    (job,) = api.world.store.jobs.alive()
    assert job.phase is JobPhase.PENDING
    assert api.world.store.leases.holder("sweep", api.world.clock.now()) == "bob"


def test_a_driver_that_was_overtaken_as_it_began_a_trial_submits_no_job(
    site_of: Callable[[Objective], Site], api: Api
) -> None:
    """One that was frozen before its submission, while another ran the whole study and left."""
    site, study = site_of(curve), study_of()

    class Frozen(Client):
        def submit(self, spec: JobSpec, *arguments: Any, **options: Any) -> JobView:
            api.world.clock.sleep(31.0)
            driver_of(site, study, "bob").run(RunLimits(trials=1))
            return super().submit(spec, *arguments, **options)

    line = StudyClient(api.url, TOKEN, "sweep")
    frozen = Driver(study, TEMPLATE, Frozen(api.url, TOKEN), line, "ada", SystemClock())
    with pytest.raises(Conflict, match="driven by nobody, not by ada"):
        frozen.run(RunLimits(trials=1))
    assert [trial.state.is_finished() for trial in study.trials] == [True, True]
    assert [job.id for job in api.world.store.jobs.all()] == ["sweep-0", "sweep-1"]


def test_a_driver_that_was_overtaken_stops_no_jobs_as_it_is_interrupted(api: Api) -> None:
    """One that has not heard yet that another took the study over."""
    line = StudyClient(api.url, TOKEN, "sweep")

    class Interrupted(StudyClient):
        def calls(self, holder: str, wait_seconds: float, beyond: int = 0) -> tuple[()]:
            api.world.clock.sleep(31.0)
            line.lease(StudyLease("bob", 30.0))
            raise KeyboardInterrupt

    asleep = Interrupted(api.url, TOKEN, "sweep")
    driver = Driver(study_of(), TEMPLATE, api.client, asleep, "ada", SystemClock())
    with pytest.raises(KeyboardInterrupt):
        driver.run(RunLimits(trials=1))
    (job,) = api.world.store.jobs.alive()
    assert job.phase is JobPhase.PENDING


def test_a_driver_that_died_as_it_submitted_a_later_job_of_a_trial_is_succeeded(
    site_of: Callable[[Objective], Site], api: Api
) -> None:
    """The storage has the name of the jobs, whose newest one has another id."""
    study = study_of()
    begin_new_trial(study).bind("sweep-0")
    api.client.stop(api.client.submit(replace(TEMPLATE, name="sweep-0")).id)
    api.world.tick(2)
    assert api.client.submit(replace(TEMPLATE, name="sweep-0")).id == "sweep-0.2"
    driver_of(site_of(curve), study).run(RunLimits(trials=0))
    assert study.trials[0].state.is_finished()
    assert study.trials[0].state is not TrialState.FAIL


def test_a_study_that_is_driven_is_left_alone(api: Api) -> None:
    StudyClient(api.url, TOKEN, "sweep").lease(StudyLease("bob", 30.0))
    study = study_of()
    line = StudyClient(api.url, TOKEN, "sweep")
    driver = Driver(study, TEMPLATE, api.client, line, "ada", SystemClock())
    with pytest.raises(Conflict, match="driven by bob"):
        driver.run(RunLimits(trials=1))
    assert study.trials == []


def test_interrupted_its_jobs_end_and_its_trials_stay(api: Api) -> None:
    study = study_of()
    line = StudyClient(api.url, TOKEN, "sweep")
    driver = Driver(study, TEMPLATE, api.client, line, "ada", SystemClock())

    class Interrupting(StudyClient):
        def calls(self, holder: str, wait_seconds: float, beyond: int = 0) -> tuple[()]:
            raise KeyboardInterrupt

    driver._study_client = Interrupting(api.url, TOKEN, "sweep")
    with pytest.raises(KeyboardInterrupt):
        driver.run(RunLimits(trials=1))
    assert study.trials[0].state is TrialState.RUNNING
    api.world.tick(2)
    assert api.world.store.jobs.alive() == ()
    StudyClient(api.url, TOKEN, "sweep").lease(StudyLease("bob", 30.0))


def test_a_trial_whose_job_is_being_stopped_is_begun_again(
    site_of: Callable[[Objective], Site], api: Api
) -> None:
    study = study_of()
    job = api.client.submit(replace(TEMPLATE, name="sweep-0")).id
    api.world.set_target(job, 1)
    api.world.tick(2)
    begin_new_trial(study).bind(job)
    api.client.stop(job)
    api.world.tick(1, agents=False)
    assert api.client.job(job).phase is JobPhase.STOPPING
    site = site_of(curve)
    ticking = threading.Timer(1.0, lambda: api.world.tick(5))
    ticking.start()
    driver_of(site, study).run(RunLimits(trials=0))
    ticking.join()
    assert len(study.trials) == 1 and study.trials[0].state.is_finished()
    assert study.trials[0].state is not TrialState.FAIL


def test_what_an_earlier_job_of_a_trial_said_last_counts(
    site_of: Callable[[Objective], Site], api: Api
) -> None:
    """Use a report that was sent without a driver; the next job continues after it."""
    study = study_of()
    job = api.client.submit(replace(TEMPLATE, name="sweep-0")).id
    begin_new_trial(study).bind(job)
    api.world.set_target(job, 1)
    api.world.tick(1, agents=False)
    (held,) = api.world.store.instances.of_job(job)
    api.authentication.issue(held)
    node = api.node()
    node.join(JoinRequest(api.authentication.join_token(held), held.id))
    NodeLine(node, 1.0, None).tell(TrialRequest("report", {"value": 0.5, "step": 3}).text())
    api.client.stop(job)
    api.world.tick(5)
    assert api.client.job(job).phase.is_final

    def goes_on(trial: optuna.trial.BaseTrial) -> float:
        trial.report(0.75, 4)
        return 1.0

    driver_of(site_of(goes_on), study).run(RunLimits(trials=0))
    assert study.trials[0].intermediate_values == {3: 0.5, 4: 0.75}
    assert study.trials[0].state is TrialState.COMPLETE
