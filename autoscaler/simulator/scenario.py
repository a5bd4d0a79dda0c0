"""What is simulated: work, what there is to train on, and how training goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import Objective
from autoscaler.simulator.agents import Equipment
from autoscaler.simulator.profiles import Profile
from autoscaler.simulator.regimes import Schedule
from autoscaler.simulator.simulated_study import SimulatedStudy
from autoscaler.simulator.training import TrainingSettings
from autoscaler.simulator.workload import Arrival


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is simulated. `objective` is that of a job submitted at the time it is called with.

    Jobs adapt their batch or, not `adapts_batch`, keep to the one requested. Plans are made every
    `interval_seconds` and, with `replans_on_news`, in between. Where it `remembers`, the jobs of
    an application are runs of one program. `of_application` are settings that
    take the place of `training`; a job in `regimes`, by name, goes as scheduled there. The others
    were, where the scenario `is_profiled`, measured on one device of each kind before. The trials
    of a `study` are submitted by its driver.
    """

    arrivals: tuple[Arrival, ...]
    profiles: Mapping[str, Profile]
    equipment: Mapping[str, Equipment]
    objective: Callable[[float], Objective]
    instances: InstanceBounds
    training: TrainingSettings
    interval_seconds: float = 60.0
    replans_on_news: bool = True
    adapts_batch: bool = True
    remembers: bool = False
    is_profiled: bool = False
    of_application: Mapping[str, TrainingSettings] = field(default_factory=dict)
    fleet_usd_per_hour: float | None = None
    regimes: Mapping[str, Schedule] = field(default_factory=dict)
    study: SimulatedStudy | None = None
