from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Limit, LimitUnit
from autoscaler.economics.studies.constraints import StudyConstraints
from autoscaler.economics.studies.rungs.future_costs import future_rung_costs
from autoscaler.economics.studies.rungs.rung import Rung, future_rungs
from autoscaler.economics.studies.rungs.rung_plan import plan_rung
from autoscaler.economics.studies.rungs.water_filling import water_fill
from autoscaler.economics.studies.speeds.trial_speeds import median_where_unmeasured
from autoscaler.economics.studies.study_plan import StudyPlan, TrialAction
from autoscaler.economics.studies.supply import StudySupply, TrialSwitching
from autoscaler.economics.studies.trial_state import FreedInstances, TrialState
from tests.economics.studies.cases import (
    DEVICES,
    USD_PER_SECOND,
    later,
    offer,
    rates,
    supply,
    trial,
)

works = st.lists(st.floats(100.0, 5000.0), min_size=1, max_size=5)


def within(hours: float, confidence: float = 0.9) -> StudyConstraints:
    return StudyConstraints(deadline_seconds=hours * 3600.0, confidence=confidence)


def sizes_of(plan: StudyPlan) -> list[int]:
    return [one.size.instances for one in plan.decisions]


def test_with_time_to_spare_all_trials_run_one_after_the_other_on_one_instance() -> None:
    """Save every boot, because nothing waits for a trial."""
    trials = tuple(trial(f"t{i}", 600.0) for i in range(4))
    plan = plan_rung(Rung(trials), supply(), within(100.0))
    actions = [one.action for one in plan.decisions]
    assert actions.count(TrialAction.START) == 1
    assert actions.count(TrialAction.WAIT) == 3
    assert plan.usd_per_second == 0.0


def test_the_slow_trial_gets_more_and_the_fast_one_less() -> None:
    trials = (trial("slow", 8000.0, held=0), trial("fast", 1000.0, held=0))
    plan = plan_rung(Rung(trials), supply(), within(1.0))
    assert sizes_of(plan)[0] > sizes_of(plan)[1] == 1
    assert plan.usd_per_second > 0
    assert plan.seconds.high <= 3600.0


def test_of_a_trial_that_is_done_its_instances_are_released() -> None:
    freed = (FreedInstances("gpu", 3),)
    plan = plan_rung(Rung((trial("rest", 5000.0, held=0),), freed), supply(), within(100.0))
    assert plan.standby is None
    assert sizes_of(plan) == [1]


def test_what_is_freed_is_taken_over_by_one_that_waits() -> None:
    rung = Rung((trial("waits", 1000.0),), (FreedInstances("gpu", 1),))
    (decision,) = plan_rung(rung, supply(), within(10.0)).decisions
    assert decision.action is TrialAction.TAKE_OVER
    assert decision.seconds.median == pytest.approx(1010.0)


def test_a_barrier_nearer_than_a_boot_keeps_what_the_next_rung_needs() -> None:
    rung = Rung(
        (trial("last", 60.0, held=0),),
        (FreedInstances("gpu", 3),),
        later(4000.0, trials=3),
    )
    plan = plan_rung(rung, supply(), within(1.3))
    assert plan.standby is not None
    assert 1 <= plan.standby.keep <= 3


def test_a_reserve_is_planned_with_and_not_said() -> None:
    rung = Rung((trial("t", 8000.0, held=0),))
    plan = plan_rung(rung, supply(), within(2.5), reserve=0.3)
    assert plan.seconds.high <= 0.7 * 2.5 * 3600.0
    assert sizes_of(plan) > sizes_of(plan_rung(rung, supply(), within(2.5)))
    late = plan_rung(rung, supply(), within(0.2), reserve=0.3)
    assert late.shortfall is not None
    assert "a deadline in 12 min: in reach is" in late.shortfall


def test_an_impossible_deadline_says_what_would_be_possible() -> None:
    rung = Rung((trial("t", 8000.0, held=0),), (), later(8000.0))
    plan = plan_rung(rung, supply(), within(0.2))
    assert plan.chance == 0.0
    assert plan.shortfall is not None
    assert "a deadline in 12 min: in reach is" in plan.shortfall


