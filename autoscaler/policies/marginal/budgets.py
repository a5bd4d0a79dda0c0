"""Budgets in the policy `marginal`: jobs near the limit of a shared budget slow by one weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autoscaler.domain.budget import BudgetBasis, BudgetPlan, BudgetRoom, BudgetState
from autoscaler.domain.plan import Decision, Plan, ReasonCode
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.scarcity.budget_prices import (
    BudgetPrices,
    SpendingJobs,
    budget_prices,
)
from autoscaler.economics.supply.caches import CacheSection, IdentityKey, PlanningCache
from autoscaler.economics.supply.supply import Supply
from autoscaler.policies.marginal.bidders import Bidders
from autoscaler.policies.marginal.fleet import MarginalParameters, priced_jobs

WEIGHT_FIGURE = "dollar_weight"
_WEIGHED: CacheSection[JobSnapshot] = CacheSection(10_000_000)
_JOB_BYTES = 1000


@dataclass(frozen=True, slots=True)
class BudgetSteering:
    """Weights of a snapshot's budgets, for its jobs.

    Attributes:
        jobs: all jobs of the snapshot, with their weights.
        plans: result for each budget.
        binding: scope -> room that binds it.
        words: scope -> name of the scope in a sentence.
    """

    jobs: tuple[JobSnapshot, ...]
    plans: tuple[BudgetPlan, ...] = ()
    binding: Mapping[str, BudgetRoom] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)

    def applied(self, plan: Plan) -> Plan:
        """Return a plan whose decisions name the weight of their jobs' dollars."""
        slowed = {job.id: job for job in self.jobs if job.dollar_weight > 1.0}
        decisions = tuple(
            self._explained(decision, slowed[decision.job]) if decision.job in slowed else decision
            for decision in plan.decisions
        )
        return replace(plan, decisions=decisions, budgets=self.plans)

    def _explained(self, decision: Decision, job: JobSnapshot) -> Decision:
        causes = [
            self.binding[scope].words(self.words[scope])
            for scope in job.budgets
            if scope in self.binding
        ]
        weight = f"each dollar counts {job.dollar_weight:.3g} in place of 1"
        is_usual = decision.ground is ReasonCode.LEAST_COST
        return replace(
            decision,
            reason=f"{decision.reason}; {' and '.join(causes)}: {weight}",
            ground=ReasonCode.SLOWED if is_usual else decision.ground,
            figures={**decision.figures, WEIGHT_FIGURE: job.dollar_weight},
        )


def steering(snapshot: Snapshot, supply: Supply, parameters: MarginalParameters) -> BudgetSteering:
    """Return the weights at which the snapshot's jobs keep within their budgets."""
    budgets = tuple(budget for budget in snapshot.budgets if budget.rooms)
    if not budgets:
        return BudgetSteering(snapshot.jobs)
    jobs = sorted(snapshot.jobs, key=lambda job: (job.submitted_seconds, job.id))
    groups, _ = priced_jobs(jobs, supply, parameters.most_times_dearest)
    members, spending = _spending_jobs(groups, budgets)
    prices = budget_prices(spending, budgets)
    weights = {job.id: weight for job, weight in zip(members, prices.job_weights, strict=True)}
    binding = {
        budget.scope: room
        for budget, room in zip(budgets, prices.binding, strict=True)
        if room is not None
    }
    return BudgetSteering(
        jobs=tuple(_weighed(job, weights.get(job.id, 1.0), supply.cache) for job in snapshot.jobs),
        plans=_budget_plans(budgets, spending, prices),
        binding=binding,
        words={budget.scope: budget.words for budget in budgets},
    )


def _weighed(job: JobSnapshot, weight: float, cache: PlanningCache) -> JobSnapshot:
    """Return the job with a weight: the same object for the same job, which caches need."""
    if weight == job.dollar_weight:
        return job
    key, weighed_jobs = (IdentityKey(job), float(weight)), cache.of(_WEIGHED)
    weighed = weighed_jobs.get(key)
    if weighed is None:
        weighed = replace(job, dollar_weight=float(weight))
        weighed_jobs.put(key, weighed, _JOB_BYTES)
    return weighed


def _spending_jobs(
    groups: Sequence[Bidders], budgets: Sequence[BudgetState]
) -> tuple[list[JobSnapshot], SpendingJobs]:
    """Return the jobs that share a budget, and their arrays."""
    parts = []
    for group in groups:
        rows = np.flatnonzero([bool(job.budgets) for job in group.jobs])
        if len(rows):
            parts.append((group, rows))
    width = max((group.eligible.shape[1] for group, _ in parts), default=1)
    members = [group.jobs[row] for group, rows in parts for row in rows.tolist()]

    def column(name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        values = [np.asarray(getattr(group, name))[rows] for group, rows in parts]
        return np.concatenate(values) if values else np.zeros(0)

    def table(name: str) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        tables = [
            np.pad(
                np.asarray(getattr(group, name))[rows],
                ((0, 0), (0, width - group.eligible.shape[1])),
            )
            for group, rows in parts
        ]
        return np.concatenate(tables) if tables else np.zeros((0, width))

    return members, SpendingJobs(
        value_of_time=column("bids"),
        remaining=column("remaining"),
        usd_per_second=table("usd_per_second"),
        rate=table("rate"),
        exists=table("eligible").astype(np.bool_),
        wished=column("wished").astype(np.int64),
        is_fixed=column("is_bound").astype(np.bool_),
        is_member=np.array(
            [[budget.scope in job.budgets for job in members] for budget in budgets],
            dtype=np.bool_,
        ).reshape(len(budgets), len(members)),
    )


def _budget_plans(
    budgets: Sequence[BudgetState], jobs: SpendingJobs, prices: BudgetPrices
) -> tuple[BudgetPlan, ...]:
    plans = []
    for index, budget in enumerate(budgets):
        lasting = (BudgetBasis.MONTH, BudgetBasis.TOTAL)
        seconds = next((room.seconds for room in budget.rooms if room.basis in lasting), 0.0)
        is_member, room = jobs.is_member[index], prices.binding[index]
        plans.append(
            BudgetPlan(
                scope=budget.scope,
                dollar_weight=float(prices.weights[index]),
                basis=None if room is None else room.basis,
                planned_usd=float(jobs.spending(prices.choices, seconds)[is_member].sum()),
                wished_usd=float(jobs.spending(jobs.wished, seconds)[is_member].sum()),
            )
        )
    return tuple(plans)
