"""Statements of a study's driver to the controller: the study's terms and its trials' progress."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

from autoscaler.domain.objective import Objective
from autoscaler.domain.terms import LaterRung, StudyTerms, TrialProgress
from hpo.methods.synchronous_halving import SynchronousHalvingPruner
from hpo.optuna_internals import halving_terms
from hpo.protocol import attributes

_MOST_REPORTS = 100


class Statements:
    """What is to be stated of one study, and what the controller has heard of it already."""

    def __init__(self, study: optuna.Study, objective: Objective) -> None:
        self._study = study
        self._objective = objective
        self._terms: StudyTerms | None = None
        self._heard: dict[str, TrialProgress] = {}
        self._ended: dict[str, TrialProgress] = {}

    def note_end(self, job: str, trial: FrozenTrial) -> None:
        """A trial has ended: that is to be stated once.

        Of the short trials of one job only the first is stated: its record stands for the job.
        """
        if not self._has_ended(job):
            self._ended[job] = progress(self._study, job, trial)

    def news(
        self, under_way: Mapping[str, FrozenTrial], to_begin: int | None
    ) -> tuple[StudyTerms, tuple[TrialProgress, ...]] | None:
        """The terms now, and the trials that have changed; None if nothing has.

        `under_way` are the trials of the jobs that have not ended; `to_begin` more are to begin.
        """
        current = terms(self._study, self._objective, to_begin)
        stands = [
            progress(self._study, job, trial)
            for job, trial in under_way.items()
            if not self._has_ended(job)
        ]
        changed = [each for each in stands if self._heard.get(each.job) != each]
        if not (changed or self._ended) and current == self._terms:
            return None
        return current, (*self._ended.values(), *changed)

    def _has_ended(self, job: str) -> bool:
        heard = self._heard.get(job)
        return job in self._ended or (heard is not None and heard.has_ended)

    def were_heard(self, current: StudyTerms, told: Sequence[TrialProgress]) -> None:
        """The controller has heard these."""
        self._terms = current
        for each in told:
            self._ended.pop(each.job, None)
            self._heard[each.job] = each


def terms(study: optuna.Study, objective: Objective, to_begin: int | None) -> StudyTerms:
    """What the study is to come to. `to_begin` more trials are to begin, None: without an end."""
    directions = tuple(direction.name.lower() for direction in study.directions)
    trials = study.get_trials(deepcopy=False)
    complete = [trial for trial in trials if trial.state is TrialState.COMPLETE]
    best = None
    if complete:
        choose = min if directions[0] == "minimize" else max
        best = choose(trial.values[0] for trial in complete)
    return StudyTerms(
        objective=objective,
        directions=directions,
        to_begin=to_begin,
        full_work=_full_work(trials),
        synchronous=isinstance(study.pruner, SynchronousHalvingPruner),
        later=_later(study, trials),
        best=best,
    )


def progress(study: optuna.Study, job: str, trial: FrozenTrial) -> TrialProgress:
    """How a trial stands."""
    steps = sorted(trial.intermediate_values)
    reached = float(steps[-1]) if steps else 0.0
    return TrialProgress(
        job=job,
        progress=reached,
        decided_at=_decided_at(study, trial, reached),
        features=_features(trial),
        pauses=bool(trial.user_attrs.get(attributes.PAUSES)),
        reports=tuple((float(step), trial.intermediate_values[step]) for step in _thinned(steps)),
        has_ended=trial.state.is_finished(),
    )


def _later(study: optuna.Study, trials: Sequence[FrozenTrial]) -> tuple[LaterRung, ...]:
    """The rungs after the one that the last trials are on their way to."""
    pruner = study.pruner
    if not isinstance(pruner, SynchronousHalvingPruner):
        return ()
    running = [trial for trial in trials if trial.state is TrialState.RUNNING]
    decided = min((pruner.decided_at(study, trial) for trial in running), default=0)
    ends = (*pruner.rungs, pruner.max_resource)
    return tuple(
        LaterRung(pruner.going_on(rung, pruner.trials), float(ends[rung + 1] - ends[rung]))
        for rung in range(len(pruner.rungs))
        if ends[rung] >= decided
    )


def _full_work(trials: Sequence[FrozenTrial]) -> float | None:
    """How far a trial goes that nobody prunes: as it says itself, else as those that ended did."""
    said = [float(trial.user_attrs.get(attributes.STEPS, 0)) for trial in trials]
    made = [trial.last_step or 0 for trial in trials if trial.state is TrialState.COMPLETE]
    return max([*said, *map(float, made)], default=0.0) or None


def _thinned(steps: Sequence[int]) -> Sequence[int]:
    every = math.ceil(len(steps) / _MOST_REPORTS)
    return steps if every <= 1 else [*steps[:-1:every], steps[-1]]


def _features(trial: FrozenTrial) -> Mapping[str, float]:
    """Hyper-parameters as numbers: a choice among others than numbers is one of several facts."""
    features: dict[str, float] = {}
    for name, value in trial.params.items():
        distribution = trial.distributions[name]
        if not isinstance(distribution, CategoricalDistribution) or _are_numbers(
            distribution.choices
        ):
            features[name] = float(value)
        else:
            features |= {
                f"{name}={choice}": float(choice == value) for choice in distribution.choices
            }
    return features


def _are_numbers(choices: Sequence[Any]) -> bool:
    return all(isinstance(choice, int | float) for choice in choices)


def _decided_at(study: optuna.Study, trial: FrozenTrial, reached: float) -> float | None:
    """The next rung beyond what a trial has reached; None where its pruner has none."""
    pruner = study.pruner
    if isinstance(pruner, SynchronousHalvingPruner):
        return float(pruner.decided_at(study, trial))
    halving = halving_terms(study, pruner, trial)
    if halving is None or halving.min_resource is None:
        return None
    rung = halving.min_resource * float(halving.reduction_factor**halving.min_early_stopping_rate)
    factor = halving.reduction_factor
    while rung <= reached:
        rung *= factor
    return rung
