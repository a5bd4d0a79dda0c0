"""Forms that change the whole fleet: freeze, unfreeze, drain."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse

from autoscaler.service.access.gate import Requester
from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.jobs.submissions import Submissions
from autoscaler.service.pages.forms import PageForm
from autoscaler.service.pages.job_actions import SEE_OTHER
from autoscaler.service.pages.rendering import HEADERS, Pages
from autoscaler.service.routes.permits import Permit
from autoscaler.service.threads import in_stop_thread
from autoscaler.store.store import Store

_FLEET = "fleet"


def fleet_actions_router(pages: Pages, submissions: Submissions, store: Store) -> APIRouter:
    """Return the forms of the fleet. Draining is confirmed on a page of its own."""
    router = APIRouter(prefix="/fleet", include_in_schema=False)

    async def switch(requester: Requester, change: Callable[[str], None], done: str) -> Response:
        def carry_out() -> Response:
            change(requester.identity.person)
            requester.record(_FLEET)
            return _to_fleet(done)

        return await in_stop_thread(carry_out)

    @router.post("/freeze", dependencies=[Depends(PageForm())])
    async def freeze(requester: Requester = Depends(Permit(AccessAction.FREEZE))) -> Response:
        return await switch(requester, submissions.freeze, "frozen")

    @router.post("/unfreeze", dependencies=[Depends(PageForm())])
    async def unfreeze(requester: Requester = Depends(Permit(AccessAction.UNFREEZE))) -> Response:
        return await switch(requester, submissions.unfreeze, "unfrozen")

    @router.get("/drain")
    def ask_drain(
        request: Request, requester: Requester = Depends(Permit(AccessAction.DRAIN))
    ) -> Response:
        alive = len(store.jobs.alive())
        return pages.page(request, "drain.html", requester, alive=alive)

    @router.post("/drain", dependencies=[Depends(PageForm())])
    async def drain(requester: Requester = Depends(Permit(AccessAction.DRAIN))) -> Response:
        return await switch(requester, submissions.drain, "drained")

    return router


def _to_fleet(done: str) -> Response:
    return RedirectResponse(f"/?done={done}", SEE_OTHER, HEADERS)
