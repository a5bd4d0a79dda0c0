"""Steps that one member commits and others do not: states of equal step numbers that differ."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest
import torch

from autoscaler.clock import SystemClock
from autoscaler.training.collectives import world
from autoscaler.training.members.state_sync import StateSync
from autoscaler.training.state.training_state import Counters, TrainingState
from tests.training.together import Members, at_once

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


class Job:
    """Three members whose worlds come and go, and the weight that each has come to."""

    def __init__(self) -> None:
        models = [torch.nn.Linear(1, 1) for _ in range(3)]
        self._weights = [model.weight for model in models]
        self.states = [
            TrainingState(model, torch.optim.SGD(model.parameters()), None, Counters())
            for model in models
        ]
        self._members = Members(3)
        self._catching = [
            StateSync("127.0.0.1", "token", state, sums, SystemClock())
            for state, sums in zip(self.states, self._members.sums, strict=True)
        ]

    def meet(self, *those: int) -> None:
        """Have these members form a world, in this order, with one state."""
        self._members.meet(those)
        settled = at_once([self._catching[place].settle for place in those])
        assert None not in settled
        self.require_equal(those)

    def commit(self, change: float, *those: int) -> None:
        """Have these members commit a step, which changes their weights; others lose it."""
        for place in those:
            with torch.no_grad():
                self._weights[place].add_(change)
            self.states[place].counters.step += 1

    def weight(self, place: int) -> float:
        return float(self._weights[place].detach())

    def steps(self) -> list[int]:
        return [state.counters.step for state in self.states]

    def require_equal(self, those: Sequence[int]) -> None:
        known = {(self.weight(place), self.states[place].counters.step) for place in those}
        assert len(known) == 1, f"members {those} train on with different states: {known}"

    def close(self) -> None:
        for catching in self._catching:
            catching.close()
        self._members.close()


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setattr(world, "_STORE_TIMEOUT", timedelta(seconds=60))  # of busy machines
    job = Job()
    yield job
    job.close()


def test_one_that_has_committed_alone_meets_others_at_the_same_step(job: Job) -> None:
    """Meet replicas that repeated the step without it, on other shares of the examples."""
    job.meet(0, 1, 2)
    job.commit(1.0, 0)
    job.meet(1, 2)
    job.commit(1.5, 1, 2)
    assert job.steps() == [1, 1, 1]
    of_most = job.weight(1)
    assert job.weight(0) != of_most
    job.meet(0, 1, 2)
    assert job.weight(0) == of_most, "the odd one out has received the state of the others"


def test_two_that_have_committed_one_step_each_alone_come_to_one_state(job: Job) -> None:
    job.meet(0, 1)
    job.commit(1.0, 0)
    job.meet(1)
    job.commit(1.5, 1)
    assert job.steps()[:2] == [1, 1]
    job.meet(0, 1)


def test_others_that_have_not_taken_the_step_again_receive_it(job: Job) -> None:
    job.meet(0, 1, 2)
    job.commit(1.0, 0)
    job.meet(1, 2)
    committed = job.weight(0)
    job.meet(1, 2, 0)
    assert [job.weight(place) for place in range(3)] == [committed] * 3
    assert job.steps() == [1, 1, 1]


@pytest.mark.parametrize("seed", range(3))
def test_whoever_commits_what_and_meets_whom_no_world_has_two_states(job: Job, seed: int) -> None:
    draw = random.Random(seed)
    for number in range(8):
        those = draw.sample(range(3), draw.randint(1, 3))
        job.meet(*those)
        for _ in range(draw.randint(0, 2)):
            job.commit(1.0 + number, *those)
        job.commit(draw.random(), *draw.sample(those, draw.randint(0, len(those))))
    job.meet(0, 1, 2)
