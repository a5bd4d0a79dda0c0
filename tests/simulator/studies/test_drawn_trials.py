from __future__ import annotations

import numpy as np
import pytest

from autoscaler.simulator.studies.drawn_trials import Pace, measured_doubling, speedups


def levels(pace: Pace, studies: int = 100) -> np.ndarray:
    """Return the mean logarithm of the paces of each drawn study."""
    draws = [pace.draw(1000, np.random.default_rng(seed)) for seed in range(studies)]
    return np.log(draws).mean(axis=1)


def spreads(pace: Pace, studies: int) -> np.ndarray:
    """Return the standard deviation of the logarithm of the paces of each drawn study."""
    draws = [pace.draw(1000, np.random.default_rng(seed)) for seed in range(studies)]
    return np.log(draws).std(axis=1)


def test_few_earlier_trials_leave_the_level_of_a_study_open_and_many_do_not() -> None:
    measured = 0.5, 1.0, 2.0, 4.0
    few, many = (levels(Pace(1.0, measured * times), 400) for times in (1, 100))
    assert few.std() == pytest.approx(np.log(measured).std() / 2, rel=0.3)
    assert many.std() < 0.25 * few.std()
    assert many.mean() == pytest.approx(np.log(measured).mean(), abs=0.05)


def test_few_earlier_trials_leave_the_spread_of_a_study_open_and_many_do_not() -> None:
    measured = 0.5, 1.0, 2.0, 4.0
    few, many = (spreads(Pace(1.0, measured * times), 400) for times in (1, 100))
    assert np.median(few) == pytest.approx(np.log(measured).std(), rel=0.2)
    assert few.std() > 5.0 * many.std()
    assert many.mean() == pytest.approx(np.log(measured).std(), rel=0.05)


def test_one_earlier_trial_tells_the_level_of_the_others() -> None:
    level = levels(Pace(3.0, (3.0,)), 400)
    assert np.median(level) == pytest.approx(np.log(3.0), abs=0.1)
    assert 0.2 < level.std() < 1.0


def test_a_pace_that_nobody_measured_is_within_a_factor_of_two_nine_times_in_ten() -> None:
    draws = np.array(Pace(10.0).draw(4000, np.random.default_rng(2)))
    assert ((draws > 5.0) & (draws < 20.0)).mean() == pytest.approx(0.9, abs=0.02)


def test_twice_the_devices_are_so_many_times_as_fast() -> None:
    assert speedups(6, 1.8) == pytest.approx(
        {1: 1.0, 2: 1.8, 4: 3.24, 6: 3.24 * 1.8 ** np.log2(1.5)}
    )
    assert speedups(1, 2.0) == {1: 1.0}
    assert speedups(4, 1.0) == {1: 1.0, 2: 1.0, 4: 1.0}


def test_the_gain_of_twice_the_devices_is_the_median_of_trials_measured_on_two_sizes() -> None:
    rates = [{1: 1.0}, {1: 1.0, 4: 2.25}, {2: 3.0, 4: 4.8}, {1: 2.0, 2: 3.4}, {}]
    assert measured_doubling(rates) == pytest.approx(1.6)
    assert measured_doubling([{1: 1.0}, {}]) is None
    assert measured_doubling([{1: 2.0, 8: 1.0}]) == 1.0
