"""What reclaims make of the finish and the spend of a job: draws of whole runs on spot.

In each draw instances live and zones are out for as long as the hazards of their ages have it,
each hazard itself drawn from what is known of it. A job whose instance is reclaimed takes the
first zone of its order that has capacity, waits for one where none has, and goes to what is not
reclaimed when its deadline or the cost of waiting asks for it. The same random numbers every
time: two forecasts differ by what is forecast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from autoscaler.domain.lives import Ending, Lives
from autoscaler.economics.supply import IntArray
from autoscaler.goodput.throughput import FloatArray

_SEED = 20220407
# A run that is reclaimed more often goes on as if it were not: its mean says enough by then.
_MOST_STINTS = 200
# Between two looks at a zone that was not asked it may have gone and come.
_LONGEST_SECONDS = 1e9
# As `market.zones.fill_seconds` has it.
_QUARTER = float(-np.log(0.75))
_LONGEST_WAIT_SECONDS = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class Zone:
    """Where instances are to be had: `start_seconds` from launch to training."""

    lives: Lives
    start_seconds: float
    usd_per_second: float


@dataclass(frozen=True, slots=True, eq=False)
class Firm:
    """What the job holds where there is no spot.

    `seconds_of_work` is how long it takes for what spot does in a second, (S,). It is held from
    when the deadline, `until_seconds`, could no more be kept after the usual wait for spot, work
    taken for up to `caution` times as long as it is; or after waiting `patience_seconds` in vain.
    """

    start_seconds: float
    usd_per_second: float
    seconds_of_work: FloatArray
    until_seconds: float = np.inf
    caution: float = 1.0
    patience_seconds: float = np.inf


@dataclass(frozen=True, slots=True, eq=False)
class Stay:
    """A job on so many instances of spot.

    `work_seconds` (S,) is what it takes without any reclaim; `share_left` of its speed is left
    while one instance is missing, and every reclaim loses `pause_seconds` and up to
    `again_seconds` of work. `zones` are in the order in which they are asked.
    """

    work_seconds: FloatArray
    zones: Sequence[Zone]
    instances: int
    share_left: float
    pause_seconds: float
    again_seconds: float
    firm: Firm | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Seconds from now to the end, and US dollars, of each draw, (S,)."""

    seconds: FloatArray
    usd: FloatArray


def runs_on_spot(stay: Stay) -> Runs:
    """Draw S runs of the whole job, from nothing held.

    Raises:
        ValueError: there is no zone.
    """
    if not stay.zones:
        raise ValueError("no zone: nothing to be held")
    return _Drawing(stay, np.random.default_rng(_SEED)).runs()


