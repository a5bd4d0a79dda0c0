"""Estimates of capacity and reclaims at each place that sells an instance type.

A place that refused or reclaimed is in an outage. Durations of outages are learnt, and an outage
is expected to last longer the longer it has lasted. A place without observations is assumed to
have capacity. Reclaim hazards are lowered where observations are few. So places with a bad
record are tried again (a bandit: upper confidence bounds on useful time; Auer et al. 2002).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from autoscaler.domain.lives import LifetimeEstimate
from autoscaler.domain.offer import Purchase
from autoscaler.market.hazards import Hazard, ObservedLifetime, posterior_hazard, prior_hazard

# Horizon of an allocation: hazards are averaged over it, and no wait is longer.
HORIZON_SECONDS = 4 * 3600.0
# Time constant by which observations lose weight: one of this age counts 1/e.
_MEMORY_SECONDS = 7 * 86400.0
# An outage counts as censored after this time without a request.
_UNSEEN_SECONDS = 7200.0
# Prior outage; prior reclaims of spot whose provider states none, once one was observed.
_USUAL_OUTAGE_SECONDS = 3600.0
_USUAL_RECLAIMS_PER_SECOND = 0.2 / 3600.0
_OPTIMISM = 0.25
_FILLED_SHARE = 0.25
_PRECISION_SECONDS = 1.0


class PurchasePlace(NamedTuple):
    """Provider, zone and purchase option in which an instance type is sold."""

    provider: str
    instance_type: str
    zone: str
    purchase: Purchase


@dataclass(frozen=True, slots=True)
class LaunchAttempt:
    """A launch request, and whether the cloud had the capacity."""

    at_seconds: float
    was_filled: bool


@dataclass(frozen=True, slots=True)
class HoldingPeriod:
    """An instance held until its end or until now, and whether the cloud reclaimed it."""

    from_seconds: float
    to_seconds: float
    was_reclaimed: bool


@dataclass(frozen=True, slots=True)
class PlaceObservations:
    """All observations at one place."""

    asks: tuple[LaunchAttempt, ...] = ()
    holdings: tuple[HoldingPeriod, ...] = ()


@dataclass(frozen=True, slots=True)
class PlaceEstimate:
    """Estimates for one place.

    Attributes:
        reclaim: the hazard of reclaims of an instance.
        outage: the hazard of the end of an outage.
        out_seconds: the duration of the current outage; 0 if no outage is known.
        fill_probability: the probability of capacity now.
        lives: the same without optimism, for forecasts; None where nothing is reclaimed.
    """

    reclaim: Hazard
    outage: Hazard
    out_seconds: float = 0.0
    fill_probability: float = 1.0
    lives: LifetimeEstimate | None = None

    def reclaims_per_hour(self, age_seconds: float = 0.0) -> float:
        """Return the expected reclaims per hour, over the next `HORIZON_SECONDS`."""
        return 3600.0 * self.reclaim.ends_per_second(age_seconds, HORIZON_SECONDS)

    def useful_share(self, boot_seconds: float, refusal_seconds: float) -> float:
        """Return the useful share of the time that a launch attempt takes, to compare zones.

        A refused launch takes `refusal_seconds`; a launched instance boots for `boot_seconds`
        first.
        """
        life_seconds = self.reclaim.mean_seconds(0.0, HORIZON_SECONDS)
        booting_seconds = self.reclaim.mean_seconds(0.0, boot_seconds)
        fill_probability = self.fill_probability
        total_seconds = (
            fill_probability * life_seconds + (1.0 - fill_probability) * refusal_seconds
        )
        return (
            fill_probability * (life_seconds - booting_seconds) / total_seconds
            if total_seconds > 0
            else 0.0
        )


def fill_seconds(places: Sequence[PlaceEstimate]) -> float:
    """Return the first quartile of the wait for capacity at any of the places, in seconds.

    At most `HORIZON_SECONDS`. The mean would be dominated by waits that no job would complete,
    because a waiting job can buy elsewhere at any time.
    """

    def is_filled(seconds: float) -> bool:
        all_out = 1.0
        for place in places:
            still_out = place.outage.survival(place.out_seconds, seconds)
            all_out *= (1.0 - place.fill_probability) * still_out
        return 1.0 - all_out >= _FILLED_SHARE

    too_short, long_enough = 0.0, HORIZON_SECONDS
    while long_enough - too_short > _PRECISION_SECONDS:
        middle = (too_short + long_enough) / 2.0
        too_short, long_enough = (
            (too_short, middle) if is_filled(middle) else (middle, long_enough)
        )
    return long_enough


def beliefs(
    seen: Mapping[PurchasePlace, PlaceObservations],
    told_per_hour: Mapping[PurchasePlace, float],
    now_seconds: float,
) -> dict[PurchasePlace, PlaceEstimate]:
    """Return the current estimates of every place in `told_per_hour`.

    Args:
        seen: the observations by place.
        told_per_hour: the reclaims per hour that providers state, by place.
        now_seconds: the time since the Unix epoch.

    The prior of a place is the estimate for its type in all zones, whose prior is the provider's
    figure. If that is 0 and no reclaim was observed, no reclaims are expected.
    """
    pools = {(place.provider, place.instance_type, place.purchase) for place in told_per_hour}
    by_place: dict[PurchasePlace, PlaceEstimate] = {}
    for pool in sorted(pools):
        places = [place for place in sorted(told_per_hour) if _pool(place) == pool]
        by_place |= _beliefs_of_type(
            {place: seen.get(place, PlaceObservations()) for place in places},
            told_per_hour,
            now_seconds,
        )
    return by_place


def _pool(place: PurchasePlace) -> tuple[str, str, Purchase]:
    return place.provider, place.instance_type, place.purchase


def _beliefs_of_type(
    observations: Mapping[PurchasePlace, PlaceObservations],
    told_per_hour: Mapping[PurchasePlace, float],
    now_seconds: float,
) -> dict[PurchasePlace, PlaceEstimate]:
    lives = {
        place: _lives_of(observed.holdings, now_seconds)
        for place, observed in observations.items()
    }
    outages = {
        place: _outages_of(observed, now_seconds) for place, observed in observations.items()
    }
    pool_outage = posterior_hazard(
        (life for observed in outages.values() for life in observed.lives),
        prior_hazard(1.0 / _USUAL_OUTAGE_SECONDS),
    )
    by_place = {}
    for place in observations:
        provider_prior = _provider_prior(place, told_per_hour[place] / 3600.0, lives.values())
        pool_hazard = posterior_hazard(
            (life for observed in lives.values() for life in observed), provider_prior
        )
        reclaim = posterior_hazard(lives[place], pool_hazard, _OPTIMISM)
        place_outage = posterior_hazard(outages[place].lives, pool_outage)
        belief = _belief(reclaim, place_outage, outages[place], now_seconds)
        lives_there = _forecast_lives(posterior_hazard(lives[place], pool_hazard), belief)
        by_place[place] = replace(belief, lives=lives_there)
    return by_place


def _provider_prior(
    place: PurchasePlace, per_second: float, lives: Iterable[Sequence[ObservedLifetime]]
) -> Hazard:
    """Return the prior hazard of a type: the provider's figure.

    A stated 0 for spot is replaced by a usual hazard once a reclaim was observed.
    """
    was_seen = any(life.has_ended for lives_of_place in lives for life in lives_of_place)
    if per_second == 0 and was_seen and place.purchase is Purchase.SPOT:
        per_second = _USUAL_RECLAIMS_PER_SECOND
    return prior_hazard(per_second)


def _lives_of(holdings: Iterable[HoldingPeriod], now_seconds: float) -> list[ObservedLifetime]:
    return [
        ObservedLifetime(
            holding.to_seconds - holding.from_seconds,
            holding.was_reclaimed,
            _weight(holding.to_seconds, now_seconds),
        )
        for holding in holdings
    ]


@dataclass(frozen=True, slots=True)
class _Outages:
    """Past outages, and the start of the current one; None without a current outage.

    `out_seconds` is the time of the last refusal or reclaim.
    """

    lives: tuple[ObservedLifetime, ...]
    since_seconds: float | None
    out_seconds: float


def _outages_of(observations: PlaceObservations, now_seconds: float) -> _Outages:
    """Return the outages at one place.

    An outage lasts from the first refusal or reclaim until the next successful launch. After
    `_UNSEEN_SECONDS` without a request its end is unknown, and it counts as censored.
    """
    events = [(ask.at_seconds, ask.was_filled) for ask in observations.asks]
    events += [
        (holding.to_seconds, False) for holding in observations.holdings if holding.was_reclaimed
    ]
    lives: list[ObservedLifetime] = []
    out_since: float | None = None
    last_out = -math.inf
    for at_seconds, has_capacity in sorted(events):
        if out_since is not None and at_seconds - last_out > _UNSEEN_SECONDS:
            lives.append(
                ObservedLifetime(last_out - out_since, False, _weight(last_out, now_seconds))
            )
            out_since = None
        if not has_capacity:
            out_since = at_seconds if out_since is None else out_since
            last_out = at_seconds
        elif out_since is not None:
            lives.append(
                ObservedLifetime(at_seconds - out_since, True, _weight(at_seconds, now_seconds))
            )
            out_since = None
    if out_since is not None:
        lives.append(ObservedLifetime(last_out - out_since, False, _weight(last_out, now_seconds)))
    return _Outages(tuple(lives), out_since, last_out)


def _belief(
    reclaim: Hazard, outage: Hazard, outages: _Outages, now_seconds: float
) -> PlaceEstimate:
    """Return the estimates of a place, with the probability that a current outage has ended.

    The probability is that of a two-state Markov process of outages and availability.
    """
    if outages.since_seconds is None:
        return PlaceEstimate(reclaim, outage)
    out_seconds = outage.mean_seconds(0.0, _MEMORY_SECONDS)
    available_seconds = reclaim.mean_seconds(0.0, _MEMORY_SECONDS)
    long_run_share = _share_with_capacity(reclaim, outage)
    exponent = (now_seconds - outages.out_seconds) * (1.0 / out_seconds + 1.0 / available_seconds)
    fill_probability = long_run_share * -math.expm1(-exponent)
    return PlaceEstimate(reclaim, outage, now_seconds - outages.since_seconds, fill_probability)


def _forecast_lives(reclaim: Hazard, belief: PlaceEstimate) -> LifetimeEstimate | None:
    if not any(reclaim.per_second):
        return None
    return LifetimeEstimate(
        reclaim=reclaim.ending,
        outage=belief.outage.ending,
        there=belief.fill_probability,
        out_seconds=belief.out_seconds,
        usually_there=_share_with_capacity(reclaim, belief.outage),
    )


def _share_with_capacity(reclaim: Hazard, outage: Hazard) -> float:
    out_seconds = outage.mean_seconds(0.0, _MEMORY_SECONDS)
    available_seconds = reclaim.mean_seconds(0.0, _MEMORY_SECONDS)
    return available_seconds / (out_seconds + available_seconds)


def _weight(at_seconds: float, now_seconds: float) -> float:
    return math.exp(-max(now_seconds - at_seconds, 0.0) / _MEMORY_SECONDS)
