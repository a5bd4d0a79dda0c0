"""Arguments of a session that a DataLoader holds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    Sampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from autoscaler.integrations.loaders import loader_arguments, sampler_order

DATA = TensorDataset(torch.arange(20))
CPU = torch.device("cpu")


class Rotated(Sampler[int]):
    """Sampler whose order depends on the epoch that it is given."""

    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter([(self.epoch + index) % 20 for index in range(20)])


def test_the_order_of_a_sequential_loader_needs_no_function() -> None:
    arguments = loader_arguments(DataLoader(DATA, batch_size=4, drop_last=True), 0, CPU)
    assert (arguments.order, arguments.batch_size, arguments.drop_last) == (None, 4, True)
    assert arguments.examples == 20


def test_a_shuffled_order_is_a_function_of_the_pass() -> None:
    order = loader_arguments(DataLoader(DATA, batch_size=4, shuffle=True), 7, CPU).order
    assert order is not None
    state = torch.random.get_rng_state()
    first, second = order(0), order(1)
    assert sorted(first) == sorted(second) == list(range(20))
    assert first.tolist() != second.tolist()
    assert order(0).tolist() == first.tolist()
    assert torch.equal(state, torch.random.get_rng_state()), "the script's generator is untouched"


def test_a_sampler_is_given_the_pass_or_a_seed() -> None:
    assert sampler_order(Rotated(), 0)(3)[:2].tolist() == [3, 4]
    generator = torch.Generator()
    sampler = WeightedRandomSampler([0.5] * 20, 30, generator=generator)
    order = sampler_order(sampler, 5)
    assert order(2).tolist() == order(2).tolist() and len(order(2)) == 30


def test_what_can_not_be_divided_is_refused() -> None:
    class Pairs(BatchSampler):
        pass

    loader = DataLoader(DATA, batch_sampler=Pairs(SequentialSampler(DATA), 2, False))
    with pytest.raises(ValueError, match="batch_sampler is a Pairs"):
        loader_arguments(loader, 0, CPU)

    class Endless(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(int, 1)

    with pytest.raises(TypeError, match=r"iterable \(Endless\)"):
        loader_arguments(DataLoader(Endless()), 0, CPU)
    with pytest.raises(TypeError, match="the training data are a list"):
        loader_arguments([1, 2], 0, CPU)
