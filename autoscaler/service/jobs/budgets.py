"""Budgets of people, teams, studies and the fleet, as admins set and people read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal

from autoscaler.clock import Clock
from autoscaler.controller.budgets.accounts import BudgetStanding
from autoscaler.domain.budget import (
    Budget,
    BudgetPlan,
    BudgetScope,
    ScopeKind,
    parse_scope,
    require_budget,
)
from autoscaler.domain.errors import NotFound
from autoscaler.service.versions import budget_version
from autoscaler.store.repositories.budgets import BudgetCheck, accept_budget
from autoscaler.store.repositories.people import unknown_person
from autoscaler.store.store import Store
from autoscaler.wire.budget_messages import BudgetRequest, BudgetView


class SharedBudgets:
    """Budgets of one deployment.

    `standings` returns what has been spent by a time, `plans` the results of the last plan by
    scope, and `on_change` is called after each change.
    """

    def __init__(
        self,
        store: Store,
        standings: Callable[[float], tuple[BudgetStanding, ...]],
        plans: Callable[[], Mapping[str, BudgetPlan]],
        on_change: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._store = store
        self._standings = standings
        self._plans = plans
        self._on_change = on_change
        self._clock = clock

    def views(self) -> tuple[BudgetView, ...]:
        """Return the views of all budgets, sorted by scope."""
        now_seconds, plans = self._clock.now(), self._plans()
        return tuple(
            budget_view(standing, plans.get(str(standing.budget.scope)), now_seconds)
            for standing in self._standings(now_seconds)
        )

    def view(self, scope_text: str) -> BudgetView:
        """Return the view of one budget.

        Raises:
            SpecError: the text is no scope.
            NotFound: the scope has no budget.
        """
        scope = str(parse_scope(scope_text))
        wanted = next((view for view in self.views() if view.scope == scope), None)
        if wanted is None:
            raise _no_budget(scope)
        return wanted

    def put(
        self,
        scope_text: str,
        request: BudgetRequest,
        precondition: BudgetCheck = accept_budget,
    ) -> tuple[Budget | None, Budget, BudgetView]:
        """Set the budget of a scope; return the one before, the new one and its view.

        `precondition` may refuse the one before, as it is stored.

        Raises:
            SpecError: the scope, a limit or the zone is invalid.
            NotFound: the scope is a person who is not known.
        """
        scope = parse_scope(scope_text)
        budget = Budget(
            scope, request.month_usd, request.total_usd, request.hourly_usd, request.zone
        )
        require_budget(budget)
        if scope.kind is ScopeKind.PERSON and self._store.people.get(scope.name) is None:
            raise unknown_person(scope.name)
        before = self._store.budgets.put(budget, precondition)
        self._on_change()
        return before, budget, self.view(str(scope))

    def remove(self, scope_text: str, precondition: BudgetCheck = accept_budget) -> Budget:
        """Remove and return the budget of a scope, which `precondition` may refuse.

        Raises:
            SpecError: the text is no scope.
            NotFound: the scope has no budget.
        """
        scope: BudgetScope = parse_scope(scope_text)
        before = self._store.budgets.remove(scope, precondition)
        if before is None:
            raise _no_budget(str(scope))
        self._on_change()
        return before


def budget_view(
    standing: BudgetStanding, plan: BudgetPlan | None, now_seconds: float
) -> BudgetView:
    """Return the view of a budget; `plan` is the last plan's result, None if there is none."""
    budget, month = standing.budget, standing.month
    has_month = budget.month_usd is not None
    low_usd, high_usd = expected_usd(standing, plan, now_seconds)
    return BudgetView(
        scope=str(budget.scope),
        month_usd=budget.month_usd,
        total_usd=budget.total_usd,
        hourly_usd=budget.hourly_usd,
        zone=budget.zone,
        month_begins_seconds=month.start_seconds,
        month_ends_seconds=month.end_seconds,
        spent_month_usd=standing.month_usd if has_month else None,
        spent_total_usd=None if budget.total_usd is None else standing.total_usd,
        usd_per_hour=standing.usd_per_hour,
        pace_usd_per_hour=standing.pace_usd_per_hour(now_seconds),
        reserved_usd=standing.reserve_usd,
        dollar_weight=1.0 if plan is None else plan.dollar_weight,
        bound_by=None if plan is None else plan.basis,
        used_up=standing.state(now_seconds).used_up,
        expected_low_usd=low_usd,
        expected_high_usd=high_usd,
        version=budget_version(budget),
    )


def expected_usd(
    standing: BudgetStanding, plan: BudgetPlan | None, now_seconds: float
) -> tuple[float | None, float | None]:
    """Return the ends of what the present month will cost, never above its limit.

    They are those of `BudgetStanding.expected_usd` with the spending that the last plan permits.
    """
    ends = standing.expected_usd(None if plan is None else plan.planned_usd, now_seconds)
    if ends is None:
        return None, None
    most_usd = float(max(standing.budget.month_usd or Decimal(0), standing.month_usd))
    return min(ends[0], most_usd), min(ends[1], most_usd)


def _no_budget(scope: str) -> NotFound:
    return NotFound(f"{scope} has no budget: castor budget list shows all")
