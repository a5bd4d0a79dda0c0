from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.economics.studies.async_trials import (
    AsyncAction,
    AsyncTerms,
    AsyncTrial,
    expected_improvement,
)
from autoscaler.economics.studies.breadth import plan_breadth
from autoscaler.economics.studies.rung import FreedInstances
from tests.economics.studies.cases import rates, supply


def trial(
    name: str,
    held: int | None = None,
    to_rung: float = 1000.0,
    best: float = 0.9,
    rests_seconds: float = np.inf,
    decisions: int = 0,
) -> AsyncTrial:
    """Worth up to `best`, linearly in its work up to 4000."""
    works = np.array([0.0, 4000.0])
    values = np.array([[0.0, best], [0.0, best + 0.02]])
    return AsyncTrial(
        name, rates(1.0, 0.1)[0], to_rung, 4000.0, values, works, held, rests_seconds, decisions
    )


def actions(trials: list[AsyncTrial], terms: AsyncTerms, quota: int | None = 8) -> list[str]:
    plan = plan_breadth(trials, supply(quota), terms)
    return [f"{one.action} {one.size.instances if one.size else 0}" for one in plan.decisions]


def test_breadth_first_each_on_the_smallest_size() -> None:
    trials = [trial("a", 0), trial("b"), trial("c"), trial("d")]
    assert actions(trials, AsyncTerms(0.5), quota=3) == ["hold 1", "start 1", "start 1", "wait 0"]


def test_what_is_free_goes_to_a_fresh_trial_before_growth() -> None:
    terms = AsyncTerms(0.5, freed=(FreedInstances("gpu", 1, np.inf),))
    assert actions([trial("a", 0), trial("b")], terms, quota=2) == ["hold 1", "start 1"]


def test_what_is_paid_for_and_nobody_wants_lets_the_best_grow() -> None:
    terms = AsyncTerms(0.5, freed=(FreedInstances("gpu", 1, np.inf),))
    plan = [trial("good", 0, best=0.9), trial("bad", 0, best=0.6)]
    assert actions(plan, terms) == ["grow 2", "hold 1"]


def test_what_is_free_and_not_paid_for_is_released() -> None:
    terms = AsyncTerms(0.5, freed=(FreedInstances("gpu", 2),))
    plan = plan_breadth([trial("a", 0)], supply(), terms)
    assert plan.release == (("gpu", 2),)
    assert plan.decisions[0].action is AsyncAction.HOLD


def test_what_is_paid_for_only_a_while_makes_nobody_grow_for_nothing() -> None:
    brief = AsyncTerms(0.5, freed=(FreedInstances("gpu", 1, 300.0),))
    assert actions([trial("good", 0)], brief) == ["hold 1"]


def test_what_is_billed_at_least_is_in_the_price_of_a_new_instance_and_not_of_a_free_one() -> None:
    hour = supply(minimum_billed_seconds=7200)
    poor = AsyncTerms(0.5, budget_usd=5.0)
    assert plan_breadth([trial("new")], hour, poor).decisions[0].action is AsyncAction.WAIT
    paid = replace(poor, budget_usd=0.0, freed=(FreedInstances("gpu", 1, 7200.0),))
    assert plan_breadth([trial("new")], hour, paid).decisions[0].action is AsyncAction.START


def test_a_trial_grows_if_it_would_not_reach_its_rung() -> None:
    late = trial("late", 0, to_rung=3000.0)
    assert actions([late], AsyncTerms(0.5, deadline_seconds=2600.0)) == ["grow 2"]
    assert actions([late], AsyncTerms(0.5, deadline_seconds=3100.0)) == ["hold 1"]


def test_not_if_a_fresh_one_improves_more_for_the_money() -> None:
    late = trial("late", 0, to_rung=3000.0, best=0.5)
    fresh = trial("fresh", None, to_rung=500.0, best=1.5)
    decided = actions([late, fresh], AsyncTerms(0.49, deadline_seconds=2600.0))
    assert decided == ["hold 1", "start 1"]


