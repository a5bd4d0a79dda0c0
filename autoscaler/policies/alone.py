"""Rigid jobs as if they were alone: how long they have run, have yet to, and would fairly take."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autoscaler.domain.snapshot import JobSnapshot, Snapshot, Truth
from autoscaler.goodput.batch import goodput_table
from autoscaler.goodput.formulas import predictor_of
from autoscaler.policies.pool import Pool, requested

_LEAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Alone:
    """One job: seconds that it has run and that it has left on what it asked for.

    `waited_seconds` are those since its submission in which it did not run, `contention` was the
    number of jobs to a device on average in that time.
    """

    ran_seconds: float
    left_seconds: float
    waited_seconds: float
    contention: float

    def finish_time_ratio(self, contention: float) -> float:
        """Themis's rho: how long the job takes over how long it would with a fair share.

        It is taken to have its share, one part in `contention` of the time, from now on; a fair
        share of the whole was what it was so far. Source: Themis (NSDI'20), section 3.
        """
        return self.ratio_of_finish(contention * self.left_seconds)

    def ratio_of_finish(self, seconds: float) -> float:
        """The same for a job that will have ended in so many seconds."""
        fair_seconds = self.contention * max(self.ran_seconds + self.left_seconds, _LEAST_SECONDS)
        return (self.ran_seconds + self.waited_seconds + seconds) / fair_seconds


def contention(jobs: float, pool: Pool) -> float:
    """How many jobs there are to a device, at least 1."""
    return max(jobs / max(pool.devices, 1), 1.0)


def alone(job: JobSnapshot, pool: Pool, snapshot: Snapshot, left_seconds: float) -> Alone:
    """What is known of a job that has so long left."""
    age_seconds = max(snapshot.now_seconds - job.submitted_seconds, 0.0)
    ran = min(ran_seconds(job, pool), age_seconds)
    mean_jobs = job.service.mean_active_jobs or len(snapshot.jobs)
    return Alone(ran, left_seconds, age_seconds - ran, contention(mean_jobs, pool))


def ran_seconds(job: JobSnapshot, pool: Pool) -> float:
    """How long it has had what it asked for."""
    return job.service.attained_device_seconds / max(requested(job, pool), 1)


def usual_seconds_left(job: JobSnapshot, pool: Pool) -> float:
    """As `seconds_left`; where nothing is known, as much as it has run."""
    found = seconds_left(job, pool)
    return max(ran_seconds(job, pool), _LEAST_SECONDS) if found is None else found


def seconds_left(job: JobSnapshot, pool: Pool) -> float | None:
    """How long it would yet take on the devices it asked for, if it goes on as now.

    As a simulation tells it, or by the point estimate of its model at the batch requested; on
    the kind of device that it holds, or else the usual one. None where nothing is known.
    """
    kind = pool.kind_of(job.placement) or _usual_kind(job, pool)
    devices = requested(job, pool)
    if job.truth is not None:
        told = _told_seconds(job.truth, kind, devices)
        if told is not None:
            return told
    return _predicted_seconds(job, kind, devices, pool)


def _usual_kind(job: JobSnapshot, pool: Pool) -> str | None:
    """Of the kinds that it may use the one with most devices."""
    parts = pool.for_job(job)
    return max(parts, key=lambda kind: parts[kind].devices, default=None)


def _told_seconds(truth: Truth, kind: str | None, devices: int) -> float | None:
    step_seconds = truth.step_seconds_on(kind).get(devices)
    return None if step_seconds is None else step_seconds * truth.remaining_steps


def _predicted_seconds(
    job: JobSnapshot, kind: str | None, devices: int, pool: Pool
) -> float | None:
    """At the initial batch every example is a useful one."""
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
