"""Holds what a person has chosen: what would have been bought without Castor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.supply import Supply, supply_of
from autoscaler.policies.purchases import plan_of_allocations


@dataclass(frozen=True, slots=True)
class StaticParameters:
    """`instances` of `offer`, its id, for every job; by default the cheapest that it may use.

    A job whose bounds do not go so far gets what comes nearest.
    """

    instances: int = 1
    offer: str | None = None


_DEFAULTS = StaticParameters()


class StaticPolicy:
    """First come, first served; what is held within the job's bounds is kept."""

    only_on = "cloud"

    def __init__(self, parameters: StaticParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """As `Policy.plan`."""
        supply = supply_of(snapshot)
        targets: dict[str, Allocation | None] = {}
        for job in sorted(snapshot.jobs, key=_turn):
            given = list(targets.values())
            options = self._options(job, supply)
            fitting = (o for o in options if supply.bears(supply.uses([*given, o])))
            targets[job.id] = next(fitting, None)
        reasons = dict.fromkeys(targets, "as chosen by a person")
        return plan_of_allocations(snapshot, supply, targets, reasons)

    def _options(self, job: JobSnapshot, supply: Supply) -> Iterator[Allocation]:
        """What is held, then what was chosen."""
        permitted = [supply.offers[index] for index in supply.permitted(job.instances)]
        bounds, held = job.instances, job.held
        if held is not None and held.offer in {offer.id for offer in permitted}:
            own = next(offer for offer in permitted if offer.id == held.offer)
            count = min(max(held.instances, bounds.minimum), bounds.most_of(own))
            if count <= held.instances or held.offer not in supply.unavailable:
                yield replace(held, instances=count)
        chosen = self._parameters.offer
        found = [
            offer
            for offer in permitted
            if offer.id not in supply.unavailable and chosen in (None, offer.id)
        ]
        if found:
            offer = min(found, key=lambda offer: (offer.usd_per_hour, offer.id))
            count = min(max(self._parameters.instances, bounds.minimum), bounds.most_of(offer))
            yield Allocation(offer.id, count, offer.devices)


def _turn(job: JobSnapshot) -> tuple[bool, float, str]:
    """Those that hold something keep it, then first come, first served."""
    return job.held is None, job.submitted_seconds, job.id
