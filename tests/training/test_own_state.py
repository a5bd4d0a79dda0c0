"""A script's own state: saved with each checkpoint, and set when training goes on."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import TensorDataset

from autoscaler.domain.checkpoint import name_of
from autoscaler.training import TrainingSession, session
from autoscaler.training.opening import Parts
from autoscaler.training.state.own_state import ScriptState
from autoscaler.training.state.training_state import Counters, TrainingState
from tests.training.alone import opened, script


def train(directory: Path, state: dict[str, Any], model: nn.Module, epochs: int) -> float:
    """Train on, as the script would; return the progress that training began with."""
    torch.manual_seed(1)
    dataset = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    parts = {"batch_size": 16, "checkpoint_directory": str(directory), "state": state}
    with session(model, optimizer, dataset, **parts) as job:  # type: ignore[arg-type]
        begun = job.progress_examples
        for inputs, targets in job.batches(epochs=epochs):
            job.step((job.model(inputs) - targets).square().mean())
            state["best"] = max(state["best"], job.progress_examples)
            if "average" in state:
                state["average"].update_parameters(model)
    return begun


def test_values_and_objects_go_on_where_the_checkpoint_had_them(tmp_path: Path) -> None:
    model = nn.Linear(4, 1)
    average = AveragedModel(model)
    state = {"best": 0.0, "names": ["a", None], "average": average}
    assert train(tmp_path, state, model, epochs=2) == 0
    assert state["best"] > 0
    later_model = nn.Linear(4, 1)
    later = {"best": 0.0, "names": [], "average": AveragedModel(later_model), "new": 7}
    assert train(tmp_path, later, later_model, epochs=2) == 128
    assert (later["best"], later["names"], later["new"]) == (state["best"], ["a", None], 7)
    for name, tensor in average.state_dict().items():
        assert torch.equal(later["average"].state_dict()[name], tensor), name


def test_a_checkpoint_without_such_state_is_read(tmp_path: Path) -> None:
    train(tmp_path, {"best": 0.0}, nn.Linear(4, 1), epochs=1)
    state: dict[str, Any] = {"best": 0.0, "other": 3}
    train(tmp_path, state, nn.Linear(4, 1), epochs=1)
    assert state["other"] == 3


def test_a_joiner_gets_it() -> None:
    def training(own: dict[str, Any]) -> TrainingState:
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return TrainingState(model, optimizer, None, Counters(), None, ScriptState(own))

    giver: dict[str, Any] = {"best": 0.9}
    taker: dict[str, Any] = {"best": 0.0}
    training(taker).load_state_dict(training(giver).state_dict())
    assert taker == giver


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (object(), r"state\['x'\] is a object"),
        ({"y": [1, {2}]}, r"state\['x'\]\['y'\]\[1\] is a set"),
        (torch.zeros(1).numpy()[0], r"state\['x'\] is a float32"),
    ],
)
def test_what_no_checkpoint_can_hold_is_refused_by_name(value: Any, complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        ScriptState({"x": value})
    state = ScriptState(values := OrderedDict(x=1.0))
    values["x"] = value
    with pytest.raises(TypeError, match=complaint):
        state.state_dict()


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_checkpoint_at_an_epochs_end_has_the_metric_of_the_epoch(tmp_path: Path) -> None:
    own = {"evaluated": 0}
    job, parts = _saving_always(tmp_path, own)
    assert parts.checkpoints is not None
    for epoch in job.epochs(3):
        for number, (inputs, targets) in enumerate(job.batches()):
            if epoch and number == 0:
                parts.checkpoints.wait()
                newest = parts.checkpoints.newest()
                assert newest is not None and newest.name == name_of(4 * epoch)
                rest = torch.load(newest / "rest.pt", weights_only=True)
                assert rest["own"] == {"evaluated": epoch}
            job.step((job.model(inputs) - targets).square().mean())
            parts.checkpoints.wait()
        own["evaluated"] += 1
    job.finish()


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_who_leaves_at_an_epochs_end_saves_before_and_after_its_code(tmp_path: Path) -> None:
    own = {"evaluated": 0}
    job, parts = _saving_always(tmp_path, own, batch_size=64)
    assert parts.checkpoints is not None
    parts.replica.wants_checkpoint, parts.replica.leaves = False, True
    saved = []
    with pytest.raises(SystemExit):
        for _ in job.epochs(3):
            for inputs, targets in job.batches():
                job.step((job.model(inputs) - targets).square().mean())
            parts.checkpoints.wait()
            saved += [path.name for path in tmp_path.iterdir()]
            own["evaluated"] += 1
    assert saved == [name_of(1)]
    (path,) = tmp_path.iterdir()
    assert torch.load(path / "rest.pt", weights_only=True)["own"] == {"evaluated": 1}


def _saving_always(
    directory: Path, own: dict[str, Any], **changes: Any
) -> tuple[TrainingSession, Parts]:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    settings = {"state": own, "checkpoint_directory": str(directory), **changes}
    job, parts = opened(script(model, optimizer, data, **settings))
    parts.checkpoint_interval_seconds = 0.0
    parts.replica.wants_checkpoint = True
    return job, parts
