from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.offer import Purchase
from autoscaler.market.prices import (
    FARTHEST_FACTOR,
    Discount,
    Price,
    Quote,
    RefusedPrice,
    checked,
    spot_price,
)

ON_DEMAND = Price(Decimal("75.9552"), 100.0, "list")


def quote(usd: str | None) -> Quote:
    return Quote(None if usd is None else Decimal(usd), 200.0, "spot.csv:7")


@pytest.mark.parametrize(
    ("usd", "reason"),
    [
        (None, "no price is known"),
        ("NaN", "NaN is not a price"),
        ("sNaN", "not a price"),
        ("Infinity", "not a price"),
        ("0", "it must be above 0"),
        ("-1.5", "it must be above 0"),
        (
            "3.79",
            r"\$3.79/h .* more than 20 times off the on-demand price of \$75.9552/h \(list\)",
        ),
        ("1520", "more than 20 times off"),
    ],
)
@pytest.mark.parametrize("check", [checked, spot_price])
def test_what_is_refused(usd: str | None, reason: str, check: type) -> None:
    answer = check(quote(usd), ON_DEMAND)
    assert isinstance(answer, RefusedPrice)
    assert "spot.csv:7" in answer.reason
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(answer.reason)


@given(st.decimals(allow_nan=True, allow_infinity=True))
def test_nothing_unsound_becomes_a_price(usd: Decimal) -> None:
    for answer in (checked(Quote(usd, None, "x"), None), spot_price(Quote(usd, None, "x"), None)):
        sound = usd.is_finite() and usd > 0
        assert isinstance(answer, Price) is sound


@given(st.decimals(min_value="0.0001", max_value="100000", places=4))
def test_a_spot_price_is_the_quote_or_on_demand(usd: Decimal) -> None:
    answer = spot_price(Quote(usd, None, "x"), ON_DEMAND)
    ratio = usd / ON_DEMAND.usd_per_hour
    within = Decimal(1) / FARTHEST_FACTOR <= ratio <= FARTHEST_FACTOR
    assert isinstance(answer, Price) is within
    if isinstance(answer, Price):
        assert answer.usd_per_hour in (usd, ON_DEMAND.usd_per_hour)


@pytest.mark.parametrize("usd", ["7.5955", "7.5956", "75.9552"])
def test_a_place_holder_counts_as_on_demand(usd: str) -> None:
    answer = spot_price(quote(usd), ON_DEMAND)
    assert isinstance(answer, Price)
    assert answer.usd_per_hour == ON_DEMAND.usd_per_hour
    assert answer.as_of_seconds == 200.0
    assert "not a market price" in answer.source


def test_a_market_price_is_believed() -> None:
    assert spot_price(quote("7.60"), ON_DEMAND) == Price(Decimal("7.60"), 200.0, "spot.csv:7")
    assert spot_price(quote("7.5955"), None) == Price(Decimal("7.5955"), 200.0, "spot.csv:7")


def test_the_share_does_not_matter_on_demand() -> None:
    assert checked(quote("7.5955"), ON_DEMAND) == Price(Decimal("7.5955"), 200.0, "spot.csv:7")


def test_age() -> None:
    assert ON_DEMAND.age_seconds(160.0) == 60.0
    assert Price(Decimal(1), None, "x").age_seconds(160.0) is None


@pytest.mark.parametrize("usd", ["0", "-1", "NaN", "Infinity"])
def test_a_price_is_above_nothing(usd: str) -> None:
    with pytest.raises(ValueError, match="must be finite and above 0"):
        Price(Decimal(usd), None, "x")


def test_discounts() -> None:
    factor = Discount("aws", "agreement", instance_type="p5*", factor=Decimal("0.8"))
    assert factor.covers("aws", "p5.48xlarge", Purchase.ON_DEMAND)
    assert not factor.covers("aws", "p5.48xlarge", Purchase.SPOT)
    assert not factor.covers("aws", "g5.xlarge", Purchase.ON_DEMAND)
    assert not factor.covers("gcp", "p5.48xlarge", Purchase.ON_DEMAND)
    cheaper = factor.applied_to(Price(Decimal("10"), 5.0, "list"))
    assert cheaper == Quote(Decimal("8.0"), 5.0, "list, times 0.8: agreement")
    fixed = Discount("aws", "reserved", usd_per_hour=Decimal("7.5"))
    assert fixed.applied_to(ON_DEMAND) == Quote(Decimal("7.5"), 100.0, "reserved")


@pytest.mark.parametrize(
    ("factor", "usd", "message"),
    [
        (None, None, "needs a factor or usd_per_hour"),
        ("1", "1", "needs a factor or usd_per_hour"),
        ("0", None, "above 0 and at most 1"),
        ("80", None, "above 0 and at most 1"),
        ("NaN", None, "above 0 and at most 1"),
    ],
)
def test_a_discount_has_one_term(factor: str | None, usd: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Discount(
            "aws",
            "agreement",
            factor=None if factor is None else Decimal(factor),
            usd_per_hour=None if usd is None else Decimal(usd),
        )
