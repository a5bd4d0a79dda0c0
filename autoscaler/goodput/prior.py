"""What is believed of a job's throughput on one kind of device before it has run there.

The constants are those of the measurements in docs/goodput.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.goodput.coordinates import to_coordinates
from autoscaler.goodput.formulas import DATA_PARALLEL, predictor_of
from autoscaler.goodput.throughput import FloatArray, Formula, Scale

# Seconds per example on one device: known from an earlier run, or not known at all.
EXAMPLE_LOG_DEVIATION = 0.7
UNKNOWN_EXAMPLE_SECONDS = 0.01
UNKNOWN_EXAMPLE_LOG_DEVIATION = 2.5
# A ring all-reduce moves every byte of the gradient about twice, at half the line rate.
BYTES_MOVED_PER_BYTE = 2.0
USABLE_BANDWIDTH = 0.5
# What links the devices of one instance at least: PCIe 3.0 x16. Links of their own go with fast
# networks; of what they do beyond, nobody says.
WITHIN_BYTES_PER_SECOND = 1e10
# Another kind of device: all seconds by one ratio, and each parameter by one of its own.
KIND_RATIO_LOG_DEVIATION = 0.8
KIND_SHAPE_LOG_DEVIATION = 0.8


@dataclass(frozen=True, slots=True, eq=False)
class ThroughputPrior:
    """A normal prior in the coordinates of `coordinates.py`, for one kind of device.

    The k-th draw is ``mean + inherited[k] + spread @ z_k`` with z_k standard normal, so that draws
    of two kinds that inherit one from the other belong together.

    Attributes:
        device_kind: the kind of device.
        formula: with p parameters.
        mean: (p,).
        spread: (p, F), a factor of the covariance of what is this kind's own.
        inherited: deviations (K, p) of another kind's draws from its point, if there are any.
    """

    device_kind: str
    formula: Formula
    mean: FloatArray
    spread: FloatArray
    inherited: FloatArray | None = None

    @property
    def covariance(self) -> FloatArray:
        """(p, p), positive definite."""
        own: FloatArray = self.spread @ self.spread.T
        if self.inherited is None:
            return own
        return own + self.inherited.T @ self.inherited / len(self.inherited)


def prior_for(
    device_kind: str,
    parameter_bytes: int,
    network_bytes_per_second: float,
    seconds_per_example: float | None = None,
    formula: Formula = DATA_PARALLEL,
) -> ThroughputPrior:
    """The prior of a job that has not been measured on any kind of device.

    `seconds_per_example` is what is known of one device at a large batch, from an earlier run.

    Raises:
        ValueError: an argument is not positive and finite.
    """
    _require_positive("parameter_bytes", parameter_bytes)
    _require_positive("network_bytes_per_second", network_bytes_per_second)
    example, example_deviation = UNKNOWN_EXAMPLE_SECONDS, UNKNOWN_EXAMPLE_LOG_DEVIATION
    if seconds_per_example is not None:
        _require_positive("seconds_per_example", seconds_per_example)
        example, example_deviation = seconds_per_example, EXAMPLE_LOG_DEVIATION
    moved = BYTES_MOVED_PER_BYTE * parameter_bytes / USABLE_BANDWIDTH
    across = moved / network_bytes_per_second
    within = moved / max(network_bytes_per_second, WITHIN_BYTES_PER_SECOND)
    beliefs = formula.beliefs(Scale(example, example_deviation, across, within))
    spread = np.diag([belief.deviation for belief in beliefs])
    for place, belief in enumerate(beliefs):
        if belief.follows is not None:
            spread[place, belief.follows] = spread[belief.follows, belief.follows]
    median = to_coordinates(np.array([belief.median for belief in beliefs]))
    return ThroughputPrior(device_kind, formula, median, spread)


def prior_from_kind(
    model: ThroughputModel, device_kind: str, speed_ratio: float
) -> ThroughputPrior:
    """The prior of a job that is measured on another kind: its scaling carries over.

    All seconds are those of `model` over `speed_ratio`, the speed of `device_kind` over that of
    the measured kind (Sia, section 3.3: ``thr_A(N) = thr_A(1) / thr_B(1) * thr_B(N)``).

    Raises:
        ValueError: `speed_ratio` is not positive and finite.
    """
    _require_positive("speed_ratio", speed_ratio)
    of_point = predictor_of(model.point)
    point = to_coordinates(of_point.theta)
    is_seconds = np.append(np.ones(len(point) - 1), 0.0)
    common = KIND_RATIO_LOG_DEVIATION * is_seconds[:, None]
    return ThroughputPrior(
        device_kind=device_kind,
        formula=of_point.formula,
        mean=point - np.log(speed_ratio) * is_seconds,
        spread=np.hstack([common, KIND_SHAPE_LOG_DEVIATION * np.eye(len(point))]),
        inherited=to_coordinates(predictor_of(model.draws).theta) - point,
    )


def _require_positive(name: str, value: float) -> None:
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"{name}={value}: must be positive and finite")
