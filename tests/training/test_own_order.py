"""An order of examples of the script's own: weighted, sorted by length, or a part of the data."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import WeightedRandomSampler

from autoscaler.domain.errors import MismatchError
from autoscaler.domain.job import BatchSpec
from autoscaler.training import session
from autoscaler.training.data.shards import ShardedDataset
from autoscaler.training.data_path import order_of
from autoscaler.training.identity import fingerprint_of
from autoscaler.training.state.fingerprint import require_equal
from tests.training.alone import allow, opened, script

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

DATA: Any = [(torch.ones(1), index) for index in range(20)]


def _weighted(pass_index: int) -> list[int]:
    generator = torch.Generator().manual_seed(pass_index)
    return list(WeightedRandomSampler([0.0] * 10 + [1.0] * 10, 30, generator=generator))


def _script(order: Any, **changes: Any) -> Any:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    return script(model, optimizer, DATA, batch_size=8, order=order, **changes)


def test_each_pass_is_what_the_script_has_chosen() -> None:
    calls = Counter[int]()

    def order(pass_index: int) -> list[int]:
        calls[pass_index] += 1
        return _weighted(pass_index)

    job, _ = opened(_script(order, num_workers=1))
    taken: list[int] = []
    for inputs, indices in job.batches(epochs=3):
        taken += indices.tolist()
        job.step(job.model(inputs).mean())
    job.finish()
    assert taken == _weighted(0) + _weighted(1) + _weighted(2)
    assert max(calls.values()) == 1, "it is asked once a pass"


def test_an_epoch_and_the_largest_batch_are_a_pass_of_the_order(monkeypatch) -> None:
    allow(monkeypatch, BatchSpec(8, 100, 100, adaptive=True))
    job, parts = opened(_script(lambda pass_index: range(pass_index, pass_index + 18)))
    taken: list[int] = []
    for inputs, indices in job.batches(epochs=1):
        taken += indices.tolist()
        job.step(job.model(inputs).mean())
    assert taken == list(range(18)) and job.epoch == 1
    assert parts.replica._settings.bounds.maximum == 18


@pytest.mark.parametrize(
    ("error", "match", "order"),
    [
        (TypeError, "order: list is not callable", [1, 2]),
        (TypeError, r"order\(0\) must be a sequence of whole numbers", lambda _: [0.5]),
        (TypeError, r"order\(0\) must be a sequence of whole numbers", lambda _: []),
        (TypeError, r"list\(sampler\)", lambda _: WeightedRandomSampler([1.0], 1)),
        (
            ValueError,
            "indices from 0 to 20, and the dataset those from 0",
            lambda _: [0, 20],
        ),
        (ValueError, "indices from -1 to 3", lambda _: [3, -1]),
    ],
)
def test_an_order_that_can_not_be_used_is_refused(
    error: type[Exception], match: str, order: Any
) -> None:
    with pytest.raises(error, match=match):
        opened(_script(order))


def test_passes_of_different_lengths_are_refused() -> None:
    job, _ = opened(_script(lambda pass_index: range(16 - pass_index)))
    with pytest.raises(ValueError, match=r"order\(1\) has 15 indices, and order\(0\) 16"):
        for inputs, _ in job.batches(epochs=3):
            job.step(job.model(inputs).mean())


def test_shards_have_an_order_of_their_own() -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = ShardedDataset([5], range, lengths=[5])
    with (
        pytest.raises(ValueError, match="order: the examples of a ShardedDataset"),
        session(model, optimizer, data, batch_size=1, order=range),
    ):
        pass


def _unseeded(pass_index: int) -> list[int]:
    return np.random.permutation(20).tolist()


def test_replicas_with_other_orders_are_told_apart() -> None:
    def of(order: Any) -> Any:
        its_script = _script(order)
        return fingerprint_of(its_script, order_of(its_script))

    require_equal(of(_weighted), of(_weighted), "a", "b")
    with pytest.raises(MismatchError, match="another argument of session differs"):
        require_equal(of(_unseeded), of(_unseeded), "a", "b")
