"""Routes of studies, for drivers and for the agents that run trials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse

from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.objective import Objective
from autoscaler.domain.rules import LATEST_SECONDS
from autoscaler.domain.study_rules import MOST_NUMBER
from autoscaler.domain.study_stay import StudyStay
from autoscaler.domain.terms import StudyTerms
from autoscaler.domain.trial import StudyStop, TrialAnswer, WaitingCall
from autoscaler.service.access.gate import Requester
from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.access.request_gate import declared_bytes
from autoscaler.service.routes.bodies import Body, Created, JsonResponse, NoContent, json_response
from autoscaler.service.routes.pages import PageQuery, page_query, page_response
from autoscaler.service.routes.permits import Permit
from autoscaler.service.studies.courses import MOST_POINTS
from autoscaler.service.studies.studies import Studies
from autoscaler.service.threads import in_stop_thread
from autoscaler.service.versions import Precondition, etag, precondition
from autoscaler.wire.codec import encode
from autoscaler.wire.study_messages import (
    StudyAnswers,
    StudyBudget,
    StudyHistoryView,
    StudyLease,
    StudyStatement,
    StudySummary,
    StudyView,
    TrialCalls,
)

_LONGEST_WAIT_SECONDS = 25.0
_LONGEST_NAME = 200
Holder = Annotated[str, Query(max_length=_LONGEST_NAME, description="Driver of the study.")]
Driver = Annotated[
    str | None,
    Query(
        max_length=_LONGEST_NAME,
        description="Driver of the job's study that makes the request, which is refused with 409 "
        "if another driver has taken the study's lease since.",
    ),
]
_RENEWS = Query(
    default=False,
    description="Refuse the lease if another driver has held it since the holder did.",
)
JobId = Annotated[
    str | None,
    Query(max_length=_LONGEST_NAME, description="Job of the instance, as its agent knows it."),
]


def study_lists_router(studies: Studies) -> APIRouter:
    """Return the route for the list of studies."""
    router = APIRouter(prefix="/v1/studies")

    @router.get("", dependencies=[Depends(Permit(AccessAction.READ))])
    def every_study(
        request: Request, page: PageQuery = Depends(page_query)
    ) -> JsonResponse[tuple[StudySummary, ...]]:
        """List all studies by name, in pages."""
        names, cursor = page.part(studies.names(), "studies", str)
        summaries = tuple(studies.summary(name) for name in names)
        return page_response(tuple[StudySummary, ...], summaries, request, cursor)

    return router


def studies_router(studies: Studies) -> APIRouter:
    """Return the routes for users of studies."""
    router = APIRouter(prefix="/v1/studies/{study}")

    @router.get("", dependencies=[Depends(Permit(AccessAction.READ))])
    def view(study: str) -> JsonResponse[StudyView]:
        """Return a study with its budget and trials."""
        shown = studies.view(study)
        response = json_response(StudyView, shown)
        if shown.version:
            response.headers["ETag"] = etag(shown.version)
        return response

    @router.get("/stays", dependencies=[Depends(Permit(AccessAction.READ_STAYS))])
    def stays(study: str) -> JsonResponse[tuple[StudyStay, ...]]:
        """List when instances were held for a study, and for which trial."""
        return json_response(tuple[StudyStay, ...], studies.stays(study))

    @router.get("/history", dependencies=[Depends(Permit(AccessAction.READ))])
    def history(
        study: str, points: int = Query(default=300, ge=2, le=MOST_POINTS)
    ) -> JsonResponse[StudyHistoryView]:
        """Return the course of a study: best value by time and cost, rungs, instances."""
        return json_response(StudyHistoryView, studies.history(study, points))

    @router.post("/budget")
    def set_budget(
        study: str,
        requester: Requester = Depends(Permit(AccessAction.CHANGE_STUDY)),
        wanted: StudyBudget = Depends(Body(StudyBudget)),
        required: Precondition = Depends(precondition),
    ) -> NoContent:
        """Set the budget of a study."""
        before = studies.set_budget(study, wanted.budget_usd, required.of_study)
        requester.record(study, budget_text(before), f"${wanted.budget_usd}")
        return NoContent()

    @router.post("/stop")
    async def stop(
        study: str, at_once: bool, requester: Requester = Depends(Permit(AccessAction.STOP_STUDY))
    ) -> NoContent:
        """Begin no more trials of a study; with `at_once` stop those that run, too."""

        def end() -> NoContent:
            studies.stop(study, at_once, requester.identity.person)
            requester.record(study, after=stop_text(at_once))
            return NoContent()

        return await in_stop_thread(end)

    return router


def drivers_router(studies: Studies) -> APIRouter:
    """Return the routes for drivers of studies.

    Messages between a driver and its trials are not audited: its lease and what it ends are.
    """
    router = APIRouter(prefix="/v1/studies/{study}")
    drive = [Depends(Permit(AccessAction.DRIVE_STUDY))]

    @router.post("/lease")
    def lease(
        study: str,
        requester: Requester = Depends(Permit(AccessAction.DRIVE_STUDY)),
        wanted: StudyLease = Depends(Body(StudyLease)),
        renews: bool = _RENEWS,
    ) -> JsonResponse[StudyStop]:
        """Acquire or renew the lease of a study's driver; return whether the study must stop."""
        before = studies.driver(study)
        stop = studies.lease(study, wanted, requester.identity, renews)
        if wanted.holder != before:
            requester.record(study, before or "", wanted.holder)
        return json_response(StudyStop, stop)

    @router.delete("/lease")
    def leave(
        study: str,
        holder: Holder,
        requester: Requester = Depends(Permit(AccessAction.LEAVE_STUDY)),
    ) -> NoContent:
        """Release the lease of a study's driver."""
        before = studies.driver(study)
        studies.leave(study, holder)
        if before == holder:
            requester.record(study, holder)
        return NoContent()

    @router.post("/terms")
    def state(
        study: str,
        requester: Requester = Depends(Permit(AccessAction.STATE_TERMS)),
        statement: StudyStatement = Depends(Body(StudyStatement)),
    ) -> NoContent:
        """Set the terms of a study, and report the progress of its trials."""
        before = studies.terms(study)
        studies.state(study, statement)
        after = studies.terms(study)
        if after is not None and (before is None or before.objective != after.objective):
            requester.record(study, _objective_text(before), _objective_text(after))
        return NoContent()

    @router.get("/calls", dependencies=drive)
    async def calls(
        study: str,
        holder: Holder,
        wait_seconds: float = Query(default=0.0, ge=0.0, le=_LONGEST_WAIT_SECONDS),
        beyond: int = Query(default=0, ge=0, le=MOST_NUMBER),
    ) -> JsonResponse[tuple[WaitingCall, ...]]:
        """List the calls of trials that await answers (long poll)."""
        waiting = await studies.calls(study, holder, wait_seconds, beyond)
        return json_response(tuple[WaitingCall, ...], waiting)

    @router.post("/answers")
    async def give(
        study: str,
        requester: Requester = Depends(Permit(AccessAction.END_TRIALS)),
        given: StudyAnswers = Depends(Body(StudyAnswers)),
        wait_seconds: float = Query(default=0.0, ge=0.0, le=_LONGEST_WAIT_SECONDS),
        beyond: int = Query(default=0, ge=0, le=MOST_NUMBER),
    ) -> JsonResponse[tuple[WaitingCall, ...]]:
        """Answer calls of trials, and end trials; list the calls that await answers then."""
        await studies.answer(study, given)
        if given.ended:
            ended = ", ".join(f"{end.job} {end.ending}" for end in given.ended)
            await run_in_threadpool(requester.record, study, "", ended)
        if not wait_seconds:
            return json_response(tuple[WaitingCall, ...], ())
        waiting = await studies.calls(study, given.holder, wait_seconds, beyond)
        return json_response(tuple[WaitingCall, ...], waiting)

    return router


