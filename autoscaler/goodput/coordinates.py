"""Coordinates without bounds for the parameters of a formula, in which priors are normal.

Those of seconds are logarithms; the last one, of gamma in [1, 10], is x in
``1 + 9 / (1 + exp(-x))``.
"""

from __future__ import annotations

import numpy as np

from autoscaler.goodput.throughput import FloatArray

GAMMA_MINIMUM = 1.0
GAMMA_MAXIMUM = 10.0
# Parameters of 0 are legal but have no logarithm: what no clock resolves stands for them.
SMALLEST_SECONDS = 1e-12
SMALLEST_SHARE = 1e-6


def to_coordinates(theta: FloatArray) -> FloatArray:
    """Coordinates (..., p) of parameters (..., p)."""
    share = (theta[..., -1:] - GAMMA_MINIMUM) / (GAMMA_MAXIMUM - GAMMA_MINIMUM)
    share = np.clip(share, SMALLEST_SHARE, 1.0 - SMALLEST_SHARE)
    seconds = np.log(np.maximum(theta[..., :-1], SMALLEST_SECONDS))
    return np.concatenate([seconds, np.log(share / (1.0 - share))], axis=-1)


def to_theta(coordinates: FloatArray) -> FloatArray:
    """Parameters (..., p) of coordinates (..., p)."""
    return np.concatenate([np.exp(coordinates[..., :-1]), _gamma(coordinates[..., -1:])], axis=-1)


def gamma_slope(gamma: float) -> float:
    """The derivative of gamma by its coordinate."""
    width = GAMMA_MAXIMUM - GAMMA_MINIMUM
    return (gamma - GAMMA_MINIMUM) * (GAMMA_MAXIMUM - gamma) / width


def _gamma(coordinate: FloatArray) -> FloatArray:
    """Gamma, by the hyperbolic tangent: the exponential would overflow far from 0."""
    middle, half = (GAMMA_MAXIMUM + GAMMA_MINIMUM) / 2, (GAMMA_MAXIMUM - GAMMA_MINIMUM) / 2
    gamma: FloatArray = middle + half * np.tanh(coordinate / 2)
    return gamma
