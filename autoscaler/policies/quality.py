"""How a model's quality goes on: curves fitted to what was measured of it so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.domain.report import Quality
from autoscaler.goodput.throughput import FloatArray

_LEAST_POINTS = 3
# Offsets and time constants that are tried, over the progress so far.
_SCALES = np.geomspace(0.01, 10.0, 16)


@dataclass(frozen=True, slots=True)
class QualityCurve:
    """``limit + size * shape(progress)``, of the one shape or the other.

    `scale_examples` is s of ``1 / (x + s)``, for convergence below linear, or, if `is_linear`, of
    ``exp(-x / s)``; `largest_change` is between two measurements.
    """

    limit: float
    size: float
    scale_examples: float
    is_linear: bool
    largest_change: float

    def value(self, progress_examples: float) -> float:
        """The metric at that progress."""
        at = np.array([progress_examples])
        return self.limit + self.size * float(_shape(at, self.scale_examples, self.is_linear)[0])

    def improvement(self, progress_examples: float, more_examples: float) -> float:
        """The change that so many more examples make, over the largest there was."""
        change = self.value(progress_examples + more_examples) - self.value(progress_examples)
        return abs(change) / self.largest_change


def fitted(history: Sequence[Quality], decay: float) -> QualityCurve | None:
    """The curve nearest to the measurements; None where they are too few or say nothing.

    Least squares with a weight of `decay` to the power of the age, in measurements. Whether the
    metric is to rise or to fall makes no difference.

    Source: Zhang et al., SLAQ (SoCC'17), section 3.1; its ``1 / (a k^2 + b k + c) + d`` without
    the square.
    """
    if len(history) < _LEAST_POINTS:
        return None
    at = np.array([each.progress_examples for each in history])
    metric = np.array([each.metric for each in history])
    largest = float(np.abs(np.diff(metric)).max())
    if largest == 0 or at[-1] <= 0:
        return None
    weights = np.sqrt(decay ** np.arange(len(at) - 1, -1, -1))
    best: tuple[float, QualityCurve] | None = None
    for is_linear in (False, True):
        for scale in (_SCALES * at[-1]).tolist():
            columns = np.stack([np.ones(len(at)), _shape(at, scale, is_linear)], axis=1)
            found, *_ = np.linalg.lstsq(columns * weights[:, None], metric * weights, rcond=None)
            error = float((((columns @ found - metric) * weights) ** 2).sum())
            if best is None or error < best[0]:
                limit, size = found.tolist()
                best = error, QualityCurve(limit, size, scale, is_linear, largest)
    return None if best is None else best[1]


def _shape(at: FloatArray, scale: float, is_linear: bool) -> FloatArray:
    found: FloatArray = np.exp(-at / scale) if is_linear else scale / (at + scale)
    return found
