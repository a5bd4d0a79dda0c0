"""Scale out while throughput per dollar holds, ignoring the statistical efficiency of batches.

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
from autoscaler.economics.pricing.wording import number
from autoscaler.economics.supply.supply import supply_of
from autoscaler.goodput.formulas import predictor_of
from autoscaler.policies.instance_counts import (
    Growth,
    InstanceRange,
    ascent,
    largest_batch,
    plan_of_allocations,
    ranges,
)
from autoscaler.policies.pools.pool import by_submission


@dataclass(frozen=True, slots=True)
class GrowthParameters:
    """Threshold and bound of growth.

    Attributes:
        least_share: least throughput bought by the next dollar, over the average throughput per
            dollar so far. The authors' code has 0.1.
        growth: largest number of devices, over the most that the job was measured on; the authors'
            code at most doubles.

    Raises:
        ValueError: a parameter is not above 0.
    """

    least_share: float = 0.1
    growth: int = 2

    def __post_init__(self) -> None:
        for name in ("least_share", "growth"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name}={getattr(self, name)}: must be above 0")


_DEFAULTS = GrowthParameters()


class ThroughputPolicy:
    """One more instance as long as ``(R(n + 1) - R(n)) / (R(n) / n)`` is at least the threshold.

    R(n) is the throughput of n instances in examples per second, at the batch that fills them. Of
    one offer n is proportional to dollars. A job keeps its offer, at first the cheapest per
    device. If only single instances were measured, a second one is tried.
    """

    fills_batch = True
    only_on = "cloud"

    def __init__(self, parameters: GrowthParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan all jobs of the snapshot; see `Policy.plan`."""
        supply = supply_of(snapshot)
        jobs = by_submission(snapshot.jobs)
        options = {job.id: ranges(job, supply, self._parameters.growth) for job in jobs}
        purchases = ascent(jobs, options, supply, self._growth)
        targets = purchases.allocations(len(purchases.steps))
        counts = purchases.counts(len(purchases.steps))
        reasons = {job.id: "at least one instance" for job in jobs}
        reasons |= {
            job: self._reason(option, counts[job]) for job, option in purchases.chosen.items()
        }
        return plan_of_allocations(
            snapshot, supply, {job.id: targets.get(job.id) for job in jobs}, reasons
        )

    def _growth(self, option: InstanceRange, instances: int) -> Growth | None:
        """Return one more gang if it is in the range and buys enough throughput, else None."""
        marginal_share = _marginal_share(option, instances)
        is_tried = instances > option.gang or any(
            count > option.gang for count, _ in option.model.measured
        )
        if instances >= option.most or (
            is_tried and marginal_share < self._parameters.least_share
        ):
            return None
        return Growth(instances + option.gang, marginal_share)

    def _reason(self, option: InstanceRange, instances: int) -> str:
        rate, share = _rate(option, instances), _marginal_share(option, instances)
        return (
            f"{number(rate)} examples/s; a dollar more buys "
            f"{number(share)} of the average so far, "
            f"{number(self._parameters.least_share)} or more is required"
        )


def _marginal_share(option: InstanceRange, instances: int) -> float:
    """Return the throughput that the next dollar buys, over the average per dollar so far."""
    rate, next_rate = _rate(option, instances), _rate(option, instances + option.gang)
    return (next_rate - rate) * instances / option.gang / rate if rate > 0 else 0.0


def _rate(option: InstanceRange, instances: int) -> float:
    """Return examples per second with the largest batch the devices hold; 0 if it cannot run."""
    devices = instances * option.devices_used
    bounds, most = option.job.batch.on(option.offer.device_kind), largest_batch(option.job)
    total = max(min(devices * bounds.device_maximum, most), bounds.initial)
    if devices > total:
        return 0.0
    share = math.ceil(total / devices)
    micro_steps = math.ceil(share / bounds.device_maximum)
    local_batch = math.ceil(share / micro_steps)
    point = predictor_of(option.model.point)
    if not point.formula.runs(np.array(devices)):
        return 0.0
    return total / float(point.step_seconds(instances, devices, local_batch, micro_steps - 1))
