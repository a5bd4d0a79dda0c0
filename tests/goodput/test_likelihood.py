from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from autoscaler.goodput.coordinates import to_coordinates
from autoscaler.goodput.formulas import DATA_PARALLEL, predictor_of
from autoscaler.goodput.likelihood import (
    FitRows,
    information,
    linearise,
    log_predictions,
    measurements,
    misfit,
    robust_weights,
    score,
)
from autoscaler.goodput.throughput import FloatArray
from tests.goodput.cases import ALL_SIZES, PLANTED, clean, noisy, observation, theta_of

AT = to_coordinates(theta_of(PLANTED))
GOOD = observation((2, 4, 16, 1), 0.5, 0.1)


def _data() -> FitRows:
    generator = np.random.default_rng(5)
    observations = noisy(predictor_of(PLANTED), ALL_SIZES, [8, 64], generator)
    accumulating = clean(PLANTED, [(1, 1), (1, 4), (2, 8)], [16], accumulation=3)
    return measurements(observations + accumulating, DATA_PARALLEL)


def _differences(function: object, at: FloatArray, width: float = 1e-6) -> FloatArray:
    assert callable(function)
    steps = width * np.eye(7)
    return np.stack([(function(at + s) - function(at - s)) / (2 * width) for s in steps], axis=-1)


@pytest.mark.parametrize("gamma_coordinate", [-6.0, -1.0, 3.0])
def test_the_jacobian_is_the_derivative(gamma_coordinate: float) -> None:
    data, at = _data(), AT.copy()
    at[6] = gamma_coordinate
    _, jacobian = linearise(data, DATA_PARALLEL, at)
    differences = _differences(lambda x: -linearise(data, DATA_PARALLEL, x)[0], at)
    assert jacobian == pytest.approx(differences, rel=1e-5, abs=1e-7)


def test_residuals_are_measured_less_predicted() -> None:
    data = _data()
    residuals, _ = linearise(data, DATA_PARALLEL, AT)
    expected = data.log_seconds - log_predictions(data, predictor_of(PLANTED))
    assert residuals == pytest.approx(expected)
    exact = measurements(clean(PLANTED, ALL_SIZES, [8, 64], accumulation=2), DATA_PARALLEL)
    assert linearise(exact, DATA_PARALLEL, AT)[0] == pytest.approx(0.0, abs=1e-9)


def test_the_score_is_the_derivative_of_the_misfit() -> None:
    data = _data()
    residuals, jacobian = linearise(data, DATA_PARALLEL, AT)
    weights = robust_weights(data, residuals)
    slope = _differences(
        lambda x: -0.5 * misfit(data, weights, linearise(data, DATA_PARALLEL, x)[0]), AT
    )
    assert score(data, weights, jacobian, residuals) == pytest.approx(slope, rel=1e-4, abs=1e-4)


def test_what_groups_share_is_integrated_out() -> None:
    """Against the covariance of the rows written out."""
    data = _data()
    residuals, jacobian = linearise(data, DATA_PARALLEL, AT)
    weights = robust_weights(data, residuals)
    group_variance = 1.0 / (1.0 / weights.shared_variance - data.groups @ weights.rows)
    assert (group_variance >= data.group_variance * (1.0 - 1e-9)).all()
    covariance = np.diag(1.0 / weights.rows)
    covariance += data.groups.T @ np.diag(group_variance) @ data.groups
    inverse = np.linalg.inv(covariance)
    assert misfit(data, weights, residuals) == pytest.approx(residuals @ inverse @ residuals)
    expected = jacobian.T @ inverse @ jacobian
    assert information(data, weights, jacobian) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_every_row_belongs_to_one_group() -> None:
    data = _data()
    assert data.groups.sum(axis=0) == pytest.approx(1.0)
    assert data.sizes == ALL_SIZES
    assert data.groups.shape == (len(data.sizes) + 3, len(data.log_seconds))


def test_one_device_is_one_measurement() -> None:
    data = measurements([observation((1, 1, 16, 1), 0.5, 0.01)], DATA_PARALLEL)
    assert data.log_seconds == pytest.approx([math.log(0.5)])


def test_an_outlier_gets_next_to_no_weight() -> None:
    observations = clean(PLANTED, ALL_SIZES, [8, 64])
    spoilt = replace(observations[-1], step_seconds=10 * observations[-1].step_seconds)
    data = measurements([*observations[:-1], spoilt], DATA_PARALLEL)
    weights = robust_weights(data, linearise(data, DATA_PARALLEL, AT)[0])
    assert weights.rows[len(observations) - 1] < 0.02 * np.median(weights.rows)


def test_few_steps_say_less_and_many_not_without_bound() -> None:
    def weight(steps: int) -> float:
        data = measurements([replace(GOOD, steps=steps)], DATA_PARALLEL)
        return float(1.0 / data.variance[0])

    assert weight(1) < 0.2 * weight(100)
    assert weight(100) == pytest.approx(weight(10**9), rel=0.1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("step_seconds", math.nan),
        ("step_seconds", 0.0),
        ("step_seconds", -1.0),
        ("step_seconds", math.inf),
        ("sync_seconds", math.nan),
        ("sync_seconds", -0.1),
        ("sync_seconds", 0.5),
        ("device_batch", 0),
        ("accumulation", -1),
        ("instances", 0),
        ("devices", 1),
        ("steps", 0),
    ],
)
def test_what_can_not_have_been_measured_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{field}="):
        measurements([GOOD, replace(GOOD, **{field: value})], DATA_PARALLEL)
