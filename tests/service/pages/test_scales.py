from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.service.pages.scales import (
    AxisScale,
    nice_step,
    time_ticks,
    value_ticks,
    whole_ticks,
)

SPANS = st.floats(1e-6, 1e9)


@given(span=SPANS, count=st.integers(1, 12))
def test_a_step_is_round_and_gives_about_as_many_parts(span: float, count: int) -> None:
    step = nice_step(span, count)
    assert span / (2.6 * count) <= step <= 2.6 * span / count


@given(low=st.floats(0, 1e6), span=SPANS, count=st.integers(2, 8))
def test_ticks_lie_on_the_axis(low: float, span: float, count: int) -> None:
    scale = AxisScale(low, low + span, 10.0, 500.0)
    for tick in (*value_ticks(scale, count), *time_ticks(scale, count)):
        assert 9.9 <= tick.at <= 500.1 and tick.text


@pytest.mark.parametrize(
    ("last", "texts"),
    [
        (5.0, ["0", "2", "4"]),
        (0.05, ["0", "0.02", "0.04"]),
        (23_000.0, ["0", "10k", "20k"]),
        (5e-6, ["0", "2e-6", "4e-6"]),
        (0.00045, ["0", "0.0002", "0.0004"]),
    ],
)
def test_ticks_are_short(last: float, texts: list[str]) -> None:
    assert [tick.text for tick in value_ticks(AxisScale(0.0, last, 0, 100), 3)] == texts


def test_counts_have_whole_ticks_with_both_ends() -> None:
    assert [tick.text for tick in whole_ticks(AxisScale(0.8, 5.0, 0, 100), 16)] == list("12345")
    texts = [tick.text for tick in whole_ticks(AxisScale(1.0, 64.0, 0, 100), 8)]
    assert texts[0] == "1" and texts[-1] == "64" and len(texts) <= 9
    assert [tick.text for tick in whole_ticks(AxisScale(0.95, 1.05, 0, 100), 8)] == ["1"]


def test_times_have_round_ticks() -> None:
    hour = AxisScale(1_795_680_000.0, 1_795_683_600.0, 0, 100)
    assert [tick.text for tick in time_ticks(hour, 4)] == [
        *("08:00", "08:15", "08:30", "08:45", "09:00"),
    ]
    days = AxisScale(1_795_651_200.0, 1_795_651_200.0 + 3 * 86_400, 0, 100)
    assert time_ticks(days, 3)[0].text == "26 Nov"


def test_a_place_outside_is_at_the_end() -> None:
    scale = AxisScale(0.0, 10.0, 100.0, 0.0)
    assert (scale.at(5.0), scale.within(20.0), scale.within(-1.0)) == (50.0, 0.0, 100.0)
