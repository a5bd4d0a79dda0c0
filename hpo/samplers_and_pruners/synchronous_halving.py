"""Successive halving with a barrier at each rung.

Optuna's asynchronous pruner judges each trial against the trials that reached the rung before.
This pruner decides after all trials of a group have reached the rung. A pruner can't wait, so this
one needs `hpo.optimize`, where trials release their instances while they wait.

Source: Karnin, Koren and Somekh 2013; Jamieson and Talwalkar 2016, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import optuna
from optuna.pruners import BasePruner
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState


class SynchronousHalvingPruner(BasePruner):
    """Pruner that keeps one in `reduction_factor` of every `trials` trials at each rung.

    The rungs are the steps `min_resource`, `min_resource * reduction_factor` and so on, below
    `max_resource`, where a trial ends. Groups follow the numbers of trials: the first `trials`
    trials are one group, the following ones the next.

    Raises:
        ValueError: an argument is out of range; the message names it.
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
        """Return whether the trial is already known to be pruned."""
        return self.verdict(study, trial) is True

    def verdict(self, study: optuna.Study, trial: FrozenTrial) -> bool | None:
        """Return whether a trial is pruned at the last rung that it has reached.

        None if other trials have to reach the rung first. With `is_full` no further trial begins,
        and the pruner does not wait for missing ones.
        """
        rung = self._rung_of(trial)
        if rung is None:
            return False
        race = group = self._group(study, trial)
        if group is None:
            return None
        for passed in range(rung + 1):
            race = self._survivors(study, race, passed, self.survivor_count(passed, len(group)))
        if race is None:
            return None
        return all(other.number != trial.number for other in race)

    def next_decision_step(self, study: optuna.Study, trial: FrozenTrial) -> int:
        """Return the step of the next decision on a trial: a rung, or its end.

        The current rung counts while its verdict is open. The end is `max_resource`, or the next
        step of a trial that is beyond it.
        """
        rung = self._rung_of(trial)
        if rung is not None and self.verdict(study, trial) is None:
            return self.rungs[rung]
        reached = trial.last_step or 0
        end = max(self.max_resource, reached + 1)
        return next((step for step in self.rungs if step > reached), end)

    def is_group_incomplete(self, study: optuna.Study) -> bool:
        """Return whether the newest group still lacks trials."""
        return len(study.get_trials(deepcopy=False)) % self.trials > 0 and not self.is_full

    def survivor_count(self, rung: int, of: int) -> int:
        """Return how many trials of a group of the given size pass a rung; rungs count from 0."""
        parts: int = self.reduction_factor ** (rung + 1)
        return max(of // parts, 1)

    def _rung_of(self, trial: FrozenTrial) -> int | None:
        passed_rungs = [rung for rung, step in enumerate(self.rungs) if _value(trial, step)]
        return max(passed_rungs, default=None)

    def _group(self, study: optuna.Study, trial: FrozenTrial) -> list[FrozenTrial] | None:
        """Return the group of a trial; None while trials of the group have not begun."""
        first = trial.number // self.trials * self.trials
        group = study.get_trials(deepcopy=False)[first : first + self.trials]
        return group if len(group) == self.trials or self.is_full else None

    def _survivors(
        self, study: optuna.Study, race: Sequence[FrozenTrial] | None, rung: int, count: int
    ) -> list[FrozenTrial] | None:
        """Return the `count` best trials of `race` at a rung.

        The result is None while trials have not reached it.
        """
        if race is None:
            return None
        step, reached = self.rungs[rung], []
        for trial in race:
            value = _value(trial, step)
            if value is not None:
                reached.append((value[0], trial))
            elif trial.state in (TrialState.RUNNING, TrialState.WAITING):
                return None
        sign = -1.0 if study.direction is StudyDirection.MAXIMIZE else 1.0
        best_first = sorted(reached, key=lambda entry: (_rank(sign * entry[0]), entry[1].number))
        return [trial for _, trial in best_first[:count]]


def _value(trial: FrozenTrial, step: int) -> tuple[float] | None:
    """Return the first report at a step or later, in a tuple; None without one."""
    beyond = [reported for reported in trial.intermediate_values if reported >= step]
    return (trial.intermediate_values[min(beyond)],) if beyond else None


def _rank(value: float) -> float:
    """Return a sort key that places NaN last."""
    return float("inf") if value != value else value
