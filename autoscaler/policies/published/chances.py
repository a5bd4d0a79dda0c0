"""Probability that each trial reaches a target in time, from the learning curves of its study."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.domain.snapshot import JobSnapshot, Snapshot, StudySnapshot
from autoscaler.domain.terms import TrialRecord
from autoscaler.policies.published.learning_curves.forecast import Curve, Study, forecast

_HORIZONS = 6
_DRAWS = 64


@dataclass(frozen=True, slots=True)
class MetricTarget:
    """Target value of the metric, and the time to reach it.

    Attributes:
        target: value of the metric; None for better than the best reported so far.
        maximize: whether a higher metric is better, for jobs outside any study.
        within_seconds: seconds from the first submission, for jobs outside any study; None for the
            end of each job's training.
    """

    target: float | None = None
    maximize: bool = True
    within_seconds: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Prospect:
    """Trial with a reported metric: its curve, and the progress it reaches in the time left.

    The `reach` of an ended trial is its present progress; its curve only informs the others.
    """

    job: str
    curve: Curve
    reach: float


def chances(snapshot: Snapshot, aim: MetricTarget) -> dict[str, float]:
    """Return the probability of reaching the target by id of each job with a reported metric.

    All trials of a study, ended ones included, inform each other. The study's terms give the
    direction, the deadline and the best value. All other jobs count as one further study.
    """
    probabilities: dict[str, float] = {}
    stated = {study.name for study in snapshot.studies}
    alive = {job.id: job for job in snapshot.jobs}
    for study in snapshot.studies:
        deadline = study.terms.objective.deadline_seconds
        left_seconds = None if deadline is None else max(deadline - snapshot.now_seconds, 0.0)
        trials = [
            _trial_prospect(record, study, left_seconds)
            for record in study.trials
            if record.stands.reports
        ]
        maximize = study.terms.directions[0] == "maximize"
        probabilities |= _study_chances(trials, aim.target, study.terms.best, maximize)
    others = [job for job in alive.values() if job.study not in stated and job.quality]
    trials = [_job_prospect(job, _left_seconds(snapshot, aim)) for job in others]
    probabilities |= _study_chances(trials, aim.target, None, aim.maximize)
    return {job: chance for job, chance in probabilities.items() if job in alive}


def _study_chances(
    trials: Sequence[_Prospect], target: float | None, best: float | None, maximize: bool
) -> dict[str, float]:
    """Return the probability of reaching the target by job id, for the trials of one study."""
    if not trials:
        return {}
    sign = 1.0 if maximize else -1.0
    curves = [trial.curve for trial in trials]
    so_far = np.array([(sign * curve.finite[1]).max(initial=-np.inf) for curve in curves])
    horizons = np.stack([_progress_points(trial) for trial in trials])
    draws = forecast(Study(curves, maximize), range(len(trials)), horizons, _DRAWS)
    reached = np.nan_to_num(sign * draws, nan=-np.inf).max(axis=2)
    reached = np.maximum(reached, so_far[:, None])
    if target is None:
        likely = reached > max(so_far.max(), -np.inf if best is None else sign * best)
    else:
        likely = reached >= sign * target
    return {trial.job: float(row.mean()) for trial, row in zip(trials, likely, strict=True)}


def _progress_points(trial: _Prospect) -> np.ndarray:
    """Return the progress points of a trial's forecast, evenly spaced up to its reach."""
    last = float(trial.curve.progress[-1])
    points: np.ndarray = np.linspace(last, max(trial.reach, last), _HORIZONS + 1)[1:]
    return points


def _trial_prospect(
    record: TrialRecord, study: StudySnapshot, left_seconds: float | None
) -> _Prospect:
    """Return the prospect of a study's trial with `left` seconds to the deadline."""
    stands = record.stands
    curve = Curve([at for at, _ in stands.reports], [value for _, value in stands.reports])
    if stands.has_ended:
        return _Prospect(stands.job, curve, stands.progress)
    work_per_second = max((speed.work / speed.seconds for speed in record.speeds), default=0.0)
    end = math.inf if study.terms.full_work is None else study.terms.full_work
    return _Prospect(
        stands.job, curve, _reachable_progress(stands.progress, end, work_per_second, left_seconds)
    )


def _job_prospect(job: JobSnapshot, left_seconds: float | None) -> _Prospect:
    """Return the prospect of a job outside any study."""
    done = job.progress_examples
    end = math.inf if job.remaining_examples is None else done + job.remaining_examples
    ran_seconds = job.service.attained_device_seconds / max(job.requested_devices or 1, 1)
    curve = Curve(
        [quality.progress_examples for quality in job.quality],
        [quality.metric for quality in job.quality],
    )
    return _Prospect(
        job.id,
        curve,
        _reachable_progress(
            done, end, done / ran_seconds if ran_seconds > 0 else 0.0, left_seconds
        ),
    )


def _reachable_progress(done: float, end: float, pace: float, left_seconds: float | None) -> float:
    """Return the progress at the end of the time left, or twice the present one if unknown."""
    if left_seconds is not None and pace > 0:
        return min(end, done + pace * left_seconds)
    return end if math.isfinite(end) else 2.0 * max(done, 1.0)


def _left_seconds(snapshot: Snapshot, aim: MetricTarget) -> float | None:
    """Return the seconds until the aim's time is over; None if it has none."""
    if aim.within_seconds is None or not snapshot.jobs:
        return None
    first = min(job.submitted_seconds for job in snapshot.jobs)
    return max(first + aim.within_seconds - snapshot.now_seconds, 0.0)
