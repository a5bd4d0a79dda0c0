"""Expected waits in a cloud's queue for capacity, from observed waits.

Waits are exponential with an unknown rate. The rate has a gamma prior that counts as one order:
the posterior mean is the orders filled divided by the total time waited. Orders still in the
queue or cancelled add their waiting time, so the estimate grows with every wait in vain.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autoscaler.market.zones import HORIZON_SECONDS, PurchasePlace

# Prior wait if no wait was observed and the provider states none.
USUAL_SECONDS = 600.0
# Time constant by which observations lose weight: one of this age counts 1/e.
_MEMORY_SECONDS = 86400.0
# Weight of the prior, as a number of orders.
_PRIOR_ORDERS = 1.0
# Remaining wait of a queued order, as a share of a new order's wait. Clouds do not publish queue
# positions; without this share plans would switch between queues and lose their positions.
_REMAINING_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Wait:
    """Time of an order in a queue, until it got capacity, left the queue, or now."""

    from_seconds: float
    to_seconds: float
    was_filled: bool


def expected_waits(
    seen: Mapping[PurchasePlace, Sequence[Wait]],
    told_seconds: Mapping[PurchasePlace, float],
    now_seconds: float,
) -> dict[PurchasePlace, float]:
    """Return the expected wait of a new order in seconds, by place, at most `HORIZON_SECONDS`.

    The prior of a place is the estimate for its type in all zones, whose prior is the provider's
    figure in `told_seconds`.
    """
    waits_of_pool: defaultdict[object, list[Wait]] = defaultdict(list)
    for place in told_seconds:
        waits_of_pool[_pool(place)] += seen.get(place, ())
    expected = {}
    for place, provider_seconds in told_seconds.items():
        pool_seconds = _mean_seconds(waits_of_pool[_pool(place)], provider_seconds, now_seconds)
        place_seconds = _mean_seconds(seen.get(place, ()), pool_seconds, now_seconds)
        expected[place] = min(place_seconds, HORIZON_SECONDS)
    return expected


def left_seconds(usual_seconds: float) -> float:
    """Return the remaining wait of a queued order where a new order waits `usual_seconds`."""
    return _REMAINING_SHARE * usual_seconds


def _mean_seconds(waits: Iterable[Wait], prior_seconds: float, now_seconds: float) -> float:
    waited_seconds, filled = _PRIOR_ORDERS * prior_seconds, _PRIOR_ORDERS
    for wait in waits:
        weight = math.exp(-max(now_seconds - wait.to_seconds, 0.0) / _MEMORY_SECONDS)
        waited_seconds += weight * max(wait.to_seconds - wait.from_seconds, 0.0)
        filled += weight * wait.was_filled
    return waited_seconds / filled


def _pool(place: PurchasePlace) -> object:
    return place.provider, place.instance_type, place.purchase
