from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import AfterDeadline, Objective, Preference
from autoscaler.domain.plan import CHANCE_FIGURE, LATE_FIGURE, NEEDED_FIGURE
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.choice.requirements import Requirement, affordable, requirement
from autoscaler.economics.pricing.objectives import price_range
from autoscaler.economics.supply.supply import supply_of
from tests.economics.cases import LARGE, NOW, SMALL, job, model, offer, snapshot
from tests.economics.choice.test_switching import ground_of

ONE = Allocation("local-small", 1, 1)


def aim_of(job_snapshot: JobSnapshot, moment: Snapshot | None = None) -> Requirement:
    moment = moment or snapshot(job_snapshot, offers=(SMALL,), replan_seconds=5.0)
    supply = supply_of(moment)
    at = ground_of(job_snapshot, moment)
    every = replace(at.candidates, allowed=affordable(job_snapshot, supply, at.candidates))
    return requirement(
        job_snapshot, replace(at, candidates=every), supply, price_range(job_snapshot, supply)
    )


def with_deadline(seconds: float, **changes: object) -> JobSnapshot:
    wants = Objective(deadline_seconds=NOW + seconds)
    return job(held=ONE, objective=replace(wants, **changes))  # type: ignore[arg-type]


def with_budget(usd: str, spent: float = 0.01) -> JobSnapshot:
    return job(held=ONE, objective=Objective(budget_usd=Decimal(usd)), spent_usd=spent)


def test_without_deadline_or_budget_the_preference_decides() -> None:
    job_snapshot = job(objective=Objective(Preference.FASTEST))
    requirements = aim_of(job_snapshot)
    assert requirements == Requirement(pytest.approx(10 * 0.40 / 3600))


def test_a_deadline_that_the_cheapest_keeps_bids_nothing() -> None:
    requirements = aim_of(with_deadline(200.0))
    assert requirements.stages is not None
    assert requirements.value_of_time == 0.0
    assert requirements.note == "deadline in 200 s kept in 100 % of cases"
    assert requirements.outlook.figures() == {CHANCE_FIGURE: 1.0}
    assert requirements.least_bid * 3600 == pytest.approx(4.0)


def test_a_deadline_is_kept_with_a_margin_where_there_is_time_for_one() -> None:
    # After a boot of 6 s, two instances process 178 examples a second: 52.6 s at best.
    for seconds, margin_seconds in ((80.0, 5.0), (60.0, 5.0), (54.0, 0.0)):
        job_snapshot = job(
            held=ONE,
            instances=InstanceBounds(1, 2),
            objective=Objective(deadline_seconds=NOW + seconds),
        )
        stages = aim_of(job_snapshot).stages
        assert stages is not None
        assert stages.seconds <= seconds - margin_seconds + 1e-6


def test_a_tighter_deadline_bids_more() -> None:
    bids = [aim_of(with_deadline(seconds)).value_of_time for seconds in (95.0, 80.0, 55.0, 40.0)]
    assert bids == sorted(bids)
    assert bids[0] == 0.0
    assert bids[-1] > bids[1] > 0.0


def test_a_sequence_bids_what_makes_its_two_allocations_alike() -> None:
    requirements = aim_of(with_deadline(80.0))
    assert requirements.stages is not None
    every = ground_of(job(held=ONE), snapshot(offers=(SMALL,))).candidates
    prices = [
        (every.usd_per_second[i] + requirements.value_of_time) / every.rate[i]
        for i in (requirements.stages.first, requirements.stages.then)
    ]
    assert prices[0] == pytest.approx(prices[1])


