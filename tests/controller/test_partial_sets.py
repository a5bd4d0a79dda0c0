"""Cost of instances of a job that gets fewer than its minimum."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from autoscaler.domain.instance import Desired, HeldInstance
from autoscaler.domain.job import InstanceBounds, JobSpec
from autoscaler.domain.offer import Offer, Purchase
from autoscaler.policies.marginal.policy import MarginalPolicy
from tests.controller.cloud import offer
from tests.controller.world import START_SECONDS, World

BOOT_SECONDS = 60.0
HOUR_TICKS = 1800
# Shortest time that EC2 and Compute Engine bill of an instance.
BILLED_SECONDS = 60.0


class Partial(World):
    """A cloud with two instances of its first offer, for a job of the product's policy that needs
    four.
    """

    def __init__(self, directory: Path, *sold: Offer) -> None:
        super().__init__(directory, devices=2)
        self.cloud.sold = tuple(replace(each, boot_seconds=BOOT_SECONDS) for each in sold)
        self.cloud.limits = lambda: ()  # type: ignore[method-assign]
        self.policy = MarginalPolicy()  # type: ignore[assignment]
        self.restart()
        bounds = InstanceBounds(minimum=4, maximum=4)
        spec = JobSpec("set", ("python", "train.py"), instances=bounds)
        self.job = self.store.jobs.add(spec, START_SECONDS).id

    def launched(self) -> list[HeldInstance]:
        instances = self.store.instances.of_job(self.job, include_ended=True)
        return [held for held in instances if held.launched_seconds is not None]


def test_a_part_without_the_rest_is_ended_at_the_next_plan_and_tried_ever_less_often(
    tmp_path: Path,
) -> None:
    """Hold a partial set for at most 12 minutes of the first hour, then an eighth of the time."""
    world = Partial(tmp_path, offer())
    world.tick(2)
    assert all(held.desired is Desired.ABSENT for held in world.launched())
    world.tick(HOUR_TICKS)
    sets = len(world.launched()) / 2
    assert 6 <= sets * BILLED_SECONDS / 60.0 <= 12
    world.tick(HOUR_TICKS)
    later_sets = len(world.launched()) / 2 - sets
    assert 0 < later_sets * BILLED_SECONDS <= 3600.0 / 7.5
    world.assert_nothing_leaked()


def test_a_part_stays_until_a_set_elsewhere_trains(tmp_path: Path) -> None:
    world = Partial(tmp_path, offer(), offer("dearer", usd_per_hour="0.15"))
    check_room = world.cloud._check_room
    world.cloud._check_room = (  # type: ignore[method-assign]
        lambda name, records: check_room(name, records) if name == "small" else None
    )
    world.tick(100)
    parts = [held for held in world.launched() if held.offer == "small"]
    assert len(parts) == 2
    assert all(held.ended_seconds is not None for held in parts)
    for held in parts:
        lasted_seconds = (held.ended_seconds or 0.0) - (held.launched_seconds or 0.0)
        assert lasted_seconds <= BOOT_SECONDS + 60.0
    assert len(world.training(world.job)) == 4


def test_a_part_of_spot_trains_while_all_spot_offers_are_refused(tmp_path: Path) -> None:
    world = Partial(tmp_path, replace(offer(), purchase=Purchase.SPOT))
    world.tick(HOUR_TICKS)
    assert len(world.launched()) == len(world.training(world.job)) == 2


def test_the_last_launch_of_a_wave_decides_whether_refusals_are_forgotten(world: World) -> None:
    world.store.capacity.refused("small", "InsufficientCapacity", 0.0, START_SECONDS - 1.0)
    first, second = world.submit("first"), world.submit("second")
    open_launches = [True]

    def break_off(call: str) -> None:
        if call == "launch" and world.cloud.launch_calls == 1 and open_launches:
            open_launches.clear()
            raise TimeoutError

    world.cloud.before_call = break_off
    world.set_target(first, 1)
    world.set_target(second, 1)
    world.tick()
    assert "small" in world.store.capacity.refusals(), "a launch is open"
    world.tick(2)
    assert len(world.cloud.running()) == 2
    assert "small" not in world.store.capacity.refusals()
