"""What the owner says, and the value of time it means."""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.objective import AfterDeadline, Objective, Preference
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.supply import SECONDS_PER_HOUR, Supply

# `fastest`, and the most that a late job may bid: this times the price of its largest allocation.
MOST_TIMES_DEAREST = 10.0
# A job that waits bids at least this share of the price of the cheapest offer that can run it,
# and as much more with each hour: at 0 the cheapest jobs would wait for ever.
LEAST_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class PriceRange:
    """What a job may pay: its cheapest and its largest allocation, in $ per second.

    Of all that its bounds permit, also where the limits or the cloud refuse it now, so that the
    value of time does not move with them.
    """

    cheapest: float
    dearest: float
    most_times: float = MOST_TIMES_DEAREST

    @property
    def most(self) -> float:
        """The highest value of time, $ per second."""
        return self.most_times * self.dearest

    def least(self, waited_seconds: float) -> float:
        """The lowest bid of a job that has waited so long, $ per second."""
        return LEAST_SHARE * self.cheapest * (1.0 + waited_seconds / SECONDS_PER_HOUR)


def price_range(
    job: JobSnapshot, supply: Supply, most_times: float = MOST_TIMES_DEAREST
) -> PriceRange:
    """What the job may pay; nothing where no offer is permitted."""
    prices = [
        supply.offers[index].usd_per_second
        for index in supply.permitted(job.instances)
        if supply.offers[index].device_kind in job.models
    ]
    bounds = job.instances
    return PriceRange(
        cheapest=min(prices, default=0.0) * max(bounds.minimum, 1),
        dearest=max(prices, default=0.0) * max(bounds.maximum, 1),
        most_times=most_times,
    )


def value_of_time(objective: Objective, prices: PriceRange) -> float:
    """$ per second of waiting by the preference alone, deadline and budget left aside."""
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