def test_a_budget_buys_as_much_time_as_it_can() -> None:
    rung = Rung((trial("t", 8000.0, held=0),), (), later(8000.0))
    cheap, dear = (
        plan_rung(rung, supply(), StudyConstraints(budget_usd=usd, confidence=0.9))
        for usd in (17.5, 25.0)
    )
    assert dear.seconds.median < cheap.seconds.median
    assert cheap.usd.high <= 17.5
    assert dear.usd.high <= 25.0


def test_a_budget_that_cannot_pay_says_so() -> None:
    rung = Rung((trial("t", 8000.0, held=0),))
    plan = plan_rung(rung, supply(), StudyConstraints(budget_usd=1.0))
    assert plan.shortfall is not None
    assert "a budget of $1: needed is $8" in plan.shortfall


def test_the_value_of_time_is_the_multiplier() -> None:
    rung = Rung((trial("t", 8000.0, held=0),))
    slow = plan_rung(rung, supply(), StudyConstraints(usd_per_second=0.0))
    fast = plan_rung(rung, supply(), StudyConstraints(usd_per_second=50.0 / 3600.0))
    assert slow.usd_per_second == 0.0
    assert fast.usd_per_second == pytest.approx(50.0 / 3600.0)
    assert sizes_of(slow) == [1]
    assert sizes_of(fast)[0] > 1


def test_instances_of_several_devices_are_paid_whole() -> None:
    nodes = StudySupply(
        (offer("node", devices=4),),
        (Allocation("node", 1, 1), Allocation("node", 1, 4)),
        TrialSwitching(60.0, 30.0, 10.0),
    )
    one = TrialState("t", 1000.0, np.array([[1.0, 3.0]]))
    (decision,) = plan_rung(Rung((one,)), nodes, within(100.0)).decisions
    assert decision.size.devices == 4


def test_a_billing_minimum_is_used_up_by_the_next_trial() -> None:
    """Two trials of a minute: the second costs nothing within the hour that is paid for."""
    terms = supply(minimum_billed_seconds=3600)
    plan = plan_rung(Rung((trial("a", 60.0), trial("b", 60.0))), terms, within(10.0))
    assert plan.usd.median == pytest.approx(3600 * USD_PER_SECOND)


def test_what_is_paid_for_is_kept_until_it_no_longer_is() -> None:
    rung = Rung((trial("t", 4000.0, held=0),), (FreedInstances("gpu", 2, 100.0),))
    kept = plan_rung(rung, supply(minimum_billed_seconds=3600), within(100.0))
    assert kept.standby is not None
    assert kept.standby.keep == 2
    assert "2 of them are paid for" in kept.standby.reason
    over = replace(rung, freed=(FreedInstances("gpu", 2),))
    assert plan_rung(over, supply(), within(100.0)).standby is None


def test_what_is_billed_at_least_makes_later_rungs_hold_fewer() -> None:
    """Five trials of a minute each: one instance after the other rather than five hours."""
    rungs = later(60.0, trials=5)
    hour = future_rung_costs(rungs, supply(minimum_billed_seconds=3600), 1, 1)
    second = future_rung_costs(rungs, supply(), 1, 1)
    dear = int(np.searchsorted(-second.usd_per_second, -0.02))
    assert hour.next_instances[0, dear] < second.next_instances[0, dear]


def test_where_all_is_paid_for_a_deadline_still_has_its_price() -> None:
    """Two paid instances are needed to be in time; one would be as cheap, at nothing."""
    rung = Rung((trial("t", 1500.0),), (FreedInstances("gpu", 2, 5000.0),))
    plan = plan_rung(rung, supply(minimum_billed_seconds=7200), within(0.3))
    assert sizes_of(plan) == [2]
    assert plan.usd.median == 0.0
    assert plan.chance == 1.0


def test_reclaims_make_spot_dearer_than_its_price() -> None:
    calm, rough = (
        plan_rung(
            Rung((trial("t", 8000.0, held=0),)), supply(reclaims_per_hour=hazard), within(100.0)
        )
        for hazard in (0.0, 1.0)
    )
    assert rough.usd.median > calm.usd.median
    assert rough.seconds.median > calm.seconds.median