def budget_text(terms: StudyTerms) -> str:
    """Return the budget of a study as the audit log has it."""
    budget_usd = terms.objective.budget_usd
    return "no budget" if budget_usd is None else f"${budget_usd}"


def stop_text(at_once: bool) -> str:
    """Return the way of a study's stop as the audit log has it."""
    return "at once" if at_once else "after its trials"


def _objective_text(terms: StudyTerms | None) -> str:
    return "" if terms is None else encode(Objective, terms.objective).decode()


def study_files_router(studies: Studies) -> APIRouter:
    """Return the routes for uploaded files and checkpoints of a study's trials."""
    router = APIRouter(prefix="/v1/studies/{study}")
    drive = [Depends(Permit(AccessAction.DRIVE_STUDY))]

    @router.get("/files/{sha256}", dependencies=drive)
    def file(study: str, sha256: str) -> FileResponse:
        """Return a file that a trial uploaded."""
        return FileResponse(studies.file(study, sha256))

    @router.delete("/files/{sha256}", dependencies=drive)
    def remove_file(study: str, sha256: str) -> NoContent:
        """Delete a file that a trial uploaded."""
        studies.remove_file(study, sha256)
        return NoContent()

    @router.post("/checkpoints/removal")
    def remove_checkpoints(
        study: str,
        requester: Requester = Depends(Permit(AccessAction.REMOVE_CHECKPOINTS)),
        trials: tuple[str, ...] = Depends(Body(tuple[str, ...])),
    ) -> JsonResponse[int]:
        """Delete the checkpoints of trials; return how many trials had one."""
        removed = studies.remove_checkpoints(study, trials)
        requester.record(study, ", ".join(trials), f"{removed} removed")
        return json_response(int, removed)

    return router


