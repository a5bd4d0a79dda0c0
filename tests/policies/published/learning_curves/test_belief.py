"""The filter and the posterior against the same with whole covariance matrices."""

from __future__ import annotations

import numpy as np
import pytest

from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.published.learning_curves import belief as curve_belief
from autoscaler.policies.published.learning_curves import filter as curve_filter
from autoscaler.policies.published.learning_curves.belief import (
    StudyPrior,
    TrialChoices,
    learn,
    posterior,
    sample,
)
from autoscaler.policies.published.learning_curves.filter import ReportStatistics, evidence_of
from autoscaler.policies.published.learning_curves.reports import (
    BinnedReports,
    ReportRows,
    Units,
    binned,
    scaled,
)
from autoscaler.policies.published.learning_curves.shapes import Shapes, shapes_of

TRIAL = 1


def reported() -> tuple[BinnedReports, Units]:
    """Three trials; the second one's reports lie unevenly, several of them in one bin."""
    generator = np.random.default_rng(0)
    progress = [np.arange(1.0, 31.0), np.array([1.0, 2, 5, 6, 7, 20, 21]), np.arange(1.0, 4.0)]
    trial = np.repeat(np.arange(3), [len(row) for row in progress])
    where = np.concatenate(progress)
    value = 0.8 - 0.5 * where**-0.7 + 0.02 * generator.standard_normal(len(where))
    reports = binned(ReportRows(trial, where, value), 3, 30.0)
    return reports, scaled(reports, None)


@pytest.fixture
def known() -> tuple[ReportStatistics, Shapes, FloatArray, FloatArray]:
    """Return the evidence of all trials, and the columns (B, 3 + M) and positions of one."""
    reports, units = reported()
    shapes = shapes_of(reports, units)
    held = reports.count[TRIAL] > 0
    place = reports.place[TRIAL, held]
    value = units.inward(reports.value[TRIAL, held])
    columns = [value, np.ones_like(place), shapes.drift(place), *shapes.at(place).T]
    return evidence_of(reports, units, shapes), shapes, np.stack(columns, axis=1), place


def covariance(error: int, place: FloatArray) -> FloatArray:
    """Return the covariance of the trial's reports, with noise as 1, by integration."""
    reports, _ = reported()
    counts = reports.count[TRIAL][reports.count[TRIAL] > 0]
    moments = np.linspace(place[0], place[-1], 20001)
    after = np.maximum(place[:, None] - moments, 0.0)
    level, slope = (after > 0).astype(float), 1.0 - np.exp(-after)
    rough, smooth = curve_filter.ROUGH[error], curve_filter.SMOOTH[error]
    rows = np.concatenate([rough * level, smooth * slope], axis=1)
    walked: FloatArray = (rows @ rows.T) * (moments[1] - moments[0])
    return walked + np.diag(1.0 / counts)


@pytest.mark.parametrize("error", range(len(curve_filter.ROUGH)))
def test_filtered_products_are_those_with_the_inverse_covariance(
    known: tuple[ReportStatistics, Shapes, FloatArray, FloatArray], error: int
) -> None:
    evidence, _, columns, place = known
    matrix = covariance(error, place)
    products = columns.T @ np.linalg.solve(matrix, columns)
    near = {"rel": 2e-3, "abs": 3e-5 * np.abs(products).max()}
    assert evidence.common[error, TRIAL] == pytest.approx(products[:3, :3], **near)
    assert evidence.mixed[error, :, TRIAL] == pytest.approx(products[:3, 3:], **near)
    assert evidence.square[error, TRIAL] == pytest.approx(np.diag(products)[3:], **near)
    assert evidence.log_determinant[error, TRIAL] == pytest.approx(
        np.linalg.slogdet(matrix)[1], abs=0.01
    )


def test_the_posterior_is_that_of_a_linear_regression(
    known: tuple[ReportStatistics, Shapes, FloatArray, FloatArray],
) -> None:
    evidence, shapes, columns, place = known
    mean = np.array([0.1, 0.2, 1.0])
    prior = np.array([[1.0, 0.1, 0.2], [0.1, 0.3, 0.0], [0.2, 0.0, 2.0]])
    choices = TrialChoices(np.array([1, 4]), np.array([0.05, 0.01]))
    shares = np.full(len(shapes.weight), 1.0 / len(shapes.weight))
    belief = StudyPrior(mean, prior, shares, choices, np.array([0.5, 0.5]))
    found = posterior(evidence, shapes, belief, np.array([TRIAL]))
    fits = []
    for choice, (error, noise) in enumerate(zip(choices.error, choices.noise, strict=True)):
        for shape in (0, 7, 20):
            rows = columns[:, [1, 2, 3 + shape]]
            whole = rows @ prior @ rows.T + noise**2 * covariance(int(error), place)
            off = columns[:, 0] - rows @ mean
            expected = mean + prior @ rows.T @ np.linalg.solve(whole, off)
            left = prior - prior @ rows.T @ np.linalg.solve(whole, rows @ prior)
            gain = found.gain[choice, 0, shape]
            level = found.level[choice, 0] - found.level_per_gain[choice, 0, shape] * gain
            drift = found.drift[choice, 0] - found.drift_per_gain[choice, 0, shape] * gain
            assert [level, drift, gain] == pytest.approx(expected, rel=0.01, abs=1e-3)
            assert found.gain_variance[choice, 0, shape] == pytest.approx(left[2, 2], rel=0.01)
            likelihood = -0.5 * (off @ np.linalg.solve(whole, off) + np.linalg.slogdet(whole)[1])
            fits.append(found.log_weight[choice, 0, shape] - likelihood)
    assert fits == pytest.approx([fits[0]] * len(fits), abs=0.05)


def test_what_is_usual_is_learnt_from_many_trials() -> None:
    generator = np.random.default_rng(1)
    where = np.arange(1.0, 31.0)
    level, gain = generator.normal(0.0, 1.0, (40, 1)), generator.normal(3.0, 0.3, (40, 1))
    noise = 0.05 * generator.standard_normal((40, 30))
    values = level + gain * (1.0 - np.exp(-where / 8.0)) + noise
    reports = binned(
        ReportRows(np.repeat(np.arange(40), 30), np.tile(where, 40), values.ravel()), 40, 30.0
    )
    units = scaled(reports, None)
    shapes = shapes_of(reports, units)
    belief = learn(evidence_of(reports, units, shapes), shapes, sample(reports))
    usual = 3.0 * (np.exp(-1 / 8.0) - np.exp(-30 / 8.0)) / units.scale
    gained = belief.mean[1] + belief.mean[2]
    assert gained == pytest.approx(usual, rel=0.1)
    likely = belief.choices.noise[np.argmax(belief.of_choices)] * units.scale
    assert 0.5 * 0.05 < likely < 2.0 * 0.05
    assert belief.covariance[2, 2] < 0.5 * curve_belief.DEVIATION[2] ** 2
