"""Policy wrapper that keeps every policy within shared budgets that are used up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.budget import BudgetBasis, BudgetRoom, BudgetState
from autoscaler.domain.offer import Offer
from autoscaler.domain.plan import Action, Decision, Plan, ReasonCode
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.explanation.reasons import action_of
from autoscaler.economics.supply.supply import SECONDS_PER_HOUR
from autoscaler.policies.base import Policy
from autoscaler.policies.wrappers.gangs import whole_part

# A job starts only if its budgets pay its allocation for this long.
_LEAST_START_SECONDS = 900.0


class WithinBudgets:
    """Wrapper that gives nothing to jobs whose budget is used up, and keeps hourly limits.

    The policy does not see jobs of a used-up budget: they wait, with a checkpoint, until the
    budget has money again. The policies that know budgets slow their jobs long before.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.plans_studies: bool = getattr(policy, "plans_studies", False)
        self.weighs_boots: bool = getattr(policy, "weighs_boots", False)

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the policy's plan within the budgets of the snapshot."""
        if not snapshot.budgets:
            return self._policy.plan(snapshot)
        paused = dict(_paused(snapshot))
        others = tuple(job for job in snapshot.jobs if job.id not in paused)
        planned = replace(snapshot, jobs=others) if paused else snapshot
        plan = _without_short_starts(self._policy.plan(planned), planned)
        plan = _within_hourly_limits(plan, planned)
        releases = (
            released(job.id, job.held, paused[job.id]) for job in snapshot.jobs if job.id in paused
        )
        decisions = sorted((*plan.decisions, *releases), key=lambda decision: decision.job)
        return replace(plan, decisions=tuple(decisions))


def released(job: str, held: Allocation | None, cause: str) -> Decision:
    """Return the decision by which a job holds nothing while its budget is used up."""
    return Decision(
        job=job,
        action=Action.WAIT,
        current=held,
        target=None,
        reason=f"wait {job}: {cause}",
        ground=ReasonCode.BUDGET_USED_UP,
    )


def _paused(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Yield each job whose budget is used up, with the cause."""
    causes = {budget.scope: budget.used_up for budget in snapshot.budgets}
    for job in snapshot.jobs:
        cause = next((causes[scope] for scope in job.budgets if causes.get(scope)), None)
        if cause is not None:
            yield job.id, cause


def _without_short_starts(plan: Plan, snapshot: Snapshot) -> Plan:
    """Return the plan without starts that the budgets would pay for a short time only."""
    left = {
        budget.scope: (room.usd, budget.words)
        for budget in snapshot.budgets
        for room in budget.rooms
        if room.basis in (BudgetBasis.MONTH, BudgetBasis.TOTAL)
    }
    jobs = {job.id: job for job in snapshot.jobs if left.keys() & set(job.budgets)}
    offers = {offer.id: offer for offer in snapshot.offers}

    def checked(decision: Decision) -> Decision:
        if decision.job not in jobs or decision.current is not None or decision.target is None:
            return decision
        scopes = (scope for scope in jobs[decision.job].budgets if scope in left)
        usd, words = min(left[scope] for scope in scopes)
        usd_per_hour = _usd_per_hour(decision.target, offers)
        if usd >= usd_per_hour * _LEAST_START_SECONDS / SECONDS_PER_HOUR:
            return decision
        cause = f"{words} has ${usd:.2f} left, too little to start at ${usd_per_hour:.2f}/h"
        return released(decision.job, None, cause)

    return replace(plan, decisions=tuple(map(checked, plan.decisions)))


def _within_hourly_limits(plan: Plan, snapshot: Snapshot) -> Plan:
    """Return the plan with the targets that the hourly limits of budgets leave room for.

    Jobs come in the order of their submission, those that hold instances first.
    """
    limits = {
        budget.scope: (budget, room)
        for budget in snapshot.budgets
        for room in budget.rooms
        if room.basis is BudgetBasis.HOUR
    }
    jobs = {job.id: job for job in snapshot.jobs if limits.keys() & set(job.budgets)}
    if not jobs:
        return plan
    offers = {offer.id: offer for offer in snapshot.offers}
    left = {scope: room.usd_per_hour * (1.0 + 1e-9) for scope, (_, room) in limits.items()}
    cut: dict[str, Decision] = {}
    deciding = sorted(
        (decision for decision in plan.decisions if decision.job in jobs),
        key=lambda decision: _turn(jobs[decision.job]),
    )
    for decision in deciding:
        scopes = [scope for scope in jobs[decision.job].budgets if scope in limits]
        most = min(left[scope] for scope in scopes)
        tightest = min(scopes, key=lambda scope: left[scope])
        given = _fitting(decision, jobs[decision.job], most, offers)
        for scope in scopes:
            left[scope] -= _usd_per_hour(given.target, offers)
        if given is not decision:
            given = _explained(given, *limits[tightest])
        cut[decision.job] = given
    decisions = tuple(cut.get(decision.job, decision) for decision in plan.decisions)
    return replace(plan, decisions=decisions)


def _turn(job: JobSnapshot) -> tuple[bool, float, str]:
    return job.held is None, job.submitted_seconds, job.id


def _fitting(
    decision: Decision, job: JobSnapshot, most: float, offers: Mapping[str, Offer]
) -> Decision:
    """Return the decision with its target, what is held, or a part of the target, if that fits."""
    wanted = decision.target
    if wanted is None or _usd_per_hour(wanted, offers) <= most:
        return decision
    target, price = decision.current, _usd_per_hour(replace(wanted, instances=1), offers)
    if target is None or _usd_per_hour(target, offers) > most:
        count = int(most / price)
        part = replace(wanted, instances=count) if count else None
        target = None if part is None else whole_part(part, job)
    return replace(
        decision,
        action=action_of(decision.current, target, stops=False),
        target=target,
        release_first=False,
    )


def _usd_per_hour(allocation: Allocation | None, offers: Mapping[str, Offer]) -> float:
    offer = None if allocation is None else offers.get(allocation.offer)
    if allocation is None or offer is None:
        return 0.0
    return allocation.instances * float(offer.usd_per_hour)


def _explained(decision: Decision, budget: BudgetState, room: BudgetRoom) -> Decision:
    size = "nothing" if decision.target is None else str(decision.target)
    cause = room.words(budget.words)
    return replace(
        decision,
        reason=f"{decision.action.value} {decision.job}: {cause}, which leaves room for {size}",
        ground=ReasonCode.BUDGET_USED_UP,
    )
