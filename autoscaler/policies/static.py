"""Fixed allocation for every job, as a user would buy it without Castor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.supply.supply import Supply, supply_of
from autoscaler.policies.instance_counts import plan_of_allocations


@dataclass(frozen=True, slots=True)
class StaticParameters:
    """Allocation of every job, cut to the job's bounds.

    Attributes:
        instances: number of instances.
        offer: id of the offer; None for the cheapest that the job may use.
    """

    instances: int = 1
    offer: str | None = None


_DEFAULTS = StaticParameters()


class StaticPolicy:
    """First come, first served at a fixed size; allocations within a job's bounds are kept."""

    only_on = "cloud"

    def __init__(self, parameters: StaticParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan all jobs of the snapshot; see `Policy.plan`."""
        supply = supply_of(snapshot)
        targets: dict[str, Allocation | None] = {}
        for job in sorted(snapshot.jobs, key=_service_order):
            earlier_targets = list(targets.values())
            options = self._options(job, supply)
            fitting = (
                option
                for option in options
                if supply.bears(supply.uses([*earlier_targets, option]))
            )
            targets[job.id] = next(fitting, None)
        reasons = dict.fromkeys(targets, "as chosen by a person")
        return plan_of_allocations(snapshot, supply, targets, reasons)

    def _options(self, job: JobSnapshot, supply: Supply) -> Iterator[Allocation]:
        """Yield the present allocation, then the chosen one, each cut to the job's bounds."""
        permitted = [supply.offers[index] for index in supply.permitted(job.instances)]
        bounds, held = job.instances, job.held
        if held is not None and held.offer in {offer.id for offer in permitted}:
            held_offer = next(offer for offer in permitted if offer.id == held.offer)
            count = min(max(held.instances, bounds.minimum), bounds.most_of(held_offer))
            count -= count % (job.gang_instances(held_offer) or 1)
            if count < 1:
                return
            if count <= held.instances or held.offer not in supply.unavailable:
                yield replace(held, instances=count)
        chosen = self._parameters.offer
        candidates = [
            offer
            for offer in permitted
            if offer.id not in supply.unavailable
            and chosen in (None, offer.id)
            and 0 < (job.least_instances(offer) or 0) <= job.most_instances(offer)
        ]
        if candidates:
            offer = min(candidates, key=lambda offer: (offer.usd_per_hour, offer.id))
            least, most = job.least_instances(offer) or 1, job.most_instances(offer)
            gang = job.gang_instances(offer) or 1
            count = min(max(gang * -(-self._parameters.instances // gang), least), most)
            yield Allocation(offer.id, count, offer.devices)


def _service_order(job: JobSnapshot) -> tuple[bool, float, str]:
    """Return the sort key of a job: those with allocations first, then by submission."""
    return job.held is None, job.submitted_seconds, job.id
