"""Table of shared budgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

from rich.table import Table

from autoscaler.cli.tables import words_table
from autoscaler.wire.budget_messages import BudgetView

_Cell = Callable[[BudgetView], str]


def budgets_table(budgets: Sequence[BudgetView]) -> Table:
    """Return a table with a row for each budget; columns that none of them uses are left out."""
    columns: dict[str, _Cell] = {
        "this month": _month,
        "pace": _pace,
        "expected": _band,
        "in all": lambda view: _of(view.spent_total_usd, view.total_usd),
        "now": _now,
        "weight": lambda view: f"{view.dollar_weight:.3g}",
    }
    used = {
        heading: cell
        for heading, cell in columns.items()
        if any(cell(view) != "-" for view in budgets)
    }
    table = words_table("budget", *used, right=used)
    for view in budgets:
        table.add_row(view.scope, *(cell(view) for cell in used.values()))
    return table


def _month(view: BudgetView) -> str:
    return _of(view.spent_month_usd, view.month_usd)


def _pace(view: BudgetView) -> str:
    return "-" if view.pace_usd_per_hour is None else f"${view.pace_usd_per_hour:,.2f}/h"


def _now(view: BudgetView) -> str:
    limit = "" if view.hourly_usd is None else f" of {view.hourly_usd:,.2f}"
    return f"${view.usd_per_hour:,.2f}/h{limit}"


def _band(view: BudgetView) -> str:
    low, high = view.expected_low_usd, view.expected_high_usd
    if low is None or high is None:
        return "-"
    return f"${low:,.0f}" if f"{low:.0f}" == f"{high:.0f}" else f"${low:,.0f} to {high:,.0f}"


def _of(spent: Decimal | None, limit: Decimal | None) -> str:
    return "-" if limit is None or spent is None else f"${spent:,.2f} of {limit:,.2f}"
