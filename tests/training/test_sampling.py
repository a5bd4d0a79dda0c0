"""Intervals of gradient squares: early enough to be of use, at a small share of the time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from autoscaler.domain.job import BatchSpec
from autoscaler.training.gradients.noise import GradientSquares, NoiseTracker
from autoscaler.training.gradients.sampling import SamplingBudget
from autoscaler.training.members import rounds
from tests.training.alone import allow, opened, script

STEP_SECONDS = 0.3


class Job:
    """A job of two ranks whose gradients have a known mean and noise, in rounds of one step."""

    def __init__(self, seed: int, cost_seconds: float, width: int = 60) -> None:
        self._random = np.random.default_rng(seed)
        self._cost_seconds = cost_seconds
        self._mean = np.full(width, 0.1)
        self._sigma = 1.0
        self.true_examples = width * self._sigma**2 / float(self._mean @ self._mean)
        self.budget, self.tracker = SamplingBudget(), NoiseTracker()
        self.sampled_steps: list[int] = []

    def run(self, steps: range) -> None:
        for step in steps:
            noise = self.tracker.noise_scale(32)
            every = self.budget.steps_per_sample(
                STEP_SECONDS, noise.log_standard_deviation if noise else None
            )
            samples = step % every == 0
            if samples:
                self.sampled_steps.append(step)
                self.tracker.update(self._squares())
            self.budget.count(STEP_SECONDS, self._cost_seconds * samples, float(samples))

    def seconds(self, steps: range) -> float:
        return self._cost_seconds * sum(step in steps for step in self.sampled_steps)

    def _squares(self, ranks: int = 2, local: int = 64) -> GradientSquares:
        noise = self._random.normal(size=(ranks, self._mean.size))
        gradients = self._mean + noise * self._sigma / math.sqrt(local)
        return GradientSquares(
            samples=1,
            smalls=ranks,
            small_square=float((gradients**2).sum()),
            small_inverse=ranks / local,
            big_square=float((gradients.mean(axis=0) ** 2).sum()),
            big_inverse=1 / (ranks * local),
        )


@pytest.mark.parametrize("cost", [0.0005, 0.01, 0.08])
@pytest.mark.parametrize("seed", range(8))
def test_the_noise_scale_is_known_within_200_steps(seed: int, cost: float) -> None:
    job = Job(seed, cost * STEP_SECONDS)
    job.run(range(200))
    noise = job.tracker.noise_scale(32)
    assert noise is not None
    assert noise.examples == pytest.approx(job.true_examples, rel=0.2)


@pytest.mark.parametrize("width", [60, 20_000])
@pytest.mark.parametrize("cost", [0.0005, 0.01, 0.08, 0.5])
def test_samples_take_their_share_of_the_time_at_most(cost: float, width: int) -> None:
    job = Job(0, cost * STEP_SECONDS, width)
    job.run(range(30_000))
    total_seconds = 30_000 * STEP_SECONDS
    assert job.seconds(range(30_000)) <= 0.003 * total_seconds
    for begin in range(3000, 30_000, 3000):
        within = range(begin, begin + 3000)
        assert job.seconds(within) <= 0.003 * 3000 * STEP_SECONDS * 1.05
        assert job.seconds(within) > 0.0, "the noise scale changes as training goes on"
    assert job.seconds(range(200)) <= (0.003 * 3000 + 2 * cost) * STEP_SECONDS


def test_what_is_known_precisely_is_not_sampled_as_often() -> None:
    job = Job(0, 0.05 * STEP_SECONDS, width=20_000)
    job.run(range(200))
    assert 24 <= len(job.sampled_steps) <= 32


def test_the_number_of_steps_is_a_power_of_two() -> None:
    budget = SamplingBudget(1000.0, 0.1, 500.0, 0.01)
    found = {budget.steps_per_sample(step_seconds, 0.01) for step_seconds in (0.01, 0.1, 0.3, 10)}
    assert found == {512, 64, 16, 2}


def test_a_job_whose_batch_is_fixed_takes_no_sample(monkeypatch) -> None:
    inputs = torch.randn(64, 4)
    for spec in (BatchSpec(16, 16, 16, adaptive=True), BatchSpec(16, 64, 64, adaptive=False)):
        allow(monkeypatch, spec)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        job, parts = opened(script(model, optimizer, TensorDataset(inputs)))
        micro_steps = 0
        for (batch,) in job.batches(epochs=2):
            assert parts.reducer.sample is None
            micro_steps += 1
            job.step(job.model(batch).mean())
        assert micro_steps == parts.state.counters.step == 8
        assert parts.replica.noise is None
        assert parts.stepper.learning_rate() == 0.01
        assert parts.state.counters.sampling.samples == 0


def test_steps_that_are_split_for_a_sample_are_not_timed_as_others(monkeypatch) -> None:
    """Two micro-steps of 8 are not a step of 16: one device would look slow."""
    monkeypatch.setattr(rounds, "_steps_in", lambda *arguments: 10)
    allow(monkeypatch, BatchSpec(16, 64, 64, adaptive=True))
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    job, parts = opened(script(model, optimizer, TensorDataset(torch.randn(800, 4))))
    whole = split = 0
    for (batch,) in job.batches(epochs=2):
        whole += len(batch) == 16
        split += len(batch) == 8
        job.step(job.model(batch).mean())
    observed = parts.replica.observations
    assert split > 10
    assert observed
    assert sum(each.steps for each in observed) <= whole
    assert parts.state.counters.sampling.sampled_seconds > 0
