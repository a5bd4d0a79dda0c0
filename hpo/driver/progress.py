"""Reports of a study's terms and its trials' progress to the controller."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

from autoscaler.domain.objective import Objective
from autoscaler.domain.terms import LaterRung, StudyTerms, TrialOutcome, TrialProgress
from autoscaler.domain.trial import TrialEnding
from hpo.optuna_internals import halving_settings
from hpo.protocol import attributes
from hpo.samplers_and_pruners.synchronous_halving import SynchronousHalvingPruner

_MOST_REPORTS = 100


class ProgressReporter:
    """Differences between a study and the last report that the controller has acknowledged."""

    def __init__(self, study: optuna.Study, objective: Objective) -> None:
        self._study = study
        self._objective = objective
        self._terms: StudyTerms | None = None
        self._acknowledged: dict[str, TrialProgress] = {}
        self._ended: dict[str, TrialProgress] = {}
        self._results: dict[str, tuple[TrialOutcome, ...]] = {}

    def record_end(self, job: str, trial: FrozenTrial) -> None:
        """Record the end of a trial for the next report.

        Several short trials may share a job: the first one's progress is reported, and all ends.
        """
        if not self._has_ended(job):
            self._ended[job] = progress(self._study, job, trial)
        self._results[job] = (*self._results.get(job, ()), trial_outcome(trial))

    def changes(
        self, under_way: Mapping[str, FrozenTrial], to_begin: int | None
    ) -> tuple[StudyTerms, tuple[TrialProgress, ...]] | None:
        """Return the current terms and the changed trials; None if nothing has changed.

        `under_way` holds the running trials by job; `to_begin` more trials are to begin.
        """
        current = terms(self._study, self._objective, to_begin)
        current_progress = [
            progress(self._study, job, trial)
            for job, trial in under_way.items()
            if not self._has_ended(job)
        ]
        changed = [
            entry for entry in current_progress if self._acknowledged.get(entry.job) != entry
        ]
        later = [
            self._acknowledged[job]
            for job in self._results
            if job not in self._ended and job in self._acknowledged
        ]
        if not (changed or self._ended or later) and current == self._terms:
            return None
        reported = (*self._ended.values(), *later, *changed)
        return current, tuple(
            replace(entry, results=self._results.get(entry.job, ())) for entry in reported
        )

    def _has_ended(self, job: str) -> bool:
        heard = self._acknowledged.get(job)
        return job in self._ended or (heard is not None and heard.has_ended)

    def acknowledge(self, current: StudyTerms, reported: Sequence[TrialProgress]) -> None:
        """Record that the controller has received a report."""
        self._terms = current
        for entry in reported:
            self._ended.pop(entry.job, None)
            self._acknowledged[entry.job] = replace(entry, results=())
            left = tuple(
                result
                for result in self._results.pop(entry.job, ())
                if result not in entry.results
            )
            if left:
                self._results[entry.job] = left


def terms(study: optuna.Study, objective: Objective, to_begin: int | None) -> StudyTerms:
    """Return the study's terms; `to_begin` more trials are to begin, None for no limit."""
    directions = tuple(direction.name.lower() for direction in study.directions)
    trials = study.get_trials(deepcopy=False)
    complete = [trial for trial in trials if trial.state is TrialState.COMPLETE]
    best = None
    if complete:
        choose = min if directions[0] == "minimize" else max
        best = choose(trial.values[0] for trial in complete)
    states = Counter(trial.state for trial in trials)
    waiting, running = states[TrialState.WAITING], states[TrialState.RUNNING]
    return StudyTerms(
        objective=objective,
        directions=directions,
        to_begin=to_begin,
        full_work=_full_work(trials),
        synchronous=isinstance(study.pruner, SynchronousHalvingPruner),
        later=_later(study, trials),
        best=best,
        under_way=running,
        ended=len(trials) - waiting - running,
    )


def trial_outcome(trial: FrozenTrial) -> TrialOutcome:
    """Return the result of an ended trial."""
    ending = {TrialState.COMPLETE: TrialEnding.COMPLETE, TrialState.PRUNED: TrialEnding.PRUNED}
    duration = trial.duration
    return TrialOutcome(
        number=trial.number,
        ending=ending.get(trial.state, TrialEnding.FAILED),
        value=trial.values[0] if trial.values else None,
        seconds=None if duration is None else max(duration.total_seconds(), 0.0),
    )


def progress(study: optuna.Study, job: str, trial: FrozenTrial) -> TrialProgress:
    """Return the progress of a trial."""
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
    """Return the rungs after the one that the running trials are heading for."""
    pruner = study.pruner
    if not isinstance(pruner, SynchronousHalvingPruner):
        return ()
    running = [trial for trial in trials if trial.state is TrialState.RUNNING]
    next_step = min((pruner.next_decision_step(study, trial) for trial in running), default=0)
    ends = (*pruner.rungs, pruner.max_resource)
    return tuple(
        LaterRung(pruner.survivor_count(rung, pruner.trials), float(ends[rung + 1] - ends[rung]))
        for rung in range(len(pruner.rungs))
        if ends[rung] >= next_step
    )


def _full_work(trials: Sequence[FrozenTrial]) -> float | None:
    """Return the steps of a trial that is not pruned; None if unknown.

    The number comes from `hpo.epochs`, else from complete trials.
    """
    declared_steps = [float(trial.user_attrs.get(attributes.STEPS, 0)) for trial in trials]
    complete_steps = [
        trial.last_step or 0 for trial in trials if trial.state is TrialState.COMPLETE
    ]
    return max([*declared_steps, *map(float, complete_steps)], default=0.0) or None


def _thinned(steps: Sequence[int]) -> Sequence[int]:
    """Return at most about `_MOST_REPORTS` of the steps, always including the last."""
    every = math.ceil(len(steps) / _MOST_REPORTS)
    return steps if every <= 1 else [*steps[:-1:every], steps[-1]]


def _features(trial: FrozenTrial) -> Mapping[str, float]:
    """Return the parameters of a trial as numbers.

    A categorical choice becomes one-hot features.
    """
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
    """Return the step of the next rung of a trial; None if its pruner has no rungs."""
    pruner = study.pruner
    if isinstance(pruner, SynchronousHalvingPruner):
        return float(pruner.next_decision_step(study, trial))
    settings = halving_settings(study, pruner, trial)
    if settings is None or settings.min_resource is None:
        return None
    rung = settings.min_resource * float(
        settings.reduction_factor**settings.min_early_stopping_rate
    )
    factor = settings.reduction_factor
    while rung <= reached:
        rung *= factor
    return rung
