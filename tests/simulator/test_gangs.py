"""Gangs under the real controller and the simulated cloud: lost, given back and bought whole."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from pathlib import Path

import pytest

from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.domain.goodput import ShardedParameters
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import InstanceBounds, JobPhase, ParallelismSpec
from autoscaler.domain.objective import Objective
from autoscaler.domain.offer import Purchase
from autoscaler.goodput.formulas import predictor_of
from autoscaler.policies.registry import create_policy
from autoscaler.simulator.profiles.profiles import Profile, read_profiles
from autoscaler.simulator.scenario import Scenario
from autoscaler.simulator.simulation import Simulation, TimedPolicy
from autoscaler.simulator.training.profiled import TrainingSettings
from autoscaler.simulator.workloads.workload import Arrival
from autoscaler.store.memory.store import memory_store
from autoscaler.store.store import Store
from providers.simulated.cloud import SimulatedCloud
from providers.simulated.provider import SimulatedProvider
from providers.simulated.settings import SimulatedSettings
from tests.simulator import toy

# Copies on four devices: gangs of two instances with two devices each.
SHARDED = ShardedParameters(0.02, 0.004, 0.0, 0.05, 1.0, 0.01, 0.002, 0.01, 0.002, 1.5, shard=4)
SPOT = toy.offer("slow", Purchase.SPOT, hazard=6.0)


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Profile]:
    folder: Path = tmp_path_factory.mktemp("sharded")
    toy.write_profile(folder)
    (folder / toy.APPLICATION / "placements-slow.csv").write_text(
        "".join(f"{line}\n" for line in _placements())
    )
    return read_profiles(folder)


def _placements() -> Iterable[str]:
    predictor = predictor_of(SHARDED)
    yield "placement,local_bsz,step_time,sync_time"
    for devices, instances, batch in product((1, 2), range(1, 9), toy.DEVICE_BATCHES):
        size = instances, devices * instances
        step = float(predictor.step_seconds(*size, batch, 0))
        sync = max(step - float(predictor.compute_seconds(*size, batch)), 1e-6)
        yield f"{str(devices) * instances},{batch},{step},{sync}"


def simulated(profiles: dict[str, Profile], seed: int) -> tuple[Store, Simulation]:
    store: Store = memory_store()
    clock = VirtualClock()
    cloud = SimulatedProvider(
        SimulatedCloud(SimulatedSettings(offers=(SPOT,), seed=seed), clock),
        store.settings.controller_id(),
    )
    scenario = Scenario(
        arrivals=(Arrival("gpt", 0.0, toy.APPLICATION, 4, 32),),
        profiles=profiles,
        equipment=toy.equipment(SPOT),
        objective=lambda now_seconds: Objective(),
        instances=InstanceBounds(maximum=8),
        training=TrainingSettings(pause_seconds=2.0),
        parallelism=ParallelismSpec(shard=4),
    )
    timed = TimedPolicy(create_policy("marginal"), SystemClock())
    return store, Simulation(scenario, store, cloud, timed, clock)


def test_a_lost_gang_is_bought_again_whole_and_the_job_finishes(
    profiles: dict[str, Profile],
) -> None:
    store, simulation = simulated(profiles, seed=2)
    run = simulation.run()
    (job,) = store.jobs.all()
    assert job.phase is JobPhase.FINISHED
    for span in run.jobs[0].spans:
        assert len(span.members) % 2 == 0, span
    every = store.instances.of_job(job.id, include_ended=True)
    assert all(held.phase is InstancePhase.ENDED for held in every)
    assert all(held.seat is not None and held.seat.instances == 2 for held in every)
    given_back = [
        event.text
        for event in store.events.latest(job.id, 1000)
        if event.kind == "gang given back"
    ]
    assert given_back, "no gang was lost: choose another seed"
    numbers = {held.seat.number for held in every if held.seat is not None}
    assert len(numbers) > len(given_back)
