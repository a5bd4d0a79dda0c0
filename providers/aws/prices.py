"""Prices of one region: on-demand from the price list, spot from the spot price history."""

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

_MAX_FILTER_TYPES: Final = 100
_PRODUCT_FILTERS: Final = {
    "operatingSystem": "Linux",
    "preInstalledSw": "NA",
    "tenancy": "Shared",
    "capacitystatus": "Used",
}

OnDemandPrices = Mapping[str, Price | RefusedPrice]
"""Prices by type."""

SpotQuotes = Mapping[tuple[str, str], Quote]
"""Spot prices by type and zone, as quoted by the market."""


class PriceList:
    """On-demand prices of a region's types.

    The owner's list is used for the types it has, then AWS's list, then the catalogue's price if
    it is of this region. A type without a price can't be bought.

    `kept_seconds` is the age at which AWS's price of a type is fetched again. AWS is never called
    if `is_asked` is False.
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
        self._fetched: dict[str, tuple[float, Price]] = {}

    def prices(self, now_seconds: float) -> OnDemandPrices:
        """Return the price of every type.

        Prices that are missing or too old are fetched from AWS, until a call fails. Old prices
        stay in use.
        """
        missing_reason = self._refresh(now_seconds)
        return {name: self._price(name, missing_reason) for name in self._names}

    def _refresh(self, now_seconds: float) -> str:
        """Fetch missing and old prices; return the reason why a price may still be missing."""
        if not self._is_asked:
            return "AWS's price list can't be reached without internet"
        for name in self._names:
            fetched_seconds = self._fetched[name][0] if name in self._fetched else -math.inf
            is_fresh = now_seconds - fetched_seconds < self._kept_seconds
            if is_fresh or (self._table is not None and name in self._table):
                continue
            try:
                usd = _list_usd_per_hour(self._calls, name)
            except ProviderError as error:
                return str(error)
            price = checked(Quote(usd, now_seconds, "AWS price list"), _catalogue_price(name))
            if isinstance(price, Price):
                self._fetched[name] = now_seconds, price
        return "AWS lists no price"

    def _price(self, name: str, missing_reason: str) -> Price | RefusedPrice:
        region = self._calls.region
        if self._table is not None and name in self._table:
            return self._table.price(name, region, Purchase.ON_DEMAND, _catalogue_price(name))
        if name in self._fetched:
            return self._fetched[name][1]
        entry = catalogue().get(name)
        if entry is not None and entry.region == region:
            return entry.price
        return RefusedPrice(
            f"the on-demand price of {name} in {region} is unknown: {missing_reason}: "
            "name a price list in prices_from"
        )


def _catalogue_price(name: str) -> Price | None:
    entry = catalogue().get(name)
    return None if entry is None else entry.price


def _list_usd_per_hour(calls: RegionCalls, name: str) -> Decimal | None:
    """Return AWS's hourly list price for Linux on shared hardware without commitment.

    The result is None if the list has no such price.
    """
    fields = {**_PRODUCT_FILTERS, "instanceType": name, "regionCode": calls.region}
    filters = [
        {"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in fields.items()
    ]
    prices: list[Decimal] = []
    for page in calls.products(ServiceCode="AmazonEC2", FormatVersion="aws_v1", Filters=filters):
        with readable(f"{calls.region}: GetProducts"):
            for text in page["PriceList"]:
                prices += _hourly_prices(json.loads(text))
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
        raise ValueError(f"{text} is not a price") from error


def spot_quotes(
    calls: RegionCalls, names: Iterable[str], zones: Sequence[str], now_seconds: float
) -> SpotQuotes:
    """Return the current spot prices: the latest change of each, at any time in the past.

    Raises:
        ProviderError: EC2 did not return the prices.
    """
    now = datetime.fromtimestamp(now_seconds, UTC)
    sorted_names = sorted(set(names))
    latest: dict[tuple[str, str], tuple[float, Decimal]] = {}
    for start in range(0, len(sorted_names), _MAX_FILTER_TYPES):
        for page in calls.pages(
            "DescribeSpotPriceHistory",
            InstanceTypes=sorted_names[start : start + _MAX_FILTER_TYPES],
            ProductDescriptions=["Linux/UNIX"],
            Filters=[{"Name": "availability-zone", "Values": list(zones)}],
            StartTime=now,
            EndTime=now,
        ):
            with readable(f"{calls.region}: DescribeSpotPriceHistory"):
                for record in page["SpotPriceHistory"]:
                    key = record["InstanceType"], record["AvailabilityZone"]
                    change = record["Timestamp"].timestamp(), _decimal(record["SpotPrice"])
                    latest[key] = max(latest.get(key, change), change)
    return {key: Quote(usd, now_seconds, "EC2 spot market") for key, (_, usd) in latest.items()}


def price_of_spot(quote: Quote | None, on_demand: Price | RefusedPrice) -> Price | RefusedPrice:
    """Return the spot price to plan with, as `market.prices.spot_price` derives it."""
    if quote is None:
        return RefusedPrice("EC2 reports no spot price")
    return spot_price(quote, on_demand if isinstance(on_demand, Price) else None)
