"""What one offer needs to be bought, and the bounds within which it may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Generic, Protocol, TypeVar

from autoscaler.domain.offer import Offer


class PoolBounds(Protocol):
    """One pool of the settings, of whichever cloud."""

    @property
    def region(self) -> str:
        """Where its instances are."""
        ...

    @property
    def max_instances(self) -> int:
        """So many at once."""
        ...

    @property
    def max_usd_per_hour(self) -> Decimal:
        """So dear together."""
        ...


AnyPool = TypeVar("AnyPool", bound=PoolBounds, covariant=True)


class Bounds(Protocol[AnyPool]):
    """The settings of one cloud, as far as they bound what is bought."""

    @property
    def pools(self) -> Mapping[str, AnyPool]:
        """The pools by name."""
        ...

    @property
    def max_usd_per_hour(self) -> Decimal:
        """The bound of all pools together."""
        ...


@dataclass(frozen=True, slots=True)
class Sale(Generic[AnyPool]):
    """An offer, the pool that it is bought for, and the most that an hour can cost, all told.

    `scope` is the part of the cloud whose list shows what was bought, such as a region.
    """

    offer: Offer
    pool_name: str
    pool: AnyPool
    most_usd_per_hour: Decimal
    scope: str


AnySale = Sale[PoolBounds]
Sales = Mapping[str, AnySale]
"""By the id of the offer."""
