"""What the owner says, and the value of time it means."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import AfterDeadline, Objective, Preference
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.supply import SECONDS_PER_HOUR, Supply, Terms

# `fastest`, and the most that a late job may bid: this times the price of its largest allocation.
MOST_TIMES_DEAREST = 10.0
# Waiting is worth so much, $ an hour, where all that a job may use is paid for already.
FREE_USD_PER_HOUR = 1.0
# Where some of it is, waiting is worth at least this share of the cheapest price: of what costs
# the same, which is nothing, the faster is the better.
_LEAST_WHERE_FREE = 1e-6
# A job bids at least this share of the price of the cheapest offer that can run it, and as much
# more with each hour that it waited for its start: at 0 the cheapest jobs would wait for ever.
LEAST_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class PriceRange:
    """What a job may pay: its cheapest and its largest allocation, in $ per second.

    Of all that its bounds permit, also where the limits or the cloud refuse it now, so that the
    value of time does not move with them. What is paid for already does not count, but for
    `has_free`: that there is some.
    """

    cheapest: float
    dearest: float
    most_times: float = MOST_TIMES_DEAREST
    has_free: bool = False

    @property
    def most(self) -> float:
        """The highest value of time, $ per second."""
        return self.most_times * self.dearest

    def least(self, waited_seconds: float) -> float:
        """Return the lowest bid of a job that waited so long before its start, $ per second.

        It rises with each whole hour: jobs that wait are not to outbid others by seconds.
        """
        return LEAST_SHARE * self.cheapest * (1.0 + waited_seconds // SECONDS_PER_HOUR)


def price_range(
    job: JobSnapshot, supply: Supply, most_times: float = MOST_TIMES_DEAREST
) -> PriceRange:
    """What the job may pay; nothing where no offer is permitted."""
    bounds = job.instances
    return _price_range(
        supply.terms, supply.permitted(bounds), bounds, frozenset(job.models), most_times
    )


@lru_cache(maxsize=256)
def _price_range(
    terms: Terms,
    permitted: tuple[int, ...],
    bounds: InstanceBounds,
    kinds: frozenset[str],
    most_times: float,
) -> PriceRange:
    usable = [terms.offers[i] for i in permitted if terms.offers[i].device_kind in kinds]
    nothing = FREE_USD_PER_HOUR / SECONDS_PER_HOUR if usable else 0.0
    paid = [offer for offer in usable if not offer.is_paid]
    cheapest = min((offer.usd_per_second for offer in paid), default=nothing)
    largest = (offer.usd_per_second * max(bounds.most_of(offer), 1) for offer in paid)
    return PriceRange(
        cheapest=cheapest * max(bounds.minimum, 1),
        dearest=max(largest, default=nothing * max(bounds.maximum, 1)),
        most_times=most_times,
        has_free=len(paid) < len(usable),
    )


def value_of_time(objective: Objective, prices: PriceRange) -> float:
    """$ per second of waiting by the preference alone, deadline and budget left aside."""
    least = _LEAST_WHERE_FREE * prices.cheapest if prices.has_free else 0.0
    return max(_preferred(objective, prices), least)


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
    """The same once the deadline is out of reach and the job is to go on."""
    if objective.after_deadline is AfterDeadline.FASTEST:
        return prices.most
    return prices.cheapest
