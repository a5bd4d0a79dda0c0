"""Routes of studies, for drivers and for the agents that run trials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import FileResponse

from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.rules import LATEST_SECONDS
from autoscaler.domain.study_rules import MOST_NUMBER
from autoscaler.domain.study_stay import StudyStay
from autoscaler.domain.trial import StudyStop, TrialAnswer, WaitingCall
from autoscaler.service.routes.bodies import Body, json_response
from autoscaler.service.studies.studies import Studies
from autoscaler.wire.study_messages import (
    StudyAnswers,
    StudyBudget,
    StudyLease,
    StudyStatement,
    StudyView,
    TrialCalls,
)

_LONGEST_WAIT_SECONDS = 25.0


def drivers_router(studies: Studies, person: Callable[..., Any]) -> APIRouter:
    """Return the routes for drivers and users of studies."""
    router = APIRouter(prefix="/v1/studies/{study}", dependencies=[Depends(person)])

    @router.get("")
    def view(study: str) -> Response:
        return json_response(StudyView, studies.view(study))

    @router.get("/stays")
    def stays(study: str) -> Response:
        return json_response(tuple[StudyStay, ...], studies.stays(study))

    @router.post("/budget")
    def set_budget(study: str, wanted: StudyBudget = Depends(Body(StudyBudget))) -> Response:
        studies.set_budget(study, wanted.budget_usd)
        return Response(status_code=204)

    @router.post("/lease")
    def lease(study: str, wanted: StudyLease = Depends(Body(StudyLease))) -> Response:
        return json_response(StudyStop, studies.lease(study, wanted))

    @router.delete("/lease")
    def leave(study: str, holder: str) -> Response:
        studies.leave(study, holder)
        return Response(status_code=204)

    @router.post("/terms")
    def state(study: str, statement: StudyStatement = Depends(Body(StudyStatement))) -> Response:
        studies.state(study, statement)
        return Response(status_code=204)

    @router.post("/stop")
    def stop(study: str, at_once: bool) -> Response:
        studies.stop(study, at_once)
        return Response(status_code=204)

    @router.get("/calls")
    async def calls(
        study: str,
        holder: str,
        wait_seconds: float = Query(default=0.0, ge=0.0, le=_LONGEST_WAIT_SECONDS),
        beyond: int = Query(default=0, ge=0, le=MOST_NUMBER),
    ) -> Response:
        waiting = await studies.calls(study, holder, wait_seconds, beyond)
        return json_response(tuple[WaitingCall, ...], waiting)

    @router.post("/answers")
    async def give(
        study: str,
        given: StudyAnswers = Depends(Body(StudyAnswers)),
        wait_seconds: float = Query(default=0.0, ge=0.0, le=_LONGEST_WAIT_SECONDS),
        beyond: int = Query(default=0, ge=0, le=MOST_NUMBER),
    ) -> Response:
        waiting = await studies.answer(study, given, wait_seconds, beyond)
        return json_response(tuple[WaitingCall, ...], waiting)

    return router


def study_files_router(studies: Studies, person: Callable[..., Any]) -> APIRouter:
    """Return the routes for uploaded files and checkpoints of a study's trials."""
    router = APIRouter(prefix="/v1/studies/{study}", dependencies=[Depends(person)])

    @router.get("/files/{sha256}")
    def file(study: str, sha256: str) -> FileResponse:
        return FileResponse(studies.file(study, sha256))

    @router.delete("/files/{sha256}")
    def remove_file(study: str, sha256: str) -> Response:
        studies.remove_file(study, sha256)
        return Response(status_code=204)

    @router.post("/checkpoints/removal")
    def remove_checkpoints(
        study: str, trials: tuple[str, ...] = Depends(Body(tuple[str, ...]))
    ) -> Response:
        return json_response(int, studies.remove_checkpoints(study, trials))

    return router


def trials_router(studies: Studies, node: Callable[..., HeldInstance]) -> APIRouter:
    """Return the routes for the agents that run trials."""
    router = APIRouter(prefix="/trial")

    @router.post("")
    def begin(
        started_seconds: float = Query(ge=0, le=LATEST_SECONDS),
        job: str | None = None,
        held: HeldInstance = Depends(node),
    ) -> Response:
        return json_response(int, studies.begin(held, job, started_seconds))

    @router.post("/calls")
    async def tell(
        received: TrialCalls = Depends(Body(TrialCalls)),
        after: int = Query(default=0, ge=0, le=MOST_NUMBER),
        wait_seconds: float = Query(default=0.0, ge=0.0, le=_LONGEST_WAIT_SECONDS),
        held: HeldInstance = Depends(node),
    ) -> Response:
        given = await studies.tell(held, received, after, wait_seconds)
        return json_response(tuple[TrialAnswer, ...], given)

    @router.put("/files/{sha256}")
    async def put_file(
        sha256: str, request: Request, held: HeldInstance = Depends(node)
    ) -> Response:
        await studies.receive(held, sha256, request.stream())
        return Response(status_code=201)

    @router.get("/answers")
    async def answers(
        incarnation: int = Query(ge=0, le=MOST_NUMBER),
        after: int = Query(ge=0, le=MOST_NUMBER),
        job: str | None = None,
        wait_seconds: float = Query(default=0.0, ge=0.0, le=_LONGEST_WAIT_SECONDS),
        held: HeldInstance = Depends(node),
    ) -> Response:
        given = await studies.answers(held, job, incarnation, after, wait_seconds)
        return json_response(tuple[TrialAnswer, ...], given)

    return router
