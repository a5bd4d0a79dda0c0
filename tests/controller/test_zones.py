"""Orders that name several zones: which they name, and what follows from the one that came."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from autoscaler.controller.offers.zones import as_launched, other_zones
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.allocation import Allocation
from autoscaler.domain.errors import InsufficientCapacity, QuotaExceeded
from autoscaler.domain.instance import Desired, InstancePhase
from autoscaler.domain.job import InstanceBounds, JobSpec
from autoscaler.domain.offer import Limit, LimitUnit, Offer, Purchase
from autoscaler.domain.plan import Action, Decision
from autoscaler.policies.marginal.policy import MarginalPolicy
from tests.controller.cloud import offer
from tests.controller.world import START_SECONDS, World


def _zone(zone: str, usd_per_hour: str = "0.10") -> Offer:
    """An offer of one group; its boot takes 144 s, so that the margin is 1 % of its price."""
    return replace(
        offer(zone, usd_per_hour=usd_per_hour),
        instance_type="small",
        zone=zone,
        order_group="small",
        boot_seconds=144.0,
        priced_seconds=START_SECONDS,
    )


@pytest.fixture
def zones(tmp_path: Path) -> World:
    """Zones a, b and c of one group, of which c is dearer than the margin."""
    world = World(tmp_path)
    world.cloud.sold = (_zone("a"), _zone("b", "0.101"), _zone("c", "0.102"))
    return world


def _ordered(world: World, **spec: object) -> str:
    job = world.submit(**spec)  # type: ignore[arg-type]
    world.set_target(job, 1, "a")
    world.tick()
    return job


def test_what_the_cloud_launched_is_held_at_its_price_and_told(zones: World) -> None:
    zones.cloud.out_of_stock = {"a"}
    job = _ordered(zones)
    (held,) = zones.store.instances.of_job(job)
    assert (held.offer, held.usd_per_hour) == ("b", Decimal("0.101"))
    event = zones.store.events.latest(job)[0]
    assert event.kind == "other zone"
    assert "of 2 zones asked in one order the cloud chose b, at $0.101/h; a was planned" in (
        event.text
    )
    zones.set_target(job, 1, "b")
    zones.tick(80)
    assert [instance.id for instance in zones.training(job)] == [held.id]
    assert zones.cloud.launch_calls == 1
    zones.assert_nothing_leaked()


def test_the_order_counts_as_the_dearest_zone_until_it_is_known(zones: World) -> None:
    zones.cloud.before_call = _break_off
    job = _ordered(zones)
    (held,) = zones.store.instances.of_job(job)
    assert (held.cloud_id, held.usd_per_hour) == (None, Decimal("0.101"))


def _break_off(call: str) -> None:
    if call == "launch":
        raise TimeoutError


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({}, {"b"}),
        ({"usd_per_hour": Decimal("0.099")}, {"b"}),
        ({"usd_per_hour": Decimal("0.1011")}, set()),
        ({"order_group": ""}, set()),
        ({"order_group": "another pool"}, set()),
        ({"network": "another region"}, set()),
        ({"priced_seconds": None}, set()),
        ({"priced_seconds": START_SECONDS - 31 * 86400.0}, set()),
        ({"reclaims_per_hour": 0.2}, {"b"}),
        ({"reclaims_per_hour": 0.3}, set()),
    ],
)
def test_zones_are_named_that_cost_hardly_more(change: dict[str, object], named: set[str]) -> None:
    planned = _zone("a")
    other = replace(_zone("b"), **change)  # type: ignore[arg-type]
    found = other_zones("a", [planned, other], START_SECONDS)
    assert {offer.id for offer in found} == named


def test_an_offer_without_a_group_or_that_is_not_sold_has_no_other_zones() -> None:
    alone = replace(_zone("a"), order_group="")
    assert other_zones("a", [alone, replace(_zone("b"), order_group="")], START_SECONDS) == []
    assert other_zones("a", [_zone("b"), _zone("c")], START_SECONDS) == []


def test_only_zones_that_the_job_may_have_now_are_named(zones: World) -> None:
    """Name zones within the job's bounds and all limits that are not refused."""
    zones.cloud.sold = tuple(_zone(name) for name in "abcde")
    zones.store.capacity.refused("b", "InsufficientCapacity", 0.0, START_SECONDS + 60.0)
    limits = (Limit("c", LimitUnit.INSTANCES, 0.0, frozenset("c")),)
    zones.cloud.limits = lambda: limits  # type: ignore[method-assign]
    bounds = InstanceBounds(offers=("a", "b", "c", "d"))
    spec = JobSpec("bound", ("python", "train.py"), instances=bounds)
    job = zones.store.jobs.add(spec, START_SECONDS).id
    zones.set_target(job, 1, "a")
    zones.tick()
    (held,) = zones.store.instances.of_job(job)
    assert held.alternatives == ("d",)


def test_an_order_that_may_become_another_zone_uses_the_limits_of_both(zones: World) -> None:
    limits = (Limit("b", LimitUnit.INSTANCES, 1.0, frozenset("b")),)
    zones.cloud.limits = lambda: limits  # type: ignore[method-assign]
    zones.cloud.before_call = _break_off
    first, second = _ordered(zones), zones.submit("second")
    zones.set_target(second, 1, "a")
    zones.tick()
    (held,) = zones.store.instances.of_job(first)
    assert held.alternatives == ("b",)
    (held,) = zones.store.instances.of_job(second)
    assert held.alternatives == ()


def test_instances_beside_others_stay_in_their_zone(zones: World) -> None:
    job = zones.submit()
    zones.set_target(job, 2, "a")
    zones.tick()
    assert all(held.alternatives == () for held in zones.store.instances.of_job(job))
    zones.set_target(job, 1, "b")
    zones.tick(100)
    (held,) = zones.store.instances.of_job(job)
    assert (held.offer, held.alternatives) == ("b", ()), "a move is of the zone that was chosen"


