"""What instances cost in one region: on demand from the price list, on spot from its history."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from autoscaler.domain.errors import ProviderError
from autoscaler.domain.offer import Purchase
from autoscaler.market.catalogue import catalogue
from autoscaler.market.price_table import PriceTable
from autoscaler.market.prices import Price, Quote, RefusedPrice, checked, spot_price
from providers.aws.calls import RegionCalls
from providers.cloud.replies import readable

_MOST_TYPES: Final = 100
_PRICED: Final = {
    "operatingSystem": "Linux",
    "preInstalledSw": "NA",
    "tenancy": "Shared",
    "capacitystatus": "Used",
}

OnDemandPrices = Mapping[str, Price | RefusedPrice]
"""By the type."""

SpotQuotes = Mapping[tuple[str, str], Quote]
"""By type and zone, as the market told them."""


class PriceList:
    """On-demand prices: of the owner's list where it has the type, else AWS's, else the
    catalogue's if that is of this region. A type without any may not be bought.
    """

    def __init__(
        self,
        calls: RegionCalls,
        names: Sequence[str],
        table: PriceTable | None,
        kept_seconds: float,
        is_asked: bool = True,
    ) -> None:
        self._calls = calls
        self._is_asked = is_asked
        self._names = names
        self._table = table
        self._kept_seconds = kept_seconds
        self._asked: dict[str, tuple[float, Price]] = {}

    def prices(self, now_seconds: float) -> OnDemandPrices:
        """The price of every type. AWS is asked where its answer is missing or old, and no more
        once it has failed: what it said before holds, whatever its age.
        """
        trouble = self._ask(now_seconds)
        return {name: self._price(name, trouble) for name in self._names}

    def _ask(self, now_seconds: float) -> str:
        """What went wrong, or the like for a type that AWS does not list."""
        if not self._is_asked:
            return "AWS's list can't be asked without internet"
        for name in self._names:
            asked_seconds = self._asked[name][0] if name in self._asked else -math.inf
            is_fresh = now_seconds - asked_seconds < self._kept_seconds
            if is_fresh or (self._table is not None and name in self._table):
                continue
            try:
                usd = _list_price(self._calls, name)
            except ProviderError as error:
                return str(error)
            price = checked(Quote(usd, now_seconds, "AWS price list"), _reference(name))
            if isinstance(price, Price):
                self._asked[name] = now_seconds, price
        return "AWS lists none"

    def _price(self, name: str, trouble: str) -> Price | RefusedPrice:
        region = self._calls.region
        if self._table is not None and name in self._table:
            return self._table.price(name, region, Purchase.ON_DEMAND, _reference(name))
        if name in self._asked:
            return self._asked[name][1]
        known = catalogue().get(name)
        if known is not None and known.region == region:
            return known.price
        return RefusedPrice(
            f"no on-demand price of {name} in {region} is known: {trouble}: "
            "name a list in prices_from"
        )


def _reference(name: str) -> Price | None:
    known = catalogue().get(name)
    return None if known is None else known.price


def _list_price(calls: RegionCalls, name: str) -> Decimal | None:
    """What AWS's price list says of Linux, shared hardware, nothing agreed on."""
    wanted = {**_PRICED, "instanceType": name, "regionCode": calls.region}
    reply = calls.products(
        ServiceCode="AmazonEC2",
        FormatVersion="aws_v1",
        Filters=[
            {"Type": "TERM_MATCH", "Field": field, "Value": value}
            for field, value in wanted.items()
        ],
    )
    with readable(f"{calls.region}: GetProducts"):
        prices = [
            price for text in reply["PriceList"] for price in _hourly_prices(json.loads(text))
        ]
    return max(prices, default=None)


def _hourly_prices(product: Mapping[str, Any]) -> list[Decimal]:
    return [
        _decimal(dimension["pricePerUnit"]["USD"])
        for term in product["terms"]["OnDemand"].values()
        for dimension in term["priceDimensions"].values()
        if dimension["unit"] == "Hrs" and "USD" in dimension["pricePerUnit"]
    ]


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"{text} is no price") from error


def spot_quotes(
    calls: RegionCalls, names: Iterable[str], zones: Sequence[str], now_seconds: float
) -> SpotQuotes:
    """What the market takes now. The price of now is the last that was set, however long ago.

    Raises:
        ProviderError: EC2 did not tell.
    """
    now = datetime.fromtimestamp(now_seconds, UTC)
    wanted = sorted(set(names))
    latest: dict[tuple[str, str], tuple[float, Decimal]] = {}
    for start in range(0, len(wanted), _MOST_TYPES):
        for page in calls.pages(
            "DescribeSpotPriceHistory",
            InstanceTypes=wanted[start : start + _MOST_TYPES],
            ProductDescriptions=["Linux/UNIX"],
            Filters=[{"Name": "availability-zone", "Values": list(zones)}],
            StartTime=now,
            EndTime=now,
        ):
            with readable(f"{calls.region}: DescribeSpotPriceHistory"):
                for one in page["SpotPriceHistory"]:
                    key = one["InstanceType"], one["AvailabilityZone"]
                    moved = one["Timestamp"].timestamp(), _decimal(one["SpotPrice"])
                    latest[key] = max(latest.get(key, moved), moved)
    return {key: Quote(usd, now_seconds, "EC2 spot market") for key, (_, usd) in latest.items()}


def price_of_spot(quote: Quote | None, on_demand: Price | RefusedPrice) -> Price | RefusedPrice:
    """The price that one may count on, as `market.prices.spot_price` has it."""
    if quote is None:
        return RefusedPrice("the spot market tells no price")
    return spot_price(quote, on_demand if isinstance(on_demand, Price) else None)
