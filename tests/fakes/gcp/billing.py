"""Tables that Cloud Billing exports to BigQuery: standard and detailed usage cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

Columns = Mapping[str, Any]
"""Types by column name: a mapping is a STRUCT, a list of a type an ARRAY of that type."""

_LABEL: Final = {"key": "STRING", "value": "STRING"}
_NAMED: Final = {"id": "STRING", "description": "STRING"}
_EXPORT_DELAY: Final = timedelta(hours=8)

# As of October 2026: docs.cloud.google.com/billing/docs/how-to/export-data-bigquery-tables
STANDARD: Final[Columns] = {
    "billing_account_id": "STRING",
    "service": _NAMED,
    "sku": _NAMED,
    "usage_start_time": "TIMESTAMP",
    "usage_end_time": "TIMESTAMP",
    "project": {
        "id": "STRING",
        "number": "STRING",
        "name": "STRING",
        "labels": [_LABEL],
        "ancestry_numbers": "STRING",
        "ancestors": [{"resource_name": "STRING", "display_name": "STRING"}],
    },
    "labels": [_LABEL],
    "system_labels": [_LABEL],
    "location": {
        "location": "STRING",
        "country": "STRING",
        "region": "STRING",
        "zone": "STRING",
    },
    "tags": [{**_LABEL, "inherited": "BOOL", "namespace": "STRING"}],
    "price": {
        "effective_price": "NUMERIC",
        "tier_start_amount": "NUMERIC",
        "unit": "STRING",
        "pricing_unit_quantity": "NUMERIC",
        "list_price": "NUMERIC",
        "effective_price_default": "NUMERIC",
        "list_price_consumption_model": "NUMERIC",
    },
    "subscription": {"instance_id": "STRING"},
    "transaction_type": "STRING",
    "seller_name": "STRING",
    "export_time": "TIMESTAMP",
    "cost": "FLOAT64",
    "currency": "STRING",
    "currency_conversion_rate": "FLOAT64",
    "usage": {
        "amount": "FLOAT64",
        "unit": "STRING",
        "amount_in_pricing_units": "FLOAT64",
        "pricing_unit": "STRING",
    },
    "credits": [
        {
            "name": "STRING",
            "amount": "FLOAT64",
            "full_name": "STRING",
            "id": "STRING",
            "type": "STRING",
        }
    ],
    "invoice": {"month": "STRING", "publisher_type": "STRING"},
    "cost_type": "STRING",
    "adjustment_info": {**_NAMED, "mode": "STRING", "type": "STRING"},
    "cost_at_list": "FLOAT64",
    "consumption_model": {**_NAMED, "applied_subscription_instance_id": "STRING"},
    "cost_at_effective_price_default": "FLOAT64",
    "cost_at_list_consumption_model": "FLOAT64",
}
DETAILED: Final[Columns] = {**STANDARD, "resource": {"name": "STRING", "global_name": "STRING"}}


@dataclass(slots=True)
class Table:
    """Table of BigQuery, with one partition for each day on which rows were written.

    A view or another unpartitioned table has no `_PARTITIONTIME`.
    """

    columns: Columns = field(default_factory=lambda: STANDARD)
    rows: list[dict[str, Any]] = field(default_factory=list)
    row_bytes: int = 1000
    is_partitioned: bool = True


@dataclass(frozen=True, slots=True)
class Billed:
    """Line of the export: one hour's use of one SKU by resources with equal labels.

    Attributes:
        start: start of the hour.
        cost: in `currency`, before credits.
        credits: negative amounts by kind of credit.
        rate: price of one US dollar in `currency`.
        exported: time of the export; None means some hours after the use.
    """

    start: datetime
    sku: str
    cost: float
    labels: Mapping[str, str] = field(default_factory=dict)
    service: str = "Compute Engine"
    credits: Mapping[str, float] = field(default_factory=dict)
    currency: str = "USD"
    rate: float | None = 1.0
    cost_type: str = "regular"
    exported: datetime | None = None

    def row(self) -> dict[str, Any]:
        """Return the row of the export; `_PARTITIONTIME` is the day of the export."""
        exported = self.exported or self.start + _EXPORT_DELAY
        midnight = exported.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        return {
            "service": {"description": self.service},
            "sku": {"description": self.sku},
            "usage_start_time": self.start,
            "usage_end_time": self.start + timedelta(hours=1),
            "labels": [{"key": key, "value": value} for key, value in self.labels.items()],
            "export_time": exported,
            "cost": self.cost,
            "currency": self.currency,
            "currency_conversion_rate": self.rate,
            "credits": [
                {"type": kind, "name": kind.title(), "amount": amount}
                for kind, amount in self.credits.items()
            ],
            "invoice": {"month": f"{self.start:%Y%m}"},
            "cost_type": self.cost_type,
            "_PARTITIONTIME": midnight,
        }
