"""Supply: offers and limits as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.offer import Limit, Offer
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.domain.transfer import BYTES_PER_GB
from autoscaler.economics.supply.caches import PlanningCache
from autoscaler.goodput.throughput import FloatArray

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

SECONDS_PER_HOUR = 3600.0
# Number of jobs above which planning considers fewer sizes and continues from the last plan.
FLEET_JOBS = 500
# Relative precision of sums of prices and devices against a limit.
_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class MarketTerms:
    """Offers and limits without the time; equal snapshots share one object.

    Attributes:
        offers: O offers sorted by id.
        limits: R limits.
        unavailable: ids of offers of which no more can be had than is held.
        is_fleet: whether there are too many jobs to consider every size of each.
    """

    offers: tuple[Offer, ...]
    limits: tuple[Limit, ...]
    unavailable: frozenset[str]
    is_fleet: bool = False

    @cached_property
    def with_capacity(self) -> MarketTerms:
        """The same terms with more capacity of every offer."""
        return replace(self, unavailable=frozenset()) if self.unavailable else self

    @cached_property
    def unit_uses(self) -> FloatArray:
        """Use of each limit by one instance of each offer, (R, O)."""
        uses = [[limit.use(offer) for offer in self.offers] for limit in self.limits]
        shape = len(self.limits), len(self.offers)
        return np.array(uses, dtype=np.float64).reshape(shape)

    @cached_property
    def maximum(self) -> FloatArray:
        """Maximum of each limit, (R,)."""
        return np.array([limit.maximum for limit in self.limits], dtype=np.float64)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Offer id -> index."""
        return {offer.id: index for index, offer in enumerate(self.offers)}

    @cached_property
    def usd_per_second(self) -> FloatArray:
        """List price of one instance of each offer, $ per second, (O,)."""
        return np.array([offer.usd_per_second for offer in self.offers], dtype=np.float64)

    @cached_property
    def reclaims_per_hour(self) -> FloatArray:
        """Reclaims an hour of one new instance of each offer, (O,)."""
        return np.array([offer.reclaims_per_hour for offer in self.offers], dtype=np.float64)

    @cached_property
    def is_sure(self) -> BoolArray:
        """Whether orders of each offer are expected to be filled at once, (O,)."""
        return np.array([is_sure(offer) for offer in self.offers], dtype=np.bool_)

    @cached_property
    def network(self) -> IntArray:
        """Number of the network of each offer, (O,)."""
        numbers: dict[str, int] = {}
        offer_numbers = [numbers.setdefault(offer.network, len(numbers)) for offer in self.offers]
        return np.array(offer_numbers, dtype=np.int64)

    @cached_property
    def upload_usd_per_byte(self) -> FloatArray:
        """Price of a byte from an instance of each offer to storage, (O,)."""
        return _per_byte(offer.upload_usd_per_gb for offer in self.offers)

    @cached_property
    def download_usd_per_byte(self) -> FloatArray:
        """Price of a byte from storage to an instance of each offer, (O,)."""
        return _per_byte(offer.download_usd_per_gb for offer in self.offers)

    @cached_property
    def has_ways(self) -> bool:
        """Whether any offer has a price for bytes to or from storage."""
        return bool(self.upload_usd_per_byte.any() or self.download_usd_per_byte.any())

    @cached_property
    def of_kind(self) -> Mapping[str, BoolArray]:
        """Kind of device -> which offers have it, (O,)."""
        kinds = np.array([offer.device_kind for offer in self.offers], dtype=object)
        return {kind: np.asarray(kinds == kind) for kind in set(kinds.tolist())}

    @cached_property
    def permitted(self) -> Callable[[InstanceBounds], tuple[int, ...]]:
        """Function from bounds to the indices of the offers that a job may use."""

        def indices(bounds: InstanceBounds) -> tuple[int, ...]:
            return tuple(
                index for index, offer in enumerate(self.offers) if _is_permitted(offer, bounds)
            )

        return lru_cache(maxsize=1024)(indices)

    @cached_property
    def until(self) -> Mapping[int, float]:
        """Index -> end of the offer since the epoch, for offers that end."""
        ends = {index: offer.until_seconds for index, offer in enumerate(self.offers)}
        return {index: end for index, end in ends.items() if end is not None}


