"""Errors of samplers and pruners end the study as such, and name them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optuna
import pytest
from optuna.trial import BaseTrial, TrialState

from hpo.driver.error_origin import error_origin
from hpo.driver.run_limits import RunLimits
from tests.hpo.lines import Objective
from tests.hpo.site import Site, driver_of, study_of


class BadSampler(optuna.samplers.RandomSampler):
    """A sampler that fails at one of its methods."""

    def __init__(self, method: str) -> None:
        super().__init__(seed=1)
        self._method = method

    def sample_independent(self, *arguments: Any) -> Any:
        return self._done("sample_independent", super().sample_independent(*arguments))

    def sample_relative(self, *arguments: Any) -> Any:
        return self._done("sample_relative", super().sample_relative(*arguments))

    def before_trial(self, *arguments: Any) -> None:
        self._done("before_trial", None)

    def after_trial(self, *arguments: Any) -> None:
        self._done("after_trial", None)

    def _done(self, method: str, value: Any) -> Any:
        if method == self._method:
            raise LookupError(f"no luck in {method}")
        return value


class BadPruner(optuna.pruners.BasePruner):
    def prune(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> bool:
        raise ZeroDivisionError("by the pruner")


def one_step(trial: BaseTrial) -> float:
    x = trial.suggest_float("x", 0.0, 1.0)
    trial.report(x, 1)
    trial.should_prune()
    return x


def careful(trial: BaseTrial) -> float:
    try:
        return one_step(trial)
    except LookupError:
        return 0.5


def ended(make: Callable[[Objective], Site], study: optuna.Study, objective: Objective) -> None:
    driver_of(make(objective), study).run(RunLimits(trials=1, at_once=1))


@pytest.mark.parametrize(
    "method", ["sample_independent", "sample_relative", "before_trial", "after_trial"]
)
def test_an_error_of_the_sampler_is_raised_as_it_is(
    method: str, site_of: Callable[[Objective], Site]
) -> None:
    study = study_of()
    study.sampler = BadSampler(method)
    with pytest.raises(LookupError, match=f"no luck in {method}") as raised:
        ended(site_of, study, one_step)
    assert error_origin(raised.value, study) == "the study's sampler, BadSampler"


def test_an_error_of_the_pruner_is_raised_as_it_is(site_of: Callable[[Objective], Site]) -> None:
    study = study_of()
    study.pruner = BadPruner()
    with pytest.raises(ZeroDivisionError, match="by the pruner") as raised:
        ended(site_of, study, one_step)
    assert error_origin(raised.value, study) == "the study's pruner, BadPruner"
    assert study.trials[0].state is TrialState.FAIL


def test_an_error_that_the_objective_handles_is_none(site_of: Callable[[Objective], Site]) -> None:
    study = study_of()
    study.sampler = BadSampler("sample_independent")
    ended(site_of, study, careful)
    assert study.trials[0].value == 0.5


def test_an_error_in_catch_fails_its_trial_only(site_of: Callable[[Objective], Site]) -> None:
    study = study_of()
    study.sampler = BadSampler("sample_independent")
    limits = RunLimits(trials=2, at_once=1, catch=frozenset({"builtins.LookupError"}))
    assert driver_of(site_of(one_step), study).run(limits) is None
    assert [trial.state for trial in study.trials] == [TrialState.FAIL] * 2


def test_an_error_of_the_objective_is_nobody_elses() -> None:
    study = optuna.create_study()
    with pytest.raises(KeyError) as raised:
        study.optimize(lambda trial: {}[trial.number], n_trials=1)
    assert error_origin(raised.value, study) is None
