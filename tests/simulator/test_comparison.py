from __future__ import annotations

from dataclasses import fields, replace

import pytest

from autoscaler.simulator.comparison import Estimate, compare, estimate
from autoscaler.simulator.results import Result, Totals


def result(policy: str, **figures: float | None) -> Result:
    totals = Totals(**dict.fromkeys((field.name for field in fields(Totals)), 1.0))
    return Result(policy, 0, (), replace(totals, **figures))


def test_the_interval_is_student_s() -> None:
    # 2.776 is the 97.5 % quantile of t with 4 degrees of freedom, from a printed table.
    mean = estimate([8.0, 9.0, 10.0, 11.0, 12.0])
    assert mean.mean == 10.0
    assert mean.half_width == pytest.approx(2.776 * (2.5 / 5) ** 0.5, abs=1e-3)


def test_one_seed_says_nothing_of_the_others() -> None:
    assert estimate([3.0]) == Estimate(3.0, None)
    rounded = [0.1 + 0.2, 0.3, 0.3]
    assert estimate(rounded).half_width == 0.0, "what rounding leaves is no uncertainty"


def test_ratios_are_of_the_same_seed() -> None:
    first = [result("a", avg_jct_s=100.0), result("a", avg_jct_s=200.0)]
    second = [result("b", avg_jct_s=150.0), result("b", avg_jct_s=300.0)]
    standings = compare({"a": first, "b": second})
    assert [standing.policy for standing in standings] == ["a", "b"]
    ratio = standings[1].figures["avg_jct_s"].ratio
    assert ratio is not None and ratio.mean == 1.5
    assert ratio.half_width == pytest.approx(0.0), "both are half as long again, at every seed"


def test_what_is_not_known_or_nothing_has_no_ratio() -> None:
    first = [result("a", worst_ftf_rho=None, cost_usd=0.0)]
    second = [result("b", cost_usd=5.0)]
    figures = compare({"a": first, "b": second})[1].figures
    assert figures["worst_ftf_rho"].ratio is None
    assert figures["cost_usd"].ratio is None
    assert "worst_ftf_rho" not in compare({"a": first})[0].figures
