"""Pollux on a cloud: a number of instances that keeps devices well used, shared fairly.

Source: Qiao et al., Pollux (OSDI'21), section 5.4.1, for one job; for several jobs the cluster's
utility and its band as in the schedulers published with and after it (AdaptDL).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.pricing.wording import number, percent
from autoscaler.economics.supply.supply import Supply, supply_of
from autoscaler.policies.instance_counts import (
    Growth,
    InstanceRange,
    ascent,
    plan_of_allocations,
    ranges,
)
from autoscaler.policies.pools.optimism import speedups_over
from autoscaler.policies.pools.pool import by_submission
from autoscaler.policies.published.restarts import restart_factor


@dataclass(frozen=True, slots=True)
class UtilityBand:
    """Band of utility that sizes the cluster, and the fairness of its division.

    Attributes:
        low: utility below which there are too many instances.
        high: utility above which there are too few.
        power: power of the mean of the speed-ups.
        floor: added to every speed-up.
        restart_seconds: assumed cost of a change.
        growth: largest number of devices, over the most that the job was measured on.
    """

    low: float
    high: float
    power: float
    floor: float
    restart_seconds: float
    growth: int

    def holds(self, utility: float) -> bool:
        """Return whether the utility is within the band."""
        return self.low <= utility <= self.high

    def cost(self, speedup: float) -> float:
        """Return the job's term of the power mean; the least sum gives the greatest mean."""
        return math.copysign((speedup + self.floor) ** self.power, -self.power)


def plan_cloud(snapshot: Snapshot, band: UtilityBand) -> Plan:
    """Return the plan of jobs that hold instances of their own.

    The utility of a cluster is the sum of speed-ups, each over the job's goodput on one device, by
    the number of devices. While the utility is in the band the number of instances stays.
    Otherwise the number whose utility is nearest to the middle of the band is chosen, of equally
    near ones the larger. Instances are of the cheapest offer per device, divided for the greatest
    power mean of the speed-ups. Held instances stay unless a change is worth its restarts.

    The published rule uses the mean of 15 rounds, or only the present one (AdaptDL); here it is
    the present one.
    """
    supply = supply_of(snapshot)
    jobs = by_submission(snapshot.jobs)
    cluster = _Cluster(jobs, supply, band)
    steps = cluster.steps()
    targets: dict[str, Allocation | None] = dict.fromkeys(job.id for job in jobs)
    is_kept = cluster.keeps_what_is_held(steps, snapshot.now_seconds)
    targets |= cluster.held() if is_kept else cluster.purchases.allocations(steps)
    reasons = {job.id: cluster.why(job.id, targets[job.id], steps) for job in jobs}
    return plan_of_allocations(snapshot, supply, targets, reasons)


