"""Synchronisation that is hidden beside the backward pass, in part or nearly whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.goodput import ThroughputParameters
from autoscaler.domain.report import StepObservation
from autoscaler.goodput.fit import fit
from autoscaler.goodput.formulas import predictor_of
from autoscaler.goodput.prior import prior_for

TRUTH = ThroughputParameters(0.02, 0.001, 0.05, 0.01, 0.02, 0.005, gamma=1.2)
MEASURED = ((1, 1), (2, 2), (3, 3))


def observed(gamma: float, instances: int, batch: int) -> StepObservation:
    """Step times as training reports them: `sync_seconds` is what the step waits for."""
    predictor = predictor_of(replace(TRUTH, gamma=gamma))
    step = float(predictor.step_seconds(instances, instances, batch, 0))
    compute = float(predictor.compute_seconds(instances, instances, batch))
    return StepObservation("core", instances, instances, batch, 0, step, step - compute, 50)


@pytest.mark.parametrize(("gamma", "error"), [(1.05, 0.1), (1.5, 0.1), (3.0, 0.1), (8.0, 0.15)])
def test_sizes_never_measured_are_predicted_whatever_is_hidden(gamma: float, error: float) -> None:
    observations = [
        observed(gamma, instances, batch) for instances, _ in MEASURED for batch in (16, 32, 64)
    ]
    point = fit(observations, prior_for("core", 10_000_000, 1e9)).point
    predicted = predictor_of(point)
    for instances in (4, 6, 8):
        truth = observed(gamma, instances, 32)
        step = float(predicted.step_seconds(instances, instances, 32, 0))
        compute = float(predicted.compute_seconds(instances, instances, 32))
        assert step == pytest.approx(truth.step_seconds, rel=error), instances
        assert compute == pytest.approx(truth.compute_seconds, rel=0.05)
