"""Draws of whole runs on spot instances: finish and spend of a job with reclaims.

In each draw, lifetimes and outages follow hazards by age, and each hazard is drawn from its
estimate. After a reclaim the job takes the first zone in its order with capacity, or waits for
one. It moves to firm instances, which are never reclaimed, when its deadline or the cost of
waiting requires it. The random numbers are the same every time, so that forecasts are comparable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from autoscaler.domain.lives import HazardByAge, LifetimeEstimate
from autoscaler.economics.supply.supply import IntArray
from autoscaler.goodput.throughput import FloatArray

_SEED = 20220407
# Most reclaims that are simulated in a run; the rest of the run has none.
_MOST_STINTS = 200
# Longest lifetime or outage.
_LONGEST_SECONDS = 1e9
# Cumulative hazard at which a quarter of waits have ended, as in `market.zones.fill_seconds`.
_QUARTER = float(-np.log(0.75))
_LONGEST_WAIT_SECONDS = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class Zone:
    """Zone that sells the job's instances; `start_seconds` is from launch to training."""

    lives: LifetimeEstimate
    start_seconds: float
    usd_per_second: float


@dataclass(frozen=True, slots=True, eq=False)
class FirmFallback:
    """Allocation without reclaims for times without spot capacity.

    Attributes:
        start_seconds: from launch to training.
        usd_per_second: price.
        seconds_of_work: time for the work that spot does in one second, by draw, (S,).
        until_seconds: deadline from now. The job moves here before a usual wait for spot would
            miss the deadline.
        caution: largest factor on the remaining time in that judgement.
        patience_seconds: longest wait for spot before moving here.
    """

    start_seconds: float
    usd_per_second: float
    seconds_of_work: FloatArray
    until_seconds: float = np.inf
    caution: float = 1.0
    patience_seconds: float = np.inf


