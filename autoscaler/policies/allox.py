"""AlloX: jobs matched to devices so that they wait the least in all. Nobody is interrupted.

Source: Le et al., AlloX (EuroSys'20), section 4.
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
from autoscaler.economics.wording import duration
from autoscaler.policies.alone import seconds_left
from autoscaler.policies.pool import Grant, Pool, by_submission, gangs, plan_of, pool_of, requested

_LEAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class AlloxParameters:
    """Who is matched.

    Attributes:
        alpha: of the jobs that wait this part is matched, those that have had the least, though
            never fewer than there are free devices: 1 for the least waiting, less for fairness
            (section 4.3); 0.2 as in the port that Shockwave (NSDI'23) compares itself with.

    Raises:
        ValueError: alpha is not above 0 and at most 1.
    """

    alpha: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1:
            raise ValueError(f"alpha={self.alpha}: must be above 0 and at most 1")


_DEFAULTS = AlloxParameters()


class AlloxPolicy:
    """The least sum of completion times, by a matching of jobs to places in line.

    The job that is k-th from the last on a device makes k jobs wait for as long as it takes, so
    its place costs k times that (section 4.2). The first of each device start. The matching takes
    jobs to have one device each; one that asked for more weighs as much as it has device-seconds
    left, and starts when as many are free. A simulation tells how long jobs have left.
    """

    adapts_batch = False
    only_on = "pool"
    oracle = True

    def __init__(self, parameters: AlloxParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """As `Policy.plan`."""
        pool = pool_of(snapshot)
        jobs = by_submission(snapshot.jobs)
        running = [job for job in jobs if job.placement is not None]
        waiting = [job for job in jobs if job.placement is None]
        left = _left_seconds(jobs, pool)
        free = pool.available - sum(gangs(running, pool, pool.available).values())
        chosen = self._chosen(waiting, free)
        ids = {job.id for job in chosen}
        line = _in_line(
            chosen, {job.id: left[job.id] * requested(job, pool) for job in jobs}, free
        )
        queue = [*running, *line, *(job for job in waiting if job.id not in ids)]
        sizes = gangs(queue, pool, pool.available)
        grants = {
            job.id: Grant(sizes[job.id], _why(job, left[job.id], sizes[job.id], pool))
            for job in queue
        }
        return plan_of(snapshot, pool, queue, grants)

    def _chosen(self, waiting: Sequence[JobSnapshot], free: int) -> list[JobSnapshot]:
        """The jobs that are matched, those that have had the least first."""
        count = max(math.floor(self._parameters.alpha * len(waiting)), free)
        return sorted(waiting, key=lambda job: job.service.attained_device_seconds)[:count]


def _left_seconds(jobs: Sequence[JobSnapshot], pool: Pool) -> dict[str, float]:
    """Of a job of which nothing is known it is what others have in the middle."""
    found = {job.id: seconds_left(job, pool) for job in jobs}
    usual = median([each for each in found.values() if each is not None] or [_LEAST_SECONDS])
    return {job: usual if each is None else each for job, each in found.items()}


def _in_line(
    jobs: Sequence[JobSnapshot], device_seconds: Mapping[str, float], devices: int
) -> list[JobSnapshot]:
    """The first of each device, the shortest first, then the second of each, and so on.

    Devices that are alike need no more places than hold all jobs.
    """
    if not jobs or devices < 1:
        return list(jobs)
    places = np.repeat(np.arange(1, math.ceil(len(jobs) / devices) + 1), devices)
    seconds = np.array([max(device_seconds[job.id], _LEAST_SECONDS) for job in jobs])
    rows, columns = linear_sum_assignment(np.outer(seconds, places))
    from_last = dict(zip(rows.tolist(), places[columns].tolist(), strict=True))
    longest = dict.fromkeys(range(devices), 0)
    for column in columns.tolist():
        longest[column % devices] = max(longest[column % devices], int(places[column]))
    turn = {
        row: longest[column % devices] - from_last[row]
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
    }
    order = sorted(turn, key=lambda row: (turn[row], seconds[row], jobs[row].id))
    return [jobs[row] for row in order]


def _why(job: JobSnapshot, left_seconds: float, size: int, pool: Pool) -> str:
    left = f"{duration(left_seconds)} left"
    if job.placement is not None and size > 0:
        return f"{left}, nobody is interrupted"
    if size > 0:
        return f"{left}, the first in line"
    return f"{left}; its turn for {requested(job, pool)} of {pool.devices} devices has not come"
