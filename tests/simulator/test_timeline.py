"""Progress and cost recomputed from a timeline, by profiles and prices alone."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from autoscaler.domain.objective import AfterDeadline, Objective, Preference
from autoscaler.domain.offer import Offer, Purchase
from autoscaler.simulator.profiles.profiles import Profile
from autoscaler.simulator.results import JobResult
from tests.simulator import toy
from tests.simulator.test_simulation import FAST, SLOW, SPOT, Trial, profiles, progress_of

__all__ = ["profiles"]

MINIMUM = replace(FAST, minimum_billed_seconds=60)
POOL = tuple(
    replace(
        toy.offer("slow"),
        id=f"node-{number}",
        purchase=Purchase.RESERVED,
        usd_per_hour=Decimal(0),
        boot_seconds=0.0,
        shared=True,
        devices=devices,
    )
    for number, devices in enumerate((2, 1, 2))
)


def cost_of(job: JobResult, usd_per_hour: dict[str, float]) -> float:
    """Return the cost of a job from its timeline: every instance of every entry, by the second."""
    return sum(
        (entry.to_s - entry.from_s) / 3600 * len(devices) * usd_per_hour[offer]
        for entry in job.timeline
        for offer, devices in entry.placement.items()
    )


@pytest.mark.parametrize("offers", [(SLOW, MINIMUM), (SPOT,)])
def test_every_bill_is_found_again(
    profiles: dict[str, Profile],
    offers: tuple[Offer, ...],
) -> None:
    objective = Objective(Preference.VALUE_OF_TIME, value_of_time_usd_per_hour=20.0)
    result = Trial(profiles, *offers, objective=objective).run()
    prices = {offer.id: float(offer.usd_per_hour) for offer in offers}
    for job in result.jobs:
        # Each instance's last second is billed in full.
        instances = 1 + sum(entry.gpus == 0 for entry in job.timeline)
        rounding = instances * 4 * max(prices.values()) / 3600
        assert job.cost_usd - rounding <= cost_of(job, prices) <= job.cost_usd + 1e-9
        assert job.timeline[0].gpus == 0, "what boots is paid for and not at work"
        for entry in job.timeline:
            assert entry.instances == sum(len(devices) for devices in entry.placement.values())
            assert entry.gpus == sum(sum(devices) for devices in entry.placement.values())
            assert entry.offer == "+".join(entry.placement)


def test_a_pool_tells_the_devices_on_each_machine(
    profiles: dict[str, Profile],
) -> None:
    result = Trial(profiles, *POOL, policy="pollux").run()
    kinds = {offer.id: offer.device_kind for offer in POOL}
    sizes = {offer.id: offer.devices for offer in POOL}
    for job in result.jobs:
        progress = progress_of(job, profiles[toy.APPLICATION], kinds)
        assert progress == pytest.approx(profiles[toy.APPLICATION].total_examples, rel=1e-6)
        for entry in job.timeline:
            assert entry.gpus > 0, "nobody is billed for machines that jobs share"
            assert all(sum(devices) <= sizes[node] for node, devices in entry.placement.items())


@pytest.mark.parametrize(
    ("objective", "why"),
    [
        (Objective(budget_usd=Decimal("0.05")), "budget"),
        (Objective(deadline_seconds=60.0, after_deadline=AfterDeadline.STOP), "deadline"),
    ],
)
def test_a_job_that_its_objective_ends_is_a_result(
    profiles: dict[str, Profile],
    objective: Objective,
    why: str,
) -> None:
    result = Trial(profiles, SLOW, objective=objective).run()
    assert result.totals.stopped == len(result.jobs)
    for job in result.jobs:
        assert job.stopped is not None and why in job.stopped
        assert job.deadline_s == objective.deadline_seconds
        if objective.budget_usd is not None:
            assert 0 < job.cost_usd <= float(objective.budget_usd)
