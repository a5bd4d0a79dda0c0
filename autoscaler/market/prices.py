"""Checks of quoted prices, and discounts of the owner's contracts.

An unknown price is not zero: a refused quote is never used, and an offer without a price is not
bought.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Final

from autoscaler.domain.offer import Purchase

# A price farther from on-demand than this factor is an error in unit, currency or type.
FARTHEST_FACTOR: Final = 20
# Placeholders: in some zones price lists show the same share of on-demand for every type.
_PLACEHOLDER_SHARES: Final = (Decimal("0.1"), Decimal(1))
# Clouds quote prices to four decimals, rounded or truncated.
_ROUNDING_USD: Final = Decimal("0.0001")


@dataclass(frozen=True, slots=True)
class Quote:
    """A price as reported, before any check.

    `usd_per_hour` is None if no price was reported. `as_of_seconds` (since the Unix epoch) is None
    if the time is unknown. `source` names the origin.
    """

    usd_per_hour: Decimal | None
    as_of_seconds: float | None
    source: str


@dataclass(frozen=True, slots=True)
class Price:
    """A checked price: finite and above zero, or zero if the instance `is_paid` already."""

    usd_per_hour: Decimal
    as_of_seconds: float | None
    source: str
    is_paid: bool = False

    def __post_init__(self) -> None:
        is_free = self.is_paid and self.usd_per_hour == 0
        if not is_free and not (self.usd_per_hour.is_finite() and self.usd_per_hour > 0):
            raise ValueError(f"usd_per_hour={self.usd_per_hour}: must be finite and above 0")

    def age_seconds(self, now_seconds: float) -> float | None:
        """Return the age of the price in seconds; None if unknown."""
        return None if self.as_of_seconds is None else now_seconds - self.as_of_seconds


@dataclass(frozen=True, slots=True)
class RefusedPrice:
    """Reason for refusing a quote, worded to follow the name of the offer or type.

    `begins_seconds` is when the offer can be bought, since the Unix epoch; None: that is unknown.
    """

    reason: str
    begins_seconds: float | None = None


def checked(quote: Quote, reference: Price | None) -> Price | RefusedPrice:
    """Return the quote as a price, or the reason for refusing it.

    `reference` is an on-demand price of the same type, for example the catalogue's. A quote more
    than `FARTHEST_FACTOR` times above or below it is refused.
    """
    usd = quote.usd_per_hour
    if usd is None:
        return RefusedPrice(f"no price is known ({quote.source})")
    if not usd.is_finite():
        return RefusedPrice(f"{usd} is not a price ({quote.source})")
    if usd <= 0:
        return RefusedPrice(f"${usd}/h is not a price: it must be above 0 ({quote.source})")
    price = Price(usd, quote.as_of_seconds, quote.source)
    if reference is None:
        return price
    lowest, highest = (
        reference.usd_per_hour / FARTHEST_FACTOR,
        reference.usd_per_hour * FARTHEST_FACTOR,
    )
    if lowest <= usd <= highest:
        return price
    return RefusedPrice(
        f"${usd}/h ({quote.source}) is more than {FARTHEST_FACTOR} times off the on-demand price "
        f"of ${reference.usd_per_hour.normalize():f}/h ({reference.source})"
    )


def spot_price(quote: Quote, on_demand: Price | None) -> Price | RefusedPrice:
    """Return the price of a spot quote, `checked` against the on-demand price of the same place.

    A quote of exactly 10 % or 100 % of on-demand is a placeholder: the type is available, but its
    price is unknown. The on-demand price, an upper bound for spot, is used instead, so that
    budgets hold and no offer looks cheaper than known.
    """
    price = checked(quote, on_demand)
    if isinstance(price, RefusedPrice) or on_demand is None:
        return price
    for share in _PLACEHOLDER_SHARES:
        if abs(price.usd_per_hour - share * on_demand.usd_per_hour) < _ROUNDING_USD:
            return Price(
                on_demand.usd_per_hour,
                quote.as_of_seconds,
                f"on-demand, since ${price.usd_per_hour}/h ({quote.source}) is {share:.0%} of it, "
                "a placeholder and not a market price",
            )
    return price


def at_most(on_demand: Price | RefusedPrice, purchase: Purchase) -> Price | RefusedPrice:
    """Return the on-demand price as the upper bound of an unknown spot or flex-start price."""
    if isinstance(on_demand, RefusedPrice):
        return on_demand
    source = f"on-demand, since no {purchase.value} price is known ({on_demand.source})"
    return replace(on_demand, source=source)


@dataclass(frozen=True, slots=True)
class Discount:
    """Terms agreed on with a provider: a factor on its prices, or a fixed price.

    `instance_type` is a shell pattern such as ``p5*``. `reason` is shown with each price.
    """

    provider: str
    reason: str
    instance_type: str = "*"
    purchase: Purchase = Purchase.ON_DEMAND
    factor: Decimal | None = None
    usd_per_hour: Decimal | None = None

    def __post_init__(self) -> None:
        if (self.factor is None) == (self.usd_per_hour is None):
            raise ValueError("needs a factor or usd_per_hour, not both")
        if self.factor is not None and not (self.factor.is_finite() and 0 < self.factor <= 1):
            raise ValueError(f"factor={self.factor}: must be above 0 and at most 1, like 0.8")

    def covers(self, provider: str, instance_type: str, purchase: Purchase) -> bool:
        """Return whether the discount applies to this instance type and purchase option."""
        return (
            provider == self.provider
            and purchase is self.purchase
            and fnmatchcase(instance_type, self.instance_type)
        )

    def applied_to(self, price: Price) -> Quote:
        """Return the discounted quote of a list price; the caller has to check the quote."""
        if self.factor is None:
            return Quote(self.usd_per_hour, price.as_of_seconds, self.reason)
        source = f"{price.source}, times {self.factor}: {self.reason}"
        return Quote(price.usd_per_hour * self.factor, price.as_of_seconds, source)
