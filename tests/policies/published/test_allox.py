from __future__ import annotations

from itertools import permutations

import pytest

from autoscaler.domain.snapshot import GroundTruth, JobSnapshot
from autoscaler.policies.published.allox import AlloxParameters, AlloxPolicy
from tests.conformance.pool_policy import (
    PoolPolicyConformance,
    machines,
    placement_of,
    pool_job,
    pool_snapshot,
    sizes,
)
from tests.economics.cases import NOW

SHORTEST = AlloxPolicy(AlloxParameters(alpha=1.0))


class TestAllox(PoolPolicyConformance):
    @pytest.fixture
    def policy(self) -> AlloxPolicy:
        return AlloxPolicy()


class TestTheLeastWaiting(PoolPolicyConformance):
    @pytest.fixture
    def policy(self) -> AlloxPolicy:
        return SHORTEST


def lasting(name: str, seconds: float, requested: int = 1, **changes: object) -> JobSnapshot:
    return pool_job(name, requested, truth=GroundTruth({requested: 1.0}, seconds), **changes)


def started(*jobs: JobSnapshot, devices: int, policy: AlloxPolicy = SHORTEST) -> set[str]:
    plan = policy.plan(pool_snapshot(*jobs, offers=machines(1, devices)))
    return {job for job, size in sizes(plan).items() if size > 0}


def test_the_jobs_that_start_are_those_of_the_schedule_with_the_least_sum() -> None:
    seconds = {"a": 50.0, "b": 10.0, "c": 40.0, "d": 20.0, "e": 30.0}

    def total(order: tuple[str, ...]) -> float:
        free_at = [0.0, 0.0]
        ends = 0.0
        for job in order:
            free_at.sort()
            free_at[0] += seconds[job]
            ends += free_at[0]
        return ends

    best = min(permutations(seconds), key=total)
    jobs = [lasting(name, own) for name, own in seconds.items()]
    assert started(*jobs, devices=2) == set(best[:2]) == {"b", "d"}


def test_nobody_is_interrupted() -> None:
    runs = lasting("runs", 9e6, 4, placement=placement_of(node_000=4))
    assert started(runs, lasting("short", 1.0), devices=4) == {"runs"}


def test_a_gang_weighs_as_much_as_all_its_devices() -> None:
    assert started(lasting("wide", 30.0, 4), lasting("narrow", 100.0), devices=4) == {"narrow"}
    assert started(lasting("wide", 20.0, 4), lasting("narrow", 100.0), devices=4) == {"wide"}


def test_a_part_of_those_that_wait_is_matched_the_first_of_them() -> None:
    jobs = [
        lasting(f"job-{turn}", 100.0 - turn, submitted_seconds=NOW - 100 + turn)
        for turn in range(10)
    ]
    for alpha, expected in ((1.0, "job-9"), (0.5, "job-4"), (0.1, "job-0")):
        policy = AlloxPolicy(AlloxParameters(alpha))
        assert started(*jobs, devices=1, policy=policy) == {expected}


def test_a_job_of_which_nothing_is_known_is_taken_to_be_a_usual_one() -> None:
    jobs = [lasting("long", 900.0), lasting("short", 10.0), lasting("usual", 20.0)]
    unknown = pool_job("unknown", remaining_examples=None)
    assert started(*jobs, unknown, devices=3) == {"short", "unknown", "usual"}


def test_alpha_is_a_part() -> None:
    for alpha in (0.0, 1.1):
        with pytest.raises(ValueError, match="alpha"):
            AlloxParameters(alpha)