class _Cluster:
    """Sizes of the cluster, each divided for the greatest power mean."""

    def __init__(self, jobs: Sequence[JobSnapshot], supply: Supply, band: UtilityBand) -> None:
        self._supply = supply
        self._band = band
        self._speedups: dict[InstanceRange, Mapping[int, float]] = {}
        options = {}
        for job in jobs:
            job_ranges = ranges(job, supply, band.growth)
            self._speedups |= {option: _speedups(option) for option in job_ranges}
            options[job.id] = [
                option for option in job_ranges if self._speedups[option][option.fewest] > 0
            ]
        self.purchases = ascent(jobs, options, supply, self._growth)
        self._sizes, self._utilities = self._sizes_and_utilities()

    def steps(self) -> int:
        """Return the number of steps beyond the fewest instances that the utility asks for."""
        present_steps = bisect_right(self._sizes, self._held_instances) - 1
        if present_steps >= 0:
            is_whole = self._is_present_feasible()
            utility = self._utility(self.held()) if is_whole else self._utilities[present_steps]
            if self._band.holds(utility):
                return present_steps
        middle = (self._band.low + self._band.high) / 2
        sufficient = [
            steps for steps, utility in enumerate(self._utilities) if utility >= self._band.low
        ]
        return min(
            sufficient, key=lambda steps: (abs(self._utilities[steps] - middle), -steps), default=0
        )

    def held(self) -> dict[str, Allocation]:
        """Return the present allocation of each job that is given anything."""
        jobs = ((job, option.job.held) for job, option in self.purchases.chosen.items())
        return {job: held for job, held in jobs if held is not None}

    def keeps_what_is_held(self, steps: int, now_seconds: float) -> bool:
        """Return whether the present allocations stay: in the band, and no new division gains."""
        if not self._is_present_feasible():
            return False
        held, counts = self.held(), self.purchases.counts(steps)
        if self._sizes[steps] != self._held_instances:
            return self._band.holds(self._utility(held))
        present_cost = new_cost = 0.0
        for job, option in self.purchases.chosen.items():
            before, after = held[job].instances, counts[job]
            seconds = self._band.restart_seconds
            factor = 1.0 if before == after else restart_factor(option.job, now_seconds, seconds)
            present_cost += self._band.cost(self._speedups[option][before])
            new_cost += self._band.cost(factor * self._speedups[option][after])
        return present_cost <= new_cost

    @property
    def _held_instances(self) -> int:
        return sum(allocation.instances for allocation in self.held().values())

    def _is_present_feasible(self) -> bool:
        """Return whether every job's present allocation is in its range and all fit the limits."""
        held = self.held()
        for job, option in self.purchases.chosen.items():
            allocation = held.get(job)
            is_possible = allocation is not None and allocation.instances in self._speedups[option]
            if (
                allocation is None
                or not is_possible
                or allocation != option.allocation(allocation.instances)
            ):
                return False
        return self._supply.bears(self._supply.uses(held.values()))

    def _utility(self, held: Mapping[str, Allocation]) -> float:
        """Return the sum of speed-ups over the number of devices."""
        chosen = self.purchases.chosen
        speedup = sum(
            self._speedups[chosen[job]][allocation.instances] for job, allocation in held.items()
        )
        return speedup / max(sum(allocation.devices for allocation in held.values()), 1)

    def why(self, job: str, target: Allocation | None, steps: int) -> str:
        """Return the clause for the job's reason."""
        if target is None:
            return "more devices would be used too little"
        option = self.purchases.chosen[job]
        return (
            f"{number(self._speedups[option][target.instances])} times as fast as one device; "
            f"cluster utility {percent(self._utilities[steps])}, aim "
            f"{percent(self._band.low)} to {percent(self._band.high)}"
        )

    def _growth(self, option: InstanceRange, instances: int) -> Growth | None:
        """Return the next step on the upper envelope of the job's term; None if it falls."""
        speedups, cost = self._speedups[option], self._band.cost
        present_cost = cost(speedups[instances])
        growths = (
            Growth(count, (present_cost - cost(speedups[count])) / (count - instances))
            for count in range(instances + option.gang, option.most + 1, option.gang)
        )
        best = max(growths, key=lambda growth: (growth.gain, growth.instances), default=None)
        return best if best is not None and best.gain > 0 else None

    def _sizes_and_utilities(self) -> tuple[list[int], list[float]]:
        """Return instances and utility after 0, 1, ... steps."""
        chosen, counts = self.purchases.chosen, self.purchases.counts(0)
        speedup = sum(self._speedups[option][option.fewest] for option in chosen.values())
        devices = sum(option.fewest * option.devices_used for option in chosen.values())
        sizes, utilities = [sum(counts.values())], [speedup / max(devices, 1)]
        for job, count in self.purchases.steps:
            option, before = chosen[job], counts[job]
            counts[job] = count
            speedup += self._speedups[option][count] - self._speedups[option][before]
            devices += (count - before) * option.devices_used
            sizes.append(sizes[-1] + count - before)
            utilities.append(speedup / devices)
        return sizes, utilities


def _speedups(option: InstanceRange) -> dict[int, float]:
    """Return speed-up over one device by number of instances; 0 where the job cannot run."""
    counts = range(option.fewest, option.most + 1)
    sizes = [(count, count * option.devices_used) for count in counts]
    return dict(zip(counts, speedups_over((1, 1), option.job, option.model, sizes), strict=True))
