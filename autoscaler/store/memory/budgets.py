"""Budgets in memory."""

from __future__ import annotations

from autoscaler.domain.budget import Budget, BudgetScope
from autoscaler.store.memory.tables import Tables
from autoscaler.store.repositories.budgets import BudgetCheck, StoredBudgets, accept_budget


class MemoryBudgets(StoredBudgets):
    """Budgets by scope."""

    def __init__(self, tables: Tables) -> None:
        self._lock = tables.lock
        self._budgets: dict[BudgetScope, Budget] = {}

    def all(self) -> tuple[Budget, ...]:
        with self._lock:
            return tuple(self._budgets[scope] for scope in sorted(self._budgets))

    def put(self, budget: Budget, precondition: BudgetCheck = accept_budget) -> Budget | None:
        with self._lock:
            before = self._budgets.get(budget.scope)
            precondition(before)
            self._budgets[budget.scope] = budget
            return before

    def remove(
        self, scope: BudgetScope, precondition: BudgetCheck = accept_budget
    ) -> Budget | None:
        with self._lock:
            before = self._budgets.get(scope)
            if before is not None:
                precondition(before)
                del self._budgets[scope]
            return before
