"""What one offer needs to be bought."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from autoscaler.domain.offer import Offer
from providers.aws.settings import PoolForm


@dataclass(frozen=True, slots=True)
class Sale:
    """An offer, the pool that it is bought for, and the most that an hour can cost, all told."""

    offer: Offer
    pool_name: str
    pool: PoolForm
    most_usd_per_hour: Decimal


Sales = Mapping[str, Sale]
"""By the id of the offer."""
