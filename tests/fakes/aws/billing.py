"""Cost Explorer with filters and groups; moto returns fixed answers only."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from typing import Any


@dataclass(frozen=True, slots=True)
class Billed:
    """Line of an account's bill."""

    day: date
    usage: str
    usd: str
    service: str = "Amazon Elastic Compute Cloud - Compute"
    tags: Mapping[str, str] = field(default_factory=dict)
    record: str = "Usage"


@dataclass(slots=True)
class Bill:
    """Lines of a bill, and settings of Cost Explorer.

    Attributes:
        active_tags: tags that are activated as cost allocation tags.
        closed_before: first day whose costs are estimated.
        days_a_page: largest number of days in one reply.
    """

    lines: list[Billed] = field(default_factory=list)
    active_tags: set[str] = field(
        default_factory=lambda: {"castor:deployment", "castor:controller-of"}
    )
    closed_before: date = date.max
    days_a_page: int = 100
    unit: str = "USD"


def cost_and_usage(bill: Bill, query: Mapping[str, Any]) -> bytes:
    """Return a page of GetCostAndUsage."""
    assert query["Granularity"] == "DAILY"
    (metric,) = query["Metrics"]
    keys = [(group["Type"], group["Key"]) for group in query["GroupBy"]]
    assert keys == [("DIMENSION", "SERVICE"), ("DIMENSION", "USAGE_TYPE")]
    first, end = (date.fromisoformat(query["TimePeriod"][key]) for key in ("Start", "End"))
    skipped = int(query.get("NextPageToken", 0))
    days = [first + timedelta(days=number) for number in range((end - first).days)]
    page = days[skipped : skipped + bill.days_a_page]
    reply: dict[str, Any] = {"ResultsByTime": [_of_day(bill, day, query, metric) for day in page]}
    if skipped + len(page) < len(days):
        reply["NextPageToken"] = str(skipped + len(page))
    return json.dumps(reply).encode()


def _of_day(bill: Bill, day: date, query: Mapping[str, Any], metric: str) -> dict[str, Any]:
    groups: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for line in bill.lines:
        if line.day == day and _is_wanted(bill, line, query["Filter"]):
            groups[line.service, line.usage] += Decimal(line.usd)
    return {
        "TimePeriod": {"Start": day.isoformat(), "End": (day + timedelta(days=1)).isoformat()},
        "Total": {},
        "Estimated": day >= bill.closed_before,
        "Groups": [
            {"Keys": list(keys), "Metrics": {metric: {"Amount": str(usd), "Unit": bill.unit}}}
            for keys, usd in groups.items()
        ],
    }


def _is_wanted(bill: Bill, line: Billed, expression: Mapping[str, Any]) -> bool:
    ((kind, inner),) = expression.items()
    match kind:
        case "And":
            return all(_is_wanted(bill, line, part) for part in inner)
        case "Not":
            return not _is_wanted(bill, line, inner)
        case "Tags":
            is_active = inner["Key"] in bill.active_tags
            return is_active and line.tags.get(inner["Key"]) in inner["Values"]
        case "Dimensions":
            assert inner["Key"] == "RECORD_TYPE"
            return line.record in inner["Values"]
    raise AssertionError(f"{kind} is a filter that this fake does not support")
