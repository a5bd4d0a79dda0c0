from __future__ import annotations

import random

import optuna
import pytest
from optuna.pruners import SuccessiveHalvingPruner

from autoscaler.simulator.studies.searches import (
    Asynchronous,
    AsynchronousHalving,
    Synchronous,
    SynchronousHalving,
    UnderWay,
)


@pytest.mark.parametrize("maximize", [False, True])
def test_asha_stops_whom_optuna_stops(maximize: bool) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    source = random.Random(7)
    pruner = SuccessiveHalvingPruner(min_resource=2, reduction_factor=3)
    direction = "maximize" if maximize else "minimize"
    theirs = optuna.create_study(pruner=pruner, direction=direction)
    ours = Asynchronous(AsynchronousHalving(40, 2.0, 3), maximize)
    trials = [theirs.ask() for _ in range(40)]
    goals: dict[int, float] = {trial: ours.first_goal(trial) for trial in range(40)}
    steps = dict.fromkeys(range(40), 0)
    while goals:
        number = source.choice(sorted(goals))
        steps[number] += 1
        value = source.random()
        trials[number].report(value, steps[number])
        is_pruned = trials[number].should_prune()
        if steps[number] < goals[number]:
            assert not is_pruned
            continue
        goal = ours.judge({number: value}, 39)[number]
        assert (goal is None) == is_pruned, (number, steps[number])
        if goal is None or goal > 54:
            del goals[number]
        else:
            goals[number] = goal
    assert len(set(steps.values())) > 2, "some went further than others"


def test_synchronous_halving_waits_for_the_last() -> None:
    search = Synchronous(SynchronousHalving(6, 3, (2.0, 6.0, 9.0)), maximize=True)
    assert search.to_begin(UnderWay(begun=2, held=2, pending=1)) == 4
    assert [(rung.trials, rung.work) for rung in search.later()] == [(2, 4.0), (1, 3.0)]
    values = {number: float(number) for number in range(6)}
    assert search.judge({0: 0.0}, under_way=5) == {}
    judged = search.judge(values, under_way=0)
    assert judged == {5: 6.0, 4: 6.0, 3: None, 2: None, 1: None, 0: None}
    assert search.judge({5: 1.0, 4: 1.0}, under_way=0) == {4: 9.0, 5: None}
    assert search.later() == ()


def test_asynchronous_trials_begin_one_after_the_other() -> None:
    search = Asynchronous(AsynchronousHalving(5, 1.0, 3, at_once=2), maximize=False)
    assert search.to_begin(UnderWay(begun=0, held=0, pending=0)) == 1
    assert search.to_begin(UnderWay(begun=1, held=1, pending=1)) == 0
    assert search.to_begin(UnderWay(begun=1, held=1, pending=0)) == 1
    assert search.to_begin(UnderWay(begun=2, held=2, pending=0)) == 0
    assert search.to_begin(UnderWay(begun=5, held=0, pending=0)) == 0
