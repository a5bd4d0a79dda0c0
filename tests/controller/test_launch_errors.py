"""Launches whose errors nobody has a rule for, or that are never answered."""

from __future__ import annotations

import pytest

from autoscaler.controller.offers.market import Market
from autoscaler.domain.errors import (
    InsufficientCapacity,
    PermissionDenied,
    ProviderError,
    QuotaExceeded,
    StoreError,
    Unavailable,
    UnknownRefusal,
)
from autoscaler.domain.instance import InstancePhase, LaunchRequest
from tests.controller.world import World

NEVER_LAUNCHED = (UnknownRefusal, Unavailable, RuntimeError)


class Refusing:
    """Has a cloud fail every launch of one offer, and counts these."""

    def __init__(self, world: World, error: type[Exception], offer: str = "small") -> None:
        self.seconds: list[float] = []
        self._launch = world.cloud.launch
        self._error = error
        self._offer = offer
        self._world = world
        world.cloud.launch = self.launch  # type: ignore[method-assign]

    def launch(self, request: LaunchRequest) -> object:
        if request.offer != self._offer:
            return self._launch(request)
        self.seconds.append(self._world.clock.now())
        raise self._error("MaxFooExceeded: no such foo")


@pytest.mark.parametrize("error", NEVER_LAUNCHED)
def test_after_some_tries_that_come_slower_the_offer_is_refused(
    world: World, error: type[Exception]
) -> None:
    job = world.submit()
    refusing = Refusing(world, error)
    world.set_target(job, 1)
    world.tick(60, seconds=1.0)
    assert len(refusing.seconds) == 5
    pairs = zip(refusing.seconds, refusing.seconds[1:], strict=False)
    assert [later - before for before, later in pairs] == [1.0, 2.0, 4.0, 8.0]
    refusal = world.store.capacity.refusals()["small"]
    assert refusal.error_kind == error.__name__
    assert refusal.reason == "MaxFooExceeded: no such foo"
    events = world.store.events.latest(job, 50)
    (event,) = [event for event in events if event.kind == "launch refused"]
    assert "small refused" in event.text and "MaxFooExceeded" in event.text


@pytest.mark.parametrize("error", NEVER_LAUNCHED)
def test_another_offer_is_bought_instead(world: World, error: type[Exception]) -> None:
    job = world.submit()
    Refusing(world, error)
    world.set_target(job, 1)
    world.tick(20, seconds=1.0)
    assert "small" in world.controller.status.unavailable
    world.set_target(job, 1, "large")
    world.tick(10)
    (held,) = world.training(job)
    assert held.offer == "large"
    world.tick(80)
    assert [held.offer for held in world.store.instances.alive()] == ["large"]
    world.assert_nothing_leaked()


@pytest.mark.parametrize("error", [PermissionDenied, QuotaExceeded, InsufficientCapacity])
def test_a_refusal_that_is_known_is_told_at_once_and_waited_out_longer_each_time(
    world: World, error: type[ProviderError]
) -> None:
    job = world.submit()
    refusing = Refusing(world, error)
    world.set_target(job, 1)
    world.tick(800, seconds=5.0)
    waits = [
        later - before
        for before, later in zip(refusing.seconds, refusing.seconds[1:], strict=False)
    ]
    assert waits == sorted(waits) and waits[0] >= 15.0
    assert len(refusing.seconds) < 15
    kinds = [event.kind for event in world.store.events.latest(job, 50)]
    assert kinds.count("launch refused") == len(refusing.seconds)


def _lose_the_reply(world: World) -> str:
    """Launch an instance whose reply is lost and which no list shows; return its job."""

    def lose(call: str) -> None:
        world.cloud.after_call = lambda name: None
        raise Unavailable("the reply was lost")

    job = world.submit()
    world.set_target(job, 1)
    world.cloud.after_call = lose
    world.cloud.unlisted = {"cloud-0"}
    world.tick(1)
    assert len(world.cloud.running()) == 1
    return job


def test_a_sent_launch_outlives_a_start_without_offers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that has just started knows no offers; that refuses no launch."""
    job = _lose_the_reply(world)

    def fail() -> None:
        raise Unavailable("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(world.cloud, "offers", fail)
        world.restart()
        world.tick(2)
    (held,) = world.store.instances.of_job(job)
    assert held.phase is InstancePhase.REQUESTED
    assert not world.store.capacity.refusals()
    world.cloud.unlisted = set()
    world.tick(8)
    assert len(world.training(job)) == 1
    assert len(world.cloud.instances()) == 1
    world.assert_nothing_leaked()


def test_a_sent_launch_outlives_the_end_of_its_offer(world: World) -> None:
    """An offer that is not sold any more says nothing of a launch whose reply was lost."""
    job = _lose_the_reply(world)
    world.cloud.removed = {"small"}
    world.tick(2)
    (held,) = world.store.instances.of_job(job)
    assert held.phase is InstancePhase.REQUESTED
    world.cloud.unlisted = set()
    world.tick(5)
    assert world.store.instances.get(held.id).cloud_id == "cloud-0"
    world.assert_nothing_leaked()


def test_a_launch_is_tried_again_after_an_error_before_its_call(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors, provider_of = [StoreError("the database does not answer")], Market.provider_of

    def failing_once(market: Market, offer_id: str, cloud_id: str | None) -> str | None:
        if errors:
            raise errors.pop()
        return provider_of(market, offer_id, cloud_id)

    monkeypatch.setattr(Market, "provider_of", failing_once)
    job = world.submit()
    world.set_target(job, 1)
    with pytest.raises(StoreError):
        world.tick(4)
    world.tick(5)
    assert len(world.training(job)) == 1
