from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.heartbeats import heartbeat_seconds, silence_seconds


@pytest.mark.parametrize(
    ("instances", "seconds"),
    [(0, 1.0), (100, 1.0), (500, 5.0), (1_000, 10.0), (10_000, 10.0), (100_000, 100.0)],
)
def test_large_fleets_send_less_often(instances: int, seconds: float) -> None:
    assert heartbeat_seconds(instances, 1.0) == seconds


@given(st.integers(1, 1_000_000), st.floats(0.5, 20.0))
def test_the_rate_is_bounded_and_silence_lasts_for_several_heartbeats(
    instances: int, least_seconds: float
) -> None:
    interval_seconds = heartbeat_seconds(instances, least_seconds)
    assert instances / interval_seconds <= max(1_000.0, 100.0) * 1.001
    assert interval_seconds >= least_seconds
    assert silence_seconds(instances, 120.0) >= 3 * heartbeat_seconds(instances, 1.0)