@pytest.mark.parametrize("error", [InsufficientCapacity("none"), QuotaExceeded("0 vCPUs")])
def test_a_refusal_is_of_all_zones_that_were_asked(zones: World, error: Exception) -> None:
    zones.cloud.refusals = [error]  # type: ignore[list-item]
    job = _ordered(zones)
    now_seconds = zones.clock.now()
    assert zones.store.capacity.unavailable(now_seconds) == {"a", "b"}
    refusals = zones.store.capacity.refusals()
    assert refusals["a"].until_seconds == refusals["b"].until_seconds
    assert "a, b refused" in zones.store.events.latest(job)[0].text


def test_a_launch_that_was_not_recorded_is_found_with_its_zone(zones: World) -> None:
    """The process dies between the call and the record; the order stays what it was."""
    zones.cloud.out_of_stock = {"a"}

    def die(call: str) -> None:
        if call == "launch":
            zones.cloud.after_call = lambda name: None
            raise KeyboardInterrupt

    zones.cloud.after_call = die
    with pytest.raises(KeyboardInterrupt):
        _ordered(zones)
    zones.cloud.sold = (_zone("a"), _zone("b", "0.2"), _zone("c"))
    zones.restart()
    zones.tick()
    (held,) = zones.store.instances.alive()
    assert (held.offer, held.usd_per_hour) == ("b", Decimal("0.101")), "as when it was ordered"
    assert len(zones.cloud.running()) == 1


def test_a_plan_from_before_the_launch_was_known_orders_nothing_more(tmp_path: Path) -> None:
    """The decision in force names the planned zone until the next plan."""
    world = World(tmp_path, ControllerSettings(replan_seconds=3600.0, replan_on_news=False))
    world.cloud.sold = (_zone("a"), _zone("b"))
    world.cloud.out_of_stock = {"a"}
    job = _ordered(world)
    world.tick(80)
    (held,) = world.store.instances.of_job(job)
    assert (held.offer, held.phase) == ("b", InstancePhase.TRAINING)
    assert world.cloud.launch_calls == 1


def test_a_decision_that_knows_what_is_held_is_taken_as_it_is(zones: World) -> None:
    zones.cloud.out_of_stock = {"a"}
    job = _ordered(zones)
    (held,) = zones.store.instances.of_job(job)
    target = Allocation("a", 1, 1)
    unknowing = Decision(job, Action.START, None, target, "start")
    assert as_launched(unknowing, [held]).target == Allocation("b", 1, 1)
    assert as_launched(unknowing, [replace(held, desired=Desired.ABSENT)]) == unknowing
    knowing = replace(unknowing, action=Action.MOVE, current=Allocation("b", 1, 1))
    assert as_launched(knowing, [held]) == knowing


def test_the_products_policy_stays_in_the_zone_that_came(zones: World) -> None:
    """The planned zone, in which there is capacity again, does not pay for another boot."""
    zones.policy = MarginalPolicy()  # type: ignore[assignment]
    zones.restart()
    zones.cloud.out_of_stock = {"a", "c"}
    job = zones.submit(maximum=1)
    zones.tick()
    (held,) = zones.store.instances.of_job(job)
    assert held.offer == "b"
    zones.cloud.out_of_stock = set()
    zones.tick(300)
    assert [instance.id for instance in zones.training(job)] == [held.id]
    assert zones.cloud.launch_calls == 1


def test_zones_that_the_cloud_names_are_asked_next(zones: World) -> None:
    """Like a zone that was refused once, however often it was: at most every 15 s."""
    capacity = zones.store.capacity
    for waves in range(4):
        capacity.refused("b", "InsufficientCapacity", 100.0 * waves, 100.0 * waves + 50.0)
    capacity.refused("b", "InsufficientCapacity", START_SECONDS - 20.0, START_SECONDS + 220.0)
    capacity.refused("c", "QuotaExceeded", START_SECONDS - 20.0, START_SECONDS + 220.0)
    zones.cloud.refusals = [InsufficientCapacity("choose b, c", ("b", "c"))]
    _ordered(zones)
    assert capacity.unavailable(zones.clock.now()) == {"a", "c"}
    assert capacity.refusals()["b"].in_a_row == 1
    assert capacity.refusals()["b"].until_seconds == START_SECONDS - 5.0


def test_a_zone_named_in_vain_is_not_asked_again_at_once(zones: World) -> None:
    capacity = zones.store.capacity
    zones.cloud.sold = (_zone("a"), _zone("b", "0.2"))
    capacity.refused("b", "InsufficientCapacity", START_SECONDS, START_SECONDS + 15.0)
    zones.cloud.refusals = [InsufficientCapacity("choose b", ("b",))]
    _ordered(zones)
    assert capacity.unavailable(START_SECONDS + 14.0) == {"a", "b"}


def test_a_named_zone_of_another_type_or_purchase_stays_refused(zones: World) -> None:
    large = replace(_zone("large"), instance_type="large", zone="b")
    spot = replace(_zone("spot"), purchase=Purchase.SPOT, zone="b")
    zones.cloud.sold = (_zone("a"), large, spot)
    for name in ("large", "spot"):
        zones.store.capacity.refused(
            name, "InsufficientCapacity", START_SECONDS - 99.0, START_SECONDS + 381.0
        )
    zones.cloud.refusals = [InsufficientCapacity("choose b", ("b",))]
    _ordered(zones)
    assert zones.store.capacity.unavailable(zones.clock.now()) == {"a", "large", "spot"}
