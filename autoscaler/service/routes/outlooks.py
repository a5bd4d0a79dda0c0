"""Routes of a submitted job's history and predictions."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Query

from autoscaler.domain.job import JobRecord
from autoscaler.domain.job_names import meant_job
from autoscaler.domain.rules import LATEST_SECONDS
from autoscaler.service.access.gate import Requester
from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.jobs.histories import MOST_POINTS, Histories
from autoscaler.service.jobs.outlooks import Outlooks
from autoscaler.service.routes.bodies import Body, JsonResponse, json_response
from autoscaler.service.routes.permits import Permit
from autoscaler.store.store import Store
from autoscaler.wire.outlook_messages import (
    CurveView,
    HistoryView,
    Hypothesis,
    OutlookView,
    WhatIfView,
)


def outlooks_router(outlooks: Outlooks, histories: Histories, store: Store) -> APIRouter:
    """Return the routes of histories, curves, outlooks and hypothetical objectives."""
    router = APIRouter(prefix="/v1/jobs/{name}")

    def meant(name: str, requester: Requester) -> JobRecord:
        return meant_job(store.jobs.named(name), requester.identity)

    @router.get("/history")
    def history(
        name: str,
        since_seconds: float = Query(default=0.0, ge=0.0, le=LATEST_SECONDS),
        points: int = Query(default=300, ge=2, le=MOST_POINTS),
        requester: Requester = Depends(Permit(AccessAction.READ)),
    ) -> JsonResponse[HistoryView]:
        """Return series of a job over time on one axis, and its decisions."""
        view = histories.of(meant(name, requester), since_seconds, points)
        return json_response(HistoryView, view)

    @router.get("/curve")
    def curve(
        name: str, requester: Requester = Depends(Permit(AccessAction.READ))
    ) -> JsonResponse[CurveView]:
        """Return the goodput that a job's model predicts for each size."""
        return json_response(CurveView, outlooks.curve(meant(name, requester)))

    @router.get("/outlook")
    def outlook(
        name: str, requester: Requester = Depends(Permit(AccessAction.READ))
    ) -> JsonResponse[OutlookView]:
        """Return the predicted finish and cost of a running job."""
        return json_response(OutlookView, outlooks.outlook(meant(name, requester)))

    @router.post("/what-if")
    def what_if(
        name: str,
        requester: Requester = Depends(Permit(AccessAction.READ)),
        assumed: Hypothesis = Depends(Body(Hypothesis)),
    ) -> JsonResponse[WhatIfView]:
        """Return what would change for a running job with another objective or other bounds."""
        view = outlooks.what_if(meant(name, requester), assumed)
        return json_response(WhatIfView, view)

    return router
