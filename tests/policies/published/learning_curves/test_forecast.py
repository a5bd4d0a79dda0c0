from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.domain.errors import CurveError
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.published.learning_curves.forecast import (
    Curve,
    Study,
    forecast,
)

EPOCHS = np.arange(1.0, 41.0)


def power_laws(trials: int, seed: int = 0, noise: float = 0.005) -> FloatArray:
    """Accuracies that rise by power laws, (trials, 40)."""
    generator = np.random.default_rng(seed)
    best = generator.uniform(0.6, 0.9, (trials, 1))
    gain = generator.uniform(0.2, 0.5, (trials, 1))
    power = generator.uniform(0.4, 1.2, (trials, 1))
    values: FloatArray = best - gain * EPOCHS**-power
    return values + noise * generator.standard_normal(values.shape)


def study(values: FloatArray, reports: int, maximize: bool = True) -> Study:
    """The first trial after some reports, the others after all of theirs."""
    running = Curve(EPOCHS[:reports], values[0, :reports])
    return Study([running, *(Curve(EPOCHS, row) for row in values[1:])], maximize)


def band(draws: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the 5 % and the 95 % quantile of each trial's draws, (T, H)."""
    low, high = np.quantile(draws, [0.05, 0.95], axis=1)
    return low, high


def width(draws: FloatArray) -> FloatArray:
    low, high = band(draws)
    return high - low


@pytest.mark.parametrize("reports", [1, 3, 9, 27])
@pytest.mark.parametrize("siblings", [2, 30])
def test_nine_bands_in_ten_hold_what_comes(reports: int, siblings: int) -> None:
    held = []
    for seed in range(4):
        values = power_laws(10 + siblings, seed)
        curves = [Curve(EPOCHS[:reports], row[:reports]) for row in values[:10]]
        curves += [Curve(EPOCHS, row) for row in values[10:]]
        low, high = band(forecast(Study(curves, maximize=True), range(10), EPOCHS[[-1]]))
        held += list((low[:, 0] <= values[:10, -1]) & (values[:10, -1] <= high[:, 0]))
    assert np.mean(held) >= 0.8


def test_siblings_make_the_band_narrower_than_all_that_they_span() -> None:
    values = power_laws(31)
    found = forecast(study(values, 9), [0], EPOCHS[[-1]])
    assert width(found)[0, 0] < 0.5 * np.ptp(values[1:, -1])
    assert np.median(found[0, :, 0]) == pytest.approx(values[0, -1], abs=0.02)


def test_what_siblings_did_late_is_expected_of_others() -> None:
    values = power_laws(12) + np.where(EPOCHS > 20, 0.3, 0.0)
    found = forecast(study(values, 15), [0], EPOCHS[[-1]])
    assert abs(np.median(found[0, :, 0]) - values[0, -1]) < 0.05


def test_one_report_and_no_sibling_make_a_wide_band() -> None:
    found = forecast(Study([Curve([1.0], [0.3])], maximize=True), [0], [40.0])
    low, high = band(found)
    assert low[0, 0] < 0.3 < 0.6 < high[0, 0]


def test_a_trial_without_reports_is_forecast_from_its_siblings() -> None:
    values = power_laws(20)
    siblings = [Curve(EPOCHS, row) for row in values]
    found = forecast(Study([*siblings, Curve([], [])], maximize=True), [20], EPOCHS[[-1]])
    low, high = band(found)
    assert low[0, 0] < np.median(values[:, -1]) < high[0, 0]
    assert width(found)[0, 0] > 0.5 * np.ptp(values[:, -1])


def test_nothing_known_at_all_is_a_forecast_too() -> None:
    found = forecast(Study([Curve([], [])], maximize=True), [0], [0.0, 10.0])
    assert np.isfinite(found).all()
    assert forecast(Study([], maximize=True), [], [1.0]).shape == (0, 256, 1)


def test_the_best_that_there_can_be_bounds_the_band() -> None:
    reports = Curve([1.0, 2.0, 3.0], [0.5, 0.7, 0.8])
    bounded = forecast(Study([reports], maximize=True, best=1.0), [0], [9.0, 100.0])
    free = forecast(Study([reports], maximize=True), [0], [9.0, 100.0])
    assert bounded.max() <= 1.0 < free.max()
    assert (width(bounded) < width(free)).all()


def test_where_a_trial_has_been_its_reports_are_the_forecast() -> None:
    values = power_laws(5)
    found = forecast(study(values, 9), [1, 0], [4.5, 9.0])
    expected = [[np.interp(4.5, EPOCHS, row), row[8]] for row in values[[1, 0]]]
    assert (found == np.array(expected)[:, None, :]).all()


def test_the_same_arguments_give_the_same_draws_whoever_else_is_asked_for() -> None:
    values = power_laws(6)
    some = Study([Curve(EPOCHS[:7], row[:7]) for row in values], maximize=True)
    alone = forecast(some, [4], EPOCHS[[-1]])
    together = forecast(some, [2, 4], EPOCHS[[-1]])
    assert np.array_equal(alone[0], together[1])
    assert not np.array_equal(alone, forecast(some, [4], EPOCHS[[-1]], seed=1))


def test_draws_of_two_trials_are_independent() -> None:
    some = Study([Curve(EPOCHS[:7], row[:7]) for row in power_laws(2)], maximize=True)
    draws = forecast(some, [0, 1], EPOCHS[[-1]], draws=2000)[:, :, 0]
    rank = draws.argsort(axis=1).argsort(axis=1)
    assert abs(np.corrcoef(rank)[0, 1]) < 0.1


def test_one_that_explodes_does_not_blind_the_others() -> None:
    values = power_laws(12)
    bad = 1.0 - np.exp(EPOCHS)
    calm = width(forecast(study(values, 9), [0], EPOCHS[[-1]]))
    values[5] = bad
    beside = forecast(study(values, 9), [0], EPOCHS[[-1]])
    assert width(beside)[0, 0] < 3.0 * calm[0, 0]
    assert np.median(beside[0, :, 0]) == pytest.approx(values[0, -1], abs=0.05)
    exploding = Study([Curve(EPOCHS[:5], bad[:5]), *study(values, 9).curves], maximize=True)
    improvement = np.maximum(forecast(exploding, [0, 1], EPOCHS[[-1]]) - 0.8, 0.0).mean(axis=1)
    assert improvement.max() < 0.5


def test_a_flat_curve_stays_where_it_is() -> None:
    flat = Curve(EPOCHS[:20], np.full(20, 0.1))
    low, high = band(forecast(Study([flat] * 3, maximize=True), [0], EPOCHS[[-1]]))
    assert low[0, 0] <= 0.1 <= high[0, 0]
    assert high[0, 0] - low[0, 0] < 0.02


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_trial_that_ends_in_no_number_has_diverged(value: float) -> None:
    values = power_laws(4)
    lost = Curve([1, 2, 3], [0.1, 0.2, value])
    found = forecast(Study([lost, *study(values, 9).curves], maximize=True), [0, 1], [40.0])
    assert np.isnan(found[0]).all() and np.isfinite(found[1]).all()


def test_reports_that_are_no_numbers_are_left_out() -> None:
    values = power_laws(4)
    holed = values[0, :9].copy()
    holed[[2, 5]] = np.nan
    kept = np.isfinite(holed)
    siblings = study(values, 9).curves[1:]
    found = [
        forecast(Study([curve, *siblings], maximize=True), [0], [40.0])
        for curve in (Curve(EPOCHS[:9], holed), Curve(EPOCHS[:9][kept], holed[kept]))
    ]
    assert np.array_equal(found[0], found[1])


def test_reports_may_come_in_any_order() -> None:
    shuffled = Curve([3.0, 1.0, 2.0], [0.3, 0.1, 0.2])
    assert shuffled.progress.tolist() == [1.0, 2.0, 3.0]
    assert shuffled.values.tolist() == [0.1, 0.2, 0.3]


# Of nothing but zeros there is no unit to be had.
reports = st.lists(
    st.integers(-1000, 1000).map(lambda value: value / 100.0), min_size=1, max_size=12
).filter(any)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(reports, min_size=1, max_size=5),
    st.floats(-3.0, 3.0).map(lambda power: 10.0**power),
    st.floats(-3.0, 3.0).map(lambda power: 10.0**power),
)
def test_neither_units_nor_direction_matter(
    rows: list[list[float]], of_value: float, of_progress: float
) -> None:
    some = Study([Curve(EPOCHS[: len(row)], row) for row in rows], maximize=True)
    other = Study(
        [Curve(of_progress * EPOCHS[: len(row)], -of_value * np.array(row)) for row in rows],
        maximize=False,
    )
    found = forecast(some, range(len(rows)), EPOCHS[[-1]])
    turned = forecast(other, range(len(rows)), of_progress * EPOCHS[[-1]])
    low, high = band(found)
    turned_low, turned_high = band(turned)
    size = max(abs(value) for row in rows for value in row) or 1.0
    for ours, theirs in ((low, turned_high), (high, turned_low)):
        assert theirs == pytest.approx(-of_value * ours, rel=1e-6, abs=1e-6 * of_value * size)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 20), st.booleans())
