from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from autoscaler.domain.offer import Offer, Purchase, is_stale
from autoscaler.market.catalogue import instance_type
from autoscaler.market.live_prices import live_price
from autoscaler.market.prices import Discount, Price, RefusedPrice

G5 = instance_type("g5.12xlarge")
AGREED = Discount("aws", "agreed", "g5*", factor=Decimal("0.8"))


def told(usd: str, purchase: Purchase = Purchase.ON_DEMAND, **changes: object) -> Offer:
    plain = Offer(
        id="g5",
        provider="aws",
        instance_type=G5.name,
        zone="us-east-1a",
        purchase=purchase,
        devices=4,
        device_kind="a10g",
        usd_per_hour=Decimal(usd),
        boot_seconds=60.0,
        network_bytes_per_second=5e9,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_a_price_is_of_when_and_from_whom_the_provider_says() -> None:
    assert live_price(told("5.672"), (), 50.0) == Price(Decimal("5.672"), 50.0, "aws")
    dated = told("5.672", price_source="price list", priced_seconds=10.0)
    assert live_price(dated, (), 50.0) == Price(Decimal("5.672"), 10.0, "price list")


def test_what_was_agreed_on_counts() -> None:
    price = live_price(told("5"), (AGREED,), 0.0)
    assert isinstance(price, Price)
    assert price.usd_per_hour == 4 and price.source == "aws, times 0.8: agreed"
    spot = live_price(told("2", Purchase.SPOT), (AGREED,), 0.0)
    assert isinstance(spot, Price) and spot.usd_per_hour == 2


def test_an_absurd_price_is_refused_and_no_market_s_price_is_the_list_s() -> None:
    assert isinstance(live_price(told("500"), (), 0.0), RefusedPrice)
    tenth = live_price(told(str(G5.price.usd_per_hour / 10), Purchase.SPOT), (), 0.0)
    assert isinstance(tenth, Price) and tenth.usd_per_hour == G5.price.usd_per_hour
    unknown = told("500", instance_type="rack-7")
    assert isinstance(live_price(unknown, (), 0.0), Price)


def test_extras_have_a_price_of_their_own() -> None:
    """Neither what was agreed on nor the look of a place-holder is theirs."""
    extras = {"extras_usd_per_hour": Decimal("0.5")}
    agreed = live_price(told("5.5", **extras), (AGREED,), 0.0)
    assert isinstance(agreed, Price) and agreed.usd_per_hour == Decimal("4.5")
    listed = G5.price.usd_per_hour
    tenth = live_price(told(str(listed / 10 + Decimal("0.5")), Purchase.SPOT, **extras), (), 0.0)
    assert isinstance(tenth, Price) and tenth.usd_per_hour == listed + Decimal("0.5")
    like_one = live_price(told(str(listed / 10), Purchase.SPOT, **extras), (), 0.0)
    assert isinstance(like_one, RefusedPrice), "the instance alone would be at a hundredth"


@pytest.mark.parametrize("extras", ["-0.1", "5", "6"])
def test_extras_are_a_part_of_the_price(extras: str) -> None:
    with pytest.raises(ValueError, match="extras"):
        told("5", extras_usd_per_hour=Decimal(extras))


@pytest.mark.parametrize("extras", ["0", "0.03"])
def test_what_is_paid_already_costs_its_extras_at_most(extras: str) -> None:
    offer = told(extras, Purchase.RESERVED, extras_usd_per_hour=Decimal(extras))
    price = live_price(offer, (AGREED,), 0.0)
    assert isinstance(price, Price) and price.usd_per_hour == Decimal(extras) and price.is_paid


@pytest.mark.parametrize("extras", ["-0.1", "6"])
def test_extras_of_what_is_paid_are_all_of_its_price(extras: str) -> None:
    with pytest.raises(ValueError, match="extras"):
        told("5", Purchase.RESERVED, extras_usd_per_hour=Decimal(extras))
    assert not told("5", Purchase.RESERVED, extras_usd_per_hour=Decimal(1)).is_paid


@pytest.mark.parametrize(
    ("purchase", "age_seconds", "stale"),
    [
        (Purchase.SPOT, 3600.0, False),
        (Purchase.SPOT, 86400.0, True),
        (Purchase.ON_DEMAND, 86400.0, False),
        (Purchase.ON_DEMAND, 90 * 86400.0, True),
        (Purchase.RESERVED, 90 * 86400.0, False),
        (Purchase.ON_DEMAND, None, True),
    ],
)
def test_spot_prices_go_stale_first(
    purchase: Purchase, age_seconds: float | None, stale: bool
) -> None:
    assert is_stale(purchase, age_seconds) is stale
