"""Successive halving whose trials wait for each other.

Optuna's own decides on each trial as it comes to a rung, by those that were there before: the
first are promoted on little, and more trials go on than the algorithm means. This one decides when
all have come. A pruner can't wait, so that it does so under `hpo.optimize` only, where trials give
their instances back meanwhile.

Source: Karnin, Koren and Somekh 2013; Jamieson and Talwalkar 2016, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import optuna
from optuna.pruners import BasePruner
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState


class SynchronousHalvingPruner(BasePruner):
    """Of every `trials` trials the best part goes on at each rung: one in `reduction_factor`.

    Rungs are at the steps `min_resource`, `reduction_factor` times as many, and so on, below
    `max_resource`, where a trial ends. Trials count by their numbers: the first `trials` are a
    group, those after them the next.

    Raises:
        ValueError: there is no such search; the message names the argument.
    """

    def __init__(
        self, trials: int, min_resource: int, max_resource: int, reduction_factor: int = 3
    ) -> None:
        for name, value, least in (
            ("trials", trials, 2),
            ("min_resource", min_resource, 1),
            ("max_resource", max_resource, min_resource + 1),
            ("reduction_factor", reduction_factor, 2),
        ):
            if value < least:
                raise ValueError(f"{name}={value} must be {least} or more")
        self.trials = trials
        self.max_resource = max_resource
        self.reduction_factor = reduction_factor
        self.is_full = False
        self.rungs: tuple[int, ...] = ()
        while (step := min_resource * reduction_factor ** len(self.rungs)) < max_resource:
            self.rungs += (step,)

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Whether it is decided already that the trial goes no further."""
        return self.verdict(study, trial) is True

    def verdict(self, study: optuna.Study, trial: FrozenTrial) -> bool | None:
        """Whether a trial is pruned at the last rung that it has come to.

        None: it has to wait for others. With `is_full` no trial begins any more, and one that was
        to begin is not waited for.
        """
        rung = self._rung_of(trial)
        if rung is None:
            return False
        race = group = self._group(study, trial)
        if group is None:
            return None
        for passed in range(rung + 1):
            race = self._going_on(study, race, passed, self.going_on(passed, len(group)))
        if race is None:
            return None
        return all(other.number != trial.number for other in race)

    def decided_at(self, study: optuna.Study, trial: FrozenTrial) -> int:
        """The step of the rung that a trial waits at, else of the next one, or of its end.

        One that goes on at `max_resource` and beyond waits for nobody: its end is yet to come.
        """
        rung = self._rung_of(trial)
        if rung is not None and self.verdict(study, trial) is None:
            return self.rungs[rung]
        reached = trial.last_step or 0
        end = max(self.max_resource, reached + 1)
        return next((step for step in self.rungs if step > reached), end)

    def is_filling(self, study: optuna.Study) -> bool:
        """Whether the group of the trial that began last wants more."""
        return len(study.get_trials(deepcopy=False)) % self.trials > 0 and not self.is_full

    def going_on(self, rung: int, of: int) -> int:
        """How many of a group of so many go on from a rung, the first of which is 0."""
        parts: int = self.reduction_factor ** (rung + 1)
        return max(of // parts, 1)

    def _rung_of(self, trial: FrozenTrial) -> int | None:
        reached = [place for place, step in enumerate(self.rungs) if _value(trial, step)]
        return max(reached, default=None)

    def _group(self, study: optuna.Study, trial: FrozenTrial) -> list[FrozenTrial] | None:
        """The trials of a trial's group; None while some are to begin."""
        first = trial.number // self.trials * self.trials
        group = study.get_trials(deepcopy=False)[first : first + self.trials]
        return group if len(group) == self.trials or self.is_full else None

    def _going_on(
        self, study: optuna.Study, race: Sequence[FrozenTrial] | None, rung: int, count: int
    ) -> list[FrozenTrial] | None:
        """The `count` of those in the race that go on from a rung; None while some are to come."""
        if race is None:
            return None
        step, there = self.rungs[rung], []
        for trial in race:
            value = _value(trial, step)
            if value is not None:
                there.append((value[0], trial))
            elif trial.state in (TrialState.RUNNING, TrialState.WAITING):
                return None
        sign = -1.0 if study.direction is StudyDirection.MAXIMIZE else 1.0
        best_first = sorted(there, key=lambda each: (_rank(sign * each[0]), each[1].number))
        return [trial for _, trial in best_first[:count]]


def _value(trial: FrozenTrial, step: int) -> tuple[float] | None:
    """What a trial reported at a rung: its first report there or beyond."""
    beyond = [reported for reported in trial.intermediate_values if reported >= step]
    return (trial.intermediate_values[min(beyond)],) if beyond else None


def _rank(value: float) -> float:
    """What is no number is worse than any."""
    return float("inf") if value != value else value
