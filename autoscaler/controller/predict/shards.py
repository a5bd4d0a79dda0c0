"""Choice of the devices that hold one copy of a model, before the first instance is bought.

It is fixed afterwards: a change needs a new start from a checkpoint, by another job.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from autoscaler.controller.jobs.fitting import (
    candidate_shards,
    require_fit,
    with_shard,
)
from autoscaler.controller.observe.snapshots import allowed_offers
from autoscaler.controller.predict.circumstances import Circumstances, snapshot_of
from autoscaler.domain.job import JobSpec
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.shards import ShardChoice, ShardForecast, ShardReason
from autoscaler.domain.snapshot import Snapshot
from autoscaler.economics.allocation.candidates import candidates
from autoscaler.economics.forecasts.frontier import frontier
from autoscaler.economics.pricing.objectives import price_range, value_of_time
from autoscaler.economics.supply.supply import SECONDS_PER_HOUR, supply_of

# Useful examples over which candidates are compared while the length of the job is unknown.
_COMPARED_EXAMPLES = 1e6


def choose_shard(
    spec: JobSpec,
    recalled: Callable[[JobSpec], ProgramMemory | None],
    now: Circumstances,
    now_seconds: float,
) -> ShardChoice:
    """Return the shard of an undecided job with the least forecast cost, waiting included.

    Candidates that keep deadline and budget come first. Of equal ones the smallest shard wins. All
    are compared at one value of time: that of the cheapest offer that can run the job at any of
    the shards, where the objective derives it from prices.

    Args:
        spec: the job.
        recalled: function from the job at one shard to the memory of its program.
        now: offers and limits.
        now_seconds: the time since the Unix epoch.

    Raises:
        SpecError: no offer can hold the job at any of the shards.
    """
    permitted = allowed_offers(spec.instances, now.offers)
    decided = [with_shard(spec, shard) for shard in candidate_shards(spec, permitted)]
    snapshots = {
        job.parallelism.shard: snapshot_of(job, recalled(job), now, now_seconds) for job in decided
    }
    values = [_value_of_time(snapshot) for snapshot in snapshots.values()]
    value = min((usd for usd in values if usd is not None), default=0.0)
    forecasts, falls_short = [], {}
    for shard, snapshot in snapshots.items():
        forecast, falls_short[shard] = _forecast(shard, snapshot, value)
        forecasts.append(forecast)
    fitting = [forecast for forecast in forecasts if forecast.cost_usd is not None]
    if not fitting:
        require_fit(with_shard(spec, forecasts[-1].shard), permitted, now.offers, now.limits)
    best = min(
        fitting or forecasts,
        key=lambda forecast: (
            falls_short[forecast.shard],
            np.inf if forecast.cost_usd is None else forecast.cost_usd,
            forecast.shard,
        ),
    )
    reason = ShardReason.LEAST_COST if len(fitting) > 1 else ShardReason.ONLY_ONE_FITS
    return ShardChoice(best.shard, reason, tuple(forecasts))


def _value_of_time(snapshot: Snapshot) -> float | None:
    """Return the value of time of the job, $ per second; None if no offer can run it."""
    job, supply = snapshot.jobs[0], supply_of(snapshot)
    if not len(candidates(job, supply)):
        return None
    return value_of_time(job.objective, price_range(job, supply))


def _forecast(shard: int, snapshot: Snapshot, value: float) -> tuple[ShardForecast, bool]:
    """Return the forecast of a decided job, and whether it misses its deadline or budget.

    `value` is the value of time, $ per second.
    """
    job = snapshot.jobs[0]
    whole_job = frontier(job, snapshot)
    if whole_job is None:
        return ShardForecast(shard, None, 0.0, None, None, None, job.unfit), True
    chosen = whole_job.chosen
    examples = job.remaining_examples or _COMPARED_EXAMPLES
    forecast = _without_times(shard, snapshot, value, examples)
    if chosen is None:
        return forecast, whole_job.shortfall is not None
    offer = next(offer for offer in snapshot.offers if offer.id == chosen.then.offer)
    forecast = replace(
        forecast,
        allocation=chosen.then,
        usd_per_hour=float(offer.usd_per_hour) * chosen.then.instances,
        seconds=chosen.seconds.median,
        usd=chosen.usd.median,
    )
    return forecast, whole_job.shortfall is not None


def _without_times(shard: int, snapshot: Snapshot, value: float, examples: float) -> ShardForecast:
    """Return the cost of `examples` useful examples, at the cheapest allocation on average.

    The cost is the geometric mean over draws of the least cost in each: a job can change its
    allocation once its speeds are known, but not its shard. The mean of costs would be that of the
    slowest draws alone, before anything is measured.
    """
    job = snapshot.jobs[0]
    sizes = candidates(job, supply_of(snapshot))
    usd_per_example = (sizes.usd_per_second + value) * sizes.seconds_per_example
    best = int(usd_per_example.mean(axis=0).argmin())
    least_usd = float(np.exp(np.log(usd_per_example.min(axis=1)).mean()))
    return ShardForecast(
        shard=shard,
        allocation=sizes.allocation(best),
        usd_per_hour=float(sizes.usd_per_second[best]) * SECONDS_PER_HOUR,
        seconds=None,
        usd=None,
        cost_usd=least_usd * examples,
        unfit=job.unfit,
    )
