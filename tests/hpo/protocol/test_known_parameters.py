"""Parameters that are known before they are suggested: no question, and Optuna's record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import optuna
import pytest
from optuna.trial import BaseTrial

from hpo.driver.trial_server import begin_new_trial
from hpo.protocol.requests import SUGGEST, parse_request
from hpo.worker.process import run_trial
from tests.hpo.lines import DirectChannel, records

SAMPLERS: dict[str, Callable[[], optuna.samplers.BaseSampler]] = {
    "nsga": lambda: optuna.samplers.NSGAIISampler(seed=5, population_size=4),
    "qmc": lambda: optuna.samplers.QMCSampler(seed=5, warn_asynchronous_seeding=False),
    "random": lambda: optuna.samplers.RandomSampler(seed=5),
    "tpe": lambda: optuna.samplers.TPESampler(seed=5, n_startup_trials=3),
    "tpe, multivariate": lambda: optuna.samplers.TPESampler(
        seed=5, n_startup_trials=3, multivariate=True, warn_independent_sampling=False
    ),
}


class CountingLine(DirectChannel):
    """Counts what is told and asked, by methods."""

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        self.told: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()

    def tell(self, text: str) -> None:
        self.told[parse_request(text).method] += 1
        super().ask(text)

    def ask(self, text: str) -> str:
        self.asked[parse_request(text).method] += 1
        return super().ask(text)


def objective(trial: BaseTrial) -> float:
    rate = trial.suggest_float("rate", 1e-3, 1.0, log=True)
    width = trial.suggest_int("width", 1, 64, step=3 if trial.number > 11 else 1)
    kind = trial.suggest_categorical("kind", ["a", None, 3])
    only = trial.suggest_float("only", 2.0, 2.0)
    again = trial.suggest_float("rate", 1e-3, 1.0, log=True)
    assert again == rate
    if trial.number % 4 == 3:
        raise optuna.TrialPruned
    return rate * width + (kind is None) + only


def study_of(sampler: str) -> optuna.Study:
    study = optuna.create_study(sampler=SAMPLERS[sampler]())
    study.enqueue_trial({"rate": 0.1, "width": 7, "kind": None})
    study.enqueue_trial({"width": 8.0, "kind": "no choice", "rate": 9.0})  # partly out of range
    study.enqueue_trial({"width": 9})
    return study


def run_all(study: optuna.Study, trials: int) -> list[CountingLine]:
    lines = []
    for _ in range(trials):
        lines.append(CountingLine(begin_new_trial(study)))
        run_trial(objective, lines[-1])
    return lines


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_record_is_that_of_optuna(sampler: str) -> None:
    here, there = study_of(sampler), study_of(sampler)
    there.optimize(objective, n_trials=14, catch=ValueError)
    lines = run_all(here, 14)
    assert records(here) == records(there)
    assert lines[0].asked[SUGGEST] == 0, "all of it was enqueued, or has one value"
    assert lines[0].told[SUGGEST] == 4
    last = lines[10]  # nothing was enqueued, and the distributions are those of trials before
    if sampler in ("nsga", "tpe, multivariate"):
        assert (last.asked[SUGGEST], last.told[SUGGEST]) == (1, 3)
    if sampler == "random":  # it depends on the release whether TPE samples them together
        assert (last.asked[SUGGEST], last.told[SUGGEST]) == (3, 1)


def test_a_value_that_json_would_change_is_asked_for() -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=5))
    study.enqueue_trial({"size": (1, 2)})
    line = CountingLine(begin_new_trial(study))

    def of_tuples(trial: BaseTrial) -> float:
        trial.suggest_categorical("size", [(1, 2), (3, 4)])  # type: ignore[list-item]
        return 1.0

    with pytest.warns(UserWarning, match="Choices for a categorical"):
        run_trial(of_tuples, line)
    assert (line.asked[SUGGEST], line.told[SUGGEST]) == (1, 0)
