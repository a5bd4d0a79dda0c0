"""Short trials that one process runs one after the other, under one job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from autoscaler.clock import SystemClock
from autoscaler.domain.objective import Objective as Goal
from autoscaler.domain.trial import WaitingCall
from autoscaler.wire.client import StudyClient
from autoscaler.wire.study_messages import StudyAnswers
from hpo.driver.driver import Driver
from hpo.driver.ended_trials import EndedTrial
from hpo.driver.run_limits import RunLimits
from hpo.worker.process import HOLD_SECONDS, SHORT_SECONDS
from tests.hpo.lines import Objective, records
from tests.hpo.objectives import curve, failing
from tests.hpo.site import TEMPLATE, Site, driver_of, study_of
from tests.service.conftest import TOKEN


class TurnClock(SystemClock):
    """A clock of workers on which each trial takes as many seconds as it is told."""

    def __init__(self, trial_seconds: float) -> None:
        self._step_seconds = trial_seconds
        self._now_seconds = 0.0

    def monotonic(self) -> float:
        self._now_seconds += self._step_seconds
        return self._now_seconds


def short_site(
    site_of: Callable[[Objective], Site], objective: Objective, trial_seconds: float = 0.0
) -> Site:
    site = site_of(objective)
    site.worker_clock = TurnClock(trial_seconds)
    return site


def jobs_of(study: optuna.Study) -> list[str]:
    return [trial.user_attrs["castor:job"] for trial in study.trials]


def test_short_trials_share_a_job_and_have_the_records_of_optuna(
    site_of: Callable[[Objective], Site],
) -> None:
    site, study, expected = short_site(site_of, curve), study_of(), study_of()
    ended: list[EndedTrial] = []
    driver = driver_of(site, study)
    driver.on_end = ended.append
    assert driver.run(RunLimits(trials=12, at_once=1)) is None
    expected.optimize(curve, n_trials=12)
    assert records(study) == records(expected)
    assert TrialState.PRUNED in {trial.state for trial in study.trials}
    assert [each.frozen.number for each in ended] == list(range(12))
    assert jobs_of(study) == ["sweep-0"] * 12
    (record,) = site.api.world.store.studies.trials("sweep")
    assert record.stands.job == "sweep-0" and record.stands.has_ended


def test_a_long_trial_has_a_job_of_its_own(site_of: Callable[[Objective], Site]) -> None:
    study = study_of()
    site = short_site(site_of, curve, trial_seconds=1.01 * SHORT_SECONDS)
    driver_of(site, study).run(RunLimits(trials=3, at_once=1))
    assert jobs_of(study) == ["sweep-0", "sweep-1", "sweep-2"]


def test_a_job_ends_in_time_for_the_controller_to_plan(
    site_of: Callable[[Objective], Site],
) -> None:
    study = study_of()
    trial_seconds = 0.9 * SHORT_SECONDS
    driver_of(short_site(site_of, curve, trial_seconds), study).run(
        RunLimits(trials=25, at_once=1)
    )
    counts = Counter(jobs_of(study))
    assert len(counts) > 1
    assert max(counts.values()) * trial_seconds < HOLD_SECONDS + 2 * trial_seconds


def test_no_process_is_shared_where_each_trial_is_to_have_its_own(
    site_of: Callable[[Objective], Site],
) -> None:
    study = study_of()
    limits = RunLimits(trials=3, at_once=1, shares_processes=False)
    driver_of(short_site(site_of, curve), study).run(limits)
    assert len(set(jobs_of(study))) == 3


@pytest.mark.parametrize("calls", [[12], [18, 3], [19], [40, 1, 0]])
def test_a_killed_process_leaves_no_trace_in_the_trials_that_it_ran(
    site_of: Callable[[Objective], Site], calls: list[int]
) -> None:
    site, study, expected = short_site(site_of, curve), study_of(), study_of()
    site.deaths = {"sweep-0": calls}
    driver_of(site, study).run(RunLimits(trials=6, at_once=1))
    expected.optimize(curve, n_trials=6)
    assert records(study) == records(expected)
    assert jobs_of(study) == ["sweep-0"] * 6


class Killed(BaseException):
    """The driver's process was killed."""


