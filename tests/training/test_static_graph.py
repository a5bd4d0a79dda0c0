"""A static graph: no search for unused parameters, equal buckets, and a clear error otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.utils.data import TensorDataset

from autoscaler.clock import SystemClock
from autoscaler.training.collectives.reducer import Reducer
from autoscaler.training.collectives.world import PendingSum
from autoscaler.training.gradients.preconditioner import Preconditioner
from autoscaler.training.rehearsal import rehearse
from tests.training.alone import opened, script
from tests.training.fleet import Fleet, wait_until
from tests.training.test_equal_replicas import hashes
from tests.training.traces import is_training

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
STATIC = {"STATIC_GRAPH": "1", "EPOCHS": "100000"}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, checkpoint_interval_seconds=1.0)
    yield fleet
    fleet.stop()


@pytest.fixture
def one_rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class _Twice(nn.Module):
    """One layer that is used twice, and one that can be left out; each has a bucket of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(600, 600)
        self.second = nn.Linear(600, 600)
        self.leaves_out = False

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.first(self.first(inputs))
        return hidden if self.leaves_out else self.second(hidden)


def _reducer(model: nn.Module, has_static_graph: bool = True) -> Reducer:
    preconditioner = Preconditioner(torch.optim.SGD(model.parameters(), lr=0.1))
    return Reducer(
        model,
        SystemClock(),
        lambda _: PendingSum(),
        preconditioner,
        has_static_graph=has_static_graph,
    )


def _gradients(reducer: Reducer, inputs: torch.Tensor) -> list[torch.Tensor]:
    """Return the gradients of two micro-steps, of which the last one sums."""
    for synchronises in (False, True):
        reducer.synchronises = synchronises
        reducer.model(inputs).square().mean().backward()
    reducer.require_synchronised()
    found = [parameter.grad.clone() for parameter in reducer.bare_model.parameters()]
    for parameter in reducer.bare_model.parameters():
        parameter.grad = None
    return found


def test_gradients_are_those_of_the_search_and_nothing_is_searched(one_rank, monkeypatch) -> None:
    models = [_Twice(), _Twice()]
    models[1].load_state_dict(models[0].state_dict())
    searching, settled = _reducer(models[0], False), _reducer(models[1])
    before = settled.bucket_sizes
    assert before == "[[3, 2], [1, 0]]", "in the order in which they become ready"
    monkeypatch.setattr(
        torch.nn.parallel.distributed, "_find_tensors", lambda _: pytest.fail("searched")
    )
    inputs = torch.randn(4, 600)
    for _ in range(3):
        found = _gradients(settled, inputs)
    assert settled.bucket_sizes == before, "training does not change the buckets"
    assert settled.used() == []
    monkeypatch.undo()
    for gradient, expected in zip(found, _gradients(searching, inputs), strict=True):
        assert torch.allclose(gradient, expected, rtol=1e-6)
    searching.close()
    settled.close()


@pytest.mark.parametrize("accumulates", [False, True])
def test_a_step_that_leaves_a_parameter_out_is_refused_by_name(one_rank, accumulates) -> None:
    model = _Twice()
    reducer, inputs = _reducer(model), torch.randn(4, 600)
    _gradients(reducer, inputs)
    if accumulates:
        reducer.synchronises = False
        reducer.model(inputs).mean().backward()
        reducer.synchronises = True
    model.leaves_out = True
    reducer.model(inputs).mean().backward()
    names = "" if accumulates else ", and second.weight, second.bias had no part in this one"
    with pytest.raises(ValueError, match=f"static_graph=True.*requires a gradient{names}: leave"):
        reducer.require_synchronised()
    reducer.close()


def test_a_script_alone_is_held_to_the_same_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _Twice()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(64, 600))
    job, _ = opened(script(model, optimizer, data, static_graph=True))
    with pytest.raises(ValueError, match="static_graph=True"):
        for number, (inputs,) in enumerate(job.batches(epochs=1)):
            model.leaves_out = number == 2
            job.step(job.model(inputs).square().mean())
    assert number == 2


