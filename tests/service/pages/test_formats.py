"""Texts of money, times and numbers on pages."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.objective import Objective, Preference
from autoscaler.service.pages import formats

amounts = st.floats(min_value=0.01, max_value=1e9)


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (None, formats.NOTHING),
        (Decimal(0), "$0.00"),
        (Decimal("0.001"), "$0.0010"),
        (Decimal("0.00001"), "< $0.0001"),
        (Decimal("1234.565"), "$1,234.56"),
        (Decimal("-2.5"), "-$2.50"),
        (12.0, "$12.00"),
    ],
)
def test_billed_money_is_shown_to_the_cent(usd: Decimal | float | None, text: str) -> None:
    assert formats.billed(usd) == text


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (0.0, "about $0"),
        (0.01234, "about $0.012"),
        (9.96, "about $10"),
        (12.34, "about $12"),
        (1349.0, "about $1,300"),
        (float("inf"), "about an unknown amount"),
    ],
)
def test_predicted_money_has_two_significant_digits(usd: float, text: str) -> None:
    assert formats.predicted(usd) == text


@given(amounts)
def test_billed_and_predicted_money_never_look_alike(usd: float) -> None:
    assert re.fullmatch(r"\$[\d,]+\.\d\d", formats.billed(usd))
    text = formats.predicted(usd)
    assert text.startswith("about $")
    digits = text.removeprefix("about $").replace(",", "").replace(".", "").strip("0")
    assert len(digits) <= 2


def test_a_band_is_one_amount_if_both_ends_look_alike() -> None:
    assert formats.predicted_band(12.0, 18.0) == "about $12 to $18"
    assert formats.predicted_band(12.1, 12.2) == "about $12"
    assert formats.predicted_band(None, 12.2) == formats.NOTHING


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (None, formats.NOTHING),
        (Decimal("3.07"), "$3.07/h"),
        (0.0034, "$0.00340/h"),
        (Decimal("0.045"), "$0.0450/h"),
        (0, "$0.00/h"),
    ],
)
def test_a_rate_names_its_unit(usd: Decimal | float | None, text: str) -> None:
    assert formats.rate(usd) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, formats.NOTHING),
        (float("nan"), formats.NOTHING),
        (-3.0, "0 s"),
        (0.2, "0 s"),
        (42.0, "42 s"),
        (60.0, "1 min"),
        (61.0, "1 min 1 s"),
        (3599.6, "1 h"),
        (8040.0, "2 h 14 min"),
        (86_400.0, "1 d"),
        (90_000.0, "1 d 1 h"),
        (86_400.0 * 12 + 3600, "12 d"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float | None, text: str) -> None:
    assert formats.duration(seconds) == text


@given(st.floats(min_value=0, max_value=1e9))
def test_a_duration_has_no_unit_that_is_full(seconds: float) -> None:
    text = formats.duration(seconds)
    assert not re.search(r"\b(60 s|60 min|24 h)", text), text


@pytest.mark.parametrize(
    ("at", "text"),
    [(None, formats.NOTHING), (1000.4, "now"), (820.0, "3 min ago"), (8200.0, "in 2 h")],
)
def test_a_time_is_relative_to_now(at: float | None, text: str) -> None:
    assert formats.relative(at, 1000.0) == text


def test_an_absolute_time_has_its_zone() -> None:
    assert formats.absolute(0.0) == "1970-01-01 00:00:00 UTC"
    assert formats.machine_time(0.0) == "1970-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, formats.NOTHING),
        (float("nan"), formats.NOTHING),
        (float("inf"), "unlimited"),
        (0.0, "0"),
        (1234.5, "1,230"),
        (0.0012345, "0.00123"),
        (12.0, "12.0"),
    ],
)
def test_a_number_has_three_significant_digits(value: float | None, text: str) -> None:
    assert formats.significant(value) == text


def test_an_objective_is_in_words() -> None:
    value = Objective(Preference.VALUE_OF_TIME, 40.0, 11_800.0, Decimal(20))
    text = "an hour of waiting is worth $40, deadline in 3 h, budget $20.00"
    assert formats.objective_text(value, 1000.0) == text
    assert formats.objective_text(Objective(), 0.0) == "balanced"


def test_a_line_spans_its_box_and_leaves_out_what_is_not_finite() -> None:
    assert formats.polyline([1.0], 10, 10) == ""
    assert formats.polyline([0.0, float("nan"), 2.0], 13, 13) == "1.5,11.5 11.5,1.5"


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_a_line_stays_in_its_box(values: list[float]) -> None:
    points = formats.polyline(values, 90, 22)
    for point in points.split():
        x, y = map(float, point.split(","))
        assert 0 <= x <= 90 and 0 <= y <= 22


@pytest.mark.parametrize(("value", "share"), [(0.0, 0.0), (5.0, 50.0), (20.0, 100.0), (-1.0, 0.0)])
def test_a_position_is_within_the_axis(value: float, share: float) -> None:
    assert formats.position(value, 0.0, 10.0) == share
    assert formats.position(value, 10.0, 10.0) == 0.0


def test_names_are_grouped_the_most_frequent_first() -> None:
    assert list(formats.grouped(["a", "b", "b"]).items()) == [("b", 2), ("a", 1)]
