from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import optuna
import pytest
from optuna.exceptions import StorageInternalError
from optuna.trial import FrozenTrial, TrialState

from autoscaler.clock import SystemClock
from autoscaler.domain.errors import Unavailable
from autoscaler.domain.job import JobPhase, JobSpec, StopReason
from autoscaler.domain.objective import Objective as Goal
from autoscaler.domain.terms import StudyTerms
from autoscaler.wire.client import Client, StudyClient
from autoscaler.wire.messages import JobView
from hpo.driver.driver import Driver
from hpo.driver.ended_trials import EndedTrial
from hpo.driver.run_limits import RunLimits, fatal_message
from hpo.driver.study_end import BudgetUsedUp, StudyStopped
from hpo.runs.arguments import with_max_failures
from tests.hpo.lines import Objective, records
from tests.hpo.objectives import curve, failing
from tests.hpo.site import TEMPLATE, Site, driver_of, study_of
from tests.service.conftest import TOKEN, Api


def test_one_at_a_time_the_study_is_what_it_is_alone(
    site_of: Callable[[Objective], Site],
) -> None:
    site, study, expected = site_of(curve), study_of(), study_of()
    ended: list[EndedTrial] = []
    driver = driver_of(site, study)
    driver.on_end = ended.append
    assert driver.run(RunLimits(trials=6, at_once=1)) is None
    expected.optimize(curve, n_trials=6)
    assert records(study) == records(expected)
    assert [each.frozen.number for each in ended] == list(range(6))
    assert site.most_at_once <= 2  # the job of one that has ended may be on its way out


class StandingClock(SystemClock):
    """A clock on which no second passes: nothing happens because it is time to."""

    def monotonic(self) -> float:
        return 0.0


def test_a_trial_begins_as_soon_as_the_one_before_has_its_instance(
    site_of: Callable[[Objective], Site],
) -> None:
    both = threading.Barrier(2)

    def needs_another(trial: optuna.Trial) -> float:
        both.wait(60.0)
        return float(trial.suggest_float("x", 0.0, 1.0))

    study = study_of()
    driver = driver_of(site_of(needs_another), study, clock=StandingClock())
    assert driver.run(RunLimits(trials=2, at_once=2)) is None
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE"]


def test_killed_workers_leave_no_trace(site_of: Callable[[Objective], Site], api: Api) -> None:
    """Nor one that is started again when its trial is over: it hears so, and ends."""
    site, study, expected = site_of(curve), study_of(), study_of()
    over = 1000  # more calls than there are
    site.deaths = {"sweep-0": [3, 0, 12], "sweep-1": [over], "sweep-2": [8], "sweep-3": [1]}
    driver_of(site, study).run(RunLimits(trials=4, at_once=1))
    expected.optimize(curve, n_trials=4)
    assert records(study) == records(expected)
    assert api.client.job("sweep-1").phase is JobPhase.STOPPED, "it was pruned"


class FaultyStorage(optuna.storages.InMemoryStorage):
    """A database that is away now and then: before it has done something, or just after."""

    _CALLS = (
        "create_new_trial",
        "get_trial",
        "set_trial_intermediate_value",
        "set_trial_param",
        "set_trial_state_values",
        "set_trial_system_attr",
        "set_trial_user_attr",
    )

    def __init__(self) -> None:
        super().__init__()
        self.faults = 0
        self._random = random.Random(10)
        self._chance = 0.02
        for name in self._CALLS:
            setattr(self, name, self._shaky(getattr(self, name)))

    def be_there(self) -> None:
        self._chance = 0.0

    def _shaky(self, call: Callable[..., object]) -> Callable[..., object]:
        def shaken(*arguments: object, **options: object) -> object:
            self._perhaps_fail("the connection was refused")
            result = call(*arguments, **options)
            self._perhaps_fail("the connection broke")
            return result

        return shaken

    def _perhaps_fail(self, message: str) -> None:
        if self._random.random() < self._chance:
            self.faults += 1
            raise StorageInternalError(message)


