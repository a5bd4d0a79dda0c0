"""How long an order waits in a cloud's queue for its capacity, from the waits that were seen.

Like an outage, a wait may become the less likely to end the longer it has lasted: its hazard is
learnt by classes of its age. One that is under way, or that nobody wanted to its end, says that it
takes longer than that.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscaler.market.hazards import AGES_SECONDS, Hazard, Life, learnt_hazard
from autoscaler.market.zones import HORIZON_SECONDS, MEMORY_SECONDS, Place

# What is believed before any wait was seen, and nobody has told.
USUAL_SECONDS = 600.0
# An order that has waited longer than is usual is believed to have such a part of that before it.
_LEAST_SHARE = 0.25


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
    tells, taken as if no wait became longer with age.
    """
    lives = {place: _lives(seen.get(place, ()), now_seconds) for place in told_seconds}
    of_type: defaultdict[object, list[Life]] = defaultdict(list)
    for place, own in lives.items():
        of_type[_type(place)] += own
    found = {}
    for place, told in told_seconds.items():
        prior = Hazard((1.0 / told,) * len(AGES_SECONDS))
        common = learnt_hazard(of_type[_type(place)], prior)
        found[place] = learnt_hazard(lives[place], common).mean_seconds(0.0, HORIZON_SECONDS)
    return found


def left_seconds(usual_seconds: float, waited_seconds: float) -> float:
    """What an order that has waited has yet to wait: less than a new one, which is behind it."""
    return max(usual_seconds - max(waited_seconds, 0.0), _LEAST_SHARE * usual_seconds)


def _type(place: Place) -> object:
    return place.provider, place.instance_type, place.purchase


def _lives(waits: Sequence[Wait], now_seconds: float) -> list[Life]:
    return [
        Life(
            max(wait.to_seconds - wait.from_seconds, 0.0),
            wait.was_filled,
            math.exp(-max(now_seconds - wait.to_seconds, 0.0) / MEMORY_SECONDS),
        )
        for wait in waits
    ]
