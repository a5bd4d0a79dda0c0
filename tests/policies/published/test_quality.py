from __future__ import annotations

import math

import pytest

from autoscaler.domain.report import Quality
from autoscaler.policies.published.quality import fitted


def test_curves_of_both_shapes_are_found_again() -> None:
    for shape in (lambda x: 2.0 + 5.0 / (x + 1.0), lambda x: 2.0 + 5.0 * math.exp(-x / 3.0)):
        history = [Quality(float(x), shape(float(x))) for x in range(1, 9)]
        curve = fitted(history, decay=0.9)
        assert curve is not None
        for later in (9.0, 12.0):
            assert curve.value(later) == pytest.approx(shape(later), abs=0.1)
        assert curve.largest_change == pytest.approx(shape(1.0) - shape(2.0))


def test_improvement_is_over_the_largest_change_there_was() -> None:
    history = [Quality(float(x), 10.0 * 0.5**x) for x in range(1, 7)]
    curve = fitted(history, decay=0.9)
    assert curve is not None
    assert curve.improvement(6.0, 1.0) == pytest.approx((0.5**7) / (0.5**2), rel=0.3)


@pytest.mark.parametrize(
    "metrics", [(), (1.0, 2.0), (1.0, 1.0, 1.0, 1.0)], ids=["none", "two", "level"]
)
def test_too_little_says_nothing(metrics: tuple[float, ...]) -> None:
    history = [Quality(float(turn + 1), metric) for turn, metric in enumerate(metrics)]
    assert fitted(history, decay=0.9) is None
