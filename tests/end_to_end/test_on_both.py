"""One real job that moves from the fake EC2 to the fake Compute Engine and ends there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from shutil import which

import pytest

pytest.importorskip("boto3", reason="the extra aws is not installed")
pytest.importorskip("moto", reason="moto is not installed")
pytest.importorskip("googleapiclient", reason="google-api-python-client is not installed")
pytest.importorskip("google.cloud.compute_v1", reason="the extra gcp is not installed")

from autoscaler.clock import SystemClock
from autoscaler.domain.job import JobPhase
from autoscaler.domain.spending import EntryKind
from autoscaler.store.opening import open_store
from tests.end_to_end import ec2_ground, gce_ground
from tests.end_to_end.deployment import Deployment, Story
from tests.fakes.aws.machines import AwsMachines
from tests.fakes.aws.server import FakeAws
from tests.fakes.gcp.machines import GcpMachines
from tests.fakes.gcp.server import FakeGcp

KEY = "AKIABOTHCLOUDS"
PROJECT = "both-clouds"
BATCH = 16


@pytest.fixture
def ec2(tmp_path: Path) -> Iterator[AwsMachines]:
    fake = FakeAws(SystemClock())
    fake.proxy.renew(KEY, SystemClock())
    machines = AwsMachines(fake, KEY, tmp_path / "ec2")
    yield machines
    machines.close()
    fake.close()


@pytest.fixture
def compute(tmp_path: Path) -> Iterator[GcpMachines]:
    if which("curl") is None:
        pytest.skip("curl is not installed")
    fake = FakeGcp(SystemClock())
    gce_ground.new_project(fake, PROJECT)
    machines = GcpMachines(fake, PROJECT, tmp_path / "compute")
    yield machines
    machines.close()
    fake.close()


@pytest.fixture
def deployment(ec2: AwsMachines, compute: GcpMachines, tmp_path: Path) -> Iterator[Deployment]:
    """EC2 is named first: its bucket has the files of all jobs."""
    sources = ec2_ground.lay_ground(ec2.fake, KEY), gce_ground.lay_ground(compute.fake, PROJECT)
    environment = {
        **ec2_ground.environment(ec2.fake.url, KEY),
        **gce_ground.environment(compute.fake.url, tmp_path),
    }
    with Deployment(tmp_path, environment, *sources).running() as deployment:
        yield deployment


@pytest.mark.gcp
@pytest.mark.timeout(300)
def test_a_job_goes_to_the_other_cloud_by_its_checkpoint_and_ends_there(
    deployment: Deployment, ec2: AwsMachines, compute: GcpMachines
) -> None:
    hurry = deployment.submit("words", offers="g4dn.xlarge")
    story = Story(deployment, ec2, "words")
    story.trains_on(1)
    story.until(lambda: _saved_step(story) > 0, "a checkpoint")
    saved_step = _saved_step(story)
    assert compute.launched == 0, "its owner named what it may use"

    deployment.castor("set", "words", "offers=g2-standard-4")
    seen: list[frozenset[str]] = []

    def is_there() -> bool:
        instances = {each.id: each.offer for each in story.job().instances}
        seen.append(frozenset(instances[each] for each in story.training()))
        return not ec2.alive() and bool(seen[-1]) and len(compute.alive()) == 1

    story.until(is_there, "it trains on Compute Engine alone")
    assert max(map(len, seen)) == 1, "the two never train at once"

    hurry.touch()
    story.until(lambda: story.job().phase.is_final, "the job ends")
    story.until(lambda: not compute.remaining(), "everything is given back")
    job = story.job()
    assert job.phase is JobPhase.FINISHED, job.cause
    assert job.attempt == 1, "it was handed on, not started again"
    assert job.checkpoint_directory.startswith("s3://castor-prod-")
    assert deployment.castor("logs", "words").count("it begins") == 2
    first, second = _progress_at_starts(deployment)
    assert first == 0 and second >= saved_step * BATCH, "from where the other had come to"
    assert "through a checkpoint" in deployment.castor("why", "words")
    story.until(lambda: not story.job().instances, "its bills are closed")
    _assert_its_transfer_is_paid(deployment)


def _assert_its_transfer_is_paid(deployment: Deployment) -> None:
    """What its instance on Compute Engine fetched, and sent, and nothing of that on EC2."""
    with closing(open_store(f"sqlite:///{deployment.state / 'castor.db'}")) as store:
        lines = [line for line in store.ledger.entries() if line.kind is EntryKind.TRANSFER]
    assert {line.job for line in lines} == {"words"}
    assert all("g2-standard-4" in line.offer for line in lines)
    sent_bytes = sum(line.sent_bytes for line in lines)
    fetched_bytes = sum(line.fetched_bytes for line in lines)
    assert sent_bytes > 1000, "its log, and checkpoints: the last, at least"
    assert fetched_bytes > 1000, "its bundle, and the checkpoint by which it came"
    usd = (sent_bytes * Decimal("0.12") + fetched_bytes * Decimal("0.09")) / 10**9
    costs = json.loads(deployment.castor("costs", "--json"))
    assert Decimal(costs["transfer"]["by_job"]["words"]) == usd
    assert Decimal(costs["total_usd"]) > Decimal(costs["transfer"]["total_usd"]) == usd
    assert "of which transfer" in deployment.castor("costs")


def _saved_step(story: Story) -> int:
    report = story.job().report
    return 0 if report is None else report.checkpoint.step or 0


def _progress_at_starts(deployment: Deployment) -> list[float]:
    """Examples, in the order of the starts."""
    lines = deployment.castor("logs", "words").splitlines()
    return sorted(float(line.rsplit(" ", 1)[1]) for line in lines if "goes on from" in line)
