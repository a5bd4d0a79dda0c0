"""What can be bought now, and the limits on it, as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.offer import Limit, Offer, Purchase
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.domain.transfer import BYTES_PER_GB
from autoscaler.goodput.throughput import FloatArray

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

SECONDS_PER_HOUR = 3600.0
# With more jobs than this sizes are looked at more coarsely, and plans are followed by the next.
FLEET_JOBS = 500
# Sums of prices and devices are good to this share of a limit, and no better.
_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Terms:
    """What can be bought and the limits on it, the moment left aside: one object for the same.

    Attributes:
        offers: O offers in the order of their ids.
        limits: R limits.
        unavailable: ids of offers of which no more can be had now than is held.
        is_fleet: whether there are so many jobs that not every size of each can be looked at.
    """

    offers: tuple[Offer, ...]
    limits: tuple[Limit, ...]
    unavailable: frozenset[str]
    is_fleet: bool = False

    @cached_property
    def unit_uses(self) -> FloatArray:
        """What one instance of each offer takes of each limit, (R, O)."""
        uses = [[limit.use(offer) for offer in self.offers] for limit in self.limits]
        shape = len(self.limits), len(self.offers)
        return np.array(uses, dtype=np.float64).reshape(shape)

    @cached_property
    def maximum(self) -> FloatArray:
        """Of each limit, (R,)."""
        return np.array([limit.maximum for limit in self.limits], dtype=np.float64)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Where the offer of each id stands."""
        return {offer.id: index for index, offer in enumerate(self.offers)}

    @cached_property
    def usd_per_second(self) -> FloatArray:
        """The plain price of one instance of each offer, (O,)."""
        return np.array([offer.usd_per_second for offer in self.offers], dtype=np.float64)

    @cached_property
    def reclaims_per_hour(self) -> FloatArray:
        """Of one new instance of each offer, (O,)."""
        return np.array([offer.reclaims_per_hour for offer in self.offers], dtype=np.float64)

    @cached_property
    def is_sure(self) -> BoolArray:
        """Whether instances of each offer come when they are ordered, as far as is known, (O,)."""
        return np.array([is_sure(offer) for offer in self.offers], dtype=np.bool_)

    @cached_property
    def network(self) -> IntArray:
        """A number for the network of each offer, (O,)."""
        numbers: dict[str, int] = {}
        found = [numbers.setdefault(offer.network, len(numbers)) for offer in self.offers]
        return np.array(found, dtype=np.int64)

    @cached_property
    def upload_usd_per_byte(self) -> FloatArray:
        """From an instance of each offer to where jobs keep their files, (O,)."""
        return _per_byte(offer.upload_usd_per_gb for offer in self.offers)

    @cached_property
    def download_usd_per_byte(self) -> FloatArray:
        """From there to an instance of each offer, (O,)."""
        return _per_byte(offer.download_usd_per_gb for offer in self.offers)

    @cached_property
    def has_ways(self) -> bool:
        """Whether any of them is paid for."""
        return bool(self.upload_usd_per_byte.any() or self.download_usd_per_byte.any())

    @cached_property
    def of_kind(self) -> Mapping[str, BoolArray]:
        """By kind of device, which offers have it, (O,)."""
        kinds = np.array([offer.device_kind for offer in self.offers], dtype=object)
        return {kind: np.asarray(kinds == kind) for kind in set(kinds.tolist())}

    @cached_property
    def permitted(self) -> Callable[[InstanceBounds], tuple[int, ...]]:
        """By its bounds, the indices of the offers that a job may use."""

        def indices(bounds: InstanceBounds) -> tuple[int, ...]:
            return tuple(i for i, offer in enumerate(self.offers) if _is_permitted(offer, bounds))

        return lru_cache(maxsize=1024)(indices)

    @cached_property
    def until(self) -> Mapping[int, float]:
        """When each offer ends that does, by its index."""
        ends = {index: offer.until_seconds for index, offer in enumerate(self.offers)}
        return {index: end for index, end in ends.items() if end is not None}


