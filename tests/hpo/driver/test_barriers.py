"""Trials that wait for each other, under a driver."""

from __future__ import annotations

import threading
from collections.abc import Callable

import optuna
import pytest
from optuna.trial import TrialState

from hpo.driver.run_limits import RunLimits
from hpo.samplers_and_pruners.synchronous_halving import SynchronousHalvingPruner
from tests.hpo.lines import Objective
from tests.hpo.site import Site, driver_of

GROUP = 4


def study_of() -> optuna.Study:
    pruner = SynchronousHalvingPruner(GROUP, 1, 4, reduction_factor=2)
    return optuna.create_study(study_name="sweep", pruner=pruner)


def reporting(trial: optuna.trial.BaseTrial) -> float:
    """Trial 0 is the best, the next one second."""
    trial.suggest_float("value", 0.0, 1.0)
    for step in range(1, 5):
        trial.report(float(trial.number), step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return float(trial.number)


def steps_of(study: optuna.Study) -> list[tuple[TrialState, int | None]]:
    return [(trial.state, trial.last_step) for trial in study.trials]


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpo.driver.driver._POLL_SECONDS", 0.05)
    monkeypatch.setattr("hpo.driver.driver._WAIT_SECONDS", 0.1)


def test_a_group_is_begun_at_once_and_decided_together(
    site_of: Callable[[Objective], Site],
) -> None:
    site, study = site_of(reporting), study_of()
    driver_of(site, study).run(RunLimits(trials=GROUP))
    assert steps_of(study) == [
        (TrialState.COMPLETE, 4),
        (TrialState.PRUNED, 2),
        (TrialState.PRUNED, 1),
        (TrialState.PRUNED, 1),
    ]


def test_few_at_once_come_to_the_same(site_of: Callable[[Objective], Site]) -> None:
    """Exclude waiting trials from the number at once, and do not wait for a partial group."""
    site, study = site_of(reporting), study_of()
    driver_of(site, study).run(RunLimits(trials=GROUP - 1, at_once=1))
    assert steps_of(study) == [
        (TrialState.COMPLETE, 4),
        (TrialState.PRUNED, 1),
        (TrialState.PRUNED, 1),
    ]


def test_who_gave_its_instance_back_is_not_given_one_to_be_pruned(
    site_of: Callable[[Objective], Site],
) -> None:
    """The worst of them has left when the others come."""
    gone = threading.Event()

    def objective(trial: optuna.trial.BaseTrial) -> float:
        if trial.number == GROUP - 1:
            trial.report(float(trial.number), 1)
            site.take_back(f"sweep-{trial.number}")
            gone.set()
            raise SystemExit(0)
        gone.wait(60.0)
        return reporting(trial)

    site, study = site_of(objective), study_of()
    driver_of(site, study).run(RunLimits(trials=GROUP))
    assert steps_of(study)[GROUP - 1] == (TrialState.PRUNED, 1)
    assert steps_of(study)[0] == (TrialState.COMPLETE, 4)
