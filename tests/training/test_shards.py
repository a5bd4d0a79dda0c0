"""Datasets in shards: read from beginning to end, and every example once a pass."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from autoscaler.training import session
from autoscaler.training.data.loader import joined, packed, split
from autoscaler.training.data.orders import Order, Shuffled
from autoscaler.training.data.sampler import ElasticSampler, share
from autoscaler.training.data.shard_order import ShardOrder
from autoscaler.training.data.shards import ShardedDataset
from autoscaler.training.data_path import order_of
from autoscaler.training.identity import fingerprint_of
from tests.training.alone import script
from tests.training.fleet import Fleet, wait_until
from tests.training.traces import EXAMPLES, assert_replicas_agree, is_training, taken

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

LENGTHS = st.lists(st.integers(0, 12), min_size=1, max_size=20).filter(any)


class Shards:
    """Shards of a range, which count how often each was opened and how far it was read."""

    def __init__(self, lengths: list[int]) -> None:
        ends = np.cumsum(lengths).tolist()
        self.ranges = [range(end - length, end) for end, length in zip(ends, lengths, strict=True)]
        self.lengths = lengths
        self.opened = Counter[range]()
        self.read = 0

    def dataset(self, **arguments: Any) -> ShardedDataset[range, int]:
        return ShardedDataset(self.ranges, self.open, lengths=self.lengths, **arguments)

    def open(self, shard: range) -> Iterator[int]:
        self.opened[shard] += 1
        for index in shard:
            self.read += 1
            yield index


@given(
    lengths=LENGTHS,
    streams=st.integers(1, 9),
    seed=st.integers(0, 5),
    shuffle=st.booleans(),
    cuts=st.lists(st.integers(0, 240), max_size=5),
)
def test_each_example_has_one_position_however_steps_cut_a_pass(
    lengths: list[int], streams: int, seed: int, shuffle: bool, cuts: list[int]
) -> None:
    order = ShardOrder(lengths, streams, seed, shuffle)
    bounds = sorted({0, order.examples, *(min(cut, order.examples) for cut in cuts)})
    for pass_index in (0, 1):
        found: list[int] = []
        for start, stop in pairwise(bounds):
            found += order.slice(pass_index, start, stop).tolist()
        assert sorted(found) == list(range(order.examples))


def test_steps_take_from_all_streams_in_turn_and_passes_differ() -> None:
    order = ShardOrder([10] * 8, streams=4, seed=0, shuffle=True)
    shards = [order.slice(0, start, start + 4) // 10 for start in range(0, 80, 4)]
    assert all(len(set(step.tolist())) == 4 for step in shards)
    assert all((shards[0] == step).all() for step in shards[:10])
    assert order.slice(0, 0, 80).tolist() != order.slice(1, 0, 80).tolist()
    plain = ShardOrder([10] * 8, streams=4, seed=0, shuffle=False)
    assert set(plain.slice(0, 0, 4).tolist()) == {0, 10, 20, 30}


@pytest.mark.parametrize(
    ("lengths", "batch", "ranks", "most"),
    [
        ([50] * 128, 128, 8, 1.0),
        ([50] * 128, 32, 8, 1.0),
        ([50] * 128, 48, 3, 1.1),
        ([30, 50, 40, 60] * 80, 128, 4, 1.1),
    ],
)
def test_a_shard_is_read_by_one_rank_but_for_few(
    lengths: list[int], batch: int, ranks: int, most: float
) -> None:
    data = Shards(lengths)
    order = ShardOrder(data.lengths, 64, 0, shuffle=True)
    of_ranks = [data.dataset() for _ in range(ranks)]
    sampler, place = ElasticSampler(order), (0, 0)
    while place[0] == 0:
        indices = sampler.take(*place, batch)
        for rank, dataset in enumerate(of_ranks):
            (part,) = share(indices, rank, ranks, 1).micro_steps
            assert dataset.__getitems__(part) == list(part)
        place = sampler.place_after(*place, len(indices))
    assert data.read <= most * order.examples


@pytest.mark.parametrize("kind", ["map", "stream"])
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_each_example_is_taken_once_a_pass_over_fifty_changes(kind: str, seed: int) -> None:
    """Ranks join, leave and are lost in the middle of a step, which is then not committed."""
    chance = random.Random(seed)
    lengths = [chance.randint(0, 40) for _ in range(chance.randint(1, 30))] + [7]
    shards, total = Shards(lengths), sum(lengths)
    order: Order = Shuffled(total, seed)
    if kind == "stream":
        order = ShardOrder(lengths, chance.randint(1, 16), seed, shuffle=True)
    sampler, place, changes = ElasticSampler(order), (0, 0), 0
    ranks = [shards.dataset() for _ in range(3)]
    by_pass: dict[int, Counter[int]] = {}
    while changes < 50 or place[1] > 0:
        batch = chance.randint(1, 60)
        for _ in range(chance.randint(1, 3)):
            indices = sampler.take(*place, batch)
            parts = [share(indices, rank, len(ranks), 2) for rank in range(len(ranks))]
            learnt: list[int] = []
            for dataset, own in zip(ranks, parts, strict=True):
                for part, weight in zip(own.micro_steps, own.weights, strict=True):
                    learnt += dataset.__getitems__(part) if weight else ()
            if changes < 50 and chance.random() < 0.3:
                break  # a rank was lost before the commit
            by_pass.setdefault(place[0], Counter()).update(learnt)
            place = sampler.place_after(*place, len(indices))
        if len(ranks) > 1 and chance.random() < 0.5:
            ranks.pop(chance.randrange(len(ranks)))
        else:
            ranks.insert(chance.randint(0, len(ranks)), shards.dataset())
        changes += 1
        ranks = ranks[:8]
    assert set(by_pass) == set(range(place[0]))
    assert all(counts == Counter(range(total)) for counts in by_pass.values())


def test_what_was_fetched_ahead_or_in_a_lost_step_is_not_read_again() -> None:
    data = Shards([100])
    dataset = data.dataset()
    batches = [list(range(start, start + 10)) for start in range(0, 60, 10)]
    for batch in (*batches[:4], *batches[1:]):
        assert dataset.__getitems__(batch) == batch
    assert data.read == 60 and data.opened == {range(100): 1}
    assert dataset[2] == 2, "a place long passed"
    assert data.opened == {range(100): 2}


def test_no_more_shards_are_open_than_there_are_streams() -> None:
    closed: list[int] = []

    def numbers(shard: int) -> Iterator[int]:
        try:
            yield from range(shard, shard + 10)
        finally:
            closed.append(shard)

    dataset = ShardedDataset([0, 10, 20], numbers, lengths=[10] * 3, streams=2)
    assert dataset.__getitems__([0, 10, 1, 20]) == [0, 10, 1, 20]
    assert closed == [10]
    assert dataset.__getitems__(list(range(2, 10))) == list(range(2, 10))
    assert closed == [10, 0], "one that is read to its end is closed"


def test_a_dataset_in_shards_ends_as_a_sequence_does() -> None:
    dataset = Shards([3, 0, 2]).dataset()
    assert list(dataset) == [0, 1, 2, 3, 4]  # type: ignore[call-overload]
    with pytest.raises(IndexError, match="index -1 is not from 0 to 4"):
        dataset[-1]


def test_sequences_are_indexed() -> None:
    dataset = ShardedDataset([0, 10], lambda shard: np.arange(shard, shard + 10), lengths=[10, 10])
    assert [int(number) for number in dataset.__getitems__([15, 3, 12, 1])] == [15, 3, 12, 1]


def test_a_shard_that_ends_early_is_named() -> None:
    dataset = ShardedDataset(["a", "b"], lambda shard: iter(range(3)), lengths=[3, 4])
    assert dataset[5] == 2
    with pytest.raises(ValueError, match=r"shard 'b' ends after 3 examples.*correct `lengths`"):
        dataset[6]
    short = ShardedDataset(["a"], lambda shard: [1, 2], lengths=[3])
    with pytest.raises(ValueError, match="shard 'a' ends after 2 examples"):
        short[2]


def test_streams_of_unknown_length_give_what_was_declared() -> None:
    dataset = ShardedDataset([3, 9], lambda shard: iter(range(shard)), examples_per_pass=11)
    assert dataset.lengths.tolist() == [5, 6]
    assert dataset.__getitems__(range(11)) == [0, 1, 2, 0, 1, 0, 1, 2, 3, 4, 5]
    assert dataset.__getitems__(range(11)) == [0, 1, 2, 0, 1, 0, 1, 2, 3, 4, 5]
    empty = ShardedDataset(["a"], lambda shard: iter(()), examples_per_pass=2)
    with pytest.raises(ValueError, match="shard 'a' has no examples"):
        empty[0]


@pytest.mark.parametrize(
    ("shards", "match", "arguments"),
    [
        ([], "there are none", {"lengths": []}),
        ([1], "lengths or examples_per_pass", {}),
        ([1], "lengths or examples_per_pass", {"lengths": [1], "examples_per_pass": 1}),
        ([1], "lengths: 2 of them for 1 shards", {"lengths": [1, 2]}),
        ([1], "none may be negative", {"lengths": [-1]}),
        ([1, 2], "one must be above 0", {"lengths": [0, 0]}),
        ([1], "examples_per_pass=0", {"examples_per_pass": 0}),
        ([1], "streams=0", {"lengths": [1], "streams": 0}),
    ],
)
def test_arguments_that_can_not_be_used_are_refused(
    shards: list[int], match: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=match):
        ShardedDataset(shards, range, **arguments)


class Stateful(DataLoader[int]):
    """Stand-in for torchdata's StatefulDataLoader."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise AssertionError("never loaded")


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))

    def __len__(self) -> int:
        return 3


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (Stateful([1, 2]), "state of a Stateful belongs to one number of ranks and workers"),
        (DataLoader([1, 2]), "give the dataset of the DataLoader"),
        (Stream(), "iterable dataset has no order .* use a ShardedDataset"),
    ],
)
def test_what_has_no_positions_is_refused(data: Any, match: str) -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(TypeError, match=match), session(model, optimizer, data, batch_size=1):
        pass


