"""Gradient statistics over a whole run, measured at several batch sizes.

They are as in `autoscaler.domain.goodput.NoiseScale`: of the initial batch size, whatever the
batch at which they were measured.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

# The largest noise scale, in initial batches. An estimate of |G|^2 that is too small to be told
# from 0 is published as 0 (Pollux, deepspeech2, 13 of 480 rows): efficiency is then 1 within
# 1e-4 at 100 initial batches, as in the published simulator, and nothing divides by 0.
LARGEST_NOISE_BATCHES: Final = 1e6


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """What was measured at the end of one epoch.

    `progress_batches` counts from the start of the run, in steps at the initial batch size;
    `metric` is that of the model, if it was noted.
    """

    progress_batches: float
    gradient_square: float
    gradient_variance: float
    metric: float | None = None


@dataclass(frozen=True, slots=True)
class GradientStatistics:
    """Statistics by epoch and batch: `squares[epoch][k]` is |G|^2 at ``batches[k]``.

    `batches` rise, and the first is the initial one. `epoch_end_examples` rise too. `metrics` are
    alike, or none where they were not noted throughout.
    """

    batches: tuple[int, ...]
    epoch_end_examples: tuple[float, ...]
    squares: tuple[tuple[float, ...], ...]
    variances: tuple[tuple[float, ...], ...]
    metrics: tuple[tuple[float, ...], ...] = ()

    def epoch(self, progress_examples: float) -> int:
        """The epoch that a run is in, from 0; past the end it is the last."""
        place = bisect_right(self.epoch_end_examples, progress_examples)
        return min(place, len(self.epoch_end_examples) - 1)

    def at(self, progress_examples: float, batch: float) -> tuple[float, float]:
        """|G|^2, above 0, and tr(Sigma) over the initial batch, in the current epoch.

        Linear between the batches measured, constant outside of them.
        """
        epoch = self.epoch(progress_examples)
        square = self._between(self.squares[epoch], batch)
        return square, self._between(self.variances[epoch], batch)

    def metric(self, epoch: int, batch: float) -> float | None:
        """That of the model at the end of an epoch, as `at` between the batches."""
        return self._between(self.metrics[epoch], batch) if self.metrics else None

    def _between(self, values: Sequence[float], batch: float) -> float:
        above = bisect_left(self.batches, batch)
        if above == 0:
            return values[0]
        if above == len(self.batches):
            return values[-1]
        below = above - 1
        part = (batch - self.batches[below]) / (self.batches[above] - self.batches[below])
        return (1.0 - part) * values[below] + part * values[above]


def statistics_of(runs: Mapping[int, Sequence[EpochEnd]]) -> GradientStatistics:
    """The statistics of runs at fixed batch sizes, all of as many epochs.

    An epoch ends where it did in the run that needed the least progress for it (Pollux's
    published simulator).
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
    found = tuple(tuple(end.metric for end in ends if end.metric is not None) for ends in epochs)
    is_whole = all(len(own) == len(ends) for own, ends in zip(found, epochs, strict=True))
    return found if is_whole else ()


def _square(end: EpochEnd) -> float:
    return max(end.gradient_square, end.gradient_variance / LARGEST_NOISE_BATCHES)
