"""Forecasts of a job's finish and cost by its fitted model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Offer
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.allocation.candidates import candidates
from autoscaler.economics.choice.stages import quantile, required_draws
from autoscaler.economics.pricing.starts import start_seconds
from autoscaler.economics.supply.supply import supply_of
from autoscaler.goodput.throughput import FloatArray

# Quantiles of a `Range`.
_USUALLY = 0.5
_SURELY = 0.9
_BAND = 0.05, 0.95


@dataclass(frozen=True, slots=True)
class Range:
    """Quantiles of a forecast: the median and the 90 % quantile.

    `low` and `high` are the 5 % and 95 % quantiles.
    """

    median: float
    ninety_percent: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """Seconds and US dollars of a job on one allocation."""

    allocation: Allocation
    seconds: Range
    usd: Range


def fixed_sizes(
    job: JobSnapshot, offers: Sequence[Offer], total_examples: float
) -> tuple[Forecast, ...]:
    """Return forecasts of the same job on each fixed allocation, from launch to end.

    Allocations cover every permitted offer and number of instances, with all devices in use. Means
    include reclaims and refills of spot instances.
    """
    alone = Snapshot(now_seconds=job.submitted_seconds, offers=tuple(offers), limits=(), jobs=())
    found_candidates = candidates(replace(job, held=None), supply_of(alone))
    forecasts = []
    for index in range(len(found_candidates)):
        offer = found_candidates.offer_of(index)
        if found_candidates.sizes.devices_used[index] != offer.devices:
            continue
        training_seconds = total_examples * found_candidates.seconds_per_example[:, index]
        seconds = start_seconds(job.switching, offer) + training_seconds
        usd = seconds * float(found_candidates.usd_per_second[index])
        allocation = found_candidates.allocation(index)
        forecasts.append(Forecast(allocation, range_of(seconds), range_of(usd)))
    return tuple(forecasts)


def bands_of(samples: FloatArray) -> FloatArray:
    """Return the ends of the bands of A values from K equally likely draws, (K, A), as (2, A).

    They are those of `range_of` for each value.
    """
    ordered = np.sort(samples, axis=0)
    rows = [required_draws(probability, len(ordered)) - 1 for probability in _BAND]
    return ordered[rows]


def range_of(sample: FloatArray) -> Range:
    """Return the range of K equally likely values, (K,)."""
    low, high = (quantile(sample, probability) for probability in _BAND)
    return Range(quantile(sample, _USUALLY), quantile(sample, _SURELY), low, high)