@dataclass(frozen=True, slots=True, eq=False)
class Supply:
    """The terms at a moment.

    Attributes:
        terms: what can be bought and the limits on it.
        now_seconds: since the Unix epoch.
        replan_seconds: the next plan is made after this long at the latest.
    """

    terms: Terms
    now_seconds: float
    replan_seconds: float

    @property
    def offers(self) -> tuple[Offer, ...]:
        """O offers in the order of their ids."""
        return self.terms.offers

    @property
    def limits(self) -> tuple[Limit, ...]:
        """R limits."""
        return self.terms.limits

    @property
    def unit_uses(self) -> FloatArray:
        """What one instance of each offer takes of each limit, (R, O)."""
        return self.terms.unit_uses

    @property
    def maximum(self) -> FloatArray:
        """Of each limit, (R,)."""
        return self.terms.maximum

    @property
    def unavailable(self) -> frozenset[str]:
        """Ids of offers of which no more can be had now than is held."""
        return self.terms.unavailable

    def as_of_seconds(self, job: JobSnapshot) -> float:
        """The moment that is now for the job."""
        return self.now_seconds if job.as_of_seconds is None else job.as_of_seconds

    def offer(self, offer_id: str) -> Offer | None:
        """The offer of that id; None where nobody offers it any more."""
        index = self.terms.index.get(offer_id)
        return None if index is None else self.terms.offers[index]

    def permitted(self, bounds: InstanceBounds) -> tuple[int, ...]:
        """Indices of the offers that a job may use."""
        permitted = self.terms.permitted(bounds)
        if not self.terms.until:
            return permitted
        return tuple(index for index in permitted if self._lasts(index))

    def _lasts(self, index: int) -> bool:
        """Whether the offer does not end before another could be booted and planned for."""
        until_seconds = self.terms.until.get(index)
        if until_seconds is None:
            return True
        boots_seconds = max(each.boot_seconds for each in self.offers)
        return until_seconds - self.now_seconds > boots_seconds + self.replan_seconds

    def uses(self, allocations: Iterable[Allocation | None]) -> FloatArray:
        """What the allocations take of each limit together, (R,)."""
        instances = np.zeros(len(self.offers))
        index = self.terms.index
        for allocation in allocations:
            if allocation is not None and allocation.offer in index:
                instances[index[allocation.offer]] += allocation.instances
        total: FloatArray = self.unit_uses @ instances
        return total

    def bears(self, uses: FloatArray) -> bool:
        """Whether the limits bear these uses, (R,)."""
        return bool(fits(uses, self.maximum).all())


def supply_of(snapshot: Snapshot) -> Supply:
    """The supply of a snapshot."""
    is_fleet = len(snapshot.jobs) > FLEET_JOBS
    terms = _terms(tuple(snapshot.offers), tuple(snapshot.limits), snapshot.unavailable, is_fleet)
    return Supply(terms, snapshot.now_seconds, snapshot.replan_seconds)


@lru_cache(maxsize=16)
def _terms(
    offers: tuple[Offer, ...],
    limits: tuple[Limit, ...],
    unavailable: frozenset[str],
    is_fleet: bool,
) -> Terms:
    in_order = tuple(sorted(offers, key=lambda offer: offer.id))
    return Terms(in_order, limits, unavailable, is_fleet)


def fits(uses: FloatArray, room: FloatArray) -> BoolArray:
    """Whether uses (R, ...) are within the room (R,), each to the precision of a sum."""
    limit = with_tolerance(room).reshape(room.shape + (1,) * (uses.ndim - 1))
    within: BoolArray = uses <= limit
    return within


def with_tolerance(room: FloatArray) -> FloatArray:
    """The most that sums of uses may come to, (R,)."""
    most: FloatArray = room + _TOLERANCE * np.maximum(np.abs(room), 1.0)
    return most


def is_sure(offer: Offer) -> bool:
    """Whether an instance comes when it is ordered, as far as is known."""
    return not offer.purchase.is_at_times and offer.fill_seconds == 0


def _per_byte(usd_per_gb: Iterable[Decimal]) -> FloatArray:
    return np.array([float(usd) / BYTES_PER_GB for usd in usd_per_gb], dtype=np.float64)


def _is_permitted(offer: Offer, bounds: InstanceBounds) -> bool:
    if offer.shared or (offer.purchase is Purchase.SPOT and not bounds.spot):
        return False
    named = bounds.offers
    return named is None or offer.id in named or offer.instance_type in named
