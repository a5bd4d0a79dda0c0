"""Forecasts of a job's finish and cost by its fitted model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.offer import Offer
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.allocation.candidates import Candidates, candidates
from autoscaler.economics.choice.stages import quantile
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
    found_candidates = _candidates(replace(job, held=None), offers)
    forecasts = []
    for index in range(len(found_candidates)):
        offer = found_candidates.offer_of(index)
        if found_candidates.sizes.devices_used[index] == offer.devices:
            seconds_to_start = start_seconds(job.switching, offer)
            forecasts.append(
                _forecast(found_candidates, index, (total_examples, seconds_to_start, 0.0))
            )
    return tuple(forecasts)


def outlook(job: JobSnapshot, offers: Sequence[Offer], allocation: Allocation) -> Forecast | None:
    """Return seconds from now and total US dollars if the job stays at `allocation` to its end.

    None if the remaining work or the allocation's goodput is unknown.
    """
    remaining = job.remaining_examples
    if remaining is None or not np.isfinite(remaining):
        return None
    bounds = InstanceBounds(allocation.instances, allocation.instances, (allocation.offer,))
    found_candidates = _candidates(replace(job, held=allocation, instances=bounds), offers)
    if found_candidates.held is None:
        return None
    return _forecast(found_candidates, found_candidates.held, (remaining, 0.0, job.spent_usd))


def _candidates(job: JobSnapshot, offers: Sequence[Offer]) -> Candidates:
    alone = Snapshot(now_seconds=job.submitted_seconds, offers=tuple(offers), limits=(), jobs=())
    return candidates(job, supply_of(alone))


def _forecast(
    found_candidates: Candidates, index: int, task: tuple[float, float, float]
) -> Forecast:
    """Return the forecast of one candidate.

    `task` is the examples to process, the seconds before the first, and the US dollars spent so
    far.
    """
    examples, seconds_before, usd_before = task
    seconds = seconds_before + examples * found_candidates.seconds_per_example[:, index]
    usd = usd_before + seconds * float(found_candidates.usd_per_second[index])
    return Forecast(found_candidates.allocation(index), range_of(seconds), range_of(usd))


def range_of(sample: FloatArray) -> Range:
    """Return the range of K equally likely values, (K,)."""
    low, high = (quantile(sample, probability) for probability in _BAND)
    return Range(quantile(sample, _USUALLY), quantile(sample, _SURELY), low, high)
