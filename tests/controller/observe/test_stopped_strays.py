"""Orphans that are stopped: their volumes cost money, and nobody ends them but the controller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autoscaler.domain.instance import CONTROLLER_TAG, CloudInstance, CloudState, LaunchRequest
from tests.controller.world import World


def stray(world: World, state: CloudState) -> CloudInstance:
    """An instance with the deployment's tag that no job ordered, in this state until it ends."""
    tags = {CONTROLLER_TAG: world.store.settings.controller_id()}
    launched = world.cloud.launch(LaunchRequest("stray", "small", tags, ""))
    list_now = world.cloud.instances

    def instances() -> Sequence[CloudInstance]:
        return [
            seen if seen.state is CloudState.TERMINATED else replace(seen, state=state)
            for seen in list_now()
        ]

    world.cloud.instances = instances  # type: ignore[method-assign]
    return launched


def orphan_events(world: World) -> list[str]:
    events = world.store.events.latest(None, 100)
    return [event.text for event in events if event.kind == "orphan"]


def test_a_stray_that_stays_stopped_is_ended(world: World) -> None:
    stopped = stray(world, CloudState.STOPPING)
    world.tick(22, seconds=30.0)
    assert world.cloud.running() == []
    (text,) = orphan_events(world)
    assert text.startswith(f"{stopped.id} (small): no job ordered it, and it has been stopping")


def test_a_stray_that_is_on_its_way_out_is_left_alone(world: World) -> None:
    """Ignore a stray after its termination, which takes EC2 some minutes."""
    stray(world, CloudState.STOPPING)
    world.tick(15, seconds=30.0)
    assert orphan_events(world) == []
