"""Routes for costs, receipts of jobs, clouds' bills, and the export of charges."""

from __future__ import annotations

from datetime import date

from fastapi import APIRouter, Depends
from fastapi.responses import StreamingResponse

from autoscaler.clock import Clock
from autoscaler.domain.spending import DailyCost
from autoscaler.service.access.gate import Requester
from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.jobs.bills import CloudBills
from autoscaler.service.jobs.focus_export import FocusExport
from autoscaler.service.jobs.receipts import Receipts
from autoscaler.service.jobs.views import Views
from autoscaler.service.routes.bodies import Body, JsonResponse, json_response
from autoscaler.service.routes.permits import Permit
from autoscaler.wire.cost_messages import (
    BillComparison,
    BillComparisonView,
    CounterfactualView,
    ReceiptView,
)
from autoscaler.wire.messages import CostView


class CsvResponse(StreamingResponse):
    """Response with a CSV file."""

    media_type = "text/csv"


def receipts_router(receipts: Receipts, clock: Clock) -> APIRouter:
    """Return the routes for what single jobs cost."""
    router = APIRouter(prefix="/v1")

    @router.get("/jobs/{name}/receipt")
    def receipt(
        name: str, requester: Requester = Depends(Permit(AccessAction.READ))
    ) -> JsonResponse[ReceiptView]:
        """Return what the dollars and billed seconds of a job were for.

        A resumed job has the sums over its runs so far, too.
        """
        job = receipts.meant(name, requester.identity)
        view = receipts.with_earlier_runs(job, clock.now())
        return json_response(ReceiptView, view)

    @router.get("/jobs/{name}/counterfactual")
    def counterfactual(
        name: str, requester: Requester = Depends(Permit(AccessAction.READ))
    ) -> JsonResponse[CounterfactualView]:
        """Return what a job cost, and what other rules would have paid, as simulated."""
        job = receipts.meant(name, requester.identity)
        return json_response(CounterfactualView, receipts.counterfactual(job, clock.now()))

    return router


def costs_router(views: Views, bills: CloudBills, export: FocusExport, clock: Clock) -> APIRouter:
    """Return the routes for costs."""
    router = APIRouter(prefix="/v1")

    @router.get("/costs", dependencies=[Depends(Permit(AccessAction.READ))])
    def costs() -> JsonResponse[CostView]:
        """Return the spending so far by job, offer, day, month, person and team."""
        return json_response(CostView, views.costs(clock.now()))

    @router.get("/costs/days", dependencies=[Depends(Permit(AccessAction.READ))])
    def daily_costs(first: date, last: date) -> JsonResponse[tuple[DailyCost, ...]]:
        """List the spending by day and offer, of UTC days from `first` to `last` inclusive."""
        costs = views.daily_costs(first, last, clock.now())
        return json_response(tuple[DailyCost, ...], costs)

    @router.get("/costs/bills", dependencies=[Depends(Permit(AccessAction.READ))])
    def compared_bills() -> JsonResponse[tuple[BillComparisonView, ...]]:
        """List the last comparison of the ledger with the bill of each cloud, by provider."""
        return json_response(tuple[BillComparisonView, ...], bills.views())

    @router.put("/costs/bills/{provider}")
    def keep_bill(
        provider: str,
        requester: Requester = Depends(Permit(AccessAction.KEEP_BILL)),
        comparison: BillComparison = Depends(Body(BillComparison)),
    ) -> JsonResponse[BillComparisonView]:
        """Keep a comparison of the ledger with a cloud's bill, in place of the earlier one."""
        view = bills.keep(provider, comparison, requester.identity.person)
        first, last = comparison.days[0].day, comparison.days[-1].day
        requester.record(provider, after=f"{comparison.cloud}, {first} to {last}")
        return json_response(BillComparisonView, view)

    @router.get("/costs/focus", dependencies=[Depends(Permit(AccessAction.READ))])
    def focus(first: date, last: date) -> CsvResponse:
        """Return the charges of UTC days from `first` to `last` as a CSV file in FOCUS 1.2."""
        text = export.csv(first, last, clock.now())
        name = f"castor-focus-{first.isoformat()}-{last.isoformat()}.csv"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return CsvResponse(text, headers=headers)

    return router