def test_a_resize_rests() -> None:
    late = trial("late", 0, to_rung=3000.0, rests_seconds=100.0)
    assert actions([late], AsyncTerms(0.5, deadline_seconds=2600.0)) == ["hold 1"]


def test_no_fresh_trial_that_comes_too_late() -> None:
    plan = plan_breadth([trial("new")], supply(), AsyncTerms(0.5, deadline_seconds=900.0))
    assert plan.decisions[0].action is AsyncAction.WAIT
    assert "the deadline is in" in plan.decisions[0].reason


def test_money_is_kept_for_the_finalists() -> None:
    """The way of the leader to its end is $4, a fresh trial is likely to cost 1.15 + 0.5 x 3."""
    held = trial("leader", 0, to_rung=1000.0, decisions=1)
    terms = AsyncTerms(0.5, budget_usd=6.6)
    plan = plan_breadth([held, trial("new")], supply(), terms)
    assert plan.reserve_usd == pytest.approx(4.0)
    assert plan.decisions[1].action is AsyncAction.WAIT
    assert "is left" in plan.decisions[1].reason
    rich = plan_breadth([held, trial("new")], supply(), AsyncTerms(0.5, budget_usd=6.7))
    assert rich.decisions[1].action is AsyncAction.START


def test_no_more_is_kept_than_can_be_spent_by_the_deadline() -> None:
    held = trial("leader", 0, decisions=1)
    terms = AsyncTerms(0.5, deadline_seconds=1500.0, budget_usd=5.0)
    assert plan_breadth([held], supply(), terms).reserve_usd == pytest.approx(1.5)


def test_when_the_money_ends_the_others_pause_and_the_leader_goes_on() -> None:
    leader, other = trial("leader", 0, decisions=1), trial("other", 0, best=0.6, decisions=1)
    plan = plan_breadth([other, leader], supply(), AsyncTerms(0.5, budget_usd=4.5))
    paused, held = plan.decisions
    assert (paused.action, held.action) == (AsyncAction.PAUSE, AsyncAction.HOLD)
    assert "is left" in paused.reason
    assert plan.release == (("gpu", 1),)


def test_the_leader_grows_to_reach_its_end_and_what_comes_free_is_kept_for_it() -> None:
    leader, other = trial("leader", 0, decisions=1), trial("other", 0, best=0.6, decisions=1)
    terms = AsyncTerms(0.5, deadline_seconds=2600.0)
    assert actions([other, leader], terms) == ["hold 1", "grow 2"]
    gathering = replace(terms, freed=(FreedInstances("gpu", 1),), deadline_seconds=1500.0)
    plan = plan_breadth([other, leader, trial("new")], supply(3), gathering)
    assert [one.action.value for one in plan.decisions] == ["hold", "hold", "wait"]
    assert "kept for leader" in plan.decisions[2].reason
    assert plan.release == ()


def test_expected_improvement() -> None:
    assert expected_improvement(np.array([0.4, 0.6, 0.8]), 0.6) == pytest.approx(0.2 / 3)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([None, 0, 1]), st.floats(10.0, 4000.0), st.floats(0.1, 2.0)),
        max_size=6,
    ),
    st.integers(0, 3),
    st.one_of(st.none(), st.floats(100.0, 6000.0)),
)
def test_who_trains_goes_on_and_the_quota_holds(
    drawn: list[tuple[int | None, float, float]], free: int, deadline: float | None
) -> None:
    """G4: nothing is stopped; and what is held was within the quota before."""
    trials = [trial(f"t{i}", held, to_rung, best) for i, (held, to_rung, best) in enumerate(drawn)]
    quota = sum(2 if one.held == 1 else 1 for one in trials if one.held is not None) + free + 1
    terms = AsyncTerms(0.5, deadline, freed=(FreedInstances("gpu", free, np.inf),))
    plan = plan_breadth(trials, supply(quota), terms)
    for one, decision in zip(trials, plan.decisions, strict=True):
        if one.held is not None:
            assert decision.action in (AsyncAction.HOLD, AsyncAction.GROW)
    used = sum(one.size.instances for one in plan.decisions if one.size is not None)
    assert used <= quota
