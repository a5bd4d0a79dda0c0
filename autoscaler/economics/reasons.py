"""Why a job gets what it gets, in one line."""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Limit, LimitUnit, Offer, Purchase
from autoscaler.domain.plan import Action
from autoscaler.economics.supply import Supply
from autoscaler.economics.wishes import Why, Wish
from autoscaler.economics.change import Change, change_between
from autoscaler.economics.wording import (
    duration,
    money,
    number,
    per_hour,
    percent,
    signed,
    signed_per_hour,
)

_NOUNS = {
    LimitUnit.DEVICES: "a device",
    LimitUnit.INSTANCES: "an instance",
    LimitUnit.USD_PER_HOUR: "$1/h",
}


@dataclass(frozen=True, slots=True)
class Contest:
    """Why a limit gave a job less than it wished.

    `used` is what the plan uses of the limit. `bidder` is the job that was given more of it, at
    `bid_usd_per_second` for a unit; None where nobody was. `worth_usd_per_second` is what a unit
    is worth to the job itself.
    """

    limit: Limit
    used: float
    bidder: str | None
    bid_usd_per_second: float
    worth_usd_per_second: float
