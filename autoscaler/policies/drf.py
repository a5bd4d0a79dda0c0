"""Dominant resource fairness: one device at a time to whoever has the least. A fixed pool.

Source: Ghodsi et al., "Dominant Resource Fairness" (NSDI'11), section 4.1, progressive filling.
The resources are the kinds of device, and a task is one device. On one kind it comes to max-min
fairness.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.wording import percent
from autoscaler.policies.pool import (
    Grant,
    Pool,
    Turns,
    by_submission,
    plan_of,
    pool_of,
    requested,
)
from autoscaler.policies.pool_bounds import stages_of


@dataclass(frozen=True, slots=True)
class DrfParameters:
    """`weighted`: a share counts as by the job's weight (section 4.3)."""

    weighted: bool = True


_DEFAULTS = DrfParameters()


class DrfPolicy:
    """The lowest dominant share is given the next device, up to what each job asked for.

    A job's dominant share is that of all devices of its kind that it has. It has devices of one
    kind at a time, so it has one resource, which is dominant: the kind that it holds, or of which
    most is left. Equal shares go by submission.
    """

    adapts_batch = False
    only_on = "pool"

    def __init__(self, parameters: DrfParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """As `Policy.plan`."""
        pool = pool_of(snapshot)
        queue = by_submission(snapshot.jobs)
        turns = Turns(pool, queue)
        kinds = {job.id: turns.take(job, 1) for job in queue}
        sizes = self._filled(queue, kinds, pool)
        grants = {}
        for job in queue:
            kind, size = kinds[job.id], sizes[job.id]
            share = size / pool.by_kind()[kind].devices if kind is not None else 0.0
            why = f"{percent(share)} of these devices; {requested(job, pool)} asked for"
            grants[job.id] = Grant(size, why, kind)
        smallest_first = sorted(queue, key=lambda job: sizes[job.id])
        return plan_of(snapshot, pool, smallest_first, grants)

    def _filled(
        self, queue: Sequence[JobSnapshot], kinds: Mapping[str, str | None], pool: Pool
    ) -> dict[str, int]:
        parts = pool.by_kind()
        left = {kind: part.available for kind, part in parts.items()}
        sizes = dict.fromkeys((job.id for job in queue), 0)
        heap = [(0.0, turn) for turn in range(len(queue))]
        while heap:
            _, turn = heappop(heap)
            job, kind = queue[turn], kinds[queue[turn].id]
            if kind is None:
                continue
            replica, most = stages_of(job), min(requested(job, pool), parts[kind].most_of(job))
            if left[kind] < replica or sizes[job.id] + replica > most:
                continue
            left[kind] -= replica
            sizes[job.id] += replica
            weight = job.weight if self._parameters.weighted else 1.0
            heappush(heap, (sizes[job.id] / parts[kind].devices / weight, turn))
        return sizes
