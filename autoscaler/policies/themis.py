"""Themis: jobs that are furthest from their fair finish go first. Rigid jobs on a fixed pool.

Source: Mahajan et al., Themis (NSDI'20), sections 3 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.wording import number
from autoscaler.policies.alone import Alone, alone, contention, usual_seconds_left
from autoscaler.policies.leases import lease_runs
from autoscaler.policies.pool import Grant, Pool, by_submission, gangs, plan_of, pool_of, requested


@dataclass(frozen=True, slots=True)
class ThemisParameters:
    """The auction.

    Attributes:
        fairness: f, devices are first offered to this part less than 1 of the jobs, those with
            the worst finish-time ratio (section 4.2; 0.8 in section 8).
        lease_seconds: how long a job keeps what it has won.

    Raises:
        ValueError: fairness is not from 0 to 1, or a lease has no length.
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

    Whose lease runs keeps its devices. The rest is offered to the jobs with the worst finish-time
    ratio (rho); of these first to those whose winning raises the product of all 1/rho the most
    for a device; what they leave goes to the others, the worst first. All jobs are one owner's,
    who gains nothing from lying: so there are no hidden payments (section 4.3). A simulation tells
    how long jobs have left.
    """

    adapts_batch = False
    only_on = "pool"
    oracle = True

    def __init__(self, parameters: ThemisParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """As `Policy.plan`."""
        pool = pool_of(snapshot)
        crowd = contention(len(snapshot.jobs), pool)
        known = {
            job.id: alone(job, pool, snapshot, usual_seconds_left(job, pool))
            for job in snapshot.jobs
        }
        ratios = {job: own.finish_time_ratio(crowd) for job, own in known.items()}
        lease = self._parameters.lease_seconds
        leased = [job for job in by_submission(snapshot.jobs) if lease_runs(job, snapshot, lease)]
        ids = {job.id for job in leased}
        others = [job for job in by_submission(snapshot.jobs) if job.id not in ids]
        first = self._worst(ratios)
        gains = {job.id: self._gain(known[job.id], crowd, requested(job, pool)) for job in others}
        others.sort(
            key=lambda job: (
                job.id not in first,
                -gains[job.id] if job.id in first else -ratios[job.id],
            )
        )
        queue = [*leased, *others]
        sizes = gangs(queue, pool, pool.available)
        grants = {
            job.id: Grant(sizes[job.id], _why(job, ratios[job.id], job.id in ids, sizes, pool))
            for job in queue
        }
        return plan_of(snapshot, pool, queue, grants)

    def _worst(self, ratios: Mapping[str, float]) -> frozenset[str]:
        """The jobs that are offered devices first, at least one."""
        count = math.ceil((1 - self._parameters.fairness) * len(ratios))
        worst_first: Sequence[str] = sorted(ratios, key=lambda job: (-ratios[job], job))
        return frozenset(worst_first[: max(count, 1)])

    def _gain(self, own: Alone, crowd: float, devices: int) -> float:
        """What a lease adds to the logarithm of 1/rho, a device."""
        lease_seconds = min(self._parameters.lease_seconds, own.left_seconds)
        if lease_seconds <= 0:
            return math.inf
        won = replace(
            own,
            ran_seconds=own.ran_seconds + lease_seconds,
            left_seconds=own.left_seconds - lease_seconds,
        )
        lost = replace(own, waited_seconds=own.waited_seconds + lease_seconds)
        if not won.finish_time_ratio(crowd) > 0:
            return math.inf
        ratio = lost.finish_time_ratio(crowd) / won.finish_time_ratio(crowd)
        return math.log(ratio) / max(devices, 1)


def _why(
    job: JobSnapshot, ratio: float, is_leased: bool, sizes: Mapping[str, int], pool: Pool
) -> str:
    standing = f"finish-time ratio {number(ratio)}"
    if is_leased and sizes[job.id] > 0:
        return f"{standing}, its lease runs"
    if sizes[job.id] > 0:
        return standing
    return f"{standing}; {requested(job, pool)} of {pool.devices} devices not left by those worse"
