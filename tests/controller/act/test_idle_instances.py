"""Instances that go from one trial of a study to the next, over a whole controller."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from autoscaler.controller.act.idle_instances import start_seconds
from autoscaler.domain.errors import Conflict, StoreError
from autoscaler.domain.facts import Fact
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobPhase
from autoscaler.domain.objective import Objective
from autoscaler.domain.terms import StudyTerms
from autoscaler.store.repositories.measurements import HAND_OVER_DURATION, START_DURATION
from autoscaler.store.repositories.settings import Freeze
from tests.controller.world import World


def trial_that_ends(world: World, name: str = "s-0") -> str:
    """A trial of a driven study, which has just ended on its one instance; returns the job."""
    world.store.leases.take("s", "driver", world.clock.now(), 1000.0)
    job = world.submit(name, study="s")
    world.set_target(job, 1)
    world.tick(6)
    (held,) = world.training(job)
    world.complete(held)
    return job


def alive(world: World) -> list[str]:
    return [held.id for held in world.store.instances.alive()]


def test_the_next_trial_has_the_instance_of_the_last_one(world: World) -> None:
    first = trial_that_ends(world)
    world.tick()
    assert world.store.jobs.get(first).phase is JobPhase.FINISHED
    second = world.submit("s-1", study="s")
    world.set_target(second, 1)
    world.tick(2)
    (held,) = world.training(second)
    assert held.id == f"{first}-0-1"
    assert world.cloud.launch_calls == 1
    assert any(event.kind == "handed over" for event in world.store.events.latest(second, 10))
    durations = world.store.measurements.durations(second)
    assert durations["small", HAND_OVER_DURATION].seconds == pytest.approx(2.0)
    assert ("small", START_DURATION) not in durations
    world.assert_nothing_leaked()
    world.complete(held)
    world.tick(20)
    assert world.cloud.running() == []
    world.assert_nothing_leaked()


def test_what_a_trial_left_is_known_to_be_paid_for_until_its_least_bill_ends(
    world: World,
) -> None:
    trial_that_ends(world)
    world.tick()
    other = world.submit("s-1", study="s")
    world.store.studies.state("s", StudyTerms(to_begin=0))
    now_seconds, instances = world.clock.now(), world.store.instances.alive()
    (held,) = instances
    hourly = [replace(offer, minimum_billed_seconds=3600) for offer in world.cloud.offers()]
    studies = world.controller._snapshots._studies
    (study,) = studies.take([world.store.jobs.get(other)], instances, hourly, now_seconds)
    (free,) = study.free
    assert free.paid_seconds == pytest.approx(held.requested_seconds + 3600 - now_seconds)
    brief = [replace(offer, minimum_billed_seconds=1) for offer in hourly]
    (study,) = studies.take([world.store.jobs.get(other)], instances, brief, now_seconds)
    assert [free.paid_seconds for free in study.free] == [0.0]


def test_what_nobody_wants_is_given_back_after_as_long_as_it_took_to_start(world: World) -> None:
    job = trial_that_ends(world)
    world.tick()
    (held,) = world.store.instances.alive()
    ended_seconds = world.store.jobs.get(job).ended_seconds
    assert ended_seconds is not None
    while world.cloud.running():
        world.tick(seconds=1.0)
    kept_seconds = world.clock.now() - ended_seconds
    assert start_seconds(held) <= kept_seconds <= start_seconds(held) + 3.0
    world.assert_nothing_leaked()


def unreadable(study: str) -> None:
    raise StoreError(f"the terms of {study} can't be read")


@pytest.mark.parametrize(
    "cause",
    ["driver left", "lease ran out", "no money", "trouble", "frozen", "stopped", "reclaim"],
)
def test_it_is_given_back_at_once_where_no_next_trial_can_come(
    world: World, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = trial_that_ends(world)
    if cause == "stopped":
        world.store.jobs.request_stop(job, world.clock.now())
    world.tick()
    (held,) = world.store.instances.alive()
    match cause:
        case "driver left":
            world.store.leases.leave("s", "driver")
        case "lease ran out":
            world.store.leases.leave("s", "driver")
            world.store.leases.take("s", "driver", world.clock.now(), 0.5)
        case "no money":
            objective = Objective(budget_usd=Decimal("0.0001"))
            world.store.studies.state("s", StudyTerms(objective=objective))
        case "trouble":
            monkeypatch.setattr(world.store.studies, "terms", unreadable)
        case "frozen":
            world.store.settings.freeze(Freeze(world.clock.now(), "ann"))
        case "reclaim":
            now_seconds = world.clock.now()
            world.store.instances.take_back(held.id, now_seconds + 60, now_seconds)
    world.tick(3, seconds=1.0)
    assert world.cloud.running() == []
    world.assert_nothing_leaked()


def test_a_trial_waits_for_what_is_about_to_be_free(world: World) -> None:
    first = world.submit("s-0", study="s")
    world.store.leases.take("s", "driver", world.clock.now(), 1000.0)
    world.set_target(first, 1)
    world.tick(6)
    (held,) = world.training(first)
    facts = {Fact.ENDING: str(world.clock.now())}
    world.store.instances.record_node(held.id, held.phase, world.clock.now(), facts)
    second = world.submit("s-1", study="s")
    world.set_target(second, 1)
    world.set_target(first, 0)  # a plan for a trial that has ended would be a mistake
    world.tick()
    assert alive(world) == [held.id]
    world.complete(held)
    world.tick(2)
    assert [each.id for each in world.store.instances.of_job(second)] == [held.id]


def test_a_trial_does_not_wait_for_ever(world: World) -> None:
    first = world.submit("s-0", study="s")
    world.set_target(first, 1)
    world.tick(6)
    (held,) = world.training(first)
    facts = {Fact.ENDING: str(world.clock.now())}
    world.store.instances.record_node(held.id, held.phase, world.clock.now(), facts)
    second = world.submit("s-1", study="s")
    world.set_target(second, 1)
    world.tick(10)
    assert len(world.training(second)) == 1
    assert world.cloud.launch_calls == 2


def test_another_job_that_finds_no_room_has_the_room_of_one_that_lingers(world: World) -> None:
    trial_that_ends(world)
    world.tick()
    other = world.submit("other")
    world.set_target(other, 4)
    world.tick(3, seconds=1.0)
    assert len(world.store.instances.of_job(other)) == 4
    world.assert_nothing_leaked()


def test_an_instance_that_was_lost_meanwhile_is_not_waited_for(world: World) -> None:
    trial_that_ends(world)
    world.tick()
    (held,) = world.store.instances.alive()
    second = world.submit("s-1", study="s")
    world.set_target(second, 1)
    assert held.cloud_id is not None
    world.cloud.lose(held.cloud_id)
    world.tick(8)
    (trains,) = world.training(second)
    assert trains.id != held.id
    with pytest.raises(Conflict):
        world.store.instances.hand_over(held.id, second, 1, world.clock.now())
    assert world.store.instances.get(held.id).phase is InstancePhase.ENDED


def test_what_a_trial_leaves_to_wait_goes_to_one_that_wants_it_and_comes_back(
    world: World,
) -> None:
    first, second = world.submit("s-0", study="s"), world.submit("s-1", study="s")
    world.store.leases.take("s", "driver", world.clock.now(), 1000.0)
    world.set_target(first, 1)
    world.tick(6)
    (held,) = world.training(first)
    for giver, taker in ((first, second), (second, first)):
        world.set_target(giver, 0)
        world.set_target(taker, 1)
        world.tick(4)
        assert [each.id for each in world.training(taker)] == [held.id]
        assert world.store.instances.of_job(giver) == ()
    world.set_target(second, 1)
    world.tick(6)
    (other,) = world.training(second)
    assert other.id not in ("s-0-0-1", held.id), "an id is given once"
    assert world.cloud.launch_calls == 2
    world.assert_nothing_leaked()


def test_what_a_trial_leaves_and_nobody_wants_is_given_back_at_once(world: World) -> None:
    first = world.submit("s-0", study="s")
    world.submit("s-1", study="s")
    world.store.leases.take("s", "driver", world.clock.now(), 1000.0)
    world.set_target(first, 1)
    world.tick(6)
    world.set_target(first, 0)
    world.tick(3)
    assert world.cloud.running() == []
    world.assert_nothing_leaked()
