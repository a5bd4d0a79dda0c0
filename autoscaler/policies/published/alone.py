"""Run time, time left and finish-time ratio of a rigid job on the devices that it asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autoscaler.domain.snapshot import GroundTruth, JobSnapshot, Snapshot
from autoscaler.goodput.batch_search import goodput_table
from autoscaler.goodput.formulas import predictor_of
from autoscaler.policies.pools.pool import Pool, requested

_LEAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Alone:
    """Times of one job on the devices that it asked for, in seconds.

    Attributes:
        ran_seconds: device time attained so far, over the devices that the job asked for.
        left_seconds: run time left.
        waited_seconds: time since submission in which the job did not run.
        contention: average number of jobs per device since submission, at least 1.
    """

    ran_seconds: float
    left_seconds: float
    waited_seconds: float
    contention: float

    def finish_time_ratio(self, contention: float) -> float:
        """Return Themis's rho if the job runs 1 / `contention` of the time from now on.

        Rho is the job's completion time over its completion time on a fair share. The fair share
        is 1 / `self.contention` of the time. Source: Themis (NSDI'20), section 3.
        """
        return self.ratio_of_finish(contention * self.left_seconds)

    def ratio_of_finish(self, seconds: float) -> float:
        """Return Themis's rho if the job ends in `seconds` from now."""
        fair_seconds = self.contention * max(self.ran_seconds + self.left_seconds, _LEAST_SECONDS)
        return (self.ran_seconds + self.waited_seconds + seconds) / fair_seconds


def contention(jobs: float, pool: Pool) -> float:
    """Return the number of jobs per device of the pool, at least 1."""
    return max(jobs / max(pool.devices, 1), 1.0)


def alone(job: JobSnapshot, pool: Pool, snapshot: Snapshot, left_seconds: float) -> Alone:
    """Return the times of a job that has `left_seconds` left."""
    age_seconds = max(snapshot.now_seconds - job.submitted_seconds, 0.0)
    ran = min(ran_seconds(job, pool), age_seconds)
    mean_jobs = job.service.mean_active_jobs or len(snapshot.jobs)
    return Alone(ran, left_seconds, age_seconds - ran, contention(mean_jobs, pool))


def ran_seconds(job: JobSnapshot, pool: Pool) -> float:
    """Return the attained device-seconds over the devices asked for, in seconds."""
    return job.service.attained_device_seconds / max(requested(job, pool), 1)


def usual_seconds_left(job: JobSnapshot, pool: Pool) -> float:
    """Return `seconds_left`, or the seconds run so far (at least 1) where that is unknown."""
    seconds = seconds_left(job, pool)
    return max(ran_seconds(job, pool), _LEAST_SECONDS) if seconds is None else seconds


def seconds_left(job: JobSnapshot, pool: Pool) -> float | None:
    """Return the seconds left on the devices asked for, at the present rate; None if unknown.

    The simulated truth gives the seconds where the snapshot has it, else the point estimate of the
    job's model at the requested batch. The kind of device is the one the job holds, or else the
    kind it may use with the most devices.
    """
    kind = pool.kind_of(job.placement) or _largest_kind(job, pool)
    devices = requested(job, pool)
    if job.truth is not None:
        true_seconds = _true_seconds_left(job.truth, kind, devices)
        if true_seconds is not None:
            return true_seconds
    return _predicted_seconds_left(job, kind, devices, pool)


def _largest_kind(job: JobSnapshot, pool: Pool) -> str | None:
    """Return the kind with the most devices among those the job may use; None if there is none."""
    parts = pool.for_job(job)
    return max(parts, key=lambda kind: parts[kind].devices, default=None)


def _true_seconds_left(truth: GroundTruth, kind: str | None, devices: int) -> float | None:
    """Return the simulated seconds left on so many devices; None if their step time is unknown."""
    step_seconds = truth.step_seconds_on(kind).get(devices)
    return None if step_seconds is None else step_seconds * truth.remaining_steps


def _predicted_seconds_left(
    job: JobSnapshot, kind: str | None, devices: int, pool: Pool
) -> float | None:
    """Return the predicted seconds left at the initial batch; None where nothing is known.

    At the initial batch the statistical efficiency is 1: every example counts in full.
    """
    model = None if kind is None else job.models.get(kind)
    if kind is None or model is None or job.remaining_examples is None:
        return None
    rigid = replace(job.batch, adaptive=False)
    machines = pool.by_kind()[kind].fewest_machines()
    used = min(devices, rigid.initial, len(machines))
    if used < 1:
        return None
    point = predictor_of((model.point,))
    (rate,) = goodput_table(point, 0.0, rigid, machines[used - 1 : used], np.array([used]))
    return job.remaining_examples / float(rate[0]) if rate[0] > 0 else None
