"""How long an order takes until it trains, and how much of that is billed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autoscaler.domain.offer import Offer
from autoscaler.domain.snapshot import SwitchingCosts
from autoscaler.economics.supply import Terms
from autoscaler.goodput.throughput import FloatArray


def start_seconds(switching: SwitchingCosts, offer: Offer) -> float:
    """From the order of an instance to its first step, as long as it waits for capacity too."""
    fill_seconds = switching.fill_seconds.get(offer.id, offer.fill_seconds)
    return fill_seconds + billed_start_seconds(switching, offer)


def billed_start_seconds(switching: SwitchingCosts, offer: Offer) -> float:
    """From the launch of an instance to its first step: as measured, or as the offer says."""
    return switching.start_seconds.get(offer.id, offer.boot_seconds)


def starts_seconds(switching: SwitchingCosts, offers: Sequence[Offer]) -> FloatArray:
    """`start_seconds` of each offer, (O,)."""
    return np.array([start_seconds(switching, offer) for offer in offers])


def billed_starts_seconds(switching: SwitchingCosts, offers: Sequence[Offer]) -> FloatArray:
    """`billed_start_seconds` of each offer, (O,).

    So long it is, too, from a reclaim until another trains: that is ordered where there is room.
    """
    return np.array([billed_start_seconds(switching, offer) for offer in offers])


def fills_of_jobs(some: Sequence[SwitchingCosts], terms: Terms) -> FloatArray:
    """How long orders of J jobs wait for the capacity of each offer, (J, O)."""
    usual = [offer.fill_seconds for offer in terms.offers]
    return _of_jobs(usual, [switching.fill_seconds for switching in some], terms)


def billed_starts_of_jobs(some: Sequence[SwitchingCosts], terms: Terms) -> FloatArray:
    """`billed_starts_seconds` of J jobs, (J, O)."""
    boots = [offer.boot_seconds for offer in terms.offers]
    return _of_jobs(boots, [switching.start_seconds for switching in some], terms)


def _of_jobs(
    usual: Sequence[float], own: Sequence[Mapping[str, float]], terms: Terms
) -> FloatArray:
    """What each of J jobs knows itself of some offers, by their ids, else the usual, (J, O)."""
    found = np.tile(np.array(usual, dtype=np.float64), (len(own), 1))
    for row, known in zip(found, own, strict=True):
        for offer, value in known.items():
            if offer in terms.index:
                row[terms.index[offer]] = value
    return found
