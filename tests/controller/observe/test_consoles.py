from __future__ import annotations

import pytest

from autoscaler.domain.errors import Unavailable
from autoscaler.domain.instance import Desired, InstancePhase
from tests.controller.world import World


def test_the_console_of_an_instance_that_never_joined_is_kept(world: World) -> None:
    job = world.submit()
    world.set_target(job, 1)
    world.tick(2, agents=False)
    (held,) = world.store.instances.of_job(job)
    assert world.consoles == []
    world.tick(40, seconds=20.0, agents=False)
    first = world.store.instances.get(held.id)
    assert first.desired is Desired.ABSENT and first.given_up_cause is not None
    assert world.consoles[0] == (held.id, f"{first.cloud_id}: no driver")
    assert [name for name, _ in world.consoles].count(held.id) == 1


def test_the_console_of_an_instance_that_ended_before_it_joined_is_kept(world: World) -> None:
    job = world.submit()
    world.set_target(job, 1)
    world.tick(2, agents=False)
    (held,) = world.store.instances.of_job(job)
    world.cloud.lose(held.cloud_id or "")
    world.tick(1, agents=False)
    assert world.store.instances.get(held.id).phase is InstancePhase.ENDED
    assert world.consoles == [(held.id, f"{held.cloud_id}: no driver")]


def test_the_console_of_an_instance_that_trained_is_not_asked_for(world: World) -> None:
    job = world.submit()
    world.set_target(job, 1)
    world.tick(6)
    (held,) = world.training(job)
    world.cloud.lose(held.cloud_id or "")
    world.tick(2)
    assert world.store.instances.get(held.id).phase is InstancePhase.ENDED
    assert world.consoles == []


def test_a_console_that_can_not_be_read_is_logged_only(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    job = world.submit()
    world.set_target(job, 1)
    world.tick(2, agents=False)
    (held,) = world.store.instances.of_job(job)

    def refuse(call: str) -> None:
        if call == "console":
            raise Unavailable("no answer")

    world.cloud.before_call = refuse
    world.cloud.lose(held.cloud_id or "")
    world.tick(1, agents=False)
    assert world.consoles == []
    assert f"the console of {held.id} can't be read: no answer" in caplog.text
