"""What instances cost: the owner's list, else Cloud Billing's catalogue, else what Castor knows.

Google sells cores, memory and accelerators, each with a price (a SKU) by region and by purchase.
What an instance costs is their sum. A SKU is told apart by its words, for it has nothing else that
says which machines it is of.
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
# On which terms something is sold its words say, else its usage type, which calls some of what is
# spot, and all that is flex-start, on demand.
_TERMS: Final = {"Spot Preemptible": Purchase.SPOT, "DWS Defined Duration": Purchase.FLEX_START}
_PURCHASES: Final = {"OnDemand": Purchase.ON_DEMAND, "Preemptible": Purchase.SPOT}
_MACHINE: Final = re.compile(
    r"(\w+(?: Plus| Ultra)?) (?:Predefined )?(?:Instance )?(Core|Ram) running in .+", re.IGNORECASE
)
_ACCELERATOR: Final = re.compile(
    r"(?:Nvidia )?(?:Tesla )?(\w+(?: (?:Mega|Plus|\d+GB))*) GPU running in .+", re.IGNORECASE
)
# A share of a machine with one accelerator and all that goes with it.
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
# What their cores and memory are sold as, where it is not by the family's own name.
_SOLD_AS: Final = {
    "nvidia-h100-mega-80gb": "a3plus",
    "nvidia-h200-141gb": "a3ultra",
}
_NANO: Final = Decimal("1e-9")


@dataclass(frozen=True, slots=True)
class Part:
    """What a region sells by itself: ``core g2``, ``ram g2``, ``slice a4`` or ``nvidia-l4``."""

    name: str
    region: str
    purchase: Purchase


PartPrices = Mapping[Part, Decimal]


def part_prices(calls: ProjectCalls, regions: Iterable[str]) -> PartPrices:
    """Dollars an hour of a core, a GiB or an accelerator; the dearest of what has the same words.

    Raises:
        ProviderError: Cloud Billing did not tell.
    """
    wanted = frozenset(regions)
    found: dict[Part, Decimal] = {}
    for page in calls.skus():
        with readable("skus.list"):
            for sku in page.get("skus", ()):
                for part, usd in _parts(sku, wanted):
                    found[part] = max(found.get(part, usd), usd)
    return found


def price_of(
    kind: Kind,
    zone: str,
    region: str,
    purchase: Purchase,
    parts: PartPrices | None,
    table: PriceTable | None,
    asked_seconds: float,
) -> Price | RefusedPrice:
    """The price of such an instance there.

    Args:
        kind: which.
        zone: where.
        region: that of the zone.
        purchase: on which terms.
        parts: what Cloud Billing told; None if it did not.
        table: the owner's list, if there is one.
        asked_seconds: when Cloud Billing was asked.
    """
    known = catalogue().get(kind.name)
    reference = None if known is None else known.price
    if table is not None and kind.name in table:
        return table.price(kind.name, zone, purchase, reference)
    told = _sum(kind, region, Purchase.ON_DEMAND, parts)
    on_demand: Price | RefusedPrice | None = None
    if told is not None:
        on_demand = checked(Quote(told, asked_seconds, _SOURCE), reference)
    elif known is not None and known.region == region:
        on_demand = known.price
    if purchase is Purchase.ON_DEMAND:
        return on_demand or _unknown(kind, region)
    told = _sum(kind, region, purchase, parts)
    if told is None:
        return at_most(on_demand or _unknown(kind, region), purchase)
    check = spot_price if purchase is Purchase.SPOT else checked
    quote = Quote(told, asked_seconds, _SOURCE)
    return check(quote, on_demand if isinstance(on_demand, Price) else None)


def _unknown(kind: Kind, region: str) -> RefusedPrice:
    return RefusedPrice(
        f"no price of {kind.name} in {region} is known: allow skus.list of Cloud Billing, or name "
        "a list in prices_from"
    )


def _sum(kind: Kind, region: str, purchase: Purchase, parts: PartPrices | None) -> Decimal | None:
    """None where one of its parts has no price."""
    told = parts or {}
    share = told.get(Part(f"slice {kind.family}", region, purchase))
    if share is not None:
        return kind.devices * share
    family = _SOLD_AS.get(kind.accelerator, kind.family)
    counts = {
        f"core {family}": Decimal(kind.vcpus),
        f"ram {family}": Decimal(str(kind.memory_gib)),
        kind.accelerator: Decimal(kind.devices),
    }
    usd = Decimal(0)
    for name, count in counts.items():
        price = told.get(Part(name, region, purchase))
        if price is None:
            return None
        usd += count * price
    return usd


def _parts(sku: Mapping[str, Any], regions: frozenset[str]) -> Iterable[tuple[Part, Decimal]]:
    words, purchase = _terms(str(sku["description"]), sku["category"]["usageType"])
    name, places = _part_name(words), regions & set(sku["serviceRegions"])
    if purchase is None or name is None or not places:
        return
    usd = _usd(sku["pricingInfo"][-1]["pricingExpression"])
    if usd > 0:
        for region in places:
            yield Part(name, region, purchase), usd


def _terms(description: str, usage: str) -> tuple[str, Purchase | None]:
    """What is sold, and on which terms; None for commitments and the like."""
    for words, purchase in _TERMS.items():
        if words in description:
            plain = description.replace(f" attached to {words} VMs", "").replace(f"{words} ", "")
            return plain, purchase
    return description, _PURCHASES.get(usage)


def _part_name(words: str) -> str | None:
    if machine := _MACHINE.fullmatch(words):
        return f"{machine[2].lower()} {machine[1].lower().replace(' ', '')}"
    if accelerator := _ACCELERATOR.fullmatch(words):
        return _GPUS.get(accelerator[1].lower())
    share = _SLICE.fullmatch(words)
    return None if share is None else f"slice {share[1].lower()}"


def _usd(expression: Mapping[str, Any]) -> Decimal:
    """Of an hour: that is what all of these are counted in."""
    if expression["usageUnit"] not in ("h", "GiBy.h"):
        return Decimal(0)
    price = expression["tieredRates"][-1]["unitPrice"]
    return Decimal(str(price.get("units", 0))) + Decimal(int(price.get("nanos", 0))) * _NANO
