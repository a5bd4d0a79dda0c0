"""Routes for stored measurements of programs."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request

from autoscaler.domain.program import ProgramMemory
from autoscaler.service.access.gate import Requester
from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.jobs.submissions import Submissions, unknown_program
from autoscaler.service.routes.bodies import JsonResponse, NoContent, json_response
from autoscaler.service.routes.pages import PageQuery, page_query, page_response
from autoscaler.service.routes.permits import Permit
from autoscaler.store.store import Store


def programs_router(store: Store, submissions: Submissions) -> APIRouter:
    """Return the routes for stored measurements of programs."""
    router = APIRouter(prefix="/v1/programs")

    @router.get("", dependencies=[Depends(Permit(AccessAction.READ))])
    def all_programs(
        request: Request, page: PageQuery = Depends(page_query)
    ) -> JsonResponse[tuple[ProgramMemory, ...]]:
        """List the stored measurements of all programs, by name."""
        memories = sorted(store.programs.all(), key=lambda memory: memory.program)
        part, cursor = page.part(memories, "programs", lambda memory: memory.program)
        return page_response(tuple[ProgramMemory, ...], part, request, cursor)

    @router.get("/{name}", dependencies=[Depends(Permit(AccessAction.READ))])
    def one_program(name: str) -> JsonResponse[ProgramMemory]:
        """Return the stored measurements of a program."""
        memory = store.programs.recall(name)
        if memory is None:
            raise unknown_program(name)
        return json_response(ProgramMemory, memory)

    @router.delete("/{name}")
    def forget(
        name: str, requester: Requester = Depends(Permit(AccessAction.FORGET_PROGRAM))
    ) -> NoContent:
        """Delete the stored measurements of a program."""
        submissions.forget_program(name, requester.identity.person)
        requester.record(name)
        return NoContent()

    return router
