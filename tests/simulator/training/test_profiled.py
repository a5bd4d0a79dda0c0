from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.goodput import Batch, BatchBounds, ThroughputParameters
from autoscaler.simulator.profiles.profiles import Profile
from autoscaler.simulator.profiles.step_times import Unprofiled
from autoscaler.simulator.training.base import Member
from autoscaler.simulator.training.profiled import Training, TrainingSettings
from autoscaler.simulator.training.published_compat import Quirks
from autoscaler.simulator.training.truth import MachineKind
from tests.simulator import toy

BOUNDS = BatchBounds(toy.INITIAL_BATCH, toy.MAXIMUM_BATCH, 64, adaptive=True)
SETTINGS = TrainingSettings(pause_seconds=5.0)
FIT = ThroughputParameters(0.02, 0.004, 0.02, 0.0, 0.01, 0.0, 1.0)


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    return toy.profiles(tmp_path_factory.mktemp("profiles"))[toy.APPLICATION]


def members(count: int, kind: str = "slow") -> tuple[Member, ...]:
    return tuple(Member(f"i{number}", kind, kind, kind, 2) for number in range(count))


def training(profile: Profile, requested_batch: int | None = None) -> Training:
    return Training(profile, BOUNDS, SETTINGS, 0.0, requested_batch)


@given(cuts=st.lists(st.floats(0.0, 300.0), max_size=20))
def test_many_small_steps_come_to_the_same_as_a_large_one(
    profile: Profile, cuts: list[float]
) -> None:
    whole, parts = training(profile), training(profile)
    for run in (whole, parts):
        run.train_on(members(2))
        run.hear(FIT)
    whole.advance(300.0)
    for cut in [*sorted(cuts), 300.0]:
        parts.advance(cut)
    assert parts.progress_examples == pytest.approx(whole.progress_examples, rel=1e-9)
    assert [span.batch for span in parts.spans] == [span.batch for span in whole.spans]


def test_a_batch_can_be_as_large_as_the_devices_bear(profile: Profile) -> None:
    """Use two slow machines of two devices, 64 examples each; the run's largest batch is 256."""
    settings = replace(SETTINGS, fills_batch=True)
    for machines, batch in ((1, 128), (2, 256), (3, 256)):
        run = Training(profile, BOUNDS, settings, 0.0)
        run.train_on(members(machines))
        run.advance(30.0)
        last = run.spans[-1].batch
        assert last is not None
        assert (last.total, last.accumulation) == (batch, 0)


def test_the_metric_of_every_epoch_that_is_over_is_told(profile: Profile) -> None:
    run = training(profile)
    run.train_on(members(2))
    run.advance(300.0)
    qualities = run.report().quality
    ends = profile.epoch_end_examples
    assert 0 < len(qualities) < len(ends)
    assert [quality.progress_examples for quality in qualities] == list(ends[: len(qualities)])
    assert {quality.metric for quality in qualities} == {0.5}


def test_a_job_in_a_crowd_is_slower_and_says_so_unless_it_is_to_be_untold(
    profile: Profile,
) -> None:
    reports = []
    for is_crowded, untold in ((False, False), (True, False), (True, True)):
        quirks = Quirks(interference_untold=untold)
        settings = replace(SETTINGS, interference=0.5, quirks=quirks)
        run = Training(profile, BOUNDS, settings, 0.0)
        run.train_on(members(2))
        run.is_crowded = is_crowded
        run.advance(105.0)
        reports.append((run.progress_examples, run.report().observations[0].step_seconds))
    alone, crowded, silent = reports
    assert crowded[0] == silent[0] == pytest.approx(alone[0] / 2)
    assert crowded[1] == pytest.approx(2 * alone[1])
    assert silent[1] == alone[1]


def test_a_change_of_members_holds_training_up_once(profile: Profile) -> None:
    run = training(profile)
    run.advance(10.0)
    assert run.progress_examples == 0, "without members nothing is learnt"
    run.train_on(members(1))
    run.train_on(())
    run.train_on(members(2))
    assert run.starts == 1, "what lasted no time was no start"
    run.advance(14.0)
    assert run.progress_examples == 0
    run.advance(20.0)
    assert run.progress_examples > 0
    run.train_on(members(2))
    assert run.starts == 1
    run.train_on(members(1))
    assert run.starts == 2
    assert [pause.kind for pause in run.report().pauses] == ["drain"]


def test_progress_is_what_the_spans_say(profile: Profile) -> None:
    run = training(profile, requested_batch=32)
    run.train_on(members(2))
    run.advance(80.0)
    (held_up, stretch) = run.spans
    assert (held_up.batch, stretch.from_seconds, stretch.to_seconds) == (None, 5.0, 80.0)
    assert stretch.batch is not None and stretch.batch.total == 32
    step_seconds, _ = run.step_seconds(stretch.batch)
    useful = 32 * profile.efficiency(0.0, 32)
    assert run.progress_examples == pytest.approx(75.0 / step_seconds * useful)


