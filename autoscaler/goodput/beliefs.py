"""What is believed of the parameters of any throughput model before anything is measured.

The constants are those of the measurements in docs/goodput.md.
"""

from __future__ import annotations

from autoscaler.goodput.coordinates import gamma_slope
from autoscaler.goodput.throughput import Belief

# The constant part of a micro-step, in examples.
_OVERHEAD_EXAMPLES = 20.0
_OVERHEAD_LOG_DEVIATION = 1.5
_SYNC_LOG_DEVIATION = 0.8
# What a doubling of the devices adds to a sync, of what it takes with two.
_GROWTH = 0.3
_GROWTH_LOG_DEVIATION = 1.0
_GAMMA = 1.5
_GAMMA_LOG_DEVIATION = 0.3

GAMMA_BELIEF = Belief(_GAMMA, _GAMMA_LOG_DEVIATION * _GAMMA / gamma_slope(_GAMMA))


def compute_beliefs(example_seconds: float, log_deviation: float) -> tuple[Belief, Belief]:
    """Of parameters 0 and 1: the overhead of a micro-step, and its seconds an example."""
    return (
        Belief(_OVERHEAD_EXAMPLES * example_seconds, _OVERHEAD_LOG_DEVIATION, follows=1),
        Belief(example_seconds, log_deviation),
    )


def sync_beliefs(seconds: float, place: int) -> tuple[Belief, Belief]:
    """Of the parameters at `place` and after it: the constant of a sync, and its growth."""
    return (
        Belief(seconds, _SYNC_LOG_DEVIATION),
        Belief(_GROWTH * seconds, _GROWTH_LOG_DEVIATION, follows=place),
    )
