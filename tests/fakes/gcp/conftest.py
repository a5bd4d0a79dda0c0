"""Fixtures of the fake Google Cloud: one server for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("googleapiclient", reason="google-api-python-client is not installed")
pytest.importorskip("google.cloud.compute_v1", reason="google-cloud-compute is not installed")

from autoscaler.clock import SystemClock
from tests.fakes.gcp.clients import ProjectClients
from tests.fakes.gcp.server import FakeGcp


@pytest.fixture(scope="session")
def fake() -> Iterator[FakeGcp]:
    """Yield a server on the real clock."""
    server = FakeGcp(SystemClock())
    yield server
    server.close()


@pytest.fixture
def clients(fake: FakeGcp) -> ProjectClients:
    """Return a new project with clients."""
    return ProjectClients(fake)
