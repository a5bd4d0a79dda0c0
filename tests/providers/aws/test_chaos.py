"""EC2, whatever happens, in whatever order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.aws.server import FakeAws
from tests.providers.aws.test_controller import Ec2World
from tests.providers.aws.ways import WAYS
from tests.providers.cloud.chaos import assert_recovers, events

ACTIONS = (
    *("CreateFleet", "DescribeInstances", "TerminateInstances", "PutObject", "ReceiveMessage"),
    *("DeleteMessageBatch", "DescribeSpotPriceHistory", "ListServiceQuotas", "GetProducts"),
)


@pytest.mark.aws
@settings(max_examples=20)
@given(happenings=events(ACTIONS, WAYS), lag_seconds=st.sampled_from([0.0, 5.0, 20.0]))
def test_all_comes_right_in_the_end(
    fake: FakeAws, happenings: list[Any], lag_seconds: float
) -> None:
    world = Ec2World(fake)
    world.aws.account.lag_seconds = lag_seconds
    assert_recovers(world, happenings)
