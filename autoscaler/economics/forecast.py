"""When a job will be done and what it will have cost, as its fitted model says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.offer import Offer
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.candidates import Candidates, candidates
from autoscaler.economics.stages import quantile
from autoscaler.economics.starts import start_seconds
from autoscaler.economics.supply import supply_of
from autoscaler.goodput.throughput import FloatArray

_USUALLY = 0.5
_SURELY = 0.9
_BAND = 0.05, 0.95


@dataclass(frozen=True, slots=True)
class Range:
    """What is as likely passed as not, and what is not passed in 90 % of cases.

    From `low` to `high` are 90 % of cases too, and as many are below as above.
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
    """What the same job would have taken on each fixed allocation, from its launch to its end.

    Of every offer that the job may use, each number of instances within its bounds, all their
    devices at work. Reclaims and refills of spot are in the mean.
    """
    every = _candidates(replace(job, held=None), offers)
    forecasts = []
    for index in range(len(every)):
        offer = every.offer_of(index)
        if every.sizes.devices_used[index] == offer.devices:
            starts = start_seconds(job.switching, offer)
            forecasts.append(_forecast(every, index, (total_examples, starts, 0.0)))
    return tuple(forecasts)


def outlook(job: JobSnapshot, offers: Sequence[Offer], allocation: Allocation) -> Forecast | None:
    """Seconds from now and US dollars in all if the job goes on at `allocation` to its end.

    None where it is not known how much remains, or what the allocation earns.
    """
    remaining = job.remaining_examples
    if remaining is None or not np.isfinite(remaining):
        return None
    bounds = InstanceBounds(allocation.instances, allocation.instances, (allocation.offer,))
    every = _candidates(replace(job, held=allocation, instances=bounds), offers)
    if every.held is None:
        return None
    return _forecast(every, every.held, (remaining, 0.0, job.spent_usd))


def _candidates(job: JobSnapshot, offers: Sequence[Offer]) -> Candidates:
    alone = Snapshot(now_seconds=job.submitted_seconds, offers=tuple(offers), limits=(), jobs=())
    return candidates(job, supply_of(alone))


def _forecast(every: Candidates, index: int, task: tuple[float, float, float]) -> Forecast:
    """`task` is the examples to do, the seconds before the first, and the US dollars so far."""
    examples, seconds_before, usd_before = task
    seconds = seconds_before + examples * every.seconds_per_example[:, index]
    usd = usd_before + seconds * float(every.usd_per_second[index])
    return Forecast(every.allocation(index), range_of(seconds), range_of(usd))


def range_of(sample: FloatArray) -> Range:
    """The range of equally likely values, (K,)."""
    low, high = (quantile(sample, probability) for probability in _BAND)
    return Range(quantile(sample, _USUALLY), quantile(sample, _SURELY), low, high)
