"""First page: whether anything is wrong, what is paid, and why each job has what it has."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response

from autoscaler.service.access.gate import Requester
from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.jobs.views import Views
from autoscaler.service.pages.rendering import Pages
from autoscaler.service.routes.permits import Permit
from autoscaler.store.store import Store


def fleet_router(pages: Pages, store: Store, views: Views) -> APIRouter:
    """Return the first page."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    def fleet(
        request: Request, requester: Requester = Depends(Permit(AccessAction.READ))
    ) -> Response:
        return pages.page(request, "fleet.html", requester)

    return router
