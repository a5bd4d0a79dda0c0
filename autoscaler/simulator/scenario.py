"""Scenarios: the workload, the instances, and the settings of training of a simulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from autoscaler.domain.access import Owner
from autoscaler.domain.budget import Budget
from autoscaler.domain.job import InstanceBounds, ParallelismSpec
from autoscaler.domain.objective import Objective
from autoscaler.simulator.agents import Equipment
from autoscaler.simulator.profiles.profiles import Profile
from autoscaler.simulator.studies.study import SimulatedStudy
from autoscaler.simulator.training.profiled import TrainingSettings
from autoscaler.simulator.workloads.regimes import Schedule
from autoscaler.simulator.workloads.workload import Arrival


@dataclass(frozen=True, slots=True)
class Scenario:
    """Input of a simulation.

    Attributes:
        arrivals: jobs of the workload.
        profiles: application -> profile.
        equipment: offer id -> offer and profiled kind of device.
        objective: objective of a job by its time of submission.
        instances: bounds of every job.
        training: settings of training.
        interval_seconds: longest time between plans.
        replans_on_news: whether events trigger plans in between.
        adapts_batch: whether jobs adapt their batch; if not, they keep the requested one.
        remembers: whether jobs of one application are runs of one program.
        is_profiled: whether jobs were measured on one device of each kind before submission.
        of_application: application -> settings that replace `training`.
        fleet_usd_per_hour: limit on the price of all instances; None: no limit.
        regimes: job name -> schedule of regimes. Such jobs are not profiled before.
        study: study whose driver submits trials; None: none.
        save_seconds: time between two checkpoints of restartable jobs; None: jobs have sessions.
        parallelism: distribution of a step of every job over its devices.
        owners: job name -> owner; jobs without one belong to the default owner.
        budgets: shared budgets.
        ends_seconds: end of the simulation, also of jobs that have not finished; None: their end.
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
    parallelism: ParallelismSpec = field(default_factory=ParallelismSpec)
    save_seconds: float | None = None
    owners: Mapping[str, Owner] = field(default_factory=dict)
    budgets: tuple[Budget, ...] = ()
    ends_seconds: float | None = None