def test_out_of_reach_says_by_how_much_and_goes_on_as_stated() -> None:
    requirements = aim_of(with_deadline(15.0))
    assert requirements.stages is None
    assert requirements.value_of_time * 3600 == pytest.approx(0.10)
    assert requirements.note == "deadline out of reach: 19 s late at best at 90 %, now balanced"
    assert requirements.outlook.figures() == {LATE_FIGURE: pytest.approx(19, abs=0.5)}
    requirements = aim_of(with_deadline(15.0, after_deadline=AfterDeadline.FASTEST))
    assert requirements.value_of_time * 3600 == pytest.approx(4.0)
    requirements = aim_of(with_deadline(15.0, after_deadline=AfterDeadline.STOP))
    assert requirements.stop == (
        "deadline out of reach: 19 s late at best at 90 %, and after_deadline is stop"
    )


def test_a_deadline_that_has_passed() -> None:
    requirements = aim_of(with_deadline(-300.0))
    assert (requirements.note, requirements.stop) == (
        "deadline missed by 5 min, now balanced",
        None,
    )
    requirements = aim_of(with_deadline(-300.0, after_deadline=AfterDeadline.STOP))
    assert requirements.stop == "deadline missed by 5 min, and after_deadline is stop"


def test_a_late_job_with_a_budget_and_nothing_to_buy_goes_on_waiting() -> None:
    late = with_deadline(-300.0, budget_usd=Decimal(1))
    job_snapshot = replace(late, held=None, trained=None)
    moment = snapshot(job_snapshot, offers=(SMALL,), unavailable=frozenset({"local-small"}))
    assert aim_of(job_snapshot, moment).note == "deadline missed by 5 min, now balanced"
    assert aim_of(job_snapshot, moment).outlook.figures() == {LATE_FIGURE: pytest.approx(300)}


def test_nothing_is_out_of_reach_before_it_is_measured() -> None:
    unmeasured = replace(
        with_deadline(15.0, after_deadline=AfterDeadline.STOP),
        models={"core": model(measured=())},
    )
    requirements = aim_of(unmeasured)
    assert (requirements.stages, requirements.stop) == (None, None)
    assert requirements.note == "deadline and budget can't be judged before it is measured"
    endless = replace(with_deadline(200.0), remaining_examples=None)
    assert aim_of(endless).note == "deadline and budget can't be judged before it is measured"


def test_a_budget_buys_the_fastest_that_fits_and_its_bid_grows_with_it() -> None:
    requirements = [aim_of(with_budget(usd)) for usd in ("0.0145", "0.0155", "0.0165", "0.0200")]
    bids = [requirement.value_of_time for requirement in requirements]
    assert all(requirement.stages is not None for requirement in requirements)
    assert bids == sorted(bids)
    assert bids[-1] * 3600 == pytest.approx(4.0)
    assert requirements[0].note == "budget $0.0145 kept in 100 % of cases"


def test_a_budget_that_is_too_small_goes_as_far_as_it_can() -> None:
    requirements = aim_of(with_budget("0.0130"))
    assert (requirements.value_of_time, requirements.stages, requirements.stop) == (
        0.0,
        None,
        None,
    )
    assert requirements.note == (
        "budget $0.013 out of reach: $0.0133 needed at 90 %, "
        "so it is spent at the least $ per progress"
    )
    assert requirements.outlook.figures() == {NEEDED_FIGURE: pytest.approx(0.0133, abs=5e-5)}


def test_a_job_ends_before_its_budget_is_passed() -> None:
    # Until the next plan and a checkpoint, 35 s, the cheapest costs $0.00097.
    assert aim_of(with_budget("0.0110")).stop is None
    requirements = aim_of(with_budget("0.0109"))
    assert (
        requirements.stop
        == "budget $0.0109: $0.01 spent, the rest is reserved for its last checkpoint"
    )


