"""One fake Google Cloud for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("googleapiclient", reason="google-api-python-client is not installed")
pytest.importorskip("google.cloud.compute_v1", reason="google-cloud-compute is not installed")

from autoscaler.clock import SystemClock
from tests.fakes.gcp.ground import Ground
from tests.fakes.gcp.server import FakeGcp


@pytest.fixture(scope="session")
def fake() -> Iterator[FakeGcp]:
    server = FakeGcp(SystemClock())
    yield server
    server.close()


@pytest.fixture
def ground(fake: FakeGcp) -> Ground:
    return Ground(fake)
