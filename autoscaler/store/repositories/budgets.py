"""Repository of the budgets of people, teams, studies and the fleet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from autoscaler.domain.budget import Budget, BudgetScope

BudgetCheck = Callable[[Budget | None], None]
"""Precondition of a change of a scope's budget, None if it has none: it may raise an error."""


def accept_budget(budget: Budget | None) -> None:
    """Accept any budget, as the precondition of a change."""


class StoredBudgets(ABC):
    """Budgets of one store, at most one for each scope."""

    @abstractmethod
    def all(self) -> tuple[Budget, ...]:
        """Return all budgets, sorted by scope."""

    @abstractmethod
    def put(self, budget: Budget, precondition: BudgetCheck = accept_budget) -> Budget | None:
        """Store a budget in place of an earlier one of its scope, and return that one.

        Nothing is stored if `precondition` refuses the earlier one.
        """

    @abstractmethod
    def remove(
        self, scope: BudgetScope, precondition: BudgetCheck = accept_budget
    ) -> Budget | None:
        """Remove and return the budget of a scope that `precondition` accepts.

        Return None if there was none.
        """
