from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from autoscaler.domain.errors import InsufficientCapacity, PermissionDenied, QuotaExceeded
from autoscaler.domain.instance import CloudState
from autoscaler.domain.offer import Limit, LimitUnit, Purchase
from autoscaler.ledger.bill import amount
from providers.simulated.capacity import CapacityTrace
from providers.simulated.settings import LognormalLifetimes, SimulatedSettings
from tests.conformance.provider import THEIRS, ProviderConformance, order
from tests.conformance.queue import QueueConformance
from tests.providers.simulated.cloud import (
    BOOT_SECONDS,
    FOUR_DEVICES,
    NOTICE_SECONDS,
    START_SECONDS,
    SimulatedWorld,
    offer,
    spot,
    trace,
)

HOUR = 3600.0
FLEX = offer("flex", Purchase.FLEX_START, usd_per_hour=Decimal("0.30"), fill_seconds=600.0)


class TestSimulated(ProviderConformance):
    @pytest.fixture
    def cloud(self) -> SimulatedWorld:
        return SimulatedWorld(offer(), spot(), limits=(FOUR_DEVICES,))


class TestSimulatedQueue(QueueConformance):
    @pytest.fixture
    def cloud(self) -> SimulatedWorld:
        return SimulatedWorld(offer(), FLEX, capacity={"flex": trace(0, 0, 1)})


def test_what_waits_costs_nothing_and_gets_what_there_is_in_turn() -> None:
    world = SimulatedWorld(FLEX, capacity={"flex": trace(1, 1, 2)})
    first, second, third = (world.launch("flex", token) for token in "abc")
    states = {seen.id: seen.state for seen in world.ours.instances()}
    assert [states[one] for one in (first, second, third)] == [
        CloudState.PENDING,
        CloudState.QUEUED,
        CloudState.QUEUED,
    ]
    world.clock.advance(400.0)
    assert world.ours.billed_usd() == amount(FLEX.usd_per_hour, 400.0, 0)
    world.clock.advance(300.0)
    launched = {seen.id: seen.launched_seconds for seen in world.ours.instances()}
    assert launched[second] == START_SECONDS + 600.0, "the moment, not that of the look"
    assert launched[third] is None
    world.ours.terminate([first])
    launched = {seen.id: seen.launched_seconds for seen in world.ours.instances()}
    assert launched[third] == START_SECONDS + 700.0
    world.ours.terminate([second, third])
    usd = FLEX.usd_per_hour
    assert world.ours.billed_usd() == amount(usd, 700.0, 0) + amount(usd, 100.0, 0)


def test_the_tags_name_who_launches() -> None:
    world = SimulatedWorld(offer())
    with pytest.raises(PermissionDenied):
        world.ours.launch(order(world.ours, "1", THEIRS))
    assert world.alive() == []


def test_an_instance_boots_for_the_time_of_its_offer() -> None:
    world = SimulatedWorld(offer())
    world.launch("lasting", "1")
    world.clock.advance(BOOT_SECONDS - 1)
    assert world.ours.instances()[0].state is CloudState.PENDING
    world.clock.advance(1)
    assert world.ours.instances()[0].state is CloudState.RUNNING


def test_what_ended_is_listed_for_an_hour_and_its_token_is_used_for_ever() -> None:
    world = SimulatedWorld(offer())
    world.ours.terminate([world.launch("lasting", "1")])
    world.clock.advance(HOUR)
    (ended,) = world.ours.instances()
    world.clock.advance(1)
    assert world.ours.instances() == []
    assert world.ours.launch(order(world.ours, "1")) == ended
    assert world.alive() == []


def test_an_ended_instance_makes_room() -> None:
    world = SimulatedWorld(offer(devices=3), limits=(FOUR_DEVICES,))
    first = world.launch("lasting", "1")
    with pytest.raises(InsufficientCapacity, match="limit devices"):
        world.launch("lasting", "2")
    world.ours.terminate([first])
    world.launch("lasting", "2")


def test_dollars_are_a_quota() -> None:
    budget = Limit("budget", LimitUnit.USD_PER_HOUR, 0.3)
    world = SimulatedWorld(offer(usd_per_hour=Decimal("0.1")), limits=(budget,))
    for token in "123":
        world.launch("lasting", token)
    with pytest.raises(QuotaExceeded, match="limit budget"):
        world.launch("lasting", "4")


