"""Sizes that the trials of a study may hold, with prices, limits and the cost of changing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Limit, Offer
from autoscaler.economics.pricing.spot import goodput_with_reclaims, price_with_refills
from autoscaler.economics.supply.supply import SECONDS_PER_HOUR, IntArray
from autoscaler.goodput.throughput import FloatArray

_ROUNDING = 1e-9
_LEAST_RATE = 1e-300


@dataclass(frozen=True, slots=True)
class TrialSwitching:
    """Seconds without progress that a change costs a trial.

    Attributes:
        pause_seconds: change from one size to another.
        start_seconds: start on an instance that has just booted.
        handover_seconds: start on an instance that another trial left.
        lost_seconds: training undone by a reclaim of the trial's last instance.
        look_seconds: training until a trial's speed is known.
    """

    pause_seconds: float
    start_seconds: float
    handover_seconds: float
    lost_seconds: float = 0.0
    look_seconds: float = 10.0


@dataclass(frozen=True, eq=False)
class StudySupply:
    """Sizes (A) of the offers (O), limits (R) on all trials together, and the cost of changing.

    A size holds whole instances: of one with several devices all are paid for.
    """

    offers: tuple[Offer, ...]
    sizes: tuple[Allocation, ...]
    switching: TrialSwitching
    limits: tuple[Limit, ...] = ()

    def __post_init__(self) -> None:
        for size in self.sizes:
            if size.offer not in self.place_of:
                raise ValueError(f"size {size}: {size.offer} is none of the offers")
        if not self.sizes:
            raise ValueError("a study has at least one size that its trials may hold")

    @cached_property
    def place_of(self) -> Mapping[str, int]:
        """Index of each offer among the offers, by its id."""
        return {offer.id: place for place, offer in enumerate(self.offers)}

    @cached_property
    def offer_of(self) -> IntArray:
        """Index of the offer of each size, (A,)."""
        return np.array([self.place_of[size.offer] for size in self.sizes], dtype=np.int64)

    @cached_property
    def instances(self) -> IntArray:
        """Number of instances of each size, (A,)."""
        return np.array([size.instances for size in self.sizes], dtype=np.int64)

    @cached_property
    def unit_usd_per_second(self) -> FloatArray:
        """Price of one instance of each size, $ a second, (A,)."""
        return np.array([offer.usd_per_second for offer in self.offers])[self.offer_of]

    @cached_property
    def boot_seconds(self) -> FloatArray:
        """Seconds from an order to a booted instance of each size, (A,)."""
        boots = [offer.boot_seconds + offer.fill_seconds for offer in self.offers]
        return np.array(boots, dtype=np.float64)[self.offer_of]

    @cached_property
    def minimum_billed_seconds(self) -> FloatArray:
        """Seconds for which a new instance of each size is billed at least, (A,)."""
        seconds = [offer.minimum_billed_seconds for offer in self.offers]
        return np.array(seconds, dtype=np.float64)[self.offer_of]

    @cached_property
    def reclaims_per_second(self) -> FloatArray:
        """Expected reclaims a second of all instances of each size together, (A,)."""
        hazards = [offer.reclaims_per_hour / SECONDS_PER_HOUR for offer in self.offers]
        rates: FloatArray = self.instances * np.array(hazards)[self.offer_of]
        return rates

    @cached_property
    def usd_per_second(self) -> FloatArray:
        """Price of each size, $ a second, boots of replacements after reclaims included, (A,)."""
        return price_with_refills(
            self.unit_usd_per_second,
            self.instances.astype(np.float64),
            self.reclaims_per_second,
            self.boot_seconds,
        )

    @cached_property
    def uses(self) -> FloatArray:
        """Use of each limit by one instance of each offer, (R, O)."""
        uses = [[limit.use(offer) for offer in self.offers] for limit in self.limits]
        return np.array(uses, dtype=np.float64).reshape(len(self.limits), len(self.offers))

    @cached_property
    def maximum(self) -> FloatArray:
        """Maximum use of each limit, (R,)."""
        return np.array([limit.maximum for limit in self.limits], dtype=np.float64)

    @cached_property
    def one_less(self) -> IntArray:
        """Index of the size that remains of each after one instance is lost, (A,); -1: none."""
        place = {size: index for index, size in enumerate(self.sizes)}
        remaining = []
        for size in self.sizes:
            smaller = None
            if size.instances > 1:
                smaller = Allocation(size.offer, size.instances - 1, size.devices_used)
            remaining.append(place.get(smaller, -1) if smaller is not None else -1)
        return np.array(remaining, dtype=np.int64)

    def with_reclaims(self, goodput: FloatArray) -> FloatArray:
        """Return the mean of goodput (..., A) once reclaims are counted.

        A size whose next smaller one is not listed loses its share of the goodput, and a single
        instance all of it, until the replacement is ready.
        """
        if not self.reclaims_per_second.any():
            return goodput
        share = 1.0 - 1.0 / self.instances
        less = np.where(self.one_less >= 0, goodput[..., self.one_less], share * goodput)
        is_single = self.instances == 1
        pause = self.switching.pause_seconds + is_single * self.switching.lost_seconds
        refill = self.boot_seconds + self.switching.start_seconds
        return goodput_with_reclaims(goodput, less, self.reclaims_per_second, refill, pause)

    def order_seconds(self, size: int) -> float:
        """Return the seconds from an order of a size to the first step on it."""
        return float(self.boot_seconds[size]) + self.switching.start_seconds

    def by_cost(self, goodput: FloatArray) -> list[int]:
        """Return the sizes that can run, cheapest unit of work first, of goodput (A,)."""
        price = np.maximum(self.usd_per_second, _LEAST_RATE)
        order: list[int] = np.argsort(
            price / np.maximum(goodput, _LEAST_RATE), kind="stable"
        ).tolist()
        return [size for size in order if goodput[size] > 0]


class Room:
    """Instances that the limits still permit; offers are given by their index."""

    def __init__(self, supply: StudySupply) -> None:
        self._supply = supply
        self._used = np.zeros(len(supply.limits))

    def bears(self, offer: int, instances: int) -> bool:
        """Return whether the limits permit so many more instances of an offer."""
        if instances <= 0 or not len(self._used):
            return True
        uses = self._supply.uses[:, offer]
        touched, used = uses > 0, self._used + instances * uses
        return bool((used[touched] <= self._supply.maximum[touched] * (1.0 + _ROUNDING)).all())

    def take(self, offer: int, instances: int) -> None:
        """Count so many more instances of an offer as held; a negative number as given back."""
        if instances and len(self._used):
            self._used = self._used + instances * self._supply.uses[:, offer]
