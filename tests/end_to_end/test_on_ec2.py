"""A real job on the fake EC2 through the whole path, as a person would have it: from the shell."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("boto3", reason="the extra aws is not installed")
pytest.importorskip("moto", reason="moto is not installed")

from autoscaler.clock import SystemClock
from autoscaler.domain.job import JobPhase
from tests.end_to_end.deployment import Deployment, Story
from tests.end_to_end.ground import lay_ground
from tests.fakes.aws.identity import DocumentSigner, signer
from tests.fakes.aws.machines import REGION, Machines, Teller
from tests.fakes.aws.server import FakeAws

KEY = "AKIAENDTOEND"
NOTICE_SECONDS = 20.0


@pytest.fixture(scope="module")
def server() -> Iterator[FakeAws]:
    fake = FakeAws(SystemClock())
    yield fake
    fake.close()


@pytest.fixture
def fake(server: FakeAws) -> FakeAws:
    """With an account that is new."""
    server.proxy.renew(KEY, SystemClock())
    return server


@pytest.fixture
def machines(fake: FakeAws, tmp_path: Path) -> Iterator[Machines]:
    machines = Machines(fake, KEY, tmp_path / "machines")
    yield machines
    machines.close()


@pytest.fixture
def deployment(fake: FakeAws, tmp_path: Path) -> Iterator[Deployment]:
    deployment = Deployment(tmp_path, fake.url, KEY, lay_ground(fake, KEY))
    deployment.start()
    yield deployment
    deployment.end()
    deployment.put_lights_out()


@pytest.mark.aws
@pytest.mark.timeout(400)
def test_a_job_grows_is_reclaimed_shrinks_and_ends(
    deployment: Deployment, machines: Machines
) -> None:
    hurry = deployment.submit("words")
    story = Story(deployment, machines, "words")
    story.trains_on(1)
    deployment.castor("set", "words", "min=2", "max=2")
    story.trains_on(2)

    for told_by in Teller:
        taken = story.account.alive()[0]
        machines.reclaim(taken, NOTICE_SECONDS, told_by)
        story.trains_on(2, without=taken)

    deployment.end(signal.SIGKILL)
    deployment.start()
    deployment.castor("set", "words", "min=1", "max=1")
    story.trains_on(1)

    hurry.touch()
    story.until(lambda: story.job().phase.is_final, "the job ends")
    story.until(lambda: not story.account.alive(), "everything is given back")
    job = story.job()
    assert job.phase is JobPhase.FINISHED, job.cause
    assert job.attempt == 1, "no step was lost, and nothing was started again"
    assert len(story.account.launched_seconds) == 4
    assert job.checkpoint_directory.startswith("s3://castor-prod-")
    assert job.report is not None and job.report.checkpoint.step == job.report.step
    assert deployment.castor("logs", "words").count("it begins") == 4, "from each instance"
    assert not (deployment.state / "jobs").exists(), "nothing of it lies on a disk"


@pytest.mark.aws
@pytest.mark.timeout(200)
def test_a_drain_leaves_nothing(deployment: Deployment, machines: Machines) -> None:
    deployment.submit("words")
    story = Story(deployment, machines, "words")
    story.trains_on(1)
    said = deployment.castor("drain", "--all")
    assert said.endswith("nothing is left: no instance of this deployment runs\n")
    assert story.account.alive() == []
    assert story.job().phase is JobPhase.STOPPED


@pytest.mark.aws
@pytest.mark.timeout(300)
def test_an_instance_that_aws_does_not_vouch_for_is_not_let_in(
    deployment: Deployment, machines: Machines
) -> None:
    machines.signer = DocumentSigner(REGION)
    deployment.submit("words")
    story = Story(deployment, machines, "words")

    def refused() -> list[str]:
        return [each.text for each in story.job().events if each.kind == "join refused"]

    story.until(refused, "a refusal")
    assert "not signed by AWS in us-east-1" in refused()[0]
    assert "join refused" in deployment.castor("status", "words")
    first = next(iter(machines.machines))
    story.until(lambda: first not in story.account.alive(), "its end, by itself")
    machines.signer = signer(REGION)
    story.trains_on(1)
    deployment.castor("drain", "--all")
