"""Squares of gradients: in the optimizer's terms, from any layout, and never read in between."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.amp.grad_scaler import GradScaler
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import TensorDataset

from autoscaler.clock import SystemClock
from autoscaler.domain.job import BatchSpec
from autoscaler.training.collectives.reducer import Reducer
from autoscaler.training.gradients.preconditioner import Preconditioner
from autoscaler.training.gradients.sampling import SamplingBudget
from tests.training.alone import allow, opened, script


class HostReads(TorchDispatchMode):
    """Counts how often the host reads a number of a tensor.

    DDP reads its map of used parameters, whole numbers that lie in the host's memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        reads = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)
        self.count += func in reads and args[0].is_floating_point()
        return func(*args, **(kwargs or {}))


def _convolutional() -> nn.Module:
    torch.manual_seed(0)
    convolution = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    return nn.Sequential(convolution, nn.Flatten(), nn.Linear(144, 2))


def _after_steps(
    model: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor, steps: int
) -> None:
    for _ in range(steps):
        model(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW, torch.optim.Adamax])
def test_the_host_reads_nothing_in_a_sampled_backward_pass(monkeypatch, kind, ranks: int) -> None:
    allow(monkeypatch, BatchSpec(16, 64, 64, adaptive=True))
    monkeypatch.setattr(SamplingBudget, "steps_per_sample", lambda *arguments: 1)
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(256, 4, generator=generator))
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    scaler = GradScaler("cpu", init_scale=4.0)
    job, parts = opened(script(model, kind(model.parameters(), lr=1e-3), data, scaler=scaler))
    stepper, sampled = parts.stepper, 0
    job._rounds.open()
    for step in range(20):
        parts.reducer.synchronises = True
        (inputs,) = data[16 * step % 256 : 16 * step % 256 + 16]
        parts.state.counters.step = step
        stepper.begin(samples=True, alone=ranks == 1)
        reads = HostReads()
        with reads:
            if ranks == 1:
                parts.reducer.synchronises = False
                stepper.backward(job.model(inputs[:8]).square().mean(), 0.5, is_last=False)
                parts.reducer.synchronises = True
            stepper.backward(job.model(inputs[8:]).square().mean(), 0.5, is_last=True)
        assert reads.count == 0
        stepper.end(16, (0, 0))
        sampled += stepper._samples.count
        reads = HostReads()
        with reads:
            squares = stepper.take_squares()
        assert reads.count <= 2
        assert squares.samples == 1
    assert sampled == 20
    assert squares.small_square > 0 and squares.big_square > 0
    parts.reducer.close()


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_buckets_and_gradients_have_the_same_square_in_any_layout(kind) -> None:
    model = _convolutional()
    optimizer = kind(model.parameters(), lr=0.01)
    inputs = torch.randn(4, 3, 8, 8)
    _after_steps(model, optimizer, inputs, steps=8)
    reducer = Reducer(model, SystemClock(), None, Preconditioner(optimizer))
    reducer.begin_sample(8, takes_small=True)
    reducer.model(inputs).square().mean().backward()
    exact = 0.0
    for parameter in model.parameters():
        factors = 1.0
        if kind is torch.optim.Adam:
            factors = Preconditioner(optimizer).factors(parameter).double()
        exact += float((parameter.grad.double() * factors).square().sum())
    of_gradients = float(reducer.square_of_gradients(model.parameters()))
    sample = reducer.end_sample()
    assert sample is not None and sample.small is not None and sample.big is not None
    assert float(sample.small) == float(sample.big)
    assert float(sample.big) == pytest.approx(exact, rel=1e-3)
    assert of_gradients == pytest.approx(exact, rel=1e-3)
    reducer.close()


def test_factors_are_kept_for_some_steps_and_forgotten_at_a_join() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    computed = []

    class Counted(Preconditioner):
        def factors(self, parameter: torch.Tensor) -> torch.Tensor:
            computed.append(parameter)
            return super().factors(parameter)

    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    reducer = Reducer(model, SystemClock(), None, Counted(optimizer))
    by_step = {}
    for step in range(400):
        before = len(computed)
        if step == 390:
            reducer.forget_factors()
        reducer.begin_sample(step, takes_small=True)
        reducer.model(torch.randn(8, 4)).square().mean().backward()
        reducer.end_sample()
        by_step[step] = len(computed) > before
        optimizer.step()
        reducer.model.zero_grad()
    assert all(by_step[step] for step in range(8)), "averages change much at first"
    assert 3 <= sum(by_step[step] for step in range(200, 380)) <= 8
    assert by_step[390]
    kept = [flat for flat in reducer._squares._flat.values()]
    assert sum(flat.numel() * flat.element_size() for flat in kept) == 2 * 5
    reducer.close()
    dist.destroy_process_group()


def test_adam_is_measured_in_its_own_terms() -> None:
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([parameter])
    preconditioner = Preconditioner(optimizer)
    for step in range(10):
        averages = "mean nothing yet" if step < 5 else "are known"
        assert bool(preconditioner.factors(parameter).any()) == (step >= 5), averages
        parameter.grad = torch.tensor([2.0, 0.5])
        optimizer.step()
    assert torch.allclose(preconditioner.factors(parameter), torch.tensor([0.5, 2.0]), rtol=1e-4)
    assert not Preconditioner(torch.optim.SGD([parameter])).is_adaptive


def test_what_never_had_a_gradient_does_not_drown_the_rest() -> None:
    """The first gradient of a rare token's embedding is not divided by the root of nothing."""
    torch.manual_seed(0)
    embedding = nn.Embedding(4, 8)
    optimizer = torch.optim.Adam(embedding.parameters())
    for _ in range(10):
        embedding(torch.tensor([0, 1, 2])).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    factors = Preconditioner(optimizer).factors(embedding.weight)
    assert float(factors[3].max()) < 20 * float(factors[:3].mean())


def test_without_epsilon_what_never_had_a_gradient_does_not_count() -> None:
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([parameter], eps=0.0)
    for _ in range(10):
        parameter.grad = torch.zeros(2)
        optimizer.step()
    assert Preconditioner(optimizer).factors(parameter).tolist() == [0.0, 0.0]
