from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.snapshot import SwitchingCosts
from autoscaler.economics.allocation.candidates import PredictedPieces
from autoscaler.economics.choice.sequence import (
    Sequences,
    best_sequences,
    cost_of_changing_now,
    due_now,
)
from autoscaler.economics.choice.switching import SwitchContext, switches
from tests.economics.cases import SMALL, devices, job, snapshot
from tests.economics.choice.test_switching import ground_of

WORK = 9000.0
DRAWS = 3


def ground(pieces: int, instances: int = 3, seed: int = 0, **changes: object) -> SwitchContext:
    """Return a job on 1 to `instances` small ones, with speeds by piece, draw and size."""
    generator = np.random.default_rng(seed)
    job_snapshot = job(
        instances=InstanceBounds(1, instances),
        switching=SwitchingCosts(pause_seconds=2.0, restore_seconds=10.0),
        **changes,
    )
    at = ground_of(
        job_snapshot, snapshot(job_snapshot, offers=(SMALL,), limits=[devices(instances)])
    )
    count = len(at.candidates)
    speeds = 100.0 * np.exp(generator.uniform(-0.5, 0.5, (pieces, DRAWS, count)))
    scale = np.arange(1, count + 1) ** generator.uniform(0.0, 1.5, (pieces, 1, 1))
    shares = generator.dirichlet(np.ones(pieces))
    ahead = PredictedPieces(WORK * shares, 1.0 / (speeds * scale))
    return replace(at, candidates=replace(at.candidates, ahead=ahead))


def ahead_of(at: SwitchContext) -> PredictedPieces:
    assert at.candidates.ahead is not None
    return at.candidates.ahead


def piece_usd(at: SwitchContext, piece: int, index: int, value: float) -> np.ndarray:
    """Return $ of one piece on one candidate, (K,)."""
    ahead = ahead_of(at)
    seconds = ahead.work[piece] * ahead.seconds_per_example[piece][:, index]
    usd: np.ndarray = seconds * (at.candidates.usd_per_second[index] + value)
    return usd


def change_usd(at: SwitchContext, origin: int | None, target: int, value: float) -> float:
    taken = switches(at, origin, np.array([target]))
    idle = 0.0 if taken.trains_during_boot[0] else float(taken.ready_seconds[0])
    paid = float(at.candidates.usd_per_second[target]) + value
    return float(taken.boot_usd[0]) + float(taken.pause_seconds[0]) * paid + idle * value


def usd_of(at: SwitchContext, sequence: tuple[int, ...], value: float) -> np.ndarray:
    """Return $ of a sequence of candidates, one for each piece, (K,)."""
    total = np.full(DRAWS, change_usd(at, at.candidates.held, sequence[0], value))
    for before, after in itertools.pairwise(sequence):
        total = total + change_usd(at, before, after, value)
    for piece, index in enumerate(sequence):
        total = total + piece_usd(at, piece, index, value)
    return total


VALUES = st.floats(0.0, 0.01)
HELD = st.sampled_from([None, Allocation("local-small", 1, 1), Allocation("local-small", 2, 1)])


@given(st.integers(0, 10_000), VALUES, HELD)
def test_it_is_the_best_of_all_sequences(seed: int, value: float, held: Allocation | None) -> None:
    at = ground(pieces=4, seed=seed, held=held)
    mean_costs = best_sequences(at, value, WORK).cost.mean(axis=0)
    for first in range(len(at.candidates)):
        rest = itertools.product(range(len(at.candidates)), repeat=3)
        best = min(float(usd_of(at, (first, *later_sizes), value).mean()) for later_sizes in rest)
        assert mean_costs[first] == pytest.approx(best)


@given(st.integers(0, 10_000), VALUES, HELD, st.integers(1, 5))
def test_no_allocation_for_all_the_rest_is_cheaper(
    seed: int, value: float, held: Allocation | None, pieces: int
) -> None:
    at = ground(pieces, instances=12, seed=seed, held=held)
    mean_costs = best_sequences(at, value, WORK).cost.mean(axis=0)
    for index in range(len(at.candidates)):
        alone = float(usd_of(at, (index,) * pieces, value).mean())
        assert mean_costs[index] <= alone * (1 + 1e-9)


