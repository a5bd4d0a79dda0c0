"""A sharded job of two gangs on this machine: one loses an instance, and is bought again whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobPhase
from autoscaler.wire.messages import JobView
from tests.end_to_end.deployment import TRAIN as LONG_TRAIN
from tests.end_to_end.deployment import Deployment
from tests.end_to_end.local_job import LocalJob, kill

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
WAIT_SECONDS = 300.0


class Crowded(Deployment):
    """Deployment with four cores for sale, however many this machine has."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, {"PYTHONPATH": str(CROWDED)})
        self._serve += ["--devices", "0,1,2,3"]


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with Crowded(tmp_path).running() as running:
        yield running
        running.castor("drain", "--all", "-y")


def trains(job: JobView, *gangs: int) -> bool:
    """Return whether the job's instances are those of these gangs, and all train."""
    seats = [f"gang {gang}, {index} of 2" for gang in gangs for index in (1, 2)]
    training = [
        instance.gang for instance in job.instances if instance.phase is InstancePhase.TRAINING
    ]
    return sorted(map(str, training)) == seats and len(job.instances) == len(seats)


def starts_of(deployment: Deployment, count: int) -> list[float]:
    """Return the examples at each start, from all logs; empty before so many have arrived."""
    log = deployment.castor("logs", "sharded")
    resumed = [line.partition("goes on from ")[2] for line in log.splitlines()]
    starts = [float(text) for text in resumed if text]
    return starts if len(starts) == count else []


@pytest.mark.timeout(700)
def test_a_gang_that_loses_a_member_leaves_and_is_bought_again_whole(
    deployment: Deployment, tmp_path: Path, shared: Path
) -> None:
    hurry = shared / "hurry"
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "job.yaml").write_text(JOB.format(hurry=hurry))
    deployment.castor("submit", tmp_path / "job.yaml")
    job = LocalJob(deployment, "sharded", WAIT_SECONDS)
    job.wait_for(lambda: trains(job.view(), 1, 2), "two gangs that train")
    before = job.wait_for(lambda: job.step, "a report of its steps")
    instances = job.view().instances
    (follower,) = [instance for instance in instances if instance.gang == "gang 1, 2 of 2"]
    kill(follower)
    job.wait_for(lambda: trains(job.view(), 2, 3), "the gang bought again")
    events = [event.text for event in job.view().events]
    assert job.view().attempt == 1, ("a lost instance is no failure of the script", events)
    job.wait_for(lambda: job.step > before, "steps of the other gang")
    starts = job.wait_for(lambda: starts_of(deployment, 6), "the logs of six instances")
    assert starts.count(max(starts)) == 2, "the state came from the members"
    hurry.touch()
    ended = job.wait_for_end()
    assert ended.phase is JobPhase.FINISHED, ended.cause
    given_back = [event.text for event in ended.events if event.kind == "gang given back"]
    assert given_back == [f"gang 1 lost {follower.id}: the other one is given back"]
