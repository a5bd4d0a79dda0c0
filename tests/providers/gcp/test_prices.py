"""Parts of SKUs by their descriptions, and prices of instances from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, cast

import pytest

from autoscaler.domain.offer import Purchase
from autoscaler.market.prices import Price
from providers.gcp.calls import ProjectCalls
from providers.gcp.kinds import Kind
from providers.gcp.prices import Part, PartPrices, part_prices, price_of

REGION = "us-central1"
SPOT, ON_DEMAND, FLEX = Purchase.SPOT, Purchase.ON_DEMAND, Purchase.FLEX_START
# As the catalogue has them, by what others have published of it.
SOLD = [
    ("N1 Predefined Instance Core running in Americas", "OnDemand", ON_DEMAND, "core n1"),
    ("Spot Preemptible N1 Predefined Instance Ram running in Iowa", "Preemptible", SPOT, "ram n1"),
    ("A3Plus Instance Core running in Americas", "OnDemand", ON_DEMAND, "core a3plus"),
    ("A3Ultra Instance Ram running in Americas", "OnDemand", ON_DEMAND, "ram a3ultra"),
    (
        "DWS Defined Duration A3 Ultra Instance Core running in Iowa",
        "OnDemand",
        FLEX,
        "core a3ultra",
    ),
    ("DWS Defined Duration A2 Ram running in Americas", "OnDemand", FLEX, "ram a2"),
    ("Nvidia Tesla A100 80GB GPU running in Americas", "OnDemand", ON_DEMAND, "nvidia-a100-80gb"),
    ("H200 141GB GPU running in Americas", "OnDemand", ON_DEMAND, "nvidia-h200-141gb"),
    ("Nvidia H100 80GB GPU running in Americas", "OnDemand", ON_DEMAND, "nvidia-h100-80gb"),
    (
        "Nvidia H100 80GB Plus GPU running in Americas",
        "OnDemand",
        ON_DEMAND,
        "nvidia-h100-mega-80gb",
    ),
    (
        "Nvidia H100 80GB Mega GPU running in Frankfurt",
        "OnDemand",
        ON_DEMAND,
        "nvidia-h100-mega-80gb",
    ),
    (
        "Nvidia H100 Mega 80GB GPU attached to DWS Defined Duration VMs running in Americas",
        *("OnDemand", FLEX, "nvidia-h100-mega-80gb"),
    ),
    (
        "Nvidia L4 GPU attached to Spot Preemptible VMs running in Americas",
        *("Preemptible", SPOT, "nvidia-l4"),
    ),
    ("A4 Nvidia B200 (1 gpu slice) running in Americas", "OnDemand", ON_DEMAND, "slice a4"),
    # Whatever its usage type says.
    (
        "Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Iowa",
        "OnDemand",
        SPOT,
        "slice a4",
    ),
]
NOT_SOLD = [
    ("Commitment v1: Nvidia H100 80GB GPU running in Americas for 1 Year", "Commit1Yr"),
    ("Commitment v1: A4 Nvidia B200 (1 gpu slice) in Americas for 1 Year", "Commit"),
    ("Reserved Nvidia H100 80GB Mega GPU in Americas in Calendar Mode", "OnDemand"),
    ("Reserved A2 Ram in Netherlands", "OnDemand"),
    (
        "Committed Use Discount Premium for E2 Custom Instance Core running in Iowa",
        "CmtCudPremium",
    ),
    ("1/8 vGPU no lssd running in Iowa", "OnDemand"),
    ("Sole Tenancy Premium for G2 Sole Tenancy Instance Core running in Iowa", "OnDemand"),
]


class Catalogue:
    """Its pages, as `ProjectCalls` has them."""

    def __init__(self, *skus: Mapping[str, Any]) -> None:
        self._skus = skus

    def skus(self) -> Iterator[Mapping[str, Any]]:
        yield {"skus": self._skus}


def sku(description: str, usage: str, usd: str = "1.5") -> dict[str, Any]:
    whole, _, rest = usd.partition(".")
    price = {"units": whole, "nanos": int(f"{rest:0<9}")}
    expression = {"usageUnit": "h", "tieredRates": [{"unitPrice": price}]}
    return {
        "description": description,
        "category": {"usageType": usage},
        "serviceRegions": [REGION, "us-east4"],
        "pricingInfo": [{"pricingExpression": expression}],
    }


def prices(*skus: Mapping[str, Any]) -> PartPrices:
    return part_prices(cast(ProjectCalls, Catalogue(*skus)), [REGION])


@pytest.mark.parametrize(("description", "usage", "purchase", "name"), SOLD)
def test_what_is_sold_is_told_by_words(
    description: str, usage: str, purchase: Purchase, name: str
) -> None:
    assert prices(sku(description, usage)) == {Part(name, REGION, purchase): Decimal("1.5")}


@pytest.mark.parametrize(("description", "usage"), NOT_SOLD)
def test_what_is_no_instance_or_no_price_of_one_is_passed_over(
    description: str, usage: str
) -> None:
    assert prices(sku(description, usage)) == {}


def price(kind: Kind, purchase: Purchase, parts: PartPrices) -> Decimal:
    found = price_of(kind, "us-central1-a", REGION, purchase, parts, None, 0.0)
    assert isinstance(found, Price), found
    return found.usd_per_hour


def test_of_a_mega_machine_cores_and_memory_are_sold_by_another_name() -> None:
    kind = Kind("a3-megagpu-8g", 8, "h100", "nvidia-h100-mega-80gb", 208, 1872.0, 1e9)
    parts = prices(
        sku("A3Plus Instance Core running in Americas", "OnDemand", "0.026924"),
        sku("A3Plus Instance Ram running in Americas", "OnDemand", "0.002344"),
        sku("A3 Instance Core running in Americas", "OnDemand", "0.029323"),
        sku("A3 Instance Ram running in Americas", "OnDemand", "0.002553"),
        sku("Nvidia H100 80GB Plus GPU running in Americas", "OnDemand", "10.344276"),
    )
    assert price(kind, ON_DEMAND, parts) == pytest.approx(Decimal("92.74"), abs=Decimal("0.01"))


def test_of_a_machine_that_is_sold_in_slices_nothing_else_is_billed() -> None:
    kind = Kind("a4-highgpu-8g", 8, "b200", "nvidia-b200", 224, 3968.0, 1e9)
    parts = prices(
        sku("A4 Nvidia B200 (1 gpu slice) running in Americas", "OnDemand", "16.11"),
        sku("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Iowa", "OnDemand", "4.9542"),
    )
    assert price(kind, ON_DEMAND, parts) == Decimal("128.88")
    assert price(kind, SPOT, parts) == Decimal("39.6336")
