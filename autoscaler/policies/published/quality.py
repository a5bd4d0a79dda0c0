"""Extrapolation of a training metric by curves fitted to its reports so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.domain.report import Quality
from autoscaler.goodput.throughput import FloatArray

_LEAST_POINTS = 3
# Offsets and time constants of the fit, relative to the progress so far.
_SCALES = np.geomspace(0.01, 10.0, 16)


@dataclass(frozen=True, slots=True)
class QualityCurve:
    """``limit + size * shape(progress)``.

    Attributes:
        limit: value that the metric approaches.
        size: factor of the shape.
        scale_examples: s of the shape ``s / (x + s)`` (sublinear convergence), or of ``exp(-x /
            s)`` if `is_linear`.
        is_linear: whether convergence is linear.
        largest_change: largest change between two reports.
    """

    limit: float
    size: float
    scale_examples: float
    is_linear: bool
    largest_change: float

    def value(self, progress_examples: float) -> float:
        """Return the metric at that progress."""
        at = np.array([progress_examples])
        return self.limit + self.size * float(_shape(at, self.scale_examples, self.is_linear)[0])

    def improvement(self, progress_examples: float, more_examples: float) -> float:
        """Return the absolute change by `more_examples`, over the largest change so far."""
        change = self.value(progress_examples + more_examples) - self.value(progress_examples)
        return abs(change) / self.largest_change


def fitted(history: Sequence[Quality], decay: float) -> QualityCurve | None:
    """Return the least-squares curve; None without three reports, a change and progress.

    A report of age k, in reports, has weight ``decay ** k``. The direction of the metric does not
    matter.

    Source: Zhang et al., SLAQ (SoCC'17), section 3.1; its ``1 / (a k^2 + b k + c) + d`` without
    the square.
    """
    if len(history) < _LEAST_POINTS:
        return None
    progress = np.array([report.progress_examples for report in history])
    metric = np.array([report.metric for report in history])
    largest_change = float(np.abs(np.diff(metric)).max())
    if largest_change == 0 or progress[-1] <= 0:
        return None
    weights = np.sqrt(decay ** np.arange(len(progress) - 1, -1, -1))
    best: tuple[float, QualityCurve] | None = None
    for is_linear in (False, True):
        for scale in (_SCALES * progress[-1]).tolist():
            columns = np.stack(
                [np.ones(len(progress)), _shape(progress, scale, is_linear)], axis=1
            )
            coefficients, *_ = np.linalg.lstsq(
                columns * weights[:, None], metric * weights, rcond=None
            )
            error = float((((columns @ coefficients - metric) * weights) ** 2).sum())
            if best is None or error < best[0]:
                limit, size = coefficients.tolist()
                best = error, QualityCurve(limit, size, scale, is_linear, largest_change)
    return None if best is None else best[1]


def _shape(progress: FloatArray, scale: float, is_linear: bool) -> FloatArray:
    """Return the shape at each progress, 1 at the start and 0 in the limit."""
    shape: FloatArray = np.exp(-progress / scale) if is_linear else scale / (progress + scale)
    return shape
