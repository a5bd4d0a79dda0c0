"""A boot that is under way is finished: jobs that wait do not take turns at an instance."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.objective import Objective, Preference
from autoscaler.policies.marginal.policy import MarginalPolicy
from autoscaler.policies.registry import create_policy, policies
from tests.controller.few_devices import (
    START_SECONDS,
    Ended,
    FewDevices,
    Submitted,
    local_offers,
    machines,
)

OBJECTIVES = {
    "balanced": Objective(),
    "cheapest": Objective(preference=Preference.CHEAPEST),
    "budget": Objective(budget_usd=Decimal(5)),
    "deadline": Objective(deadline_seconds=START_SECONDS + 7200.0),
}


def run(jobs: list[Submitted], devices: int, boot_seconds: float) -> dict[str, Ended]:
    tick_seconds = max(1.0, boot_seconds / 20)
    world = FewDevices(MarginalPolicy(), local_offers(boot_seconds), devices, tick_seconds)
    return world.run(jobs, most_seconds=len(jobs) * (boot_seconds + 30.0))


@pytest.mark.parametrize("gap_seconds", [0.0, 1.5])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_six_equal_scripts_on_two_devices_end_in_their_order_with_a_launch_each(
    objective: str, gap_seconds: float
) -> None:
    jobs = [
        Submitted(f"job-{number}", gap_seconds * number, objective=OBJECTIVES[objective])
        for number in range(6)
    ]
    ended = run(jobs, devices=2, boot_seconds=15.0)
    assert [ended[job.name].launches for job in jobs] == [1] * 6
    ends = [ended[job.name].after_seconds for job in jobs]
    assert ends == sorted(ends)
    assert ends[-1] < 3 * (15.0 + 12.0 + 3.0)


@pytest.mark.parametrize(("count", "boot_seconds"), [(10, 0.1), (18, 15.0), (10, 600.0)])
def test_scripts_that_arrive_while_others_boot_wait_for_their_turn(
    count: int, boot_seconds: float
) -> None:
    jobs = [Submitted(f"job-{number}", 0.7 * number) for number in range(count)]
    ended = run(jobs, devices=2, boot_seconds=boot_seconds)
    assert [ended[job.name].launches for job in jobs] == [1] * count


@pytest.mark.parametrize("boot_seconds", [0.1, 15.0])
def test_jobs_that_wait_do_not_outbid_those_that_train_by_their_waiting(
    boot_seconds: float,
) -> None:
    cheapest, phase = OBJECTIVES["cheapest"], InstancePhase.TRAINING
    jobs = [
        Submitted(f"job-{number}", 1.3 * number, 400.0, cheapest, phase=phase)
        for number in range(4)
    ]
    world = FewDevices(MarginalPolicy(), local_offers(boot_seconds), 2, tick_seconds=5.0)
    ended = world.run(jobs, most_seconds=2000.0)
    assert [ended[job.name].launches for job in jobs] == [1] * 4


def test_a_deadline_takes_the_place_of_a_boot_that_may_be_made_later() -> None:
    urgent = Objective(deadline_seconds=START_SECONDS + 100.0)
    jobs = [Submitted("patient"), Submitted("urgent", 5.0, objective=urgent)]
    ended = run(jobs, devices=1, boot_seconds=60.0)
    assert ended["urgent"].after_seconds < 5.0 + 60.0 + 12.0 + 10.0
    assert ended["patient"].launches == 2


def grounds() -> list[tuple[str, bool]]:
    """Return every policy that is to be had, on bought instances and on shared machines."""
    found = []
    for listing in policies():
        only_on = getattr(create_policy(listing.name), "only_on", None)
        found += [(listing.name, False)] if only_on != "pool" else []
        found += [(listing.name, True)] if only_on != "cloud" else []
    return found


@pytest.mark.parametrize(("name", "is_pool"), grounds())
@given(
    count=st.integers(2, 6),
    devices=st.integers(1, 2),
    boot_seconds=st.sampled_from([0.1, 4.0, 15.0, 60.0, 600.0]),
    gap_seconds=st.sampled_from([0.0, 0.7, 20.0]),
    trains=st.booleans(),
)
@example(count=5, devices=2, boot_seconds=60.0, gap_seconds=0.0, trains=True)
@example(count=6, devices=2, boot_seconds=15.0, gap_seconds=0.7, trains=False)
@settings(
    deadline=None,
    max_examples=2,
    suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
)
def test_no_policy_takes_a_boot_from_a_job_without_a_cause(
    name: str,
    is_pool: bool,
    count: int,
    devices: int,
    boot_seconds: float,
    gap_seconds: float,
    trains: bool,
) -> None:
    phase = InstancePhase.TRAINING if trains else InstancePhase.STARTING
    jobs = [
        Submitted(f"job-{number}", gap_seconds * number, maximum=1, phase=phase)
        for number in range(count)
    ]
    offers = machines(devices, boot_seconds) if is_pool else local_offers(boot_seconds)
    tick_seconds = max(1.0, boot_seconds / 20)
    world = FewDevices(create_policy(name), offers, devices, tick_seconds)
    ended = world.run(jobs, most_seconds=4 * count * (boot_seconds + 40.0))
    assert ended.keys() == {job.name for job in jobs}
    causes, uncaused = world.cause_moments(), 0
    for held in world.lost_boots():
        over_seconds = held.draining_seconds or 0.0
        if any(held.requested_seconds <= moment <= over_seconds for moment in causes):
            continue
        uncaused += 1
        assert held.training_seconds is not None, f"{held.id} was given up while it started"
        start_seconds = held.training_seconds - held.requested_seconds
        assert over_seconds - held.training_seconds >= start_seconds - 1e-6
    launches = sum(each.launches for each in ended.values())
    assert launches <= count + len(causes) * devices + uncaused
    if name == "marginal" and not is_pool:
        assert launches == count
        ends = [ended[job.name].after_seconds for job in jobs]
        assert ends == sorted(ends)
