"""A controller whose process has died gives all back before it ends."""

from __future__ import annotations

import pytest

from autoscaler.controller.act.shutdown import terminate_all, wait_for_exit
from autoscaler.domain.job import JobPhase
from tests.controller.world import World


class Ticking:
    """The world's clock, on which the controller's loop goes on while somebody sleeps."""

    def __init__(self, world: World, holds: bool = False) -> None:
        self._world = world
        self._holds = holds
        self.now = self.monotonic = world.clock.now

    def sleep(self, seconds: float) -> None:
        if self._holds:
            self._world.clock.advance(seconds)
        else:
            self._world.tick(seconds=seconds)


def test_it_ends_every_job_and_hands_studies_on(world: World) -> None:
    jobs = [world.submit("alone"), world.submit("sweep-0", study="sweep")]
    world.store.leases.take("sweep", "died", world.clock.now(), 30.0)
    for job in jobs:
        world.set_target(job, 1)
    world.tick(6)
    assert len(world.store.instances.alive()) == 2
    assert terminate_all(world.store, lambda: None, Ticking(world), 60.0)
    assert world.store.instances.alive() == ()
    assert {world.store.jobs.get(job).phase for job in jobs} == {JobPhase.STOPPED}
    world.store.leases.take("sweep", "next", world.clock.now(), 30.0)


def test_it_waits_no_longer_than_it_may(world: World) -> None:
    world.set_target(world.submit("stuck"), 1)
    world.tick(6)
    began_seconds = world.clock.now()
    assert not terminate_all(world.store, lambda: None, Ticking(world, holds=True), 60.0)
    assert world.clock.now() - began_seconds == pytest.approx(60.0, abs=1.0)


def test_it_lives_as_long_as_whom_it_runs_for(world: World) -> None:
    ends_seconds = world.clock.now() + 7.0
    wait_for_exit(lambda: world.clock.now() < ends_seconds, world.clock)
    assert world.clock.now() - ends_seconds <= 1.0
