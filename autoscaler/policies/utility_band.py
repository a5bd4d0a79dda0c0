"""Pollux on a cloud: as many instances as keep the devices well used, shared out fairly.

Source: Qiao et al., Pollux (OSDI'21), section 5.4.1, for one job; for several the cluster's
utility and its band as in the schedulers published with it and after it (AdaptDL).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.supply import Supply, supply_of
from autoscaler.economics.wording import number, percent
from autoscaler.policies.optimism import speedups_over
from autoscaler.policies.pool import by_submission
from autoscaler.policies.purchases import Growth, Range, ascent, plan_of_allocations, ranges
from autoscaler.policies.restarts import restart_factor


@dataclass(frozen=True, slots=True)
class UtilityBand:
    """How well the devices are to be used, and how they are shared.

    Attributes:
        low: the utility below which there are too many instances.
        high: the utility above which there are too few.
        power: of the power mean of the speed-ups.
        floor: added to every speed-up.
        restart_seconds: what a change is taken to cost.
        growth: a job may have so many times the most devices that it was measured on.
    """

    low: float
    high: float
    power: float
    floor: float
    restart_seconds: float
    growth: int

    def holds(self, utility: float) -> bool:
        """Whether the cluster may stay as large as it is."""
        return self.low <= utility <= self.high

    def cost(self, speedup: float) -> float:
        """A job's part of the power mean, so that the least sum is the greatest mean."""
        return math.copysign((speedup + self.floor) ** self.power, -self.power)


def plan_cloud(snapshot: Snapshot, band: UtilityBand) -> Plan:
    """The plan for jobs that hold instances of their own.

    The utility of a cluster is the sum of the jobs' speed-ups, each over its goodput on one
    device, by the devices. While it is within the band the number of instances stays; otherwise
    that is taken whose utility is nearest to the middle, of equally near ones the larger.
    Instances are of the cheapest offer a device, and are shared out for the most power mean of
    the speed-ups. What is held stays unless a change is worth its restarts.

    The published rule looks at the mean of 15 rounds, or has no memory (AdaptDL): here it has
    none.
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
    """Sizes of the cluster, each shared out for the most power mean."""

    def __init__(self, jobs: Sequence[JobSnapshot], supply: Supply, band: UtilityBand) -> None:
        self._supply = supply
        self._band = band
        self._speedups: dict[Range, Mapping[int, float]] = {}
        options = {}
        for job in jobs:
            each = ranges(job, supply, band.growth)
            self._speedups |= {own: _speedups(own) for own in each}
            options[job.id] = [own for own in each if self._speedups[own][own.fewest] > 0]
        self.purchases = ascent(jobs, options, supply, self._growth)
        self._sizes, self._utilities = self._by_steps()

    def steps(self) -> int:
        """How far to go beyond the fewest instances."""
        standing = bisect_right(self._sizes, self._held_instances) - 1
        if standing >= 0:
            is_whole = self._holds_what_it_could()
            utility = self._utility(self.held()) if is_whole else self._utilities[standing]
            if self._band.holds(utility):
                return standing
        middle = (self._band.low + self._band.high) / 2
        enough = [n for n, utility in enumerate(self._utilities) if utility >= self._band.low]
        return min(enough, key=lambda n: (abs(self._utilities[n] - middle), -n), default=0)

    def held(self) -> dict[str, Allocation]:
        """What each job that is given anything holds already."""
        jobs = ((job, own.job.held) for job, own in self.purchases.chosen.items())
        return {job: held for job, held in jobs if held is not None}

    def keeps_what_is_held(self, steps: int, now_seconds: float) -> bool:
        """Whether it is as well used, and sharing it out anew is not worth the restarts."""
        if not self._holds_what_it_could():
            return False
        held, counts = self.held(), self.purchases.counts(steps)
        if self._sizes[steps] != self._held_instances:
            return self._band.holds(self._utility(held))
        kept = anew = 0.0
        for job, own in self.purchases.chosen.items():
            before, after = held[job].instances, counts[job]
            seconds = self._band.restart_seconds
            factor = 1.0 if before == after else restart_factor(own.job, now_seconds, seconds)
            kept += self._band.cost(self._speedups[own][before])
            anew += self._band.cost(factor * self._speedups[own][after])
        return kept <= anew

    @property
    def _held_instances(self) -> int:
        return sum(own.instances for own in self.held().values())

    def _holds_what_it_could(self) -> bool:
        """Whether what is held, by all who are given anything, could be held on."""
        held = self.held()
        for job, own in self.purchases.chosen.items():
            now = held.get(job)
            is_possible = now is not None and now.instances in self._speedups[own]
            if now is None or not is_possible or now != own.allocation(now.instances):
                return False
        return self._supply.bears(self._supply.uses(held.values()))

    def _utility(self, held: Mapping[str, Allocation]) -> float:
        """The speed-ups over the devices."""
        chosen = self.purchases.chosen
        speedup = sum(self._speedups[chosen[job]][own.instances] for job, own in held.items())
        return speedup / max(sum(own.devices for own in held.values()), 1)

    def why(self, job: str, target: Allocation | None, steps: int) -> str:
        """By which rule."""
        if target is None:
            return "as many devices as are well used"
        own = self.purchases.chosen[job]
        return (
            f"{number(self._speedups[own][target.instances])} times as fast as one device; all "
            f"devices are used to {percent(self._utilities[steps])}, of "
            f"{percent(self._band.low)} to {percent(self._band.high)} wanted"
        )

    def _growth(self, own: Range, instances: int) -> Growth | None:
        """On the upper envelope of the job's part of the mean, as far as that rises."""
        speedups, cost = self._speedups[own], self._band.cost
        now = cost(speedups[instances])
        further = (
            Growth(count, (now - cost(speedups[count])) / (count - instances))
            for count in range(instances + 1, own.most + 1)
        )
        best = max(further, key=lambda each: (each.gain, each.instances), default=None)
        return best if best is not None and best.gain > 0 else None

    def _by_steps(self) -> tuple[list[int], list[float]]:
        """Instances and utility after 0, 1, ... steps."""
        chosen, counts = self.purchases.chosen, self.purchases.counts(0)
        speedup = sum(self._speedups[own][own.fewest] for own in chosen.values())
        devices = sum(own.fewest * own.devices_used for own in chosen.values())
        sizes, utilities = [sum(counts.values())], [speedup / max(devices, 1)]
        for job, count in self.purchases.steps:
            own, before = chosen[job], counts[job]
            counts[job] = count
            speedup += self._speedups[own][count] - self._speedups[own][before]
            devices += (count - before) * own.devices_used
            sizes.append(sizes[-1] + count - before)
            utilities.append(speedup / devices)
        return sizes, utilities


def _speedups(own: Range) -> dict[int, float]:
    """Over one device: instances -> speed-up, 0 where it can't run."""
    counts = range(own.fewest, own.most + 1)
    sizes = [(count, count * own.devices_used) for count in counts]
    return dict(zip(counts, speedups_over((1, 1), own.job, own.model, sizes), strict=True))
