from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.objective import Objective
from autoscaler.domain.report import Quality
from autoscaler.domain.snapshot import JobSnapshot, ServiceReceived, StudySnapshot
from autoscaler.domain.terms import StudyTerms, TrialProgress, TrialRecord, TrialSpeed
from autoscaler.policies.published.chances import MetricTarget, chances
from autoscaler.policies.published.hyperdrive import HyperdriveParameters, HyperdrivePolicy
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
        service=ServiceReceived(attained_device_seconds=had, started_seconds=NOW - had),
    )


GOOD = trial("good", 0.50, 0.70, 0.80, 0.86, had=5000.0)
SLOW = trial("slow", 0.30, 0.38, 0.44, 0.49)
FLAT = trial("flat", 0.10, 0.10, 0.10, 0.10, had=0.0)
AIM = HyperdriveParameters(MetricTarget(target=0.88))


def test_the_promising_come_first_and_the_poor_last_whatever_they_have_had() -> None:
    trials = FLAT, SLOW, trial("new"), GOOD
    for devices, served in ((1, {"good"}), (3, {"good", "new", "slow"})):
        plan = HyperdrivePolicy(AIM).plan(pool_snapshot(*trials, offers=machines(1, devices)))
        assert {name for name, size in sizes(plan).items() if size} == served
    by_name = {one.job: one.reason for one in plan.decisions}
    assert "promising" in by_name["good"]
    assert "poor" in by_name["flat"]
    assert "opportunistic, no metric reported yet" in by_name["new"]


def test_a_metric_may_be_one_that_falls() -> None:
    falling = HyperdriveParameters(MetricTarget(target=0.12, maximize=False))
    good = trial("good", 0.50, 0.30, 0.20, 0.14)
    flat = trial("flat", 0.90, 0.90, 0.90, 0.90, had=0.0)
    plan = HyperdrivePolicy(falling).plan(pool_snapshot(flat, good, offers=machines(1, 1)))
    assert sizes(plan) == {"flat": 0, "good": 1}


def test_what_can_not_come_there_in_the_time_left_is_not_promising() -> None:
    soon = HyperdriveParameters(MetricTarget(target=0.88, within_seconds=1.0))
    (decision,) = HyperdrivePolicy(soon).plan(pool_snapshot(GOOD)).decisions
    assert "poor" in decision.reason


def test_without_a_target_the_best_so_far_is_to_be_bettered() -> None:
    done = trial("done", 0.9, 0.9, 0.9, 0.9, left=0.0)
    plan = HyperdrivePolicy().plan(pool_snapshot(GOOD, done, offers=machines(1, 1)))
    assert sizes(plan) == {"done": 0, "good": 1}


def test_a_study_says_its_direction_and_its_deadline_and_those_that_ended_teach() -> None:
    """Rank two equal trials by speed; an ended trial sets the value to beat."""
    size = Allocation("node-000", 1, 1)

    def record(name: str, *values: float, pace: float, has_ended: bool = False) -> TrialRecord:
        reports = tuple((float(epoch + 1), value) for epoch, value in enumerate(values))
        stands = TrialProgress(name, len(values), reports=reports, has_ended=has_ended)
        return TrialRecord(stands, NOW, size, (TrialSpeed(size, pace, 1.0),))

    ended = record("ended", 0.9, 0.5, 0.3, 0.22, 0.2, 0.2, 0.2, 0.2, pace=1.0, has_ended=True)
    trials = (
        ended,
        record("fast", 0.8, 0.5, 0.3, 0.21, pace=1.0),
        record("late", 0.8, 0.5, 0.3, 0.21, pace=1e-4),
    )
    terms = StudyTerms(Objective(deadline_seconds=NOW + 60.0), full_work=8.0, best=0.2)
    study = StudySnapshot("sweep", terms, trials)
    jobs = [pool_job(name, study="sweep") for name in ("fast", "late")]
    found = chances(replace(pool_snapshot(*jobs), studies=(study,)), MetricTarget())
    assert found["fast"] > 0.5 > 0.25 > found["late"]
    assert found.keys() == {"fast", "late"}


@pytest.mark.parametrize("values", [{"poor_chance": 2.0}, {"turn_seconds": 0.0}])
def test_parameters_that_can_not_be_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        HyperdriveParameters(**values)  # type: ignore[arg-type]
