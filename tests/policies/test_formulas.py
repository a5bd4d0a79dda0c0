"""Every policy plans for jobs of every throughput model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.goodput import (
    BatchBounds,
    LocalityParameters,
    PipelineParameters,
    ShardedParameters,
    StepParameters,
)
from autoscaler.domain.job import InstanceBounds, ParallelismSpec
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.policies.pools.optimism import optimistic, speedups_over
from autoscaler.policies.registry import create_policy, policies
from autoscaler.policies.wrappers.gangs import InWholeGangs
from tests.conformance.pool_policy import KIND, pool_job, pool_snapshot, sizes
from tests.economics.cases import devices, job, offer, snapshot

PIPELINE = PipelineParameters(
    1e-3, 2e-3, 5e-4, 0.02, 0.01, 0.01, 0.01, 1.5, stages=4, microbatches=8
)
LOCALITY = LocalityParameters(0.0, 0.01, 0.02, 0.02, 0.02, 0.02, 0.1, 0.05, 1.5, near_instances=2)
SHARDED = ShardedParameters(1e-3, 2e-3, 5e-3, 0.02, 1.0, 0.02, 0.01, 0.01, 0.01, 1.5, shard=4)
BATCH = BatchBounds(64, 1024, 64, adaptive=True)
TWO = offer("two", "0.19", devices=2)


def model(parameters: StepParameters, kind: str, measured: bool = True) -> ThroughputModel:
    sizes = frozenset({(1, 4), (2, 8)}) if measured else frozenset()
    return ThroughputModel(kind, parameters, (parameters,) * 2, sizes)


@pytest.mark.parametrize("parameters", [PIPELINE, LOCALITY, SHARDED])
@pytest.mark.parametrize("measured", [True, False])
@pytest.mark.parametrize("name", [listing.name for listing in policies()])
def test_a_plan_is_made(name: str, measured: bool, parameters: StepParameters) -> None:
    policy = create_policy(name)
    shared = model(parameters, KIND, measured)
    jobs = [pool_job(f"job-{n}", n, batch=BATCH, models={KIND: shared}) for n in (4, 3, 1)]
    assert len(policy.plan(pool_snapshot(*jobs)).decisions) == 3
    bought = job("gpt", models=model(parameters, "core", measured), batch=BATCH)
    wide = replace(bought, instances=InstanceBounds(1, 8))
    assert len(policy.plan(snapshot(wide, offers=[TWO])).decisions) == 1


def test_marginal_buys_devices_for_whole_replicas() -> None:
    pipeline = replace(
        job("gpt", models=model(PIPELINE, "core"), batch=BATCH), instances=InstanceBounds(1, 8)
    )
    moment = snapshot(pipeline, offers=[TWO], limits=[devices(14)])
    (decision,) = create_policy("marginal").plan(moment).decisions
    assert decision.target is not None
    assert decision.target.devices % 4 == 0
    shared = [pool_job(n, 3, batch=BATCH, models={KIND: model(PIPELINE, KIND)}) for n in "ab"]
    found = sizes(create_policy("marginal").plan(pool_snapshot(*shared)))
    assert found
    assert all(size % 4 == 0 for size in found.values())


@pytest.mark.parametrize("name", [listing.name for listing in policies()])
@pytest.mark.parametrize("most", [7, 8])
def test_no_policy_lets_a_job_hold_part_of_a_gang(name: str, most: int) -> None:
    shard = ParallelismSpec(shard=4)
    jobs = [
        job(
            f"gpt-{number}",
            models=model(SHARDED, "core"),
            batch=BATCH,
            instances=InstanceBounds(minimum, most),
            parallelism=shard,
        )
        for number, minimum in enumerate((1, 3))
    ]
    moment = snapshot(*jobs, offers=[TWO], limits=[devices(22)])
    plan = InWholeGangs(create_policy(name)).plan(moment)
    targets = {decision.job: decision.target for decision in plan.decisions}
    for target in targets.values():
        assert target is None or target.instances % 2 == 0
    second = targets["gpt-1"]
    assert second is None or second.instances >= 4
    if getattr(create_policy(name), "only_on", "cloud") == "cloud":
        assert any(targets.values())


def test_marginal_and_fixed_sizes_are_whole_gangs_by_themselves() -> None:
    gpt = job(
        "gpt",
        models=model(SHARDED, "core"),
        batch=BATCH,
        instances=InstanceBounds(3, 7),
        parallelism=ParallelismSpec(shard=4),
    )
    moment = snapshot(gpt, offers=[TWO])
    for name in ("marginal", "static"):
        policy = create_policy(name)
        plan = policy.plan(moment)
        assert plan == InWholeGangs(policy).plan(moment)
        (decision,) = plan.decisions
        assert decision.target is not None
        assert decision.target.instances in (4, 6)


def test_what_was_not_measured_costs_nothing_on_the_third_level_either() -> None:
    near = ThroughputModel(KIND, LOCALITY, (LOCALITY,), frozenset({(2, 8)}))
    far = ThroughputModel(KIND, LOCALITY, (LOCALITY,), frozenset({(2, 8), (3, 12)}))
    assert optimistic(near) == replace(
        LOCALITY, alpha_far_seconds=0.0, beta_far_seconds_per_doubling=0.0
    )
    assert optimistic(far) == LOCALITY


def test_a_speedup_is_over_the_best_where_the_base_is_too_little_for_a_replica() -> None:
    one = pool_job("gpt", 4, batch=replace(BATCH, adaptive=False))
    known = model(PIPELINE, KIND)
    alone, two = speedups_over((1, 1), one, known, [(1, 1), (1, 4)])
    assert (alone, two) == (0.0, pytest.approx(4.0))
    assert speedups_over((1, 1), one, known, [(1, 2), (1, 3)]) == [0.0, 0.0]