class _Drawing:
    """S runs at once, moved on from one life of instances to the next."""

    def __init__(self, stay: Stay, chance: Generator) -> None:
        self._stay = stay
        self._chance = chance
        count = len(stay.work_seconds)
        self._every = np.arange(count)
        self._reclaims = [_Drawn(zone.lives.reclaim, count, chance) for zone in stay.zones]
        self._outages = [_Drawn(zone.lives.outage, count, chance) for zone in stay.zones]
        self._back_seconds = np.zeros((count, len(stay.zones)))
        self._known_seconds = np.zeros((count, len(stay.zones)))
        self._since_seconds = np.zeros((count, len(stay.zones)))
        for place, zone in enumerate(stay.zones):
            is_out = chance.random(count) > zone.lives.there
            ages = np.full(count, zone.lives.out_seconds)
            left = self._outages[place].lasting(ages)
            self._back_seconds[:, place] = np.where(is_out, left, 0.0)
            self._since_seconds[:, place] = -zone.lives.out_seconds
        # How much of their fears plans will have when it comes to that: by then more is known.
        self._fear = chance.random(count)
        self._left = stay.work_seconds.copy()
        self._now = np.zeros(count)
        self._usd = np.zeros(count)
        self._done = np.zeros(count, dtype=np.bool_)

    def runs(self) -> Runs:
        for stint in range(_MOST_STINTS):
            self._stint(is_first=stint == 0)
            if self._done.all():
                return Runs(self._now, self._usd)
        price = self._stay.instances * self._stay.zones[0].usd_per_second
        self._now = np.where(self._done, self._now, self._now + self._left)
        self._usd = np.where(self._done, self._usd, self._usd + self._left * price)
        return Runs(self._now, self._usd)

    def _stint(self, is_first: bool) -> None:
        """Wait for a zone, hold it for a life, or be done before."""
        stay = self._stay
        zone, wait = self._ask()
        share_left = 0.0 if is_first else stay.share_left
        wait = self._on_firm(wait)
        price = np.array([each.usd_per_second for each in stay.zones])[zone]
        start = np.array([each.start_seconds for each in stay.zones])[zone]
        life = self._chosen(self._reclaims, zone, stay.instances)
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
        others = (stay.instances - 1) * (0.0 if is_first else 1.0)
        usd = price * (stay.instances * held + others * wait)
        self._move_on(wait + held, meanwhile + trained - lost, usd, is_last)
        self._lose(zone)

    def _ask(self) -> tuple[IntArray, FloatArray]:
        """Which zone is had, and how long that takes, (S,) each."""
        for place, zone in enumerate(self._stay.zones):
            self._look(place, zone.lives)
        is_there = self._back_seconds <= self._now[:, None]
        soonest = self._back_seconds.argmin(axis=1)
        zone = np.where(is_there.any(axis=1), is_there.argmax(axis=1), soonest)
        wait = np.maximum(self._back_seconds[self._every, zone] - self._now, 0.0)
        return zone, wait

    def _look(self, place: int, lives: Lives) -> None:
        """Whether a zone is still there that was when it was known last."""
        back, known = self._back_seconds[:, place], self._known_seconds[:, place]
        unseen = np.maximum(self._now - np.maximum(back, known), 0.0)
        out_seconds = self._outages[place].mean_seconds
        there_seconds = out_seconds * lives.usually_there / max(1.0 - lives.usually_there, 1e-9)
        turns = unseen * (1.0 / out_seconds + 1.0 / np.maximum(there_seconds, 1.0))
        gone = (1.0 - lives.usually_there) * -np.expm1(-turns)
        is_out = (back <= self._now) & (self._chance.random(len(back)) < gone)
        lasted = self._outages[place].lasting(np.zeros_like(back))
        ages = self._chance.random(len(back)) * np.minimum(lasted, unseen)
        left = self._outages[place].lasting(ages)
        self._back_seconds[:, place] = np.where(is_out, self._now + left, back)
        since = self._since_seconds[:, place]
        self._since_seconds[:, place] = np.where(is_out, self._now, since)
        self._known_seconds[:, place] = np.maximum(self._now, known)

    def _on_firm(self, wait: FloatArray) -> FloatArray:
        """Go to what is not reclaimed where that is due, and back to spot if there is time.

        Returns how long is waited for spot by those who do not.
        """
        firm = self._stay.firm
        if firm is None:
            return wait
        start = max(zone.start_seconds for zone in self._stay.zones)
        needed = self._left * firm.seconds_of_work
        feared = needed * (1.0 + self._fear * (firm.caution - 1.0))
        room = firm.until_seconds - firm.start_seconds - feared - self._now
        usual = self._usual_wait()
        due = room - start - self._fear * usual
        patience = np.where(usual > firm.patience_seconds, 0.0, firm.patience_seconds)
        patience = np.maximum(np.minimum(patience, due), 0.0)
        goes = ~self._done & (wait > patience)
        bridged = np.maximum(wait - patience - firm.start_seconds, 0.0) + start
        is_late = self._now + wait + start + feared > firm.until_seconds
        is_last = goes & (is_late | (bridged >= needed))
        bridged = np.where(is_last, needed, bridged)
        held = np.where(goes, firm.start_seconds + bridged, 0.0)
        # The next start of spot is beside it, and takes no time of its own.
        seconds = np.where(is_last, patience + held, wait)
        self._move_on(
            np.where(goes, seconds, 0.0),
            np.where(goes, bridged / firm.seconds_of_work, 0.0),
            held * firm.usd_per_second,
            is_last,
        )
        return np.where(goes, 0.0, wait)

    def _usual_wait(self) -> FloatArray:
        """Within what time there is spot again in a quarter of cases, as it is believed, (S,)."""
        ends = np.zeros_like(self._now)
        for place, outage in enumerate(self._outages):
            age = np.maximum(self._now - self._since_seconds[:, place], 0.0)
            ends += outage.usual_hazard(age)
        return np.minimum(_QUARTER / np.maximum(ends, 1e-12), _LONGEST_WAIT_SECONDS)

    def _move_on(
        self, seconds: FloatArray, work: FloatArray, usd: FloatArray, ends: NDArray[np.bool_]
    ) -> None:
        goes_on = ~self._done
        self._now = np.where(goes_on, self._now + seconds, self._now)
        self._usd = np.where(goes_on, self._usd + usd, self._usd)
        self._left = np.where(goes_on, np.maximum(self._left - work, 0.0), self._left)
        self._done = self._done | ends

    def _lose(self, zone: IntArray) -> None:
        """The zone that was held is out from now on."""
        outage = self._chosen(self._outages, zone, 1)
        self._back_seconds[self._every, zone] = self._now + outage
        self._since_seconds[self._every, zone] = self._now

    def _chosen(self, drawn: Sequence[_Drawn], zone: IntArray, together: int) -> FloatArray:
        """How long it lasts there until the first of so many ends, (S,)."""
        new = np.zeros_like(self._now)
        lasting = np.stack([each.lasting(new, together) for each in drawn], axis=1)
        chosen: FloatArray = lasting[self._every, zone]
        return chosen