def test_a_trace_bounds_what_can_be_had() -> None:
    world = SimulatedWorld(spot(), offer(), capacity={"spot": trace(0, 2)})
    with pytest.raises(InsufficientCapacity, match="spot: all 0 instances"):
        world.launch("spot", "1")
    world.launch("lasting", "other")
    world.clock.advance(300)
    world.launch("spot", "1")
    world.launch("spot", "2")
    with pytest.raises(InsufficientCapacity, match="spot: all 2 instances"):
        world.launch("spot", "3")


def test_a_trace_takes_the_youngest_with_notice() -> None:
    world = SimulatedWorld(spot(), capacity={"spot": trace(3, 1)})
    oldest, *younger = [world.launch("spot", token) for token in "123"]
    world.clock.advance(299)
    assert world.noticed() == []
    world.clock.advance(1)
    assert world.noticed() == younger
    assert len(world.alive()) == 3
    world.clock.advance(NOTICE_SECONDS)
    assert world.alive() == [oldest]
    assert world.noticed() == []


def test_who_leaves_anyway_makes_room_for_who_stays() -> None:
    world = SimulatedWorld(spot(), capacity={"spot": trace(2, 1, 1, 1)})
    leaving, staying = [world.launch("spot", token) for token in "12"]
    world.clock.advance(250)
    world.ours.reclaim(leaving)
    world.clock.advance(50)
    assert world.noticed() == [leaving]
    world.clock.advance(HOUR / 6)
    assert world.alive() == [staying]


def test_a_second_reclaim_puts_nothing_off() -> None:
    world = SimulatedWorld(spot())
    taken = world.launch("spot", "1")
    world.ours.reclaim(taken)
    notices = world.ours.interruptions()
    world.clock.advance(NOTICE_SECONDS / 2)
    world.ours.reclaim(taken)
    assert world.ours.interruptions() == notices


def test_one_under_notice_goes_though_capacity_returns_and_keeps_its_place_till_then() -> None:
    world = SimulatedWorld(spot(), capacity={"spot": trace(1, 0, 1, 1, 1, gap_seconds=50.0)})
    first = world.launch("spot", "1")
    world.clock.advance(100)
    assert world.noticed() == [first]
    with pytest.raises(InsufficientCapacity):
        world.launch("spot", "2")
    world.clock.advance(70)
    second = world.launch("spot", "2")
    assert world.alive() == [second]


def test_capacity_that_was_gone_between_two_calls_has_reclaimed() -> None:
    world = SimulatedWorld(spot(), capacity={"spot": trace(2, 0, 2, 2)})
    taken = world.launch("spot", "1")
    world.clock.advance(900)
    (ended,) = world.ours.instances()
    assert (ended.id, ended.ended_seconds) == (taken, ended.launched_seconds + 300 + 120)


def test_a_trace_does_not_take_on_demand_instances_back() -> None:
    world = SimulatedWorld(offer(), capacity={"lasting": trace(1, 0)})
    kept = world.launch("lasting", "1")
    world.clock.advance(10 * HOUR)
    assert world.alive() == [kept]
    assert world.noticed() == []


def test_the_hazard_of_an_offer_with_a_trace_is_only_what_is_said() -> None:
    world = SimulatedWorld(spot(reclaims_per_hour=60.0), capacity={"spot": trace(1)})
    world.launch("spot", "1")
    world.clock.advance(24 * HOUR)
    assert len(world.alive()) == 1


def test_the_hazard_gives_notice_before_the_end() -> None:
    world = SimulatedWorld(spot(reclaims_per_hour=0.1), seed=1)
    world.launch("spot", "1")
    world.wait_until(lambda: world.noticed() != [])
    (notice,) = world.ours.interruptions()
    assert notice.notice_seconds == world.clock.now()
    assert notice.reclaim_seconds == pytest.approx(notice.notice_seconds + NOTICE_SECONDS)
    world.wait_until(lambda: world.alive() == [])
    assert world.ours.instances()[0].ended_seconds == notice.reclaim_seconds


def test_a_life_shorter_than_the_notice_is_told_at_once() -> None:
    world = SimulatedWorld(spot(reclaims_per_hour=3600.0))
    world.launch("spot", "1")
    (notice,) = world.ours.interruptions()
    assert notice.notice_seconds == world.clock.now()
    assert notice.reclaim_seconds < notice.notice_seconds + NOTICE_SECONDS


def ends(world: SimulatedWorld, tokens: str, pause_seconds: float = 0.0) -> list[float]:
    """Return the lifetimes of the instances of these tokens, in the order of launches."""
    ids = []
    for token in tokens:
        ids.append(world.launch("spot", token))
        world.clock.advance(pause_seconds)
    lives = {}
    while world.alive():
        moment = world.ours.next_event_seconds()
        assert moment is not None
        world.clock.advance(moment - world.clock.now())
        for seen in world.ours.instances():
            if seen.ended_seconds is not None:
                lives[seen.id] = seen.ended_seconds - seen.launched_seconds
    return [lives[one] for one in ids]


