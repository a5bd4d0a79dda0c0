"""Themis: jobs furthest from their fair finish are served first. Rigid jobs on a fixed pool.

Source: Mahajan et al., Themis (NSDI'20), sections 3 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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
from autoscaler.policies.published.alone import Alone, alone, contention, usual_seconds_left
from autoscaler.policies.published.leases import lease_runs


@dataclass(frozen=True, slots=True)
class ThemisParameters:
    """Parameters of the auction.

    Attributes:
        fairness: f; devices are first offered to the fraction 1 - f of the jobs with the worst
            finish-time ratio (section 4.2; 0.8 in section 8).
        lease_seconds: time for which a job keeps the devices it wins.

    Raises:
        ValueError: fairness is not from 0 to 1, or a lease is not above 0.
    """

    fairness: float = 0.8
    lease_seconds: float = 1200.0

    def __post_init__(self) -> None:
        if not 0 <= self.fairness <= 1:
            raise ValueError(f"fairness={self.fairness}: must be from 0 to 1")
        if not self.lease_seconds > 0:
            raise ValueError(f"lease_seconds={self.lease_seconds}: must be above 0")


_DEFAULTS = ThemisParameters()


class ThemisPolicy:
    """Leases of devices, auctioned when they end.

    A job keeps its devices while its lease runs. The rest is offered to the jobs with the worst
    finish-time ratio (rho), in the order by which winning raises the product of all 1/rho the most
    per device. Devices left then go to the other jobs, worst ratio first. All jobs have one owner,
    for whom a false bid gains nothing, so there are no hidden payments (section 4.3). A simulation
    supplies the time left of each job.
    """

    adapts_batch = False
    only_on = "pool"
    oracle = True

    def __init__(self, parameters: ThemisParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan all jobs of the snapshot; see `Policy.plan`."""
        pool = pool_of(snapshot)
        jobs_per_device = contention(len(snapshot.jobs), pool)
        times_by_job = {
            job.id: alone(job, pool, snapshot, usual_seconds_left(job, pool))
            for job in snapshot.jobs
        }
        ratios = {
            job: times.finish_time_ratio(jobs_per_device) for job, times in times_by_job.items()
        }
        lease = self._parameters.lease_seconds
        leased = [job for job in by_submission(snapshot.jobs) if lease_runs(job, snapshot, lease)]
        leased_ids = {job.id for job in leased}
        others = [job for job in by_submission(snapshot.jobs) if job.id not in leased_ids]
        offered_first = self._worst(ratios)
        gains = {
            job.id: self._gain(times_by_job[job.id], jobs_per_device, requested(job, pool))
            for job in others
        }
        others.sort(
            key=lambda job: (
                job.id not in offered_first,
                -gains[job.id] if job.id in offered_first else -ratios[job.id],
            )
        )
        queue = [*leased, *others]
        sizes = gangs(queue, pool, pool.available)
        grants = {
            job.id: Grant(
                sizes[job.id], _reason(job, ratios[job.id], job.id in leased_ids, sizes, pool)
            )
            for job in queue
        }
        return plan_of(snapshot, pool, queue, grants)

    def _worst(self, ratios: Mapping[str, float]) -> frozenset[str]:
        """Return the ids of the jobs that are offered devices first, at least one."""
        count = math.ceil((1 - self._parameters.fairness) * len(ratios))
        worst_first: Sequence[str] = sorted(ratios, key=lambda job: (-ratios[job], job))
        return frozenset(worst_first[: max(count, 1)])

    def _gain(self, times: Alone, jobs_per_device: float, devices: int) -> float:
        """Return the gain of log(1/rho) per device by a lease, over a lease spent waiting."""
        lease_seconds = min(self._parameters.lease_seconds, times.left_seconds)
        if lease_seconds <= 0:
            return math.inf
        won = replace(
            times,
            ran_seconds=times.ran_seconds + lease_seconds,
            left_seconds=times.left_seconds - lease_seconds,
        )
        lost = replace(times, waited_seconds=times.waited_seconds + lease_seconds)
        if not won.finish_time_ratio(jobs_per_device) > 0:
            return math.inf
        ratio = lost.finish_time_ratio(jobs_per_device) / won.finish_time_ratio(jobs_per_device)
        return math.log(ratio) / max(devices, 1)


def _reason(
    job: JobSnapshot, ratio: float, is_leased: bool, sizes: Mapping[str, int], pool: Pool
) -> str:
    summary = f"finish-time ratio {number(ratio)}"
    if is_leased and sizes[job.id] > 0:
        return f"{summary}, its lease runs"
    if sizes[job.id] > 0:
        return summary
    return f"{summary}; {requested(job, pool)} of {pool.devices} devices go to jobs further behind"
