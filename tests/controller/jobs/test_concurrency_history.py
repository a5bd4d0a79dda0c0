from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.controller.jobs.concurrency_history import ConcurrencyHistory
from autoscaler.domain.job import JobRecord
from autoscaler.store.memory.store import memory_store
from tests.conformance.store_examples import spec

NOW = 100.0
LIVES = st.lists(
    st.tuples(st.integers(0, 99), st.none() | st.integers(0, 99)).filter(
        lambda life: life[1] is None or life[0] <= life[1]
    ),
    min_size=1,
    max_size=6,
)


def records(*lives: tuple[float, float | None]) -> list[JobRecord]:
    jobs = memory_store().jobs
    return [
        replace(jobs.add(spec(f"job-{turn}"), begun), ended_seconds=ended)
        for turn, (begun, ended) in enumerate(lives)
    ]


def test_jobs_count_for_as_long_as_they_were_there() -> None:
    crowds = ConcurrencyHistory(records((0, None), (50, None), (20, 70)), NOW)
    assert crowds.mean_jobs(0) == pytest.approx((100 + 50 + 50) / 100)
    assert crowds.mean_jobs(50) == pytest.approx((50 + 50 + 20) / 50)
    assert crowds.mean_jobs(NOW) == 2


@given(lives=LIVES, since=st.integers(0, 99))
def test_the_mean_is_that_of_counting_every_second(
    lives: list[tuple[float, float | None]], since: int
) -> None:
    counted = [
        sum(begun <= second < (NOW if ended is None else ended) for begun, ended in lives)
        for second in range(since, int(NOW))
    ]
    expected = max(sum(counted) / len(counted), 1.0)
    assert ConcurrencyHistory(records(*lives), NOW).mean_jobs(since) == pytest.approx(expected)