@dataclass(frozen=True, slots=True, eq=False)
class SpotJob:
    """Job on a number of spot instances.

    Attributes:
        work_seconds: time of all the work without reclaims, by draw, (S,).
        zones: zones in the order in which they are tried.
        instances: number of instances.
        share_left: share of the speed left while one gang is missing.
        pause_seconds: pause of training after a reclaim.
        again_seconds: most work lost at a reclaim, in seconds.
        firm: allocation without reclaims; None if there is none.
        lost_together: instances that a reclaim takes from the job: a gang.
    """

    work_seconds: FloatArray
    zones: Sequence[Zone]
    instances: int
    share_left: float
    pause_seconds: float
    again_seconds: float
    firm: FirmFallback | None = None
    lost_together: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Seconds from now to the end, and US dollars, of each of S draws, (S,)."""

    seconds: FloatArray
    usd: FloatArray


def runs_on_spot(stay: SpotJob) -> Runs:
    """Draw S runs of the whole job from nothing held.

    Raises:
        ValueError: there is no zone.
    """
    if not stay.zones:
        raise ValueError("no zone: nothing to be held")
    return _SimulatedRuns(stay, np.random.default_rng(_SEED)).runs()


class _SimulatedRuns:
    """State of S runs, advanced from one lifetime of instances to the next."""

    def __init__(self, stay: SpotJob, random: Generator) -> None:
        self._stay = stay
        self._chance = random
        count = len(stay.work_seconds)
        self._all_runs = np.arange(count)
        self._reclaims = [_DrawnHazards(zone.lives.reclaim, count, random) for zone in stay.zones]
        self._outages = [_DrawnHazards(zone.lives.outage, count, random) for zone in stay.zones]
        self._back_seconds = np.zeros((count, len(stay.zones)))
        self._known_seconds = np.zeros((count, len(stay.zones)))
        self._since_seconds = np.zeros((count, len(stay.zones)))
        for zone_index, zone in enumerate(stay.zones):
            is_out = random.random(count) > zone.lives.there
            ages = np.full(count, zone.lives.out_seconds)
            seconds_left = self._outages[zone_index].lasting(ages)
            self._back_seconds[:, zone_index] = np.where(is_out, seconds_left, 0.0)
            self._since_seconds[:, zone_index] = -zone.lives.out_seconds
        # Share of the caution that plans apply in each draw: later plans know more than today's.
        self._caution_share = random.random(count)
        self._left = stay.work_seconds.copy()
        self._now = np.zeros(count)
        self._usd = np.zeros(count)
        self._done = np.zeros(count, dtype=np.bool_)

    def runs(self) -> Runs:
        for stint in range(_MOST_STINTS):
            self._advance_one_life(is_first=stint == 0)
            if self._done.all():
                return Runs(self._now, self._usd)
        price = self._stay.instances * self._stay.zones[0].usd_per_second
        self._now = np.where(self._done, self._now, self._now + self._left)
        self._usd = np.where(self._done, self._usd, self._usd + self._left * price)
        return Runs(self._now, self._usd)

    def _advance_one_life(self, is_first: bool) -> None:
        """Advance each run by one wait for a zone and one lifetime, or to its end."""
        stay = self._stay
        zone, wait = self._choose_zone()
        share_left = 0.0 if is_first else stay.share_left
        wait = self._bridge_on_firm(wait)
        price = np.array([zone_terms.usd_per_second for zone_terms in stay.zones])[zone]
        start = np.array([zone_terms.start_seconds for zone_terms in stay.zones])[zone]
        life = self._seconds_in_zone(self._reclaims, zone, stay.instances)
        starting = np.minimum(start, life)
        meanwhile = share_left * (wait + starting)
        training = np.maximum(life - start - (0.0 if is_first else stay.pause_seconds), 0.0)
        needed = self._left - meanwhile
        is_last = needed <= training
        trained = np.where(is_last, np.maximum(needed, 0.0), training)
        lost = np.where(
            is_last, 0.0, np.minimum(self._chance.random(len(life)) * stay.again_seconds, trained)
        )
        held = np.where(is_last, life - training + trained, life)
        other_instances = (stay.instances - stay.lost_together) * (0.0 if is_first else 1.0)
        usd = price * (stay.instances * held + other_instances * wait)
        self._move_on(wait + held, meanwhile + trained - lost, usd, is_last)
        self._begin_outage(zone)

    def _choose_zone(self) -> tuple[IntArray, FloatArray]:
        """Return the zone that each run gets, (S,), and the seconds of waiting for it, (S,)."""
        for index, zone in enumerate(self._stay.zones):
            self._update_zone(index, zone.lives)
        is_there = self._back_seconds <= self._now[:, None]
        soonest = self._back_seconds.argmin(axis=1)
        zone = np.where(is_there.any(axis=1), is_there.argmax(axis=1), soonest)
        wait = np.maximum(self._back_seconds[self._all_runs, zone] - self._now, 0.0)
        return zone, wait

    def _update_zone(self, place: int, lives: LifetimeEstimate) -> None:
        """Draw whether a zone still has capacity since it was last known to have it."""
        back_at, known_at = self._back_seconds[:, place], self._known_seconds[:, place]
        unseen = np.maximum(self._now - np.maximum(back_at, known_at), 0.0)
        out_seconds = self._outages[place].mean_seconds
        capacity_seconds = out_seconds * lives.usually_there / max(1.0 - lives.usually_there, 1e-9)
        turns = unseen * (1.0 / out_seconds + 1.0 / np.maximum(capacity_seconds, 1.0))
        lost_share = (1.0 - lives.usually_there) * -np.expm1(-turns)
        is_out = (back_at <= self._now) & (self._chance.random(len(back_at)) < lost_share)
        lasted = self._outages[place].lasting(np.zeros_like(back_at))
        ages = self._chance.random(len(back_at)) * np.minimum(lasted, unseen)
        seconds_left = self._outages[place].lasting(ages)
        self._back_seconds[:, place] = np.where(is_out, self._now + seconds_left, back_at)
        since = self._since_seconds[:, place]
        self._since_seconds[:, place] = np.where(is_out, self._now, since)
        self._known_seconds[:, place] = np.maximum(self._now, known_at)

    def _bridge_on_firm(self, wait: FloatArray) -> FloatArray:
        """Move runs to firm instances where due, and back to spot if time permits.

        Return the seconds that each run waits for spot without firm instances, (S,).
        """
        firm = self._stay.firm
        if firm is None:
            return wait
        start = max(zone.start_seconds for zone in self._stay.zones)
        needed = self._left * firm.seconds_of_work
        cautious_seconds = needed * (1.0 + self._caution_share * (firm.caution - 1.0))
        room = firm.until_seconds - firm.start_seconds - cautious_seconds - self._now
        usual = self._usual_wait()
        due = room - start - self._caution_share * usual
        patience = np.where(usual > firm.patience_seconds, 0.0, firm.patience_seconds)
        patience = np.maximum(np.minimum(patience, due), 0.0)
        moves = ~self._done & (wait > patience)
        bridged = np.maximum(wait - patience - firm.start_seconds, 0.0) + start
        is_too_late = self._now + wait + start + cautious_seconds > firm.until_seconds
        is_last = moves & (is_too_late | (bridged >= needed))
        bridged = np.where(is_last, needed, bridged)
        held = np.where(moves, firm.start_seconds + bridged, 0.0)
        # The next spot instance starts during the stay on firm ones.
        seconds = np.where(is_last, patience + held, wait)
        self._move_on(
            np.where(moves, seconds, 0.0),
            np.where(moves, bridged / firm.seconds_of_work, 0.0),
            held * firm.usd_per_second,
            is_last,
        )
        return np.where(moves, 0.0, wait)

    def _usual_wait(self) -> FloatArray:
        """Return the estimated time within which a quarter of waits for spot end, (S,)."""
        ends = np.zeros_like(self._now)
        for place, outage in enumerate(self._outages):
            age = np.maximum(self._now - self._since_seconds[:, place], 0.0)
            ends += outage.prior_hazard(age)
        return np.minimum(_QUARTER / np.maximum(ends, 1e-12), _LONGEST_WAIT_SECONDS)

    def _move_on(
        self, seconds: FloatArray, work: FloatArray, usd: FloatArray, ends: NDArray[np.bool_]
    ) -> None:
        goes_on = ~self._done
        self._now = np.where(goes_on, self._now + seconds, self._now)
        self._usd = np.where(goes_on, self._usd + usd, self._usd)
        self._left = np.where(goes_on, np.maximum(self._left - work, 0.0), self._left)
        self._done = self._done | ends

    def _begin_outage(self, zone: IntArray) -> None:
        """Begin an outage of each run's held zone."""
        outage = self._seconds_in_zone(self._outages, zone, 1)
        self._back_seconds[self._all_runs, zone] = self._now + outage
        self._since_seconds[self._all_runs, zone] = self._now

    def _seconds_in_zone(
        self, drawn: Sequence[_DrawnHazards], zone: IntArray, together: int
    ) -> FloatArray:
        """Return the time to the first of `together` ends in each run's zone, (S,)."""
        new = np.zeros_like(self._now)
        lasting = np.stack([hazards.lasting(new, together) for hazards in drawn], axis=1)
        chosen: FloatArray = lasting[self._all_runs, zone]
        return chosen


