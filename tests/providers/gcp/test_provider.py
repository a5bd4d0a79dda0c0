"""The contract of providers, on Compute Engine as the fake has it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from autoscaler.domain.errors import Unavailable
from providers.gcp.provider import GcpProvider
from providers.gcp.settings import CallTimeouts
from tests.conformance.provider import OURS, ProviderConformance
from tests.conformance.queue import QueueConformance
from tests.fakes.gcp.server import FakeGcp
from tests.providers.gcp.cloud import FLEX, QUICK, GcpWorld


class TestGcpProvider(ProviderConformance):
    @pytest.fixture
    def cloud(self, fake: FakeGcp, tmp_path: Path) -> GcpWorld:
        return GcpWorld(fake, tmp_path)


class QueueWorld(GcpWorld):
    """World that also sells flex-start, without capacity."""

    def __init__(self, fake: FakeGcp, kept: Path) -> None:
        super().__init__(fake, kept, purchases=["on-demand", "flex-start"])
        self.give_capacity(FLEX, 0)


class TestGcpQueue(QueueConformance):
    @pytest.fixture
    def cloud(self, fake: FakeGcp, tmp_path: Path) -> QueueWorld:
        return QueueWorld(fake, tmp_path)


@pytest.mark.gcp
class TestGcpQueueThatLags(QueueConformance):
    @pytest.fixture
    def cloud(self, fake: FakeGcp, tmp_path: Path) -> GcpWorld:
        world = LaggingWorld(fake, tmp_path, purchases=["on-demand", "flex-start"])
        world.give_capacity(FLEX, 0)
        world.project.lag_seconds = 8.0
        world.project.staging_seconds = 15.0
        return world


@pytest.mark.gcp
class TestGcpProviderThatLags(ProviderConformance):
    """New instances are missing from lists for some seconds, and boot for longer."""

    @pytest.fixture
    def cloud(self, fake: FakeGcp, tmp_path: Path) -> GcpWorld:
        world = LaggingWorld(fake, tmp_path)
        world.project.lag_seconds = 8.0
        world.project.staging_seconds = 15.0
        return world


class LaggingWorld(GcpWorld):
    """World whose provider repeats `terminate` while it is unavailable, as a controller does."""

    def connect(self, controller: str = OURS, patience: CallTimeouts = QUICK) -> GcpProvider:
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