@pytest.mark.parametrize(
    ("left_usd", "unavailable", "stops"),
    [
        # Until the next plan and a checkpoint, 41 s, the plain price of spot is $0.00114. Expected
        # reclaims add 0.5 %.
        (0.00113, (), True),
        (0.001141, (), True),
        (0.00116, (), False),
        (0.001141, ("local-small",), True),
        (0.00116, ("local-small",), False),
    ],
)
def test_a_job_stops_exactly_if_its_budget_pays_for_no_size(
    left_usd: float, unavailable: tuple[str, ...], stops: bool
) -> None:
    spot = offer("local-small", "0.10", reclaims_per_hour=3.0)
    waiting = replace(with_budget("0.02", 0.02 - left_usd), held=None, trained=None)
    moment = snapshot(
        waiting, offers=(spot,), replan_seconds=5.0, unavailable=frozenset(unavailable)
    )
    paid = affordable(waiting, supply_of(moment), ground_of(waiting, moment).candidates)
    assert paid.any() == (not stops and not unavailable)
    assert (aim_of(waiting, moment).stop is not None) == stops


def test_a_job_that_no_offer_can_hold_waits_until_its_budget_is_spent() -> None:
    for spent_usd, stops in ((0.0199, False), (0.02, True)):
        waiting = replace(with_budget("0.02", spent_usd), held=None, trained=None)
        foreign = replace(SMALL, device_kind="other")
        moment = snapshot(waiting, offers=(foreign,), replan_seconds=5.0)
        assert (aim_of(waiting, moment).stop is not None) == stops


def test_what_the_rest_of_the_budget_does_not_pay_until_the_next_plan_is_not_allowed() -> None:
    job_snapshot = with_budget("0.0125")
    moment = snapshot(job_snapshot, offers=(SMALL, LARGE), replan_seconds=5.0)
    every = ground_of(job_snapshot, moment).candidates
    paid = affordable(job_snapshot, supply_of(moment), every)
    # $0.0025 pays for 90 s at $0.10/h: two instances for 41 s, three for 30 s.
    names = [str(every.allocation(i)) for i in range(len(every)) if paid[i]]
    assert names == ["1 x local-large", "1 x local-large", "1 x local-small", "2 x local-small"]
    dear = replace(SMALL, minimum_billed_seconds=3600)
    moment = snapshot(job_snapshot, offers=(dear,), replan_seconds=5.0)
    paid = affordable(job_snapshot, supply_of(moment), ground_of(job_snapshot, moment).candidates)
    assert paid.tolist() == [True, False, False, False]


def test_waiting_for_capacity_is_not_billed() -> None:
    waits = replace(SMALL, fill_seconds=7200.0)
    starting = replace(with_budget("0.0125"), held=None, trained=None)
    for job_snapshot in (with_budget("0.0125"), starting):
        now, later = (
            snapshot(job_snapshot, offers=(only_offer,), replan_seconds=5.0)
            for only_offer in (SMALL, waits)
        )
        paid = affordable(job_snapshot, supply_of(now), ground_of(job_snapshot, now).candidates)
        paid_later = affordable(
            job_snapshot, supply_of(later), ground_of(job_snapshot, later).candidates
        )
        assert paid_later.tolist() == paid.tolist()
        assert paid.any()
        assert aim_of(job_snapshot, later).stop is None


def test_a_deadline_within_a_budget() -> None:
    both = with_deadline(60.0, budget_usd=Decimal("0.02"))
    requirements = aim_of(both)
    assert requirements.note == "deadline in 60 s and budget $0.02 kept in 100 % of cases"
    poor = with_deadline(60.0, budget_usd=Decimal("0.0135"))
    requirements = aim_of(poor)
    assert requirements.stages is not None
    assert requirements.note == (
        "deadline out of reach within the budget: each can be kept at 90 %, but not both; "
        "budget $0.0135 kept in 100 % of cases"
    )
    assert requirements.outlook.figures() == {LATE_FIGURE: 0.0}
    poorer = with_deadline(60.0, budget_usd=Decimal("0.0125"))
    note = aim_of(poorer).note
    assert note is not None
    assert aim_of(poorer).outlook.figures().keys() == {LATE_FIGURE, NEEDED_FIGURE}
    assert "so the deadline is given up" in note
