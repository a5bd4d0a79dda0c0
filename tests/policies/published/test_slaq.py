from __future__ import annotations

import pytest

from autoscaler.domain.report import Quality
from autoscaler.policies.published.slaq import SlaqParameters, SlaqPolicy
from tests.conformance.pool_policy import (
    PoolPolicyConformance,
    pool_job,
    pool_snapshot,
    sizes,
)


class TestSlaq(PoolPolicyConformance):
    is_rigid = False

    @pytest.fixture
    def policy(self) -> SlaqPolicy:
        return SlaqPolicy()


def history(*metrics: float, step: float = 1e5) -> tuple[Quality, ...]:
    return tuple(Quality(step * (turn + 1), metric) for turn, metric in enumerate(metrics))


def test_a_model_that_still_improves_gets_more_than_one_that_has_converged() -> None:
    improving = history(8.0, 4.0, 2.0, 1.0)
    converged = history(8.0, 1.02, 1.01, 1.0)
    jobs = [
        pool_job(name, quality=quality, progress_examples=4e5)
        for name, quality in (("improving", improving), ("converged", converged))
    ]
    found = sizes(SlaqPolicy().plan(pool_snapshot(*jobs)))
    assert found["improving"] > 2 * found["converged"] > 0


def test_a_metric_may_rise_as_well_as_fall() -> None:
    rising = pool_job("rising", quality=history(0.1, 0.5, 0.7, 0.8), progress_examples=4e5)
    falling = pool_job("falling", quality=history(0.9, 0.5, 0.3, 0.2), progress_examples=4e5)
    assert sizes(SlaqPolicy().plan(pool_snapshot(rising, falling))) == {"falling": 4, "rising": 4}


def test_of_jobs_that_tell_no_metric_the_one_with_the_least_progress_gets_the_most() -> None:
    fresh = pool_job("fresh")
    old = pool_job("old", progress_examples=1e6)
    found = sizes(SlaqPolicy().plan(pool_snapshot(fresh, old)))
    assert found["fresh"] > found["old"] > 0


def test_a_job_of_which_no_speed_is_known_has_one_device() -> None:
    plan = SlaqPolicy().plan(pool_snapshot(pool_job("a", models={})))
    assert sizes(plan) == {"a": 1}
    assert "its speed on more devices is unknown" in plan.decisions[0].reason


@pytest.mark.parametrize("values", [{"history_decay": 0.0}, {"most_devices": 0}])
def test_parameters_that_can_not_be_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        SlaqParameters(**values)  # type: ignore[arg-type]
