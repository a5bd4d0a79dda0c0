from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.goodput.sibling_speeds import (
    Siblings,
    SpeedMeasurements,
    StudySizes,
    hyper_parameter_features,
    sibling_speeds,
    speedup,
)

DEVICES = np.array([1.0, 2.0, 4.0, 8.0])
SIZES = StudySizes(DEVICES, np.zeros(4, dtype=np.int64))
BATCHES = np.geomspace(1.0, 64.0, 13)
DRAWS = 40


def measured(rows: list[tuple[int, int, float]]) -> SpeedMeasurements:
    trial, size, rate = (list(column) for column in zip(*rows, strict=True)) if rows else ([],) * 3
    return SpeedMeasurements(
        np.array(trial, dtype=np.int64), np.array(size, dtype=np.int64), np.log(np.array(rate))
    )


def true_rate(batch: float) -> np.ndarray:
    """The larger the batch, the faster a trial is, and the better it scales."""
    return batch**0.5 * speedup(np.array(0.5 / batch), DEVICES)


def siblings(batches: np.ndarray = BATCHES, is_known: bool = True) -> Siblings:
    log_batch = np.log(batches) if is_known else np.full(len(batches), np.nan)
    features = hyper_parameter_features(batches[:, None])
    return Siblings(features, log_batch, list(range(100, 100 + len(batches))))


def rows_of(trials: list[int], sizes: range = range(4)) -> list[tuple[int, int, float]]:
    return [(t, size, float(true_rate(BATCHES[t])[size])) for t in trials for size in sizes]


def log_draws(rows: list[tuple[int, int, float]], is_known: bool = True) -> np.ndarray:
    speeds = sibling_speeds(siblings(is_known=is_known), SIZES, measured(rows), 0.0, DRAWS)
    return np.log(speeds)


TRUTH = np.log(np.array([true_rate(batch) for batch in BATCHES]))


def test_features_are_centred_and_of_unit_width() -> None:
    values = np.array([[1.0, 5.0, 3.0], [100.0, 5.0, np.nan], [10.0, 5.0, 7.0]])
    features = hyper_parameter_features(values)
    assert features.mean(axis=0) == pytest.approx([0.0, 0.0, 0.0])
    assert features[:, 0] == pytest.approx(np.array([-1.0, 1.0, 0.0]) * 1.5**0.5)
    assert (features[:, 1] == 0).all()
    assert features[1, 2] == 0


def test_synchronization_bounds_what_devices_gain() -> None:
    assert speedup(np.array(0.0), DEVICES) == pytest.approx(DEVICES)
    assert speedup(np.array(1.0), DEVICES) == pytest.approx(np.ones(4))
    assert (speedup(np.array(2.0), DEVICES)[1:] < 1).all()


def test_without_a_measurement_a_trial_has_the_expected_speed_on_one_device() -> None:
    draws = np.log(sibling_speeds(siblings(), SIZES, measured([]), 3.0, DRAWS))
    assert draws[:, :, 0].mean(axis=0) == pytest.approx(np.full(13, 3.0))
    assert draws[:, :, 0].std(axis=0).min() > 0.5


def test_two_sizes_of_one_trial_tell_how_all_scale_at_their_batches() -> None:
    """One trial in the middle was measured on one and on four devices, the others on one."""
    rows = [row for t in range(13) for row in rows_of([t], range(1))] + rows_of([6], range(2, 3))
    gain = TRUTH - TRUTH[:, :1]
    known, blind = (log_draws(some) for some in (rows, rows[:13]))
    told, guessed = (np.abs(np.median(x - x[:, :, :1], axis=0) - gain) for x in (known, blind))
    assert told.mean() < 0.25 * guessed.mean()
    assert told[:, 2].max() < 0.35


def test_without_batches_one_trial_tells_less_of_how_others_scale() -> None:
    rows = [row for t in range(13) for row in rows_of([t], range(1))] + rows_of([6], range(2, 3))
    spread = {
        is_known: (x - x[:, :, :1])[:, 1, 3].std()
        for is_known in (True, False)
        for x in [log_draws(rows, is_known)]
    }
    gain = TRUTH[1, 3] - TRUTH[1, 0]
    error = {
        is_known: abs(np.median((x - x[:, :, :1])[:, 1, 3]) - gain)
        for is_known in (True, False)
        for x in [log_draws(rows, is_known)]
    }
    assert error[True] < error[False]
    assert spread[True] > 0


def test_a_trial_between_its_siblings_is_like_them() -> None:
    draws = log_draws(rows_of(list(range(0, 13, 2))))
    error = np.abs(np.median(draws, axis=0) - TRUTH)[1::2]
    assert error.max() < 0.25


def test_more_siblings_tell_more() -> None:
    few, many = (log_draws(rows_of(list(range(0, 13, 2))[:n])).std(axis=0)[1::2] for n in (2, 7))
    assert many.mean() < 0.5 * few.mean()


def test_what_a_trial_measured_itself_counts_as_it_is() -> None:
    draws = log_draws([*rows_of([0, 2, 4]), (8, 1, 50.0)])
    assert draws[:, 0] == pytest.approx(np.tile(TRUTH[0], (DRAWS, 1)))
    assert draws[:, 8, 1] == pytest.approx(np.full(DRAWS, np.log(50.0)))
    assert draws[:, 8, 0].std() > 0


def test_a_trial_that_was_not_measured_may_be_far_slower_than_the_others() -> None:
    """Student's tails: more than a normal distribution would have beyond three deviations."""
    speeds = sibling_speeds(siblings(), SIZES, measured(rows_of([0, 2, 4])), 0.0, 2000)
    level = np.log(speeds[:, 7, 0])
    assert (np.abs(level - level.mean()) > 3 * level.std()).mean() > 2 * 0.0027


def test_a_kind_that_nobody_measured_is_less_known() -> None:
    sizes = StudySizes(np.array([1.0, 2.0, 1.0, 2.0]), np.array([0, 0, 1, 1]))
    rows = [(t, 0, float(BATCHES[t] ** 0.5)) for t in range(13)]
    draws = np.log(sibling_speeds(siblings(), sizes, measured(rows), 0.0, DRAWS))
    assert draws[:, :, 0].std() < draws[:, :, 2].std() + 1e-9
    assert draws[:, 3, 0].std() == pytest.approx(0.0, abs=1e-9)
    assert draws[:, 3, 2].std() > 0.3


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.integers(0, 3), st.floats(1e-6, 1e6)),
        max_size=12,
        unique_by=lambda row: row[:2],
    )
)
def test_draws_are_finite_repeatable_and_devices_gain_at_most_their_number(
    rows: list[tuple[int, int, float]],
) -> None:
    draws = log_draws(rows)
    assert draws.shape == (DRAWS, 13, 4)
    assert np.isfinite(draws).all()
    assert np.array_equal(draws, log_draws(rows))
    seen = {trial for trial, _, _ in rows}
    for trial in set(range(13)) - seen:
        each = np.exp(draws[:, trial]) / DEVICES
        assert (each <= each[:, :1] * (1 + 1e-9)).all()


def test_a_trial_keeps_its_draws_whoever_else_there_is() -> None:
    rows = measured([(0, 0, 1.0), (1, 0, 2.0)])
    two = Siblings(np.zeros((3, 0)), np.zeros(3), [7, 8, 9])
    more = Siblings(np.zeros((4, 0)), np.zeros(4), [7, 8, 9, 10])
    before, after = (sibling_speeds(some, SIZES, rows, 0.0, 8) for some in (two, more))
    assert after[:, :3] == pytest.approx(before)
