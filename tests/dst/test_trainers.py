"""Scripts of the simulation."""

from __future__ import annotations

from random import Random

import pytest

from autoscaler.domain.instance import INSTANCE_TAG, InstancePhase
from providers.cloud.tags import TOKEN_TAG
from tests.dst.cloud import CloudTruth
from tests.dst.scheduler import Scheduler
from tests.dst.trainers import Agent, Training


@pytest.mark.parametrize("step_seconds", [5, 20, 60])
@pytest.mark.parametrize("save_seconds", [1, 25])
def test_a_script_ends_with_its_last_save_however_long_the_steps_are(
    step_seconds: int, save_seconds: int
) -> None:
    truth = CloudTruth(Scheduler(Random(0)), boot_seconds=0)
    place = "aws", "g5.xlarge", "us-east-1a"
    machine = truth.create(place, "spot", {INSTANCE_TAG: "job-0-1", TOKEN_TAG: "t"}, "key")
    now_seconds = truth.now_seconds
    training = Training(100.0, 1.0, save_seconds, advanced_seconds=now_seconds)
    agent = Agent(machine, {"job": training}, job="job", token="token")
    agent.phase = InstancePhase.TRAINING
    training.members.append(agent)
    for _ in range(300 // step_seconds):
        now_seconds += step_seconds
        training.advance(now_seconds)
        agent.advance(now_seconds)
    assert agent.is_complete
    assert training.saved == training.total
