"""Pages of costs: by day, person, offer and job, and what other rules would have paid.

Sums over a large ledger and replays of journals are made beside the requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from fastapi import APIRouter, Depends, Request, Response

from autoscaler.clock import Clock
from autoscaler.controller.predict.counterfactual import (
    BEST_POOL,
    OWN_RULE,
)
from autoscaler.domain.access import NO_TEAM
from autoscaler.domain.errors import Conflict
from autoscaler.domain.job_names import meant_job
from autoscaler.ledger.reconciliation import TOLERANCE_TEXT, Comparison
from autoscaler.service.access.gate import Requester
from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.jobs.bills import CloudBills, settled_instances
from autoscaler.service.jobs.budgets import SharedBudgets
from autoscaler.service.jobs.receipts import Receipts
from autoscaler.service.jobs.views import Views
from autoscaler.service.pages.background import Background
from autoscaler.service.pages.rendering import Pages
from autoscaler.service.pages.table_order import Column, OrderedTable
from autoscaler.service.routes.permits import Permit
from autoscaler.store.store import Store
from autoscaler.wire.budget_messages import BudgetView
from autoscaler.wire.cost_messages import (
    AlternativeView,
    BillComparisonView,
    CounterfactualView,
)
from autoscaler.wire.messages import CostView

_DAYS: Final = 30
_ROWS: Final = 50
_REPLAYED_ROWS: Final = 10
_FRESH_SECONDS: Final = 5.0
# A replay of a run that goes on says little more a few minutes later.
_REPLAY_FRESH_SECONDS: Final = 600.0
_LONGEST_WAIT_SECONDS: Final = 0.2
_REFRESH_SECONDS: Final = 3


@dataclass(frozen=True, slots=True)
class CostBar:
    """Amount of a name, and its share of the greatest one for a bar."""

    name: str
    usd: Decimal
    share: float


@dataclass(frozen=True, slots=True)
class ReplayedBill:
    """Bills of a job under other rules, or why there are none. Both None: not worked out yet."""

    job: str
    usd: Decimal
    view: CounterfactualView | None = None
    problem: str | None = None

    def line(self, name: str) -> AlternativeView | None:
        """Return the line of a rule; None if there is none, or the rule can't plan the run."""
        lines = () if self.view is None else self.view.alternatives
        return next((line for line in lines if line.name == name and line.usd is not None), None)

    @property
    def own_rule(self) -> AlternativeView | None:
        """Line of Castor's own rule."""
        return self.line(OWN_RULE)

    @property
    def best_pool(self) -> AlternativeView | None:
        """Line of the best fixed pool that is no later."""
        return self.line(BEST_POOL)


@dataclass(frozen=True, slots=True)
class BillTable:
    """Comparison of the ledger with a cloud's bill, with the sums of its settled days."""

    view: BillComparisonView

    @property
    def settled(self) -> Comparison | None:
        """Sums of instances over the settled days; None if no day is settled."""
        return settled_instances(self.view.comparison)

    @property
    def beside_usd(self) -> Decimal:
        """Sum of what the ledger does not track, over the settled days."""
        days = (day for day in self.view.comparison.days if day.is_settled)
        return sum((day.beside_usd for day in days), Decimal(0))


def used_share(budget: BudgetView) -> float | None:
    """Return the share of the limit that is used: of the month, or else of all; None: neither."""
    for limit_usd, spent_usd in (
        (budget.month_usd, budget.spent_month_usd),
        (budget.total_usd, budget.spent_total_usd),
    ):
        if limit_usd and spent_usd is not None:
            return float(spent_usd / limit_usd)
    return None


def _median_usd(line: AlternativeView | None) -> float | None:
    return None if line is None or line.usd is None else line.usd.median


def _amounts(parameter: str) -> OrderedTable[CostBar]:
    """Return the orders of a table of amounts."""
    return OrderedTable(
        parameter,
        (
            Column("name", lambda bar: bar.name),
            Column("spent", lambda bar: bar.usd, begins_high=True),
        ),
        usual="-spent",
    )


BUDGETS: Final[OrderedTable[BudgetView]] = OrderedTable(
    "budgets",
    (
        Column("of", lambda budget: budget.scope),
        Column("used", used_share, begins_high=True),
        Column("paid", lambda budget: budget.usd_per_hour, begins_high=True),
        Column("lasts", lambda budget: budget.pace_usd_per_hour, begins_high=True),
        Column("expected", lambda budget: budget.expected_high_usd, begins_high=True),
        Column(
            "state",
            lambda budget: (budget.used_up is not None, budget.dollar_weight),
            begins_high=True,
        ),
    ),
    usual="of",
)
REPLAYED: Final[OrderedTable[ReplayedBill]] = OrderedTable(
    "rules",
    (
        Column("job", lambda bill: bill.job),
        Column("billed", lambda bill: bill.usd, begins_high=True),
        Column("own", lambda bill: _median_usd(bill.own_rule), begins_high=True),
        Column("pool", lambda bill: _median_usd(bill.best_pool), begins_high=True),
    ),
    usual="-billed",
)
TABLES: Final[tuple[OrderedTable[Any], ...]] = (
    BUDGETS,
    *(_amounts(parameter) for parameter in ("persons", "teams", "offers", "jobs")),
    REPLAYED,
)
"""Tables of the page of costs whose order its address states, each by a parameter of its own."""


