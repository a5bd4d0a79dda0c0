"""Ends of maximum runs, which the module's sweep enforces and EC2 does not announce."""

from __future__ import annotations

from tests.fakes.aws.server import FakeAws
from tests.providers.aws.cloud import AwsWorld
from tests.providers.aws.test_reservations import ID, OFFER, ReservedWorld

WARNING = "EC2 Spot Instance Interruption Warning"
HOUR_SECONDS = 3600.0


def test_the_end_of_a_run_is_told_ahead_and_not_of_all_at_once(world: AwsWorld) -> None:
    world.document["max_run_hours"] = 24
    provider = world.connect()
    launched = [provider.launch(world.request(token)) for token in "1234"]
    world.pass_time(23 * HOUR_SECONDS - 60)
    provider.instances()
    assert provider.interruptions() == []
    world.pass_time(3000.0)
    provider.instances()
    notices = provider.interruptions()
    assert 0 < len(notices) <= len(launched)
    ends = {
        instance.id: (instance.launched_seconds or 0) + 24 * HOUR_SECONDS for instance in launched
    }
    assert all(notice.reclaim_seconds == ends[notice.instance] for notice in notices)
    assert len({notice.notice_seconds for notice in notices}) == len(notices)


def test_a_run_that_should_have_ended_has_time_to_leave(world: AwsWorld) -> None:
    """A maximum may be new, and the sweep comes every few hours only."""
    launched = world.connect().launch(world.request("1"))
    world.pass_time(30 * HOUR_SECONDS)
    assert world.connect().interruptions() == []
    world.document["max_run_hours"] = 24
    (notice,) = world.connect().interruptions()
    assert notice.instance == launched.id
    assert notice.reclaim_seconds == world.clock.now() + 600.0


def test_a_reclaim_counts_before_the_end_of_the_run(world: AwsWorld) -> None:
    world.document["max_run_hours"] = 1
    provider = world.connect()
    launched = provider.launch(world.request("1"))
    world.pass_time(0.95 * HOUR_SECONDS)
    world.announce(WARNING, {"instance-id": launched.id})
    (notice,) = provider.interruptions()
    assert notice.reclaim_seconds == world.clock.now() + 120.0


def test_a_run_in_a_reservation_does_not_end(fake: FakeAws) -> None:
    world = ReservedWorld(fake)
    world.document["max_run_hours"] = 24
    provider = world.connect()
    launched = provider.launch(world.request("1", OFFER))
    assert launched.id in world.account.reservations[ID].instances
    world.pass_time(30 * HOUR_SECONDS)
    assert provider.interruptions() == []