def _rehearsal(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    loss: torch.Tensor = model(batch[0]).square().mean()
    return loss


def _steps(rehearsal: Any) -> tuple[list[torch.Tensor], str]:
    """Return the parameters after an epoch, and the buckets; after a rehearsal, if given."""
    torch.manual_seed(0)
    model = _Twice()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(64, 600))
    its_script = script(model, optimizer, data, static_graph=True, rehearsal=rehearsal)
    job, parts = opened(its_script)
    if rehearsal is not None:
        rehearse(its_script, parts)
        assert all(parameter.grad is None for parameter in model.parameters())
    for (inputs,) in job.batches(epochs=1):
        job.step(job.model(inputs).square().mean())
    buckets = parts.reducer.bucket_sizes
    parts.reducer.close()
    return [parameter.detach().clone() for parameter in model.parameters()], buckets


def test_a_rehearsal_changes_nothing_of_a_static_graph(one_rank) -> None:
    expected, buckets = _steps(None)
    parameters, rehearsed_buckets = _steps(_rehearsal)
    assert all(torch.equal(one, other) for one, other in zip(parameters, expected, strict=True))
    assert rehearsed_buckets == buckets


def test_a_rehearsal_that_leaves_a_parameter_out_is_refused_by_name(one_rank) -> None:
    def leaves_out(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        bare = model.module
        bare.leaves_out = True
        loss = _rehearsal(model, batch)
        bare.leaves_out = False
        return loss

    with pytest.raises(
        ValueError, match=r"^rehearsal: .*static_graph=True.*second\.weight, second\.bias"
    ):
        _steps(leaves_out)


def test_a_rehearsal_of_the_plain_model_is_refused_by_name(one_rank) -> None:
    with pytest.raises(ValueError, match=r"^rehearsal: .*static_graph=True"):
        _steps(lambda model, batch: _rehearsal(model.module, batch))


def _agreed_steps(fleet: Fleet) -> list[int]:
    """Kill all replicas, and return the steps that they have done: in each with equal weights."""
    for replica in fleet.replicas:
        replica.kill()
    of_steps = hashes(fleet.replicas)
    assert all(len(of_step) == 1 for of_step in of_steps.values()), "replicas have drifted"
    return list(of_steps)


def test_a_joiner_rehearses_a_static_graph_before_it_joins(fleet: Fleet) -> None:
    first = fleet.start("branches.py", **STATIC)
    wait_until(lambda: first.step > 5)
    second = fleet.start("branches.py", ranks=2, **STATIC, REHEARSES="1")
    wait_until(lambda: is_training(first, 2), description="two replicas with three ranks")
    joined = second.step
    wait_until(lambda: min(first.step, second.step) > joined + 20, description="steps of both")
    assert sum(step > joined for step in _agreed_steps(fleet)) > 15


def test_a_joiner_trains_with_members_of_a_static_graph(fleet: Fleet) -> None:
    first = fleet.start("branches.py", **STATIC)
    wait_until(lambda: first.step > 5)
    second = fleet.start("branches.py", ranks=2, **STATIC)
    wait_until(lambda: is_training(first, 2), description="two replicas with three ranks")
    third = fleet.start("branches.py", **STATIC)
    wait_until(lambda: is_training(first, 3), description="three replicas")
    joined = third.step
    wait_until(
        lambda: min(r.step for r in fleet.replicas) > joined + 20, description="steps of all"
    )
    second.kill()
    at = first.step
    wait_until(lambda: min(first.step, third.step) > at + 20, description="steps after a loss")
    assert sum(step > joined for step in _agreed_steps(fleet)) > 40


def test_a_replica_that_leaves_a_branch_out_fails_and_names_the_argument(fleet: Fleet) -> None:
    first = fleet.start("branches.py", **STATIC)
    wait_until(lambda: first.step > 5)
    second = fleet.start("branches.py", **STATIC, LEAVES_OUT_AT="30")
    assert second.wait(60) == 1
    log = second.log.read_text()
    assert "ValueError: static_graph=True" in log and "branches.0.weight" in log
    at = first.step
    wait_until(lambda: first.step > at + 10, description="the other goes on")
    assert _agreed_steps(fleet)
