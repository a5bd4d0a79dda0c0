"""Trials that nobody has run yet: their paces are drawn, and so is who is better than whom.

What a study costs depends on how fast its trials are and on how many go on, not on which.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

import numpy as np

from autoscaler.simulator.curves import Curve

# 9 in 10 paces are within a factor of 2 of the median, if nothing better is known.
ASSUMED_FACTOR: Final = 2.0
_NINE_IN_TEN_DEVIATIONS = 1.645
_MOST_REPORTS = 20


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of a step on one device: of earlier trials, or an assumed median."""

    step_seconds: float
    measured: tuple[float, ...] = ()

    def draw(self, count: int, source: np.random.Generator) -> list[float]:
        """Return the seconds of a step of each trial of one study that may be.

        Earlier trials are a sample of what trials take, and a small one may be unlike the rest. So
        a study is drawn from a sample of them with replacement, and a trial from a kernel around
        one of these (the smoothed bootstrap; width by Silverman 1986, equation 3.31).
        """
        if self.measured:
            logarithms = np.log(source.choice(self.measured, len(self.measured)))
            width = float(np.log(self.measured).std()) * len(self.measured) ** -0.2
            paces = source.choice(logarithms, count) + source.normal(0.0, width, count)
            return [float(pace) for pace in np.exp(paces)]
        deviation = math.log(ASSUMED_FACTOR) / _NINE_IN_TEN_DEVIATIONS
        factors = np.exp(source.normal(0.0, deviation, count))
        return [self.step_seconds * float(factor) for factor in factors]


def speedups(most_devices: int, doubling: float) -> dict[int, float]:
    """Return how many times as fast as on one device a trial is, by devices.

    Args:
        most_devices: the most devices of a trial.
        doubling: how many times as fast twice the devices make it, 1 to 2.
    """
    found, devices = {1: 1.0}, 1
    while devices < most_devices:
        before, added = found[devices], min(2 * devices, most_devices) / devices
        devices = min(2 * devices, most_devices)
        found[devices] = before * doubling ** math.log2(added)
    return found


def measured_doubling(rates: Sequence[Mapping[int, float]]) -> float | None:
    """Return how many times as fast twice the devices make a trial; None if no trial tells.

    The median over the trials that were measured on two numbers of devices or more, each from the
    fewest to the most.

    Args:
        rates: steps a second by devices, one mapping a trial.
    """
    found = []
    for by_devices in rates:
        few, many = min(by_devices, default=0), max(by_devices, default=0)
        if few < many:
            gain = by_devices[many] / by_devices[few]
            found.append(gain ** (1.0 / math.log2(many / few)))
    return min(max(float(np.median(found)), 1.0), 2.0) if found else None


def drawn_curves(
    count: int, steps: int, rungs: Collection[float], pace: Pace, seed: int
) -> tuple[Curve, ...]:
    """Trials of so many steps, that report at each rung and a few times in between."""
    source = np.random.default_rng(seed)
    epochs = _reports(steps, rungs)
    lengths = [epochs[0], *(end - start for start, end in pairwise(epochs))]
    ranks = source.permutation(count).tolist()
    paces = pace.draw(count, source)
    return tuple(
        Curve(
            trial=str(number),
            parameters={},
            epochs=epochs,
            values=(float(rank),) * len(epochs),
            end_seconds=tuple(accumulate(step_seconds * length for length in lengths)),
        )
        for number, (rank, step_seconds) in enumerate(zip(ranks, paces, strict=True))
    )


def _reports(steps: int, rungs: Collection[float]) -> tuple[float, ...]:
    every = max(steps // _MOST_REPORTS, 1)
    between = (float(step) for step in range(every, steps, every))
    return tuple(sorted({*between, *(rung for rung in rungs if rung < steps), float(steps)}))


def quantiles(values: Sequence[float]) -> tuple[float, float, float]:
    """What 5 %, half and 95 % of the values are at most."""
    low, median, high = np.quantile(np.array(values, dtype=float), (0.05, 0.5, 0.95)).tolist()
    return low, median, high
