"""Random trials for the simulation of a study that has not run: paces and ranks are drawn.

The cost of a study depends on the paces of its trials and on how many survive, not on which.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

import numpy as np

from autoscaler.simulator.profiles.curves import RecordedCurve

# 9 in 10 paces are within this factor of the median, where none was measured.
ASSUMED_FACTOR: Final = 2.0
_NINE_IN_TEN_DEVIATIONS = 1.645
# Weight of the assumed deviation of paces, in trials.
_PRIOR_TRIALS = 3
_MOST_REPORTS = 20


@dataclass(frozen=True, slots=True)
class Pace:
    """Distribution of the seconds of a step on one device.

    Attributes:
        step_seconds: median.
        measured: seconds of a step of earlier trials; empty: the spread is assumed.
    """

    step_seconds: float
    measured: tuple[float, ...] = ()

    def draw(self, count: int, source: np.random.Generator) -> list[float]:
        """Return the seconds of a step of each trial of one simulated study, `count` of them.

        Logarithms of paces are normal. Their mean and deviation are drawn from what the measured
        paces leave open of them: the deviation is also worth `_PRIOR_TRIALS` trials of the assumed
        one (Gelman et al. 2013, section 3.3). So a study may be slower and more uneven than a few
        earlier trials. Without a measured pace mean and deviation are the assumed ones.
        """
        deviation = math.log(ASSUMED_FACTOR) / _NINE_IN_TEN_DEVIATIONS
        logarithms, trials = np.log(self.measured or (self.step_seconds,)), len(self.measured)
        mean = float(logarithms.mean())
        if trials:
            scatter = float(((logarithms - mean) ** 2).sum()) + _PRIOR_TRIALS * deviation**2
            freedom = trials - 1 + _PRIOR_TRIALS
            deviation = math.sqrt(scatter / float(source.chisquare(freedom)))
            mean += deviation / math.sqrt(trials) * float(source.normal())
        return [float(pace) for pace in np.exp(source.normal(mean, deviation, count))]


def speedups(most_devices: int, doubling: float) -> dict[int, float]:
    """Return the speed of a trial relative to one device, by number of devices.

    Args:
        most_devices: largest number of devices of a trial.
        doubling: speed-up by twice the devices, 1 to 2.
    """
    speeds, devices = {1: 1.0}, 1
    while devices < most_devices:
        before, added = speeds[devices], min(2 * devices, most_devices) / devices
        devices = min(2 * devices, most_devices)
        speeds[devices] = before * doubling ** math.log2(added)
    return speeds


def measured_doubling(rates: Sequence[Mapping[int, float]]) -> float | None:
    """Return the speed-up of a trial by twice the devices; None if none was measured.

    The median over the trials that were measured on two numbers of devices or more, each from the
    fewest to the most.

    Args:
        rates: steps a second by devices, one mapping a trial.
    """
    gains = []
    for by_devices in rates:
        few, many = min(by_devices, default=0), max(by_devices, default=0)
        if few < many:
            gain = by_devices[many] / by_devices[few]
            gains.append(gain ** (1.0 / math.log2(many / few)))
    return min(max(float(np.median(gains)), 1.0), 2.0) if gains else None


def drawn_curves(
    count: int, steps: int, rungs: Collection[float], pace: Pace, seed: int
) -> tuple[RecordedCurve, ...]:
    """Return the curves of `count` trials of `steps` steps, with reports at all rungs."""
    source = np.random.default_rng(seed)
    epochs = _reports(steps, rungs)
    lengths = [epochs[0], *(end - start for start, end in pairwise(epochs))]
    ranks = source.permutation(count).tolist()
    paces = pace.draw(count, source)
    return tuple(
        RecordedCurve(
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
    """Return the 5 %, 50 % and 95 % quantiles of the values."""
    low, median, high = np.quantile(np.array(values, dtype=float), (0.05, 0.5, 0.95)).tolist()
    return low, median, high
