"""Lengths of trainings in epochs, steps and useful examples."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.integrations.lengths import training_length


@given(
    examples=st.integers(1, 5000),
    batch_size=st.integers(1, 300),
    epochs=st.floats(0.05, 20.0, allow_nan=False),
)
def test_as_many_steps_as_a_plain_loop_reach_the_end(
    examples: int, batch_size: int, epochs: float
) -> None:
    length = training_length(examples, batch_size, False, epochs)
    assert length.steps == math.ceil(epochs * math.ceil(examples / batch_size))
    progress, position = 0, 0
    for _ in range(length.steps):
        assert not length.is_over(progress)
        taken = min(batch_size, examples - position)
        progress, position = progress + taken, (position + taken) % examples
    assert length.is_over(progress) and progress == length.total_examples


def test_steps_replace_epochs() -> None:
    length = training_length(1000, 64, False, epochs=3.0, steps=20)
    assert (length.steps, length.total_examples) == (20, 1000 + 4 * 64)
    assert length.epochs == pytest.approx(1.256)
    assert length.scheduler_steps == 19


def test_a_rest_that_is_left_out_does_not_count() -> None:
    length = training_length(1000, 64, True, epochs=2.0)
    assert (length.pass_examples, length.steps) == (960, 30)
    assert length.epochs == 2.0


def test_steps_in_all_follow_the_batch() -> None:
    length = training_length(1024, 32, False, epochs=2.0)
    assert length.steps_in_all(10, 320.0, 32) == 64
    assert length.steps_in_all(10, 320.0, 128) == 10 + 14
    assert length.steps_in_all(40, 2048.0, 128) == 40
    assert length.steps_in_all(64, 2000.0, 32) == 65, "a repeated step is no end"


@pytest.mark.parametrize(("examples", "epochs"), [(0, 1.0), (10, 0.0)])
def test_nothing_to_train_is_refused(examples: int, epochs: float) -> None:
    with pytest.raises(ValueError, match=r"don.t fill a batch|must be above 0"):
        training_length(examples, 8, False, epochs)


def test_a_pass_shorter_than_a_batch_is_refused_where_rests_are_left_out() -> None:
    with pytest.raises(ValueError, match="10 examples don't fill a batch of 64"):
        training_length(10, 64, True, 1.0)
