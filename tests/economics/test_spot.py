from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.economics.spot import goodput_with_reclaims, price_with_refills


def array(*values: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array(values)


def test_one_of_two_is_missing_while_it_is_refilled() -> None:
    # One reclaim in 900 s, 100 s to refill: a tenth of the time one is missing.
    found = goodput_with_reclaims(array(90.0), array(50.0), array(1 / 900), array(100.0), array(9))
    assert found == pytest.approx([0.9 * 90 + 0.1 * 50 - 0.01 * 90])


def test_a_job_that_needs_all_stands_still_and_starts_again() -> None:
    found = goodput_with_reclaims(array(90.0), array(0.0), array(1 / 900), array(100.0), array(0))
    assert found == pytest.approx([81.0])


def test_each_refill_boots_at_the_price_of_one() -> None:
    found = price_with_refills(array(0.5), array(4.0), array(4 / 3600), array(180.0))
    assert found == pytest.approx([4 * 0.5 + 4 / 3600 * 180 * 0.5])


@given(
    st.floats(0.1, 1e4), st.floats(0.0, 1.0), st.floats(0.0, 10.0), st.floats(0.0, 1e4),
    st.floats(0.0, 100.0),
)  # fmt: skip
def test_reclaims_never_help_nor_take_more_than_there_is(
    goodput: float, share: float, reclaims: float, refill: float, pause: float
) -> None:
    less = goodput * share
    found = goodput_with_reclaims(
        array(goodput), array(less), array(reclaims), array(refill), array(pause)
    )
    assert 0 <= found[0] <= goodput * (1 + 1e-12)
    worse = goodput_with_reclaims(
        array(goodput), array(less), array(2 * reclaims), array(refill), array(pause)
    )
    assert worse[0] <= found[0] * (1 + 1e-12)
