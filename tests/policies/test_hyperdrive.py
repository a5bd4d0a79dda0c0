from __future__ import annotations

import pytest

from autoscaler.domain.report import Quality
from autoscaler.domain.snapshot import JobSnapshot, Service
from autoscaler.policies.hyperdrive import HyperdriveParameters, HyperdrivePolicy
from tests.conformance.pool_policy import (
    PoolPolicyConformance,
    machines,
    pool_job,
    pool_snapshot,
    sizes,
)
from tests.economics.cases import NOW

STEP = 1000.0


class TestHyperdrive(PoolPolicyConformance):
    @pytest.fixture
    def policy(self) -> HyperdrivePolicy:
        return HyperdrivePolicy()


def trial(name: str, *metrics: float, left: float = 1e4, had: float = 900.0) -> JobSnapshot:
    told = tuple(Quality(STEP * (turn + 1), metric) for turn, metric in enumerate(metrics))
    return pool_job(
        name,
        quality=told,
        progress_examples=STEP * len(metrics),
        remaining_examples=left,
        service=Service(attained_device_seconds=had, started_seconds=NOW - had),
    )


GOOD = trial("good", 0.50, 0.70, 0.80, 0.86, had=5000.0)
SLOW = trial("slow", 0.30, 0.38, 0.44, 0.49)
FLAT = trial("flat", 0.10, 0.10, 0.10, 0.10, had=0.0)
AIM = HyperdriveParameters(target=0.88)


def test_the_promising_come_first_and_the_poor_last_whatever_they_have_had() -> None:
    trials = FLAT, SLOW, trial("new"), GOOD
    for devices, served in ((1, {"good"}), (3, {"good", "new", "slow"})):
        plan = HyperdrivePolicy(AIM).plan(pool_snapshot(*trials, offers=machines(1, devices)))
        assert {name for name, size in sizes(plan).items() if size} == served
    by_name = {one.job: one.reason for one in plan.decisions}
    assert "promising" in by_name["good"]
    assert "poor" in by_name["flat"]
    assert "opportunistic, no metric told yet" in by_name["new"]


def test_a_metric_may_be_one_that_falls() -> None:
    falling = HyperdriveParameters(target=0.12, maximize=False)
    good = trial("good", 0.50, 0.30, 0.20, 0.14)
    flat = trial("flat", 0.90, 0.90, 0.90, 0.90, had=0.0)
    plan = HyperdrivePolicy(falling).plan(pool_snapshot(flat, good, offers=machines(1, 1)))
    assert sizes(plan) == {"flat": 0, "good": 1}


def test_what_can_not_come_there_in_the_time_left_is_not_promising() -> None:
    soon = HyperdriveParameters(target=0.88, within_seconds=1.0)
    (decision,) = HyperdrivePolicy(soon).plan(pool_snapshot(GOOD)).decisions
    assert "poor" in decision.reason


def test_without_a_target_the_best_so_far_is_to_be_bettered() -> None:
    done = trial("done", 0.9, 0.9, 0.9, 0.9, left=0.0)
    plan = HyperdrivePolicy().plan(pool_snapshot(GOOD, done, offers=machines(1, 1)))
    assert sizes(plan) == {"done": 0, "good": 1}


@pytest.mark.parametrize("values", [{"poor_chance": 2.0}, {"turn_seconds": 0.0}])
def test_parameters_that_can_not_be_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        HyperdriveParameters(**values)  # type: ignore[arg-type]
