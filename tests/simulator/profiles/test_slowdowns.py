from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.goodput import Batch, BatchBounds
from autoscaler.simulator.profiles.profiles import Profile
from autoscaler.simulator.profiles.slowdowns import Slowdown, slowed
from autoscaler.simulator.training.base import Member
from autoscaler.simulator.training.profiled import Training, TrainingSettings
from tests.simulator import toy

BOUNDS = BatchBounds(toy.INITIAL_BATCH, toy.INITIAL_BATCH, 64, adaptive=False)


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    return toy.profiles(tmp_path_factory.mktemp("profiles"))[toy.APPLICATION]


def members(count: int) -> tuple[Member, ...]:
    return tuple(Member(f"i{number}", "slow", "slow", "slow", 2) for number in range(count))


def training(profile: Profile, settings: TrainingSettings, submitted: float = 0.0) -> Training:
    run = Training(profile, BOUNDS, settings, submitted)
    run.train_on(members(1))
    return run


def test_a_cliff_slows_the_sizes_from_its_number_of_nodes_on(profile: Profile) -> None:
    cliff = slowed(profile, (Slowdown("slow", 3.0, least_nodes=2),), 0.0)
    for placement, factor in (((2,), 1.0), ((2, 2), 3.0), ((2, 2, 2), 3.0)):
        times = profile.step_times("slow", placement, 16)
        slow = cliff.step_times("slow", placement, 16)
        assert slow.step_seconds == pytest.approx(factor * times.step_seconds)
        assert slow.sync_seconds == pytest.approx(factor * times.sync_seconds)
    assert cliff.step_times("fast", (2, 2), 16) == profile.step_times("fast", (2, 2), 16)


def test_a_size_that_was_not_profiled_is_slowed_as_a_whole(profile: Profile) -> None:
    """Slow the size itself, not the mean of a slowed and another neighbour."""
    sparse = replace(
        profile,
        steps={
            kind: replace(
                steps,
                placements={},
                sizes={size: table for size, table in steps.sizes.items() if size[0] != 3},
            )
            for kind, steps in profile.steps.items()
        },
    )
    cliff = slowed(sparse, (Slowdown("slow", 10.0, least_nodes=3),), 0.0)
    between = sparse.step_times("slow", (2, 2, 2), 16).step_seconds
    assert cliff.step_times("slow", (2, 2, 2), 16).step_seconds == pytest.approx(10 * between)


def test_a_drift_begins_so_long_after_the_submission(profile: Profile) -> None:
    drift = Slowdown("slow", 3.0, most_nodes=1, from_seconds=100.0)
    settings = TrainingSettings(pause_seconds=0.0, slowdowns=(drift,))
    run = training(profile, settings, submitted=50.0)
    run.advance(150.0)
    before = run.progress_examples
    run.advance(250.0)
    assert before / 100.0 == pytest.approx(3 * (run.progress_examples - before) / 100.0)


def test_a_report_separates_the_steps_before_a_drift_from_those_after(profile: Profile) -> None:
    drift = Slowdown("slow", 3.0, from_seconds=30.0)
    run = training(profile, TrainingSettings(pause_seconds=0.0, slowdowns=(drift,)))
    run.advance(90.0)
    before, after = run.report().observations
    step_seconds = run.step_seconds(Batch(16, 8, 0))[0]
    assert before.step_seconds == pytest.approx(step_seconds)
    assert after.step_seconds == pytest.approx(3 * step_seconds)
    assert before.steps * before.step_seconds == pytest.approx(30.0, rel=0.05)
    assert after.steps * after.step_seconds == pytest.approx(60.0, rel=0.05)


def test_reported_noise_may_be_wrong_by_a_factor(profile: Profile) -> None:
    reports = []
    for factor in (1.0, 4.0):
        run = training(profile, TrainingSettings(pause_seconds=0.0, noise_factor=factor))
        run.advance(10.0)
        reports.append(run.report())
    true, wrong = (report.noise for report in reports)
    assert true is not None and wrong is not None
    assert wrong.examples == pytest.approx(4 * true.examples)
    assert reports[0].progress_examples == reports[1].progress_examples