def test_pieces_hold_what_the_batch_held() -> None:
    examples = [
        (torch.arange(3), {"text": "a", "mask": torch.tensor(True)}),
        (torch.ones(2, 2, dtype=torch.bfloat16), np.arange(2)),
        (torch.ones(4)[::2], torch.tensor(1.5)),
    ]
    found = joined([packed(examples[:2]), packed([]), packed(examples[2:])])
    assert found[0][1]["text"] == "a" and found[0][1]["mask"].item() is True
    assert torch.equal(found[1][0], examples[1][0]) and found[1][1].tolist() == [0, 1]
    assert found[2][0].tolist() == [1.0, 1.0] and found[2][1].item() == 1.5
    found[0][0].add_(1)
    assert [len(piece) for piece in split(range(5), 3)] == [1, 2, 2]
    assert split((7,), 2) == [[], [7]]


def _numbers(shard: range) -> Iterator[tuple[torch.Tensor, int]]:
    for index in shard:
        if index == 1000:
            raise OSError("shard 10 is not readable")
        yield torch.full((1,), float(index)), index


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_each_epoch_takes_each_example_once(workers: int) -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    shards = [range(start, start + 9) for start in range(0, 99, 9)]
    data: Dataset[Any] = ShardedDataset(shards, _numbers, lengths=[9] * 11, streams=4)
    found: list[Counter[int]] = []
    with session(model, optimizer, data, batch_size=32, num_workers=workers) as job:
        for _ in job.epochs(2):
            found.append(Counter())
            for inputs, indices in job.batches():
                assert inputs.squeeze(1).tolist() == indices.tolist()
                found[-1].update(indices.tolist())
                job.step(job.model(inputs).mean())
    assert found == [Counter(range(99))] * 2


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_a_shard_is_raised_in_training(workers: int) -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    data = ShardedDataset([range(990, 1010)], _numbers, lengths=[20])
    with (
        pytest.raises(OSError, match="shard 10 is not readable"),
        session(model, optimizer, data, batch_size=4, num_workers=workers) as job,
    ):
        for inputs, _ in job.batches(epochs=1):
            job.step(job.model(inputs).mean())


