"""Parameters, observations and strategies that the tests of goodput share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from hypothesis import strategies as st

from autoscaler.domain.goodput import BatchBounds, StepParameters, ThroughputParameters
from autoscaler.domain.report import StepObservation
from autoscaler.goodput.formulas import DATA_PARALLEL, predictor_of
from autoscaler.goodput.likelihood import (
    BATCH_LOG_DEVIATION,
    ROW_LOG_DEVIATION,
    SIZE_LOG_DEVIATION,
)
from autoscaler.goodput.throughput import FloatArray, Predictor

KIND = "t4"
PLANTED = ThroughputParameters(0.02, 0.004, 0.3, 0.1, 0.12, 0.05, 1.6)
ALL_SIZES = (
    (1, 1), (1, 2), (1, 4), (1, 8), (2, 2), (2, 4), (2, 8), (3, 12), (4, 16), (4, 32), (8, 64),
)  # fmt: skip


def by_data(theta: FloatArray) -> Predictor:
    """Return the predictor of arrays of the seven parameters, (7,) or (K, 7)."""
    return Predictor(DATA_PARALLEL, theta)


def theta_of(parameters: StepParameters | Sequence[StepParameters]) -> FloatArray:
    """Return the parameters as an array, (p,) or (K, p)."""
    return predictor_of(parameters).theta


@st.composite
def parameters(draw: st.DrawFn) -> ThroughputParameters:
    seconds = [draw(st.floats(1e-6, 10.0)) for _ in range(6)]
    return ThroughputParameters(*seconds, gamma=draw(st.floats(1.0, 10.0)))


@st.composite
def batch_bounds(draw: st.DrawFn) -> BatchBounds:
    initial = draw(st.integers(1, 2000))
    return BatchBounds(
        initial=initial,
        maximum=initial + draw(st.integers(0, 20_000)),
        device_maximum=draw(st.integers(1, 500)),
        adaptive=draw(st.booleans()),
    )


def observation(
    place: tuple[int, int, int, int],
    step: float,
    sync: float = 0.0,
    steps: int = 1000,
    kind: str = KIND,
) -> StepObservation:
    """Return an observation at `place`: instances, devices, device batch and accumulation."""
    return StepObservation(kind, *place, step_seconds=step, sync_seconds=sync, steps=steps)


def clean(
    theta: StepParameters | FloatArray,
    sizes: Iterable[tuple[int, int]],
    batches: Sequence[int],
    accumulation: int = 0,
    kind: str = KIND,
) -> list[StepObservation]:
    """Return the observations of a machine that follows the formula exactly."""
    truth = by_data(theta) if isinstance(theta, np.ndarray) else predictor_of(theta)
    observations = []
    for instances, devices in sizes:
        for batch in batches:
            place = (instances, devices, batch, accumulation)
            step = float(truth.step_seconds(*place))
            alone = (accumulation + 1) * float(truth.compute_seconds(*place[:3]))
            observations.append(observation(place, step, max(step - alone, 0.0), kind=kind))
    return observations


def noisy(
    truth: Predictor,
    sizes: Sequence[tuple[int, int]],
    batches: Sequence[int],
    generator: np.random.Generator,
) -> list[StepObservation]:
    """Return the observations of a machine whose errors follow the likelihood."""
    of_size = dict(zip(sizes, SIZE_LOG_DEVIATION * generator.normal(size=len(sizes)), strict=True))
    of_batch = BATCH_LOG_DEVIATION * generator.normal(size=len(batches))
    observations = []
    for size in sizes:
        for batch, shared in zip(batches, of_batch, strict=True):
            of_step, of_compute = ROW_LOG_DEVIATION * generator.normal(size=2)
            compute = float(truth.compute_seconds(*size, batch)) * np.exp(shared + of_compute)
            step = float(truth.step_seconds(*size, batch, 0)) * np.exp(of_size[size] + of_step)
            waits = float(truth.sync_seconds(*size)) > 0
            sync = min(max(step - compute, 0.0), 0.999 * step) if waits else 0.0
            observations.append(observation((*size, batch, 0), step, sync, steps=10**6))
    return observations
