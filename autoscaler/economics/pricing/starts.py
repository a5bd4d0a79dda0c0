"""Seconds from an order to training, and the billed part of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autoscaler.domain.offer import Offer
from autoscaler.domain.snapshot import SwitchingCosts
from autoscaler.economics.supply.supply import MarketTerms
from autoscaler.goodput.throughput import FloatArray


def start_seconds(switching: SwitchingCosts, offer: Offer) -> float:
    """Return seconds from an order to the first step, with the wait for capacity."""
    fill_seconds = switching.fill_seconds.get(offer.id, offer.fill_seconds)
    return fill_seconds + billed_start_seconds(switching, offer)


def billed_start_seconds(switching: SwitchingCosts, offer: Offer) -> float:
    """Return seconds from launch to the first step, measured or else the offer's."""
    return switching.start_seconds.get(offer.id, offer.boot_seconds)


def starts_seconds(switching: SwitchingCosts, offers: Sequence[Offer]) -> FloatArray:
    """Return `start_seconds` for each of O offers, (O,)."""
    return np.array([start_seconds(switching, offer) for offer in offers])


def billed_starts_seconds(switching: SwitchingCosts, offers: Sequence[Offer]) -> FloatArray:
    """Return `billed_start_seconds` for each of O offers, (O,).

    It is also the time from a reclaim to training on a new instance, ordered where there is
    capacity.
    """
    return np.array([billed_start_seconds(switching, offer) for offer in offers])


def fills_of_jobs(some: Sequence[SwitchingCosts], terms: MarketTerms) -> FloatArray:
    """Return seconds that orders of J jobs wait for capacity of O offers, (J, O)."""
    usual = [offer.fill_seconds for offer in terms.offers]
    return _values_of_jobs(usual, [switching.fill_seconds for switching in some], terms)


def billed_starts_of_jobs(some: Sequence[SwitchingCosts], terms: MarketTerms) -> FloatArray:
    """Return `billed_starts_seconds` of J jobs, (J, O)."""
    boots = [offer.boot_seconds for offer in terms.offers]
    return _values_of_jobs(boots, [switching.start_seconds for switching in some], terms)


def _values_of_jobs(
    usual: Sequence[float], known_by_job: Sequence[Mapping[str, float]], terms: MarketTerms
) -> FloatArray:
    """Return the values that jobs know by offer id, or else the usual ones, (J, O)."""
    values = np.tile(np.array(usual, dtype=np.float64), (len(known_by_job), 1))
    for row, known_values in zip(values, known_by_job, strict=True):
        for offer, value in known_values.items():
            if offer in terms.index:
                row[terms.index[offer]] = value
    return values