def test_replicas_with_other_shards_are_told_apart() -> None:
    def settings_of(lengths: list[int], streams: int) -> float:
        model = nn.Linear(1, 1)
        data = ShardedDataset(list(lengths), range, lengths=lengths, streams=streams)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        its_script = script(model, optimizer, data)
        return fingerprint_of(its_script, order_of(its_script)).settings

    found = {settings_of([3, 4], 2), settings_of([4, 3], 2), settings_of([3, 4], 1)}
    assert len(found) == 3
    assert settings_of([3, 4], 2) in found


def test_a_job_on_shards_loses_a_replica_and_grows(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    try:
        environment = {"EPOCHS": "100000", "SHARDS": "24", "WORKERS": "2"}
        first, second = (fleet.start(**environment) for _ in range(2))
        wait_until(lambda: any(is_training(replica, 2) for replica in (first, second)))
        workers = psutil.Process(first.process.pid).children(recursive=True)
        second.kill()
        third = fleet.start(**environment)
        wait_until(lambda: third.step > 0, description="the successor")
        at = third.step
        wait_until(lambda: min(first.step, third.step) > at + 64)
        assert len(workers) == 2
        assert psutil.Process(first.process.pid).children(recursive=True) == workers
        for replica in (first, third):
            replica.kill()
        assert_replicas_agree(fleet)
        by_pass = taken(fleet)
        assert max(max(counts.values()) for counts in by_pass.values()) == 1
        assert sum(len(counts) == EXAMPLES for counts in by_pass.values()) > 1
    finally:
        fleet.stop()
