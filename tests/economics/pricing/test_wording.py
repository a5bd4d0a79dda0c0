from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.economics.pricing.wording import (
    duration,
    money,
    number,
    per_hour,
    percent,
    signed,
    signed_per_hour,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (412.4, "412"),
        (158.0, "158"),
        (33.26, "33.3"),
        (1.0, "1"),
        (1.5, "1.5"),
        (0.0012345, "0.00123"),
        (12345.0, "12300"),
        (999.6, "1000"),
        (0.0, "0"),
        (-3.456, "-3.46"),
        (math.inf, "endless"),
        (math.nan, "unknown"),
    ],
)
def test_numbers_have_three_digits_and_no_exponent(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (2.61, "$2.61"),
        (0.1, "$0.10"),
        (0.105, "$0.105"),
        (0.00123, "$0.00123"),
        (1.0, "$1"),
        (0.0, "$0"),
        (123.4, "$123"),
        (60.3, "$60.30"),
        (12.345, "$12.35"),
        (0.999999, "$1.00"),
        (-0.5, "-$0.50"),
    ],
)
def test_money(usd: float, text: str) -> None:
    assert money(usd) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.05, "0.1 s"),
        (6.0, "6 s"),
        (190.0, "190 s"),
        (660.0, "11 min"),
        (310.0, "5.2 min"),
        (11520.0, "3.2 h"),
        (100_000.0, "28 h"),
        (400_000.0, "4.6 d"),
        (math.inf, "endless"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_rates_and_shares() -> None:
    assert per_hour(2.61 / 3600) == "$2.61/h"
    assert signed_per_hour(2.61 / 3600) == "+$2.61/h"
    assert signed_per_hour(-0.1 / 3600) == "-$0.10/h"
    assert (signed(412.0), signed(-40.0), signed(0.0)) == ("+412", "-40", "+0")
    assert percent(0.9375) == "94 %"


@given(st.floats())
def test_whatever_the_figure_it_is_short_and_a_number(value: float) -> None:
    text = number(value)
    assert "nan" not in text
    assert "e+" not in text
    if 1e-6 < abs(value) < 1e7:
        assert float(text) == pytest.approx(value, rel=0.006)
        assert len(text) <= 12
