"""Bounds of a job that forbid a number of instances."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.size_bars import BarKind, bar_of_bounds
from tests.economics.cases import SMALL

BOUNDS = InstanceBounds(maximum=8)


@pytest.mark.parametrize(
    ("bounds", "instances", "kind", "maximum"),
    [
        (BOUNDS, 8, None, None),
        (BOUNDS, 9, BarKind.MAXIMUM, 8.0),
        (replace(BOUNDS, maxima=((SMALL.id, 2),)), 3, BarKind.MAXIMUM_OF_OFFER, 2.0),
        (replace(BOUNDS, maxima=(("else", 2),)), 3, None, None),
        (
            replace(BOUNDS, max_usd_per_hour=SMALL.usd_per_hour * Decimal("2.5")),
            3,
            BarKind.MAXIMUM_PRICE,
            float(SMALL.usd_per_hour) * 2.5,
        ),
    ],
)
def test_the_bound_that_forbids_a_size_is_named(
    bounds: InstanceBounds, instances: int, kind: BarKind | None, maximum: float | None
) -> None:
    bar = bar_of_bounds(bounds, SMALL, instances)
    assert (None if bar is None else bar.kind) == kind
    assert bar is None or (bar.maximum == maximum and bar.title == kind)
