from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from autoscaler.domain.goodput import NoiseScale
from autoscaler.goodput.draws import is_usable, noise_draws, normals, size_normals

NOISE = NoiseScale(
    initial_batch=32, gradient_square=0.5, gradient_variance=4.0, log_standard_deviation=0.3
)


@pytest.mark.parametrize(("draws", "columns"), [(32, 15), (32, 1), (33, 4), (2, 1)])
def test_columns_have_mean_0_variance_1_and_no_correlation(draws: int, columns: int) -> None:
    z = normals(draws, columns, "any")
    assert z.sum(axis=0) == pytest.approx(np.zeros(columns), abs=1e-9)
    assert z.T @ z / draws == pytest.approx(np.eye(columns), abs=1e-9)


def test_many_draws_are_normal() -> None:
    z = np.abs(normals(4000, 1, "any")[:, 0])
    assert np.mean(z < 1.0) == pytest.approx(0.6827, abs=0.02)
    assert np.mean(z < 2.0) == pytest.approx(0.9545, abs=0.02)


def test_a_single_draw_is_the_centre() -> None:
    assert normals(1, 3, "any").tolist() == [[0.0, 0.0, 0.0]]
    assert noise_draws(NOISE, 32, draws=1) == pytest.approx([256.0])


def test_no_draws_are_refused() -> None:
    with pytest.raises(ValueError, match="draws=0"):
        normals(0, 1, "any")


def test_normals_are_told_apart_by_key_and_seed_alone() -> None:
    assert np.array_equal(normals(32, 2, "a", 1), normals(32, 2, "a", 1))
    assert not np.allclose(normals(32, 2, "a", 1), normals(32, 2, "b", 1))
    assert not np.allclose(normals(32, 2, "a", 1), normals(32, 2, "a", 2))
    assert not np.allclose(size_normals(32, "t4", 1, 2), size_normals(32, "t4", 2, 2))


def test_shared_normals_can_not_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        normals(32, 2, "a")[0, 0] = 1.0


def test_noise_draws_have_the_median_and_spread_measured() -> None:
    logs = np.log(noise_draws(NOISE, 32))
    assert logs.mean() == pytest.approx(math.log(256.0))
    assert logs.std() == pytest.approx(0.3)


@pytest.mark.parametrize(
    "noise",
    [
        None,
        replace(NOISE, gradient_square=0.0),
        replace(NOISE, gradient_square=-1e-9),
        replace(NOISE, gradient_variance=-1.0),
        replace(NOISE, gradient_square=math.nan),
        replace(NOISE, gradient_variance=math.inf),
        replace(NOISE, log_standard_deviation=math.nan),
    ],
)
def test_noise_that_is_not_known_lies_around_the_initial_batch(noise: NoiseScale | None) -> None:
    """Published code clamps a noisy |G|^2 <= 0 to efficiency 1 at every batch size."""
    assert noise is None or not is_usable(noise)
    logs = np.log(noise_draws(noise, 32))
    assert logs.mean() == pytest.approx(math.log(32.0))
    assert logs.std() == pytest.approx(1.0)
