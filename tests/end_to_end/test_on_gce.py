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
from tests.end_to_end.deployment import Deployment, Story
from tests.end_to_end.gce_ground import (
    OTHER_REGION,
    REGION,
    environment,
    lay_ground,
    new_project,
)
from tests.end_to_end.stories import Stories
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
    source = lay_ground(server, project.id)
    with Deployment(tmp_path, environment(server.url, tmp_path), source).running() as deployment:
        yield deployment


@pytest.fixture
def wide(server: FakeGcp, project: Project, tmp_path: Path) -> Iterator[Deployment]:
    """Return a deployment with pools in two regions, of which the second is dearer."""
    source = lay_ground(server, project.id, OTHER_REGION)
    with Deployment(tmp_path, environment(server.url, tmp_path), source).running() as deployment:
        yield deployment


@pytest.mark.gcp
class TestOnGce(Stories):
    storage = "gs://castor-prod-"
    distrust = "the identity token is not valid"
    regions = (REGION, OTHER_REGION)

    @pytest.mark.timeout(200)
    def test_a_preemption_that_all_hear_of_at_once_leaves_time_to_save(
        self, deployment: Deployment, machines: GcpMachines
    ) -> None:
        """As it mostly is: the metadata server, the power button and the audit log together."""
        machines.project.delete_seconds = 60.0  # Compute Engine waits for the machine
        deployment.submit("words")
        story = Story(deployment, machines, "words")
        story.trains_on(1)
        story.until(lambda: story.step() > 0, "it steps")
        (taken,) = machines.alive()
        step = story.step()
        lifecycle.preempt(machines.project, taken.partition("/")[2])
        machine = machines.machines[taken]
        story.until(lambda: not machine.is_running, "it leaves")
        assert not machine.was_cut
        saved = max(saved_steps(machines.project))
        assert saved >= step
        story.trains_on(1, without=taken)
        story.until(lambda: story.step() > saved, "another one goes on")
        assert [event.kind for event in story.job().events].count("reclaim") == 1


def saved_steps(project: Project) -> list[int]:
    """Of the checkpoints that are whole in the job's place."""
    (bucket,) = project.buckets.values()
    manifest = re.compile(r"jobs/words/checkpoints/step-(\d+)/manifest\.json")
    found = (manifest.fullmatch(name) for name in list(bucket.objects))
    return [int(one[1]) for one in found if one is not None]
