from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autoscaler.domain.goodput import Batch, BatchBounds, ThroughputParameters
from autoscaler.goodput.batch_search import best_batch, candidates, goodput_table
from autoscaler.goodput.efficiency import efficiency
from autoscaler.goodput.formulas import predictor_of
from tests.goodput.cases import PLANTED, batch_bounds, parameters

noise_scales = st.one_of(st.floats(0, 1e9), st.just(math.inf))


@given(parameters(), noise_scales, batch_bounds(), st.integers(1, 16), st.integers(1, 16))
def test_every_bound_is_kept(
    theta: ThroughputParameters, noise: float, bounds: BatchBounds, instances: int, each: int
) -> None:
    devices = instances * each
    assume(devices <= (bounds.maximum if bounds.adaptive else bounds.initial))
    choice = best_batch(theta, noise, bounds, instances, devices)
    batch = choice.batch
    assert max(bounds.initial, devices) <= batch.total <= bounds.maximum
    assert 1 <= batch.device <= bounds.device_maximum
    assert batch.accumulation >= 0
    room = (batch.accumulation + 1) * devices
    assert batch.device * room >= batch.total > (batch.device - 1) * room
    if not bounds.adaptive:
        assert batch.total == bounds.initial
        assert choice.efficiency == 1.0
    assert choice.goodput == pytest.approx(choice.throughput * choice.efficiency)
    seconds = predictor_of(theta).step_seconds(
        instances, devices, batch.device, batch.accumulation
    )
    assert choice.step_seconds == pytest.approx(float(seconds))


@given(parameters(), noise_scales, batch_bounds())
def test_the_table_holds_what_the_trainer_would_choose(
    theta: ThroughputParameters, noise: float, bounds: BatchBounds
) -> None:
    instances, devices = np.array([1, 1, 1, 2, 4]), np.array([1, 2, 4, 8, 16])
    (row,) = goodput_table(predictor_of([theta]), noise, bounds, instances, devices)
    largest = bounds.maximum if bounds.adaptive else bounds.initial
    for count, total, goodput in zip(instances, devices, row, strict=True):
        if total > largest:
            assert goodput == 0.0
            continue
        choice = best_batch(theta, noise, bounds, int(count), int(total))
        assert goodput == pytest.approx(choice.goodput, rel=1e-12)