def test_a_database_that_is_away_now_and_then_loses_and_doubles_nothing(
    site_of: Callable[[Objective], Site],
) -> None:
    storage = FaultyStorage()
    site, study, expected = site_of(curve), study_of(storage=storage), study_of()
    driver_of(site, study).run(RunLimits(trials=4, at_once=1))
    expected.optimize(curve, n_trials=4)
    storage.be_there()
    assert records(study) == records(expected)
    assert storage.faults > 3


def test_an_unexpected_error_lets_no_further_trial_begin(
    site_of: Callable[[Objective], Site],
) -> None:
    site, study = site_of(failing), study_of()
    fatal = driver_of(site, study).run(RunLimits(trials=20, at_once=1))
    assert fatal is not None and fatal.frozen.state is TrialState.FAIL
    assert fatal.error_kinds[0] == "builtins.KeyError"
    assert fatal.frozen.number == len(study.trials) - 1


def test_an_error_of_the_constraints_ends_the_study_as_it_does_optuna(
    site_of: Callable[[Objective], Site],
) -> None:
    def bad_constraints(trial: FrozenTrial) -> list[float]:
        raise ValueError(f"no constraint of trial {trial.number}")

    def constrained() -> optuna.Study:
        study = study_of()
        study.sampler = optuna.samplers.TPESampler(seed=3, constraints_func=bad_constraints)
        return study

    studies = constrained(), constrained()
    for study, run in zip(
        studies,
        (driver_of(site_of(lone), studies[0]).run, lambda limits: studies[1].optimize(lone, 3)),
        strict=True,
    ):
        with pytest.raises(ValueError, match="no constraint of trial 0"):
            run(RunLimits(trials=3, at_once=1))
        assert [trial.state for trial in study.trials] == [TrialState.COMPLETE]


def lone(trial: optuna.Trial) -> float:
    return float(trial.suggest_float("x", 0.0, 1.0))


def test_an_expected_error_fails_its_trial_only(site_of: Callable[[Objective], Site]) -> None:
    site, study = site_of(failing), study_of()
    limits = RunLimits(trials=5, at_once=1, catch=frozenset({"builtins.LookupError"}))
    assert driver_of(site, study).run(limits) is None
    assert len(study.trials) == 5
    assert TrialState.FAIL in {trial.state for trial in study.trials}


def test_an_error_may_be_caught_by_its_name_alone(site_of: Callable[[Objective], Site]) -> None:
    site, study = site_of(failing), study_of()
    limits = RunLimits(trials=5, at_once=1, catch=frozenset({"KeyError"}))
    assert driver_of(site, study).run(limits) is None
    assert len(study.trials) == 5


def test_the_study_ends_after_more_failures_than_are_tolerated(
    site_of: Callable[[Objective], Site],
) -> None:
    site, study = site_of(failing), study_of()
    limits = with_max_failures(RunLimits(trials=40, at_once=1), max_failures=2)
    fatal = driver_of(site, study).run(limits)
    failed = [trial for trial in study.trials if trial.state is TrialState.FAIL]
    assert fatal is not None and fatal.frozen.number == failed[-1].number
    assert len(failed) == 3
    message = fatal_message(fatal, limits.catch, limits.max_failures)
    assert message.endswith("more than max_failures=2 trials of this run have failed")


def test_the_job_of_a_trial_says_how_the_trial_ended(
    site_of: Callable[[Objective], Site],
) -> None:
    def objective(trial: optuna.trial.BaseTrial) -> float:
        match trial.number:
            case 0:
                raise ValueError("no such\nlayer")
            case 1:
                return float("nan")
            case 2:
                trial.report(0.5, 3)
                raise optuna.TrialPruned
        return 1.0

    site, study = site_of(objective), study_of()
    driver_of(site, study).run(RunLimits(trials=4, at_once=1, catch=frozenset({"ValueError"})))
    jobs = [site.api.client.job(f"sweep-{number}") for number in range(4)]
    raised = objective.__code__.co_firstlineno + 3
    assert [(job.phase, job.cause) for job in jobs] == [
        (JobPhase.FAILED, f"ValueError: no such layer (test_driver.py:{raised}, in objective)"),
        (JobPhase.FAILED, "the objective returned NaN"),
        (JobPhase.STOPPED, "pruned at step 3"),
        (JobPhase.FINISHED, None),
    ]


