"""Fixtures of the provider of Google Cloud: one fake for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("googleapiclient", reason="google-api-python-client is not installed")
pytest.importorskip("google.cloud.compute_v1", reason="the extra gcp is not installed")

from autoscaler.clock import SystemClock
from tests.fakes.gcp.server import FakeGcp
from tests.providers.gcp.cloud import GcpWorld


@pytest.fixture(scope="session")
def fake() -> Iterator[FakeGcp]:
    server = FakeGcp(SystemClock())
    yield server
    server.close()


@pytest.fixture
def world(fake: FakeGcp, tmp_path: Path) -> GcpWorld:
    return GcpWorld(fake, tmp_path)
