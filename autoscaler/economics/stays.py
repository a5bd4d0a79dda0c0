"""A whole job on spot, as it will be planned again and again: what its forecast is drawn from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Offer, Purchase
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.aims import margin_seconds
from autoscaler.economics.candidates import Candidates, candidates
from autoscaler.economics.reclaims import Firm, Runs, Stay, Zone, runs_on_spot
from autoscaler.economics.spot import checkpoint_interval_seconds
from autoscaler.economics.stages import quantile
from autoscaler.economics.starts import billed_start_seconds
from autoscaler.economics.supply import SECONDS_PER_HOUR, supply_of
from autoscaler.goodput.throughput import FloatArray

# Runs that are drawn in all, as near as the number of draws of the model allows.
_RUNS = 512


@dataclass(frozen=True, slots=True)
class SpotField:
    """What a job might hold of a snapshot if nothing were ever reclaimed or out."""

    job: JobSnapshot
    snapshot: Snapshot
    every: Candidates
    value_of_time: float

    def runs(self, first: Allocation, then: Allocation | None) -> Runs | None:
        """Draws of the whole job on `first`, and on `then` or its like where that is due.

        Without a `then` it stays on spot whatever happens. None where `first` is not reclaimed,
        or nothing is known of how long it lives.
        """
        index = self.every.index(first)
        offer = self._offer(first.offer)
        if index is None or offer.id not in self.snapshot.lives:
            return None
        work, again, share_left, pause = self._work(index)
        firm = None if then is None else self._firm(index, then, work)
        stay = Stay(work, self._zones(offer), first.instances, share_left, pause, again, firm)
        return runs_on_spot(stay)

    def _offer(self, offer: str) -> Offer:
        return next(each for each in self.snapshot.offers if each.id == offer)

    def _work(self, index: int) -> tuple[FloatArray, float, float, float]:
        """Seconds of all the work, of work lost at a reclaim, what goes on then, and the pause."""
        job, every = self.job, self.every
        costs, sizes = job.switching, every.sizes
        instances = int(sizes.instances[index])
        work = self._seconds(index)
        if instances > job.instances.minimum:
            less = every.index(replace(every.allocation(index), instances=instances - 1))
            share = 0.0 if less is None else float(every.rate[less] / every.rate[index])
            return work, 0.0, min(share, 1.0), costs.pause_seconds
        if not costs.checkpoint_seconds:
            return work, 0.0, 0.0, costs.restore_seconds
        per_hour = self._offer(every.offer_of(index).id).reclaims_per_hour * instances
        interval = costs.checkpoint_interval_seconds or float(
            checkpoint_interval_seconds(
                costs.checkpoint_seconds, np.array(per_hour / SECONDS_PER_HOUR)
            )
        )
        work = work * (1.0 + costs.checkpoint_seconds / interval)
        return work, interval, 0.0, costs.restore_seconds

    def _seconds(self, index: int) -> FloatArray:
        """What all the work takes at a size, of each run, (S,)."""
        of_draws = (self.job.remaining_examples or 0.0) * self.every.seconds_per_example[:, index]
        repeated: FloatArray = np.repeat(of_draws, -(-_RUNS // len(of_draws)))
        return repeated

    def _zones(self, first: Offer) -> tuple[Zone, ...]:
        """Where the job might be instead, the best first, as it is asked for again and again."""
        job, snapshot = self.job, self.snapshot
        supply = supply_of(snapshot)
        permitted = [supply.offers[index] for index in supply.permitted(job.instances)]
        alike = [
            offer
            for offer in permitted
            if offer.id in snapshot.lives
            and offer.purchase is Purchase.SPOT
            and (offer.instance_type, offer.device_kind)
            == (first.instance_type, first.device_kind)
        ]

        def price(offer: Offer) -> float:
            lost = 2.0 * billed_start_seconds(job.switching, offer) * offer.reclaims_per_hour
            return offer.usd_per_second * (1.0 + lost / SECONDS_PER_HOUR)

        return tuple(
            Zone(
                snapshot.lives[offer.id],
                billed_start_seconds(job.switching, offer),
                offer.usd_per_second,
            )
            for offer in sorted(alike, key=price)
        )

    def _is_firm(self, offer: Offer) -> bool:
        """Never reclaimed, and there without a wait in a queue."""
        return offer.id not in self.snapshot.lives and offer.purchase is not Purchase.FLEX_START

    def _firm(self, index: int, then: Allocation, work: FloatArray) -> Firm | None:
        """What the job goes to where spot is out: `then`, or what is most like what it holds."""
        every, job = self.every, self.job
        firm = [i for i in range(len(every)) if self._is_firm(every.offer_of(i))]
        if not firm:
            return None
        price, rate = every.usd_per_second, every.rate
        as_fast = [i for i in firm if rate[i] >= rate[index] * (1.0 - 1e-9)]
        best = min(as_fast, key=price.item) if as_fast else max(firm, key=rate.item)
        stated = every.index(then)
        if stated in firm:
            best = stated
        start = billed_start_seconds(job.switching, every.offer_of(best))
        until, patience = np.inf, np.inf
        seconds = self._seconds(best)
        caution = quantile(seconds, job.objective.confidence) / float(np.median(seconds))
        if job.objective.deadline_seconds is not None:
            left = job.objective.deadline_seconds - self.snapshot.now_seconds
            until = left - margin_seconds(left, self.snapshot.replan_seconds)
        elif self.value_of_time > 0:
            value = self.value_of_time
            dearer = (price[best] + value) / rate[best] - (price[index] + value) / rate[index]
            patience = max((job.remaining_examples or 0.0) * dearer, 0.0) / value
        return Firm(
            start_seconds=start,
            usd_per_second=float(price[best]),
            seconds_of_work=seconds / work,
            until_seconds=until,
            caution=caution,
            patience_seconds=float(patience),
        )


def spot_field(job: JobSnapshot, snapshot: Snapshot, value_of_time: float) -> SpotField:
    """Of a job that holds nothing; `value_of_time` in $ per second."""
    endless = tuple(
        replace(offer, reclaims_per_hour=0.0, fill_seconds=0.0) for offer in snapshot.offers
    )
    alone = replace(snapshot, offers=endless, unavailable=frozenset())
    every = candidates(replace(job, held=None, held_reclaims_per_hour=None), supply_of(alone))
    return SpotField(job, snapshot, every, value_of_time)
