"""Pollux: goodput shared fairly. Elastic jobs on a fixed pool that adapt their batch.

Source: Qiao et al., Pollux (OSDI'21), sections 4.1 and 4.2; constants, fair share and restart
factor as in the simulator published with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autoscaler.domain.allocation import Placement
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot, ThroughputModel
from autoscaler.economics.wording import number
from autoscaler.policies.configurations import (
    Claim,
    Configuration,
    assign,
    configuration_of,
    configurations,
    held_in,
)
from autoscaler.policies.optimism import speedups_over
from autoscaler.policies.pool import Pool, by_submission, plan_of_placements, pool_of
from autoscaler.policies.projection import most_measured
from autoscaler.policies.restarts import LEAST_FACTOR, restart_factor
from autoscaler.policies.utility_band import UtilityBand, plan_cloud


@dataclass(frozen=True, slots=True)
class PolluxParameters:
    """How fair, how eager, how far.

    Attributes:
        power: p of the power mean of the speed-ups; the lower, the fairer. The paper and its
            simulator use -1.
        floor: added to every speed-up, in those of a machine's worth of devices.
        restart_seconds: what a change of placement is taken to cost.
        growth: a job may have so many times the most devices that it was measured on.
        most_devices: of any one job: as far as the published profiles go.
        most_machines: of any one job.
        low_utility: on a cloud, below which there are too many instances.
        high_utility: above which there are too few.

    Raises:
        ValueError: power is 0 or above 1, or another of them is not above 0.
    """

    power: float = -1.0
    floor: float = 1e-3
    restart_seconds: float = 30.0
    growth: int = 2
    most_devices: int = 64
    most_machines: int = 16
    low_utility: float = 0.35
    high_utility: float = 0.65

    def __post_init__(self) -> None:
        if self.power == 0 or self.power > 1:
            raise ValueError(f"power={self.power}: must be below 0, or above it and at most 1")
        for name in ("floor", "restart_seconds", "growth", "most_devices", "most_machines"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)}: must be above 0")
        if not 0 < self.low_utility <= self.high_utility:
            raise ValueError(f"low_utility={self.low_utility}: must be in (0, high_utility]")

    @property
    def band(self) -> UtilityBand:
        """What sizes a cluster on a cloud."""
        return UtilityBand(
            low=self.low_utility,
            high=self.high_utility,
            power=self.power,
            floor=self.floor,
            restart_seconds=self.restart_seconds,
            growth=self.growth,
        )


_DEFAULTS = PolluxParameters()


@dataclass(frozen=True, slots=True)
class _Speedups:
    """Of one job, over the goodput of its fair share.

    `anew` is of each configuration that it could be given, `staying` of what it holds.
    """

    job: JobSnapshot
    anew: Mapping[Configuration, float]
    staying: float


def fair_share(pool: Pool, jobs: Sequence[JobSnapshot]) -> int:
    """Devices of a job if all had as many, rounded up."""
    return max(math.ceil(pool.devices / max(len(jobs), 1)), 1)


class PolluxPolicy:
    """The most power mean of speed-ups, each over the goodput of the job on its fair share.

    A change of placement multiplies a job's speed-up by ``max(age - restarts * s, 0) / (age +
    s)``, s the seconds of a restart. No machine has two distributed jobs. A job may grow to twice
    the devices that it was measured on; until more are measured it is taken to scale perfectly.
    Kinds of device are all one to it: a job is predicted by its fit on the kind on which it was
    measured on most devices.

    The mean is not searched for by the genetic algorithm of the paper: an integer program over
    the configurations of Sia finds the best there is of these, and always the same.

    On a cloud jobs hold instances of their own: see `plan_cloud`.
    """

    def __init__(self, parameters: PolluxParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """As `Policy.plan`."""
        if not any(offer.shared for offer in snapshot.offers):
            return plan_cloud(snapshot, self._parameters.band)
        pool = pool_of(snapshot)
        jobs = by_submission(snapshot.jobs)
        fair = fair_share(pool, jobs)
        speedups = [self._speedups(job, pool, fair) for job in jobs]
        claims = [self._claim(own, pool, snapshot.now_seconds) for own in speedups]
        assignment = assign(claims, pool)
        reasons = {
            own.job.id: _why(own, assignment.placements[own.job.id], pool, fair)
            for own in speedups
        }
        plan = plan_of_placements(snapshot, assignment.placements, reasons)
        return plan if assignment.trouble is None else replace(plan, notes=(assignment.trouble,))

    def _speedups(self, job: JobSnapshot, pool: Pool, fair: int) -> _Speedups:
        """The fair share is taken to lie on one machine, however large, as in the simulator."""
        usable = pool.for_job(job)
        model = max(
            (job.models[kind] for kind in usable if kind in job.models),
            key=most_measured,
            default=None,
        )
        allowed = [
            one
            for one in configurations(pool)
            if one.kind in usable and self._may_have(one, model)
        ]
        held = held_in(job, pool)
        largest_batch = job.batch.maximum if job.batch.adaptive else job.batch.initial
        sizes = [
            (len(held.shares), held.devices) if held else (1, 1),
            *((one.machines, one.total) for one in allowed),
        ]
        base = (1, min(fair, largest_batch))
        staying, *others = speedups_over(base, job, model, sizes)
        anew = {one: speedup for one, speedup in zip(allowed, others, strict=True) if speedup > 0}
        return _Speedups(job, anew, staying)

    def _may_have(self, one: Configuration, model: ThroughputModel | None) -> bool:
        parameters = self._parameters
        most = min(max(parameters.growth * most_measured(model), 1), parameters.most_devices)
        return one.total <= most and one.machines <= parameters.most_machines

    def _claim(self, own: _Speedups, pool: Pool, now_seconds: float) -> Claim:
        factor = self._restart_factor(own.job, now_seconds)
        return Claim(
            job=own.job.id,
            held=held_in(own.job, pool),
            costs={one: self._cost(factor * speedup, pool) for one, speedup in own.anew.items()},
            staying_cost=self._cost(own.staying, pool),
            idle_cost=self._cost(0.0, pool),
        )

    def _restart_factor(self, job: JobSnapshot, now_seconds: float) -> float:
        """What a speed-up is worth to a job that has to restart for it."""
        factor = restart_factor(job, now_seconds, self._parameters.restart_seconds)
        return max(factor, LEAST_FACTOR)

    def _cost(self, speedup: float, pool: Pool) -> float:
        """The job's part of the power mean, so that the least sum is the greatest mean."""
        scaled = speedup * len(pool.capacity) / pool.devices if pool.devices else 0.0
        power = self._parameters.power
        return math.copysign((scaled + self._parameters.floor) ** power, -power)


def _why(own: _Speedups, placement: Placement | None, pool: Pool, fair: int) -> str:
    if placement is None:
        return "every device does more for others"
    stays = placement == own.job.placement
    anew = configuration_of(placement, pool)
    speedup = own.staying if stays else own.anew[anew]
    return f"{number(speedup)} times the goodput of a fair share of {fair}"