@given(parameters(), noise_scales, st.integers(1, 16))
def test_the_grid_misses_little_of_the_best_batch(
    theta: ThroughputParameters, noise: float, devices: int
) -> None:
    bounds = BatchBounds(initial=16, maximum=1024, device_maximum=48, adaptive=True)
    chosen = best_batch(theta, noise, bounds, 1, devices).goodput
    totals = np.arange(16, 1025)
    share = -(-totals // devices)
    micro_steps = -(-share // 48)
    seconds = predictor_of(theta).step_seconds(
        1, devices, -(-share // micro_steps), micro_steps - 1
    )
    best = (totals * efficiency(noise, 16, totals) / seconds).max()
    assert chosen <= best * (1 + 1e-12)
    assert chosen >= 0.95 * best


def random_job(generator: np.random.Generator) -> tuple[ThroughputParameters, float, BatchBounds]:
    initial = int(2 ** generator.uniform(0, 9))
    bounds = BatchBounds(
        initial=initial,
        maximum=int(initial * 2 ** generator.uniform(0, 8)),
        device_maximum=int(2 ** generator.uniform(2, 9)),
        adaptive=True,
    )
    seconds = np.exp(generator.uniform(np.log(1e-4), np.log(10.0), 6)).tolist()
    theta = ThroughputParameters(*seconds, gamma=generator.uniform(1.0, 10.0))
    return theta, initial * math.exp(generator.uniform(-3.0, 6.0)), bounds


def test_little_is_missed_whatever_the_bounds() -> None:
    """Find batches such as 2 times 35, which was missed for 70 initially and 67 on a device."""
    generator = np.random.default_rng(0)
    losses = []
    for _ in range(500):
        theta, noise, bounds = random_job(generator)
        devices = int(generator.integers(1, 33))
        if devices > bounds.maximum:
            continue
        chosen = best_batch(theta, noise, bounds, max(devices // 4, 1), devices).goodput
        totals = np.arange(max(bounds.initial, devices), bounds.maximum + 1)
        share = -(-totals // devices)
        steps = -(-share // bounds.device_maximum)
        place = (max(devices // 4, 1), devices, -(-share // steps), steps - 1)
        goodput = totals * efficiency(noise, bounds.initial, totals)
        losses.append(1 - chosen / (goodput / predictor_of(theta).step_seconds(*place)).max())
    assert np.mean(losses) < 0.003
    assert np.max(losses) < 0.12


@given(batch_bounds(), st.lists(st.integers(1, 600), min_size=1, max_size=4))
def test_what_is_looked_at_is_within_bounds_and_round_where_it_is_little(
    bounds: BatchBounds, devices: list[int]
) -> None:
    choices = candidates(bounds, np.array(devices))
    largest = bounds.maximum if bounds.adaptive else bounds.initial
    for row in np.flatnonzero(choices.runs[:, 0]).tolist():
        total, device = choices.total[row], choices.device[row]
        assert total.min() >= max(bounds.initial, devices[row])
        assert total.max() == largest
        assert device.min() >= 1 and device.max() <= bounds.device_maximum
        between = (total > total.min()) & (total < largest) & (device < 32)
        assert set(device[between].tolist()) <= {1, 2, 4, 8, 16, bounds.device_maximum}


def test_device_batches_too_large_for_the_maximum_do_not_pass_it() -> None:
    """Published code returned 64 x 32 = 2048 for a maximum of 1024: its grid ran downwards."""
    bounds = BatchBounds(initial=32, maximum=1024, device_maximum=4096, adaptive=True)
    for devices in (32, 64, 1000, 1024):
        assert best_batch(PLANTED, math.inf, bounds, 8, devices).batch.total <= 1024


def test_rounding_up_does_not_pass_the_maximum() -> None:
    """Published code rounded the share of a device up, and with it the total."""
    bounds = BatchBounds(initial=10, maximum=1000, device_maximum=1000, adaptive=True)
    choice = best_batch(PLANTED, math.inf, bounds, 1, 7).batch
    assert choice == Batch(total=1000, device=143, accumulation=0)


def test_micro_steps_are_full_where_there_are_several() -> None:
    bounds = BatchBounds(initial=10, maximum=1100, device_maximum=50, adaptive=True)
    overhead = replace(PLANTED, alpha_compute_seconds=1.0)
    choice = best_batch(overhead, math.inf, bounds, 1, 7).batch
    assert choice == Batch(total=1050, device=50, accumulation=2)


@pytest.mark.parametrize("noise", [0.0, -50.0, math.nan])
def test_noise_that_says_nothing_keeps_the_initial_batch(noise: float) -> None:
    bounds = BatchBounds(initial=64, maximum=4096, device_maximum=64, adaptive=True)
    assert best_batch(PLANTED, noise, bounds, 2, 8).batch == Batch(64, 8, 0)


def test_much_noise_takes_the_largest_batch() -> None:
    bounds = BatchBounds(initial=64, maximum=4096, device_maximum=64, adaptive=True)
    assert best_batch(PLANTED, math.inf, bounds, 2, 8).batch == Batch(4096, 64, 7)


def test_the_slowest_device_decides_an_uneven_split() -> None:
    bounds = BatchBounds(initial=10, maximum=10, device_maximum=2, adaptive=False)
    choice = best_batch(PLANTED, 0.0, bounds, 1, 3)
    assert choice.batch == Batch(total=10, device=2, accumulation=1)
    seconds = float(predictor_of(PLANTED).step_seconds(1, 3, 2, 1))
    assert choice.throughput == pytest.approx(10 / seconds)


def test_more_devices_than_examples_can_not_run() -> None:
    adaptive = BatchBounds(initial=4, maximum=8, device_maximum=8, adaptive=True)
    rigid = BatchBounds(initial=4, maximum=8, device_maximum=8, adaptive=False)
    devices = np.array([4, 8, 9])
    drawn = predictor_of([PLANTED])
    assert (goodput_table(drawn, 10.0, adaptive, np.ones(3), devices) > 0).tolist() == [
        [True, True, False]
    ]
    assert (goodput_table(drawn, 10.0, rigid, np.ones(3), devices) > 0).tolist() == [
        [True, False, False]
    ]
    with pytest.raises(ValueError, match="devices=9"):
        best_batch(PLANTED, 10.0, adaptive, 1, 9)


def test_a_draw_has_the_noise_scale_of_its_own_row() -> None:
    bounds = BatchBounds(initial=32, maximum=2048, device_maximum=64, adaptive=True)
    drawn = predictor_of([PLANTED, PLANTED])
    table = goodput_table(drawn, np.array([1.0, 1e6]), bounds, np.array([1]), np.array([8]))
    alone = [best_batch(PLANTED, noise, bounds, 1, 8).goodput for noise in (1.0, 1e6)]
    assert table[:, 0] == pytest.approx(alone)
