"""Priors of a job's throughput on a kind of device where it has not run.

The constants were measured, see docs/goodput.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.goodput.coordinates import to_coordinates
from autoscaler.goodput.formulas import DATA_PARALLEL, predictor_of
from autoscaler.goodput.throughput import FloatArray, Formula, Scale

# Log deviation of the seconds per example on one device: from an earlier run, or unknown.
EXAMPLE_LOG_DEVIATION = 0.7
UNKNOWN_EXAMPLE_SECONDS = 0.01
UNKNOWN_EXAMPLE_LOG_DEVIATION = 2.5
# A ring all-reduce moves each byte of the gradient about twice, at half the line rate.
BYTES_MOVED_PER_BYTE = 2.0
USABLE_BANDWIDTH = 0.5
# Least bandwidth between devices of one instance: PCIe 3.0 x16. Instances with faster links such
# as NVLink also have fast networks; the bandwidth of such links is not known.
WITHIN_BYTES_PER_SECOND = 1e10
# Transfer to another kind of device: log deviations of the common ratio of all seconds, and of
# each parameter's own ratio.
KIND_RATIO_LOG_DEVIATION = 0.8
KIND_SHAPE_LOG_DEVIATION = 0.8


@dataclass(frozen=True, slots=True, eq=False)
class ThroughputPrior:
    """A normal prior for one kind of device, in the coordinates of `coordinates.py`.

    The k-th draw is ``mean + inherited[k] + spread @ z_k`` with z_k standard normal. So the k-th
    draws of two kinds belong together if one kind inherits from the other.

    Attributes:
        device_kind: the kind of device.
        formula: a formula with p parameters.
        mean: (p,).
        spread: (p, F), a factor of the covariance that is specific to this kind.
        inherited: deviations (K, p) of another kind's draws from its point; None without one.
    """

    device_kind: str
    formula: Formula
    mean: FloatArray
    spread: FloatArray
    inherited: FloatArray | None = None

    @property
    def covariance(self) -> FloatArray:
        """The covariance (p, p), positive definite."""
        specific: FloatArray = self.spread @ self.spread.T
        if self.inherited is None:
            return specific
        return specific + self.inherited.T @ self.inherited / len(self.inherited)


def prior_for(
    device_kind: str,
    parameter_bytes: int,
    network_bytes_per_second: float,
    seconds_per_example: float | None = None,
    formula: Formula = DATA_PARALLEL,
) -> ThroughputPrior:
    """Return the prior of a job that has not been measured on any kind of device.

    `seconds_per_example` is the time on one device at a large batch in an earlier run; None if
    unknown.

    Raises:
        ValueError: an argument is not positive and finite.
    """
    _require_positive("parameter_bytes", parameter_bytes)
    _require_positive("network_bytes_per_second", network_bytes_per_second)
    example_seconds, example_deviation = UNKNOWN_EXAMPLE_SECONDS, UNKNOWN_EXAMPLE_LOG_DEVIATION
    if seconds_per_example is not None:
        _require_positive("seconds_per_example", seconds_per_example)
        example_seconds, example_deviation = seconds_per_example, EXAMPLE_LOG_DEVIATION
    moved_bytes = BYTES_MOVED_PER_BYTE * parameter_bytes / USABLE_BANDWIDTH
    across_seconds = moved_bytes / network_bytes_per_second
    within_seconds = moved_bytes / max(network_bytes_per_second, WITHIN_BYTES_PER_SECOND)
    beliefs = formula.beliefs(
        Scale(example_seconds, example_deviation, across_seconds, within_seconds)
    )
    spread = np.diag([belief.deviation for belief in beliefs])
    for row, belief in enumerate(beliefs):
        if belief.follows is not None:
            spread[row, belief.follows] = spread[belief.follows, belief.follows]
    median = to_coordinates(np.array([belief.median for belief in beliefs]))
    return ThroughputPrior(device_kind, formula, median, spread)


def prior_from_kind(
    model: ThroughputModel, device_kind: str, speed_ratio: float
) -> ThroughputPrior:
    """Return the prior of a job that was measured on another kind: its scaling carries over.

    All seconds are those of `model` divided by `speed_ratio`, the speed of `device_kind` over that
    of the measured kind (Sia, section 3.3: ``thr_A(N) = thr_A(1) / thr_B(1) * thr_B(N)``).

    Raises:
        ValueError: `speed_ratio` is not positive and finite.
    """
    _require_positive("speed_ratio", speed_ratio)
    point_predictor = predictor_of(model.point)
    point = to_coordinates(point_predictor.theta)
    is_seconds = np.ones(len(point))
    is_seconds[list(point_predictor.formula.ratios)] = 0.0
    common = KIND_RATIO_LOG_DEVIATION * is_seconds[:, None]
    return ThroughputPrior(
        device_kind=device_kind,
        formula=point_predictor.formula,
        mean=point - np.log(speed_ratio) * is_seconds,
        spread=np.hstack([common, KIND_SHAPE_LOG_DEVIATION * np.eye(len(point))]),
        inherited=to_coordinates(predictor_of(model.draws).theta) - point,
    )


def _require_positive(name: str, value: float) -> None:
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"{name}={value}: must be positive and finite")
