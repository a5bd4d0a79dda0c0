"""AntMan: guaranteed jobs get what they asked for, opportunistic ones what is left.

Source: Xiao et al., "AntMan: Dynamic Scaling on GPU Clusters for Deep Learning" (OSDI'20),
sections 3 and 4.2. There both classes are on one device, whose memory and time the framework
divides; here devices are whole, and on a cloud the classes are on-demand and spot.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscaler.domain.offer import Purchase
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.supply import supply_of
from autoscaler.policies.pool import Grant, Turns, by_submission, plan_of, pool_of, requested
from autoscaler.policies.purchases import Growth, Range, ascent, plan_of_allocations, ranges

# As many as it asked for, whatever it was measured on.
_ANY_GROWTH = 1 << 20


@dataclass(frozen=True, slots=True)
class AntmanParameters:
    """`guaranteed_weight`: a job of this weight or more is guaranteed, others are opportunistic.

    Raises:
        ValueError: it is negative.
    """

    guaranteed_weight: float = 1.0

    def __post_init__(self) -> None:
        if self.guaranteed_weight < 0:
            raise ValueError(f"guaranteed_weight={self.guaranteed_weight}: must be 0 or more")


_DEFAULTS = AntmanParameters()


class AntmanPolicy:
    """Guaranteed jobs first come, first served, whole, and not interrupted; then opportunists.

    An opportunist has devices one by one, up to what it asked for, and gives them back when a
    guaranteed job comes. So has a guaranteed job that there is no room for yet: it runs as an
    opportunist until there is. On a cloud guaranteed jobs buy on demand and opportunists spot,
    as many instances as hold the devices that they asked for.
    """

    adapts_batch = False

    def __init__(self, parameters: AntmanParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """As `Policy.plan`."""
        if any(offer.shared for offer in snapshot.offers):
            return self._shared_out(snapshot)
        return self._bought(snapshot)

    def _is_guaranteed(self, job: JobSnapshot) -> bool:
        return job.weight >= self._parameters.guaranteed_weight

    def _shared_out(self, snapshot: Snapshot) -> Plan:
        pool = pool_of(snapshot)
        queue = by_submission(snapshot.jobs)
        wanted = {job.id: requested(job, pool) for job in queue}
        guaranteed = [job for job in queue if self._is_guaranteed(job)]
        guaranteed.sort(key=lambda job: _devices(job) != wanted[job.id])
        turns = Turns(pool, queue)
        kinds = {job.id: turns.take(job, wanted[job.id]) for job in guaranteed}
        served = {job for job, kind in kinds.items() if kind is not None}
        others = [job for job in queue if job.id not in served]
        kinds |= {job.id: turns.take(job, 1) for job in others}
        sizes = {job: wanted[job] for job in served} | _shares(others, kinds, wanted, turns)
        grants = {
            job.id: Grant(sizes[job.id], self._why(job, job.id in served), kinds[job.id])
            for job in queue
        }
        first = [job for job in queue if job.id in served]
        return plan_of(snapshot, pool, [*first, *others], grants)

    def _bought(self, snapshot: Snapshot) -> Plan:
        supply = supply_of(snapshot)
        queue = by_submission(snapshot.jobs)
        options = {
            job.id: [own for own in ranges(job, supply, _ANY_GROWTH) if self._is_for(own)]
            for job in queue
        }
        order = sorted(queue, key=lambda job: not self._is_guaranteed(job))
        found = ascent(order, options, supply, _up_to_what_was_asked_for)
        targets = found.allocations(len(found.steps))
        reasons = {job.id: self._why(job, self._is_guaranteed(job)) for job in queue}
        return plan_of_allocations(
            snapshot, supply, {job.id: targets.get(job.id) for job in queue}, reasons
        )

    def _is_for(self, own: Range) -> bool:
        is_spot = own.offer.purchase is Purchase.SPOT
        return is_spot != self._is_guaranteed(own.job)

    def _why(self, job: JobSnapshot, is_served: bool) -> str:
        if not self._is_guaranteed(job):
            return "opportunistic: what guaranteed jobs leave"
        return "guaranteed" if is_served else "guaranteed, and opportunistic until there is room"


def _devices(job: JobSnapshot) -> int:
    return job.placement.devices if job.placement else 0


def _shares(
    jobs: Sequence[JobSnapshot],
    kinds: Mapping[str, str | None],
    wanted: Mapping[str, int],
    turns: Turns,
) -> dict[str, int]:
    """One device each, then one more in every round, up to what each wants and there is."""
    sizes = {job.id: int(kinds[job.id] is not None) for job in jobs}
    for count in range(1, max(wanted.values(), default=0)):
        for job in jobs:
            kind = kinds[job.id]
            if kind is not None and sizes[job.id] == count < wanted[job.id]:
                sizes[job.id] += turns.take_more(kind, 1)
    return sizes


def _up_to_what_was_asked_for(own: Range, instances: int) -> Growth | None:
    devices = own.job.requested_devices or 1
    wanted = min(math.ceil(devices / own.devices_used), own.most)
    return Growth(instances + 1, 1.0) if instances < wanted else None
