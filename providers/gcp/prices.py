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
_PURCHASES: Final = {"OnDemand": Purchase.ON_DEMAND, "Preemptible": Purchase.SPOT}
_MACHINE: Final = re.compile(
    r"(?:Spot Preemptible )?(\w+) (?:Predefined )?Instance (Core|Ram) running in .+", re.IGNORECASE
)
_ACCELERATOR: Final = re.compile(
    r"(?:Spot Preemptible )?(?:Nvidia )?(?:Tesla )?(\w+(?: (?:Mega|Plus))?(?: \d+GB)?) GPU"
    r"(?: attached to Spot Preemptible VMs)? running in .+",
    re.IGNORECASE,
)
# What is bought on flex-start is sold as this, and as on demand by its usage type.
_FLEX_MACHINE: Final = re.compile(
    r"DWS Defined Duration (\w+)(?: Instance)? (Core|Ram) running in .+", re.IGNORECASE
)
_FLEX_ACCELERATOR: Final = re.compile(
    r"(?:Nvidia )?(?:Tesla )?(\w+(?: (?:Mega|Plus))?(?: \d+GB)?) GPU"
    r" attached to DWS Defined Duration VMs running in .+",
    re.IGNORECASE,
)
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
    "h200 141gb": "nvidia-h200-141gb",
    "b200": "nvidia-b200",
}
_NANO: Final = Decimal("1e-9")


@dataclass(frozen=True, slots=True)
class Part:
    """What is sold by itself: ``core g2``, ``ram g2`` or an accelerator, in a region."""

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
    counts = {
        f"core {kind.family}": Decimal(kind.vcpus),
        f"ram {kind.family}": Decimal(str(kind.memory_gib)),
        kind.accelerator: Decimal(kind.devices),
    }
    usd = Decimal(0)
    for name, count in counts.items():
        price = (parts or {}).get(Part(name, region, purchase))
        if price is None:
            return None
        usd += count * price
    return usd


def _parts(sku: Mapping[str, Any], regions: frozenset[str]) -> Iterable[tuple[Part, Decimal]]:
    usage, description = sku["category"]["usageType"], str(sku["description"])
    purchase, name = _PURCHASES.get(usage), _part_name(description, _MACHINE, _ACCELERATOR)
    if name is None and purchase is Purchase.ON_DEMAND:
        purchase = Purchase.FLEX_START
        name = _part_name(description, _FLEX_MACHINE, _FLEX_ACCELERATOR)
    places = regions & set(sku["serviceRegions"])
    if purchase is None or name is None or not places:
        return
    usd = _usd(sku["pricingInfo"][-1]["pricingExpression"])
    if usd > 0:
        for region in places:
            yield Part(name, region, purchase), usd


def _part_name(
    description: str, machines: re.Pattern[str], accelerators: re.Pattern[str]
) -> str | None:
    machine = machines.fullmatch(description)
    if machine is not None:
        return f"{machine[2].lower()} {machine[1].lower()}"
    accelerator = accelerators.fullmatch(description)
    return None if accelerator is None else _GPUS.get(accelerator[1].lower())


def _usd(expression: Mapping[str, Any]) -> Decimal:
    """Of an hour: that is what all of these are counted in."""
    if expression["usageUnit"] not in ("h", "GiBy.h"):
        return Decimal(0)
    price = expression["tieredRates"][-1]["unitPrice"]
    return Decimal(str(price.get("units", 0))) + Decimal(int(price.get("nanos", 0))) * _NANO
