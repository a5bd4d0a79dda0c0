from __future__ import annotations

from decimal import Decimal

import pytest

from autoscaler.domain.job import JobPhase, StopReason
from autoscaler.domain.objective import Objective
from tests.controller.world import World


@pytest.mark.parametrize("is_planned", [True, False])
def test_a_job_that_its_budget_stops_says_so_in_a_value(world: World, is_planned: bool) -> None:
    """The policy's stop and the guard's are the same to readers."""
    budget = None if is_planned else Decimal("0.01")
    job = world.submit(objective=Objective(budget_usd=budget))
    world.set_target(job, 2)
    world.tick(6)
    if is_planned:
        world.policy.stopped.add(job)
    world.tick(200, seconds=1.0)
    record = world.store.jobs.get(job)
    assert (record.phase, record.stop_reason) == (JobPhase.STOPPED, StopReason.JOB_BUDGET)
    assert "budget" in {event.kind for event in world.store.events.latest(job, limit=9)}
