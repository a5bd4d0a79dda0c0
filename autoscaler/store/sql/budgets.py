"""Budgets in a database."""

from __future__ import annotations

from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from autoscaler.domain.budget import Budget, BudgetScope
from autoscaler.store.repositories.budgets import BudgetCheck, StoredBudgets, accept_budget
from autoscaler.store.sql.access_schema import BudgetRow
from autoscaler.store.sql.database import Database

_KEY: Final = "budgets"


class SqlBudgets(StoredBudgets):
    """Repository on the table of budgets."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> tuple[Budget, ...]:
        return self._database.cached((_KEY,), _load)

    def put(self, budget: Budget, precondition: BudgetCheck = accept_budget) -> Budget | None:
        with self._database.write() as session:
            before = _found(session, budget.scope)
            precondition(before)
            session.merge(
                BudgetRow(
                    kind=budget.scope.kind,
                    name=budget.scope.name,
                    month_usd=budget.month_usd,
                    total_usd=budget.total_usd,
                    hourly_usd=budget.hourly_usd,
                    zone=budget.zone,
                )
            )
            self._database.drop_after_commit(session, (_KEY,))
            return before

    def remove(
        self, scope: BudgetScope, precondition: BudgetCheck = accept_budget
    ) -> Budget | None:
        with self._database.write() as session:
            before = _found(session, scope)
            if before is not None:
                precondition(before)
                session.delete(session.get_one(BudgetRow, (scope.kind, scope.name)))
                self._database.drop_after_commit(session, (_KEY,))
            return before


def _load(session: Session) -> tuple[Budget, ...]:
    budgets = (_budget(row) for row in session.scalars(select(BudgetRow)))
    return tuple(sorted(budgets, key=lambda budget: budget.scope))


def _found(session: Session, scope: BudgetScope) -> Budget | None:
    row = session.get(BudgetRow, (scope.kind, scope.name))
    return None if row is None else _budget(row)


def _budget(row: BudgetRow) -> Budget:
    scope = BudgetScope(row.kind, row.name)
    return Budget(scope, row.month_usd, row.total_usd, row.hourly_usd, row.zone)
