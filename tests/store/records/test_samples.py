from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.store.records.samples import (
    FIRST_SPACING_SECONDS,
    MOST_SAMPLES,
    SampleMark,
    kept,
    sample_of,
)
from tests.conformance.store_examples import NOW, report


@given(st.lists(st.floats(0.01, 1e5), max_size=2 * MOST_SAMPLES))
def test_the_mark_counts_what_is_kept(pauses: list[float]) -> None:
    mark, samples, now_seconds = SampleMark(), [], NOW
    for pause in pauses:
        now_seconds += pause
        if not mark.is_due(now_seconds):
            continue
        if mark.is_full:
            mark, samples = mark.thinned(), list(kept(samples))
        samples.append(now_seconds)
        mark = mark.with_one_more(now_seconds)
        assert mark.sample_count == len(samples) <= MOST_SAMPLES
    assert samples == sorted(samples)


def test_a_clock_that_jumps_back_does_not_stop_the_samples() -> None:
    mark = SampleMark().with_one_more(NOW)
    assert not mark.is_due(NOW + 0.5 * FIRST_SPACING_SECONDS)
    assert mark.is_due(NOW - 3600.0)


def test_numbers_that_are_not_finite_are_left_out() -> None:
    sample = sample_of(report(metrics={"loss": math.nan}, learning_rate=math.inf), NOW)
    assert (sample.loss, sample.learning_rate, sample.goodput) == (None, None, None)