@dataclass(frozen=True, slots=True, eq=False)
class Supply:
    """Offers and limits at a time.

    Attributes:
        terms: offers and limits.
        now_seconds: since the Unix epoch.
        replan_seconds: longest time until the next plan.
        cache: intermediate results of the planner that this supply is for.
    """

    terms: MarketTerms
    now_seconds: float
    replan_seconds: float
    cache: PlanningCache = field(default_factory=PlanningCache)

    @property
    def offers(self) -> tuple[Offer, ...]:
        """O offers sorted by id."""
        return self.terms.offers

    @property
    def limits(self) -> tuple[Limit, ...]:
        """R limits."""
        return self.terms.limits

    @property
    def unit_uses(self) -> FloatArray:
        """Use of each limit by one instance of each offer, (R, O)."""
        return self.terms.unit_uses

    @property
    def maximum(self) -> FloatArray:
        """Maximum of each limit, (R,)."""
        return self.terms.maximum

    @property
    def unavailable(self) -> frozenset[str]:
        """Ids of offers of which no more can be had than is held."""
        return self.terms.unavailable

    def as_of_seconds(self, job: JobSnapshot) -> float:
        """Return the time of the job's state, since the Unix epoch."""
        return self.now_seconds if job.as_of_seconds is None else job.as_of_seconds

    def offer(self, offer_id: str) -> Offer | None:
        """Return the offer with an id; None if it no longer exists."""
        index = self.terms.index.get(offer_id)
        return None if index is None else self.terms.offers[index]

    def permitted(self, bounds: InstanceBounds) -> tuple[int, ...]:
        """Return the indices of the offers that a job may use now."""
        permitted = self.terms.permitted(bounds)
        if not self.terms.until:
            return permitted
        return tuple(index for index in permitted if self._lasts(index))

    def _lasts(self, index: int) -> bool:
        """Return whether an offer lasts longer than a boot and a planning interval."""
        until_seconds = self.terms.until.get(index)
        if until_seconds is None:
            return True
        boots_seconds = max(offer.boot_seconds for offer in self.offers)
        return until_seconds - self.now_seconds > boots_seconds + self.replan_seconds

    def uses(self, allocations: Iterable[Allocation | None]) -> FloatArray:
        """Return the total use of each limit by the allocations, (R,)."""
        instances = np.zeros(len(self.offers))
        index = self.terms.index
        for allocation in allocations:
            if allocation is not None and allocation.offer in index:
                instances[index[allocation.offer]] += allocation.instances
        total: FloatArray = self.unit_uses @ instances
        return total

    def bears(self, uses: FloatArray) -> bool:
        """Return whether the limits allow these uses, (R,)."""
        return bool(fits(uses, self.maximum).all())


def supply_of(
    snapshot: Snapshot, cache: PlanningCache | None = None, fleet_jobs: int = FLEET_JOBS
) -> Supply:
    """Return the supply of a snapshot.

    Args:
        snapshot: jobs, offers and limits.
        cache: cache of the planner; None for a new one.
        fleet_jobs: number of jobs above which they are planned as a fleet.
    """
    is_fleet = len(snapshot.jobs) > fleet_jobs
    terms = _terms(tuple(snapshot.offers), tuple(snapshot.limits), snapshot.unavailable, is_fleet)
    cache = PlanningCache() if cache is None else cache
    return Supply(terms, snapshot.now_seconds, snapshot.replan_seconds, cache)


@lru_cache(maxsize=16)
def _terms(
    offers: tuple[Offer, ...],
    limits: tuple[Limit, ...],
    unavailable: frozenset[str],
    is_fleet: bool,
) -> MarketTerms:
    in_order = tuple(sorted(offers, key=lambda offer: offer.id))
    return MarketTerms(in_order, limits, unavailable, is_fleet)


def fits(uses: FloatArray, room: FloatArray) -> BoolArray:
    """Return whether uses (R, ...) are within the room (R,), up to rounding errors."""
    limit = with_tolerance(room).reshape(room.shape + (1,) * (uses.ndim - 1))
    within: BoolArray = uses <= limit
    return within


def with_tolerance(room: FloatArray) -> FloatArray:
    """Return the room (R,) plus the rounding error of sums."""
    widened: FloatArray = room + _TOLERANCE * np.maximum(np.abs(room), 1.0)
    return widened


def is_sure(offer: Offer) -> bool:
    """Return whether an order of the offer is expected to be filled at once."""
    return not offer.purchase.is_at_times and offer.fill_seconds == 0


def _per_byte(usd_per_gb: Iterable[Decimal]) -> FloatArray:
    return np.array([float(usd) / BYTES_PER_GB for usd in usd_per_gb], dtype=np.float64)


def _is_permitted(offer: Offer, bounds: InstanceBounds) -> bool:
    return not offer.shared and bounds.permits(offer)
