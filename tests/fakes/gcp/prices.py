"""Catalogue of Cloud Billing: one SKU for each part of Compute Engine."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from tests.fakes.gcp.call import Call, Handler
from tests.fakes.gcp.errors import invalid
from tests.fakes.gcp.geography import regions
from tests.fakes.gcp.project import Body, Project

COMPUTE_ENGINE: Final = "services/6F81-5844-456A"
_MAXIMUM: Final = 5000
_PLACES: Final = {"us-central1": "Americas", "europe-west4": "Netherlands"}


@dataclass(frozen=True, slots=True)
class Part:
    """Separately billed part: cores, memory or accelerators of a kind.

    Attributes:
        usd: US dollars an hour for one or for one GiB in the Americas: on demand, spot.
        flex: name and price on flex-start; None if the part is not sold on flex-start.
    """

    title: str
    group: str
    unit: str
    usd: tuple[str, str]
    flex: tuple[str, str] | None = None


# Prices of August 2026, also for spot. Europe costs a tenth more here.
PARTS: Final = (
    Part("N1 Predefined Instance Core", "N1Standard", "h", ("0.031611", "0.006980")),
    Part("N1 Predefined Instance Ram", "N1Standard", "GiBy.h", ("0.004237", "0.000940")),
    Part("G2 Instance Core", "CPU", "h", ("0.024988", "0.014035")),
    Part("G2 Instance Ram", "RAM", "GiBy.h", ("0.002927", "0.001644")),
    Part(
        *("A2 Instance Core", "CPU", "h", ("0.031611", "0.016611")),
        ("DWS Defined Duration A2 Core", "0.017390"),
    ),
    Part(
        *("A2 Instance Ram", "RAM", "GiBy.h", ("0.004237", "0.002226")),
        ("DWS Defined Duration A2 Ram", "0.002330"),
    ),
    Part("A3 Instance Core", "CPU", "h", ("0.029323", "0.016771")),
    Part("A3 Instance Ram", "RAM", "GiBy.h", ("0.002553", "0.001460")),
    Part("Nvidia Tesla T4 GPU", "GPU", "h", ("0.35", "0.165")),
    Part("Nvidia Tesla V100 GPU", "GPU", "h", ("2.48", "1.24")),
    Part("Nvidia L4 GPU", "GPU", "h", ("0.560040", "0.314555")),
    Part(
        *("Nvidia Tesla A100 GPU", "GPU", "h", ("2.933908", "1.541451")),
        ("Nvidia Tesla A100 GPU attached to DWS Defined Duration VMs", "1.613650"),
    ),
    Part("Nvidia Tesla A100 80GB GPU", "GPU", "h", ("3.969178", "2.160000")),
    Part("Nvidia H100 80GB GPU", "GPU", "h", ("9.701500", "5.548000")),
)
_DEARER: Final = {"us-central1": Decimal(1), "europe-west4": Decimal("1.1")}


def list_skus(call: Call) -> Body:
    service = call.parameters["parent"]
    if service != COMPUTE_ENGINE:
        raise invalid("parent", service, "There is no such service.")
    currency = call.parameters.get("currencyCode", "USD")
    if currency != "USD":
        raise invalid("currencyCode", currency, "This fake has prices in USD only.")
    skus = list(skus_of(call.project))
    most = min(call.parameters.get("pageSize") or _MAXIMUM, call.project.page or _MAXIMUM)
    first = int(call.parameters.get("pageToken") or 0)
    more = str(first + most) if first + most < len(skus) else ""
    return {"skus": skus[first : first + most], "nextPageToken": more}


def skus_of(project: Project) -> Iterator[Body]:
    """Yield all SKUs, and one commitment for each part, which is not the price of an instance."""
    for region in regions():
        for part in PARTS:
            place = f"running in {_PLACES[region]}"
            sold = [
                ("OnDemand", part.title, part.usd[0]),
                ("Preemptible", f"Spot Preemptible {part.title}", part.usd[1]),
                ("Commit1Yr", f"Commitment v1: {part.title}", part.usd[0]),
            ]
            if part.flex is not None:
                sold.append(("OnDemand", *part.flex))
            for usage, words, usd in sold:
                title = f"{words} {place}"
                price = project.prices.get(title, Decimal(usd) * _DEARER[region])
                yield _sku(title, part, usage, region, price)


def _sku(title: str, part: Part, usage: str, region: str, usd: Decimal) -> Body:
    number = f"{zlib.crc32(title.encode()):08X}"
    name = f"{number[:4]}-{number[4:]}-0000"
    units = int(usd)
    price = {
        "currencyCode": "USD",
        "units": str(units),
        "nanos": int((usd - units) * 1_000_000_000),
    }
    expression = {
        "usageUnit": part.unit,
        "displayQuantity": 1.0,
        "tieredRates": [{"startUsageAmount": 0.0, "unitPrice": price}],
        "usageUnitDescription": "hour" if part.unit == "h" else "gibibyte hour",
        "baseUnit": "s" if part.unit == "h" else "By.s",
        "baseUnitConversionFactor": 3600.0,
    }
    return {
        "name": f"{COMPUTE_ENGINE}/skus/{name}",
        "skuId": name,
        "description": title,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": "Compute",
            "resourceGroup": part.group,
            "usageType": usage,
        },
        "serviceRegions": [region],
        "pricingInfo": [
            {"summary": "", "pricingExpression": expression, "currencyConversionRate": 1.0}
        ],
        "serviceProviderName": "Google",
        "geoTaxonomy": {"type": "REGIONAL", "regions": [region]},
    }


HANDLERS: dict[str, Handler] = {"cloudbilling.services.skus.list": list_skus}
