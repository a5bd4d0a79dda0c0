"""A real job on the fake Compute Engine through the whole path."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("googleapiclient", reason="google-api-python-client is not installed")
pytest.importorskip("google.cloud.compute_v1", reason="the extra gcp is not installed")

from autoscaler.clock import SystemClock
from tests.end_to_end.deployment import Deployment, ObservedJob
from tests.end_to_end.gce_infrastructure import (
    OTHER_REGION,
    REGION,
    create_infrastructure,
    environment,
    new_project,
)
from tests.end_to_end.suite import EndToEndSuite
from tests.fakes.gcp import lifecycle
from tests.fakes.gcp.machines import GcpMachines
from tests.fakes.gcp.project import Project
from tests.fakes.gcp.server import FakeGcp

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[FakeGcp]:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    fake = FakeGcp(SystemClock())
    yield fake
    fake.close()


@pytest.fixture
def project(server: FakeGcp) -> Project:
    return new_project(server, f"my-project-{next(_NUMBERS)}")


@pytest.fixture
def machines(server: FakeGcp, project: Project, tmp_path: Path) -> Iterator[GcpMachines]:
    machines = GcpMachines(server, project.id, tmp_path / "machines")
    yield machines
    machines.close()


@pytest.fixture
def deployment(server: FakeGcp, project: Project, tmp_path: Path) -> Iterator[Deployment]:
    source = create_infrastructure(server, project.id)
    with Deployment(tmp_path, environment(server.url, tmp_path), source).running() as deployment:
        yield deployment


@pytest.fixture
def two_regions(server: FakeGcp, project: Project, tmp_path: Path) -> Iterator[Deployment]:
    """Return a deployment with pools in two regions, of which the second is dearer."""
    source = create_infrastructure(server, project.id, OTHER_REGION)
    with Deployment(tmp_path, environment(server.url, tmp_path), source).running() as deployment:
        yield deployment


@pytest.mark.gcp
class TestOnGce(EndToEndSuite):
    storage = "gs://castor-prod-"
    forgery_error = "the identity token is not valid"
    regions = (REGION, OTHER_REGION)

    def test_a_preemption_with_all_notices_at_once_leaves_time_to_save(
        self, deployment: Deployment, machines: GcpMachines
    ) -> None:
        """Send metadata, power button and audit log together, as Compute Engine mostly does."""
        machines.project.delete_seconds = 60.0  # Compute Engine waits for the shutdown
        deployment.submit("words")
        observed = ObservedJob(deployment, machines, "words")
        observed.wait_until_training(1)
        observed.wait_for(lambda: observed.step() > 0, "a step")
        (taken,) = machines.alive()
        step = observed.step()
        lifecycle.preempt(machines.project, taken.partition("/")[2])
        machine = machines.machines[taken]
        observed.wait_for(lambda: not machine.is_running, "the end of the preempted machine")
        assert not machine.was_cut
        saved = max(saved_steps(machines.project))
        assert saved >= step
        observed.wait_until_training(1, without=taken)
        observed.wait_for(lambda: observed.step() > saved, "progress on another instance")
        assert [event.kind for event in observed.job().events].count("reclaim") == 1


def saved_steps(project: Project) -> list[int]:
    """Return the steps of the complete checkpoints in the job's folder."""
    (bucket,) = project.buckets.values()
    manifest = re.compile(r"jobs/words/checkpoints/step-(\d+)/manifest\.json")
    matches = (manifest.fullmatch(name) for name in list(bucket.objects))
    return [int(match[1]) for match in matches if match is not None]