class LosesAnswer(StudyClient):
    """A line on which the driver dies as it answers an end: before it is heard, or after."""

    def __init__(self, url: str, study: str, is_heard: bool) -> None:
        super().__init__(url, TOKEN, study)
        self._is_heard = is_heard
        self.lives = 2

    def answer(
        self, given: StudyAnswers, wait_seconds: float = 0.0, beyond: int = 0
    ) -> tuple[WaitingCall, ...]:
        if '"number": ' in given.answers[-1].answer.text and "never_prunes" in str(given):
            self.lives -= 1
        waiting: tuple[WaitingCall, ...] = ()
        if self.lives or self._is_heard:
            waiting = super().answer(given, wait_seconds if self.lives else 0.0, beyond)
        if not self.lives:
            raise Killed
        return waiting


@pytest.mark.parametrize("is_heard", [True, False])
def test_a_driver_that_dies_as_it_gives_the_next_trial_loses_none(
    site_of: Callable[[Objective], Site],
    monkeypatch: pytest.MonkeyPatch,
    is_heard: bool,
) -> None:
    """The worker's end may come again: the next driver takes it for the trial that it is of."""
    site, study, expected = short_site(site_of, curve), study_of(), study_of()
    line = LosesAnswer(site.api.url, "sweep", is_heard)
    first = Driver(study, TEMPLATE, site.api.client, line, "ada", SystemClock())
    with monkeypatch.context() as patch:
        patch.setattr(first._jobs, "stop", lambda others=(): None)
        with pytest.raises(Killed):
            first.run(RunLimits(trials=5, at_once=1))
    begun = len(study.trials)
    driver_of(site, study, "ada").run(RunLimits(trials=5 - begun, at_once=1))
    expected.optimize(curve, n_trials=5)
    assert records(study) == records(expected)


def test_a_failed_trial_ends_its_process(site_of: Callable[[Objective], Site]) -> None:
    study = study_of()
    driver_of(short_site(site_of, failing), study).run(
        RunLimits(trials=8, at_once=1, catch=frozenset({"builtins.KeyError"}))
    )
    trials = study.trials
    assert len(trials) == 8 and TrialState.FAIL in {trial.state for trial in trials}
    for trial, after in pairwise(trials):
        is_shared = trial.user_attrs["castor:job"] == after.user_attrs["castor:job"]
        assert is_shared == (trial.state is not TrialState.FAIL)


def test_callbacks_come_before_the_next_trial(site_of: Callable[[Objective], Site]) -> None:
    """Run trials that callbacks enqueue next, and none after a callback stops the study."""
    study = study_of()
    driver = driver_of(short_site(site_of, curve), study)

    def on_end(ended: EndedTrial) -> None:
        if ended.frozen.number == 1:
            study.enqueue_trial({"width": 16})
        if ended.frozen.number == 3:
            study.stop()

    driver.on_end = on_end
    driver.run(RunLimits(trials=10, at_once=1))
    assert [trial.number for trial in study.trials] == [0, 1, 2, 3]
    assert study.trials[2].params["width"] == 16
    assert jobs_of(study) == ["sweep-0"] * 4


def test_an_error_of_a_callback_leaves_no_job_behind(
    site_of: Callable[[Objective], Site],
) -> None:
    site, study = short_site(site_of, curve), study_of()
    driver = driver_of(site, study)

    def on_end(ended: EndedTrial) -> None:
        raise LookupError("of the user's")

    driver.on_end = on_end
    with pytest.raises(LookupError):
        driver.run(RunLimits(trials=10, at_once=1))
    assert len(study.trials) == 1
    (job,) = site.api.world.store.jobs.all()
    assert job.phase.name in ("STOPPING", "STOPPED")


def test_no_trial_follows_after_the_deadline(site_of: Callable[[Objective], Site]) -> None:
    """The controller is to say what becomes of those that are left."""
    site, study = short_site(site_of, curve), study_of()
    line = StudyClient(site.api.url, TOKEN, "sweep")
    goal = Goal(deadline_seconds=1.0)
    driver = Driver(study, TEMPLATE, site.api.client, line, "ada", SystemClock(), goal)
    driver.run(RunLimits(trials=3, at_once=1))
    assert len(set(jobs_of(study))) == 3


def test_an_error_of_the_sampler_after_a_short_trial_is_raised(
    site_of: Callable[[Objective], Site],
) -> None:
    def bad(trial: FrozenTrial) -> list[float]:
        if trial.number == 1:
            raise ValueError("no constraint of trial 1")
        return [0.0]

    study = study_of()
    study.sampler = optuna.samplers.TPESampler(seed=3, constraints_func=bad)
    with pytest.raises(ValueError, match="of trial 1"):
        driver_of(short_site(site_of, lambda trial: 1.0), study).run(
            RunLimits(trials=9, at_once=1)
        )
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 2
