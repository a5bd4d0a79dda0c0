"""Bill of the local cloud, from its own records alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal

from providers.local.instance import LocalInstance

_SMALLEST_USD = Decimal("0.000001")


@dataclass(frozen=True, slots=True)
class BilledInstance:
    """Line of the bill for one instance.

    `seconds` are billed whole seconds, at least the minimum; `usd` is their price.
    """

    instance: str
    offer: str
    usd_per_hour: Decimal
    seconds: int
    usd: Decimal


def bill_instance(instance: LocalInstance, now_seconds: float) -> BilledInstance:
    """Return the bill of one instance, up to its end or up to now if it runs."""
    record, end = instance.record, instance.end
    until_seconds = now_seconds if end is None else end.ended_seconds
    seconds = max(
        math.ceil(until_seconds - record.launched_seconds), record.minimum_billed_seconds, 0
    )
    return BilledInstance(
        instance=record.id,
        offer=record.offer,
        usd_per_hour=record.usd_per_hour,
        seconds=seconds,
        usd=(record.usd_per_hour * seconds / 3600).quantize(_SMALLEST_USD),
    )
