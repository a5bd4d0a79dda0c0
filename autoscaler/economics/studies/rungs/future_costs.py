"""Cost of the later rungs within a given time, in each draw.

Once a rung has begun, the speeds of its trials are known. So each draw is planned for itself: at a
barrier T each of its trials takes the cheapest size that is done by T. Between rungs the time goes
where a second of it saves most, at one multiplier for all of them (the optimality condition of a
convex program; the sum over rungs is its lower hull).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.economics.studies.rungs.packing import NEVER
from autoscaler.economics.studies.rungs.rung import FutureRung
from autoscaler.economics.studies.supply import StudySupply
from autoscaler.economics.supply.supply import IntArray
from autoscaler.goodput.throughput import FloatArray

_BARRIERS = 40
_MULTIPLIERS = 48
# Multipliers in prices of the cheapest size: powers of ten of the least and the greatest.
_LEAST, _MOST = -2.0, 4.0
_ENOUGH = 1.0 - 1e-9
_LEAST_RATE = 1e-300


@dataclass(frozen=True, slots=True, eq=False)
class FutureRungCosts:
    """All later rungs together, in K draws, at L multipliers from the greatest to 0.

    Attributes:
        usd_per_second: the multipliers, $ that a second of study time is worth, (L,).
        seconds: duration of the later rungs, rising, (K, L).
        usd: cost of the later rungs, falling, (K, L).
        next_instances: number of instances of the next rung, (K, L).
    """

    usd_per_second: FloatArray
    seconds: FloatArray
    usd: FloatArray
    next_instances: FloatArray

    def usd_within(self, seconds: FloatArray) -> FloatArray:
        """Return the least cost within seconds (K, C), at least that of the fastest plan."""
        return _interpolated(seconds, self.seconds, self.usd)

    def seconds_within(self, usd: FloatArray) -> FloatArray:
        """Return the least duration for a cost (K, C), at most that of the cheapest plan."""
        return _interpolated(usd, self.usd[:, ::-1], self.seconds[:, ::-1])

    def value_of_time(self, seconds: FloatArray) -> FloatArray:
        """Return the $ that one second more would save, with `seconds` left, (K,) each."""
        return self.usd_per_second[self._places(seconds)]

    def instances_within(self, seconds: FloatArray) -> FloatArray:
        """Return the number of instances of the next rung, with `seconds` left, (K,) each."""
        places = self._places(seconds)
        held: FloatArray = self.next_instances[np.arange(len(places)), places]
        return held

    def at(self, usd_per_second: float) -> int:
        """Return the index of the least multiplier that is at least so great."""
        return max(int(np.count_nonzero(self.usd_per_second >= usd_per_second)) - 1, 0)

    def _places(self, seconds: FloatArray) -> IntArray:
        """Return the index of the least multiplier at which each draw is in time, (K,)."""
        done = self.seconds * _ENOUGH <= seconds[:, None]
        places: IntArray = np.maximum(done.sum(axis=1) - 1, 0)
        return places


def future_rung_costs(
    rungs: tuple[FutureRung, ...], supply: StudySupply, draws: int, held_instances: int
) -> FutureRungCosts:
    """Return the costs of the later rungs of a study, which now holds so many instances."""
    prices = supply.usd_per_second.min() or supply.unit_usd_per_second.max() or 1.0
    ladder = np.append(np.geomspace(10.0**_MOST, 10.0**_LEAST, _MULTIPLIERS - 1) * prices, 0.0)
    shape = draws, len(ladder)
    seconds, usd = np.zeros(shape), np.zeros(shape)
    first = np.zeros(shape)
    before, trials = np.full(shape, float(held_instances)), held_instances
    for place, rung in enumerate(rungs):
        took, cost, before, bought = _planned(rung, supply, (before, trials), ladder)
        trials = rung.work.shape[1]
        seconds += took
        usd += cost + bought
        if place == 0:
            first = before
    return FutureRungCosts(ladder, seconds, usd, first)


def _planned(
    rung: FutureRung, supply: StudySupply, before: tuple[FloatArray, int], ladder: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Plan one rung at each multiplier.

    Survivors take over the instances of the rung before. Instances beyond one for each of its
    trials cost a boot; instances beyond those that it held cost what is billed at least of a new
    one. So with time to spare trials run in waves, one after the other on the same instances.

    Args:
        rung: the rung, n trials in K draws.
        supply: the sizes.
        before: instances (K, L) and trials of the rung before.
        ladder: the multipliers, (L,).

    Returns:
        Duration, cost, instances, and cost of new instances, (K, L) each.
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
    """Return the cheapest size in time of each trial at each of G barriers, (K, n, G)."""
    cheapest = np.take_along_axis(seconds, usd.argmin(axis=2)[:, :, None], axis=2)
    barriers = np.geomspace(
        max(float(seconds.min(axis=2).max(axis=1).min()), 1e-9),
        max(float(cheapest.max()), 1e-9) * (1.0 + 1e-9),
        _BARRIERS,
    )
    late = seconds[:, :, :, None] > barriers
    chosen = np.where(late, np.inf, usd[:, :, :, None]).argmin(axis=2)
    fastest: IntArray = seconds.argmin(axis=2)
    return np.where(late.all(axis=2), fastest[:, :, None], chosen)


def _courses(rung: FutureRung, supply: StudySupply) -> tuple[FloatArray, FloatArray]:
    """Return duration and cost of each trial on each size, without boots, (K, n, A) each."""
    rate = supply.with_reclaims(rung.goodput)
    alone = rung.work[:, :, None] / np.maximum(rate, _LEAST_RATE)
    seconds = np.minimum(supply.switching.handover_seconds + alone, NEVER)
    return seconds, seconds * supply.usd_per_second


def _most_together(rung: FutureRung, supply: StudySupply, chosen: IntArray) -> FloatArray:
    """Return how many trials the limits permit at a time, at these sizes on average, (K, G)."""
    most = np.full((chosen.shape[0], chosen.shape[2]), float(rung.work.shape[1]))
    for uses, maximum in zip(supply.uses, supply.maximum, strict=True):
        use = (supply.instances * uses[supply.offer_of])[chosen].mean(axis=1)
        most = np.minimum(most, np.maximum(maximum / np.maximum(use, 1e-12), 1e-9))
    return most


def _interpolated(at: FloatArray, rising: FloatArray, values: FloatArray) -> FloatArray:
    rows = [np.interp(x, xs, ys) for x, xs, ys in zip(at, rising, values, strict=True)]
    return np.array(rows)
