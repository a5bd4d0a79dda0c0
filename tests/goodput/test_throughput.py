from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.goodput import ThroughputParameters
from autoscaler.goodput.formulas import parameters_of, predictor_of
from tests.goodput.cases import PLANTED, by_data, parameters, theta_of


@pytest.mark.parametrize(
    ("instances", "devices", "sync"),
    [
        (1, 1, 0.0),
        (1, 2, 0.12),
        (1, 4, 0.12 + 0.05),
        (1, 8, 0.12 + 2 * 0.05),
        (2, 2, 0.3),
        (2, 8, 0.3 + 2 * 0.1),
        (4, 6, 0.3 + 0.1 * math.log2(3)),
    ],
)
def test_step_is_the_formula_written_out(instances: int, devices: int, sync: float) -> None:
    theta = theta_of(PLANTED)
    compute = 0.02 + 0.004 * 32
    expected = 3 * compute + (compute**1.6 + sync**1.6) ** (1 / 1.6)
    assert float(by_data(theta).sync_seconds(instances, devices)) == pytest.approx(sync)
    assert float(by_data(theta).step_seconds(instances, devices, 32, 3)) == pytest.approx(expected)


def test_shapes_are_draws_then_configurations() -> None:
    theta = theta_of([PLANTED] * 5)
    sizes = np.array([1, 2, 4])
    assert by_data(theta).compute_seconds(1, 1, 8).shape == (5,)
    assert by_data(theta).compute_seconds(1, 1, sizes).shape == (5, 3)
    assert by_data(theta).sync_seconds(1, sizes).shape == (5, 3)
    assert by_data(theta[0]).step_seconds(1, 1, 8, 0).shape == ()
    assert by_data(theta[0]).step_seconds(sizes, sizes, 8, 0).shape == (3,)
    by_batch = by_data(theta).step_seconds(sizes[:, None], sizes[:, None], np.ones((3, 7)), 0)
    assert by_batch.shape == (5, 3, 7)


@given(parameters(), st.integers(1, 64), st.integers(1, 8), st.integers(1, 4096))
def test_a_step_lies_between_full_overlap_and_none(
    theta: ThroughputParameters, instances: int, per_instance: int, batch: int
) -> None:
    array, devices = theta_of(theta), instances * per_instance
    compute = float(by_data(array).compute_seconds(1, 1, batch))
    sync = float(by_data(array).sync_seconds(instances, devices))
    step = float(by_data(array).step_seconds(instances, devices, batch, 2))
    assert 2 * compute + max(compute, sync) <= step * (1 + 1e-12)
    assert step <= (3 * compute + sync) * (1 + 1e-12)


@given(parameters(), st.integers(1, 32))
def test_more_devices_never_synchronise_faster(theta: ThroughputParameters, devices: int) -> None:
    within = predictor_of(theta).sync_seconds(1, np.array([devices, devices + 1]))
    across = predictor_of(theta).sync_seconds(2, np.array([devices + 1, devices + 2]))
    assert within[0] <= within[1]
    assert across[0] <= across[1]


def test_powers_that_would_overflow_do_not() -> None:
    theta = theta_of(replace(PLANTED, alpha_across_seconds=1e200, gamma=10.0))
    assert float(by_data(theta).step_seconds(2, 2, 1, 0)) == pytest.approx(1e200)


@given(st.lists(parameters(), min_size=1, max_size=4))
def test_arrays_hold_the_parameters(several: list[ThroughputParameters]) -> None:
    assert parameters_of(predictor_of(several)) == tuple(several)
    assert parameters_of(predictor_of(several[0])) == (several[0],)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"alpha_across_seconds": math.nan}, "alpha_across_seconds=nan"),
        ({"beta_within_seconds_per_doubling": -1.0}, "beta_within_seconds_per_doubling=-1.0"),
        ({"gamma": 0.5}, "gamma=0.5"),
        (
            {"alpha_compute_seconds": 0.0, "beta_compute_seconds_per_example": 0.0},
            "alpha_compute",
        ),
    ],
)
def test_parameters_that_can_not_be_are_refused(change: dict[str, float], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        theta_of(replace(PLANTED, **change))
