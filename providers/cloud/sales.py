"""Data that a launch needs of one offer, and the caps that bound it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Generic, Protocol, TypeVar

from autoscaler.domain.offer import Offer


class PoolBounds(Protocol):
    """Pool of the settings of any cloud."""

    @property
    def region(self) -> str:
        """Region of the pool's instances."""
        ...

    @property
    def max_instances(self) -> int:
        """Maximum number of instances at a time."""
        ...

    @property
    def max_usd_per_hour(self) -> Decimal:
        """Maximum cost of the pool's instances together, in US dollars per hour."""
        ...


AnyPool = TypeVar("AnyPool", bound=PoolBounds, covariant=True)


class SalesBounds(Protocol[AnyPool]):
    """Settings of one cloud that bound what is bought."""

    @property
    def pools(self) -> Mapping[str, AnyPool]:
        """Pools by name."""
        ...

    @property
    def max_usd_per_hour(self) -> Decimal:
        """Maximum cost of all pools together, in US dollars per hour."""
        ...


@dataclass(frozen=True, slots=True)
class Sale(Generic[AnyPool]):
    """Offer with its pool and its maximum hourly price, including all extra charges.

    `scope` is the part of the cloud whose list shows the instance, such as a region.
    """

    offer: Offer
    pool_name: str
    pool: AnyPool
    most_usd_per_hour: Decimal
    scope: str


AnySale = Sale[PoolBounds]
Sales = Mapping[str, AnySale]
"""Sales by offer id."""
