"""An invented study: nine trials of six epochs, on machines of one device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import Objective
from autoscaler.domain.offer import Offer
from autoscaler.policies.registry import create_policy
from autoscaler.simulator.profiles.curves import RecordedCurve
from autoscaler.simulator.results import Result, result_of
from autoscaler.simulator.scenario import Scenario
from autoscaler.simulator.simulation import Simulation, TimedPolicy
from autoscaler.simulator.studies.searches import AsynchronousHalving, SynchronousHalving
from autoscaler.simulator.studies.study import (
    BatchOfTrials,
    SimulatedStudy,
    application_of,
    trials_of,
)
from autoscaler.simulator.training.profiled import TrainingSettings
from autoscaler.store.memory.store import memory_store
from autoscaler.store.store import Store
from providers.simulated.cloud import SimulatedCloud
from providers.simulated.provider import SimulatedProvider
from providers.simulated.settings import SimulatedSettings
from tests.simulator import toy

OFFER = replace(toy.offer("slow"), devices=1)
SYNCHRONOUS = SynchronousHalving(9, 3, (1.0, 3.0, 6.0))
ASYNCHRONOUS = AsynchronousHalving(9, 1.0, 3, at_once=3)


def curve(number: int) -> RecordedCurve:
    """Return the curve of a trial; lower values are better, and later trials are slower."""
    values = [10.0 - (number * 7 % 9) / (1.0 + epoch) for epoch in range(6)]
    seconds = accumulate([60.0 + 10.0 * number] * 6)
    epochs = tuple(float(epoch) for epoch in range(1, 7))
    return RecordedCurve(
        str(number), {"width": str(number + 1)}, epochs, tuple(values), tuple(seconds)
    )


def study(rule: SynchronousHalving | AsynchronousHalving, objective: Objective) -> SimulatedStudy:
    """Return a study with a rule of search."""
    curves = [curve(number) for number in range(9)]
    application = application_of("trial", {1: 1.0, 2: 1.8, 4: 3.0}, ["slow"])
    trials = trials_of(curves, application, BatchOfTrials(), "slow")
    bounds = InstanceBounds(maximum=2)
    return SimulatedStudy("s", trials, rule, objective, instances=bounds, start_seconds=5.0)


class SimulatedRun:
    """One simulation of a study, with its result and store."""

    def __init__(
        self,
        simulated: SimulatedStudy,
        policy: str = "marginal",
        offers: Sequence[Offer] = (OFFER,),
        seed: int = 0,
    ) -> None:
        self.offers = {offer.id: offer for offer in offers}
        self.store: Store = memory_store()
        clock = VirtualClock()
        settings = SimulatedSettings(offers=tuple(offers), seed=seed)
        cloud = SimulatedCloud(settings, clock)
        self.cloud = SimulatedProvider(cloud, self.store.settings.controller_id())
        scenario = Scenario(
            arrivals=(),
            profiles={},
            equipment=toy.equipment(*offers),
            objective=lambda now_seconds: Objective(),
            instances=InstanceBounds(),
            training=TrainingSettings(pause_seconds=2.0, seed=seed),
            study=simulated,
        )
        timed = TimedPolicy(create_policy(policy), SystemClock())
        simulation = Simulation(scenario, self.store, self.cloud, timed, clock)
        run = simulation.run()
        self.result: Result = result_of(policy, seed, run, self.store, self.offers)
