"""Rehearsal of a replica before it joins others, which must not count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from autoscaler.training.rehearsal import rehearse
from autoscaler.training.state.reception import tensors_of
from tests.training.alone import opened, script

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

EXAMPLES, BATCH = 40, 16


class Rehearsed:
    """A script's function, and the batches that it was given."""

    def __init__(self) -> None:
        self.batches: list[list[Tensor]] = []

    def __call__(self, model: nn.Module, batch: list[Tensor]) -> Tensor:
        self.batches.append(batch)
        return model(batch[0]).square().mean()


def _trained(workers: int, rehearsal: Any = None) -> tuple[list[Tensor], list[list[int]]]:
    """The state after some steps, and the examples of each; `rehearsal` comes before them."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())
    data = TensorDataset(torch.randn(EXAMPLES, 3), torch.arange(EXAMPLES))
    its_script = script(
        model, optimizer, data, batch_size=BATCH, num_workers=workers, rehearsal=rehearsal
    )
    job, parts = opened(its_script)
    if rehearsal is not None:
        rehearse(its_script, parts)
        assert not optimizer.state
        assert all(parameter.grad is None for parameter in model.parameters())
    taken = []
    for inputs, numbers in job.batches(epochs=3):
        taken.append(numbers.tolist())
        job.step(job.model(inputs).square().mean())
    job.finish()
    return tensors_of(parts.state.state_dict()), taken


@pytest.mark.parametrize("workers", [0, 2])
def test_a_rehearsal_changes_nothing_of_what_follows(workers: int) -> None:
    rehearsed = Rehearsed()
    tensors, taken = _trained(workers, rehearsed)
    expected, expected_taken = _trained(workers)
    assert taken == expected_taken
    assert all(torch.equal(one, other) for one, other in zip(tensors, expected, strict=True))
    assert [len(batch[0]) for batch in rehearsed.batches] == [BATCH]


@pytest.mark.parametrize(
    ("error", "words", "loss"),
    [
        (TypeError, "of type float: return the tensor", lambda outputs: 3.0),
        (ValueError, "shape 16x1: return one number", lambda outputs: outputs),
        (
            ValueError,
            "no gradient: compute it from the model that it is given",
            lambda outputs: outputs.mean().detach(),
        ),
    ],
)
def test_a_rehearsal_that_returns_no_loss_is_refused_by_its_name(
    error: type[Exception], words: str, loss: Callable[[Tensor], Any]
) -> None:
    with pytest.raises(error) as caught:
        _trained(0, lambda model, batch: loss(model(batch[0])))
    message = str(caught.value)
    assert message.startswith("rehearsal: its loss ") and words in message
    assert "job." not in message
