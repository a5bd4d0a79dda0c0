"""Offers as they are asked for again and again: prices that move, age, or can't be one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from autoscaler.controller.controller import ControllerStatus
from autoscaler.controller.offers.market import Market, provider_errors
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.errors import Unavailable
from autoscaler.domain.instance import CloudInstance, Interruption
from autoscaler.domain.offer import Limit, Offer, Purchase
from autoscaler.domain.spending import EntryKind
from autoscaler.market.prices import Discount
from providers.base import Condition, Provider
from tests.controller.cloud import offer
from tests.controller.world import World

G5 = replace(offer("g5", 4, "5.60"), instance_type="g5.12xlarge")


class Shop(Provider):
    """Sells what it is told to, and launches nothing."""

    def __init__(self, *offers: Offer) -> None:
        self.sold = offers
        self.answers = True
        self.strangers: dict[str, int] = {}

    @property
    def identity(self) -> None:
        return None

    def offers(self) -> Sequence[Offer]:
        if not self.answers:
            raise Unavailable("closed")
        return self.sold

    def limits(self) -> Sequence[Limit]:
        return ()

    def condition(self) -> Condition:
        return Condition(
            {"g6": "no price"}, ("no announcements",), frozenset({"i-1"}), self.strangers
        )

    def instances(self) -> Sequence[CloudInstance]:
        return ()

    def interruptions(self) -> Sequence[Interruption]:
        return ()

    launch = terminate = None  # type: ignore[assignment]


@pytest.fixture
def shop() -> Shop:
    return Shop(G5, offer())


def test_a_price_that_moved_is_the_price_and_one_that_can_not_be_is_none(shop: Shop) -> None:
    market = Market({"file": shop}, None)
    market.refresh(10.0)
    assert market.offers == shop.sold and market.refused == {"g6": "no price"}
    shop.sold = (replace(G5, usd_per_hour=Decimal(4)), offer())
    market.refresh(20.0)
    assert market.offer("g5").usd_per_hour == 4
    shop.sold = (replace(G5, usd_per_hour=Decimal(4000)), offer())
    market.refresh(30.0)
    assert [each.id for each in market.offers] == ["small"]
    assert "more than 20 times off" in market.refused["g5"]


def test_what_was_agreed_on_is_paid_and_told(shop: Shop) -> None:
    agreed = Discount("file", "framework", "g5*", factor=Decimal("0.5"))
    market = Market({"file": shop}, None, (agreed,))
    market.refresh(10.0)
    found = market.offer("g5")
    assert (found.usd_per_hour, market.offer("small")) == (Decimal("2.80"), offer())
    assert found.price_source == "file, times 0.5: framework"
    market.refresh(20.0)
    assert market.offer("g5") is found, "nothing has changed"


def test_of_a_provider_that_does_not_answer_the_last_prices_stay_and_age(shop: Shop) -> None:
    market = Market({"file": shop}, None)
    market.refresh(10.0)
    shop.answers = False
    market.refresh(20.0)
    assert market.offers == shop.sold
    assert market.asked_seconds == {"file": 10.0}
    assert provider_errors(market.states) == ("file: closed", "file: no announcements")
    silent = ControllerStatus(providers=market.states).silent
    assert silent == frozenset(), "its instances are still listed"


def test_how_a_provider_does_is_told_beside_what_it_answers(shop: Shop) -> None:
    market = Market({"file": shop}, None)
    market.refresh(10.0)
    assert provider_errors(market.states) == ("file: no announcements",)
    assert ControllerStatus(providers=market.states).silent == frozenset()
    shop.strangers = {"lost": 2}
    market.refresh(20.0)
    _, lost = provider_errors(market.states)
    assert lost.startswith("file: instances of another controller of this deployment, lost: 2,")
    assert market.at_risk == {"i-1"}


def test_a_newer_date_of_the_same_price_is_taken(shop: Shop) -> None:
    market = Market({"file": shop}, None)
    for seconds in (5.0, 6.0):
        shop.sold = (replace(G5, priced_seconds=seconds),)
        market.refresh(10.0)
        assert market.offer("g5").priced_seconds == seconds


def test_a_refused_price_is_told_once_each_time(tmp_path: Path) -> None:
    world = World(tmp_path, ControllerSettings(replan_seconds=0.0))
    absurd = replace(G5, usd_per_hour=Decimal(4000))
    for sold, times in ((absurd, 3), (G5, 2), (absurd, 2)):
        world.cloud.sold = (sold, offer())
        world.tick(times)
    told = [event for event in world.store.events.latest() if event.kind == "price refused"]
    assert len(told) == 2 and told[0].text.startswith("g5 is left out: $4000/h (file)")
    assert [each.id for each in world.controller.status.offers] == ["small"]
    assert set(world.controller.status.refused) == {"g5"}


def test_shares_of_users_are_in_what_is_planned_from(tmp_path: Path) -> None:
    settings = ControllerSettings(replan_seconds=0.0, shares={"ada": 3.0})
    world = World(tmp_path, settings)
    ada, bob = (world.submit(name, person=name) for name in ("ada", "bob"))
    high = world.submit("bob-2", person="bob", priority=4.0)
    world.tick()
    found = world.controller.status.weights
    assert found == pytest.approx({ada: 2.25, bob: 0.375, high: 1.5})


def test_what_is_held_on_spot_is_billed_at_the_price_of_the_market(tmp_path: Path) -> None:
    world = World(tmp_path, ControllerSettings(replan_seconds=0.0))
    spot = replace(offer("spot"), purchase=Purchase.SPOT)
    world.cloud.sold = (spot,)
    job = world.submit()
    world.set_target(job, 1, "spot")
    world.tick(4)
    (before,) = world.store.instances.alive()
    world.cloud.sold = (replace(spot, usd_per_hour=spot.usd_per_hour * 2),)
    world.tick(2)
    (after,) = world.store.instances.alive()
    assert after.usd_per_hour == 2 * before.usd_per_hour
    lines = world.store.ledger.entries()
    assert [line.kind for line in lines] == [EntryKind.OPEN, EntryKind.CLOSE, EntryKind.OPEN]
    assert [line.usd_per_hour for line in lines] == [
        before.usd_per_hour,
        before.usd_per_hour,
        after.usd_per_hour,
    ]


def test_files_that_lie_elsewhere_are_paid_for_on_their_way(shop: Shop) -> None:
    """Both ways where each cloud takes its own toll, and nothing where they are at home."""
    near = replace(offer("near"), network="aws/us-east-1")
    region = replace(offer("region"), network="aws/eu-west-1")
    far = replace(offer("far"), network="gcp/us-central1")
    shop.sold = (near, region, far, offer("here"))
    market = Market({"file": shop}, None, files_network="aws/us-east-1")
    market.refresh(10.0)
    ways = {
        each.id: (str(each.upload_usd_per_gb), str(each.download_usd_per_gb))
        for each in market.offers
    }
    assert ways == {
        "near": ("0", "0"),
        "region": ("0.02", "0.02"),
        "far": ("0.12", "0.09"),
        "here": ("0", "0.09"),
    }
    alone = Market({"file": shop}, None)
    alone.refresh(10.0)
    assert alone.offers == shop.sold, "without a storage all see one disk"


@pytest.mark.parametrize(("cap", "bought"), [(0.25, 0), (0.35, 1)])
def test_the_fleet_cap_counts_what_runs_of_an_offer_that_is_sold_no_more(
    tmp_path: Path, cap: float, bought: int
) -> None:
    world = World(tmp_path, ControllerSettings(replan_seconds=0.0, fleet_usd_per_hour=cap))
    old, new = world.submit("old"), world.submit("new")
    world.set_target(old, 2)
    world.tick(6)
    assert len(world.training(old)) == 2
    world.cloud.sold = (offer(), offer("renamed", 1, "0.10"))
    world.cloud.removed = {"small"}
    world.set_target(new, 1, "renamed")
    world.tick(4)
    assert len(world.store.instances.of_job(new)) == bought
