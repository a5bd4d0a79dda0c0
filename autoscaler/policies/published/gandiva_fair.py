"""Gandiva-Fair: devices in proportion to tickets, by the quantum. Rigid jobs on a fixed pool.

Source: Chaudhary et al., Balancing efficiency and fairness in heterogeneous GPU clusters for deep
learning (EuroSys'20), section 4.1, gang-aware stride scheduling.
"""

from __future__ import annotations

from dataclasses import dataclass

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

_LEAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class GandivaFairParameters:
    """Charge for a quantum.

    Attributes:
        is_gang_aware: whether a quantum costs a job one ticket per device (section 4.1). Otherwise
            all jobs get equal time whatever they ask for, as in the port that Shockwave (NSDI'23)
            compares with.
    """

    is_gang_aware: bool = True


_DEFAULTS = GandivaFairParameters()
_BY_TIME = GandivaFairParameters(is_gang_aware=False)


class GandivaFairPolicy:
    """Stride scheduling: the lowest pass value runs next, if the job fits the devices left.

    A job has as many tickets as its weight. Its pass value is the service charged per ticket and
    per second since its submission. A late job therefore does not catch up on time before its
    submission, and the policy keeps no state. A quantum is the time between plans. Jobs of one
    owner do not share tickets, and devices of several kinds are not traded (section 4.3).
    """

    adapts_batch = False
    only_on = "pool"

    def __init__(self, parameters: GandivaFairParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan all jobs of the snapshot; see `Policy.plan`."""
        pool = pool_of(snapshot)
        passes = {
            job.id: self._pass_value(job, pool, snapshot.now_seconds) for job in snapshot.jobs
        }
        queue = sorted(by_submission(snapshot.jobs), key=lambda job: passes[job.id])
        sizes = gangs(queue, pool, pool.available)
        grants = {
            job.id: Grant(sizes[job.id], _reason(job, passes[job.id], sizes[job.id], pool))
            for job in queue
        }
        return plan_of(snapshot, pool, queue, grants)

    def _pass_value(self, job: JobSnapshot, pool: Pool, now_seconds: float) -> float:
        """Return the average devices charged per ticket since submission."""
        age_seconds = max(now_seconds - job.submitted_seconds, _LEAST_SECONDS)
        charged = job.service.attained_device_seconds / (age_seconds * max(job.weight, 1e-9))
        return (
            charged if self._parameters.is_gang_aware else charged / max(requested(job, pool), 1)
        )


class GandivaFairByTimePolicy(GandivaFairPolicy):
    """Equal time for all jobs: "Gandiva-Fair" as run in Shockwave (NSDI'23), section 8."""

    def __init__(self, parameters: GandivaFairParameters = _BY_TIME) -> None:
        super().__init__(parameters)


def _reason(job: JobSnapshot, charged: float, size: int, pool: Pool) -> str:
    share = f"{number(charged)} devices per ticket on average so far"
    if size > 0:
        return share
    return f"{share}; {requested(job, pool)} of {pool.devices} devices go to jobs with less"
