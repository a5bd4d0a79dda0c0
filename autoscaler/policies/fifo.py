"""First come, first served on a fixed pool; nobody is interrupted."""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import Snapshot
from autoscaler.policies.pool import Grant, by_submission, gangs, plan_of, pool_of, requested


@dataclass(frozen=True, slots=True)
class FifoParameters:
    """`backfill`: a job that fits may start before an earlier one that does not."""

    backfill: bool = False


_DEFAULTS = FifoParameters()


class FifoPolicy:
    """Each job gets what it asked for, in the order of submission, until it ends."""

    adapts_batch = False

    def __init__(self, parameters: FifoParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """As `Policy.plan`."""
        pool = pool_of(snapshot)
        queue = by_submission(snapshot.jobs)
        sizes = gangs((job for job in queue if job.placement), pool, pool.available)
        waiting = [job for job in queue if not job.placement]
        free = pool.available - sum(sizes.values())
        sizes |= gangs(waiting, pool, free, self._parameters.backfill)
        grants = {
            job.id: Grant(
                sizes[job.id],
                "first come, first served"
                if sizes[job.id]
                else f"its turn for {requested(job, pool)} of {pool.devices} devices has not come",
            )
            for job in queue
        }
        return plan_of(snapshot, pool, queue, grants)
