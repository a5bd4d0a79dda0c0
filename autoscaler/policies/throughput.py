"""Scale out while throughput per dollar holds, blind to what a larger batch is worth.

Source: Or, Zhang and Freedman, "Resource Elasticity in Distributed Deep Learning" (MLSys'20), and
the scheduling callbacks that its authors published with it; as a baseline of Pollux (OSDI'21),
section 5.4.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import Snapshot
from autoscaler.economics.supply import supply_of
from autoscaler.economics.wording import number
from autoscaler.goodput.formulas import predictor_of
from autoscaler.policies.pool import by_submission
from autoscaler.policies.purchases import (
    Growth,
    Range,
    ascent,
    largest_batch,
    plan_of_allocations,
    ranges,
)


@dataclass(frozen=True, slots=True)
class ThroughputParameters:
    """How long a job grows.

    Attributes:
        least_share: of the throughput that a dollar bought so far, which the next dollar must
            buy at least. The authors' code has 0.1.
        growth: a job may have so many times the most devices that it was measured on; the
            authors' code at most doubles.

    Raises:
        ValueError: one of them is not above 0.
    """

    least_share: float = 0.1
    growth: int = 2

    def __post_init__(self) -> None:
        for name in ("least_share", "growth"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name}={getattr(self, name)}: must be above 0")


_DEFAULTS = ThroughputParameters()


class ThroughputPolicy:
    """One instance more as long as ``(R(n + 1) - R(n)) / (R(n) / n)`` is at least the share.

    R is the throughput of n instances in examples a second, at the batch that fills them; of one
    offer n is proportional to dollars. A job keeps to the offer that it holds, at first the
    cheapest a device. Where only single instances were measured, a second is tried.
    """

    fills_batch = True
    only_on = "cloud"

    def __init__(self, parameters: ThroughputParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """As `Policy.plan`."""
        supply = supply_of(snapshot)
        jobs = by_submission(snapshot.jobs)
        options = {job.id: ranges(job, supply, self._parameters.growth) for job in jobs}
        found = ascent(jobs, options, supply, self._growth)
        targets = found.allocations(len(found.steps))
        counts = found.counts(len(found.steps))
        reasons = {job.id: "one instance at least" for job in jobs}
        reasons |= {job: self._why(own, counts[job]) for job, own in found.chosen.items()}
        return plan_of_allocations(
            snapshot, supply, {job.id: targets.get(job.id) for job in jobs}, reasons
        )

    def _growth(self, own: Range, instances: int) -> Growth | None:
        """One instance more, where that is within the range and buys enough."""
        share = _share(own, instances)
        is_tried = instances > 1 or any(count > 1 for count, _ in own.model.measured)
        if instances >= own.most or (is_tried and share < self._parameters.least_share):
            return None
        return Growth(instances + 1, share)

    def _why(self, own: Range, instances: int) -> str:
        rate, share = _rate(own, instances), _share(own, instances)
        return (
            f"{number(rate)} examples a second; of that a dollar more would buy "
            f"{number(share)} of what one has bought, and {number(self._parameters.least_share)} "
            "is enough"
        )


def _share(own: Range, instances: int) -> float:
    """What the next dollar buys, over what one has bought so far."""
    now, more = _rate(own, instances), _rate(own, instances + 1)
    return (more - now) * instances / now if now > 0 else 0.0


def _rate(own: Range, instances: int) -> float:
    """Examples a second with as many on each device as it can bear; 0 where some have none."""
    devices = instances * own.devices_used
    bounds, most = own.job.batch.on(own.offer.device_kind), largest_batch(own.job)
    total = max(min(devices * bounds.device_maximum, most), bounds.initial)
    if devices > total:
        return 0.0
    share = math.ceil(total / devices)
    micro_steps = math.ceil(share / bounds.device_maximum)
    each = math.ceil(share / micro_steps)
    point = predictor_of(own.model.point)
    if not point.formula.runs(np.array(devices)):
        return 0.0
    return total / float(point.step_seconds(instances, devices, each, micro_steps - 1))
