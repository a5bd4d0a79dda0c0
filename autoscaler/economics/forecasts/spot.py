"""Draws of a whole job on spot, with the replanning that the controller will do."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Offer, Purchase
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.allocation.candidates import Candidates, candidates
from autoscaler.economics.choice.requirements import margin_seconds
from autoscaler.economics.choice.stages import quantile
from autoscaler.economics.pricing.gangs import lives_of_gang
from autoscaler.economics.pricing.reclaims import FirmFallback, Runs, SpotJob, Zone, runs_on_spot
from autoscaler.economics.pricing.spot import checkpoint_interval_seconds
from autoscaler.economics.pricing.starts import billed_start_seconds
from autoscaler.economics.supply.caches import PlanningCache
from autoscaler.economics.supply.supply import SECONDS_PER_HOUR, supply_of
from autoscaler.goodput.throughput import FloatArray

# Number of runs to draw, rounded up to a multiple of the model's draws.
_RUNS = 512


@dataclass(frozen=True, slots=True)
class SpotForecaster:
    """Candidates of a job without reclaims or outages, for forecasts on spot.

    `value_of_time` is in $ per second.
    """

    job: JobSnapshot
    snapshot: Snapshot
    every: Candidates
    value_of_time: float

    def runs(self, first: Allocation, then: Allocation | None) -> Runs | None:
        """Draw S runs of the whole job on spot at `first`, with moves to firm instances.

        The job moves to `then`, or to the most similar firm candidate; None: it always stays on
        spot. None is returned if `first` is no candidate, or its lifetimes are unknown.
        """
        index = self.every.index(first)
        offer = self._offer(first.offer)
        if index is None or offer.id not in self.snapshot.lives:
            return None
        work, again, share_left, pause = self._work(index)
        firm = None if then is None else self._firm(index, then, work)
        gang = self.job.parallelism.gang_instances(first.devices_used)
        zones = self._zones(offer, gang)
        stay = SpotJob(work, zones, first.instances, share_left, pause, again, firm, gang)
        return runs_on_spot(stay)

    def _offer(self, offer: str) -> Offer:
        return next(
            candidate_offer
            for candidate_offer in self.snapshot.offers
            if candidate_offer.id == offer
        )

    def _work(self, index: int) -> tuple[FloatArray, float, float, float]:
        """Return the work in seconds (S,), work lost at a reclaim, speed left, and the pause.

        Work lost is the most seconds of repeated work. Speed left is the share with one instance
        missing, with the rest of its gang.
        """
        job, all_candidates = self.job, self.every
        switching, sizes = job.switching, all_candidates.sizes
        instances = int(sizes.instances[index])
        work = self._seconds(index)
        left = instances - job.parallelism.gang_instances(int(sizes.devices_used[index]))
        if left >= job.instances.minimum:
            smaller = all_candidates.index(
                replace(all_candidates.allocation(index), instances=left)
            )
            share = (
                0.0
                if smaller is None
                else float(all_candidates.rate[smaller] / all_candidates.rate[index])
            )
            return work, 0.0, min(share, 1.0), switching.reclaim_seconds
        if not switching.checkpoint_seconds:
            return work, 0.0, 0.0, switching.restore_seconds
        per_hour = self._offer(all_candidates.offer_of(index).id).reclaims_per_hour * instances
        interval = switching.checkpoint_interval_seconds or float(
            checkpoint_interval_seconds(
                switching.checkpoint_seconds, np.array(per_hour / SECONDS_PER_HOUR)
            )
        )
        work = work * (1.0 + switching.checkpoint_seconds / interval)
        return work, interval, 0.0, switching.restore_seconds

    def _seconds(self, index: int) -> FloatArray:
        """Return the seconds of all the work at a size, for each run, (S,)."""
        seconds_of_draws = (self.job.remaining_examples or 0.0) * self.every.seconds_per_example[
            :, index
        ]
        repeated: FloatArray = np.repeat(seconds_of_draws, -(-_RUNS // len(seconds_of_draws)))
        return repeated

    def _zones(self, first: Offer, gang: int) -> tuple[Zone, ...]:
        """Return the zones that sell the same instances, in gangs, the cheapest first."""
        job, snapshot = self.job, self.snapshot
        supply = supply_of(snapshot)
        permitted = [supply.offers[index] for index in supply.permitted(job.instances)]
        same_kind = [
            offer
            for offer in permitted
            if offer.id in snapshot.lives
            and offer.purchase is Purchase.SPOT
            and (offer.instance_type, offer.device_kind)
            == (first.instance_type, first.device_kind)
        ]

        def price(offer: Offer) -> float:
            refill_hours = (
                2.0 * billed_start_seconds(job.switching, offer) * offer.reclaims_per_hour
            )
            return offer.usd_per_second * (1.0 + refill_hours / SECONDS_PER_HOUR)

        return tuple(
            Zone(
                lives_of_gang(snapshot.lives[offer.id], gang),
                billed_start_seconds(job.switching, offer),
                offer.usd_per_second,
            )
            for offer in sorted(same_kind, key=price)
        )

    def _is_firm(self, offer: Offer) -> bool:
        """Return whether an offer is never reclaimed and has no queue."""
        return offer.id not in self.snapshot.lives and offer.purchase is not Purchase.FLEX_START

    def _firm(self, index: int, then: Allocation, work: FloatArray) -> FirmFallback | None:
        """Return the allocation to use without spot capacity; None if there is none.

        It is `then` if that is firm, else the cheapest firm one that is as fast, else the fastest
        firm one.
        """
        all_candidates, job = self.every, self.job
        firm = [
            index_of_firm
            for index_of_firm in range(len(all_candidates))
            if self._is_firm(all_candidates.offer_of(index_of_firm))
        ]
        if not firm:
            return None
        price, rate = all_candidates.usd_per_second, all_candidates.rate
        as_fast = [
            index_of_firm
            for index_of_firm in firm
            if rate[index_of_firm] >= rate[index] * (1.0 - 1e-9)
        ]
        best = min(as_fast, key=price.item) if as_fast else max(firm, key=rate.item)
        stated = all_candidates.index(then)
        if stated in firm:
            best = stated
        start = billed_start_seconds(job.switching, all_candidates.offer_of(best))
        until, patience = np.inf, np.inf
        seconds = self._seconds(best)
        caution = quantile(seconds, job.objective.confidence) / float(np.median(seconds))
        if job.objective.deadline_seconds is not None:
            seconds_left = job.objective.deadline_seconds - self.snapshot.now_seconds
            until = seconds_left - margin_seconds(seconds_left, self.snapshot.replan_seconds)
        elif self.value_of_time > 0:
            value = self.value_of_time
            extra_usd_per_example = (price[best] + value) / rate[best] - (
                price[index] + value
            ) / rate[index]
            patience = max((job.remaining_examples or 0.0) * extra_usd_per_example, 0.0) / value
        return FirmFallback(
            start_seconds=start,
            usd_per_second=float(price[best]),
            seconds_of_work=seconds / work,
            until_seconds=until,
            caution=caution,
            patience_seconds=float(patience),
        )


def spot_field(
    job: JobSnapshot,
    snapshot: Snapshot,
    value_of_time: float,
    cache: PlanningCache | None = None,
) -> SpotForecaster:
    """Return the forecasts' candidates of a job that holds nothing.

    `value_of_time` is in $ per second. `cache` is that of the caller; None for a new one.
    """
    endless = tuple(
        replace(offer, reclaims_per_hour=0.0, fill_seconds=0.0) for offer in snapshot.offers
    )
    alone = replace(snapshot, offers=endless, unavailable=frozenset())
    all_candidates = candidates(
        replace(job, held=None, held_reclaims_per_hour=None), supply_of(alone, cache)
    )
    return SpotForecaster(job, snapshot, all_candidates, value_of_time)