class _DrawnHazards:
    """Hazards of one kind of end in each of `count` draws."""

    def __init__(self, ending: HazardByAge, count: int, random: Generator) -> None:
        shape = np.array(ending.ends)
        self._chance = random
        self._ages = np.array(ending.ages_seconds)
        self._usual = np.array(ending.per_second)
        self._hazard = self._usual * random.gamma(shape, 1.0 / shape, (count, len(shape)))
        steps = np.diff(self._ages) * self._hazard[:, :-1]
        self._until = np.concatenate([np.zeros((count, 1)), steps.cumsum(axis=1)], axis=1)
        hazard = self._usual
        alive = np.exp(-np.concatenate([[0.0], np.cumsum(np.diff(self._ages) * hazard[:-1])]))
        lasts = np.append(np.diff(self._ages), _LONGEST_SECONDS)
        parts = -np.expm1(-hazard * lasts) / np.maximum(hazard, 1e-12)
        self.mean_seconds = float(min((alive * parts).sum(), _LONGEST_SECONDS))

    def prior_hazard(self, ages: FloatArray) -> FloatArray:
        """Return the mean estimated hazard at these ages, ends a second, (S,)."""
        usual: FloatArray = self._usual[np.searchsorted(self._ages, ages, side="right") - 1]
        return usual

    def lasting(self, ages: FloatArray, together: int = 1) -> FloatArray:
        """Return the time until the first of `together` ends, from these ages, (S,)."""
        runs = np.arange(len(ages))
        age_class = np.searchsorted(self._ages, ages, side="right") - 1
        spent = (
            self._until[runs, age_class]
            + (ages - self._ages[age_class]) * self._hazard[runs, age_class]
        )
        spent = spent + self._chance.exponential(size=len(ages)) / together
        last = (self._until <= spent[:, None]).sum(axis=1) - 1
        beyond = (spent - self._until[runs, last]) / np.maximum(self._hazard[runs, last], 1e-12)
        seconds_left: FloatArray = np.minimum(self._ages[last] + beyond - ages, _LONGEST_SECONDS)
        return seconds_left
