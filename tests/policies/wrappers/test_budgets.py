"""Policies within shared budgets, whatever they plan themselves."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.budget import BudgetBasis, BudgetRoom, BudgetState
from autoscaler.domain.plan import Action, Decision, Plan, ReasonCode
from autoscaler.domain.snapshot import Snapshot
from autoscaler.policies.wrappers.budgets import WithinBudgets
from tests.economics.cases import job, offer, snapshot


class Takes:
    """Policy that gives each job so many instances."""

    def __init__(self, instances: dict[str, int]) -> None:
        self._instances = instances
        self.seen: tuple[str, ...] = ()

    def plan(self, snapshot: Snapshot) -> Plan:
        self.seen = tuple(job.id for job in snapshot.jobs)
        offer = snapshot.offers[0].id
        return Plan(
            tuple(
                Decision(
                    job.id,
                    Action.START,
                    job.held,
                    Allocation(offer, self._instances[job.id], 1),
                    f"start {job.id}",
                )
                for job in snapshot.jobs
            )
        )


OFFER = offer("a", "1.00")
HOUR_ROOM = BudgetRoom(BudgetBasis.HOUR, 0.0, 3600.0, 5.0)
NLP = BudgetState("team:nlp", "team nlp", (HOUR_ROOM,))
USED_UP = BudgetState("person:ada", "person ada", (), "the budget of person ada is used up")
MONTH = BudgetState("fleet", "the fleet", (BudgetRoom(BudgetBasis.MONTH, 0.2, 86400.0),))


def within(targets: dict[str, int], held: dict[str, int], *budgets: BudgetState) -> Plan:
    """Return the plan of jobs that share the budgets."""
    scopes = tuple(budget.scope for budget in budgets)
    jobs = tuple(
        replace(
            job(name, held=Allocation("a", held[name], 1) if held.get(name) else None),
            budgets=scopes,
        )
        for name in targets
    )
    moment = replace(snapshot(*jobs, offers=[OFFER]), budgets=budgets)
    return WithinBudgets(Takes(targets)).plan(moment)


@given(
    targets=st.dictionaries(st.sampled_from("abcd"), st.integers(1, 8), min_size=1),
    held=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 4)),
)
def test_no_plan_exceeds_an_hourly_limit(targets: dict[str, int], held: dict[str, int]) -> None:
    plan = within(targets, held, NLP)
    sizes = [decision.target.instances for decision in plan.decisions if decision.target]
    assert sum(sizes) <= 5
    assert sum(sizes) == min(5, sum(targets.values())) or held, "what fits is used"
    for decision in plan.decisions:
        size = 0 if decision.target is None else decision.target.instances
        if size < targets[decision.job]:
            assert decision.ground is ReasonCode.BUDGET_USED_UP
            assert "team nlp is at its limit of $5.00/h" in decision.reason


def test_jobs_of_a_used_up_budget_wait_and_are_not_planned() -> None:
    policy = Takes({"a": 1, "b": 1})
    poor = replace(job("a", held=Allocation("a", 2, 1)), budgets=("person:ada",))
    moment = replace(snapshot(poor, job("b"), offers=[OFFER]), budgets=(USED_UP,))
    first, second = WithinBudgets(policy).plan(moment).decisions
    assert policy.seen == ("b",)
    assert (first.action, first.target) == (Action.WAIT, None)
    assert first.ground is ReasonCode.BUDGET_USED_UP
    assert first.reason == "wait a: the budget of person ada is used up"
    assert second.target == Allocation("a", 1, 1)


def test_a_job_does_not_start_for_a_few_minutes_of_money() -> None:
    (waits,) = within({"a": 1}, {}, MONTH).decisions
    assert waits.target is None
    assert "the fleet has $0.20 left, too little to start at $1.00/h" in waits.reason
    (goes_on,) = within({"a": 1}, {"a": 1}, MONTH).decisions
    assert goes_on.target == Allocation("a", 1, 1)