def test_every_decision_has_its_reason() -> None:
    trials = (trial("slow", 8000.0, held=0), trial("fast", 1000.0, held=0), trial("new", 500.0))
    plan = plan_rung(Rung(trials), supply(), within(1.0))
    for decision in plan.decisions:
        assert decision.trial in decision.reason
    assert "study time is worth" in plan.decisions[0].reason


def test_what_nobody_measured_is_looked_at_where_time_has_a_value() -> None:
    known = trial("known", 900.0, held=0)
    unknown = replace(trial("unknown", 900.0), is_measured=False)
    rung = Rung((known, unknown), (), later(900.0))
    tight, calm = (plan_rung(rung, supply(quota=4), within(hours)) for hours in (0.4, 100.0))
    assert [one.action for one in tight.decisions] == [TrialAction.PAUSE, TrialAction.TAKE_OVER]
    assert "measures its speed" in tight.decisions[1].reason
    assert [one.action for one in calm.decisions] == [TrialAction.HOLD, TrialAction.WAIT]


def test_a_rung_needs_a_trial_and_room() -> None:
    with pytest.raises(ValueError, match="without trials"):
        plan_rung(Rung(()), supply(), within(1.0))
    with pytest.raises(ValueError, match="no room"):
        plan_rung(Rung((trial("t", 10.0),)), supply(quota=0), within(1.0))
    with pytest.raises(ValueError, match="goodput of"):
        plan_rung(Rung((trial("t", 10.0),)), supply(sizes=(1,)), within(1.0))
    with pytest.raises(ValueError, match="deadline_seconds=-1"):
        StudyConstraints(deadline_seconds=-1)
    with pytest.raises(ValueError, match="confidence=2"):
        StudyConstraints(confidence=2)
    with pytest.raises(ValueError, match="no size can run it"):
        Rung((TrialState("t", 1.0, np.zeros((1, 4))),))


@settings(max_examples=40, deadline=None)
@given(works, st.integers(0, 4), st.floats(0.1, 5.0))
def test_what_is_free_is_taken_or_not_kept(amounts: list[float], free: int, hours: float) -> None:
    """Keep no free instance in the last rung, because no trial follows."""
    trials = tuple(trial(f"t{i}", work, held=0) for i, work in enumerate(amounts))
    freed = (FreedInstances("gpu", free),) if free else ()
    plan = plan_rung(Rung(trials, freed), supply(), within(hours))
    assert plan.standby is None


@settings(max_examples=40, deadline=None)
@given(works, st.integers(1, 6), st.floats(0.1, 5.0))
def test_a_quota_is_never_exceeded(amounts: list[float], quota: int, hours: float) -> None:
    trials = tuple(trial(f"t{i}", work) for i, work in enumerate(amounts))
    plan = plan_rung(Rung(trials, (), later(3000.0)), supply(quota), within(hours))
    begins = TrialAction.START, TrialAction.TAKE_OVER
    used = sum(one.size.instances for one in plan.decisions if one.action in begins)
    ordered = 0 if plan.standby is None else plan.standby.order
    assert used <= quota
    assert used + ordered <= quota
    assert used >= 1


@settings(max_examples=30, deadline=None)
@given(works)
def test_more_time_never_costs_more(amounts: list[float]) -> None:
    """Beyond the margin by which rules of thumb pack: two per cent."""
    trials = tuple(trial(f"t{i}", work, held=0) for i, work in enumerate(amounts))
    rung = Rung(trials, (), later(2000.0))
    plans = [plan_rung(rung, supply(), within(hours)) for hours in (0.5, 1.0, 2.0, 4.0, 8.0)]
    costs = [plan.usd.median for plan in plans if plan.chance == 1.0]
    assert all(b <= a * 1.02 for a, b in pairwise(costs))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(300.0, 6000.0), min_size=1, max_size=3), st.floats(0.2, 3.0))
