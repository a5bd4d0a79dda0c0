"""Step times measured on real devices, predicted without having seen them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autoscaler.goodput.prior import prior_for
from benchmarks.goodput_profiles import (
    KIND,
    NETWORK_BYTES_PER_SECOND,
    PARAMETER_BYTES,
    Profile,
    held_out_placements,
    larger_sizes,
    read_profile,
)


@pytest.fixture(scope="module", params=list(PARAMETER_BYTES))
def application(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def profile(application: str) -> Profile:
    data = os.environ.get("CASTOR_DATA")
    if data is None:
        pytest.skip("CASTOR_DATA is not set: no measured profiles")
    return read_profile(Path(data) / "pollux" / "app-profiles" / application)


def test_placements_held_out_are_predicted_within_a_tenth(
    application: str, profile: Profile
) -> None:
    prior = prior_for(KIND, PARAMETER_BYTES[application], NETWORK_BYTES_PER_SECOND)
    score = held_out_placements(profile, prior)
    assert score.median < 0.10


def test_sizes_beyond_those_measured_are_predicted_within_a_fifth(
    application: str, profile: Profile
) -> None:
    prior = prior_for(KIND, PARAMETER_BYTES[application], NETWORK_BYTES_PER_SECOND)
    score = larger_sizes(profile, prior, most=4, predicted=range(5, 65))
    assert score.median < 0.20
    assert score.coverage > 0.80
