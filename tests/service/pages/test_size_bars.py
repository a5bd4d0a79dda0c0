"""Sentences on what forbids a size."""

from __future__ import annotations

import pytest

from autoscaler.domain.offer import LimitUnit
from autoscaler.domain.size_bars import BarKind, SizeBar
from autoscaler.service.pages.size_bars import bar_text, forbidden_text

MONEY, DEVICES, COUNT = LimitUnit.USD_PER_HOUR, LimitUnit.DEVICES, LimitUnit.INSTANCES


@pytest.mark.parametrize(
    ("bar", "text"),
    [
        (
            SizeBar(BarKind.LIMIT, "fleet price", 80.0, 20.5, MONEY, "castor serve --x"),
            "the limit fleet price is $80.00/h, of which other jobs hold $59.50/h "
            "(castor serve --x)",
        ),
        (SizeBar(BarKind.LIMIT, "cores", 2, 2, DEVICES), "the limit cores is 2 devices"),
        (SizeBar(BarKind.REFUSED, "p4d/spot"), "the cloud refuses p4d/spot now"),
        (
            SizeBar(BarKind.MAXIMUM, maximum=1, unit=COUNT),
            "the job may hold 1 instance at most (instances.max of its job file)",
        ),
        (
            SizeBar(BarKind.MAXIMUM_OF_OFFER, "large", 2, unit=COUNT),
            "the job may hold 2 instances of large at most (instances.max_of of its job file)",
        ),
        (
            SizeBar(BarKind.MAXIMUM_PRICE, maximum=12, unit=MONEY),
            "its instances may cost $12.00/h at most (instances.max_usd_per_hour of its job file)",
        ),
        (
            SizeBar(BarKind.BUDGET, maximum=20),
            "the rest of its budget of $20.00 does not pay its start "
            "(objective.budget of its job file)",
        ),
        (SizeBar(BarKind.FIXED, place="it keeps its size"), "it keeps its size"),
        (SizeBar(BarKind.FIXED), "its size is fixed now"),
    ],
)
def test_a_bar_is_named_with_its_value_and_its_place(bar: SizeBar, text: str) -> None:
    assert bar_text(bar) == text
    assert forbidden_text([bar, bar]) == f"{text}; {text}" and forbidden_text([]) == ""
