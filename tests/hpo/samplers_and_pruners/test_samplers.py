"""Whatever samples, stores or ends a study of Optuna's does the same behind the line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import optuna
import pytest
from optuna.samplers import BaseSampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.terminator import CrossValidationErrorEvaluator, report_cross_validation_scores
from optuna.trial import FrozenTrial

from autoscaler.clock import SystemClock
from hpo.driver.trial_server import begin_new_trial
from hpo.optuna_internals import is_stopped
from hpo.storage.studies import optimization_context
from hpo.worker.process import run_trial
from tests.hpo.driver.test_trial_server import study_of
from tests.hpo.lines import DirectChannel, Objective, records, run_all
from tests.hpo.objectives import curve, two_ends


def bound(trial: FrozenTrial) -> Sequence[float]:
    return (trial.params["value"] - 0.5,)


def gridded(trial: optuna.trial.BaseTrial) -> float:
    return trial.suggest_int("value", 0, 2) + 10.0 * trial.suggest_int("other", 0, 1)


SAMPLERS: dict[str, tuple[Callable[[], BaseSampler], Objective, int]] = {
    "multivariate": (
        lambda: optuna.samplers.TPESampler(
            seed=1, multivariate=True, group=True, constant_liar=True, n_startup_trials=4
        ),
        curve,
        12,
    ),
    "evolution": (lambda: optuna.samplers.NSGAIISampler(population_size=4, seed=1), two_ends, 12),
    "constrained": (
        lambda: optuna.samplers.TPESampler(seed=1, n_startup_trials=4, constraints_func=bound),
        two_ends,
        12,
    ),
    "grid": (
        lambda: optuna.samplers.GridSampler({"value": [0, 1, 2], "other": [0, 1]}, seed=1),
        gridded,
        9,
    ),
    "sequence": (
        lambda: optuna.samplers.QMCSampler(seed=1, warn_asynchronous_seeding=False),
        curve,
        9,
    ),
    "fixed": (
        lambda: optuna.samplers.PartialFixedSampler(
            {"width": 16}, optuna.samplers.RandomSampler(seed=1)
        ),
        curve,
        6,
    ),
}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_propose_what_they_propose_without_castor(name: str) -> None:
    """A grid's sampler stops the study, too."""
    sampler, objective, trials = SAMPLERS[name]
    directions = ["minimize"] * (2 if objective is two_ends else 1)
    here, there = (optuna.create_study(directions=directions, sampler=sampler()) for _ in range(2))
    here.optimize(objective, n_trials=trials)
    with optimization_context(there, SystemClock(), lambda: None):
        for _ in range(trials):
            if not is_stopped(there):
                run_trial(objective, DirectChannel(begin_new_trial(there)))
    assert records(there) == records(here)
    if name == "grid":
        assert len(there.trials) == 6


def test_a_study_in_a_journal_has_the_same_records(tmp_path: Path) -> None:
    expected = study_of()
    run_all(expected, curve, 8)
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "journal.log")))
    study = optuna.create_study(
        storage=storage,
        study_name="sweep",
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=3),
        pruner=expected.pruner,
    )
    run_all(study, curve, 8)
    assert records(study) == records(expected)


def scored(trial: optuna.trial.BaseTrial) -> float:
    rate = trial.suggest_float("rate", 0.0, 1.0)
    scores = [rate - 0.1, rate, rate + 0.1]
    report_cross_validation_scores(cast(optuna.Trial, trial), scores)
    return rate


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_scores_for_a_terminator_come_to_the_study() -> None:
    here, there = (
        optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1)) for _ in range(2)
    )
    here.optimize(scored, n_trials=3)
    run_all(there, scored, 3)
    assert records(there) == records(here)
    evaluator = CrossValidationErrorEvaluator()
    assert evaluator.evaluate(there.trials, there.direction) > 0.0
