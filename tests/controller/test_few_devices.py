"""A boot that is under way is finished: jobs that wait do not take turns at an instance."""

from __future__ import annotations

from decimal import Decimal

import pytest

from autoscaler.domain.objective import Objective, Preference
from autoscaler.policies.marginal import MarginalPolicy
from tests.controller.few_devices import START_SECONDS, Ended, FewDevices, Submitted, local_offers

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


@pytest.mark.parametrize("boot_seconds", [0.1, 15.0, 600.0])
def test_scripts_that_arrive_while_others_boot_wait_for_their_turn(boot_seconds: float) -> None:
    jobs = [Submitted(f"job-{number}", 0.7 * number) for number in range(18)]
    ended = run(jobs, devices=2, boot_seconds=boot_seconds)
    assert [ended[job.name].launches for job in jobs] == [1] * 18


def test_a_deadline_takes_the_place_of_a_boot_that_may_be_made_later() -> None:
    urgent = Objective(deadline_seconds=START_SECONDS + 100.0)
    jobs = [Submitted("patient"), Submitted("urgent", 5.0, objective=urgent)]
    ended = run(jobs, devices=1, boot_seconds=60.0)
    assert ended["urgent"].after_seconds < 5.0 + 60.0 + 12.0 + 10.0
    assert ended["patient"].launches == 2
