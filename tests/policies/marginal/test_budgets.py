"""Jobs near the limit of a shared budget: smaller, with a code, words and a figure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.budget import BudgetBasis, BudgetRoom, BudgetState
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.plan import Plan, ReasonCode
from autoscaler.policies.marginal.policy import MarginalPolicy
from tests.economics.cases import job, offer, snapshot, valued

DAY = 86400.0


def planned(usd: float) -> Plan:
    """Return the plan of two jobs that want several instances of $0.10/h; one has a budget."""
    bounds = InstanceBounds(maximum=8)
    common = {"objective": valued(4.0), "instances": bounds, "remaining_examples": 1e9}
    poor = replace(job("poor", **common), budgets=("team:nlp",))
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
