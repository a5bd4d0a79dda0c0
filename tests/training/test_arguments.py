"""Arguments that can't be used are refused by name before anything is trained."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from autoscaler.domain.job import BatchSpec
from autoscaler.training import session
from autoscaler.training.arguments import require_own_device
from autoscaler.training.steps.learning_rate import default_rule
from tests.training.alone import allow, opened, script

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def _data() -> TensorDataset:
    return TensorDataset(torch.ones(64, 4), torch.ones(64, 1))


def _refused(
    error: type[Exception], match: str, optimizer: Any = None, model: Any = None, **arguments: Any
) -> None:
    model = model or nn.Linear(4, 1)
    optimizer = optimizer or torch.optim.SGD(nn.Linear(4, 1).parameters() or [], lr=0.1)
    with (
        pytest.raises(error, match=match),
        session(model, optimizer, _data(), **{"batch_size": 16, **arguments}),
    ):
        pass


@pytest.mark.parametrize(
    ("match", "arguments"),
    [
        ("max_grad_norm=-1 must be above 0", {"max_grad_norm": -1}),
        ("max_grad_norm=0 ", {"max_grad_norm": 0}),
        ("max_grad_norm=nan ", {"max_grad_norm": float("nan")}),
        ("num_workers=-1 ", {"num_workers": -1}),
        ("prefetch_factor=2 needs num_workers", {"prefetch_factor": 2}),
        ("prefetch_factor=0 ", {"prefetch_factor": 0, "num_workers": 1}),
        ("warmup_epochs=-0.5 ", {"warmup_epochs": -0.5}),
        ("batch_size=0 ", {"batch_size": 0}),
        ("seed=-1 ", {"seed": -1}),
    ],
)
def test_numbers_out_of_range_are_refused(match: str, arguments: dict[str, Any]) -> None:
    model = nn.Linear(4, 1)
    _refused(ValueError, match, torch.optim.SGD(model.parameters(), lr=0.1), model, **arguments)


@pytest.mark.parametrize(
    ("match", "arguments"),
    [
        ("model: function is not a torch.nn.Module", {"model": lambda inputs: inputs}),
        ("optimizer: str is not a torch.optim.Optimizer", {"optimizer": "Adam"}),
        ("scheduler: int has not all of step, state_dict", {"scheduler": 3}),
        ("state: tuple is not a dict", {"state": ()}),
        ("dataset: NoneType is not a dataset: give one with len", {"dataset": None}),
        ("dataset: int is not a dataset: give one with len", {"dataset": 64}),
        ("batch_size='16' must be a whole number", {"batch_size": "16"}),
        ("batch_size=16.5 must be a whole number", {"batch_size": 16.5}),
        ("seed=1.5 must be a whole number", {"seed": 1.5}),
        ("logical_ranks=True must be a whole number", {"logical_ranks": True}),
    ],
)
def test_arguments_of_another_kind_are_refused(match: str, arguments: dict[str, Any]) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = {"model": model, "optimizer": optimizer, "dataset": _data(), "batch_size": 16}
    with pytest.raises(TypeError, match=match), session(**{**given, **arguments}):
        pass


@pytest.mark.parametrize(
    ("error", "match", "weight"),
    [
        (TypeError, "the weight is of type str: give a number", "a"),
        (TypeError, "the weight is of type str: give a number", "3"),
        (TypeError, "the weight is of type list: give a number", [1.0]),
        (ValueError, "the weight has shape 16: give one number", torch.ones(16)),
        (ValueError, "the weight must be 0 or more", -1),
    ],
)
def test_weights_that_are_no_number_are_refused(
    error: type[Exception], match: str, weight: Any
) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    job, _ = opened(script(model, optimizer, _data()))
    inputs, _ = next(iter(job.batches(epochs=1)))
    with pytest.raises(error, match=rf"^job\.step\(loss, weight=.*\): {match}"):
        job.step(job.model(inputs).mean(), weight=weight)


@pytest.mark.parametrize("reason", [3, None, ["no progress"]])
def test_reasons_of_a_stop_that_are_no_text_are_refused(reason: Any) -> None:
    model = nn.Linear(4, 1)
    job, parts = opened(script(model, torch.optim.SGD(model.parameters(), lr=0.1), _data()))
    words = rf"job.stop\(reason\): the reason is of type {type(reason).__name__}: give a text"
    with pytest.raises(TypeError, match=words):
        job.stop(reason)
    assert not parts.replica.stop.is_asked


@pytest.mark.parametrize(("batch_size", "warnings"), [(64, 0), (65, 1)])
def test_a_dataset_shorter_than_a_batch_is_said_once(
    caplog: pytest.LogCaptureFixture, batch_size: int, warnings: int
) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with caplog.at_level(logging.WARNING, "autoscaler"):
        job, _ = opened(script(model, optimizer, _data(), batch_size=batch_size))
        for inputs, targets in job.batches(epochs=2):
            job.step(nn.functional.mse_loss(job.model(inputs), targets))
    said = "dataset: a pass has 64 examples, fewer than batch_size=65, so each step takes 64"
    assert [text[: len(said)] for text in caplog.messages] == [said] * warnings


def test_a_scheduler_of_another_optimizer_is_refused() -> None:
    model = nn.Linear(4, 1)
    optimizer, other = (torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2))
    scheduler = torch.optim.lr_scheduler.StepLR(other, 3)
    _refused(ValueError, "scheduler: .* another optimizer", optimizer, model, scheduler=scheduler)


def test_an_optimizer_that_moves_nothing_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    _refused(ValueError, "optimizer: none of its parameters requires", optimizer, model)


def test_parameters_without_shapes_or_values_are_refused() -> None:
    lazy, empty = nn.LazyLinear(1), nn.Linear(4, 1, device="meta")
    optimizer = torch.optim.SGD(lazy.parameters(), lr=0.1)
    _refused(ValueError, "model: some of its parameters have no shape yet", optimizer, lazy)
    optimizer = torch.optim.SGD(empty.parameters(), lr=0.1)
    _refused(ValueError, "model: its parameters lie on the meta device", optimizer, empty)


@pytest.mark.parametrize("epochs", [0, -1])
def test_no_epochs_are_refused(epochs: int) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with session(model, optimizer, _data(), batch_size=16) as job:
        with pytest.raises(ValueError, match=f"epochs={epochs} must be above 0"):
            next(iter(job.batches(epochs=epochs)))
        with pytest.raises(ValueError, match=f"epochs={epochs} must be above 0"):
            next(iter(job.epochs(epochs)))


def test_the_last_of_two_and_a_half_epochs_ends_early() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = []
    with session(model, optimizer, _data(), batch_size=16) as job:
        for epoch in job.epochs(2.5):
            for inputs, targets in job.batches():
                job.step((job.model(inputs) - targets).square().mean())
                steps.append(epoch)
    assert [steps.count(epoch) for epoch in range(3)] == [4, 4, 2]


def test_a_device_takes_no_more_examples_at_once_than_the_script_says() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with session(model, optimizer, _data(), batch_size=16, device_batch_size=5) as job:
        taken = []
        for inputs, targets in job.batches(epochs=1):
            taken.append(len(inputs))
            job.step((job.model(inputs) - targets).square().mean())
    assert len(taken) == 4 * 4 and max(taken) <= 5 and sum(taken) == 64


@pytest.mark.parametrize(
    ("error", "match", "loss_of"),
    [
        (TypeError, "the loss is of type float", lambda outputs: outputs.mean().item()),
        (ValueError, "the loss has shape 16x1: .* loss.mean()", lambda outputs: outputs),
        (ValueError, "the loss has no gradient", lambda outputs: outputs.mean().detach()),
        (
            RuntimeError,
            "not computed from job.model",
            lambda _: torch.ones((), requires_grad=True),
        ),
    ],
)
def test_losses_that_can_not_be_learnt_from_are_refused(
    error: type[Exception], match: str, loss_of: Callable[[torch.Tensor], Any]
) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with (
        pytest.raises(error, match=match),
        session(model, optimizer, _data(), batch_size=16) as job,
    ):
        for inputs, _ in job.batches(epochs=1):
            job.step(loss_of(job.model(inputs)))


def test_a_model_without_parameters_is_refused() -> None:
    _refused(ValueError, "model: no parameter requires a gradient", model=nn.Flatten())


def test_a_model_that_is_frozen_whole_is_refused() -> None:
    model = nn.Linear(4, 1).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    _refused(ValueError, "model: no parameter requires a gradient", optimizer, model)


def test_an_optimizer_that_moves_more_than_the_model_is_refused() -> None:
    """Gradients of parameters outside the model are not summed: replicas would drift apart."""
    model, head = nn.Linear(4, 4), nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
    _refused(ValueError, "optimizer: 2 of its parameters are not the model's", optimizer, model)


def test_an_optimizer_that_needs_a_closure_is_refused() -> None:
    model = nn.Linear(4, 1)
    _refused(TypeError, "optimizer: LBFGS", torch.optim.LBFGS(model.parameters()), model)


def test_a_scheduler_that_needs_a_metric_is_refused() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    _refused(TypeError, "scheduler: ReduceLROnPlateau", optimizer, model, scheduler=plateau)


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("SGD", "adascale"),
        ("Adam", "sqrt"),
        ("AdamW", "sqrt"),
        ("NAdam", "sqrt"),
        ("RAdam", "sqrt"),
        ("Adamax", "sqrt"),
        ("RMSprop", None),
        ("Adagrad", None),
        ("Adadelta", None),
        ("Adafactor", None),
        ("Muon", None),
        ("ASGD", None),
        ("Rprop", None),
    ],
)
def test_only_known_optimizers_have_a_rule_by_default(kind: str, rule: str | None) -> None:
    optimizer = getattr(torch.optim, kind)(nn.Linear(4, 1, bias=False).parameters(), lr=0.1)
    assert default_rule(optimizer) == rule


@pytest.mark.parametrize(("lr_rule", "factor"), [(None, 1.0), ("linear", 4.0)])
def test_an_unknown_optimizer_keeps_its_rate_and_that_is_said_once(
    monkeypatch, caplog, lr_rule: str | None, factor: float
) -> None:
    allow(monkeypatch, BatchSpec(16, 64, 64, adaptive=True))
    model = nn.Linear(4, 1)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.1)
    with caplog.at_level(logging.WARNING, "autoscaler"):
        job, parts = opened(script(model, optimizer, _data(), lr_rule=lr_rule))
        for inputs, targets in job.batches(epochs=2):
            job.step(nn.functional.mse_loss(job.model(inputs), targets))
    parts.state.counters.batch_total = 64
    assert parts.stepper.learning_rate() == pytest.approx(0.1 * factor)
    said = [record.getMessage() for record in caplog.records]
    expected = ["RMSprop: no rule is known for its learning rate, which stays as it is when"]
    assert [text[: len(expected[0])] for text in said] == (expected if lr_rule is None else [])


def test_nothing_is_said_where_the_batch_can_not_grow(caplog) -> None:
    model = nn.Linear(4, 1)
    with caplog.at_level(logging.WARNING, "autoscaler"):
        opened(script(model, torch.optim.RMSprop(model.parameters(), lr=0.1), _data()))
    assert not caplog.records


def test_frozen_parameters_are_no_traffic() -> None:
    frozen = nn.Linear(1000, 4).requires_grad_(False)
    model = nn.Sequential(frozen, nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
    _, parts = opened(script(model, optimizer, _data()))
    assert parts.reducer.synchronised_bytes == 5 * 4
    _, parts = opened(script(model, optimizer, _data(), bf16_gradients=True))
    assert parts.reducer.synchronised_bytes == 5 * 2, "gradients travel in 16 bits"


def test_the_state_that_is_carried_has_frozen_parameters_and_what_the_optimizer_keeps() -> None:
    model = nn.Sequential(nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 1))
    job, parts = opened(script(model, torch.optim.Adam(model[1].parameters()), _data()))
    weights_bytes = 4 * (4 * 4 + 4 + 4 + 1)
    assert parts.state.carried_bytes == weights_bytes
    for inputs, targets in job.batches(epochs=1):
        job.step(nn.functional.mse_loss(job.model(inputs), targets))
    counts_of_steps = 2 * 4
    assert parts.state.carried_bytes == weights_bytes + 2 * 5 * 4 + counts_of_steps


@pytest.mark.parametrize(
    ("devices", "local_rank", "message"),
    [
        (["cuda:0"], "3", "lies on cuda:0 while this rank's device is cuda:3"),
        (["cpu", "meta"], None, r"several devices \(cpu, meta\)"),
        (["cuda:0", "cuda:1"], "0", r"several devices \(cuda:0, cuda:1\)"),
    ],
)
def test_a_model_that_is_not_on_its_ranks_device_is_refused(
    devices: list[str], local_rank: str | None, message: str
) -> None:
    with pytest.raises(ValueError, match=f"model: .*{message}"):
        require_own_device({torch.device(device) for device in devices}, local_rank, 8)


@pytest.mark.parametrize(
    ("device", "local_rank", "visible"),
    [
        ("cuda:3", "3", 8),
        ("cuda:3", None, 8),
        ("cuda:0", "3", 1),
        ("cpu", "3", 8),
        ("cpu", None, 0),
    ],
)
def test_a_model_on_its_ranks_device_is_taken(
    device: str, local_rank: str | None, visible: int
) -> None:
    require_own_device({torch.device(device)}, local_rank, visible)


def test_an_unknown_way_across_instances_is_refused() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="across='mpi' is not known: use nccl or gloo"):
        opened(script(model, optimizer, _data(), across="mpi"))
