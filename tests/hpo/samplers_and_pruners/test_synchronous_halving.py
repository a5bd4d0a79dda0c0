"""Successive halving whose trials wait for each other."""

from __future__ import annotations

import optuna
import pytest
from optuna.trial import TrialState

from hpo.samplers_and_pruners.synchronous_halving import SynchronousHalvingPruner


def study_of(directions: str = "minimize") -> optuna.Study:
    return optuna.create_study(direction=directions)


def verdicts(
    pruner: SynchronousHalvingPruner, study: optuna.Study, trials: list[optuna.Trial]
) -> list[bool | None]:
    every = study.get_trials()
    return [pruner.verdict(study, every[trial.number]) for trial in trials]


def at_rung(study: optuna.Study, values: list[float], step: int) -> list[optuna.Trial]:
    trials = [study.ask() for _ in values]
    for trial, value in zip(trials, values, strict=True):
        trial.report(value, step)
    return trials


def test_the_rungs_lie_below_the_end() -> None:
    pruner = SynchronousHalvingPruner(27, 2, 55)
    assert pruner.rungs == (2, 6, 18, 54)
    assert [pruner.survivor_count(rung, 27) for rung in range(4)] == [9, 3, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [((1, 1, 9), "trials"), ((9, 0, 9), "min_resource"), ((9, 9, 9), "max_resource")],
)
def test_there_must_be_a_race(arguments: tuple[int, int, int], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        SynchronousHalvingPruner(*arguments)


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_the_best_go_on_once_all_are_there(direction: str) -> None:
    pruner, study = SynchronousHalvingPruner(6, 1, 9), study_of(direction)
    values = [0.3, 0.1, float("nan"), 0.2, 0.1, 0.9]
    trials = at_rung(study, values[:5], 1)
    assert verdicts(pruner, study, trials) == [None] * 5
    trials += at_rung(study, values[5:], 1)
    survivor_count = {1, 4} if direction == "minimize" else {0, 5}
    assert verdicts(pruner, study, trials) == [number not in survivor_count for number in range(6)]


def test_who_has_not_come_is_waited_for_unless_it_has_ended() -> None:
    pruner, study = SynchronousHalvingPruner(3, 1, 9), study_of()
    first, second = at_rung(study, [0.3, 0.2], 1)
    late = study.ask()
    assert verdicts(pruner, study, [first, second, late]) == [None, None, False]
    study.tell(late, state=TrialState.FAIL)
    assert verdicts(pruner, study, [first, second]) == [True, False]


def test_a_group_that_no_trial_joins_any_more_is_not_waited_for() -> None:
    pruner, study = SynchronousHalvingPruner(9, 1, 9), study_of()
    trials = at_rung(study, [0.3, 0.2, 0.1, 0.4], 1)
    assert verdicts(pruner, study, trials) == [None] * 4
    pruner.is_full = True
    assert verdicts(pruner, study, trials) == [True, True, False, True]


def test_later_rungs_are_of_those_that_went_on() -> None:
    pruner, study = SynchronousHalvingPruner(4, 1, 9, reduction_factor=2), study_of()
    trials = at_rung(study, [0.1, 0.2, 0.3, 0.4], 1)
    assert [pruner.prune(study, trial) for trial in study.get_trials()] == [False] * 2 + [True] * 2
    for trial in trials[2:]:
        study.tell(trial, state=TrialState.PRUNED)
    trials[0].report(0.9, 2)
    assert pruner.verdict(study, study.get_trials()[0]) is None
    assert pruner.next_decision_step(study, study.get_trials()[0]) == 2
    assert pruner.next_decision_step(study, study.get_trials()[1]) == 2
    trials[1].report(0.5, 2)
    assert verdicts(pruner, study, trials[:2]) == [True, False]
    assert pruner.next_decision_step(study, study.get_trials()[1]) == 4


def test_groups_are_decided_apart() -> None:
    pruner, study = SynchronousHalvingPruner(2, 1, 3, reduction_factor=2), study_of()
    first = at_rung(study, [0.2, 0.1], 1)
    second = at_rung(study, [0.05], 1)
    assert verdicts(pruner, study, first + second) == [True, False, None]
