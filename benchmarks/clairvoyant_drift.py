"""Lower bound on the cost of a job whose step times change once, at a known time.

The dynamic programming of `clairvoyant.py`, forward in time. A state is a piece of the run, an
allocation and the time so far, which is irrelevant after the change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from clairvoyant import Choice, Ground, choices_of, limit, piece_seconds, switches_usd
from numpy.typing import NDArray

from autoscaler.simulator.profiles.profiles import Profile
from autoscaler.simulator.profiles.slowdowns import Slowdown, change_seconds, slowed

FloatArray = NDArray[np.float64]

# Number of parts of the time before the change; the cheapest state of each part is kept.
_PARTS = 120


@dataclass(frozen=True)
class _StepTimes:
    """Seconds of each piece on each allocation, (P, A), before and after the change."""

    before: FloatArray
    after: FloatArray
    change_seconds: float

    def lasts(self, piece: int, begun: FloatArray) -> FloatArray:
        """Return the duration in seconds of a piece that begins at given times, (A, T)."""
        before, after = self.before[piece][:, None], self.after[piece][:, None]
        done = np.clip((self.change_seconds - begun) / before, 0.0, 1.0)
        seconds: FloatArray = done * before + (1.0 - done) * after
        return seconds

    def part(self, moment: FloatArray) -> NDArray[np.int64]:
        """Return the part of the time before the change of each moment; `_PARTS` is after it."""
        parts = np.minimum(moment / self.change_seconds, 1.0) * _PARTS
        return np.where(np.isfinite(moment), parts, _PARTS).astype(np.int64)


def limit_usd(
    profile: Profile, ground: Ground, value_of_time: float, slowdowns: tuple[Slowdown, ...]
) -> float:
    """Return the least of dollars + value of time ($/h) x duration under slowdowns.

    Raises:
        ValueError: step times change more than once.
    """
    moments = change_seconds(slowdowns)
    before = slowed(profile, slowdowns, 0.0)
    if not moments:
        return limit(before, ground, value_of_time).cost_usd
    if len(moments) > 1:
        raise ValueError(f"step times change at {moments}: only one change is supported")
    after = slowed(profile, slowdowns, moments[0])
    choices = choices_of(profile, ground)
    step_times = _StepTimes(
        piece_seconds(before, choices), piece_seconds(after, choices), moments[0]
    )
    return _least_usd(step_times, choices, ground, value_of_time / 3600.0)


def _least_usd(
    step_times: _StepTimes, choices: list[Choice], ground: Ground, value: float
) -> float:
    """Return the least cost in $ over all plans."""
    price = np.array([choice.usd_per_second for choice in choices]) + value
    switch = switches_usd(choices, ground, price)
    boots = np.array([choice.machine.offer.boot_seconds for choice in choices])
    cost = np.full((len(choices), _PARTS + 1), np.inf)
    moment = np.full_like(cost, np.inf)
    start = boots + ground.pause_seconds
    places = np.arange(len(choices)), step_times.part(start)
    cost[places], moment[places] = start * price, start
    for piece in range(len(step_times.before)):
        if piece:
            cost_by_source = cost[:, None, :] + switch[:, :, None]
            source = cost_by_source.argmin(axis=0)
            cost = cost_by_source.min(axis=0)
            is_change = source != np.arange(len(choices))[:, None]
            moment = np.take_along_axis(moment, source, axis=0) + is_change * ground.pause_seconds
        seconds = np.where(np.isfinite(cost), step_times.lasts(piece, moment), np.inf)
        cost, moment = _cheapest_by_part(
            step_times, cost + seconds * price[:, None], moment + seconds
        )
    return float(cost.min())


def _cheapest_by_part(
    step_times: _StepTimes, cost: FloatArray, moment: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the cheapest state of each allocation and part of the time, (A, T)."""
    least_cost, least_moment = np.full_like(cost, np.inf), np.full_like(moment, np.inf)
    part, rows = step_times.part(moment), np.arange(len(cost))
    for column in range(cost.shape[1]):
        places = rows, part[:, column]
        is_less = cost[:, column] < least_cost[places]
        least_cost[places] = np.where(is_less, cost[:, column], least_cost[places])
        least_moment[places] = np.where(is_less, moment[:, column], least_moment[places])
    return least_cost, least_moment
