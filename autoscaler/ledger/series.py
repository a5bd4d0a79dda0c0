"""Spending and held instances of some jobs at points in time, for charts.

The numbers are floats. At each point they equal what the ledger told then, up to rounding.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from autoscaler.ledger.bill import Bill, PricePeriod
from autoscaler.ledger.ledger import Ledger

_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class SpendingSeries:
    """Spending of some jobs at increasing times: one value for each.

    `instances` has the number of held instances by offer, and `held` that by instance id.
    """

    usd_per_hour: tuple[float, ...]
    spent_usd: tuple[float, ...]
    instances: Mapping[str, tuple[int, ...]]
    held: Mapping[str, tuple[int, ...]]


def spending_series(
    ledger: Ledger, jobs: Collection[str], times: Sequence[float]
) -> SpendingSeries:
    """Return the spending of some jobs together at increasing times.

    Args:
        ledger: entries of all instances for which the jobs ever paid.
        jobs: ids of the jobs.
        times: seconds since the Unix epoch.
    """
    sums = _Sums(times)
    for bill in ledger.bills:
        _add_bill(sums, bill, jobs)
    return SpendingSeries(
        usd_per_hour=tuple(sums.usd_per_hour),
        spent_usd=tuple(sums.spent_usd()),
        instances={offer: tuple(counts) for offer, counts in sorted(sums.instances.items())},
        held={instance: tuple(counts) for instance, counts in sorted(sums.held.items())},
    )


class _Sums:
    """Sums at increasing times. `steps` are amounts that count from a time on."""

    def __init__(self, times: Sequence[float]) -> None:
        self.times = times
        self.usd_per_hour = [0.0] * len(times)
        self.instances: dict[str, list[int]] = {}
        self.held: dict[str, list[int]] = {}
        self._running = [0.0] * len(times)
        self._steps = [0.0] * (len(times) + 1)

    def hold(self, stretch: PricePeriod) -> range:
        """Count an instance while it is held; return the indices of these times."""
        opening, closing = stretch.opening, stretch.closing
        begin = bisect_left(self.times, opening.at_seconds)
        end = (
            len(self.times)
            if closing is None
            else bisect_left(self.times, closing.at_seconds, begin)
        )
        for sums, key in ((self.instances, opening.offer), (self.held, opening.instance)):
            counts = sums.setdefault(key, [0] * len(self.times))
            for index in range(begin, end):
                counts[index] += 1
        for index in range(begin, end):
            self.usd_per_hour[index] += float(opening.usd_per_hour)
        return range(begin, end)

    def run(self, index: int, usd: float) -> None:
        """Add an amount at one time only."""
        self._running[index] += usd

    def step(self, at_seconds: float, usd: float) -> None:
        """Add an amount from a time on."""
        self._steps[bisect_left(self.times, at_seconds)] += usd

    def spent_usd(self) -> list[float]:
        """Return the sum of all amounts at each time."""
        total, sums = 0.0, []
        for running, step in zip(self._running, self._steps, strict=False):
            total += step
            sums.append(total + running)
        return sums


def _add_bill(sums: _Sums, bill: Bill, jobs: Collection[str]) -> None:
    held_seconds, billed_seconds = 0.0, 0
    following = [*bill.stretches[1:], None]
    for stretch, later in zip(bill.stretches, following, strict=True):
        is_of_job = stretch.opening.job in jobs
        if is_of_job:
            _add_stretch(sums, stretch, later, (held_seconds, billed_seconds))
        if stretch.closing is not None:
            held_seconds += stretch.held_seconds(stretch.closing.at_seconds)
            billed_seconds = _started_seconds(held_seconds)
    for line in bill.transfers:
        if line.job in jobs:
            sums.step(line.at_seconds, float(line.usd))


def _add_stretch(
    sums: _Sums, stretch: PricePeriod, later: PricePeriod | None, before: tuple[float, int]
) -> None:
    """Add one stretch of a bill; `before` are seconds held and billed in earlier ones.

    Until a later stretch opens, the stretch is the last one, to which a minimum applies.
    """
    held_before, billed_before = before
    usd_per_second = float(stretch.opening.usd_per_hour) / _SECONDS_PER_HOUR

    def usd(held_seconds: float, minimum_seconds: int) -> float:
        total_seconds = max(_started_seconds(held_before + held_seconds), minimum_seconds)
        return usd_per_second * (total_seconds - billed_before)

    opened_seconds = stretch.opening.at_seconds
    for index in sums.hold(stretch):
        held_seconds = sums.times[index] - opened_seconds
        sums.run(index, usd(held_seconds, stretch.opening.minimum_billed_seconds))
    if stretch.closing is None:
        return
    closed_seconds = stretch.closing.at_seconds
    whole_seconds = stretch.held_seconds(closed_seconds)
    last_usd = usd(whole_seconds, stretch.minimum_billed_seconds)
    sums.step(closed_seconds, last_usd)
    if later is not None:
        sums.step(later.opening.at_seconds, usd(whole_seconds, 0) - last_usd)


def _started_seconds(seconds: float) -> int:
    return math.ceil(round(max(seconds, 0.0), 6))


def grid(from_seconds: float, to_seconds: float, points: int) -> tuple[float, ...]:
    """Return at most `points` evenly spaced times, both ends included."""
    if to_seconds <= from_seconds or points < 2:
        return (to_seconds,)
    step = (to_seconds - from_seconds) / (points - 1)
    inner = (from_seconds + step * index for index in range(points - 1))
    return (*inner, to_seconds)


def last_in_bins(times: Sequence[float], moments: Sequence[float]) -> tuple[int | None, ...]:
    """Return the index of the last moment in the bin that ends at each time; None for none.

    Both are increasing. A bin begins after the time before; the first bin has one moment at most.
    """
    places: list[int | None] = []
    after = bisect_left(moments, times[0]) if times else 0
    for at_seconds in times:
        end = bisect_right(moments, at_seconds)
        places.append(end - 1 if end > after else None)
        after = max(end, after)
    return tuple(places)
