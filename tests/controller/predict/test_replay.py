from __future__ import annotations

import pytest

from autoscaler.controller.predict.replay import replay
from autoscaler.domain.errors import SpecError
from tests.controller.world import World


@pytest.fixture
def ran(world: World) -> World:
    """A job that was given one instance, then two, and another that waits."""
    job = world.submit("job")
    world.set_target(job, 1)
    world.tick(6)
    world.set_target(job, 2)
    world.submit("other")
    world.tick(6)
    return world


def test_every_decision_stands_beside_the_other_policy_s(ran: World) -> None:
    found = replay(ran.store, "static")
    told = ran.store.journal.decisions()
    assert [(each.at_seconds, each.job) for each in found.moments] == [
        (entry.at_seconds, entry.decision.job) for entry in reversed(told)
    ]
    first = found.moments[0]
    assert (first.decided.action, first.decided.holding) == ("grow", "1 x small")
    assert first.decided.usd_per_hour == pytest.approx(0.10)
    assert first.decided.goodput is not None and first.decided.goodput > 0
    assert first.would.action == "start" and first.would.reason
    assert found.lost == 0


def test_the_same_policy_on_the_same_snapshot_decides_the_same(ran: World) -> None:
    one, two = replay(ran.store, "marginal"), replay(ran.store, "marginal")
    assert one == two


def test_one_job_and_the_last_decisions_can_be_asked_for(ran: World) -> None:
    assert {each.job for each in replay(ran.store, "static", job="job").moments} == {"job"}
    assert len(replay(ran.store, "static", last=1).moments) == 1


def test_what_was_pruned_is_not_there(ran: World) -> None:
    ran.store.journal.prune(ran.clock.now() + 1)
    assert replay(ran.store, "static").moments == ()


def test_a_policy_for_pools_is_refused(ran: World) -> None:
    with pytest.raises(SpecError, match="fifo can't plan for this run, which had instances"):
        replay(ran.store, "fifo")
    with pytest.raises(SpecError, match="is no policy"):
        replay(ran.store, "smart")
