"""The order of a pass: a permutation that is computed where it is asked for."""

from __future__ import annotations

import itertools
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import nn, optim

from autoscaler.training import TrainingSession
from autoscaler.training.data import orders, permutation
from autoscaler.training.data.orders import Shuffled
from autoscaler.training.data.permutation import permuted, round_keys
from tests.training.alone import opened, script

HUGE = 10**9


@given(size=st.integers(1, 3000), seed=st.integers(0, 2**70), pass_index=st.integers(0, 10**6))
def test_every_order_is_a_permutation(size: int, seed: int, pass_index: int) -> None:
    order = permuted(np.arange(size), size, round_keys(seed, pass_index))
    assert sorted(order.tolist()) == list(range(size))


@given(
    size=st.integers(1, 10**12),
    seed=st.integers(0, 5),
    starts=st.lists(st.floats(0, 1), min_size=2, max_size=2),
)
def test_a_position_has_the_same_example_in_every_slice(
    size: int, seed: int, starts: list[float]
) -> None:
    order = Shuffled(size, seed)
    low, high = sorted(min(size - 1, int(start * size)) for start in starts)
    high = min(high, low + 500)
    whole = order.slice(0, low, high + 1)
    assert whole.min() >= 0 and whole.max() < size
    assert len(set(whole.tolist())) == len(whole)
    middle = (low + high) // 2
    assert order.slice(0, middle, high + 1).tolist() == whole[middle - low :].tolist()


def test_short_slices_of_a_pass_are_permuted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step's few examples would take as long to permute as a thousand."""
    sizes: list[int] = []

    def counted(positions, *arguments):
        sizes.append(len(positions))
        return permuted(positions, *arguments)

    monkeypatch.setattr(orders, "permuted", counted)
    order = Shuffled(3000, seed=12345)
    taken = np.concatenate([order.slice(2, start, start + 50) for start in range(0, 3000, 50)])
    assert sizes == [1024, 1024, 952]
    assert taken.tolist() == permuted(np.arange(3000), 3000, round_keys(12345, 2)).tolist()
    assert order.slice(2, 10, 2010).tolist() == taken[10:2010].tolist()
    assert sizes[3:] == [2000], "a long slice is permuted by itself"
    assert order.slice(2, 1024, 1024).size == order.slice(2, 3000, 3000).size == 0


@pytest.mark.parametrize("size", [3, 4])
def test_all_orders_of_a_few_examples_are_equally_frequent(size: int) -> None:
    seeds = 2400
    counts = Counter(tuple(Shuffled(size, seed).slice(0, 0, size)) for seed in range(seeds))
    observed = [counts[order] for order in itertools.permutations(range(size))]
    assert stats.chisquare(observed).pvalue > 1e-3


@pytest.mark.parametrize("size", [7, 16, 33])
def test_each_example_stands_everywhere_equally_often(size: int) -> None:
    seeds = 1000
    table = np.zeros((size, size))
    for seed in range(seeds):
        table[np.arange(size), Shuffled(size, seed).slice(seed % 3, 0, size)] += 1
    # A table of whole permutations has one degree of freedom less in each row and column.
    statistic = ((table - seeds / size) ** 2 / (seeds / size)).sum() * (size - 1) / size
    assert stats.chi2.sf(statistic, (size - 1) ** 2) > 1e-3


def test_neighbours_in_a_large_order_are_unrelated() -> None:
    order = Shuffled(10**6, 1).slice(0, 0, 20_000)
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.03
    assert stats.kstest(order / 10**6, "uniform").pvalue > 1e-3


def test_a_billion_examples_take_no_memory_and_no_more_work_than_a_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computed: list[int] = []

    def counted(values, *arguments):
        computed.append(len(values))
        return feistel(values, *arguments)

    feistel = permutation._feistel
    monkeypatch.setattr(permutation, "_feistel", counted)
    orders._block.cache_clear()
    order = Shuffled(HUGE, 0)
    order.slice(0, 0, 1)
    tracemalloc.start()
    try:
        taken = [order.slice(pass_index, HUGE // 2, HUGE // 2 + 512) for pass_index in (0, 1, 0)]
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1_000_000
    blocks = 3  # the first position, and the middle of each pass, once
    assert 1024 * blocks <= sum(computed) < 1.2 * 1024 * blocks, "few fall outside and walk on"
    assert {indices.shape for indices in taken} == {(512,)}
    assert taken[0].tolist() == taken[2].tolist() != taken[1].tolist()


def _session(directory: Path) -> TrainingSession:
    model = nn.Linear(1, 1)
    data = [(np.float32([index]), index) for index in range(64)]
    its_script = script(
        model, optim.SGD(model.parameters(), lr=0.0), data, checkpoint_directory=str(directory)
    )
    return opened(its_script)[0]


def _take(job: TrainingSession, steps: int) -> list[int]:
    taken: list[int] = []
    for inputs, indices in itertools.islice(job.batches(epochs=2), steps):
        taken += indices.tolist()
        job.step(job.model(inputs).mean())
    return taken


def test_a_pass_that_an_earlier_version_began_ends_in_its_order(
    tmp_path: Path, monkeypatch
) -> None:
    """A checkpoint of an earlier version says nothing of the order."""
    job = _session(tmp_path)
    job._parts.state.counters.first_keyed_pass = 1
    first = _take(job, 2)
    assert first == np.random.default_rng([0, 0]).permutation(64)[:32].tolist()
    plain_values = type(job._parts.state)._plain_values

    def earlier(state):
        values = plain_values(state)
        del values["counters"]["first_keyed_pass"]
        return values

    monkeypatch.setattr(type(job._parts.state), "_plain_values", earlier)
    job.finish()
    monkeypatch.undo()
    job = _session(tmp_path)
    rest, second_pass = _take(job, 2), _take(job, 4)
    assert Counter(first + rest) == Counter(range(64))
    assert job._parts.state.counters.first_keyed_pass == 1
    assert second_pass == Shuffled(64, 0).slice(1, 0, 64).tolist()
