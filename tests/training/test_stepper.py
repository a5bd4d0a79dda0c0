"""Movement, counts and measurements of steps; each test is for a published defect."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from autoscaler.clock import SystemClock
from autoscaler.domain.job import BatchSpec
from autoscaler.training.collectives.reducer import Reducer
from autoscaler.training.data.orders import Shuffled
from autoscaler.training.data.sampler import ElasticSampler, share
from autoscaler.training.gradients.preconditioner import Preconditioner, is_adam
from autoscaler.training.gradients.sampling import SamplingBudget
from autoscaler.training.members import rounds
from autoscaler.training.members.job_ranks import JobRanks
from autoscaler.training.state.training_state import Counters, TrainingState
from autoscaler.training.steps.learning_rate import RULES
from autoscaler.training.steps.scaled_optimizer import ScaledOptimizer
from autoscaler.training.steps.stepper import Stepper, StepSettings
from tests.training.alone import allow, decide, opened, script


def _data(examples: int, width: int = 4) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(examples, width, generator=generator)
    return TensorDataset(
        inputs, torch.randn(examples, 1, generator=generator), torch.arange(examples)
    )


def _linear(kind: type[torch.optim.Optimizer], rate: float = 0.01, width: int = 4):
    torch.manual_seed(0)
    model = nn.Linear(width, 1)
    return model, kind(model.parameters(), lr=rate)  # type: ignore[call-arg]


def _loss(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(model(inputs), targets)


def test_a_step_cut_short_is_taken_at_its_own_size(monkeypatch) -> None:
    allow(monkeypatch, BatchSpec(16, 256, 256, adaptive=True))
    decide(monkeypatch, 256)
    model, optimizer = _linear(torch.optim.SGD)
    job, parts = opened(script(model, optimizer, _data(292), lr_rule="linear", shuffle=False))
    rates, sizes, useful = [], [], []
    optimizer.register_step_pre_hook(
        lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"])
    )
    for inputs, targets, _ in job.batches(epochs=3):
        parts.state.counters.gradient_square, parts.state.counters.gradient_variance = 1.0, 1e9
        steps, before = len(rates), job.progress_examples
        size = parts.state.counters.position
        job.step(_loss(job.model, inputs, targets))
        if len(rates) > steps:
            sizes.append((parts.state.counters.position or 292) - size)
            useful.append(job.progress_examples - before)
    assert 36 in sizes and 256 in sizes
    assert rates == pytest.approx([0.01 * max(size, 16) / 16 for size in sizes])
    assert useful == pytest.approx(sizes, rel=1e-3), "at this noise each example counts"


def test_a_step_cut_short_is_not_timed_as_a_whole_one(monkeypatch) -> None:
    model, optimizer = _linear(torch.optim.SGD)
    job, parts = opened(script(model, optimizer, _data(24)))
    monkeypatch.setattr(rounds, "_steps_in", lambda *arguments: 4)
    whole = 0
    for inputs, targets, _ in job.batches(epochs=12):
        whole += len(inputs) == 16
        job.step(_loss(job.model, inputs, targets))
    observed = parts.replica.observations
    assert observed and sum(each.steps for each in observed) <= whole
    assert {each.device_batch for each in observed} == {16}


def test_no_batch_is_larger_than_a_pass(monkeypatch) -> None:
    allow(monkeypatch, BatchSpec(16, 1024, 1024, adaptive=True))
    model, optimizer = _linear(torch.optim.SGD)
    _, parts = opened(script(model, optimizer, _data(100)))
    assert parts.replica._settings.bounds.maximum == 100
    _, parts = opened(script(model, optimizer, _data(10)))
    assert parts.replica._settings.bounds.maximum == 16


@pytest.mark.usefixtures("group")
def test_what_the_optimizer_does_not_move_is_neither_measured_nor_kept() -> None:
    torch.manual_seed(0)
    body, head = nn.Linear(4, 8), nn.Linear(8, 1)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    model = nn.Sequential(body, head)
    state = TrainingState(model, optimizer, None, Counters(batch_total=16))
    reducer = Reducer(model, SystemClock(), None, Preconditioner(optimizer))
    settings = StepSettings(16, 100)
    stepper = Stepper(
        settings,
        state,
        JobRanks(None, state),
        reducer,
        [ScaledOptimizer(optimizer, RULES["none"])],
    )
    reducer.begin_sample(0, takes_small=True)
    assert reducer.sample is not None
    reducer.model(torch.randn(16, 4)).square().mean().backward()
    moved = sum(float(each.grad.square().sum()) for each in head.parameters())
    assert float(reducer.sample.small) == pytest.approx(moved)
    assert float(reducer.sample.big) == pytest.approx(moved)
    stepper.end(16, (0, 16))
    assert all(parameter.grad is None for parameter in model.parameters())
    reducer.close()


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("micro_steps", [1, 4])
def test_uneven_shares_add_up_to_one_big_batch(ranks: int, micro_steps: int) -> None:
    """23 examples over ranks and micro-steps that they do not divide by move as a plain step."""
    inputs, targets, _ = _data(23).tensors
    model, optimizer = _linear(torch.optim.SGD, rate=0.1)
    state = TrainingState(model, optimizer, None, Counters(batch_total=23))
    reducer = Reducer(model, SystemClock(), None, Preconditioner(optimizer))
    settings = StepSettings(23, 100)
    stepper = Stepper(
        settings,
        state,
        JobRanks(None, state),
        reducer,
        [ScaledOptimizer(optimizer, RULES["none"])],
    )
    indices = ElasticSampler(Shuffled(23, 0)).take(0, 0, 23)
    stepper.begin(samples=False, alone=False)
    for rank in range(ranks):  # their gradients are summed, as in this one place
        own = share(indices, rank, ranks, micro_steps)
        for part, weight in zip(own.micro_steps, own.weights, strict=True):
            loss = _loss(model, inputs[list(part)], targets[list(part)])
            stepper.backward(loss, weight, is_last=False)
    stepper.end(23, (0, 23))
    plain, plain_optimizer = _linear(torch.optim.SGD, rate=0.1)
    _loss(plain, inputs, targets).backward()
    plain_optimizer.step()
    assert torch.allclose(model.weight, plain.weight, atol=1e-7)


def test_a_change_of_batch_leaves_adams_averages_alone(monkeypatch) -> None:
    """Published code multiplied them by 0 at every change."""
    allow(monkeypatch, BatchSpec(16, 64, 64, adaptive=True))
    data = _data(256)
    monkeypatch.setattr(rounds, "_steps_in", lambda *arguments: 4)
    model, optimizer = _linear(torch.optim.Adam)
    job, parts = opened(script(model, optimizer, data))
    by_step: dict[int, list[int]] = {}
    for inputs, targets, indices in job.batches(epochs=4):
        step = parts.state.counters.step
        by_step.setdefault(step, []).extend(indices.tolist())
        job.step(_loss(job.model, inputs, targets))
        if step == 8:
            decide(monkeypatch, 64)
    assert {len(taken) for taken in by_step.values()} == {16, 64}
    plain, plain_optimizer = _linear(torch.optim.Adam)
    for taken in by_step.values():
        plain_optimizer.param_groups[0]["lr"] = 0.01 * (len(taken) / 16) ** 0.5
        plain_optimizer.zero_grad()
        _loss(plain, data.tensors[0][taken], data.tensors[1][taken]).backward()
        plain_optimizer.step()
    assert torch.allclose(model.weight, plain.weight, atol=1e-5)
    kept, expected = optimizer.state[model.weight], plain_optimizer.state[plain.weight]
    assert float(kept["step"]) == float(expected["step"])
    assert torch.allclose(kept["exp_avg"], expected["exp_avg"], atol=1e-5)
    assert torch.allclose(kept["exp_avg_sq"], expected["exp_avg_sq"], atol=1e-5)


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "NAdam", "RAdam", "Adamax"])
def test_a_session_measures_in_the_optimizers_terms_from_its_warm_up_on(
    monkeypatch, kind: str
) -> None:
    allow(monkeypatch, BatchSpec(16, 64, 64, adaptive=True))
    monkeypatch.setattr(SamplingBudget, "steps_per_sample", lambda *arguments: 1)
    model, optimizer = _linear(getattr(torch.optim, kind), rate=1e-4)
    assert is_adam(optimizer)
    job, parts = opened(script(model, optimizer, _data(256)))
    sampled = []
    for inputs, targets, _ in job.batches(epochs=1):
        if parts.reducer.sample is not None:
            sampled.append(parts.state.counters.step)
        job.step(_loss(job.model, inputs, targets))
    assert set(sampled) == set(range(5, 16)), "raw gradients are of another unit"
    factors = Preconditioner(optimizer).factors(model.weight)
    model.weight.grad = 2 / factors
    measured = parts.reducer.square_of_gradients([model.weight])
    assert float(measured) == pytest.approx(4 * model.weight.numel())
    plain = torch.nn.Parameter(torch.ones(1))
    plain.grad = torch.ones(1)
    assert parts.reducer.square_of_gradients([plain]) == 0


def test_adamax_is_measured_by_its_largest_gradient() -> None:
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adamax([parameter])
    for _ in range(10):
        parameter.grad = torch.tensor([2.0, -0.5])
        optimizer.step()
    factors = Preconditioner(optimizer).factors(parameter)
    assert torch.allclose(factors, torch.tensor([0.5, 2.0]), rtol=1e-4)


@pytest.mark.usefixtures("group")
def test_a_lone_rank_finds_a_known_noise_scale_by_splitting_its_batch(monkeypatch) -> None:
    """The gradient of x.w is x itself: its noise scale is that of the data."""
    allow(monkeypatch, BatchSpec(16, 64, 64, adaptive=True))
    monkeypatch.setattr(SamplingBudget, "steps_per_sample", lambda *arguments: 1)
    width, sigma = 400, 0.5
    generator = torch.Generator().manual_seed(0)
    inputs = 0.1 + sigma * torch.randn(4800, width, generator=generator)
    weights = nn.Linear(width, 1, bias=False)
    optimizer = torch.optim.SGD(weights.parameters(), lr=0.0)
    job, parts = opened(script(weights, optimizer, TensorDataset(inputs)))
    parts.state.counters.noise.half_life_samples = 1e9
    for (batch,) in job.batches(epochs=1):
        job.step(job.model(batch).mean())
    job.finish()
    noise = parts.replica.noise
    assert noise is not None
    true_examples = float(inputs.var(dim=0).sum() / inputs.mean(dim=0).square().sum())
    assert noise.examples == pytest.approx(true_examples, rel=0.25)