def test_the_end_is_foretold_as_it_comes(profile: Profile) -> None:
    run = training(profile)
    run.train_on(members(4, "fast"))
    run.hear(FIT)
    end = run.completes_before(1e6)
    assert end is not None and not run.is_complete
    assert run.completes_before(end - 1.0) is None
    run.advance(end)
    assert run.is_complete
    assert run.progress_examples == pytest.approx(profile.total_examples)


def test_the_batch_grows_with_the_noise_once_the_fit_is_known(profile: Profile) -> None:
    run = training(profile)
    run.train_on(members(4))
    run.advance(50.0)
    assert run.report().batch.total == BOUNDS.initial
    run.hear(FIT)
    run.advance(60.0)
    early = run.report().batch.total
    assert early > BOUNDS.initial
    end = run.completes_before(1e6)
    assert end is not None
    run.advance(end - 1.0)
    assert run.report().batch.total > early


def test_what_is_told_is_what_was_not_told_before(profile: Profile) -> None:
    run = training(profile)
    run.train_on(members(2))
    run.advance(65.0)
    (observation,) = run.report().observations
    step_seconds, sync_seconds = run.step_seconds(run.report().batch)
    assert (observation.instances, observation.devices) == (2, 4)
    assert observation.step_seconds == pytest.approx(step_seconds)
    assert observation.sync_seconds == pytest.approx(sync_seconds)
    assert observation.steps == pytest.approx(60.0 / step_seconds, abs=1)
    assert run.report().observations == ()


def test_errors_of_measurement_follow_the_seed(profile: Profile) -> None:
    reports = []
    for seed in (1, 1, 2):
        settings = replace(SETTINGS, step_error=0.1, noise_error=0.1, seed=seed)
        run = Training(profile, BOUNDS, settings, 0.0)
        run.train_on(members(1))
        run.advance(60.0)
        reports.append(run.report())
    assert reports[0] == reports[1] != reports[2]


def test_kinds_that_train_together_go_at_the_slower_pace(profile: Profile) -> None:
    alone, mixed = training(profile), training(profile)
    alone.train_on(members(1))
    mixed.train_on((*members(1), Member("j0", "fast", "fast", "fast", 2)))
    batch = alone.report().batch
    assert mixed.step_seconds(batch) == alone.step_seconds(batch)


def test_sizes_of_a_kind_that_were_not_measured_together_go_at_the_slower_pace(
    profile: Profile,
) -> None:
    alone, mixed = training(profile), training(profile)
    alone.train_on(members(4))
    single = tuple(Member(f"j{number}", "one", "slow", "slow", 1) for number in range(2))
    mixed.train_on((*members(4), *single))
    batch = Batch(total=64, device=8, accumulation=0)
    assert mixed.step_seconds(batch) == alone.step_seconds(batch)
    endless = training(profile)
    endless.train_on(members(9))
    with pytest.raises(Unprofiled):
        endless.step_seconds(batch)


def test_the_truth_is_that_of_the_requested_batch(profile: Profile, tmp_path: Path) -> None:
    run = training(profile, requested_batch=64)
    slow, fast = (MachineKind(kind, kind, devices=2) for kind in ("slow", "fast"))
    truth = run.truth([slow], most_devices=8)
    assert sorted(truth.step_seconds) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert truth.step_seconds[8] < truth.step_seconds[2] < truth.step_seconds[1]
    run.train_on(members(4))
    run.advance(5.0 + 100 * truth.step_seconds[8])
    assert run.truth([slow], 8).remaining_steps == pytest.approx(truth.remaining_steps - 100)
    both = training(profile, requested_batch=64).truth([fast, slow], 8)
    assert both.step_seconds_on("slow") == truth.step_seconds == truth.step_seconds_on("slow")
    assert both.step_seconds_on("fast")[2] < truth.step_seconds[2]
    assert both.step_seconds_on("other") == {}


def test_a_kind_of_device_takes_as_many_examples_as_it_bears(profile: Profile) -> None:
    bounds = replace(BOUNDS, device_maximum=16, kind_maxima=(("fast", 64),))
    batches = {}
    for kind in ("slow", "fast"):
        run = Training(profile, bounds, SETTINGS, 0.0, requested_batch=128)
        run.train_on(members(1, kind))
        batches[kind] = run.report().batch
        truth = run.truth([MachineKind(kind, kind, 2)], 2)
        assert truth.step_seconds[2] == pytest.approx(run.step_seconds(batches[kind])[0])
    assert batches == {"slow": Batch(128, 16, 3), "fast": Batch(128, 64, 0)}
