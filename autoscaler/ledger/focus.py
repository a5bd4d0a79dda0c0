"""Rows of costs in the format FOCUS 1.2 of the FinOps Foundation, one for each charge.

Source: FinOps Open Cost and Usage Specification 1.2, https://focus.finops.org. Columns that begin
with `x_` are Castor's own: the job and its owner, and the parts of the cost by category.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final

from autoscaler.domain.offer import Offer, Purchase
from autoscaler.domain.time_use import CostCategory
from autoscaler.ledger.receipt import ChargeSplit

CURRENCY: Final = "USD"
_PRICING: Final = {
    Purchase.ON_DEMAND: "Standard",
    Purchase.SPOT: "Dynamic",
    Purchase.FLEX_START: "Dynamic",
    Purchase.RESERVED: "Committed",
}
_SECONDS_PER_HOUR: Final = 3600
_NULL: Final = ""


@dataclass(frozen=True, slots=True)
class FocusJob:
    """Job of a row, with its owners. None becomes an empty cell."""

    id: str
    person: str
    team: str | None = None
    study: str | None = None


COLUMNS: Final = (
    *("AvailabilityZone", "BilledCost", "BillingAccountId", "BillingAccountName"),
    *("BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory"),
    *("ChargeClass", "ChargeDescription", "ChargeFrequency", "ChargePeriodEnd"),
    *("ChargePeriodStart", "CommitmentDiscountCategory", "CommitmentDiscountId"),
    *("CommitmentDiscountName", "CommitmentDiscountStatus", "CommitmentDiscountType"),
    *("ConsumedQuantity", "ConsumedUnit", "ContractedCost", "ContractedUnitPrice"),
    *("EffectiveCost", "InvoiceId", "InvoiceIssuerName", "ListCost", "ListUnitPrice"),
    *("PricingCategory", "PricingCurrency", "PricingCurrencyContractedUnitPrice"),
    *("PricingCurrencyEffectiveCost", "PricingCurrencyListUnitPrice", "PricingQuantity"),
    *("PricingUnit", "ProviderName", "PublisherName", "RegionId", "RegionName", "ResourceId"),
    *("ResourceName", "ResourceType", "ServiceCategory", "ServiceName", "ServiceSubcategory"),
    *("SkuId", "SkuMeter", "SkuPriceDetails", "SkuPriceId", "SubAccountId", "SubAccountName"),
    "Tags",
    *("x_Job", "x_Person", "x_Team", "x_Study", "x_ExtrasCost"),
    *(f"x_{category.value.title()}Cost" for category in CostCategory),
    *(
        f"x_{category.value.title()}Seconds"
        for category in CostCategory
        if category is not CostCategory.TRANSFER
    ),
)
"""Names of all columns, in the order of the file."""


def focus_rows(
    splits: Iterable[ChargeSplit],
    job: FocusJob,
    offers: Mapping[str, Offer],
    account: str,
) -> Iterator[dict[str, str]]:
    """Yield the rows of a job's charges; their `BilledCost` adds up to the job's cost.

    Args:
        splits: the charges, with their parts.
        job: the job, with its owners.
        offers: known offers by id. Others are described by their ids.
        account: the id of the deployment, which stands for the billing account.
    """
    for split in splits:
        offer = offers.get(split.charge.offer)
        yield {**dict.fromkeys(COLUMNS, _NULL), **_row(split, job, offer, account)}


def _row(split: ChargeSplit, job: FocusJob, offer: Offer | None, account: str) -> dict[str, str]:
    charge = split.charge
    usd = _decimal(charge.usd)
    is_transfer = CostCategory.TRANSFER in split.split.parts
    return {
        "BilledCost": usd,
        "PricingCurrency": CURRENCY,
        "PricingCurrencyEffectiveCost": usd,
        "BillingAccountId": account,
        "BillingAccountName": f"Castor {account}",
        "BillingCurrency": CURRENCY,
        **_periods(charge.day),
        "ChargeCategory": "Usage",
        "ChargeDescription": _description(split, is_transfer),
        "ChargeFrequency": "Usage-Based",
        "ContractedCost": usd,
        "EffectiveCost": usd,
        "ListCost": usd,
        **_quantities(split, is_transfer),
        **_service(split, offer, is_transfer),
        "ResourceId": charge.instance,
        "ResourceName": charge.instance,
        "SubAccountId": job.team or _NULL,
        "SubAccountName": job.team or _NULL,
        "Tags": _tags(job),
        "x_Job": job.id,
        "x_Person": job.person,
        "x_Team": job.team or _NULL,
        "x_Study": job.study or _NULL,
        "x_ExtrasCost": _decimal(charge.extras_usd),
        **_parts(split),
    }


def _periods(day: date) -> dict[str, str]:
    """Return the day of a charge, and its month, which end when the next ones begin."""
    month = day.replace(day=1)
    next_month = (month + timedelta(days=31)).replace(day=1)
    return {
        "ChargePeriodStart": _midnight(day),
        "ChargePeriodEnd": _midnight(day + timedelta(days=1)),
        "BillingPeriodStart": _midnight(month),
        "BillingPeriodEnd": _midnight(next_month),
    }


def _midnight(day: date) -> str:
    return datetime.combine(day, datetime.min.time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _description(split: ChargeSplit, is_transfer: bool) -> str:
    charge = split.charge
    if is_transfer:
        return f"transfer of files of job {charge.job}"
    return f"{charge.seconds} s of {charge.offer} for job {charge.job}"


def _quantities(split: ChargeSplit, is_transfer: bool) -> dict[str, str]:
    """Return consumed and priced hours of an instance; those of a transfer are not recorded."""
    charge = split.charge
    if is_transfer:
        return {"PricingCategory": "Standard"}
    hours = Decimal(charge.seconds) / _SECONDS_PER_HOUR
    price = _decimal(round(charge.usd / hours, 12))
    return {
        "ConsumedQuantity": _decimal(round(hours, 12)),
        "ConsumedUnit": "Hours",
        "PricingQuantity": _decimal(round(hours, 12)),
        "PricingUnit": "Hours",
        "ListUnitPrice": price,
        "ContractedUnitPrice": price,
        "PricingCurrencyListUnitPrice": price,
        "PricingCurrencyContractedUnitPrice": price,
    }


def _service(split: ChargeSplit, offer: Offer | None, is_transfer: bool) -> dict[str, str]:
    """Return the columns on provider, place and kind of what was used."""
    charge = split.charge
    provider = charge.offer.partition("/")[0] if offer is None else offer.provider
    zone = _NULL if offer is None else offer.zone
    pricing = {} if offer is None else {"PricingCategory": _PRICING[offer.purchase]}
    kind = {
        "ResourceType": "Transfer" if is_transfer else "Instance",
        "ServiceCategory": "Networking" if is_transfer else "Compute",
        "ServiceSubcategory": "Other (Networking)" if is_transfer else "Virtual Machines",
        "ServiceName": "Transfer of files" if is_transfer else "Instances",
        "SkuId": f"{charge.offer} transfer" if is_transfer else charge.offer,
        "SkuMeter": "Bytes sent" if is_transfer else "Instance hours",
        "SkuPriceId": f"{charge.offer} transfer" if is_transfer else charge.offer,
        "SkuPriceDetails": _NULL if is_transfer or offer is None else _device_details(offer),
    }
    return {
        "InvoiceIssuerName": provider,
        "ProviderName": provider,
        "PublisherName": provider,
        "AvailabilityZone": zone,
        **({} if is_transfer else pricing),
        **kind,
    }


def _device_details(offer: Offer) -> str:
    return json.dumps({"InstanceType": offer.instance_type, "GpuCount": offer.devices})


def _tags(job: FocusJob) -> str:
    tags = {"job": job.id, "person": job.person, "team": job.team, "study": job.study}
    return json.dumps({name: value for name, value in tags.items() if value is not None})


def _parts(split: ChargeSplit) -> dict[str, str]:
    parts = {}
    for category in CostCategory:
        part, name = split.split.part(category), category.value.title()
        parts[f"x_{name}Cost"] = _decimal(part.usd)
        if category is not CostCategory.TRANSFER:
            parts[f"x_{name}Seconds"] = f"{part.seconds:.6f}"
    return parts


def _decimal(value: Decimal) -> str:
    """Return a number without an exponent."""
    return f"{value:f}"