def trials_router(studies: Studies, node: Callable[..., HeldInstance]) -> APIRouter:
    """Return the routes for the agents that run trials."""
    router = APIRouter(prefix="/trial")

    @router.post("")
    def begin(
        started_seconds: float = Query(ge=0, le=LATEST_SECONDS),
        job: JobId = None,
        held: HeldInstance = Depends(node),
    ) -> JsonResponse[int]:
        """Begin an incarnation of the instance's trial; return its number."""
        return json_response(int, studies.begin(held, job, started_seconds))

    @router.post("/calls")
    async def tell(
        received: TrialCalls = Depends(Body(TrialCalls)),
        after: int = Query(default=0, ge=0, le=MOST_NUMBER),
        wait_seconds: float = Query(default=0.0, ge=0.0, le=_LONGEST_WAIT_SECONDS),
        held: HeldInstance = Depends(node),
    ) -> JsonResponse[tuple[TrialAnswer, ...]]:
        """Send calls of a trial to the driver; list their answers."""
        given = await studies.tell(held, received, after, wait_seconds)
        return json_response(tuple[TrialAnswer, ...], given)

    @router.put("/files/{sha256}")
    async def put_file(
        sha256: str, request: Request, held: HeldInstance = Depends(node)
    ) -> Created:
        """Upload a file of a trial for the driver."""
        await studies.receive(held, sha256, request.stream(), declared_bytes(request.scope))
        return Created()

    @router.get("/answers")
    async def answers(
        incarnation: int = Query(ge=0, le=MOST_NUMBER),
        after: int = Query(ge=0, le=MOST_NUMBER),
        job: JobId = None,
        wait_seconds: float = Query(default=0.0, ge=0.0, le=_LONGEST_WAIT_SECONDS),
        held: HeldInstance = Depends(node),
    ) -> JsonResponse[tuple[TrialAnswer, ...]]:
        """List the answers to calls of a trial (long poll)."""
        given = await studies.answers(held, job, incarnation, after, wait_seconds)
        return json_response(tuple[TrialAnswer, ...], given)

    return router
