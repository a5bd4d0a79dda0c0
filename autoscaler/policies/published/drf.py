"""Dominant resource fairness on a fixed pool: one device at a time to the lowest share.

Source: Ghodsi et al., "Dominant Resource Fairness" (NSDI'11), section 4.1, progressive filling.
The resources are the kinds of device, and a task is one device. With one kind the result is
max-min fair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.pricing.wording import percent
from autoscaler.policies.pools.bounds import replica_devices
from autoscaler.policies.pools.pool import (
    Grant,
    Pool,
    Turns,
    by_submission,
    plan_of,
    pool_of,
    requested,
)


@dataclass(frozen=True, slots=True)
class DrfParameters:
    """Parameters of dominant resource fairness.

    Attributes:
        weighted: whether a job's share is divided by its weight (section 4.3).
    """

    weighted: bool = True


_DEFAULTS = DrfParameters()


class DrfPolicy:
    """Progressive filling: the lowest dominant share gets the next device, up to each request.

    A job's dominant share is its fraction of all devices of its kind. A job has devices of one
    kind at a time, so that kind is its only and dominant resource: the kind that it holds, or the
    one with the most devices left. Equal shares are served in the order of submission.
    """

    adapts_batch = False
    only_on = "pool"

    def __init__(self, parameters: DrfParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan all jobs of the snapshot; see `Policy.plan`."""
        pool = pool_of(snapshot)
        queue = by_submission(snapshot.jobs)
        turns = Turns(pool, queue)
        kinds = {job.id: turns.take(job, 1) for job in queue}
        sizes = self._progressive_filling(queue, kinds, pool)
        grants = {}
        for job in queue:
            kind, size = kinds[job.id], sizes[job.id]
            share = size / pool.by_kind()[kind].devices if kind is not None else 0.0
            reason = f"{percent(share)} of these devices; {requested(job, pool)} asked for"
            grants[job.id] = Grant(size, reason, kind)
        smallest_first = sorted(queue, key=lambda job: sizes[job.id])
        return plan_of(snapshot, pool, smallest_first, grants)

    def _progressive_filling(
        self, queue: Sequence[JobSnapshot], kinds: Mapping[str, str | None], pool: Pool
    ) -> dict[str, int]:
        """Return devices by job id."""
        parts = pool.by_kind()
        free = {kind: part.available for kind, part in parts.items()}
        sizes = dict.fromkeys((job.id for job in queue), 0)
        heap = [(0.0, index) for index in range(len(queue))]
        while heap:
            _, index = heappop(heap)
            job, kind = queue[index], kinds[queue[index].id]
            if kind is None:
                continue
            replica = replica_devices(job)
            most = min(requested(job, pool), parts[kind].most_of(job))
            if free[kind] < replica or sizes[job.id] + replica > most:
                continue
            free[kind] -= replica
            sizes[job.id] += replica
            weight = job.weight if self._parameters.weighted else 1.0
            heappush(heap, (sizes[job.id] / parts[kind].devices / weight, index))
        return sizes
