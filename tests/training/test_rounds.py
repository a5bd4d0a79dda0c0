from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.training.members.rounds import (
    ROW_WIDTH,
    ReplicaRow,
    agree,
    combined_squares,
    decode,
    encode,
    observation,
    wants_forming,
)

ROW = ReplicaRow(
    ranks=1,
    kind=7,
    age=3,
    leaves=0,
    sees_lighthouse=1,
    wants_checkpoint=0,
    batch_total=64,
    gradient_square=1.0,
    gradient_variance=2.0,
    step_seconds=0.01,
    sync_seconds=0.002,
    timed_steps=10,
)

finite = st.floats(-1e12, 1e12)


@given(st.lists(finite, min_size=ROW_WIDTH, max_size=ROW_WIDTH))
def test_a_row_travels_unchanged(numbers: list[float]) -> None:
    assert encode(decode(numbers)) == numbers


@given(
    st.lists(
        st.tuples(st.integers(1, 8), st.integers(0, 50), st.booleans(), st.booleans()),
        min_size=1,
        max_size=6,
    )
)
def test_all_replicas_agree_on_everything_but_their_own_place(
    replicas: list[tuple[int, int, bool, bool]],
) -> None:
    rows = [
        replace(
            ROW, ranks=ranks, age=age, leaves=leaves, sees_lighthouse=sees, batch_total=32 + age
        )
        for ranks, age, leaves, sees in replicas
    ]
    agreements = [agree(rows, index, 1.5) for index in range(len(rows))]
    own = {replace(each, first_rank=0, we_leave=False, decides=False) for each in agreements}
    assert len(own) == 1
    first_ranks = [each.first_rank for each in agreements]
    assert first_ranks == [sum(row.ranks for row in rows[:index]) for index in range(len(rows))]
    (decider,) = (
        row for row, agreement in zip(rows, agreements, strict=True) if agreement.decides
    )
    stay = [row for row in rows if row.age > 0 and not row.leaves]
    assert decider.age == max(row.age for row in stay or rows)
    assert agreements[0].batch_total == decider.batch_total


@pytest.mark.parametrize(("age", "decides"), [(1, True), (0, False)])
def test_a_replica_that_stays_decides_unless_it_has_just_joined(age: int, decides: bool) -> None:
    rows = [replace(ROW, leaves=1), replace(ROW, age=age)]
    assert agree(rows, 1, 1.5).decides is decides


def test_a_round_with_a_leaver_lasts_until_its_heartbeats_are_missed() -> None:
    rows = [ROW, replace(ROW, leaves=1)]
    agreement = agree(rows, 0, farewell_seconds=1.5)
    assert agreement.steps * ROW.step_seconds >= 1.5
    assert agreement.someone_leaves and not agreement.everyone_leaves and not agreement.we_leave


def test_the_last_to_leave_do_one_step_and_save() -> None:
    agreement = agree([replace(ROW, leaves=1)], 0, farewell_seconds=1.5)
    assert (agreement.steps, agreement.everyone_leaves) == (1, True)


def test_replicas_form_anew_once_one_sees_a_change_and_all_see_the_lighthouse() -> None:
    sees_change = replace(ROW, sees_change=1)
    assert wants_forming([ROW, sees_change])
    assert not wants_forming([ROW, ROW])
    assert not wants_forming([sees_change, replace(ROW, sees_lighthouse=0)])


@pytest.mark.parametrize(
    ("step_seconds", "steps"), [(0.0, 1), (0.01, 100), (10.0, 1), (1e-4, 1000)]
)
def test_rounds_last_about_a_second(step_seconds: float, steps: int) -> None:
    assert agree([replace(ROW, step_seconds=step_seconds)], 0, 1.5).steps == steps


@pytest.mark.parametrize("pending", [{"age": 0.0}, {"wants_checkpoint": 1.0}, {"leaves": 1.0}])
def test_a_round_with_a_join_a_leave_or_a_checkpoint_is_short(pending: dict[str, float]) -> None:
    row = replace(ROW, step_seconds=0.01)
    assert agree([row, row], 0, farewell_seconds=0.0).steps == 100
    pending_rows = [replace(row, **pending), replace(row, age=0.0 if "age" in pending else 1.0)]
    assert agree(pending_rows, 0, farewell_seconds=0.0).steps == 15


def test_step_times_count_only_where_all_replicas_timed_the_same_kind() -> None:
    timed = observation([ROW, replace(ROW, sync_seconds=0.004)], "core", 32, 0)
    assert timed is not None
    assert (timed.instances, timed.devices, timed.steps) == (2, 2, 10)
    assert timed.sync_seconds == 0.002, "the slowest replica waits least, and sets the pace"
    assert observation([ROW, replace(ROW, kind=8)], "core", 32, 0) is None
    assert observation([ROW, replace(ROW, timed_steps=0)], "core", 32, 0) is None
    assert observation([replace(ROW, sync_seconds=ROW.step_seconds)], "core", 32, 0) is None


def test_ranks_take_shares_by_speed_where_kinds_of_device_differ() -> None:
    slow = replace(ROW, kind=1, speed=100.0)
    fast = [replace(ROW, kind=2, speed=speed, ranks=2) for speed in (180.0, 220.0)]
    speeds = agree([slow, *fast], 0, 1.5).speeds
    assert len(speeds) == 5
    assert speeds == pytest.approx((1.0, 2.0, 2.0, 2.0, 2.0), rel=0.04)
    assert agree([slow, *fast], 2, 1.5).speeds == speeds, "all replicas agree"
    joiner = replace(ROW, kind=2, age=0, speed=0.0)
    assert len(agree([slow, fast[0], joiner], 0, 1.5).speeds) == 4, "it has its kind's speed"


def test_shares_are_equal_on_one_kind_and_while_a_kind_is_not_measured() -> None:
    slow, fast = (replace(ROW, speed=speed) for speed in (100.0, 200.0))
    assert agree([slow, fast], 0, 1.5).speeds == ()
    assert agree([slow, replace(fast, kind=8, speed=0.0)], 0, 1.5).speeds == ()


def test_squares_are_summed_over_replicas_but_the_sum_is_seen_by_each() -> None:
    row = replace(
        ROW,
        squares_samples=2,
        squares_smalls=2,
        squares_small=10.0,
        squares_small_inverse=2 / 16,
        squares_big=6.0,
        squares_big_inverse=2 / 32,
    )
    squares = combined_squares([row, row])
    assert (squares.samples, squares.smalls) == (2, 4)
    assert (squares.small_square, squares.big_square) == (20.0, 6.0)
    assert combined_squares([ROW]).samples == 0
