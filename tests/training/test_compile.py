"""Number of compilations by `torch.compile` in a session, counted by a backend on the CPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from autoscaler.domain.job import BatchSpec
from autoscaler.training import session
from autoscaler.training.data.orders import Sequential
from autoscaler.training.data.sampler import ElasticSampler, share
from tests.training.alone import allow, opened, script

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)  # with some weights the loss is 0 from the start
        self.hidden, self.out = nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.out(self.hidden(inputs).relu())


class Compiler:
    """A backend that compiles nothing and counts how often it is asked to."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        self.calls += 1
        return graph.forward


@pytest.fixture
def compiler() -> Iterator[Compiler]:
    torch._dynamo.reset()
    yield Compiler()
    torch._dynamo.reset()


def _data(examples: int) -> Any:
    return [torch.ones(3)] * examples


def _train(job: Any, epochs: int) -> list[int]:
    sizes = []
    for inputs in job.batches(epochs=epochs):
        sizes.append(len(inputs))
        job.step(job.model(inputs).square().mean())
    return sizes


@pytest.mark.parametrize(
    ("examples", "drop_last", "dynamic", "compilations"),
    [
        (64, False, None, 1),  # whole steps alone
        (70, True, False, 1),
        (70, False, False, 2),  # one more size at the end of a pass
        (70, False, None, 2),  # the second time for all sizes
        (70, False, True, 1),
    ],
)
def test_it_compiles_once_for_each_size_or_for_all(
    compiler: Compiler, examples: int, drop_last: bool, dynamic: bool | None, compilations: int
) -> None:
    model = Net()
    model.compile(backend=compiler, dynamic=dynamic)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with session(model, optimizer, _data(examples), batch_size=16, drop_last=drop_last) as job:
        _train(job, epochs=3)
    assert compiler.calls == compilations


def test_a_batch_that_changes_is_compiled_for_twice(compiler: Compiler, monkeypatch) -> None:
    allow(monkeypatch, BatchSpec(16, 64, 64, adaptive=True))
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model.compile(backend=compiler)
    job, parts = opened(script(model, optimizer, _data(300)))
    totals = itertools.cycle([16, 32, 48, 64])
    monkeypatch.setattr(type(parts.replica), "_proposed_batch", lambda *_: (next(totals), 0))
    assert len(set(_train(job, epochs=3))) > 3
    assert compiler.calls == 2


@pytest.mark.parametrize("first", ["plain", "compiled"])
def test_checkpoints_of_a_compiled_model_and_of_the_plain_one_are_the_same(
    compiler: Compiler, tmp_path: Path, first: str
) -> None:
    weights = []
    for epochs, kind in ((1, first), (2, "plain" if first == "compiled" else "compiled")):
        model = Net()
        given_model: Any = model
        if kind == "compiled":
            given_model = torch.compile(model, backend=compiler)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with session(
            given_model, optimizer, _data(64), batch_size=16, checkpoint_directory=str(tmp_path)
        ) as job:
            weights.append(model.out.weight.detach().clone())
            _train(job, epochs)
        weights.append(model.out.weight.detach().clone())
    assert torch.equal(weights[1], weights[2])
    assert not torch.equal(weights[2], weights[3])


@given(
    batch=st.integers(1, 64),
    ranks=st.integers(1, 8),
    micro_steps=st.integers(1, 4),
    whole_steps=st.integers(1, 4),
)
def test_a_rank_sees_two_sizes_at_most_where_no_step_is_cut(
    batch: int, ranks: int, micro_steps: int, whole_steps: int
) -> None:
    sampler = ElasticSampler(Sequential(batch * whole_steps + batch - 1), drop_last=batch)
    for rank in range(ranks):
        sizes, place = set(), (0, 0)
        while place[0] == 0:
            indices = sampler.take(*place, batch)
            own = share(indices, rank, ranks, micro_steps)
            sizes.update(len(part) for part in own.micro_steps)
            place = sampler.place_after(*place, len(indices))
        assert len(sizes) <= (1 if batch % (ranks * micro_steps) == 0 else 2)
