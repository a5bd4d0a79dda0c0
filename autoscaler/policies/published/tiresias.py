"""Tiresias: jobs with the least attained service are served first. Rigid jobs on a fixed pool.

Source: Gu et al., Tiresias (NSDI'19), section 3.2, discretised two-dimensional least attained
service; threshold, order and placement as in its port in the simulator of Pollux (OSDI'21).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.pricing.wording import number
from autoscaler.policies.pools.pool import (
    Grant,
    Pool,
    by_submission,
    gangs,
    plan_of,
    pool_of,
    requested,
)

_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class TiresiasParameters:
    """Queues by attained service.

    Attributes:
        thresholds_device_seconds: attained service at which a job enters the next queue,
            ascending; by default one threshold of 16 device-hours.
        promotion: ratio of waiting to running time since the start at which a job returns to the
            first queue; 0 for never.

    Raises:
        ValueError: the thresholds do not ascend from above 0, or promotion is negative.
    """

    thresholds_device_seconds: tuple[float, ...] = (57_600.0,)
    promotion: float = 0.0

    def __post_init__(self) -> None:
        thresholds = (0.0, *self.thresholds_device_seconds)
        if any(first >= second for first, second in pairwise(thresholds)):
            raise ValueError(f"thresholds_device_seconds={thresholds[1:]}: must ascend from 0")
        if self.promotion < 0:
            raise ValueError(f"promotion={self.promotion}: must be 0 or more")


_DEFAULTS = TiresiasParameters()


# Queue of a job, and the sort key within it; lower is served first.
Rank = tuple[int, float]


@dataclass(frozen=True, slots=True)
class Turn:
    """Queue of a job, and the time at which the job entered it, in seconds."""

    queue: int
    since_seconds: float


class TiresiasPolicy:
    """Multi-level queue by attained service, first come, first served within a queue.

    Queues are served from first to last: each job that fits the devices left runs, the others
    release theirs. The remaining work of a job is unknown and not used.

    A job enters the first queue at submission. It enters a later queue at the earliest time at
    which its service can have reached the threshold; the port keeps the time of observation.
    Promotion counts the waiting of a job's whole life, where the port restarts the count at each
    promotion. So the policy keeps no state.
    """

    adapts_batch = False
    only_on = "pool"

    def __init__(self, parameters: TiresiasParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan all jobs of the snapshot; see `Policy.plan`."""
        pool = pool_of(snapshot)
        turns = {job.id: self._turn(job, pool, snapshot.now_seconds) for job in snapshot.jobs}
        queue = sorted(
            by_submission(snapshot.jobs), key=lambda job: self._rank(job, turns[job.id])
        )
        sizes = gangs(queue, pool, pool.available)
        grants = {
            job.id: Grant(sizes[job.id], _reason(job, turns[job.id], sizes[job.id], pool))
            for job in queue
        }
        return plan_of(snapshot, pool, queue, grants)

    def _rank(self, job: JobSnapshot, turn: Turn) -> Rank:
        """Return the sort key of the job; the lowest is served first."""
        return turn.queue, turn.since_seconds

    def _turn(self, job: JobSnapshot, pool: Pool, now_seconds: float) -> Turn:
        """Return the queue of the job and the time it entered it."""
        service, thresholds = job.service, self._parameters.thresholds_device_seconds
        queue = bisect_right(thresholds, service.attained_device_seconds)
        if queue == 0 or service.started_seconds is None or pool.devices == 0:
            return Turn(0, job.submitted_seconds)
        size = requested(job, pool)
        ran_seconds = service.attained_device_seconds / size
        waited_seconds = now_seconds - service.started_seconds - ran_seconds
        promotion = self._parameters.promotion
        if promotion > 0 and waited_seconds >= promotion * ran_seconds:
            return Turn(0, job.submitted_seconds)
        return Turn(queue, service.started_seconds + thresholds[queue - 1] / size)


def _reason(job: JobSnapshot, turn: Turn, size: int, pool: Pool) -> str:
    hours = number(job.service.attained_device_seconds / _SECONDS_PER_HOUR)
    summary = f"queue {turn.queue + 1}, {hours} device-hours attained"
    if size > 0:
        return summary
    return f"{summary}; {requested(job, pool)} of {pool.devices} devices go to jobs before it"
