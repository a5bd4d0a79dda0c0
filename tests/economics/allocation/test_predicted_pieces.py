from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.goodput import NoiseCurve, NoiseScale
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.allocation.predicted_pieces import predicted_pieces
from tests.economics.cases import job

TOTAL = 1000.0
# The noise scale is a tenth of the progress, from 1 to 100.
CURVE = NoiseCurve((10.0, 1000.0), (1.0, 100.0))


def noise(examples: float) -> NoiseScale:
    return NoiseScale(64, 2.0, 2.0 * examples / 64, 0.3)


def at(progress: float, level: float = 1.0, **changes: object) -> JobSnapshot:
    """Return a job at a progress, whose noise scale is `level` times the curve's."""
    curve = float(np.interp(progress, CURVE.progress_examples, CURVE.noise_examples))
    plain = job(
        progress_examples=progress,
        remaining_examples=TOTAL - progress,
        noise=noise(level * curve),
        noise_curve=CURVE,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


@given(st.floats(0.0, TOTAL * (1 - 1e-6)))
def test_the_pieces_are_what_remains(progress: float) -> None:
    pieces = predicted_pieces(at(progress))
    assert pieces
    assert all(piece.work > 0 for piece in pieces)
    assert sum(piece.work for piece in pieces) == pytest.approx(TOTAL - progress)


def ends(progress: float) -> list[float]:
    """Return the ends of the pieces as shares of the total progress."""
    works = [piece.work for piece in predicted_pieces(at(progress))]
    return ((progress + np.cumsum(works)) / TOTAL).tolist()


@given(st.floats(0.0, 0.99), st.floats(0.0, 0.99))
def test_the_ends_stay_where_they_are_as_the_job_goes_on(share: float, other_share: float) -> None:
    early, late = sorted((share, other_share))
    remaining = [end for end in ends(early * TOTAL) if end > late + 1e-9]
    assert ends(late * TOTAL) == pytest.approx(remaining)


def test_the_last_half_comes_in_two() -> None:
    assert ends(0.5 * TOTAL) == pytest.approx([0.75, 1.0])


def levels(job: JobSnapshot) -> list[float]:
    """Return the noise scale of each piece as a multiple of the curve's."""
    pieces = predicted_pieces(job)
    works = np.array([piece.work for piece in pieces])
    middle = job.progress_examples + np.cumsum(works) - works / 2
    curve = np.interp(middle, CURVE.progress_examples, CURVE.noise_examples)
    examples = np.array([piece.noise.examples for piece in pieces])
    assert {piece.noise.log_standard_deviation for piece in pieces} == {0.3}
    return (examples / curve).tolist()


@given(st.floats(10.0, 900.0))
def test_the_curve_gives_the_shape(progress: float) -> None:
    assert levels(at(progress)) == pytest.approx([1.0] * len(ends(progress)))


@given(st.floats(10.0, 900.0), st.floats(1.0, 10.0))
def test_today_gives_the_level_the_less_the_further_it_is_away(
    progress: float, level: float
) -> None:
    above, below = levels(at(progress, level)), levels(at(progress, 1 / level))
    for nearer, further in itertools.pairwise([level, *above, 1.0]):
        assert nearer >= further * (1 - 1e-9)
    assert below == pytest.approx([1 / level_above for level_above in above])


@pytest.mark.parametrize(("level", "believed"), [(0.001, 0.1), (1000.0, 10.0)])
def test_today_is_believed_to_a_factor_of_ten(level: float, believed: float) -> None:
    assert levels(at(500.0, level)) == pytest.approx(levels(at(500.0, believed)))


def test_where_the_curve_ends_it_stays() -> None:
    short = NoiseCurve((10.0, 100.0), (1.0, 10.0))
    middle, late = predicted_pieces(at(500.0, noise=noise(10.0), noise_curve=short))
    assert (middle.noise.examples, late.noise.examples) == pytest.approx((10.0, 10.0))


@pytest.mark.parametrize(
    "changes",
    [
        {"noise_curve": None},
        {"noise": None},
        {"noise": noise(math.nan)},
        {"remaining_examples": None},
        {"remaining_examples": 0.0},
        {"remaining_examples": math.inf},
    ],
)
def test_nothing_is_ahead_where_something_is_not_known(changes: dict[str, object]) -> None:
    assert predicted_pieces(at(500.0, **changes)) == ()
