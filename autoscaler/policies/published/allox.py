"""AlloX: a min-cost matching of jobs to devices that minimises the total completion time.

Running jobs are not interrupted. Source: Le et al., AlloX (EuroSys'20), section 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from scipy.optimize import linear_sum_assignment

from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.pricing.wording import duration
from autoscaler.policies.pools.pool import (
    Grant,
    Pool,
    by_submission,
    gangs,
    plan_of,
    pool_of,
    requested,
)
from autoscaler.policies.published.alone import seconds_left

_LEAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class AlloxParameters:
    """Share of the waiting jobs that is matched.

    Attributes:
        alpha: fraction of the waiting jobs that is matched, those with the least attained service
            first, but at least as many jobs as there are free devices. 1 minimises the waiting
            time, less is fairer (section 4.3). 0.2 is the value of the port that Shockwave
            (NSDI'23) compares with.

    Raises:
        ValueError: alpha is not above 0 and at most 1.
    """

    alpha: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1:
            raise ValueError(f"alpha={self.alpha}: must be above 0 and at most 1")


_DEFAULTS = AlloxParameters()


class AlloxPolicy:
    """Least sum of completion times, by a matching of jobs to queue positions on the devices.

    The k-th last job on a device delays k jobs, itself included, by its own run time, so its
    position costs k times that run time (section 4.2). The first job of each device starts. The
    matching assumes one device a job. A job that asked for more counts with its device-seconds
    left and starts when enough devices are free. A simulation supplies the run time left of each
    job.
    """

    adapts_batch = False
    only_on = "pool"
    oracle = True

    def __init__(self, parameters: AlloxParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan all jobs of the snapshot; see `Policy.plan`."""
        pool = pool_of(snapshot)
        jobs = by_submission(snapshot.jobs)
        running = [job for job in jobs if job.placement is not None]
        waiting = [job for job in jobs if job.placement is None]
        seconds_left_by_job = _seconds_left_by_job(jobs, pool)
        free = pool.available - sum(gangs(running, pool, pool.available).values())
        chosen = self._matched_jobs(waiting, free)
        ids = {job.id for job in chosen}
        matched = _queue_order(
            chosen,
            {job.id: seconds_left_by_job[job.id] * requested(job, pool) for job in jobs},
            free,
        )
        queue = [*running, *matched, *(job for job in waiting if job.id not in ids)]
        sizes = gangs(queue, pool, pool.available)
        grants = {
            job.id: Grant(
                sizes[job.id], _reason(job, seconds_left_by_job[job.id], sizes[job.id], pool)
            )
            for job in queue
        }
        return plan_of(snapshot, pool, queue, grants)

    def _matched_jobs(self, waiting: Sequence[JobSnapshot], free: int) -> list[JobSnapshot]:
        """Return the waiting jobs that take part in the matching, least attained service first."""
        count = max(math.floor(self._parameters.alpha * len(waiting)), free)
        return sorted(waiting, key=lambda job: job.service.attained_device_seconds)[:count]


def _seconds_left_by_job(jobs: Sequence[JobSnapshot], pool: Pool) -> dict[str, float]:
    """Return the seconds left of each job by id; the median of all where a job's are unknown."""
    known_seconds = {job.id: seconds_left(job, pool) for job in jobs}
    median_seconds = median(
        [seconds for seconds in known_seconds.values() if seconds is not None] or [_LEAST_SECONDS]
    )
    return {
        job: median_seconds if seconds is None else seconds
        for job, seconds in known_seconds.items()
    }


def _queue_order(
    jobs: Sequence[JobSnapshot], device_seconds: Mapping[str, float], devices: int
) -> list[JobSnapshot]:
    """Return the jobs in matched order: the first of each device, shortest first, then the second.

    With D equal devices, ceil(jobs / D) positions on each device hold all jobs.
    """
    if not jobs or devices < 1:
        return list(jobs)
    positions = np.repeat(np.arange(1, math.ceil(len(jobs) / devices) + 1), devices)
    seconds = np.array([max(device_seconds[job.id], _LEAST_SECONDS) for job in jobs])
    rows, columns = linear_sum_assignment(np.outer(seconds, positions))
    from_last = dict(zip(rows.tolist(), positions[columns].tolist(), strict=True))
    longest = dict.fromkeys(range(devices), 0)
    for column in columns.tolist():
        longest[column % devices] = max(longest[column % devices], int(positions[column]))
    rank = {
        row: longest[column % devices] - from_last[row]
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
    }
    order = sorted(rank, key=lambda row: (rank[row], seconds[row], jobs[row].id))
    return [jobs[row] for row in order]


def _reason(job: JobSnapshot, left_seconds: float, size: int, pool: Pool) -> str:
    time_left = f"{duration(left_seconds)} left"
    if job.placement is not None and size > 0:
        return f"{time_left}, running jobs are not interrupted"
    if size > 0:
        return f"{time_left}, first in the queue"
    return f"{time_left}; {requested(job, pool)} of {pool.devices} devices go to earlier jobs"
