from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.training.data.orders import Sequential, Shuffled
from autoscaler.training.data.sampler import ElasticSampler, share, share_sizes


@given(
    examples=st.integers(1, 200),
    seed=st.integers(0, 5),
    steps=st.lists(
        st.tuples(st.integers(1, 70), st.integers(1, 6), st.integers(1, 4), st.booleans()),
        min_size=1,
        max_size=60,
    ),
)
def test_each_example_of_a_pass_is_taken_once_across_membership_changes(
    examples: int, seed: int, steps: list[tuple[int, int, int, bool]]
) -> None:
    sampler = ElasticSampler(Shuffled(examples, seed))
    position, taken = 0, Counter[int]()
    for batch, ranks, micro_steps, committed in steps:
        if position == examples:
            break
        indices = sampler.take(0, position, batch)
        shares = [share(indices, rank, ranks, micro_steps) for rank in range(ranks)]
        if not committed:
            continue
        position += len(indices)
        for own in shares:
            for part, weight in zip(own.micro_steps, own.weights, strict=True):
                if weight > 0:
                    taken.update(part)
        assert abs(sum(sum(own.weights) for own in shares) - 1) < 1e-9
    assert len(taken) == position
    assert set(taken.values()) <= {1}


def test_parts_differ_by_at_most_one() -> None:
    indices = ElasticSampler(Shuffled(100, 0)).take(0, 0, 23)
    sizes = [share(indices, rank, 4, 2).examples for rank in range(4)]
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) == 23


@given(
    total=st.integers(1, 300),
    speeds=st.lists(st.floats(0.1, 10.0), min_size=1, max_size=8),
    least=st.integers(1, 2),
    micro_steps=st.integers(1, 3),
)
def test_shares_by_speed_are_whole_and_take_about_equally_long(
    total: int, speeds: list[float], least: int, micro_steps: int
) -> None:
    ranks = len(speeds)
    indices = ElasticSampler(Sequential(total)).take(0, 0, total)
    shares = [share(indices, rank, ranks, micro_steps, least, speeds) for rank in range(ranks)]
    taken = [
        index
        for own in shares
        for part, weight in zip(own.micro_steps, own.weights, strict=True)
        if weight > 0
        for index in part
    ]
    assert taken == list(range(total)), "each example once"
    assert sum(sum(own.weights) for own in shares) == pytest.approx(1.0)
    sizes = share_sizes(total, ranks, least, speeds)
    assert [own.examples for own in shares] == list(sizes)
    ideal = [total * speed / sum(speeds) for speed in speeds]
    if total >= ranks * least and min(ideal) >= least + 1:
        assert all(abs(size - part) <= 1 for size, part in zip(sizes, ideal, strict=True))
    assert all(size >= least for size in sizes if total >= ranks * least)


@given(total=st.integers(1, 300), ranks=st.integers(1, 8), speed=st.floats(0.1, 10.0))
def test_equal_speeds_give_the_shares_that_no_speeds_give(
    total: int, ranks: int, speed: float
) -> None:
    by_speed = share_sizes(total, ranks, 1, (speed,) * ranks)
    equal = share_sizes(total, ranks)
    assert sum(by_speed) == sum(equal) == total
    assert all(abs(own - other) <= 1 for own, other in zip(by_speed, equal, strict=True))


@given(
    examples=st.integers(2, 200),
    batch=st.integers(2, 70),
    ranks=st.integers(1, 6),
    micro_steps=st.integers(1, 4),
)
def test_no_share_is_smaller_than_the_least(
    examples: int, batch: int, ranks: int, micro_steps: int
) -> None:
    sampler = ElasticSampler(Shuffled(examples, 0), least_share=2)
    pass_index, position, taken = 0, 0, Counter[int]()
    while pass_index == 0:
        indices = sampler.take(0, position, batch)
        assert len(indices) <= batch + 1
        for rank in range(ranks):
            own = share(indices, rank, ranks, micro_steps, least=2)
            for part, weight in zip(own.micro_steps, own.weights, strict=True):
                assert len(part) >= 2
                taken.update(part if weight else ())
        pass_index, position = sampler.place_after(0, position, len(indices))
    assert taken == Counter(range(examples))


@given(examples=st.integers(1, 200), initial=st.integers(1, 50), batch=st.integers(1, 120))
def test_with_drop_last_no_step_is_smaller_than_the_initial_batch(
    examples: int, initial: int, batch: int
) -> None:
    if examples < initial:
        with pytest.raises(ValueError, match="drop_last=True"):
            ElasticSampler(Shuffled(examples, 0), drop_last=initial)
        return
    sampler = ElasticSampler(Shuffled(examples, 0), drop_last=initial)
    assert sampler.examples == examples // initial * initial
    pass_index, position, batch = 0, 0, max(batch, initial)
    while pass_index == 0:
        indices = sampler.take(0, position, batch)
        assert len(indices) >= initial
        pass_index, position = sampler.place_after(0, position, len(indices))
    assert position == 0


def test_a_rank_without_examples_takes_one_of_no_weight() -> None:
    own = share(ElasticSampler(Shuffled(10, 0)).take(0, 9, 4), rank=2, ranks=3, micro_steps=1)
    assert own.examples == 0
    assert own.weights == (0.0,)


def test_passes_have_orders_of_their_own_and_repeat_exactly() -> None:
    first, again = (ElasticSampler(Shuffled(50, 7)) for _ in range(2))
    assert list(first.take(0, 0, 50)) != list(first.take(1, 0, 50))
    assert list(first.take(0, 0, 50)) == list(again.take(0, 0, 50))
    assert list(ElasticSampler(Sequential(5)).take(3, 0, 9)) == [0, 1, 2, 3, 4]
