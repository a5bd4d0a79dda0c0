"""What is believed of each place where an instance type is sold, from what was seen there.

A place that refused or reclaimed is out: for how long yet is learnt from its outages, and the
longer it has been the longer it will be. One where nothing is known is taken to have capacity, and
hazards of reclaims are taken a little below what was seen where little was. So a place that was
bad is tried again (a bandit: upper confidence bounds on useful time; Auer et al. 2002).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from autoscaler.domain.lives import Lives
from autoscaler.domain.offer import Purchase
from autoscaler.market.hazards import Hazard, Life, learnt_hazard, usual_hazard

# Over so long hazards are averaged, and no longer is waited: what a choice of today is about.
HORIZON_SECONDS = 4 * 3600.0
# What was seen so long ago counts for a third.
_MEMORY_SECONDS = 7 * 86400.0
# A place that nobody asked for so long may have been back and gone again.
_UNSEEN_SECONDS = 7200.0
# Before any outage of a type was seen, and what nobody has told of reclaims once one was seen.
_USUAL_OUTAGE_SECONDS = 3600.0
_USUAL_RECLAIMS_PER_SECOND = 0.2 / 3600.0
_OPTIMISM = 0.25
_FILLED_SHARE = 0.25
_PRECISION_SECONDS = 1.0


class Place(NamedTuple):
    """Where and on what terms a type of instance is sold."""

    provider: str
    instance_type: str
    zone: str
    purchase: Purchase


@dataclass(frozen=True, slots=True)
class Ask:
    """A launch that was asked for, and whether the cloud had the capacity."""

    at_seconds: float
    was_filled: bool


@dataclass(frozen=True, slots=True)
class Holding:
    """An instance held from its launch to its end, or until now; by whom it was ended."""

    from_seconds: float
    to_seconds: float
    was_reclaimed: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """All that was seen at one place."""

    asks: tuple[Ask, ...] = ()
    holdings: tuple[Holding, ...] = ()


@dataclass(frozen=True, slots=True)
class Belief:
    """What to expect at one place.

    Attributes:
        reclaim: hazard of an instance held there.
        outage: hazard of the end of an outage.
        out_seconds: for how long it has been out; 0 where it is not known to be.
        fill_probability: how likely there is capacity now.
        lives: the same for forecasts, without any optimism; None where nothing is reclaimed.
    """

    reclaim: Hazard
    outage: Hazard
    out_seconds: float = 0.0
    fill_probability: float = 1.0
    lives: Lives | None = None

    def reclaims_per_hour(self, age_seconds: float = 0.0) -> float:
        """Of an instance of that age, over the next `HORIZON_SECONDS`."""
        return 3600.0 * self.reclaim.ends_per_second(age_seconds, HORIZON_SECONDS)

    def useful_share(self, boot_seconds: float, refusal_seconds: float) -> float:
        """Of the time that asking there takes, how much is useful: by this zones are compared.

        A refusal takes `refusal_seconds`, an instance that is had boots first.
        """
        lives = self.reclaim.mean_seconds(0.0, HORIZON_SECONDS)
        booting = self.reclaim.mean_seconds(0.0, boot_seconds)
        filled = self.fill_probability
        taken = filled * lives + (1.0 - filled) * refusal_seconds
        return filled * (lives - booting) / taken if taken > 0 else 0.0


def fill_seconds(places: Sequence[Belief]) -> float:
    """Within what time one of these has capacity in one of four cases, at most `HORIZON_SECONDS`.

    Not the mean: who waits in vain can buy elsewhere at any time, and that of a heavy tail is
    mostly of waits that nobody would sit out.
    """

    def is_filled(seconds: float) -> bool:
        out = 1.0
        for place in places:
            still_out = place.outage.survival(place.out_seconds, seconds)
            out *= (1.0 - place.fill_probability) * still_out
        return 1.0 - out >= _FILLED_SHARE

    too_short, long_enough = 0.0, HORIZON_SECONDS
    while long_enough - too_short > _PRECISION_SECONDS:
        middle = (too_short + long_enough) / 2.0
        too_short, long_enough = (
            (too_short, middle) if is_filled(middle) else (middle, long_enough)
        )
    return long_enough


def beliefs(
    seen: Mapping[Place, Seen], told_per_hour: Mapping[Place, float], now_seconds: float
) -> dict[Place, Belief]:
    """What is believed now of every place of which the provider tells reclaims an hour.

    What was seen of a type in all zones is the prior of each; the prior of that is what the
    provider tells. Where that is 0 and no reclaim was seen, there is none.
    """
    pools = {(place.provider, place.instance_type, place.purchase) for place in told_per_hour}
    found: dict[Place, Belief] = {}
    for pool in sorted(pools):
        places = [place for place in sorted(told_per_hour) if _pool(place) == pool]
        found |= _beliefs_of_type(
            {place: seen.get(place, Seen()) for place in places}, told_per_hour, now_seconds
        )
    return found


def _pool(place: Place) -> tuple[str, str, Purchase]:
    return place.provider, place.instance_type, place.purchase


def _beliefs_of_type(
    seen: Mapping[Place, Seen], told_per_hour: Mapping[Place, float], now_seconds: float
) -> dict[Place, Belief]:
    lives = {place: _lives(one.holdings, now_seconds) for place, one in seen.items()}
    asked = {place: _outages(one, now_seconds) for place, one in seen.items()}
    outage = learnt_hazard(
        (life for one in asked.values() for life in one.lives),
        usual_hazard(1.0 / _USUAL_OUTAGE_SECONDS),
    )
    found = {}
    for place in seen:
        told = _told(place, told_per_hour[place] / 3600.0, lives.values())
        common = learnt_hazard((life for one in lives.values() for life in one), told)
        reclaim = learnt_hazard(lives[place], common, _OPTIMISM)
        own_outage = learnt_hazard(asked[place].lives, outage)
        belief = _belief(reclaim, own_outage, asked[place], now_seconds)
        lives_there = _told_lives(learnt_hazard(lives[place], common), belief)
        found[place] = replace(belief, lives=lives_there)
    return found


def _told(place: Place, per_second: float, lives: Iterable[Sequence[Life]]) -> Hazard:
    """The prior of a type: what the provider tells, unless that is refuted."""
    was_seen = any(life.has_ended for one in lives for life in one)
    if per_second == 0 and was_seen and place.purchase is Purchase.SPOT:
        per_second = _USUAL_RECLAIMS_PER_SECOND
    return usual_hazard(per_second)


def _lives(holdings: Iterable[Holding], now_seconds: float) -> list[Life]:
    return [
        Life(
            one.to_seconds - one.from_seconds,
            one.was_reclaimed,
            _weight(one.to_seconds, now_seconds),
        )
        for one in holdings
    ]


@dataclass(frozen=True, slots=True)
class _Outages:
    """Those that are over, and since when there is one, if there is.

    `out_seconds` is the last time that it was known to be out.
    """

    lives: tuple[Life, ...]
    since_seconds: float | None
    out_seconds: float


def _outages(seen: Seen, now_seconds: float) -> _Outages:
    """From the first reclaim or refusal until between the last and a launch, or under way.

    Where nobody asked for long, it may have been over at any time since.
    """
    news = [(ask.at_seconds, ask.was_filled) for ask in seen.asks]
    news += [(one.to_seconds, False) for one in seen.holdings if one.was_reclaimed]
    lives: list[Life] = []
    since: float | None = None
    last = -math.inf
    for at_seconds, is_there in sorted(news):
        if since is not None and at_seconds - last > _UNSEEN_SECONDS:
            lives.append(Life(last - since, False, _weight(last, now_seconds)))
            since = None
        if not is_there:
            since = at_seconds if since is None else since
            last = at_seconds
        elif since is not None:
            lives.append(Life(at_seconds - since, True, _weight(at_seconds, now_seconds)))
            since = None
    if since is not None:
        lives.append(Life(last - since, False, _weight(last, now_seconds)))
    return _Outages(tuple(lives), since, last)


def _belief(reclaim: Hazard, outage: Hazard, known: _Outages, now_seconds: float) -> Belief:
    """How likely a place that was out is back, as if the two took turns without memory."""
    if known.since_seconds is None:
        return Belief(reclaim, outage)
    out_seconds = outage.mean_seconds(0.0, _MEMORY_SECONDS)
    there_seconds = reclaim.mean_seconds(0.0, _MEMORY_SECONDS)
    usually_there = _usually_there(reclaim, outage)
    turns = (now_seconds - known.out_seconds) * (1.0 / out_seconds + 1.0 / there_seconds)
    there = usually_there * -math.expm1(-turns)
    return Belief(reclaim, outage, now_seconds - known.since_seconds, there)


def _told_lives(reclaim: Hazard, belief: Belief) -> Lives | None:
    if not any(reclaim.per_second):
        return None
    return Lives(
        reclaim=reclaim.ending,
        outage=belief.outage.ending,
        there=belief.fill_probability,
        out_seconds=belief.out_seconds,
        usually_there=_usually_there(reclaim, belief.outage),
    )


def _usually_there(reclaim: Hazard, outage: Hazard) -> float:
    out_seconds = outage.mean_seconds(0.0, _MEMORY_SECONDS)
    there_seconds = reclaim.mean_seconds(0.0, _MEMORY_SECONDS)
    return there_seconds / (out_seconds + there_seconds)


def _weight(at_seconds: float, now_seconds: float) -> float:
    return math.exp(-max(now_seconds - at_seconds, 0.0) / _MEMORY_SECONDS)
