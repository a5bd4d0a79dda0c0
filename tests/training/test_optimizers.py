"""Several optimizers that move one model together, each in its own way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, is_tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict
from torch.utils._pytree import tree_leaves
from torch.utils.data import TensorDataset

from autoscaler.clock import SystemClock
from autoscaler.domain.errors import CheckpointError
from autoscaler.domain.job import BatchSpec
from autoscaler.domain.training import Engine
from autoscaler.training import session
from autoscaler.training.data_path import order_of
from autoscaler.training.gradients.preconditioner import Preconditioner
from autoscaler.training.gradients.sampling import SamplingBudget
from autoscaler.training.identity import fingerprint_of
from autoscaler.training.members import rounds
from autoscaler.training.state.checkpoint import Checkpoints
from autoscaler.training.state.training_state import Counters, TrainingState
from tests.training.alone import allow, decide, opened, script
from tests.training.fleet import Fleet, roster_of, wait_until
from tests.training.scripts import optimizers as networks

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

Optimizers = list[torch.optim.Optimizer]


def _trained(
    model: nn.Module, optimizers: Optimizers, epochs: int = 4, **settings: Any
) -> list[Tensor]:
    with session(model, optimizers, networks.data(), batch_size=networks.BATCH, **settings) as job:
        for inputs, targets in job.batches(epochs=epochs):
            job.step(nn.functional.mse_loss(job.model(inputs), targets))
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_they_train_as_in_a_plain_loop() -> None:
    model, optimizers, schedulers = networks.made()
    moved = _trained(model, optimizers, scheduler=schedulers, max_grad_norm=0.5, shuffle=False)
    plain, optimizers, schedulers = networks.made()
    inputs, targets = networks.data().tensors
    for _ in range(4):
        for begin in range(0, networks.EXAMPLES, networks.BATCH):
            part = slice(begin, begin + networks.BATCH)
            nn.functional.mse_loss(plain(inputs[part]), targets[part]).backward()
            nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
            for optimizer, scheduler in zip(optimizers, schedulers, strict=True):
                optimizer.step()
                optimizer.zero_grad()
                scheduler.step()
    for one, other in zip(moved, plain.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-9)


def test_they_train_with_a_scaler_as_without() -> None:
    plain, scaled = (networks.made()[:2] for _ in range(2))
    scaler = GradScaler("cpu", init_scale=2.0**12)
    for one, other in zip(_trained(*plain), _trained(*scaled, scaler=scaler), strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("lr_rule", "factors"), [(None, [1.0, 2.0]), ("linear", [4.0, 4.0])])
def test_each_follows_the_batch_by_its_own_rule(
    monkeypatch: pytest.MonkeyPatch, lr_rule: str | None, factors: list[float]
) -> None:
    allow(monkeypatch, BatchSpec(16, 64, 64, adaptive=True))
    decide(monkeypatch, 64)
    model, optimizers, _ = networks.made()
    rates: list[list[float]] = [[], []]
    for optimizer, own in zip(optimizers, rates, strict=True):
        optimizer.register_step_pre_hook(
            lambda optimizer, *_, own=own: own.append(optimizer.param_groups[0]["lr"])
        )
    _trained(model, optimizers, epochs=8, lr_rule=lr_rule)
    assert [max(own) / own[0] for own in rates] == pytest.approx(factors)
    assert [group["lr"] for each in optimizers for group in each.param_groups] == [0.02, 0.01]


def test_a_parameter_of_no_optimizer_stays_as_it_is() -> None:
    model, (muon, adam), _ = networks.made()
    adam.param_groups[0]["params"] = adam.param_groups[0]["params"][1:]
    before = model[0].bias.detach().clone()
    _trained(model, [muon, adam])
    assert torch.equal(model[0].bias, before)
    assert model[0].bias.grad is None


def test_training_goes_on_from_a_checkpoint_of_several(tmp_path: Path) -> None:
    model, optimizers, schedulers = networks.made()
    expected = _trained(model, optimizers, scheduler=schedulers)
    for epochs in (2, 4):
        model, optimizers, schedulers = networks.made()
        resumed = _trained(
            model,
            optimizers,
            epochs,
            scheduler=schedulers,
            checkpoint_directory=str(tmp_path),
        )
    for one, other in zip(expected, resumed, strict=True):
        assert torch.equal(one, other)


def test_plain_pytorch_reads_a_checkpoint_of_several(tmp_path: Path) -> None:
    model, optimizers, schedulers = networks.made()
    _trained(model, optimizers, scheduler=schedulers, checkpoint_directory=str(tmp_path / "kept"))
    checkpoint, file = max((tmp_path / "kept").glob("step-*")), tmp_path / "state.pt"
    dcp_to_torch_save(checkpoint, file)
    saved = torch.load(file, weights_only=True)["optimizer"]
    model, restored, _ = networks.made()
    set_optimizer_state_dict(model, restored, saved, options=StateDictOptions(strict=False))
    for one, other in zip(optimizers, restored, strict=True):
        left, right = (tree_leaves(each.state_dict()) for each in (one, other))
        assert all(torch.equal(a, b) for a, b in zip(left, right, strict=True) if is_tensor(a))
    states = torch.load(checkpoint / "rest.pt", weights_only=True)["scheduler"]
    assert states == [scheduler.state_dict() for scheduler in schedulers]


def test_a_lower_rate_of_one_holds_after_a_checkpoint(tmp_path: Path) -> None:
    for rate, epochs in ((0.01, 1), (0.001, 2)):
        model, (muon, _), _ = networks.made()
        adam = torch.optim.AdamW([*model.parameters()][1:], lr=rate)
        schedulers = [torch.optim.lr_scheduler.StepLR(each, 100) for each in (muon, adam)]
        settings = {"scheduler": schedulers, "checkpoint_directory": str(tmp_path)}
        _trained(model, [muon, adam], epochs, **settings)
    assert [each.param_groups[0]["lr"] for each in (muon, adam)] == pytest.approx([0.02, 0.001])
    assert [each.base_lrs for each in schedulers] == [[0.02], [0.001]]


def _stepped(*moves: bool) -> tuple[Optimizers, TrainingState]:
    model, optimizers, _ = networks.made()
    for optimizer, does in zip(optimizers, moves, strict=True):
        model(torch.ones(4, 6).double()).sum().backward()
        if does:
            optimizer.step()
        optimizer.zero_grad()
        model.zero_grad()
    return optimizers, TrainingState(model, optimizers, None, Counters(step=1))


@pytest.mark.parametrize("moves", [(True, False), (False, True), (True, True)])
def test_an_optimizer_without_a_state_yet_has_none_after_a_checkpoint(
    tmp_path: Path, moves: tuple[bool, bool]
) -> None:
    checkpoints = Checkpoints(tmp_path, 1, SystemClock())
    optimizers, state = _stepped(*moves)
    state.save(checkpoints, at_once=True)
    assert [bool(optimizer.state) for optimizer in optimizers] == list(moves)
    optimizers, state = _stepped(True, True)
    path = checkpoints.newest()
    assert path is not None
    state.restore(checkpoints, path)
    assert [bool(optimizer.state) for optimizer in optimizers] == list(moves)


def test_a_checkpoint_of_one_optimizer_does_not_go_with_another_two(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, 1, SystemClock())
    model, _, _ = networks.made()
    state = TrainingState(model, torch.optim.SGD(model.parameters()), None, Counters(step=1))
    state.save(checkpoints, at_once=True)
    path = checkpoints.newest()
    assert path is not None
    with pytest.raises(CheckpointError, match="does not go with this model"):
        _stepped(True, True)[1].restore(checkpoints, path)


def _sgd(*modules: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([each for module in modules for each in module.parameters()], lr=0.1)


def _frozen(model: nn.Module) -> Optimizers:
    return [_sgd(model[0]), _sgd(model[2].requires_grad_(False))]


@pytest.mark.parametrize(
    ("error", "match", "optimizers"),
    [
        (ValueError, "optimizer: none is given", lambda model: []),
        (TypeError, "optimizer: str is not a torch.optim", lambda model: [_sgd(model), "Adam"]),
        (
            ValueError,
            r"optimizer\[1\]: 2 of its parameters are also optimizer\[0\]'s.* to one optimizer",
            lambda model: [_sgd(model), _sgd(model[2])],
        ),
        (ValueError, r"optimizer\[1\]: none of its parameters requires", _frozen),
        (
            ValueError,
            r"optimizer\[1\]: 2 of its parameters are not the model's",
            lambda model: [_sgd(model), _sgd(nn.Linear(2, 2))],
        ),
        (
            TypeError,
            "optimizer: LBFGS",
            lambda model: [_sgd(model[0]), torch.optim.LBFGS(model[2].parameters())],
        ),
    ],
)
def test_lists_that_can_not_be_used_are_refused(
    error: type[Exception], match: str, optimizers: Callable[[nn.Module], Any]
) -> None:
    model = networks.made()[0]
    with pytest.raises(error, match=match):
        _trained(model, optimizers(model))


def test_schedulers_that_can_not_be_used_are_refused() -> None:
    model, optimizers, (scheduler, _) = networks.made()
    stranger = networks.made()[2][0]
    with pytest.raises(ValueError, match=r"scheduler: .* another optimizer"):
        _trained(model, optimizers, scheduler=[scheduler, stranger])
    with pytest.raises(ValueError, match="scheduler: one is given twice"):
        _trained(model, optimizers, scheduler=[scheduler, scheduler])
    with pytest.raises(TypeError, match="scheduler: int has not all of step"):
        _trained(model, optimizers, scheduler=[scheduler, 3])


def test_replicas_must_give_the_same_parameters_to_the_same_optimizers() -> None:
    model, optimizers, schedulers = networks.made()
    own = script(model, optimizers, networks.data(), scheduler=schedulers)
    others = (
        replace(own, optimizer=optimizers[::-1]),
        replace(own, optimizer=[_sgd(model[0]), _sgd(model[2])]),
        replace(own, optimizer=_sgd(model)),
        replace(own, scheduler=schedulers[:1]),
    )
    fingerprint = fingerprint_of(own, order_of(own))
    assert fingerprint == fingerprint_of(replace(own), order_of(own))
    assert all(fingerprint_of(each, order_of(each)) != fingerprint for each in others)


def test_gradients_count_by_how_far_their_own_optimizer_moves_for_them() -> None:
    matrix, vector, plain, still = (nn.Parameter(torch.ones(3, 2)) for _ in range(4))
    muon = torch.optim.Muon([matrix], lr=0.02, momentum=0.0)
    adam = torch.optim.AdamW([vector], lr=0.01)
    sgd = torch.optim.SGD([plain], lr=0.005)
    for _ in range(10):
        matrix.grad = torch.tensor([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]])
        vector.grad = torch.full((3, 2), 0.5)
        for optimizer in (muon, adam):
            optimizer.step()
    preconditioner = Preconditioner(muon, adam, sgd)
    assert preconditioner.is_adaptive
    factors = [preconditioner.factors(each) for each in (matrix, vector, plain, still)]
    assert [each.shape for each in factors] == [(3, 2)] * 4
    assert [float(each[0, 0]) for each in factors] == pytest.approx(
        [2**0.5 / 5, 0.5 * 2.0, 0.25, 0.0], rel=1e-4
    )


def test_a_known_noise_scale_is_found_where_two_move_a_part_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The gradient of x.w is x itself: its noise scale is that of the data, in any unit."""
    allow(monkeypatch, BatchSpec(16, 64, 64, adaptive=True))
    monkeypatch.setattr(SamplingBudget, "steps_per_sample", lambda *arguments: 1)
    monkeypatch.setattr(rounds, "_steps_in", lambda *arguments: 4)
    inputs = 0.1 + 0.5 * torch.randn(4800, 400, generator=torch.Generator().manual_seed(0))
    model = _Halves()
    optimizers = [torch.optim.SGD([model.first], 1e-9), torch.optim.Adam([model.second], 1e-9)]
    job, parts = opened(script(model, optimizers, TensorDataset(inputs)))
    parts.state.counters.noise.half_life_samples = 1e9
    for (batch,) in job.batches(epochs=1):
        job.step(job.model(batch).mean())
    job.finish()
    assert parts.replica.noise is not None
    true_examples = float(inputs.var(dim=0).sum() / inputs.mean(dim=0).square().sum())
    assert parts.replica.noise.examples == pytest.approx(true_examples, rel=0.25)


