"""What later rungs will cost if they are given so many seconds, draw by draw.

Once a rung has begun, the speeds of its trials are known. So each draw is filled for itself: at a
barrier T each of its trials takes the cheapest size that is there by T, and between rungs the time
goes where a second of it saves most, at one multiplier for all (a convex program's condition; the
sum over rungs is its lower hull).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.economics.studies.packing import NEVER
from autoscaler.economics.studies.rung import FutureRung, StudySupply
from autoscaler.economics.supply import IntArray
from autoscaler.goodput.throughput import FloatArray

_BARRIERS = 40
_MULTIPLIERS = 48
# Multipliers in prices of the cheapest size: from a hundredth of it to ten thousand times.
_LEAST, _MOST = -2.0, 4.0
_ENOUGH = 1.0 - 1e-9
_LEAST_RATE = 1e-300


@dataclass(frozen=True, slots=True, eq=False)
class Hereafter:
    """All later rungs together, at each of L multipliers, from the largest to 0.

    Attributes:
        usd_per_second: the multipliers: $ that a second of study time is worth, (L,).
        seconds: what the later rungs take in each draw, rising, (K, L).
        usd: what they cost, falling, (K, L).
        next_instances: how many instances the next rung holds, (K, L).
        next_seconds: what the next rung takes, (K, L).
        next_usd: what it costs on instances that are there, (K, L).
    """

    usd_per_second: FloatArray
    seconds: FloatArray
    usd: FloatArray
    next_instances: FloatArray
    next_seconds: FloatArray
    next_usd: FloatArray

    def usd_within(self, seconds: FloatArray) -> FloatArray:
        """Least cost within `seconds` (K, C) of each draw; where that can't be, of the fastest."""
        return _interpolated(seconds, self.seconds, self.usd)

    def seconds_within(self, usd: FloatArray) -> FloatArray:
        """Least time for `usd` (K, C); where it does not suffice, that of the cheapest."""
        return _interpolated(usd, self.usd[:, ::-1], self.seconds[:, ::-1])

    def value_of_time(self, seconds: FloatArray) -> FloatArray:
        """$ that one second more would save, with `seconds` (K,) left for all of it; (K,)."""
        return self.usd_per_second[self._places(seconds)]

    def instances_within(self, seconds: FloatArray) -> FloatArray:
        """How many instances the next rung holds with `seconds` (K,) for all of it; (K,)."""
        places = self._places(seconds)
        held: FloatArray = self.next_instances[np.arange(len(places)), places]
        return held

    def next_within(self, seconds: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Seconds and cost of the next rung with `seconds` (K,) for all of it; each (K,)."""
        row, places = np.arange(len(seconds)), self._places(seconds)
        return self.next_seconds[row, places], self.next_usd[row, places]

    def at(self, usd_per_second: float) -> int:
        """The place of the multiplier that is next to this one, above it."""
        return max(int(np.count_nonzero(self.usd_per_second >= usd_per_second)) - 1, 0)

    def _places(self, seconds: FloatArray) -> IntArray:
        """The least multiplier at which each draw is done within its seconds, (K,)."""
        done = self.seconds * _ENOUGH <= seconds[:, None]
        places: IntArray = np.maximum(done.sum(axis=1) - 1, 0)
        return places


def hereafter(
    rungs: tuple[FutureRung, ...], supply: StudySupply, draws: int, at_hand: int
) -> Hereafter:
    """The later rungs of a study at every multiplier; `at_hand` are the instances held now."""
    prices = supply.usd_per_second.min() or supply.unit_usd_per_second.max() or 1.0
    ladder = np.append(np.geomspace(10.0**_MOST, 10.0**_LEAST, _MULTIPLIERS - 1) * prices, 0.0)
    shape = draws, len(ladder)
    seconds, usd = np.zeros(shape), np.zeros(shape)
    first = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    before, trials = np.full(shape, float(at_hand)), at_hand
    for place, rung in enumerate(rungs):
        took, cost, before, bought = _filled(rung, supply, (before, trials), ladder)
        trials = rung.work.shape[1]
        seconds += took
        usd += cost + bought
        if place == 0:
            first = before, took, cost
    return Hereafter(ladder, seconds, usd, *first)


def _filled(
    rung: FutureRung, supply: StudySupply, before: tuple[FloatArray, int], ladder: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Seconds, cost, instances of one rung and what new ones add, at each multiplier, (K, L).

    Survivors take over what the rung before leaves; `before` are its instances, (K, L), and its
    trials. Beyond an instance for each of those there is a boot to pay, which is ordered ahead;
    beyond what is held what is billed at least of a new one. So with time to spare they run in
    waves, one after the other.
    """
    seconds, usd = _courses(rung, supply)
    chosen = _choices(seconds, usd)
    longest = np.take_along_axis(seconds, chosen, axis=2).max(axis=1)
    together = np.take_along_axis(seconds, chosen, axis=2).sum(axis=1)
    cost = np.take_along_axis(usd, chosen, axis=2).sum(axis=1)
    held = supply.instances[chosen].sum(axis=1)
    unit, boot = supply.unit_usd_per_second[chosen], supply.boot_seconds[chosen]
    boots, unit = (boot * unit).mean(axis=1), unit.mean(axis=1)
    least = np.maximum(supply.minimum_billed_seconds[chosen] - boot, 0.0).mean(axis=1)
    trials, most = rung.work.shape[1], _most_together(rung, supply, chosen)
    tables = []
    for lanes in sorted({max(trials // waves, 1) for waves in (1, 2, 3, 5, trials)}):
        at_work = held * np.minimum(lanes, most) / trials
        took = np.maximum(longest, together / np.minimum(lanes, most))
        boot_usd = np.maximum(at_work - before[1], 0.0) * boots
        tables.append((took, cost, at_work, boot_usd, np.maximum(least - took, 0.0) * unit))
    took, cost, held, boots, least = (
        np.concatenate(table, axis=1) for table in zip(*tables, strict=True)
    )
    bought = np.maximum(held[:, :, None] - before[0][:, None, :], 0.0) * least[:, :, None]
    bought += boots[:, :, None]
    best = (cost[:, :, None] + bought + ladder * took[:, :, None]).argmin(axis=1)
    return (
        np.take_along_axis(took, best, axis=1),
        np.take_along_axis(cost, best, axis=1),
        np.take_along_axis(held, best, axis=1),
        np.take_along_axis(bought, best[:, None, :], axis=1)[:, 0],
    )


def _choices(seconds: FloatArray, usd: FloatArray) -> IntArray:
    """The size of each trial at each of G barriers, (K, n, G): the cheapest in time."""
    barriers = np.geomspace(
        max(float(seconds.min(axis=2).max(axis=1).min()), 1e-9),
        max(float(_cheapest(seconds, usd).max()), 1e-9) * (1.0 + 1e-9),
        _BARRIERS,
    )
    late = seconds[:, :, :, None] > barriers
    chosen = np.where(late, np.inf, usd[:, :, :, None]).argmin(axis=2)
    fastest: IntArray = seconds.argmin(axis=2)
    return np.where(late.all(axis=2), fastest[:, :, None], chosen)


def _courses(rung: FutureRung, supply: StudySupply) -> tuple[FloatArray, FloatArray]:
    """Seconds and cost of each trial on each size, boots left aside, (K, n, A)."""
    rate = supply.with_reclaims(rung.goodput)
    alone = rung.work[:, :, None] / np.maximum(rate, _LEAST_RATE)
    seconds = np.minimum(supply.switching.handover_seconds + alone, NEVER)
    return seconds, seconds * supply.usd_per_second


def _most_together(rung: FutureRung, supply: StudySupply, chosen: IntArray) -> FloatArray:
    """How many trials the limits let train at a time, at these sizes on average, (K, G)."""
    most = np.full((chosen.shape[0], chosen.shape[2]), float(rung.work.shape[1]))
    for uses, maximum in zip(supply.uses, supply.maximum, strict=True):
        use = (supply.instances * uses[supply.offer_of])[chosen].mean(axis=1)
        most = np.minimum(most, np.maximum(maximum / np.maximum(use, 1e-12), 1e-9))
    return most


def _cheapest(seconds: FloatArray, usd: FloatArray) -> FloatArray:
    best = usd.argmin(axis=2)[:, :, None]
    slowest: FloatArray = np.take_along_axis(seconds, best, axis=2)
    return slowest


def _interpolated(at: FloatArray, rising: FloatArray, values: FloatArray) -> FloatArray:
    rows = [np.interp(x, xs, ys) for x, xs, ys in zip(at, rising, values, strict=True)]
    return np.array(rows)
