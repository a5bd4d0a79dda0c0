from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.goodput import Batch, BatchBounds, NoiseScale, ThroughputParameters
from autoscaler.goodput.batch_choice import batch_to_look_at, next_batch_total, split_batch
from autoscaler.goodput.batch_search import best_batch, candidates
from autoscaler.goodput.efficiency import efficiency
from autoscaler.goodput.formulas import predictor_of
from tests.goodput.cases import PLANTED, batch_bounds, parameters

BOUNDS = BatchBounds(initial=32, maximum=1024, device_maximum=128, adaptive=True)
MEMBERS = (2, 4)
NOISE = NoiseScale(32, 1.0, 10.0, 0.1)
# How much longer steps really take than the model says, as a logarithm, by device batch.
Error = Callable[[float], float]


def seconds_of(batch: Batch, error: Error) -> float:
    predicted = predictor_of(PLANTED).step_seconds(*MEMBERS, batch.device, batch.accumulation)
    return float(predicted) * math.exp(error(batch.device))


def goodput_of(total: int, error: Error) -> float:
    seconds = seconds_of(split_batch(total, MEMBERS[1], BOUNDS.device_maximum), error)
    return total * float(efficiency(NOISE.examples, BOUNDS.initial, total)) / seconds


def best_of_all(error: Error) -> float:
    totals = candidates(BOUNDS, np.array([MEMBERS[1]])).total[0].tolist()
    return max(goodput_of(total, error) for total in totals)


def tried(error: Error, most: int = 30) -> list[int]:
    """The batches that a trainer goes through until it stays; the last is where it stays."""
    measured = {}
    totals = [BOUNDS.initial]
    while len(totals) <= most:
        batch = split_batch(totals[-1], MEMBERS[1], BOUNDS.device_maximum)
        measured[batch.device, batch.accumulation] = seconds_of(batch, error)
        total = next_batch_total(totals[-1], BOUNDS, PLANTED, NOISE, MEMBERS, measured)
        if total == totals[-1]:
            return totals
        totals.append(total)
    raise AssertionError(f"no end of {totals}")


@given(st.floats(-0.5, 0.5), st.floats(0.0, 0.25), st.floats(0.0, 2 * math.pi))
def test_it_stays_at_the_best_where_the_model_errs_by_no_more_than_is_hoped(
    level: float, waves_per_doubling: float, phase: float
) -> None:
    def error(batch: float) -> float:
        turns = 2 * math.pi * waves_per_doubling * math.log2(batch)
        return level + 0.07 * math.sin(turns + phase)

    totals = tried(error)
    assert len(totals) <= 8
    assert goodput_of(totals[-1], error) >= best_of_all(error) / 1.04


def test_a_jump_that_the_model_has_not_is_found_and_left() -> None:
    def error(batch: float) -> float:
        return 0.6 if batch > 48 else 0.0

    alone = next_batch_total(BOUNDS.initial, BOUNDS, PLANTED, NOISE, MEMBERS)
    totals = tried(error)
    assert goodput_of(alone, error) < 0.8 * best_of_all(error)
    assert goodput_of(totals[-1], error) >= 0.97 * best_of_all(error)
    assert len(totals) <= 8


@given(
    parameters(),
    batch_bounds(),
    st.integers(1, 30_000),
    st.floats(0.0, 1e6),
    st.dictionaries(
        st.tuples(st.integers(1, 500), st.integers(0, 5)), st.floats(1e-3, 1e3), max_size=4
    ),
    st.tuples(st.integers(1, 8), st.integers(1, 8)),
)
def test_whatever_was_measured_the_batch_stays_within_bounds(
    theta: ThroughputParameters,
    bounds: BatchBounds,
    current: int,
    variance: float,
    measured: dict[tuple[int, int], float],
    members: tuple[int, int],
) -> None:
    noise = NoiseScale(bounds.initial, 1.0, variance, 0.1)
    devices = members[0] * members[1]
    total = next_batch_total(current, bounds, theta, noise, (members[0], devices), measured)
    assert bounds.initial <= total <= bounds.maximum
    assert bounds.adaptive or total == bounds.initial


@given(parameters(), st.floats(0.0, 1000.0))
def test_without_measurements_the_model_decides(
    theta: ThroughputParameters, variance: float
) -> None:
    noise = NoiseScale(32, 1.0, variance, 0.1)
    total = next_batch_total(32, BOUNDS, theta, noise, MEMBERS)
    best = best_batch(theta, noise.examples, BOUNDS, *MEMBERS)
    now = split_batch(32, MEMBERS[1], BOUNDS.device_maximum)
    seconds = float(predictor_of(theta).step_seconds(*MEMBERS, now.device, now.accumulation))
    gains = best.goodput / (32 / seconds) > 1.03
    assert total == (best.batch.total if gains else 32)


@pytest.mark.parametrize(
    ("measured", "looked_at"),
    [({}, None), ({(8, 0): 1.0}, 512), ({(64, 0): 1.0}, 512), ({(65, 0): 1.0}, None)],
)
def test_the_largest_batch_is_looked_at_once(
    measured: dict[tuple[int, int], float], looked_at: int | None
) -> None:
    """4 devices of at most 128 examples."""
    assert batch_to_look_at(BOUNDS, 4, measured) == looked_at
    assert batch_to_look_at(replace(BOUNDS, adaptive=False), 4, measured) is None


@given(st.integers(1, 100_000), st.integers(1, 64), st.integers(1, 300))
def test_a_split_holds_the_batch_in_as_few_micro_steps_as_it_can(
    total: int, devices: int, most: int
) -> None:
    batch = split_batch(total, devices, most)
    assert 1 <= batch.device <= most
    assert devices * batch.device * (batch.accumulation + 1) >= total
    assert batch.accumulation == 0 or devices * most * batch.accumulation < total