def test_the_further_ahead_the_less_is_known(seed: int, count: int, maximize: bool) -> None:
    values = power_laws(1, seed) if maximize else -power_laws(1, seed)
    found = forecast(study(values, count, maximize), [0], [count, count + 1, 2 * count + 1, 80])
    known, soon, later, last = width(found)[0]
    assert known == 0.0 < soon < 1.1 * later < 1.2 * last


@pytest.mark.parametrize("seed", range(4))
def test_the_more_is_reported_the_more_is_known(seed: int) -> None:
    values = power_laws(10, seed)
    widths = [
        width(forecast(study(values, count), [0], EPOCHS[[-1]]))[0, 0] for count in (1, 5, 25)
    ]
    assert widths[0] > widths[1] > widths[2]


@pytest.mark.parametrize(
    ("progress", "values", "says"),
    [
        ([1.0, 2.0], [0.1], "values: 1 given for 2 points of progress"),
        ([-1.0], [0.1], "progress: each must be a finite number"),
        ([np.nan], [0.1], "progress: each must be a finite number"),
        ([[1.0]], [[0.1]], "progress: must be one row"),
        ([1.0], ["good"], "values: must be numbers"),
    ],
)
def test_a_bad_curve_is_refused(progress: list[float], values: list[float], says: str) -> None:
    with pytest.raises(CurveError, match=says):
        Curve(progress, values)


def test_bad_questions_are_refused() -> None:
    some = Study([Curve([1.0], [0.1])], maximize=True)
    with pytest.raises(CurveError, match="trials: must be indices of the study's 1 trials"):
        forecast(some, [1], [2.0])
    with pytest.raises(CurveError, match="horizons: must be a row, or one for each of the 1"):
        forecast(some, [0], [[2.0], [3.0]])
    with pytest.raises(CurveError, match="horizons: each must be a finite number"):
        forecast(some, [0], [np.inf])
    with pytest.raises(CurveError, match="draws=0: must be at least 1"):
        forecast(some, [0], [2.0], draws=0)
