"""A controller that plans and tells, and does nothing of it: frozen, or made to observe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.domain.errors import Throttled
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobPhase
from autoscaler.store.repositories.settings import Freeze
from tests.controller.world import World


def freeze(world: World) -> None:
    world.store.settings.freeze(Freeze(world.clock.now(), "ann"))


def held(world: World, job: str) -> int:
    return len(world.store.instances.of_job(job))


def test_frozen_nothing_is_bought_or_given_back_until_it_is_released(world: World) -> None:
    job, other = world.submit("job"), world.submit("other")
    world.set_target(job, 2)
    world.tick(6)
    freeze(world)
    world.set_target(job, 1)
    world.set_target(other, 1)
    world.tick(6)
    assert (len(world.training(job)), held(world, other)) == (2, 0)
    assert world.controller.status.hands_off == "frozen by ann"
    said = world.store.journal.decisions(other)[0].decision.reason
    assert said == "grow other; not done: frozen by ann"
    world.store.settings.unfreeze()
    world.tick(6)
    assert (len(world.training(job)), len(world.training(other))) == (1, 1)
    assert world.controller.status.hands_off is None
    said = world.store.journal.decisions(other)
    assert any(entry.decision.reason == "grow other" for entry in said), (
        "told again, as it is done"
    )
    world.assert_nothing_leaked()


def test_a_freeze_outlives_the_controller(world: World) -> None:
    job = world.submit()
    freeze(world)
    world.set_target(job, 1)
    world.restart()
    world.tick(4)
    assert held(world, job) == 0
    assert world.controller.status.hands_off == "frozen by ann"


def test_a_launch_that_was_ordered_and_not_made_waits_for_the_release(world: World) -> None:
    job = world.submit()
    world.set_target(job, 1)
    world.cloud.refusals = [Throttled("too many calls", 5.0)]
    world.tick(2)
    assert world.cloud.launch_calls == 1
    freeze(world)
    world.tick(8)
    assert world.cloud.launch_calls == 1
    assert world.cloud.running() == []
    world.store.settings.unfreeze()
    world.tick(6)
    assert len(world.training(job)) == 1


def test_what_jobs_do_by_themselves_goes_on_while_frozen(world: World) -> None:
    ends, stops = world.submit("ends"), world.submit("stops")
    world.set_target(ends, 1)
    world.set_target(stops, 1)
    world.tick(6)
    freeze(world)
    world.complete(world.training(ends)[0])
    world.store.jobs.set_phase(stops, JobPhase.STOPPING, world.clock.now(), "by its owner")
    world.tick(8)
    assert world.store.jobs.get(ends).phase is JobPhase.FINISHED
    assert world.store.jobs.get(stops).phase is JobPhase.STOPPED
    assert world.cloud.running() == []


@pytest.fixture
def observer(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.settings = replace(world.settings, observes=True)
    world.restart()
    return world


def test_an_observer_tells_what_it_would_buy_and_buys_nothing(observer: World) -> None:
    job = observer.submit()
    observer.set_target(job, 2)
    observer.tick(6)
    assert held(observer, job) == 0 and observer.cloud.instances() == []
    (entry,) = observer.store.journal.decisions(job)
    assert entry.decision.target is not None and entry.decision.target.instances == 2
    assert entry.decision.reason == "grow job; not done: the controller only observes"
    assert observer.controller.status.hands_off == "the controller only observes"


def test_an_observer_leaves_what_is_held_as_it_is(observer: World) -> None:
    job = observer.submit()
    observer.set_target(job, 2)
    observer.settings = replace(observer.settings, observes=False)
    observer.restart()
    observer.tick(6)
    observer.settings = replace(observer.settings, observes=True)
    observer.restart()
    observer.set_target(job, 0)
    observer.tick(6)
    phases = {each.phase for each in observer.store.instances.of_job(job)}
    assert held(observer, job) == 2 and phases == {InstancePhase.TRAINING}
