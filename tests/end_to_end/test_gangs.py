"""A sharded job of two gangs on this machine: one loses an instance, and is bought again whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobPhase
from autoscaler.wire.messages import InstanceView, JobView
from tests.builders.waiting import wait_until
from tests.end_to_end.deployment import TRAIN as LONG_TRAIN
from tests.end_to_end.deployment import Deployment

CROWDED = Path(__file__).parent / "crowded"
# Each gang holds one copy of the model, half of it on each instance.
SHARDED = """
from torch.distributed.fsdp import fully_shard
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
fully_shard(model)
"""
TRAIN = LONG_TRAIN.replace("model = torch.nn.Linear(4, 1)\n", SHARDED).replace("500", "160")
JOB = """
name: sharded
command: [python, train.py, {hurry}]
objective: fastest
parallelism: {{shard: 2}}
instances: {{min: 4, max: 4, offers: [local-small], spot: false}}
checkpoint: {{interval: 2s}}
"""
WAIT_SECONDS = 150.0


class Crowded(Deployment):
    """Deployment with four cores for sale, however many this machine has."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, {"PYTHONPATH": str(CROWDED)})
        self._serve += ["--devices", "0,1,2,3"]


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with Crowded(tmp_path).running() as running:
        yield running
        running.castor("drain", "--all")


def trains(job: JobView, *gangs: int) -> bool:
    """Return whether the job's instances are those of these gangs, and all train."""
    seats = [f"gang {gang}, {index} of 2" for gang in gangs for index in (1, 2)]
    training = [
        instance.gang for instance in job.instances if instance.phase is InstancePhase.TRAINING
    ]
    return sorted(map(str, training)) == seats and len(job.instances) == len(seats)


def kill(instance: InstanceView) -> None:
    """Kill an instance with all its processes, at once."""
    assert instance.cloud_id is not None
    (machine,) = [
        process
        for process in psutil.process_iter(["cmdline"])
        if "providers.local.machine" in (process.info["cmdline"] or [])
        and any(word.endswith(instance.cloud_id) for word in process.info["cmdline"])
    ]
    for process in [machine, *machine.children(recursive=True)]:
        process.kill()


@pytest.mark.timeout(700)
def test_a_gang_that_loses_a_member_leaves_and_is_bought_again_whole(
    deployment: Deployment, tmp_path: Path
) -> None:
    hurry = tmp_path / "hurry"
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "job.yaml").write_text(JOB.format(hurry=hurry))
    deployment.castor("submit", tmp_path / "job.yaml")
    client = deployment.client()

    def job() -> JobView:
        view = client.job("sharded")
        assert view.phase is not JobPhase.FAILED, (view.cause, deployment.castor("logs", view.id))
        return view

    wait_until(lambda: trains(job(), 1, 2), "two gangs that train", WAIT_SECONDS)
    report = job().report
    assert report is not None
    (follower,) = [instance for instance in job().instances if instance.gang == "gang 1, 2 of 2"]
    kill(follower)
    wait_until(lambda: trains(job(), 2, 3), "the gang bought again", WAIT_SECONDS)
    events = [event.text for event in job().events]
    assert job().attempt == 1, ("a lost instance is no failure of the script", events)
    after = job().report
    assert after is not None and after.step > report.step, "the other gang went on"
    log = deployment.castor("logs", "sharded")
    resumed = [line.partition("goes on from ")[2] for line in log.splitlines()]
    starts = [float(text) for text in resumed if text]
    assert len(starts) == 6 and starts.count(max(starts)) == 2, "the state came from the members"
    hurry.touch()
    wait_until(lambda: job().phase.is_final, "the end of the job", 2 * WAIT_SECONDS)
    assert job().phase is JobPhase.FINISHED, job().cause
    given_back = [event.text for event in job().events if event.kind == "gang given back"]
    assert given_back == [f"gang 1 lost {follower.id}: the other one is given back"]