def test_no_choice_of_sizes_is_cheaper(amounts: list[float], hours: float) -> None:
    """Trials that train, one rung: water-filling is exact, up to the margin for what is held."""
    plenty = supply()
    trials = tuple(trial(f"t{i}", work, held=0) for i, work in enumerate(amounts))
    plan = plan_rung(Rung(trials), plenty, within(hours))
    best = np.inf
    for chosen in product(range(len(DEVICES)), repeat=len(trials)):
        ends, usd = [], 0.0
        for one, size in zip(trials, chosen, strict=True):
            seconds = _seconds(one, size)
            ends.append(seconds)
            usd += seconds * DEVICES[size] * USD_PER_SECOND
        if max(ends) <= hours * 3600.0:
            best = min(best, usd)
    if np.isfinite(best):
        assert plan.usd.median <= best * 1.0201
        assert plan.chance == 1.0
    else:
        assert plan.chance == 0.0


def _seconds(one: TrialState, size: int) -> float:
    """Old instances work on for a boot of 120 s, then a pause of 60 s."""
    rate = one.goodput[0]
    if size == 0 or one.to_decision <= 120.0 * rate[0]:
        return float(one.to_decision / rate[0])
    return float(180.0 + (one.to_decision - 120.0 * rate[0]) / rate[size])


@settings(max_examples=20, deadline=None)
@given(works, st.floats(0.3, 4.0))
def test_the_same_study_has_the_same_plan(amounts: list[float], hours: float) -> None:
    trials = tuple(trial(f"t{i}", work) for i, work in enumerate(amounts))
    rung = Rung(trials, (), later(2000.0))
    assert plan_rung(rung, supply(4), within(hours)) == plan_rung(rung, supply(4), within(hours))


def test_a_limit_on_devices_counts_those_of_whole_instances() -> None:
    nodes = StudySupply(
        (offer("node", devices=4),),
        (Allocation("node", 1, 4), Allocation("node", 2, 4)),
        TrialSwitching(60.0, 30.0, 10.0),
        (Limit("devices", LimitUnit.DEVICES, 8.0),),
    )
    row = np.array([[1.0, 1.8]])
    trials = tuple(TrialState(f"t{i}", 1000.0, row) for i in range(3))
    plan = plan_rung(Rung(trials), nodes, within(0.1))
    begins = [one for one in plan.decisions if one.action is TrialAction.START]
    assert sum(one.size.instances for one in begins) <= 2


def test_later_rungs_are_drawn_from_those_in_the_race() -> None:
    goodput = np.stack([rates(speed, 0.0, draws=8) for speed in (1.0, 2.0, 3.0, 4.0)], axis=1)
    second, third = future_rungs(goodput, (2, 1), (10.0, 20.0))
    assert second.goodput.shape == (8, 2, 4)
    assert third.work.tolist() == [[20.0]] * 8
    winners = third.goodput[:, 0, 0].tolist()
    assert sorted(winners) == [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]
    assert (second.goodput[:, 0] != second.goodput[:, 1]).all()


def test_what_was_not_measured_counts_with_its_median() -> None:
    goodput = np.arange(12.0).reshape(3, 2, 2)
    same = median_where_unmeasured(goodput, np.array([True, False]))
    assert same[:, 0].tolist() == goodput[:, 0].tolist()
    assert same[:, 1].tolist() == [goodput[1, 1].tolist()] * 3


@settings(max_examples=25, deadline=None)
@given(works, st.floats(0.05, 0.95))
def test_a_deadline_out_of_reach_is_bid_for_as_the_last_that_is_in_reach(
    amounts: list[float], share: float
) -> None:
    """Time does not become worthless because there is too little of it."""
    trials = tuple(trial(f"t{i}", work, held=0) for i, work in enumerate(amounts))
    rung = Rung(trials, future=later(500.0))
    fastest = float(water_fill(rung, supply(), StudyConstraints(deadline_seconds=1.0)).earliest[0])
    barely = plan_rung(rung, supply(), StudyConstraints(deadline_seconds=1.1 * fastest))
    beyond = plan_rung(rung, supply(), StudyConstraints(deadline_seconds=share * fastest))
    assert beyond.chance == 0.0
    assert beyond.shortfall is not None
    assert beyond.seconds.median <= barely.seconds.median * (1 + 1e-6)
    assert beyond.usd_per_second >= barely.usd_per_second * (1 - 1e-6)
