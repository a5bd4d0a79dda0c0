from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.plan import Action
from autoscaler.domain.snapshot import JobSnapshot, ServiceReceived
from autoscaler.policies.published.gandiva import GandivaParameters, GandivaPolicy
from tests.conformance.pool_policy import (
    KIND,
    PoolPolicyConformance,
    placement_of,
    placements,
    pool_job,
    pool_snapshot,
    sizes,
)
from tests.economics.cases import NOW, THETA, model


class TestGandiva(PoolPolicyConformance):
    is_rigid = False
    moves_together = True

    @pytest.fixture
    def policy(self) -> GandivaPolicy:
        return GandivaPolicy()


def ran(name: str, seconds: float, **changes: object) -> JobSnapshot:
    """Return a job that has run for so long on eight devices."""
    service = ServiceReceived(8 * seconds, started_seconds=NOW - 3600.0)
    return pool_job(name, 8, service=service, **changes)


def test_jobs_take_turns_of_a_quantum() -> None:
    there = placement_of(node_000=4, node_001=4)
    for seconds, winner in ((59.0, "running"), (60.0, "waiting"), (125.0, "waiting")):
        running = ran("running", seconds, placement=there, submitted_seconds=NOW - 3600.0)
        plan = GandivaPolicy().plan(pool_snapshot(running, ran("waiting", 0.0)))
        assert sizes(plan)[winner] == 8
    slow = GandivaPolicy(GandivaParameters(quantum_seconds=3600.0))
    assert sizes(slow.plan(pool_snapshot(running, ran("waiting", 0.0))))["running"] == 8


def test_idle_devices_are_grown_into_and_given_back() -> None:
    lone = pool_job("lone", 2)
    assert sizes(GandivaPolicy().plan(pool_snapshot(lone))) == {"lone": 4}
    grown = replace(lone, placement=placement_of(node_000=4))
    plan = GandivaPolicy().plan(pool_snapshot(grown, pool_job("new", 6)))
    assert sizes(plan) == {"lone": 2, "new": 6}


def test_what_was_grown_into_is_kept_only_where_it_was_faster() -> None:
    poor = replace(THETA, beta_within_seconds_per_doubling=0.5)
    for measured, devices in ([(1, 2)], 4), ([(1, 2), (1, 4)], 2):
        known = {KIND: model(poor, KIND, measured)}
        plan = GandivaPolicy().plan(pool_snapshot(pool_job("lone", 2, models=known)))
        assert sizes(plan) == {"lone": devices}


def test_a_job_that_is_spread_is_moved_together() -> None:
    spread = pool_job("spread", 4, placement=placement_of(node_000=2, node_001=2))
    plan = GandivaPolicy(GandivaParameters(growth=1)).plan(pool_snapshot(spread))
    assert placements(plan) == {"spread": placement_of(node_000=4)}
    assert plan.decisions[0].action is Action.MOVE
    assert plan.decisions[0].reason.endswith("fewer machines suffice")


@pytest.mark.parametrize("values", [{"quantum_seconds": 0.0}, {"growth": 0}, {"least_gain": -0.1}])
def test_parameters_that_can_not_be_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        GandivaParameters(**values)  # type: ignore[arg-type]
