"""AntMan: guaranteed jobs get all devices they asked for, opportunistic jobs the remaining ones.

Source: Xiao et al., "AntMan: Dynamic Scaling on GPU Clusters for Deep Learning" (OSDI'20),
sections 3 and 4.2. In the paper both classes share one device, whose memory and time the framework
divides. Here each device has one job. On a cloud guaranteed jobs use on-demand instances and
opportunistic jobs use spot instances.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscaler.domain.offer import Purchase
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.supply.supply import supply_of
from autoscaler.policies.instance_counts import (
    Growth,
    InstanceRange,
    ascent,
    plan_of_allocations,
    ranges,
)
from autoscaler.policies.pools.pool import Grant, Turns, by_submission, plan_of, pool_of, requested

# Growth factor over the measured devices that never binds: the request is the only bound.
_ANY_GROWTH = 1 << 20


@dataclass(frozen=True, slots=True)
class AntmanParameters:
    """Threshold between the two classes of jobs.

    Attributes:
        guaranteed_weight: jobs of this weight or more are guaranteed, others opportunistic.

    Raises:
        ValueError: it is negative.
    """

    guaranteed_weight: float = 1.0

    def __post_init__(self) -> None:
        if self.guaranteed_weight < 0:
            raise ValueError(f"guaranteed_weight={self.guaranteed_weight}: must be 0 or more")


_DEFAULTS = AntmanParameters()


class AntmanPolicy:
    """Guaranteed jobs first come, first served and not interrupted; then opportunistic jobs.

    An opportunistic job gets devices one by one, up to its request, and returns them when a
    guaranteed job needs them. A guaranteed job without room for its whole request runs as an
    opportunistic job until there is room. On a cloud guaranteed jobs buy on-demand instances and
    opportunistic jobs spot instances, enough of them for the devices asked for.
    """

    adapts_batch = False

    def __init__(self, parameters: AntmanParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan all jobs of the snapshot; see `Policy.plan`."""
        if any(offer.shared for offer in snapshot.offers):
            return self._plan_pool(snapshot)
        return self._plan_cloud(snapshot)

    def _is_guaranteed(self, job: JobSnapshot) -> bool:
        return job.weight >= self._parameters.guaranteed_weight

    def _plan_pool(self, snapshot: Snapshot) -> Plan:
        """Return the plan for jobs that share the machines of a pool."""
        pool = pool_of(snapshot)
        queue = by_submission(snapshot.jobs)
        requests = {job.id: requested(job, pool) for job in queue}
        guaranteed = [job for job in queue if self._is_guaranteed(job)]
        guaranteed.sort(key=lambda job: _held_devices(job) != requests[job.id])
        turns = Turns(pool, queue)
        kinds = {job.id: turns.take(job, requests[job.id]) for job in guaranteed}
        served = {job for job, kind in kinds.items() if kind is not None}
        opportunists = [job for job in queue if job.id not in served]
        kinds |= {job.id: turns.take(job, 1) for job in opportunists}
        sizes = {job: requests[job] for job in served} | _opportunistic_sizes(
            opportunists, kinds, requests, turns
        )
        grants = {
            job.id: Grant(sizes[job.id], self._reason(job, job.id in served), kinds[job.id])
            for job in queue
        }
        first = [job for job in queue if job.id in served]
        return plan_of(snapshot, pool, [*first, *opportunists], grants)

    def _plan_cloud(self, snapshot: Snapshot) -> Plan:
        """Return the plan for jobs that buy instances of their own."""
        supply = supply_of(snapshot)
        queue = by_submission(snapshot.jobs)
        options = {
            job.id: [
                option
                for option in ranges(job, supply, _ANY_GROWTH)
                if self._has_purchase_of_class(option)
            ]
            for job in queue
        }
        order = sorted(queue, key=lambda job: not self._is_guaranteed(job))
        purchases = ascent(order, options, supply, _growth_to_request)
        targets = purchases.allocations(len(purchases.steps))
        reasons = {job.id: self._reason(job, self._is_guaranteed(job)) for job in queue}
        return plan_of_allocations(
            snapshot, supply, {job.id: targets.get(job.id) for job in queue}, reasons
        )

    def _has_purchase_of_class(self, option: InstanceRange) -> bool:
        """Return whether the offer is spot for an opportunistic job, else on demand."""
        is_spot = option.offer.purchase is Purchase.SPOT
        return is_spot != self._is_guaranteed(option.job)

    def _reason(self, job: JobSnapshot, is_served: bool) -> str:
        if not self._is_guaranteed(job):
            return "opportunistic: devices that guaranteed jobs leave"
        return (
            "guaranteed"
            if is_served
            else "guaranteed, but opportunistic until all its devices are free"
        )


def _held_devices(job: JobSnapshot) -> int:
    return job.placement.devices if job.placement else 0


def _opportunistic_sizes(
    jobs: Sequence[JobSnapshot],
    kinds: Mapping[str, str | None],
    requests: Mapping[str, int],
    turns: Turns,
) -> dict[str, int]:
    """Return devices by job id: one each, then one more a round up to each request."""
    sizes = {job.id: int(kinds[job.id] is not None) for job in jobs}
    for size in range(1, max(requests.values(), default=0)):
        for job in jobs:
            kind = kinds[job.id]
            if kind is not None and sizes[job.id] == size < requests[job.id]:
                sizes[job.id] += turns.take_more(kind, 1)
    return sizes


def _growth_to_request(option: InstanceRange, instances: int) -> Growth | None:
    """Return one more instance until they cover the job's request; None from there on."""
    devices = option.job.requested_devices or 1
    needed_instances = min(math.ceil(devices / option.devices_used), option.most)
    return Growth(instances + option.gang, 1.0) if instances < needed_instances else None
