"""Value of time of an owner's objective, and the prices that a job may pay."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from autoscaler.domain.job import InstanceBounds, ParallelismSpec
from autoscaler.domain.objective import AfterDeadline, Objective, Preference
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.supply.supply import SECONDS_PER_HOUR, MarketTerms, Supply

# Highest value of time, as a multiple of the price of the job's largest allocation.
MOST_TIMES_DEAREST = 10.0
# Stand-in price where all permitted offers are paid for already, $/h. It sets the value of time.
FREE_USD_PER_HOUR = 1.0
# Where some offers are paid for already, lowest value of time as a share of the cheapest price.
# It makes a job prefer the faster of two free allocations.
_LEAST_WHERE_FREE = 1e-6
# Lowest bid of a job as a share of its cheapest allocation's price, times 1 plus the full hours it
# waited. With a lowest bid of 0 the cheapest jobs would never start.
LEAST_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class PriceRange:
    """Prices of a job's cheapest and largest allocation, in $ per second.

    All permitted offers count, also while limits or clouds refuse them, so that the value of time
    stays stable. Offers that are paid for already do not count, except in `has_free`.
    """

    cheapest: float
    dearest: float
    most_times: float = MOST_TIMES_DEAREST
    has_free: bool = False

    @property
    def most(self) -> float:
        """Highest value of time, $ per second."""
        return self.most_times * self.dearest

    def least(self, waited_seconds: float) -> float:
        """Return the lowest bid of a job that waited for its start, $ per second.

        The bid rises with each full hour only, so that seconds of waiting do not decide between
        jobs.
        """
        return LEAST_SHARE * self.cheapest * (1.0 + waited_seconds // SECONDS_PER_HOUR)


def price_range(
    job: JobSnapshot, supply: Supply, most_times: float = MOST_TIMES_DEAREST
) -> PriceRange:
    """Return the prices that the job may pay; 0 if no offer is permitted."""
    bounds = job.instances
    usable = supply.permitted(bounds)
    kinds = frozenset(job.models)
    prices = _price_range(supply.terms, usable, bounds, job.parallelism, kinds)
    return replace(prices, most_times=most_times)


@lru_cache(maxsize=256)
def _price_range(
    terms: MarketTerms,
    permitted: tuple[int, ...],
    bounds: InstanceBounds,
    parallelism: ParallelismSpec,
    kinds: frozenset[str],
) -> PriceRange:
    """Return the prices of a job that buys whole gangs of instances."""
    permitted_offers = [terms.offers[index] for index in permitted]
    usable = [
        (offer, least)
        for offer in permitted_offers
        if offer.device_kind in kinds
        and (least := parallelism.least_instances(bounds, offer)) is not None
    ]
    usual_usd_per_second = FREE_USD_PER_HOUR / SECONDS_PER_HOUR if usable else 0.0
    paid = [(offer, least) for offer, least in usable if not offer.is_paid]
    cheapest = (offer.usd_per_second * least for offer, least in paid)
    dearest = (
        offer.usd_per_second * max(least, parallelism.most_instances(bounds, offer))
        for offer, least in paid
    )
    return PriceRange(
        cheapest=min(cheapest, default=usual_usd_per_second * max(bounds.minimum, 1)),
        dearest=max(dearest, default=usual_usd_per_second * max(bounds.maximum, 1)),
        has_free=len(paid) < len(usable),
    )


def value_of_time(objective: Objective, prices: PriceRange) -> float:
    """Return the value of time of the preference alone, $ per second.

    Deadline and budget are ignored.
    """
    lowest_value = _LEAST_WHERE_FREE * prices.cheapest if prices.has_free else 0.0
    return max(_preferred(objective, prices), lowest_value)


def value_of_time_of(job: JobSnapshot, prices: PriceRange) -> float:
    """Return the value of time of a job's preference, $ per second.

    Where each dollar counts more than one because of a shared budget, time is worth as much less.
    """
    return value_of_time(job.objective, prices) / job.dollar_weight


def _preferred(objective: Objective, prices: PriceRange) -> float:
    match objective.preference:
        case Preference.BALANCED:
            return prices.cheapest
        case Preference.CHEAPEST:
            return 0.0
        case Preference.FASTEST:
            return prices.most
        case Preference.VALUE_OF_TIME:
            return (objective.value_of_time_usd_per_hour or 0.0) / SECONDS_PER_HOUR


def value_of_time_when_late(objective: Objective, prices: PriceRange) -> float:
    """Return the value of time once the deadline is out of reach, $ per second."""
    if objective.after_deadline is AfterDeadline.FASTEST:
        return prices.most
    return prices.cheapest
