"""How long an order waits in a cloud's queue for its capacity, from the waits that were seen.

Waits are taken as exponential, at a rate of which nothing is known but what was seen: so many
orders got capacity in so much time waited by all (a gamma prior that counts for one). One that is
under way, or that was given up, has waited, too: the longer it has been in vain, the longer it is
believed to take yet.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autoscaler.market.zones import HORIZON_SECONDS, Place

# What is believed before any wait was seen, and nobody has told.
USUAL_SECONDS = 600.0
# Queues grow and shrink within hours: what was seen so long ago counts for a third.
_MEMORY_SECONDS = 86400.0
# The prior counts for so many orders.
_PRIOR_ORDERS = 1.0
# An order has its place in the queue, which a new one has not: clouds do not tell what that is
# worth. Without it plans would go from queue to queue, and have a place in none.
_AHEAD_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Wait:
    """An order's time in a queue, until it got capacity, left or is now."""

    from_seconds: float
    to_seconds: float
    was_filled: bool


def usual_waits(
    seen: Mapping[Place, Sequence[Wait]], told_seconds: Mapping[Place, float], now_seconds: float
) -> dict[Place, float]:
    """For how many seconds a new order waits on average, at most `HORIZON_SECONDS`.

    What was seen of a type in all zones is the prior of each; that of a type is what its provider
    tells.
    """
    of_type: defaultdict[object, list[Wait]] = defaultdict(list)
    for place in told_seconds:
        of_type[_type(place)] += seen.get(place, ())
    found = {}
    for place, told in told_seconds.items():
        common = _mean_seconds(of_type[_type(place)], told, now_seconds)
        own = _mean_seconds(seen.get(place, ()), common, now_seconds)
        found[place] = min(own, HORIZON_SECONDS)
    return found


def left_seconds(usual_seconds: float) -> float:
    """What an order has yet to wait where a new one would wait for `usual_seconds`."""
    return _AHEAD_SHARE * usual_seconds


def _mean_seconds(waits: Iterable[Wait], prior_seconds: float, now_seconds: float) -> float:
    waited, filled = _PRIOR_ORDERS * prior_seconds, _PRIOR_ORDERS
    for wait in waits:
        weight = math.exp(-max(now_seconds - wait.to_seconds, 0.0) / _MEMORY_SECONDS)
        waited += weight * max(wait.to_seconds - wait.from_seconds, 0.0)
        filled += weight * wait.was_filled
    return waited / filled


def _type(place: Place) -> object:
    return place.provider, place.instance_type, place.purchase