def test_the_nth_launch_of_an_offer_lives_equally_long_whatever_else_happens() -> None:
    offers = spot(reclaims_per_hour=1.0), spot("another", reclaims_per_hour=1.0)
    lives = ends(SimulatedWorld(*offers, seed=7), "abc")
    beside = SimulatedWorld(*offers, seed=7)
    beside.launch("another", "first")
    assert ends(beside, "xyz", pause_seconds=5.0) == pytest.approx(lives, abs=1e-5)
    assert len(set(lives)) == 3
    assert ends(SimulatedWorld(*offers, seed=8), "abc") != pytest.approx(lives)


def test_offers_have_chances_of_their_own() -> None:
    settings = SimulatedSettings((spot(reclaims_per_hour=1.0), spot("b", reclaims_per_hour=1.0)))
    first, second = settings.offers
    assert settings.lifetime_seconds(first, 0) != settings.lifetime_seconds(second, 0)


def test_the_bill_is_the_ledgers_amount_of_what_was_held() -> None:
    world = SimulatedWorld(offer(minimum_billed_seconds=60), spot())
    short = world.launch("lasting", "1")
    world.launch("spot", "2")
    assert world.ours.billed_usd() == amount(Decimal("0.526"), 60)
    world.clock.advance(10.5)
    world.ours.terminate([short])
    world.clock.advance(2 * HOUR)
    expected = amount(Decimal("0.526"), 60) + amount(Decimal("0.158"), 2 * HOUR + 10.5)
    assert world.ours.billed_usd() == expected
    assert world.connect(THEIRS).billed_usd() == 0


def test_a_reclaimed_instance_is_billed_to_its_end() -> None:
    world = SimulatedWorld(spot())
    world.ours.reclaim(world.launch("spot", "1"))
    world.clock.advance(5 * HOUR)
    assert world.ours.billed_usd() == amount(Decimal("0.158"), NOTICE_SECONDS)


def test_events_are_boots_notices_and_ends() -> None:
    world = SimulatedWorld(spot(), capacity={"spot": trace(2, 2, 1, 1, 2, 2, 3, 0)})
    assert world.ours.next_event_seconds() is None
    world.launch("spot", "1")
    world.launch("spot", "2")
    seen = []
    while world.alive():
        moment = world.ours.next_event_seconds()
        assert moment is not None
        world.clock.advance(moment - world.clock.now())
        seen.append(world.elapsed_seconds)
    assert seen == [60.0, 600.0, 720.0, 2100.0, 2220.0]
    assert world.ours.next_event_seconds() is None


def test_capacity_for_what_was_refused_is_an_event_and_other_capacity_is_none() -> None:
    world = SimulatedWorld(offer(), capacity={"lasting": trace(0, 0, 0, 1, 1, 2)})
    assert world.ours.next_event_seconds() is None
    with pytest.raises(InsufficientCapacity):
        world.launch("lasting", "1")
    world.wait_until(lambda: world.elapsed_seconds > 0)
    assert world.elapsed_seconds == 900.0
    assert world.ours.next_event_seconds() is None
    world.launch("lasting", "1")
    world.wait_until(lambda: world.ours.instances()[0].state is CloudState.RUNNING)
    assert world.ours.next_event_seconds() is None


LASTING, SPOT = offer(), spot()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offers": ()}, "offers: name at least one"),
        ({"offers": (SPOT, SPOT)}, "no id twice"),
        ({"offers": (SPOT, replace(LASTING, provider="other"))}, "a cloud for each provider"),
        ({"offers": (replace(LASTING, reclaims_per_hour=1.0),)}, "only spot"),
        ({"lifetimes": {"lasting": LognormalLifetimes(1.0, 2.0)}}, "only spot"),
        ({"lifetimes": {"sopt": LognormalLifetimes(1.0, 2.0)}}, "lifetimes: no offer sopt"),
        ({"capacity": {"sopt": CapacityTrace(1.0, (1,))}}, "capacity: no offer sopt"),
        ({"limits": (replace(FOUR_DEVICES, offers=frozenset({"x"})),)}, "limits: devices: no off"),
        ({"notice_period_seconds": -1.0}, "notice_period_seconds"),
        ({"seed": -1}, "seed"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SimulatedSettings((LASTING, SPOT)), **changes)
