"""Prices of instances: from the owner's list, Cloud Billing's SKUs or the catalogue.

Google sells cores, memory and accelerators, each with a price (a SKU) by region and purchase. An
instance's price is their sum. A SKU's description is all that says which machines the SKU applies
to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from autoscaler.domain.offer import Purchase
from autoscaler.market.catalogue import catalogue
from autoscaler.market.price_table import PriceTable
from autoscaler.market.prices import Price, Quote, RefusedPrice, at_most, checked, spot_price
from providers.cloud.replies import readable
from providers.gcp.calls import ProjectCalls
from providers.gcp.kinds import Kind

_SOURCE: Final = "Cloud Billing catalogue"
# A SKU's description gives its kind of purchase, else its usage type. The usage type alone is
# unreliable: some spot SKUs and all flex-start SKUs are "OnDemand".
_PURCHASES_BY_WORDS: Final = {
    "Spot Preemptible": Purchase.SPOT,
    "DWS Defined Duration": Purchase.FLEX_START,
}
_PURCHASES_BY_USAGE: Final = {"OnDemand": Purchase.ON_DEMAND, "Preemptible": Purchase.SPOT}
_MACHINE: Final = re.compile(
    r"(\w+(?: Plus| Ultra)?) (?:Predefined )?(?:Instance )?(Core|Ram) running in .+", re.IGNORECASE
)
_ACCELERATOR: Final = re.compile(
    r"(?:Nvidia )?(?:Tesla )?(\w+(?: (?:Mega|Plus|\d+GB))*) GPU running in .+", re.IGNORECASE
)
# Slice of a machine: one accelerator with its share of cores and memory.
_SLICE: Final = re.compile(r"(\w+) (?:Nvidia )?\w+ \(1 gpu slice\) running in .+", re.IGNORECASE)
_GPUS: Final = {
    "p100": "nvidia-tesla-p100",
    "v100": "nvidia-tesla-v100",
    "t4": "nvidia-tesla-t4",
    "l4": "nvidia-l4",
    "a100": "nvidia-tesla-a100",
    "a100 80gb": "nvidia-a100-80gb",
    "h100 80gb": "nvidia-h100-80gb",
    "h100 mega 80gb": "nvidia-h100-mega-80gb",
    "h100 80gb mega": "nvidia-h100-mega-80gb",
    "h100 80gb plus": "nvidia-h100-mega-80gb",
    "h200 141gb": "nvidia-h200-141gb",
}
# Family names of cores and memory in SKUs, where they differ from the machine's family.
_SKU_FAMILIES: Final = {
    "nvidia-h100-mega-80gb": "a3plus",
    "nvidia-h200-141gb": "a3ultra",
}
_NANO: Final = Decimal("1e-9")


@dataclass(frozen=True, slots=True)
class Part:
    """Part that a region sells: ``core g2``, ``ram g2``, ``slice a4`` or ``nvidia-l4``."""

    name: str
    region: str
    purchase: Purchase


PartPrices = Mapping[Part, Decimal]


def part_prices(calls: ProjectCalls, regions: Iterable[str]) -> PartPrices:
    """Return the hourly prices in US dollars of a core, a GiB, a slice or an accelerator.

    If several SKUs match a part, the highest price counts.

    Raises:
        ProviderError: Cloud Billing did not return the prices.
    """
    wanted_regions = frozenset(regions)
    prices: dict[Part, Decimal] = {}
    for page in calls.skus():
        with readable("skus.list"):
            for sku in page.get("skus", ()):
                for part, usd in _parts(sku, wanted_regions):
                    prices[part] = max(prices.get(part, usd), usd)
    return prices


def price_of(
    kind: Kind,
    zone: str,
    region: str,
    purchase: Purchase,
    parts: PartPrices | None,
    table: PriceTable | None,
    asked_seconds: float,
) -> Price | RefusedPrice:
    """Return the price of a machine type in a zone, or the reason why it has none.

    Args:
        kind: machine type.
        zone: zone of the instance.
        region: region of the zone.
        purchase: kind of purchase.
        parts: Cloud Billing's prices; None if they were never fetched.
        table: the owner's price list; None if there is none.
        asked_seconds: when Cloud Billing's prices were fetched, in seconds since the epoch.
    """
    entry = catalogue().get(kind.name)
    reference = None if entry is None else entry.price
    if table is not None and kind.name in table:
        return table.price(kind.name, zone, purchase, reference)
    usd_per_hour = _sum_of_parts(kind, region, Purchase.ON_DEMAND, parts)
    on_demand: Price | RefusedPrice | None = None
    if usd_per_hour is not None:
        on_demand = checked(Quote(usd_per_hour, asked_seconds, _SOURCE), reference)
    elif entry is not None and entry.region == region:
        on_demand = entry.price
    if purchase is Purchase.ON_DEMAND:
        return on_demand or _unknown(kind, region)
    usd_per_hour = _sum_of_parts(kind, region, purchase, parts)
    if usd_per_hour is None:
        return at_most(on_demand or _unknown(kind, region), purchase)
    check_price = spot_price if purchase is Purchase.SPOT else checked
    quote = Quote(usd_per_hour, asked_seconds, _SOURCE)
    return check_price(quote, on_demand if isinstance(on_demand, Price) else None)


def _unknown(kind: Kind, region: str) -> RefusedPrice:
    return RefusedPrice(
        f"the price of {kind.name} in {region} is unknown: enable cloudbilling.googleapis.com in "
        "the project of the controller's account, or name a price list in prices_from"
    )


def _sum_of_parts(
    kind: Kind, region: str, purchase: Purchase, parts: PartPrices | None
) -> Decimal | None:
    """Return the sum of the prices of a machine's parts; None if a part has no price."""
    prices = parts or {}
    share = prices.get(Part(f"slice {kind.family}", region, purchase))
    if share is not None:
        return kind.devices * share
    family = _SKU_FAMILIES.get(kind.accelerator, kind.family)
    counts = {
        f"core {family}": Decimal(kind.vcpus),
        f"ram {family}": Decimal(str(kind.memory_gib)),
        kind.accelerator: Decimal(kind.devices),
    }
    usd = Decimal(0)
    for name, count in counts.items():
        price = prices.get(Part(name, region, purchase))
        if price is None:
            return None
        usd += count * price
    return usd


