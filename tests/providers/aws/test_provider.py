"""The contract of providers, on EC2 as the fake has it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pytest

from autoscaler.domain.errors import Unavailable
from providers.aws.provider import AwsProvider
from providers.aws.settings import CallTimeouts
from tests.conformance.provider import OURS, ProviderConformance
from tests.fakes.aws.server import FakeAws
from tests.providers.aws.cloud import QUICK, AwsWorld


class TestAwsProvider(ProviderConformance):
    @pytest.fixture
    def cloud(self, fake: FakeAws) -> AwsWorld:
        return AwsWorld(fake)


@pytest.mark.aws
class TestAwsProviderThatBootsAndLags(ProviderConformance):
    """Contract on instances that are pending and unlisted for some seconds, as on EC2."""

    @pytest.fixture
    def cloud(self, fake: FakeAws) -> AwsWorld:
        world = LaggingWorld(fake)
        world.account.lag_seconds = 5.0
        world.account.boot_seconds = 15.0
        return world


class LaggingWorld(AwsWorld):
    """World whose provider repeats `terminate` while it is unavailable, as a controller does."""

    def connect(self, controller: str = OURS, patience: CallTimeouts = QUICK) -> AwsProvider:
        provider = super().connect(controller, patience)
        terminate = provider.terminate

        def insist(instance_ids: Sequence[str]) -> None:
            for _ in range(20):
                with suppress(Unavailable):
                    return terminate(instance_ids)
                self.pass_time(1.0)
            raise AssertionError("never told")

        provider.terminate = insist  # type: ignore[method-assign]
        return provider