@pytest.mark.parametrize("where", ["objective", "callback"])
def test_a_study_can_be_stopped(site_of: Callable[[Objective], Site], where: str) -> None:
    def objective(trial: optuna.trial.BaseTrial) -> float:
        if where == "objective" and trial.number == 1:
            trial.study.stop()  # type: ignore[attr-defined]
        return trial.suggest_float("x", 0.0, 1.0)

    site, study = site_of(objective), study_of()
    driver = driver_of(site, study)
    if where == "callback":
        driver.on_end = lambda ended: study.stop() if ended.frozen.number == 1 else None
    driver.run(RunLimits(at_once=1))
    assert len(study.trials) == 2


@pytest.mark.parametrize("at_once", [False, True])
def test_a_study_can_be_stopped_from_elsewhere(
    site_of: Callable[[Objective], Site], monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """Stop with the running trials, or at once; the next driver continues those."""
    monkeypatch.setattr("hpo.driver.lease._RENEW_SECONDS", 0.0)
    study = study_of()

    def stops(trial: optuna.trial.BaseTrial) -> float:
        value = trial.suggest_float("value", 0.0, 1.0)
        if not has_stopped:
            has_stopped.append(True)
            StudyClient(site.api.url, TOKEN, "sweep").stop(at_once)
        if at_once:
            time.sleep(0.3)
        trial.report(value, 1)
        return value

    has_stopped: list[bool] = []
    site = site_of(stops)
    if at_once:
        with pytest.raises(StudyStopped, match="the next run continues its trials"):
            driver_of(site, study).run(RunLimits(at_once=1))
        assert study.trials[0].state is TrialState.RUNNING
        driver_of(site, study).run(RunLimits(trials=0))
    else:
        driver_of(site, study).run(RunLimits(at_once=1))
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE]


@pytest.mark.parametrize("phases", [[JobPhase.STOPPING], [JobPhase.STOPPING, JobPhase.STOPPED]])
def test_trials_of_a_study_without_money_stay_as_they_are(
    site_of: Callable[[Objective], Site], monkeypatch: pytest.MonkeyPatch, phases: list[JobPhase]
) -> None:
    """Until it is given more, whether the driver sees their jobs ending or ended."""
    monkeypatch.setattr("hpo.driver.driver._POLL_SECONDS", 0.0)

    def stops(trial: optuna.trial.BaseTrial) -> float:
        value = trial.suggest_float("value", 0.0, 1.0)
        store = site.api.world.store
        if not has_stopped:
            has_stopped.append(True)
            for phase in phases:
                store.jobs.set_phase(
                    "sweep-0", phase, 1.0, "the budget is used up", StopReason.STUDY_BUDGET
                )
            time.sleep(1.5)
        return value

    has_stopped: list[bool] = []
    site, study = site_of(stops), study_of()
    with pytest.raises(BudgetUsedUp, match=r"the budget is used up with a larger one"):
        driver_of(site, study).run(RunLimits(trials=3, at_once=1))
    (trial,) = study.trials
    assert trial.state is TrialState.RUNNING
    driver_of(site, study).run(RunLimits(trials=0))
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE]


def test_trials_begin_beside_one_that_says_nothing(
    site_of: Callable[[Objective], Site], api: Api
) -> None:
    all_run = threading.Barrier(2)

    def quiet(trial: optuna.trial.BaseTrial) -> float:
        api.world.store.jobs.set_phase(f"sweep-{trial.number}", JobPhase.RUNNING, 1.0)
        all_run.wait(20.0)
        return 1.0

    study = study_of()
    driver_of(site_of(quiet), study).run(RunLimits(trials=2))
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 2


