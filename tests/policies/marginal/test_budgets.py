"""Jobs near the limit of a shared budget: smaller, with a code, words and a figure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.budget import BudgetBasis, BudgetRoom, BudgetState
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import AfterDeadline, Objective
from autoscaler.domain.plan import Plan, ReasonCode
from autoscaler.policies.marginal.policy import MarginalPolicy
from tests.economics.cases import NOW, job, offer, snapshot, valued

DAY = 86400.0
VALUED = valued(4.0)


def planned(usd: float, objective: Objective = VALUED) -> Plan:
    """Return the plan of two jobs that want several instances of $0.10/h; one has a budget."""
    bounds = InstanceBounds(maximum=8)
    common = {"objective": VALUED, "instances": bounds, "remaining_examples": 1e9}
    poor = replace(job("poor", **common), objective=objective, budgets=("team:nlp",))
    room = BudgetRoom(BudgetBasis.MONTH, usd, 30 * DAY)
    budget = BudgetState("team:nlp", "team nlp", (room,))
    moment = snapshot(poor, job("rich", **common), offers=[offer("small", "0.10")])
    return MarginalPolicy().plan(replace(moment, budgets=(budget,)))


def test_a_job_near_its_limit_slows_and_says_so() -> None:
    poor, rich = planned(150.0).decisions
    assert poor.target is not None and rich.target is not None
    assert poor.target.instances < rich.target.instances
    assert poor.ground is ReasonCode.SLOWED and rich.ground is not ReasonCode.SLOWED
    weight = poor.figures["dollar_weight"]
    assert weight > 1 and "dollar_weight" not in rich.figures
    assert poor.reason.endswith(
        f"; team nlp is at its pace of $0.21/h: each dollar counts {weight:.3g} in place of 1"
    )
    (result,) = planned(150.0).budgets
    assert (result.scope, result.basis) == ("team:nlp", BudgetBasis.MONTH)
    assert result.planned_usd <= 150.0 < result.wished_usd
    assert result.dollar_weight == pytest.approx(weight)


def test_a_budget_that_pays_all_changes_nothing() -> None:
    poor, rich = planned(1e6).decisions
    assert poor.target == rich.target and poor.ground is rich.ground
    assert planned(1e6).budgets[0].dollar_weight == 1.0


def test_a_job_with_a_deadline_keeps_the_cheapest_plan_that_keeps_it() -> None:
    """All its dollars count as much more, so that no other plan in time becomes cheaper."""
    dated = replace(VALUED, deadline_seconds=NOW + 40 * DAY)
    alone, near = planned(1e6, dated).decisions[0], planned(150.0, dated).decisions[0]
    assert alone.target == near.target and alone.ground is near.ground is ReasonCode.STAGES
    assert "dollar_weight" not in near.figures and "each dollar counts" not in near.reason
    result = planned(150.0, dated).budgets[0]
    assert result.planned_usd == result.wished_usd > 150.0, "the guard stops it at the limit"


@pytest.mark.parametrize("deadline_seconds", [NOW - 1.0, NOW + DAY])
def test_a_job_that_is_late_slows_as_others_do(deadline_seconds: float) -> None:
    late = replace(VALUED, deadline_seconds=deadline_seconds, after_deadline=AfterDeadline.FASTEST)
    alone, near = planned(1e6, late).decisions[0], planned(150.0, late).decisions[0]
    assert alone.target is not None and near.target is not None
    assert near.target.instances < alone.target.instances
    assert near.ground is ReasonCode.SLOWED and near.figures["dollar_weight"] > 1
    result = planned(150.0, late).budgets[0]
    assert result.planned_usd <= 150.0 < result.wished_usd
