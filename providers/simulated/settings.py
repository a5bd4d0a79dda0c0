"""Offers and behaviour of a simulated cloud."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.random import Generator

from autoscaler.domain.offer import Limit, Offer, Purchase
from providers.simulated.capacity import CapacityTrace


class Lifetimes(Protocol):
    """Distribution of lifetimes."""

    def draw_seconds(self, chance: Generator) -> float:
        """Return a random lifetime in seconds, from launch to end."""
        ...


@dataclass(frozen=True, slots=True)
class ExponentialLifetimes:
    """Lifetimes with a constant reclaim rate at every age."""

    reclaims_per_hour: float

    def __post_init__(self) -> None:
        if not 0 < self.reclaims_per_hour < math.inf:
            raise ValueError(f"reclaims_per_hour={self.reclaims_per_hour}: must be positive")

    def draw_seconds(self, chance: Generator) -> float:
        """Return a random lifetime in seconds, from launch to end."""
        return float(chance.exponential(3600.0 / self.reclaims_per_hour))


@dataclass(frozen=True, slots=True)
class LognormalLifetimes:
    """Heavy-tailed lifetimes: past the mode of the hazard, the hazard falls with age.

    The median and the mean fix a lognormal distribution, as its mean is ``median * exp(sigma^2 /
    2)``.
    """

    median_seconds: float
    mean_seconds: float

    def __post_init__(self) -> None:
        if not 0 < self.median_seconds < self.mean_seconds < math.inf:
            raise ValueError(f"the mean must be above the median, and both above 0: {self}")

    def draw_seconds(self, chance: Generator) -> float:
        """Return a random lifetime in seconds, from launch to end."""
        sigma = math.sqrt(2.0 * math.log(self.mean_seconds / self.median_seconds))
        return float(chance.lognormal(math.log(self.median_seconds), sigma))


@dataclass(frozen=True, slots=True)
class SimulatedSettings:
    """Offers of one provider, and the random behaviour of its instances.

    `lifetimes` and `capacity` map offer ids. A capacity trace bounds the launches of an offer:
    requests on flex-start are queued, all others are refused. Spot instances beyond the capacity
    are reclaimed. A spot offer draws its lifetimes from `lifetimes`. Without an entry, an offer
    with a trace is reclaimed by the trace alone, any other at its `reclaims_per_hour`. Notice is
    given `notice_period_seconds` before the end, or at the launch if the lifetime is shorter.

    Raises:
        ValueError: offers, limits, lifetimes and capacity are inconsistent.
    """

    offers: tuple[Offer, ...]
    limits: tuple[Limit, ...] = ()
    lifetimes: Mapping[str, Lifetimes] = field(default_factory=dict)
    capacity: Mapping[str, CapacityTrace] = field(default_factory=dict)
    notice_period_seconds: float = 120.0
    seed: int = 0

    def __post_init__(self) -> None:
        ids = {offer.id for offer in self.offers}
        if not ids or len(ids) < len(self.offers):
            raise ValueError("offers: name at least one, and no id twice")
        if len({offer.provider for offer in self.offers}) > 1:
            raise ValueError(
                "offers: all must name one provider; create a cloud for each provider"
            )
        self._require_sold("lifetimes", self.lifetimes)
        self._require_sold("capacity", self.capacity)
        for limit in self.limits:
            self._require_sold(f"limits: {limit.name}", limit.offers or ())
        for offer in self.offers:
            is_reclaimed = offer.reclaims_per_hour > 0 or offer.id in self.lifetimes
            if offer.purchase is not Purchase.SPOT and is_reclaimed:
                raise ValueError(f"offer {offer.id}: only spot instances are reclaimed")
        if not 0 <= self.notice_period_seconds < math.inf or self.seed < 0:
            raise ValueError("notice_period_seconds and seed can't be negative or infinite")

    @property
    def provider(self) -> str:
        """Provider name, which every offer carries."""
        return self.offers[0].provider

    def lifetime_seconds(self, offer: Offer, ordinal: int) -> float:
        """Return the drawn lifetime of an offer's launch number `ordinal`; infinite if unlimited.

        The lifetime depends on the seed, the offer and the number only.
        """
        lifetimes = self._lifetimes(offer)
        if lifetimes is None:
            return math.inf
        name = int.from_bytes(hashlib.sha256(offer.id.encode()).digest())
        return lifetimes.draw_seconds(np.random.default_rng([self.seed, name, ordinal]))

    def _lifetimes(self, offer: Offer) -> Lifetimes | None:
        if offer.id in self.lifetimes:
            return self.lifetimes[offer.id]
        if offer.id in self.capacity or offer.reclaims_per_hour == 0:
            return None
        return ExponentialLifetimes(offer.reclaims_per_hour)

    def _require_sold(self, field_name: str, ids: Iterable[str]) -> None:
        sold = [offer.id for offer in self.offers]
        unknown = sorted(set(ids).difference(sold))
        if unknown:
            raise ValueError(f"{field_name}: no offer {unknown[0]}; there are {', '.join(sold)}")
