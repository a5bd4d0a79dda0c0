from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.goodput.efficiency import efficiency, gain

noise_scales = st.one_of(
    st.floats(0, 1e12), st.just(math.inf), st.just(math.nan), st.floats(-1e9, 0)
)


@given(noise_scales, st.integers(1, 10**6), st.integers(0, 10**7))
def test_both_stay_in_their_ranges(noise: float, initial: int, beyond: int) -> None:
    batch = initial + beyond
    assert initial / batch * (1 - 1e-9) <= efficiency(noise, initial, batch) <= 1
    assert 1 <= gain(noise, initial, batch) <= batch / initial


@given(st.floats(0, 1e9), st.integers(1, 1000), st.integers(1000, 10**6))
def test_gain_is_adascales(noise: float, initial: int, batch: int) -> None:
    scale, ratio = batch / initial, noise / initial
    assert gain(noise, initial, batch) == pytest.approx((ratio + 1) / (ratio / scale + 1))


def test_no_noise_makes_more_examples_worth_nothing() -> None:
    assert efficiency(0.0, 100, 400) == pytest.approx(0.25)
    assert gain(0.0, 100, 400) == 1.0


def test_nothing_but_noise_makes_every_example_worth_the_same() -> None:
    assert efficiency(math.inf, 100, 400) == 1.0
    assert gain(math.inf, 100, 400) == 4.0


@pytest.mark.parametrize("unusable", [math.nan, -1e9, -math.inf])
def test_a_noise_scale_that_says_nothing_buys_no_larger_batch(unusable: float) -> None:
    """Published code clamps a noisy |G|^2 <= 0 to efficiency 1 at every batch size."""
    assert efficiency(unusable, 100, 400) == pytest.approx(0.25)


def test_arrays_broadcast() -> None:
    assert efficiency(np.ones(3)[:, None], 8, np.array([8, 16])).shape == (3, 2)
