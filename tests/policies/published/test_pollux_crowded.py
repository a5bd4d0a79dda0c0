from __future__ import annotations

import pytest

from autoscaler.policies.published.pollux_crowded import PolluxCrowdedPolicy
from tests.conformance.pool_policy import PoolPolicyConformance


class TestPolluxCrowded(PoolPolicyConformance):
    is_rigid = False

    @pytest.fixture
    def policy(self) -> PolluxCrowdedPolicy:
        return PolluxCrowdedPolicy()