def test_a_single_piece_is_what_it_costs() -> None:
    at = ground(pieces=1, held=Allocation("local-small", 1, 1))
    sequences = best_sequences(at, 0.001, WORK)
    assert sequences.following.tolist() == [0, 1, 2]
    for index in range(3):
        assert sequences.cost[:, index] == pytest.approx(usd_of(at, (index,), 0.001))


def test_work_that_ends_before_the_pieces_do_is_all_that_counts() -> None:
    at = ground(pieces=4)
    first = float(ahead_of(at).work[0])
    sequences = best_sequences(at, 0.001, first / 2)
    whole = best_sequences(at, 0.001, first)
    entry = np.array([change_usd(at, None, index, 0.001) for index in range(3)])
    assert sequences.cost - entry == pytest.approx((whole.cost - entry) / 2)


def test_where_nothing_is_allowed_it_still_says_what_things_cost() -> None:
    at = ground(pieces=4)
    nothing = replace(at.candidates, allowed=np.zeros(3, dtype=np.bool_))
    sequences = best_sequences(replace(at, candidates=nothing), 0.001, WORK)
    for index in range(3):
        assert sequences.cost[:, index] == pytest.approx(usd_of(at, (index,) * 4, 0.001))


def test_what_is_not_allowed_does_not_follow() -> None:
    at = ground(pieces=4, held=Allocation("local-small", 1, 1))
    only_two = replace(at.candidates, allowed=np.array([False, True, False]))
    sequences = best_sequences(replace(at, candidates=only_two), 0.001, WORK)
    assert all(then in (0, 1, first) for first, then in enumerate(sequences.following.tolist()))


def leading_to(at: SwitchContext, following: int, change_examples: float) -> Sequences:
    """Return sequences from every candidate to `following`, after `change_examples` of work."""
    count = len(at.candidates)
    return Sequences(
        np.zeros((DRAWS, count)), np.zeros(count), np.full(count, following), change_examples
    )


def test_a_change_comes_too_late_for_what_is_done_while_it_boots() -> None:
    at = ground(pieces=4, held=Allocation("local-small", 1, 1))
    sequences = best_sequences(at, 0.001, WORK)
    boot_seconds = float(switches(at, 0, np.array([2])).ready_seconds[0])
    rest = sequences.cost - sequences.entry_usd
    for work in (1e-3 * boot_seconds, WORK):
        done = np.minimum(at.candidates.goodput[:, 0] * boot_seconds, work) / work
        by_hand = sequences.entry_usd[2] + done * rest[:, 0] + (1 - done) * rest[:, 2]
        assert cost_of_changing_now(at, sequences, work)[:, 2] == pytest.approx(by_hand)
        assert cost_of_changing_now(at, sequences, work)[:, 0] == pytest.approx(
            sequences.cost[:, 0]
        )
    nothing = ground(pieces=4)
    alone = best_sequences(nothing, 0.001, WORK)
    assert cost_of_changing_now(nothing, alone, WORK) == pytest.approx(alone.cost)


def test_what_follows_is_ordered_when_it_can_not_wait_for_the_next_plan() -> None:
    at = ground(pieces=4, held=Allocation("local-small", 1, 1))
    # The held allocation processes 100 examples a second, and instances boot for 6 s.
    assert due_now(at, leading_to(at, 2, 6500.0), replan_seconds=60.0) == 2
    assert due_now(at, leading_to(at, 2, 6700.0), replan_seconds=60.0) is None
    assert due_now(at, leading_to(at, 0, 6500.0), replan_seconds=60.0) is None


def test_nothing_is_ordered_that_may_not_be_held_or_for_who_holds_nothing() -> None:
    free = ground(pieces=4)
    assert due_now(free, leading_to(free, 2, 1.0), replan_seconds=60.0) is None
    at = ground(pieces=4, held=Allocation("local-small", 1, 1))
    refused = replace(at.candidates, allowed=np.array([True, True, False]))
    at = replace(at, candidates=refused)
    assert due_now(at, leading_to(at, 2, 1.0), replan_seconds=60.0) is None