def _parts(sku: Mapping[str, Any], regions: frozenset[str]) -> Iterable[tuple[Part, Decimal]]:
    description, purchase = _split_description(
        str(sku["description"]), sku["category"]["usageType"]
    )
    name, places = _part_name(description), regions & set(sku["serviceRegions"])
    if purchase is None or name is None or not places:
        return
    usd = _usd_per_hour(sku["pricingInfo"][-1]["pricingExpression"])
    if usd > 0:
        for region in places:
            yield Part(name, region, purchase), usd


def _split_description(description: str, usage: str) -> tuple[str, Purchase | None]:
    """Return a SKU's description without its purchase, and the purchase; None for others.

    Commitments, for example, are no purchase here.
    """
    for phrase, purchase in _PURCHASES_BY_WORDS.items():
        if phrase in description:
            description_left = description.replace(f" attached to {phrase} VMs", "").replace(
                f"{phrase} ", ""
            )
            return description_left, purchase
    return description, _PURCHASES_BY_USAGE.get(usage)


def _part_name(description: str) -> str | None:
    if machine := _MACHINE.fullmatch(description):
        return f"{machine[2].lower()} {machine[1].lower().replace(' ', '')}"
    if accelerator := _ACCELERATOR.fullmatch(description):
        return _GPUS.get(accelerator[1].lower())
    share = _SLICE.fullmatch(description)
    return None if share is None else f"slice {share[1].lower()}"


def _usd_per_hour(expression: Mapping[str, Any]) -> Decimal:
    """Return the price in US dollars per hour; 0 for other units, which no part has."""
    if expression["usageUnit"] not in ("h", "GiBy.h"):
        return Decimal(0)
    price = expression["tieredRates"][-1]["unitPrice"]
    return Decimal(str(price.get("units", 0))) + Decimal(int(price.get("nanos", 0))) * _NANO
