"""Priors of throughput parameters that hold before any measurement.

The constants were measured, see docs/goodput.md.
"""

from __future__ import annotations

from autoscaler.goodput.coordinates import gamma_slope
from autoscaler.goodput.throughput import ParameterPrior

# The constant part of a micro-step, in units of the seconds per example.
_OVERHEAD_EXAMPLES = 20.0
_OVERHEAD_LOG_DEVIATION = 1.5
_SYNC_LOG_DEVIATION = 0.8
# Time that each doubling of the devices adds to a sync, relative to a sync of two devices.
_GROWTH = 0.3
_GROWTH_LOG_DEVIATION = 1.0
_GAMMA = 1.5
_GAMMA_LOG_DEVIATION = 0.3

GAMMA_BELIEF = ParameterPrior(_GAMMA, _GAMMA_LOG_DEVIATION * _GAMMA / gamma_slope(_GAMMA))


def compute_priors(
    example_seconds: float, log_deviation: float
) -> tuple[ParameterPrior, ParameterPrior]:
    """Return the priors of parameters 0 and 1: overhead of a micro-step, and seconds per example.

    `log_deviation` is the standard deviation of the logarithm of `example_seconds`.
    """
    return (
        ParameterPrior(_OVERHEAD_EXAMPLES * example_seconds, _OVERHEAD_LOG_DEVIATION, follows=1),
        ParameterPrior(example_seconds, log_deviation),
    )


def sync_priors(seconds: float, place: int) -> tuple[ParameterPrior, ParameterPrior]:
    """Return the priors of the parameters at `place` and `place + 1` of a formula.

    They are the constant part of a sync, in seconds, and its growth per doubling of the devices.
    """
    return (
        ParameterPrior(seconds, _SYNC_LOG_DEVIATION),
        ParameterPrior(_GROWTH * seconds, _GROWTH_LOG_DEVIATION, follows=place),
    )
