"""Pollux: goodput shared fairly. Elastic jobs with adaptive batches on a fixed pool.

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
from autoscaler.economics.pricing.wording import number
from autoscaler.policies.pools.configurations import (
    ConfigurationCosts,
    MachineConfiguration,
    assign,
    configuration_of,
    configurations,
    held_in,
)
from autoscaler.policies.pools.optimism import speedups_over
from autoscaler.policies.pools.pool import Pool, by_submission, plan_of_placements, pool_of
from autoscaler.policies.pools.projection import most_measured
from autoscaler.policies.published.restarts import LEAST_FACTOR, restart_factor
from autoscaler.policies.published.utility_band import UtilityBand, plan_cloud


@dataclass(frozen=True, slots=True)
class PolluxParameters:
    """Fairness, restart cost and growth.

    Attributes:
        power: p of the power mean of the speed-ups; lower is fairer. The paper and its simulator
            use -1.
        floor: added to every speed-up, in units of one machine's devices.
        restart_seconds: assumed cost of a change of placement.
        growth: largest number of devices, over the most that the job was measured on.
        most_devices: most devices of one job; the published profiles go up to 64.
        most_machines: most machines of one job.
        low_utility: on a cloud, utility below which there are too many instances.
        high_utility: on a cloud, utility above which there are too few.

    Raises:
        ValueError: power is 0 or above 1, or another parameter is not above 0.
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
        """Utility band that sizes a cluster on a cloud."""
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
    """Speed-ups of one job over the goodput of its fair share.

    `anew` has those of each possible configuration, `staying` that of the present placement.
    """

    job: JobSnapshot
    anew: Mapping[MachineConfiguration, float]
    staying: float


def fair_share(pool: Pool, jobs: Sequence[JobSnapshot]) -> int:
    """Return the devices of a job if all jobs had equally many, rounded up."""
    return max(math.ceil(pool.devices / max(len(jobs), 1)), 1)


class PolluxPolicy:
    """Greatest power mean of speed-ups, each over the job's goodput on its fair share.

    A change of placement multiplies a speed-up by ``max(age - restarts * s, 0) / (age + s)``, s
    the seconds of a restart. No machine has two distributed jobs. A job may grow to twice the
    devices that it was measured on; unmeasured sizes are assumed to scale perfectly. All kinds of
    device count as equal: the model is that of the kind on which the job was measured on the most
    devices.

    In place of the paper's genetic algorithm, an integer program finds the optimum over the
    configurations of Sia. Equal inputs give equal plans.

    On a cloud jobs hold instances of their own: see `plan_cloud`.
    """

    def __init__(self, parameters: PolluxParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan all jobs of the snapshot; see `Policy.plan`."""
        if not any(offer.shared for offer in snapshot.offers):
            return plan_cloud(snapshot, self._parameters.band)
        pool = pool_of(snapshot)
        jobs = by_submission(snapshot.jobs)
        fair = fair_share(pool, jobs)
        speedups = [self._speedups(job, pool, fair) for job in jobs]
        claims = [
            self._claim(job_speedups, pool, snapshot.now_seconds) for job_speedups in speedups
        ]
        assignment = assign(claims, pool)
        reasons = {
            job_speedups.job.id: _reason(
                job_speedups, assignment.placements[job_speedups.job.id], pool, fair
            )
            for job_speedups in speedups
        }
        plan = plan_of_placements(snapshot, assignment.placements, reasons)
        return plan if assignment.trouble is None else replace(plan, notes=(assignment.trouble,))

    def _speedups(self, job: JobSnapshot, pool: Pool, fair: int) -> _Speedups:
        """Return the job's speed-ups, over a fair share on one machine as in the simulator."""
        usable = pool.for_job(job)
        model = max(
            (job.models[kind] for kind in usable if kind in job.models),
            key=most_measured,
            default=None,
        )
        allowed_configurations = [
            configuration
            for configuration in configurations(pool)
            if configuration.kind in usable and self._may_have(configuration, model)
        ]
        held = held_in(job, pool)
        largest_batch = job.batch.maximum if job.batch.adaptive else job.batch.initial
        sizes = [
            (len(held.shares), held.devices) if held else (1, 1),
            *(
                (configuration.machines, configuration.total)
                for configuration in allowed_configurations
            ),
        ]
        base = (1, min(fair, largest_batch))
        staying, *others = speedups_over(base, job, model, sizes)
        configuration_speedups = {
            configuration: speedup
            for configuration, speedup in zip(allowed_configurations, others, strict=True)
            if speedup > 0
        }
        return _Speedups(job, configuration_speedups, staying)

    def _may_have(
        self, configuration: MachineConfiguration, model: ThroughputModel | None
    ) -> bool:
        """Return whether the configuration is within the bounds on devices and machines."""
        parameters = self._parameters
        most = min(max(parameters.growth * most_measured(model), 1), parameters.most_devices)
        return configuration.total <= most and configuration.machines <= parameters.most_machines

    def _claim(self, speedups: _Speedups, pool: Pool, now_seconds: float) -> ConfigurationCosts:
        """Return the costs of the configurations that the job could get."""
        factor = self._restart_factor(speedups.job, now_seconds)
        return ConfigurationCosts(
            job=speedups.job.id,
            held=held_in(speedups.job, pool),
            costs={
                configuration: self._cost(factor * speedup, pool)
                for configuration, speedup in speedups.anew.items()
            },
            staying_cost=self._cost(speedups.staying, pool),
            idle_cost=self._cost(0.0, pool),
        )

    def _restart_factor(self, job: JobSnapshot, now_seconds: float) -> float:
        """Return the factor on the speed-up of a job that has to restart for it."""
        factor = restart_factor(job, now_seconds, self._parameters.restart_seconds)
        return max(factor, LEAST_FACTOR)

    def _cost(self, speedup: float, pool: Pool) -> float:
        """Return the job's term of the power mean; the least sum gives the greatest mean."""
        scaled = speedup * len(pool.capacity) / pool.devices if pool.devices else 0.0
        power = self._parameters.power
        return math.copysign((scaled + self._parameters.floor) ** power, -power)


def _reason(speedups: _Speedups, placement: Placement | None, pool: Pool, fair: int) -> str:
    if placement is None:
        return "every device does more for other jobs"
    stays = placement == speedups.job.placement
    configuration = configuration_of(placement, pool)
    speedup = speedups.staying if stays else speedups.anew[configuration]
    return f"{number(speedup)} times the goodput of a fair share of {fair}"