class _Drawn:
    """The hazards of one kind of ending in each draw."""

    def __init__(self, ending: Ending, count: int, chance: Generator) -> None:
        shape = np.array(ending.ends)
        self._chance = chance
        self._ages = np.array(ending.ages_seconds)
        self._usual = np.array(ending.per_second)
        self._hazard = self._usual * chance.gamma(shape, 1.0 / shape, (count, len(shape)))
        steps = np.diff(self._ages) * self._hazard[:, :-1]
        self._until = np.concatenate([np.zeros((count, 1)), steps.cumsum(axis=1)], axis=1)
        hazard = self._usual
        alive = np.exp(-np.concatenate([[0.0], np.cumsum(np.diff(self._ages) * hazard[:-1])]))
        lasts = np.append(np.diff(self._ages), _LONGEST_SECONDS)
        parts = -np.expm1(-hazard * lasts) / np.maximum(hazard, 1e-12)
        self.mean_seconds = float(min((alive * parts).sum(), _LONGEST_SECONDS))

    def usual_hazard(self, ages: FloatArray) -> FloatArray:
        """As it is believed on average at these ages, (S,)."""
        usual: FloatArray = self._usual[np.searchsorted(self._ages, ages, side="right") - 1]
        return usual

    def lasting(self, ages: FloatArray, together: int = 1) -> FloatArray:
        """How much longer what is so old lasts, the first of so many, (S,)."""
        every = np.arange(len(ages))
        place = np.searchsorted(self._ages, ages, side="right") - 1
        spent = self._until[every, place] + (ages - self._ages[place]) * self._hazard[every, place]
        spent = spent + self._chance.exponential(size=len(ages)) / together
        last = (self._until <= spent[:, None]).sum(axis=1) - 1
        beyond = (spent - self._until[every, last]) / np.maximum(self._hazard[every, last], 1e-12)
        left: FloatArray = np.minimum(self._ages[last] + beyond - ages, _LONGEST_SECONDS)
        return left
