"""What can be bought now, and the limits on it, as arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.offer import Limit, Offer, Purchase
from autoscaler.domain.snapshot import Snapshot
from autoscaler.goodput.throughput import FloatArray

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

SECONDS_PER_HOUR = 3600.0
# Sums of prices and devices are good to this share of a limit, and no better.
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Supply:
    """Offers in the order of their ids, and what one instance of each takes of each limit.

    Attributes:
        offers: O offers.
        limits: R limits.
        unit_uses: (R, O).
        maximum: (R,).
        unavailable: ids of offers of which no more can be had now than is held.
        now_seconds: since the Unix epoch.
        replan_seconds: the next plan is made after this long at the latest.
    """

    offers: tuple[Offer, ...]
    limits: tuple[Limit, ...]
    unit_uses: FloatArray
    maximum: FloatArray
    unavailable: frozenset[str]
    now_seconds: float
    replan_seconds: float

    def offer(self, offer_id: str) -> Offer | None:
        """The offer of that id; None where nobody offers it any more."""
        return next((offer for offer in self.offers if offer.id == offer_id), None)

    def permitted(self, bounds: InstanceBounds) -> tuple[int, ...]:
        """Indices of the offers that a job may use."""
        return tuple(i for i, offer in enumerate(self.offers) if _is_permitted(offer, bounds))

    def uses(self, allocations: Iterable[Allocation | None]) -> FloatArray:
        """What the allocations take of each limit together, (R,)."""
        total = np.zeros(len(self.limits))
        index = {offer.id: i for i, offer in enumerate(self.offers)}
        for allocation in allocations:
            if allocation is not None and allocation.offer in index:
                total += self.unit_uses[:, index[allocation.offer]] * allocation.instances
        return total

    def bears(self, uses: FloatArray) -> bool:
        """Whether the limits bear these uses, (R,)."""
        return bool(fits(uses, self.maximum).all())


def supply_of(snapshot: Snapshot) -> Supply:
    """The supply of a snapshot."""
    offers = tuple(sorted(snapshot.offers, key=lambda offer: offer.id))
    uses = [[limit.use(offer) for offer in offers] for limit in snapshot.limits]
    return Supply(
        offers=offers,
        limits=snapshot.limits,
        unit_uses=np.array(uses, dtype=np.float64).reshape(len(snapshot.limits), len(offers)),
        maximum=np.array([limit.maximum for limit in snapshot.limits], dtype=np.float64),
        unavailable=snapshot.unavailable,
        now_seconds=snapshot.now_seconds,
        replan_seconds=snapshot.replan_seconds,
    )


def fits(uses: FloatArray, room: FloatArray) -> BoolArray:
    """Whether uses (R, ...) are within the room (R,), each to the precision of a sum."""
    limit = room.reshape(room.shape + (1,) * (uses.ndim - 1))
    within: BoolArray = uses <= limit + _TOLERANCE * np.maximum(np.abs(limit), 1.0)
    return within


def _is_permitted(offer: Offer, bounds: InstanceBounds) -> bool:
    if offer.shared or (offer.purchase is Purchase.SPOT and not bounds.spot):
        return False
    named = bounds.offers
    return named is None or offer.id in named or offer.instance_type in named
