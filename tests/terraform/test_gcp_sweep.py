"""The module's sweep of stopped instances, which needs no controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("googleapiclient", reason="google-api-python-client is not installed")
pytest.importorskip("google.cloud.compute_v1", reason="the extra gcp is not installed")

from autoscaler.clock import SystemClock
from tests.conformance.provider import THEIRS, launch_running
from tests.fakes.faults import Fault
from tests.fakes.gcp import lifecycle
from tests.fakes.gcp.server import FakeGcp
from tests.providers.gcp.cloud import GcpWorld, name_of
from tests.terraform.conftest import GCP_MODULE
from tests.terraform.workflows import Workflow

SOURCE = (GCP_MODULE / "files" / "sweep.json").read_text()


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeGcp]:
    server = FakeGcp(SystemClock())
    yield server
    server.close()


@pytest.fixture
def world(fake: FakeGcp, tmp_path: Path) -> GcpWorld:
    return GcpWorld(fake, tmp_path)


def swept(world: GcpWorld, deployment: str = "test") -> Workflow:
    """The workflow after it has run, and what it has deleted is gone."""
    workflow = Workflow(SOURCE, world.fake)
    workflow.run({"project": world.name, "deployment": deployment})
    world.pass_time(30.0)
    return workflow


def test_what_a_lost_controller_left_stopped_is_deleted(world: GcpWorld) -> None:
    """Whichever controller it was of: Compute Engine would keep the disks for ever."""
    running, stopped = (launch_running(world, world.connect(), token).id for token in "12")
    other = world.connect(THEIRS).launch(world.request("3", controller=THEIRS)).id
    world.wait_until(lambda: world.is_running(other))
    for instance in (stopped, other):
        lifecycle.shut_down(world.project, name_of(instance))
    world.pass_time(8 * 86_400.0)
    assert world.project.remaining() == sorted(map(name_of, (stopped, other))), "runs are bounded"
    assert swept(world).logged == []
    assert world.project.remaining() == []
    assert name_of(running) not in world.project.remaining()


def test_what_runs_or_is_of_another_deployment_stays(world: GcpWorld) -> None:
    running, stopped = (launch_running(world, world.connect(), token).id for token in "12")
    lifecycle.shut_down(world.project, name_of(stopped))
    swept(world, "other")
    assert world.project.remaining() == sorted(map(name_of, (running, stopped)))
    swept(world)
    assert world.project.remaining() == [name_of(running)]


def test_one_that_can_not_be_deleted_keeps_no_other(world: GcpWorld) -> None:
    first, second = (name_of(launch_running(world, world.connect(), token).id) for token in "12")
    for name in (first, second):
        lifecycle.shut_down(world.project, name)
    refused = Fault(
        "compute.instances.delete", code="forbidden", status=403, matching={"instance": first}
    )
    world.faults.add(refused)
    (line,) = swept(world).logged
    assert line.startswith(f"{first}: not deleted: ") and "403" in line
    assert world.project.remaining() == [first]
