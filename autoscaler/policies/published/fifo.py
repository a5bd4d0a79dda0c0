"""First come, first served on a fixed pool, without preemption."""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import Snapshot
from autoscaler.policies.pools.pool import Grant, by_submission, gangs, plan_of, pool_of, requested


@dataclass(frozen=True, slots=True)
class FifoParameters:
    """Parameters of first come, first served.

    Attributes:
        backfill: whether a job that fits may start before an earlier one that does not.
    """

    backfill: bool = False


_DEFAULTS = FifoParameters()


class FifoPolicy:
    """Each job gets the devices it asked for, in the order of submission, until it ends."""

    adapts_batch = False
    only_on = "pool"

    def __init__(self, parameters: FifoParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan all jobs of the snapshot; see `Policy.plan`."""
        pool = pool_of(snapshot)
        jobs = by_submission(snapshot.jobs)
        queue = sorted(jobs, key=lambda job: job.placement is None)
        sizes = gangs(queue, pool, pool.available, self._parameters.backfill)
        grants = {
            job.id: Grant(
                sizes[job.id],
                "first come, first served"
                if sizes[job.id]
                else f"{requested(job, pool)} of {pool.devices} devices go to earlier jobs",
            )
            for job in queue
        }
        return plan_of(snapshot, pool, queue, grants)
