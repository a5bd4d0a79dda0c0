from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.store.records.step_times import StepTimes, merged
from tests.conformance.store_examples import observation


def _after(reports: Iterable[float], known: StepTimes | None = None) -> StepTimes:
    """Return the times after reports of 10 s of training, one a second, with these step times."""
    times = known or StepTimes()
    for step_seconds in reports:
        steps = round(10.0 / step_seconds)
        times = times.with_more(observation(step_seconds, steps), times.updated_seconds + 1)
    return times


def test_noise_begins_no_era() -> None:
    times = _after([0.1, 0.115, 0.09, 0.12, 0.1, 0.085] * 20)
    assert (times.era, times.settled_seconds) == (0, pytest.approx(0.107, abs=0.002))
    assert times.step_seconds == pytest.approx(0.1, rel=0.1)


@given(st.lists(st.booleans(), max_size=30), st.floats(1.5, 100.0))
def test_slow_reports_that_stand_alone_begin_no_era(slow: list[bool], factor: float) -> None:
    times = _after([0.1, 0.1])
    for is_slow in slow:
        times = _after([0.1 * factor, 0.1] if is_slow else [0.1], times)
    assert times.era == 0
    assert times.settled_seconds == pytest.approx(0.1)


@pytest.mark.parametrize("factor", [0.2, 0.7, 1.4, 3.0, 10.0])
def test_two_reports_of_another_speed_begin_an_era(factor: float) -> None:
    times = _after([0.1 * factor] * 2, _after([0.1] * 10))
    assert times.era == 1
    assert times.step_seconds == pytest.approx(0.1 * factor)
    assert times.settled_seconds == times.step_seconds


def test_a_slow_drift_begins_an_era_once_it_has_gone_far_enough() -> None:
    reports = [0.1 * 1.01**turn for turn in range(60)]
    times = _after([*reports, *[reports[-1]] * 10])
    assert times.era in {1, 2}
    assert times.step_seconds == pytest.approx(reports[-1], rel=0.05)


def test_observations_of_one_report_do_not_confirm_each_other() -> None:
    times = _after([0.1, 0.1])
    for _ in range(20):
        times = times.with_more(observation(1.0, 5), 3.0)
    assert times.era == 0
    assert times.with_more(observation(1.0, 5), 4.0).era == 1


def test_a_change_of_speed_takes_five_seconds_of_training() -> None:
    times = _after([0.1, 0.1])
    for now_seconds in (3.0, 4.0, 5.0):
        times = times.with_more(observation(1.0, 1), now_seconds)
        assert times.era == 0
    assert times.with_more(observation(1.0, 2), 6.0).era == 1


def test_a_slow_first_report_is_replaced_without_an_era() -> None:
    times = _after([1.0, 0.1, 0.1])
    assert (times.era, times.settled_seconds) == (0, pytest.approx(0.1))
    assert times.step_seconds == pytest.approx(0.1)


def test_times_of_an_earlier_era_are_dropped_when_measured_again() -> None:
    before = _after([0.1] * 5)
    times = merged(before, 1, observation(0.3, 10), 9.0)
    assert (times.era, times.step_seconds, times.steps) == (1, 0.3, 10)
    assert merged(before, 0, observation(0.1, 10), 9.0).steps > 100
