"""How likely trials reach a target in time, by their learning curves and their siblings'."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.domain.snapshot import JobSnapshot, Snapshot, StudySnapshot
from autoscaler.domain.terms import TrialRecord
from autoscaler.policies.learning_curves.forecast import Curve, Study, forecast

_HORIZONS = 6
_DRAWS = 64


@dataclass(frozen=True, slots=True)
class Aim:
    """A value of the metric, and by when.

    Attributes:
        target: None: better than any reported so far.
        maximize: whether more of the metric is better, where no study says.
        within_seconds: from the first submission, where no study has a deadline; None: by the end
            of each trial's training.
    """

    target: float | None = None
    maximize: bool = True
    within_seconds: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Prospect:
    """A trial that has reported: its curve, and how far it comes in the time left.

    One that has ended teaches only; its `reach` is where it is.
    """

    job: str
    curve: Curve
    reach: float


def chances(snapshot: Snapshot, aim: Aim) -> dict[str, float]:
    """Of each job that has reported a metric, by its id.

    Trials of a study are siblings, those that have ended too, and its terms say the direction, the
    deadline and the best so far. All other jobs are taken for trials of one more study.
    """
    found: dict[str, float] = {}
    stated = {study.name for study in snapshot.studies}
    alive = {job.id: job for job in snapshot.jobs}
    for study in snapshot.studies:
        deadline = study.terms.objective.deadline_seconds
        left = None if deadline is None else max(deadline - snapshot.now_seconds, 0.0)
        trials = [
            _of_study(record, study, left) for record in study.trials if record.stands.reports
        ]
        maximize = study.terms.directions[0] == "maximize"
        found |= _of(trials, aim.target, study.terms.best, maximize)
    others = [job for job in alive.values() if job.study not in stated and job.quality]
    trials = [_of_job(job, _left_seconds(snapshot, aim)) for job in others]
    found |= _of(trials, aim.target, None, aim.maximize)
    return {job: chance for job, chance in found.items() if job in alive}


def _of(
    trials: Sequence[_Prospect], target: float | None, best: float | None, maximize: bool
) -> dict[str, float]:
    if not trials:
        return {}
    sign = 1.0 if maximize else -1.0
    curves = [trial.curve for trial in trials]
    so_far = np.array([(sign * curve.finite[1]).max(initial=-np.inf) for curve in curves])
    horizons = np.stack([_horizons(trial) for trial in trials])
    found = forecast(Study(curves, maximize), range(len(trials)), horizons, _DRAWS)
    reached = np.nan_to_num(sign * found.draws, nan=-np.inf).max(axis=2)
    reached = np.maximum(reached, so_far[:, None])
    if target is None:
        likely = reached > max(so_far.max(), -np.inf if best is None else sign * best)
    else:
        likely = reached >= sign * target
    return {trial.job: float(row.mean()) for trial, row in zip(trials, likely, strict=True)}


def _horizons(trial: _Prospect) -> np.ndarray:
    last = float(trial.curve.progress[-1])
    points: np.ndarray = np.linspace(last, max(trial.reach, last), _HORIZONS + 1)[1:]
    return points


def _of_study(record: TrialRecord, study: StudySnapshot, left: float | None) -> _Prospect:
    stands = record.stands
    curve = Curve([at for at, _ in stands.reports], [value for _, value in stands.reports])
    if stands.has_ended:
        return _Prospect(stands.job, curve, stands.progress)
    pace = max((one.work / one.seconds for one in record.speeds), default=0.0)
    end = math.inf if study.terms.full_work is None else study.terms.full_work
    return _Prospect(stands.job, curve, _reach(stands.progress, end, pace, left))


def _of_job(job: JobSnapshot, left: float | None) -> _Prospect:
    done = job.progress_examples
    end = math.inf if job.remaining_examples is None else done + job.remaining_examples
    ran = job.service.attained_device_seconds / max(job.requested_devices or 1, 1)
    curve = Curve([q.progress_examples for q in job.quality], [q.metric for q in job.quality])
    return _Prospect(job.id, curve, _reach(done, end, done / ran if ran > 0 else 0.0, left))


def _reach(done: float, end: float, pace: float, left_seconds: float | None) -> float:
    """Progress at the end of the time left; twice what is behind it where neither is known."""
    if left_seconds is not None and pace > 0:
        return min(end, done + pace * left_seconds)
    return end if math.isfinite(end) else 2.0 * max(done, 1.0)


def _left_seconds(snapshot: Snapshot, aim: Aim) -> float | None:
    if aim.within_seconds is None or not snapshot.jobs:
        return None
    first = min(job.submitted_seconds for job in snapshot.jobs)
    return max(first + aim.within_seconds - snapshot.now_seconds, 0.0)
