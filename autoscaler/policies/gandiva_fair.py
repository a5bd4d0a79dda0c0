"""Gandiva-Fair: devices by tickets, a quantum at a time. Rigid jobs on a fixed pool.

Source: Chaudhary et al., Balancing efficiency and fairness in heterogeneous GPU clusters for deep
learning (EuroSys'20), section 4.1, gang-aware stride scheduling.
"""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.wording import number
from autoscaler.policies.pool import Grant, Pool, by_submission, gangs, plan_of, pool_of, requested

_LEAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class GandivaFairParameters:
    """How a quantum is charged.

    Attributes:
        is_gang_aware: a quantum costs a job as many tickets as it has devices (section 4.1);
            otherwise all have equal time whatever they ask for, as in the port that Shockwave
            (NSDI'23) compares itself with.
    """

    is_gang_aware: bool = True


_DEFAULTS = GandivaFairParameters()
_BY_TIME = GandivaFairParameters(is_gang_aware=False)


class GandivaFairPolicy:
    """Whoever has had the least for its tickets runs next, if it fits in what is left.

    A job has as many tickets as its weight. Its pass value is what it was charged for a ticket,
    by the second since it was submitted: so one that comes later has no more to make up for than
    its own life, and nothing has to be remembered. A quantum is the time between plans. Jobs of
    the same owner do not share tickets, and devices of several kinds are not traded (section 4.3).
    """

    adapts_batch = False
    only_on = "pool"

    def __init__(self, parameters: GandivaFairParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """As `Policy.plan`."""
        pool = pool_of(snapshot)
        passes = {job.id: self._pass(job, pool, snapshot.now_seconds) for job in snapshot.jobs}
        queue = sorted(by_submission(snapshot.jobs), key=lambda job: passes[job.id])
        sizes = gangs(queue, pool, pool.available)
        grants = {
            job.id: Grant(sizes[job.id], _why(job, passes[job.id], sizes[job.id], pool))
            for job in queue
        }
        return plan_of(snapshot, pool, queue, grants)

    def _pass(self, job: JobSnapshot, pool: Pool, now_seconds: float) -> float:
        age_seconds = max(now_seconds - job.submitted_seconds, _LEAST_SECONDS)
        charged = job.service.attained_device_seconds / (age_seconds * max(job.weight, 1e-9))
        return (
            charged if self._parameters.is_gang_aware else charged / max(requested(job, pool), 1)
        )


class GandivaFairByTimePolicy(GandivaFairPolicy):
    """Equal time for all, as "Gandiva-Fair" is run in Shockwave (NSDI'23), section 8."""

    def __init__(self, parameters: GandivaFairParameters = _BY_TIME) -> None:
        super().__init__(parameters)


def _why(job: JobSnapshot, charged: float, size: int, pool: Pool) -> str:
    share = f"{number(charged)} devices a ticket on average so far"
    if size > 0:
        return share
    return f"{share}; {requested(job, pool)} of {pool.devices} devices not left by those with less"
