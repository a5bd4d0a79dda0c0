"""Jobs with offers that have a queue: waiting orders cost nothing and are cancelled in the end."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from decimal import Decimal

import pytest

from autoscaler.domain.objective import Objective, Preference
from autoscaler.domain.offer import Purchase
from autoscaler.simulator.profiles.profiles import Profile
from providers.simulated.capacity import CapacityTrace
from providers.simulated.settings import SimulatedSettings
from tests.simulator import toy
from tests.simulator.test_simulation import ARRIVALS, Trial

SURE = toy.offer("slow")
FLEX = replace(
    toy.offer("slow", Purchase.FLEX_START), usd_per_hour=Decimal("0.66"), fill_seconds=600.0
)
GAP_SECONDS = 600.0


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Profile]:
    return toy.profiles(tmp_path_factory.mktemp("profiles"))


def beside_a_queue(
    profiles: dict[str, Profile],
    *counts: int,
    preference: Preference = Preference.BALANCED,
    jobs: int = 1,
) -> tuple[list[float], Counter[tuple[str, bool]]]:
    """Return the jobs' durations, and orders by offer with whether they got capacity.

    The queue fills as many orders as `counts` has for each ten minutes.
    """
    settings = SimulatedSettings(
        offers=(SURE, FLEX), capacity={FLEX.id: CapacityTrace(GAP_SECONDS, counts)}
    )
    trial = Trial(
        profiles,
        *settings.offers,
        objective=Objective(preference),
        arrivals=ARRIVALS[:jobs],
        settings=settings,
    )
    result = trial.run()
    assert trial.store.instances.alive() == ()
    assert result.totals.cost_usd == pytest.approx(float(trial.cloud.billed_usd()), abs=1e-9)
    orders = Counter(
        (held.offer, held.launched_seconds is not None)
        for job in trial.store.jobs.all()
        for held in trial.store.instances.of_job(job.id, include_ended=True)
    )
    return [job.finished_s - job.submitted_s for job in result.jobs], orders


def test_what_is_cheap_is_waited_for_and_ordered_once(profiles: dict[str, Profile]) -> None:
    (seconds,), orders = beside_a_queue(profiles, 0, *[4] * 20)
    assert seconds > GAP_SECONDS
    assert orders == {(FLEX.id, True): 1}


def test_a_queue_that_gives_nothing_is_left_once(profiles: dict[str, Profile]) -> None:
    (seconds,), orders = beside_a_queue(profiles, 0)
    assert 1000.0 < seconds < 4000.0
    assert orders == {(FLEX.id, False): 1, (SURE.id, True): 1}


def test_what_one_job_has_waited_in_vain_the_next_need_not(profiles: dict[str, Profile]) -> None:
    seconds, orders = beside_a_queue(profiles, 0, jobs=4)
    assert seconds == sorted(seconds, reverse=True)
    assert orders[SURE.id, True] == 4
    assert orders[FLEX.id, False] <= 4


def test_who_is_in_no_hurry_waits_for_hours(profiles: dict[str, Profile]) -> None:
    (seconds,), orders = beside_a_queue(
        profiles, *[0] * 18, *[4] * 60, preference=Preference.CHEAPEST
    )
    assert seconds > 3 * 3600.0
    assert orders == {(FLEX.id, True): 1}


def test_who_is_in_a_hurry_does_not_wait(profiles: dict[str, Profile]) -> None:
    (seconds,), orders = beside_a_queue(profiles, 0, *[4] * 20, preference=Preference.FASTEST)
    assert seconds < GAP_SECONDS
    assert orders[FLEX.id, True] == 0
