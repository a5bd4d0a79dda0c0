"""Fleets for pages: stores and states of controllers at a moment of a simulation, or made up.

A simulated fleet has real decisions, models and bills of the real controller on a virtual clock.
Large fleets are copies of the jobs of a simulated one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autoscaler.cli.simulate.market import read_market
from autoscaler.cli.simulate.options import SimulateOptions
from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.controller.controller import ControllerStatus
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import Objective
from autoscaler.policies.registry import create_policy
from autoscaler.simulator.profiles.profiles import read_profiles
from autoscaler.simulator.scenario import Scenario
from autoscaler.simulator.simulation import Simulation, TimedPolicy
from autoscaler.simulator.training.profiled import TrainingSettings
from autoscaler.simulator.workloads.workload import Arrival
from autoscaler.store.memory.store import memory_store
from autoscaler.store.store import Store
from providers.simulated.cloud import SimulatedCloud
from providers.simulated.provider import SimulatedProvider
from providers.simulated.settings import SimulatedSettings

EXAMPLE = Path(__file__).parents[2] / "examples" / "simulation"
START_SECONDS = 1_795_680_000.0  # 2026-11-26 08:00:00 UTC


@dataclass(frozen=True)
class SimulatedJob:
    """Job of a fleet, submitted `at_seconds` after the start."""

    name: str
    application: str
    at_seconds: float
    objective: Objective
    devices: int = 2
    batch: int = 256
    person: str = "owner"
    team: str | None = None


@dataclass
class FleetState:
    """Store, state and clock of a controller, in place of a `World`."""

    store: Store
    status: ControllerStatus
    clock: VirtualClock
    settings: ControllerSettings = field(default_factory=ControllerSettings)

    @property
    def controller(self) -> FleetState:
        """The controller, of which pages need the status alone."""
        return self

    def tick(self, times: int = 1) -> None:
        """Do nothing: the state is that of one moment."""


class _Paused(Simulation):
    """Simulation that pauses at a moment."""

    until_seconds = 0.0

    def _has_more_to_do(self) -> bool:
        return self._clock.now() < self.until_seconds and super()._has_more_to_do()

    def _next_seconds(self) -> float:
        return min(super()._next_seconds(), self.until_seconds)


def simulated_fleet(jobs: Sequence[SimulatedJob], seconds: float) -> FleetState:
    """Return the state of a fleet `seconds` after its start."""
    market = read_market(SimulateOptions(offers=EXAMPLE / "offers.yaml"))
    profiles = read_profiles(EXAMPLE / "profiles")
    objectives = {START_SECONDS + job.at_seconds: job.objective for job in jobs}
    scenario = Scenario(
        arrivals=tuple(
            Arrival(
                job.name, START_SECONDS + job.at_seconds, job.application, job.devices, job.batch
            )
            for job in jobs
        ),
        profiles=profiles,
        equipment=market.equipment,
        objective=lambda now_seconds: objectives[now_seconds],
        instances=InstanceBounds(maximum=16),
        training=TrainingSettings(pause_seconds=30.0, seed=1),
    )
    clock, store = VirtualClock(START_SECONDS), memory_store()
    policy = TimedPolicy(create_policy("marginal"), SystemClock())
    settings = SimulatedSettings(offers=market.offers, limits=market.limits, seed=1)
    cloud = SimulatedProvider(SimulatedCloud(settings, clock), store.settings.controller_id())
    simulation = _Paused(scenario, store, cloud, policy, clock)
    simulation.until_seconds = START_SECONDS + seconds
    simulation.run()
    return FleetState(store, simulation._controller.status, clock)
