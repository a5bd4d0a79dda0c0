"""A real job on the fake EC2 through the whole path."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

pytest.importorskip("boto3", reason="the extra aws is not installed")
pytest.importorskip("moto", reason="moto is not installed")

from autoscaler.clock import SystemClock
from tests.end_to_end.deployment import Deployment
from tests.end_to_end.ec2_infrastructure import create_infrastructure, environment
from tests.end_to_end.suite import EndToEndSuite
from tests.fakes.aws.machines import KIND, OTHER_REGION, REGION, AwsMachines
from tests.fakes.aws.server import FakeAws

KEY = "AKIAENDTOEND"


@pytest.fixture(scope="module")
def server() -> Iterator[FakeAws]:
    fake = FakeAws(SystemClock())
    yield fake
    fake.close()


@pytest.fixture
def fake(server: FakeAws) -> FakeAws:
    """Return the server with a new, empty account."""
    server.proxy.renew(KEY, SystemClock())
    return server


@pytest.fixture
def machines(fake: FakeAws, tmp_path: Path) -> Iterator[AwsMachines]:
    machines = AwsMachines(fake, KEY, tmp_path / "machines")
    yield machines
    machines.close()


@pytest.fixture
def deployment(fake: FakeAws, tmp_path: Path) -> Iterator[Deployment]:
    source = create_infrastructure(fake, KEY)
    with Deployment(tmp_path, environment(fake.url, KEY), source).running() as deployment:
        yield deployment


@pytest.fixture
def two_regions(fake: FakeAws, tmp_path: Path) -> Iterator[Deployment]:
    """Return a deployment with pools in two regions, of which the second is dearer."""
    account = fake.proxy.account(KEY)
    zones = [f"{OTHER_REGION}a", f"{OTHER_REGION}b"]
    account.zones += zones
    account.priced_regions.add(OTHER_REGION)
    account.spot_prices |= {(KIND, zone): Decimal("0.4") for zone in zones}
    source = create_infrastructure(fake, KEY, REGION, OTHER_REGION)
    with Deployment(tmp_path, environment(fake.url, KEY), source).running() as deployment:
        yield deployment


@pytest.mark.aws
class TestOnEc2(EndToEndSuite):
    storage = "s3://castor-prod-"
    forgery_error = "not signed by AWS in us-east-1"
    regions = (REGION, OTHER_REGION)
