"""Fixtures of the AWS provider: one fake AWS for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("boto3", reason="the extra aws is not installed")
pytest.importorskip("moto", reason="moto is not installed")

from autoscaler.clock import SystemClock
from tests.fakes.aws.server import FakeAws
from tests.providers.aws.cloud import AwsWorld


@pytest.fixture(scope="session")
def fake() -> Iterator[FakeAws]:
    server = FakeAws(SystemClock())
    yield server
    server.close()


@pytest.fixture
def world(fake: FakeAws) -> AwsWorld:
    return AwsWorld(fake)
