"""Gradient statistics over a whole run, measured at several batch sizes.

They refer to the initial batch size, as in `autoscaler.domain.goodput.NoiseScale`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

# Largest noise scale, in initial batches. Pollux publishes a |G|^2 near 0 as 0 (deepspeech2, 13
# of 480 rows). With this bound efficiency is 1 within 1e-4 at 100 initial batches, as in their
# simulator, and no division by 0 occurs.
LARGEST_NOISE_BATCHES: Final = 1e6


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """Measurements at the end of one epoch.

    `progress_batches` counts steps at the initial batch size from the start of the run. `metric`
    is the model's; None if it was not recorded.
    """

    progress_batches: float
    gradient_square: float
    gradient_variance: float
    metric: float | None = None


@dataclass(frozen=True, slots=True)
class GradientStatistics:
    """Statistics by epoch and batch: `squares[epoch][k]` is |G|^2 at ``batches[k]``.

    `variances` has the same shape. `batches` are increasing from the initial one;
    `epoch_end_examples` are increasing too. `metrics` has that shape too; empty if a metric is
    missing.
    """

    batches: tuple[int, ...]
    epoch_end_examples: tuple[float, ...]
    squares: tuple[tuple[float, ...], ...]
    variances: tuple[tuple[float, ...], ...]
    metrics: tuple[tuple[float, ...], ...] = ()

    def epoch(self, progress_examples: float) -> int:
        """Return the current epoch of a run, from 0; past the end, the last epoch."""
        place = bisect_right(self.epoch_end_examples, progress_examples)
        return min(place, len(self.epoch_end_examples) - 1)

    def at(self, progress_examples: float, batch: float) -> tuple[float, float]:
        """Return |G|^2, above 0, and tr(Sigma) over the initial batch, in the current epoch.

        Values are linear between measured batches and constant outside.
        """
        epoch = self.epoch(progress_examples)
        square = self._interpolated(self.squares[epoch], batch)
        return square, self._interpolated(self.variances[epoch], batch)

    def metric(self, epoch: int, batch: float) -> float | None:
        """Return the model's metric at the end of an epoch; None if not recorded.

        It is interpolated between batches as in `at`.
        """
        return self._interpolated(self.metrics[epoch], batch) if self.metrics else None

    def _interpolated(self, values: Sequence[float], batch: float) -> float:
        above = bisect_left(self.batches, batch)
        if above == 0:
            return values[0]
        if above == len(self.batches):
            return values[-1]
        below = above - 1
        part = (batch - self.batches[below]) / (self.batches[above] - self.batches[below])
        return (1.0 - part) * values[below] + part * values[above]


def statistics_of(runs: Mapping[int, Sequence[EpochEnd]]) -> GradientStatistics:
    """Return the statistics of runs at fixed batch sizes with equally many epochs.

    An epoch ends at the least progress of all runs at its end (Pollux's published simulator).
    """
    batches = tuple(sorted(runs))
    epochs = list(zip(*(runs[batch] for batch in batches), strict=True))
    return GradientStatistics(
        batches=batches,
        epoch_end_examples=tuple(
            batches[0] * min(end.progress_batches for end in ends) for ends in epochs
        ),
        squares=tuple(tuple(_square(end) for end in ends) for ends in epochs),
        variances=tuple(tuple(end.gradient_variance for end in ends) for ends in epochs),
        metrics=_metrics(epochs),
    )


def _metrics(epochs: Sequence[Sequence[EpochEnd]]) -> tuple[tuple[float, ...], ...]:
    metrics = tuple(tuple(end.metric for end in ends if end.metric is not None) for ends in epochs)
    is_whole = all(
        len(metrics_of_epoch) == len(ends)
        for metrics_of_epoch, ends in zip(metrics, epochs, strict=True)
    )
    return metrics if is_whole else ()


def _square(end: EpochEnd) -> float:
    return max(end.gradient_square, end.gradient_variance / LARGEST_NOISE_BATCHES)
