"""Routes for shared budgets."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request

from autoscaler.service.access.gate import Requester
from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.jobs.budgets import SharedBudgets
from autoscaler.service.routes.bodies import Body, JsonResponse, NoContent, json_response
from autoscaler.service.routes.pages import PageQuery, page_query, page_response
from autoscaler.service.routes.permits import Permit
from autoscaler.service.versions import Precondition, etag, precondition
from autoscaler.wire.budget_messages import BudgetRequest, BudgetView


def budgets_router(budgets: SharedBudgets) -> APIRouter:
    """Return the routes for the budgets of people, teams, studies and the fleet."""
    router = APIRouter(prefix="/v1/budgets")

    @router.get("", dependencies=[Depends(Permit(AccessAction.READ))])
    def all_budgets(
        request: Request, page: PageQuery = Depends(page_query)
    ) -> JsonResponse[tuple[BudgetView, ...]]:
        """List all budgets with their spending, pace and weight of a dollar, by scope."""
        views = sorted(budgets.views(), key=lambda view: view.scope)
        part, cursor = page.part(views, "budgets", lambda view: view.scope)
        return page_response(tuple[BudgetView, ...], part, request, cursor)

    @router.get("/{scope}", dependencies=[Depends(Permit(AccessAction.READ))])
    def one_budget(scope: str) -> JsonResponse[BudgetView]:
        """Return the budget of a scope with its spending."""
        return _versioned(budgets.view(scope))

    @router.put("/{scope}")
    def put(
        scope: str,
        requester: Requester = Depends(Permit(AccessAction.SET_BUDGET)),
        wanted: BudgetRequest = Depends(Body(BudgetRequest)),
        required: Precondition = Depends(precondition),
    ) -> JsonResponse[BudgetView]:
        """Set the budget of a scope, in place of all its earlier limits."""
        before, after, view = budgets.put(scope, wanted, required.of_budget)
        requester.record(view.scope, "" if before is None else before.text, after.text)
        return _versioned(view)

    @router.delete("/{scope}")
    def remove(
        scope: str,
        requester: Requester = Depends(Permit(AccessAction.REMOVE_BUDGET)),
        required: Precondition = Depends(precondition),
    ) -> NoContent:
        """Remove the budget of a scope."""
        before = budgets.remove(scope, required.of_budget)
        requester.record(str(before.scope), before.text)
        return NoContent()

    return router


def _versioned(view: BudgetView) -> JsonResponse[BudgetView]:
    """Return a response with a budget, and its version in the header."""
    response = json_response(BudgetView, view)
    response.headers["ETag"] = etag(view.version)
    return response
