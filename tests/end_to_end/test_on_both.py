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
from tests.end_to_end import ec2_infrastructure, gce_infrastructure
from tests.end_to_end.deployment import Deployment, ObservedJob
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
    gce_infrastructure.new_project(fake, PROJECT)
    machines = GcpMachines(fake, PROJECT, tmp_path / "compute")
    yield machines
    machines.close()
    fake.close()


@pytest.fixture
def deployment(ec2: AwsMachines, compute: GcpMachines, tmp_path: Path) -> Iterator[Deployment]:
    """Return a deployment on EC2 and Compute Engine; EC2's bucket has the files of all jobs."""
    sources = (
        ec2_infrastructure.create_infrastructure(ec2.fake, KEY),
        gce_infrastructure.create_infrastructure(compute.fake, PROJECT),
    )
    environment = {
        **ec2_infrastructure.environment(ec2.fake.url, KEY),
        **gce_infrastructure.environment(compute.fake.url, tmp_path),
    }
    with Deployment(tmp_path, environment, *sources).running() as deployment:
        yield deployment


@pytest.mark.gcp
def test_a_job_moves_to_the_other_cloud_by_its_checkpoint_and_ends_there(
    deployment: Deployment, ec2: AwsMachines, compute: GcpMachines
) -> None:
    hurry = deployment.submit("words", offers="g4dn.xlarge")
    observed = ObservedJob(deployment, ec2, "words")
    observed.wait_until_training(1)
    observed.wait_for(lambda: _saved_step(observed) > 0, "a checkpoint")
    saved_step = _saved_step(observed)
    assert compute.launched == 0, "the job permits only EC2's type"

    deployment.castor("set", "words", "offers=g2-standard-4")
    training_offers: list[frozenset[str]] = []

    def trains_on_compute_engine_alone() -> bool:
        offers = {instance.id: instance.offer for instance in observed.job().instances}
        training_offers.append(frozenset(offers[instance] for instance in observed.training()))
        return not ec2.alive() and bool(training_offers[-1]) and len(compute.alive()) == 1

    observed.wait_for(trains_on_compute_engine_alone, "the job trains on Compute Engine alone")
    assert max(map(len, training_offers)) == 1, "instances of both clouds trained at once"

    hurry.touch()
    observed.wait_for(lambda: observed.job().phase.is_final, "the job ends")
    observed.wait_for(lambda: not compute.remaining(), "nothing is left on Compute Engine")
    job = observed.job()
    assert job.phase is JobPhase.FINISHED, job.cause
    assert job.attempt == 1, "the job moved; it was not restarted"
    assert job.checkpoint_directory.startswith("s3://castor-prod-")
    assert deployment.castor("logs", "words").count("it begins") == 2
    first, second = _progress_at_starts(deployment)
    assert first == 0 and second >= saved_step * BATCH, "the job continues from its checkpoint"
    assert "through a checkpoint" in deployment.castor("why", "words")
    observed.wait_for(lambda: not observed.job().instances, "all instances have ended")
    _assert_transfers_are_booked(deployment)


def _assert_transfers_are_booked(deployment: Deployment) -> None:
    """Assert that the ledger holds the transfers of Compute Engine's instance, and none of EC2."""
    with closing(open_store(f"sqlite:///{deployment.state / 'castor.db'}")) as store:
        lines = [line for line in store.ledger.entries() if line.kind is EntryKind.TRANSFER]
    assert {line.job for line in lines} == {"words"}
    assert all("g2-standard-4" in line.offer for line in lines)
    sent_bytes = sum(line.sent_bytes for line in lines)
    fetched_bytes = sum(line.fetched_bytes for line in lines)
    assert sent_bytes > 1000, "the log and at least the last checkpoint"
    assert fetched_bytes > 1000, "the bundle and the checkpoint"
    usd = (sent_bytes * Decimal("0.12") + fetched_bytes * Decimal("0.09")) / 10**9
    costs = json.loads(deployment.castor("costs", "--json"))
    assert Decimal(costs["transfer"]["by_job"]["words"]) == usd
    assert Decimal(costs["total_usd"]) > Decimal(costs["transfer"]["total_usd"]) == usd
    assert "of which transfer" in deployment.castor("costs")


def _saved_step(observed: ObservedJob) -> int:
    report = observed.job().report
    return 0 if report is None else report.checkpoint.step or 0


def _progress_at_starts(deployment: Deployment) -> list[float]:
    """Return the examples processed at each start, in order of the starts."""
    lines = deployment.castor("logs", "words").splitlines()
    return sorted(float(line.rsplit(" ", 1)[1]) for line in lines if "goes on from" in line)
