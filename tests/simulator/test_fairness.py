from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.domain.goodput import BatchBounds
from autoscaler.simulator.fairness import (
    fairness_ratio,
    mean_active_jobs,
    share_above,
    worst,
)
from autoscaler.simulator.profiles.profiles import Profile
from autoscaler.simulator.training.exclusive import RigidRequest, exclusive_seconds
from autoscaler.simulator.training.profiled import TrainingSettings
from tests.simulator import toy


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    directory: Path = tmp_path_factory.mktemp("profiles")
    return toy.profiles(directory)[toy.APPLICATION]


def test_jobs_are_counted_for_as_long_as_they_are_there() -> None:
    active = mean_active_jobs([0.0, 0.0, 20.0], [10.0, 5.0, 30.0])
    assert active.tolist() == [1.5, 2.0, 1.0]


@pytest.mark.parametrize(
    ("jobs", "devices", "rho"), [(8, 4, 1.0), (2, 4, 2.0), (8, None, 2.0), (4, 4, 2.0)]
)
def test_waiting_is_fair_as_far_as_jobs_outnumber_devices(
    jobs: int, devices: int | None, rho: float
) -> None:
    assert fairness_ratio(200.0, 100.0, jobs, devices) == rho


def test_what_is_not_known_does_not_count() -> None:
    assert fairness_ratio(200.0, None, 1, 1) is None
    ratios = [None, 1.0, 1.2]
    assert worst(ratios) == 1.2
    assert share_above(ratios, 1.05) == 0.5
    assert worst([None]) is None
    assert share_above([None], 1.05) is None


BOUNDS = BatchBounds(toy.INITIAL_BATCH, toy.MAXIMUM_BATCH, max(toy.DEVICE_BATCHES), True)


def alone(profile: Profile, devices: int, *kinds: str, pause: float = 0.0) -> float | None:
    request = RigidRequest(devices, toy.INITIAL_BATCH, BOUNDS)
    machines = toy.equipment(*(toy.offer(kind) for kind in kinds))
    return exclusive_seconds(profile, request, machines, TrainingSettings(pause_seconds=pause))


def test_alone_a_job_takes_its_steps_at_the_measured_pace(profile: Profile) -> None:
    steps = toy.EPOCHS * toy.EPOCH_STEPS
    step_seconds = 0.02 + toy.INITIAL_BATCH * toy.SPEED["slow"] + 0.01 * toy.SYNC_SECONDS
    assert alone(profile, 1, "slow", pause=7.0) == pytest.approx(steps * step_seconds + 7.0)
    seconds_on_two, seconds_on_one = alone(profile, 2, "slow"), alone(profile, 1, "slow")
    assert (
        seconds_on_two is not None
        and seconds_on_one is not None
        and seconds_on_two < seconds_on_one
    )


def test_what_can_be_bought_is_the_fastest_kind(profile: Profile) -> None:
    assert alone(profile, 1, "slow", "fast") == alone(profile, 1, "fast")


def test_what_one_kind_bears_bounds_no_other(profile: Profile) -> None:
    unlike = replace(BOUNDS, device_maximum=4, kind_maxima=(("fast", 64),))
    seconds = []
    for bounds in (BOUNDS, unlike, replace(unlike, kind_maxima=())):
        request = RigidRequest(1, toy.INITIAL_BATCH, bounds)
        machines = toy.equipment(toy.offer("fast"))
        seconds.append(exclusive_seconds(profile, request, machines, TrainingSettings()))
    free, with_kind_maxima, bounded = seconds
    assert with_kind_maxima == free
    assert bounded is not None and free is not None and bounded > free


def test_more_devices_than_were_profiled_are_as_many_as_were(profile: Profile) -> None:
    assert alone(profile, 16, "slow") == alone(profile, 10, "slow") is not None


def test_a_kind_that_was_not_profiled_leaves_it_open(profile: Profile) -> None:
    machines = {"x": toy.equipment(toy.offer("slow"))["slow-on-demand"]}
    unknown = {name: type(machine)(machine.offer, "unheard") for name, machine in machines.items()}
    request = RigidRequest(1, 16, BOUNDS)
    assert exclusive_seconds(profile, request, unknown, TrainingSettings()) is None
