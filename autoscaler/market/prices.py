"""What makes a quoted price one that can be spent by, and what an owner's contracts make of it.

A price that is not known is not zero: what is refused here is never used, and an offer without a
price is not bought.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Final

from autoscaler.domain.offer import Purchase

# No market moves that far: a price beyond is an error in its unit, its currency or its type.
FARTHEST_FACTOR: Final = 20
# In some zones price lists show the same share of on-demand for every type: place-holders.
_SHARES_WITHOUT_SIGNAL: Final = (Decimal("0.1"), Decimal(1))
# Clouds state prices to four digits, and list them rounded or cut.
_ROUNDING_USD: Final = Decimal("0.0001")


@dataclass(frozen=True, slots=True)
class Quote:
    """A price as it was told, before anybody believes it.

    `usd_per_hour` is None where nothing was told, `as_of_seconds` (since the epoch) where it is
    not known when; `source` says by whom.
    """

    usd_per_hour: Decimal | None
    as_of_seconds: float | None
    source: str


@dataclass(frozen=True, slots=True)
class Price:
    """A price that can be spent by: finite and above zero, or zero where `is_paid` already."""

    usd_per_hour: Decimal
    as_of_seconds: float | None
    source: str
    is_paid: bool = False

    def __post_init__(self) -> None:
        is_nothing = self.is_paid and self.usd_per_hour == 0
        if not is_nothing and not (self.usd_per_hour.is_finite() and self.usd_per_hour > 0):
            raise ValueError(f"usd_per_hour={self.usd_per_hour}: must be finite and above 0")

    def age_seconds(self, now_seconds: float) -> float | None:
        """How old it is; None if nobody knows."""
        return None if self.as_of_seconds is None else now_seconds - self.as_of_seconds


@dataclass(frozen=True, slots=True)
class RefusedPrice:
    """Why a quote is not used, in words that follow the name of what was quoted."""

    reason: str


def checked(quote: Quote, reference: Price | None) -> Price | RefusedPrice:
    """The quote as a price, unless it can't be one.

    `reference` is an on-demand price of the same type, the catalogue's where it has one: a quote
    more than `FARTHEST_FACTOR` times above or below it is refused.
    """
    usd = quote.usd_per_hour
    if usd is None:
        return RefusedPrice(f"no price is known ({quote.source})")
    if not usd.is_finite():
        return RefusedPrice(f"{usd} is no price ({quote.source})")
    if usd <= 0:
        return RefusedPrice(f"${usd}/h is no price: nothing is given away ({quote.source})")
    price = Price(usd, quote.as_of_seconds, quote.source)
    if reference is None:
        return price
    least, most = (
        reference.usd_per_hour / FARTHEST_FACTOR,
        reference.usd_per_hour * FARTHEST_FACTOR,
    )
    if least <= usd <= most:
        return price
    return RefusedPrice(
        f"${usd}/h ({quote.source}) is more than {FARTHEST_FACTOR} times off the on-demand price "
        f"of ${reference.usd_per_hour.normalize():f}/h ({reference.source})"
    )


def spot_price(quote: Quote, on_demand: Price | None) -> Price | RefusedPrice:
    """The price of a spot quote from a market, as `checked` against the on-demand price there.

    A quote at exactly a tenth or the whole of on-demand is no market's: it says that the type can
    be had and nothing of its price. It counts as the on-demand price, which is the most that spot
    costs: a budget holds, and nothing looks cheap that is not known to be.
    """
    price = checked(quote, on_demand)
    if isinstance(price, RefusedPrice) or on_demand is None:
        return price
    for share in _SHARES_WITHOUT_SIGNAL:
        if abs(price.usd_per_hour - share * on_demand.usd_per_hour) < _ROUNDING_USD:
            return Price(
                on_demand.usd_per_hour,
                quote.as_of_seconds,
                f"on-demand, since ${price.usd_per_hour}/h ({quote.source}) is {share:.0%} of it, "
                "which is no market's price",
            )
    return price


def at_most(on_demand: Price | RefusedPrice, purchase: Purchase) -> Price | RefusedPrice:
    """As much as on demand, where nobody tells a price: spot and flex-start never cost more."""
    if isinstance(on_demand, RefusedPrice):
        return on_demand
    source = f"on-demand, since no {purchase.value} price is known ({on_demand.source})"
    return replace(on_demand, source=source)


@dataclass(frozen=True, slots=True)
class Discount:
    """What an owner has agreed on with a provider: a factor on its prices, or a price.

    `instance_type` is a pattern as of a shell: ``p5*``. `reason` is shown with each price.
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
        """Whether such an instance is sold by this agreement."""
        return (
            provider == self.provider
            and purchase is self.purchase
            and fnmatchcase(instance_type, self.instance_type)
        )

    def applied_to(self, price: Price) -> Quote:
        """What is paid where `price` is the list's; still to be `checked`."""
        if self.factor is None:
            return Quote(self.usd_per_hour, price.as_of_seconds, self.reason)
        source = f"{price.source}, times {self.factor}: {self.reason}"
        return Quote(price.usd_per_hour * self.factor, price.as_of_seconds, source)