class _Halves(nn.Module):
    """x.w of a vector w in two parts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Parameter(torch.ones(200)) for _ in range(2))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ torch.cat([self.first, self.second])


def test_a_state_that_is_loaded_is_the_one_to_measure_by() -> None:
    """A joiner's optimizer has another dict of states than the one that it began with."""
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([parameter])
    preconditioner = Preconditioner(optimizer)
    peers = nn.Parameter(torch.ones(2))
    peers_optimizer = torch.optim.Adam([peers])
    for _ in range(10):
        peers.grad = torch.tensor([2.0, 0.5])
        peers_optimizer.step()
    optimizer.load_state_dict(peers_optimizer.state_dict())
    assert torch.allclose(preconditioner.factors(parameter), torch.tensor([0.5, 2.0]), rtol=1e-4)


@pytest.fixture(params=list(Engine))
def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, roster_of(cast(Engine, request.param), tmp_path))
    yield fleet
    fleet.stop()


def test_joiners_and_survivors_of_a_loss_train_as_one_process_does(fleet: Fleet) -> None:
    settings = {"EPOCHS": "100000", "STEP_SECONDS": "0.02"}
    first = fleet.start("optimizers.py", **settings)
    wait_until(lambda: first.step > 3, description="the first replica")
    second = fleet.start("optimizers.py", **settings)
    wait_until(lambda: second.step > 0, description="the second replica")
    at = second.step
    wait_until(lambda: first.step > at + 5, description="steps of both")
    second.kill()
    at = first.step
    wait_until(lambda: first.step > at + 5, description="steps of the survivor")
    first.kill()
    lines = [line for replica in fleet.replicas for line in replica.steps() if line["committed"]]
    assert {line["members"] for line in lines} == {1, 2}
    steps = max(line["step"] for line in lines)
    model, optimizers, schedulers = networks.made()
    expected = {}
    with session(
        model, optimizers, networks.data(), batch_size=networks.BATCH, scheduler=schedulers
    ) as job:
        for inputs, targets in job.batches(epochs=steps):
            step = job.step(nn.functional.mse_loss(job.model(inputs), targets))
            expected[step.number] = _seen(model, optimizers)
            if step.number == steps:
                break
    for line in lines:
        seen = [line["weights"], *line["states"], *line["rates"]]
        assert seen == pytest.approx(expected[line["step"]], rel=1e-9), line["step"]


def _seen(model: nn.Module, optimizers: Optimizers) -> list[float]:
    return [
        networks.total(list(model.parameters())),
        *(networks.total(list(optimizer.state.values())) for optimizer in optimizers),
        *(optimizer.param_groups[0]["lr"] for optimizer in optimizers),
    ]
