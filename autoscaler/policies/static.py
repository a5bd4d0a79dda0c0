"""Holds what a person has chosen: what would have been bought without Castor."""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.plan import Decision, Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.reasons import action_of
from autoscaler.economics.supply import Supply, supply_of
from autoscaler.policies.transition import released_first


@dataclass(frozen=True, slots=True)
class StaticParameters:
    """`instances` of `offer`, its id, for every job; by default the cheapest that it may use.

    A job whose bounds do not go so far gets what comes nearest.
    """

    instances: int = 1
    offer: str | None = None


class StaticPolicy:
    """First come, first served; what is held within the job's bounds is kept."""

    def __init__(self, parameters: StaticParameters = StaticParameters()) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """As `Policy.plan`."""
        supply = supply_of(snapshot)
        targets: dict[str, Allocation | None] = {}
        jobs = sorted(snapshot.jobs, key=lambda job: (job.held is None, job.submitted_seconds, job.id))
        for job in jobs:
            wanted = self._wanted(job, supply)
            if wanted is not None and not supply.bears(supply.uses([*targets.values(), wanted])):
                wanted = None
            targets[job.id] = wanted
        by_id = sorted(snapshot.jobs, key=lambda job: job.id)
        changes = [(job.held, targets[job.id]) for job in by_id]
        first = released_first(changes, supply)
        return Plan(
            decisions=tuple(
                _decision(job, targets[job.id], is_first)
                for job, is_first in zip(by_id, first, strict=True)
            ),
            shadow_prices={limit.name: 0.0 for limit in supply.limits},
        )

    def _wanted(self, job: JobSnapshot, supply: Supply) -> Allocation | None:
        permitted = [supply.offers[index] for index in supply.permitted(job.instances)]
        bounds = job.instances
        if job.held is not None and job.held.offer in {offer.id for offer in permitted}:
            count = min(max(job.held.instances, bounds.minimum), bounds.maximum)
            if count <= job.held.instances or job.held.offer not in supply.unavailable:
                return Allocation(job.held.offer, count, job.held.devices_used)
        found = [
            offer
            for offer in permitted
            if offer.id not in supply.unavailable and self._parameters.offer in (None, offer.id)
        ]
        if not found:
            return None
        offer = min(found, key=lambda offer: (offer.usd_per_hour, offer.id))
        count = min(max(self._parameters.instances, bounds.minimum), bounds.maximum)
        return Allocation(offer.id, count, offer.devices)


def _decision(job: JobSnapshot, target: Allocation | None, release_first: bool) -> Decision:
    action = action_of(job.held, target, stops=False)
    what = "no room or no offer" if target is None else str(target)
    return Decision(
        job=job.id,
        action=action,
        current=job.held,
        target=target,
        reason=f"{action.value} {job.id}: {what}, as chosen by a person",
        release_first=release_first,
    )
