from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.domain.goodput import BatchBounds, ThroughputParameters
from autoscaler.domain.snapshot import GroundTruth
from autoscaler.policies.published.optimus import (
    OptimusOraclePolicy,
    OptimusParameters,
    OptimusPolicy,
)
from tests.conformance.pool_policy import (
    KIND,
    PoolPolicyConformance,
    machines,
    placement_of,
    pool_job,
    pool_snapshot,
    sizes,
)
from tests.economics.cases import NOW, model

ORACLE = OptimusOraclePolicy()


class TestPredicting(PoolPolicyConformance):
    is_rigid = False

    @pytest.fixture
    def policy(self) -> OptimusPolicy:
        return OptimusPolicy()


class TestOracle(PoolPolicyConformance):
    is_rigid = False

    @pytest.fixture
    def policy(self) -> OptimusPolicy:
        return ORACLE


def truth(*step_seconds: float, steps: float = 1.0) -> GroundTruth:
    return GroundTruth(dict(enumerate(step_seconds, start=1)), steps)


def test_the_next_device_goes_where_it_saves_most_time() -> None:
    jobs = (
        pool_job("long", truth=truth(8.0, 4.0, 3.0, 2.9, steps=10.0)),
        pool_job("short", truth=truth(8.0, 4.0, 2.0, 1.0, steps=4.0)),
    )
    plan = ORACLE.plan(pool_snapshot(*jobs, offers=machines(1, 5)))
    assert sizes(plan) == {"long": 3, "short": 2}
    assert [decision.reason for decision in plan.decisions] == [
        "start long with 3 on node-000: 30 s left, one more device would save 1 s",
        "start short with 2 on node-000: 16 s left, one more device would save 8 s",
    ]


def test_a_device_that_saves_nothing_is_left_free() -> None:
    flat = pool_job("flat", truth=truth(4.0, 3.0, 3.0, 1.0))
    assert sizes(ORACLE.plan(pool_snapshot(flat))) == {"flat": 2}


def test_everybody_has_one_device_before_anybody_has_two() -> None:
    first = pool_job("z", truth=truth(9.0, 1.0, steps=1e6), submitted_seconds=NOW - 900)
    jobs = [pool_job(name, truth=truth(9.0, 8.0)) for name in "abcd"]
    found = sizes(ORACLE.plan(pool_snapshot(first, *jobs, offers=machines(1, 4))))
    assert found == {"z": 1, "a": 1, "b": 1, "c": 1, "d": 0}


def test_sizes_end_where_knowledge_or_the_parameter_ends() -> None:
    known = pool_job("known", truth=truth(3.0, 2.0))
    unknown = pool_job("unknown")
    wide = pool_job("wide", truth=truth(*(1.0 / n for n in range(1, 9))))
    policy = OptimusOraclePolicy(OptimusParameters(most_devices=4))
    moment = pool_snapshot(known, unknown, wide, offers=machines(3))
    assert sizes(policy.plan(moment)) == {"known": 2, "unknown": 1, "wide": 4}


def test_smaller_jobs_are_placed_first() -> None:
    jobs = (pool_job("a", truth=truth(8.0, 4.0, 2.0)), pool_job("b", truth=truth(1.0)))
    plan = ORACLE.plan(pool_snapshot(*jobs))
    assert [decision.placement for decision in plan.decisions] == [
        placement_of(node_001=3),
        placement_of(node_000=1),
    ]


def test_without_the_truth_the_model_and_what_remains_decide() -> None:
    """The truths say the opposite, and are not looked at."""
    jobs = (
        pool_job("large", remaining_examples=1e6, truth=truth(1.0)),
        pool_job("small", remaining_examples=1e3, truth=truth(9.0, 1.0, steps=1e9)),
        pool_job("unknown", remaining_examples=None),
    )
    found = sizes(OptimusPolicy().plan(pool_snapshot(*jobs)))
    assert found == {"large": 6, "small": 1, "unknown": 1}


def test_a_batch_of_two_examples_has_no_use_for_three_devices() -> None:
    perfect = ThroughputParameters(0.0, 0.01, 0.0, 0.0, 0.0, 0.0, 1.0)
    batch = BatchBounds(2, 64, 64, adaptive=True)
    tiny = pool_job("tiny", batch=batch, models={KIND: model(perfect, KIND)})
    assert sizes(OptimusPolicy().plan(pool_snapshot(tiny))) == {"tiny": 2}


@given(
    saved=st.lists(st.lists(st.floats(0.01, 10.0), max_size=4), min_size=1, max_size=3),
    devices=st.integers(1, 8),
)
@settings(deadline=None, max_examples=100)
def test_where_gains_fall_greedy_is_the_best_there_is(
    saved: list[list[float]], devices: int
) -> None:
    """Least time in all, found by trying everything, where everybody can have a device."""
    curves = [list(itertools.accumulate(sorted(each), initial=1.0))[::-1] for each in saved]
    jobs = [pool_job(str(n), truth=truth(*curve)) for n, curve in enumerate(curves)]
    if devices < len(jobs):
        return
    found = sizes(ORACLE.plan(pool_snapshot(*jobs, offers=machines(1, devices))))
    every = itertools.product(*(range(1, len(curve) + 1) for curve in curves))
    least = min(
        sum(curve[size - 1] for curve, size in zip(curves, each, strict=True))
        for each in every
        if sum(each) <= devices
    )
    assert sum(curves[int(name)][size - 1] for name, size in found.items()) == pytest.approx(least)