def test_enqueued_trials_come_first(site_of: Callable[[Objective], Site]) -> None:
    site, study = site_of(curve), study_of()
    study.enqueue_trial({"rate": 0.02, "width": 16})
    driver_of(site, study).run(RunLimits(trials=2, at_once=1))
    assert study.trials[0].params["width"] == 16
    assert len(study.trials) == 2


def test_a_trial_whose_job_ends_without_a_word_has_failed(api: Api) -> None:
    def end(job: str) -> None:
        while not any(each.id == job for each in api.world.store.jobs.alive()):
            time.sleep(0.01)
        api.client.stop(job)
        api.world.tick(2)

    study = study_of()
    stopper = threading.Thread(target=end, args=("sweep-0",))
    stopper.start()
    line = StudyClient(api.url, TOKEN, "sweep")
    driver = Driver(study, TEMPLATE, api.client, line, "ada", SystemClock())
    driver.run(RunLimits(trials=1))
    stopper.join()
    assert study.trials[0].state is TrialState.FAIL
    assert study.trials[0].user_attrs["castor:cause"]


def test_a_controller_that_is_away_as_a_trial_begins_costs_no_trial(
    site_of: Callable[[Objective], Site],
) -> None:
    class Away(Client):
        left = 2

        def submit(self, spec: JobSpec, *arguments: Any, **options: Any) -> JobView:
            view = super().submit(spec, *arguments, **options) if self.left == 1 else None
            if self.left:
                Away.left -= 1
                raise Unavailable("the connection broke")
            return view or super().submit(spec, *arguments, **options)

    site, study = site_of(curve), study_of()
    line = StudyClient(site.api.url, TOKEN, "sweep")
    client = Away(site.api.url, TOKEN)
    Driver(study, TEMPLATE, client, line, "ada", SystemClock()).run(RunLimits(trials=2, at_once=1))
    assert [trial.state.is_finished() for trial in study.trials] == [True, True]


def test_the_terms_are_stated_before_the_first_job_and_the_last_end_after_it(
    site_of: Callable[[Objective], Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier driver's budget ends no job of this one, and no trial is without its end."""
    site, study = site_of(curve), study_of()
    studies = site.api.world.store.studies
    studies.state("sweep", StudyTerms(Goal(budget_usd=Decimal("0.01"))))
    studies.set_budget("sweep", Decimal("0.001"))
    budgets: list[Decimal | None] = []
    client = site.api.client
    submit = client.submit

    def noting(spec: JobSpec, driver: str) -> JobView:
        terms = studies.terms("sweep")
        assert terms is not None
        budgets.append(terms.objective.budget_usd)
        return submit(spec, driver=driver)

    monkeypatch.setattr(client, "submit", noting)
    line = StudyClient(site.api.url, TOKEN, "sweep")
    goal = Goal(budget_usd=Decimal(5))
    driver = Driver(study, TEMPLATE, client, line, "ada", SystemClock(), goal)
    driver.run(RunLimits(trials=2, at_once=1))
    assert budgets == [Decimal(5)] * 2
    assert [record.stands.has_ended for record in studies.trials("sweep")] == [True] * 2


def test_the_owner_is_warned_once_of_what_cannot_be_kept(
    site_of: Callable[[Objective], Site],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("hpo.driver.driver._POLL_SECONDS", 0.0)
    monkeypatch.setattr(
        "hpo.driver.driver.planner_warning", lambda views: "a deadline is out of reach"
    )
    driver_of(site_of(curve), study_of()).run(RunLimits(trials=4, at_once=1))
    said = [record.message for record in caplog.records if "out of reach" in record.message]
    assert said == ["study sweep: a deadline is out of reach"]
