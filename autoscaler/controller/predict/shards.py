"""Choice of the devices that hold one copy of a model, before the first instance is bought.

It is fixed afterwards: a change needs a new start from a checkpoint, by another job.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autoscaler.controller.jobs.fitting import (
    candidate_shards,
    memory_of,
    require_fit,
    unfit_offers,
    with_shard,
)
from autoscaler.controller.observe.snapshots import allowed_offers
from autoscaler.controller.predict.circumstances import Circumstances, snapshot_of
from autoscaler.domain.job import JobSpec
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.shards import ShardChoice, ShardForecast, ShardReason
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
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

    Candidates that keep deadline and budget come first. Of equal ones the smallest shard wins.

    Args:
        spec: the job.
        recalled: function from the job at one shard to the memory of its program.
        now: offers and limits.
        now_seconds: the time since the Unix epoch.

    Raises:
        SpecError: no offer can hold the job at any of the shards.
    """
    permitted = allowed_offers(spec.instances, now.offers)
    forecasts, falls_short = [], {}
    for shard in candidate_shards(spec, permitted):
        decided = with_shard(spec, shard)
        forecast, misses = _forecast(decided, recalled(decided), now, now_seconds)
        forecasts.append(forecast)
        falls_short[shard] = misses
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


def _forecast(
    spec: JobSpec, memory: ProgramMemory | None, now: Circumstances, now_seconds: float
) -> tuple[ShardForecast, bool]:
    """Return the forecast of a decided job, and whether it misses its deadline or budget."""
    snapshot = snapshot_of(spec, memory, now, now_seconds)
    job, shard = snapshot.jobs[0], spec.parallelism.shard
    peaks = () if memory is None else memory.peaks
    permitted = allowed_offers(spec.instances, now.offers)
    unfit = unfit_offers(spec, permitted, memory_of(spec, peaks))
    whole_job = frontier(job, snapshot)
    if whole_job is None:
        return ShardForecast(shard, None, 0.0, None, None, None, unfit), True
    chosen = whole_job.chosen
    if chosen is None:
        return _by_rate(job, snapshot, shard), whole_job.shortfall is not None
    offer = next(offer for offer in now.offers if offer.id == chosen.then.offer)
    hours = chosen.seconds.median / SECONDS_PER_HOUR
    forecast = ShardForecast(
        shard=shard,
        allocation=chosen.then,
        usd_per_hour=float(offer.usd_per_hour) * chosen.then.instances,
        seconds=chosen.seconds.median,
        usd=chosen.usd.median,
        cost_usd=chosen.usd.median + whole_job.value_of_time * hours,
        unfit=unfit,
    )
    return forecast, whole_job.shortfall is not None


def _by_rate(job: JobSnapshot, snapshot: Snapshot, shard: int) -> ShardForecast:
    """Return the forecast of a job of unknown length, by its cost for a million examples."""
    supply = supply_of(snapshot)
    sizes = candidates(job, supply)
    value = value_of_time(job.objective, price_range(job, supply))
    cost = (sizes.usd_per_second + value) / sizes.rate
    best = int(cost.argmin())
    return ShardForecast(
        shard=shard,
        allocation=sizes.allocation(best),
        usd_per_hour=float(sizes.usd_per_second[best]) * SECONDS_PER_HOUR,
        seconds=None,
        usd=None,
        cost_usd=float(cost[best]) * _COMPARED_EXAMPLES,
        unfit=job.unfit,
    )
