"""Pool of two kinds of machine under the real controller."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import Objective
from autoscaler.domain.offer import Purchase
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import Snapshot
from autoscaler.policies.base import Policy
from autoscaler.policies.registry import create_policy
from autoscaler.simulator.profiles.profiles import Profile
from autoscaler.simulator.scenario import Scenario
from autoscaler.simulator.simulation import Simulation, SimulationRun, TimedPolicy
from autoscaler.simulator.training.profiled import TrainingSettings
from autoscaler.simulator.workloads.arrivals import first_look
from autoscaler.simulator.workloads.workload import Arrival
from autoscaler.store.memory.store import memory_store
from providers.simulated.cloud import SimulatedCloud
from providers.simulated.provider import SimulatedProvider
from providers.simulated.settings import SimulatedSettings
from tests.simulator import toy

ARRIVALS = tuple(Arrival(f"toy-{n}", 20.0 * n, toy.APPLICATION, 2, 64) for n in range(3))
POOL = tuple(
    replace(
        toy.offer(kind),
        id=f"node-{number}",
        purchase=Purchase.RESERVED,
        usd_per_hour=Decimal(0),
        boot_seconds=0.0,
        shared=True,
    )
    for number, kind in enumerate(("fast", "slow", "slow"))
)


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Profile]:
    return toy.profiles(tmp_path_factory.mktemp("profiles"))


class Listening:
    """Policy that records the snapshots it receives."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.heard: list[Snapshot] = []
        self.adapts_batch = getattr(policy, "adapts_batch", True)

    def plan(self, snapshot: Snapshot) -> Plan:
        self.heard.append(snapshot)
        return self._policy.plan(snapshot)


def ran(profiles: dict[str, Profile], name: str) -> tuple[SimulationRun, list[Snapshot]]:
    policy, clock, store = Listening(create_policy(name)), VirtualClock(), memory_store()
    cloud = SimulatedCloud(SimulatedSettings(offers=POOL), clock)
    scenario = Scenario(
        arrivals=ARRIVALS,
        profiles=profiles,
        equipment=toy.equipment(*POOL),
        objective=lambda now_seconds: Objective(),
        instances=InstanceBounds(maximum=4),
        training=TrainingSettings(pause_seconds=2.0),
        replans_on_news=False,
        adapts_batch=policy.adapts_batch,
        is_profiled=True,
    )
    provider = SimulatedProvider(cloud, store.settings.controller_id())
    timed = TimedPolicy(policy, SystemClock())
    return Simulation(scenario, store, provider, timed, clock).run(), policy.heard


@pytest.mark.parametrize("name", ["gavel", "marginal", "sia", "tiresias"])
def test_a_pool_of_two_kinds_runs_to_the_end(profiles: dict[str, Profile], name: str) -> None:
    run, heard = ran(profiles, name)
    assert len(run.jobs) == len(ARRIVALS)
    for job in run.jobs:
        for span in job.spans:
            assert len({member.device_kind for member in span.members}) == 1
    # Each job is measured on one device of each kind before the first plan.
    first = heard[0].jobs[0]
    assert {kind: kind_model.measured for kind, kind_model in first.models.items()} == {
        "fast": {(1, 1)},
        "slow": {(1, 1)},
    }
    assert first.truth is not None
    assert first.truth.step_seconds_on("fast")[2] < first.truth.step_seconds_on("slow")[2]
    last = [job for moment in heard for job in moment.jobs][-1]
    by_kind = last.service.kind_device_seconds
    assert sum(by_kind.values()) == pytest.approx(last.service.attained_device_seconds)
    assert by_kind.keys() <= {"fast", "slow"}


def test_what_a_job_has_measured_before_is_one_device_at_ten_batches(
    profiles: dict[str, Profile],
) -> None:
    profile = profiles[toy.APPLICATION]
    look = first_look(profile, toy.equipment(*POOL).values(), slowdown=2.0)
    assert {(o.device_kind, o.instances, o.devices) for o in look} == {
        ("fast", 1, 1),
        ("slow", 1, 1),
    }
    of_fast = [o for o in look if o.device_kind == "fast"]
    assert len(of_fast) == len({o.device_batch for o in of_fast}) == 10
    assert (of_fast[0].device_batch, of_fast[-1].device_batch) == (4, 64)
    assert sum(o.steps * o.step_seconds for o in of_fast) < 20.5
    times = profile.step_times("fast", (1,), 64)
    assert of_fast[-1].step_seconds == pytest.approx(2.0 * times.step_seconds)
