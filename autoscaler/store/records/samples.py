"""Samples of a job's reports over time, thinned so that their number has an upper bound.

A sample is taken when the spacing since the last one has passed. Once there are `MOST_SAMPLES`,
every second one is deleted and the spacing doubles. A run of any length thus has between half and
all of `MOST_SAMPLES`, evenly spread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from autoscaler.domain.report import ReportSample, TrainingReport

MOST_SAMPLES: Final = 512
FIRST_SPACING_SECONDS: Final = 1.0

_LOSS: Final = "loss"
# A sample counts as due this much before its time, since reports do not come at exact intervals.
_EARLY_SHARE: Final = 0.05

Sample = TypeVar("Sample")


@dataclass(frozen=True, slots=True)
class SampleMark:
    """Time of a job's last sample, their spacing, and their number; None before the first."""

    sampled_seconds: float | None = None
    sample_spacing_seconds: float = FIRST_SPACING_SECONDS
    sample_count: int = 0

    def is_due(self, now_seconds: float) -> bool:
        """Return whether a report that arrives now is to be sampled, also after a clock jump."""
        if self.sampled_seconds is None:
            return True
        waited_seconds = abs(now_seconds - self.sampled_seconds)
        return waited_seconds >= self.sample_spacing_seconds * (1.0 - _EARLY_SHARE)

    @property
    def is_full(self) -> bool:
        """Whether every second sample has to go before a further one is taken."""
        return self.sample_count >= MOST_SAMPLES

    def thinned(self) -> SampleMark:
        """Return the mark after every second sample was deleted."""
        left = len(kept(range(self.sample_count)))
        return SampleMark(self.sampled_seconds, 2.0 * self.sample_spacing_seconds, left)

    def with_one_more(self, now_seconds: float) -> SampleMark:
        """Return the mark after a sample was taken now."""
        return SampleMark(now_seconds, self.sample_spacing_seconds, self.sample_count + 1)


def kept(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Return the samples that a thinning keeps: every second one, and the first."""
    return samples[::2]


def sample_of(report: TrainingReport, now_seconds: float) -> ReportSample:
    """Return the sample of a report. Numbers that are not finite are left out."""
    noise = report.noise
    return ReportSample(
        at_seconds=now_seconds,
        progress_examples=report.progress_examples,
        batch=report.batch.total,
        learning_rate=_finite(report.learning_rate),
        goodput=_finite(report.goodput_measured),
        noise_examples=None if noise is None else _finite(noise.examples),
        loss=_finite(report.metrics.get(_LOSS)),
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
