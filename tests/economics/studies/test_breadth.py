from __future__ import annotations

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
from tests.economics.studies.cases import rates, supply


def trial(
    name: str,
    held: int | None = None,
    to_rung: float = 1000.0,
    best: float = 0.9,
    rests_seconds: float = np.inf,
) -> AsyncTrial:
    """Worth up to `best`, linearly in its work up to 4000."""
    works = np.array([0.0, 4000.0])
    values = np.array([[0.0, best], [0.0, best + 0.02]])
    return AsyncTrial(
        name, rates(1.0, 0.1)[0], to_rung, 4000.0, values, works, held, rests_seconds
    )


def actions(trials: list[AsyncTrial], terms: AsyncTerms, quota: int | None = 8) -> list[str]:
    plan = plan_breadth(trials, supply(quota), terms)
    return [f"{one.action} {one.size.instances if one.size else 0}" for one in plan.decisions]


def test_breadth_first_each_on_the_smallest_size() -> None:
    trials = [trial("a", 0), trial("b"), trial("c"), trial("d")]
    assert actions(trials, AsyncTerms(0.5), quota=3) == ["hold 1", "start 1", "start 1", "wait 0"]


def test_what_is_free_goes_to_a_fresh_trial_before_growth() -> None:
    terms = AsyncTerms(0.5, freed=(("gpu", 1),), paid=(("gpu", 1),))
    assert actions([trial("a", 0), trial("b")], terms, quota=2) == ["hold 1", "start 1"]


def test_what_is_paid_for_and_nobody_wants_lets_the_best_grow() -> None:
    terms = AsyncTerms(0.5, freed=(("gpu", 1),), paid=(("gpu", 1),))
    plan = [trial("good", 0, best=0.9), trial("bad", 0, best=0.6)]
    assert actions(plan, terms) == ["grow 2", "hold 1"]


def test_what_is_free_and_not_paid_for_is_released() -> None:
    terms = AsyncTerms(0.5, freed=(("gpu", 2),))
    plan = plan_breadth([trial("a", 0)], supply(), terms)
    assert plan.release == (("gpu", 2),)
    assert plan.decisions[0].action is AsyncAction.HOLD


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
    assert "(G3)" in plan.decisions[0].reason


def test_money_is_kept_for_the_finalists() -> None:
    held = trial("leader", 0, to_rung=1000.0)
    terms = AsyncTerms(0.5, budget_usd=5.0)
    plan = plan_breadth([held, trial("new")], supply(), terms)
    assert plan.reserve_usd == pytest.approx(3.0)
    assert plan.decisions[1].action is AsyncAction.WAIT
    assert "(G5)" in plan.decisions[1].reason
    rich = plan_breadth([held, trial("new")], supply(), AsyncTerms(0.5, budget_usd=5.5))
    assert rich.decisions[1].action is AsyncAction.START


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
    terms = AsyncTerms(0.5, deadline, freed=(("gpu", free),), paid=(("gpu", free),))
    plan = plan_breadth(trials, supply(quota), terms)
    for one, decision in zip(trials, plan.decisions, strict=True):
        if one.held is not None:
            assert decision.action in (AsyncAction.HOLD, AsyncAction.GROW)
    used = sum(one.size.instances for one in plan.decisions if one.size is not None)
    assert used <= quota