@dataclass(frozen=True, slots=True)
class CostSources:
    """Components that the pages of costs read."""

    store: Store
    views: Views
    receipts: Receipts
    budgets: SharedBudgets
    bills: CloudBills
    clock: Clock


class CostPages:
    """Contents of the pages of costs."""

    def __init__(self, sources: CostSources) -> None:
        self._sources = sources
        clock = sources.clock
        sums = ThreadPoolExecutor(1, thread_name_prefix="castor-costs")
        replays = ThreadPoolExecutor(1, thread_name_prefix="castor-replays")
        self._sums = Background[str, tuple[float, CostView]](
            lambda key: self._added_up(), _FRESH_SECONDS, sums, clock
        )
        self._replays = Background[tuple[str, str], CounterfactualView | str](
            self._replay, _REPLAY_FRESH_SECONDS, replays, clock
        )

    def values(self) -> dict[str, Any]:
        """Return the values of the template; `view` is None until all is added up once."""
        sources = self._sources
        known = self._sums.get(sources.views.controller(), _LONGEST_WAIT_SECONDS)
        as_of_seconds, view = (sources.clock.now(), None) if known is None else known
        budgets = sources.budgets.views()
        common: dict[str, Any] = {
            "view": view,
            "as_of_seconds": as_of_seconds,
            "budgets": budgets,
            "used_share": used_share,
            "rows": _ROWS,
            "tolerance": TOLERANCE_TEXT,
            "bills": [BillTable(known) for known in sources.bills.views()],
        }
        if view is None:
            return common
        today = datetime.fromtimestamp(sources.clock.now(), UTC).date()
        days = [today - timedelta(days=back) for back in reversed(range(_DAYS))]
        by_day = {day.isoformat(): view.by_day.get(day.isoformat(), Decimal(0)) for day in days}
        jobs = bars(view.by_job)
        return common | {
            "days": list(by_day.items()),
            "greatest_day": max(by_day.values(), default=Decimal(0)),
            "persons": bars(view.by_person),
            "teams": bars(view.by_team) if set(view.by_team) - {NO_TEAM} else (),
            "jobs": jobs,
            "offers": bars(view.by_offer),
            "months": sorted(view.by_month.items(), reverse=True),
            "replayed": [self._known(bar) for bar in jobs[:_REPLAYED_ROWS] if bar.usd],
        }

    def replayed(self, job: str) -> CounterfactualView | str | None:
        """Return the bills of a job under other rules, or why there are none; None: not yet."""
        return self._replays.get((self._sources.views.controller(), job), _LONGEST_WAIT_SECONDS)

    def _added_up(self) -> tuple[float, CostView]:
        """Return the time, and the costs until then."""
        now_seconds = self._sources.clock.now()
        return now_seconds, self._sources.views.costs(now_seconds)

    def _known(self, bar: CostBar) -> ReplayedBill:
        known = self._replays.last((self._sources.views.controller(), bar.name))
        if isinstance(known, str):
            return ReplayedBill(bar.name, bar.usd, problem=known)
        return ReplayedBill(bar.name, bar.usd, known)

    def _replay(self, key: tuple[str, str]) -> CounterfactualView | str:
        sources = self._sources
        try:
            return sources.receipts.counterfactual(
                sources.store.jobs.get(key[1]), sources.clock.now()
            )
        except Conflict as error:
            return str(error)


def costs_router(pages: Pages, content: CostPages, store: Store) -> APIRouter:
    """Return the pages of costs."""
    router = APIRouter(include_in_schema=False)

    @router.get("/costs")
    def costs(
        request: Request, requester: Requester = Depends(Permit(AccessAction.READ))
    ) -> Response:
        orders = {table.parameter: table.order(request) for table in TABLES}
        values = content.values()
        response = pages.page(request, "costs.html", requester, orders=orders, **values)
        return response if values["view"] is not None else _again(response)

    @router.get("/jobs/{name}/counterfactual")
    def counterfactual(
        request: Request, name: str, requester: Requester = Depends(Permit(AccessAction.READ))
    ) -> Response:
        job = meant_job(store.jobs.named(name), requester.identity)
        known = content.replayed(job.id)
        response = pages.page(
            request,
            "counterfactual.html",
            requester,
            job=job.id,
            view=None if isinstance(known, str) else known,
            problem=known if isinstance(known, str) else "",
        )
        return response if known is not None else _again(response)

    return router


def _again(response: Response) -> Response:
    """Return a page that loads again by itself."""
    response.headers["Refresh"] = str(_REFRESH_SECONDS)
    return response


def bars(amounts: Mapping[str, Decimal]) -> list[CostBar]:
    """Return amounts with bars, the greatest first."""
    greatest = max(amounts.values(), default=Decimal(0))
    ordered = sorted(amounts.items(), key=lambda item: (-item[1], item[0]))
    return [
        CostBar(name, usd, float(usd / greatest) if greatest > 0 else 0.0) for name, usd in ordered
    ]
