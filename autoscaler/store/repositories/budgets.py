"""Repository of the budgets of people, teams, studies and the fleet."""

from __future__ import annotations

from abc import ABC, abstractmethod

from autoscaler.domain.budget import Budget, BudgetScope


class StoredBudgets(ABC):
    """Budgets of one store, at most one for each scope."""

    @abstractmethod
    def all(self) -> tuple[Budget, ...]:
        """Return all budgets, sorted by scope."""

    @abstractmethod
    def put(self, budget: Budget) -> Budget | None:
        """Store a budget in place of an earlier one of its scope, and return that one."""

    @abstractmethod
    def remove(self, scope: BudgetScope) -> Budget | None:
        """Remove and return the budget of a scope; None if there was none."""
