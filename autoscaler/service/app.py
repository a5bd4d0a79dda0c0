"""The HTTP API. Everything refuses without a token, on loopback too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException

from autoscaler.clock import Clock
from autoscaler.controller.predict.forecasts import FixedSize
from autoscaler.controller.predict.what_if import WhatIf
from autoscaler.domain import errors
from autoscaler.domain.errors import CastorError, NotAllowed, NotFound, SpecError
from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobRecord, JobSpec
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.spending import DailyCost
from autoscaler.domain.storage import StorageGrant
from autoscaler.domain.text import printable
from autoscaler.service.access.authentication import NO_TOKEN, Authentication
from autoscaler.service.access.request_gate import Door
from autoscaler.service.files.logs import Logs
from autoscaler.service.files.uploads import Bundles
from autoscaler.service.instances.nodes import Nodes
from autoscaler.service.jobs.plans import plan_view
from autoscaler.service.jobs.results import Results
from autoscaler.service.jobs.submissions import Submissions, nothing_remembered
from autoscaler.service.jobs.views import Views, decision_view, forecast_view
from autoscaler.service.routes.bodies import Body, answer
from autoscaler.service.routes.results import results_router
from autoscaler.service.routes.studies import drivers_router, trials_router
from autoscaler.service.routes.study_files import study_files_router
from autoscaler.service.studies.studies import Studies, require_held
from autoscaler.store.store import Store
from autoscaler.wire.codec import encode
from autoscaler.wire.messages import (
    Assignment,
    Change,
    CostView,
    DecisionView,
    Fault,
    FleetView,
    ForecastView,
    Invitation,
    JobView,
    JoinReply,
    JoinRequest,
    LogPart,
    NodeReply,
    OffersView,
    Resumption,
    Submission,
)
from autoscaler.wire.node_reports import read_node_report
from autoscaler.wire.plan_messages import PlanView

_LONGEST_WAIT_SECONDS = 25.0
_LARGEST_OFFSET = 1 << 53
_TOO_LARGE = 413
_STATUS: dict[type[CastorError], int] = {
    errors.NotAllowed: 401,
    errors.UnknownJob: 404,
    errors.UnknownInstance: 404,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.SpecError: 422,
    errors.Unavailable: 503,
    errors.StoreError: 503,
    errors.ProviderError: 503,
}


@dataclass(frozen=True, slots=True)
class ServiceDependencies:
    """What the API gives access to."""

    store: Store
    authentication: Authentication
    submissions: Submissions
    nodes: Nodes
    studies: Studies
    views: Views
    bundles: Bundles
    logs: Logs
    results: Results
    fixed_sizes: Callable[[str], tuple[FixedSize, ...]]
    what_if: Callable[[JobSpec], WhatIf]
    clock: Clock


def create_app(rooms: ServiceDependencies, version: str) -> FastAPI:
    """The application over these rooms."""
    app = FastAPI(title="Castor", version=version, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(CastorError, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_malformed)
    app.add_exception_handler(HTTPException, _refuse_unknown)
    bearer = HTTPBearer(auto_error=False)

    # Where nothing blocks, no thread is used: on a busy machine each costs a wait of its own.
    async def token(credentials: HTTPAuthorizationCredentials | None = Depends(bearer)) -> str:
        if credentials is None:
            raise NotAllowed(NO_TOKEN)
        return credentials.credentials

    async def person(presented: str = Depends(token)) -> str:
        known = rooms.authentication.known_person(presented)
        if known is not None:
            return known
        return await run_in_threadpool(rooms.authentication.person, presented)

    async def require_known(path: str, presented: str | None) -> None:
        if not rooms.authentication.recognises(path, presented):
            await run_in_threadpool(rooms.authentication.require_known, path, presented)

    app.include_router(_jobs(rooms, person))
    app.include_router(results_router(rooms.store, rooms.results, person))
    app.include_router(_fleet(rooms, person))
    app.include_router(_programs(rooms, person))
    app.include_router(drivers_router(rooms.studies, person))
    app.include_router(study_files_router(rooms.studies, person))
    app.include_router(_nodes(rooms, token))
    app.add_middleware(Door, check=require_known, refuse=_refusal)
    return app


def _jobs(rooms: ServiceDependencies, person: Callable[..., Any]) -> APIRouter:
    """What people do with jobs."""
    router = APIRouter(prefix="/v1/jobs", dependencies=[Depends(person)])

    def view(job: JobRecord, with_events: bool = False) -> Response:
        return answer(JobView, rooms.views.job(job, rooms.clock.now(), with_events))

    @router.post("")
    def submit(
        submission: Submission = Depends(Body(Submission)), who: str = Depends(person)
    ) -> Response:
        return view(rooms.submissions.submit(submission.spec, who))

    @router.get("")
    def all_jobs(include_ended: bool = True) -> Response:
        jobs = rooms.store.jobs.all() if include_ended else rooms.store.jobs.alive()
        now_seconds = rooms.clock.now()
        views = tuple(rooms.views.job(job, now_seconds) for job in reversed(jobs))
        return answer(tuple[JobView, ...], views)

    @router.get("/{name}")
    def one_job(name: str) -> Response:
        return view(rooms.store.jobs.find(name), with_events=True)

    @router.patch("/{name}")
    def change(
        name: str, change: Change = Depends(Body(Change)), who: str = Depends(person)
    ) -> Response:
        return view(rooms.submissions.change(name, change, who))

    @router.post("/{name}/stop")
    def stop(name: str, who: str = Depends(person)) -> Response:
        return view(rooms.submissions.stop(name, who))

    @router.post("/{name}/resume")
    def resume(
        name: str,
        resumption: Resumption = Depends(Body(Resumption)),
        who: str = Depends(person),
    ) -> Response:
        return view(rooms.submissions.resume(name, resumption, who))

    @router.get("/{name}/decisions")
    def decisions(name: str, limit: int = Query(default=100, ge=1, le=10_000)) -> Response:
        job = rooms.store.jobs.find(name)
        entries = rooms.store.journal.decisions(job.id, limit)
        return answer(tuple[DecisionView, ...], tuple(decision_view(each) for each in entries))

    @router.get("/{name}/forecast")
    def forecast(name: str) -> Response:
        job = rooms.store.jobs.find(name)
        sizes = rooms.fixed_sizes(job.id)
        return answer(tuple[ForecastView, ...], tuple(forecast_view(each) for each in sizes))

    @router.post("/{name}/logs")
    def logs(name: str, offsets: dict[str, int] = Depends(Body(dict[str, int]))) -> Response:
        job = rooms.store.jobs.find(name)
        return answer(tuple[LogPart, ...], rooms.logs.read(job.id, offsets))

    return router


def _fleet(rooms: ServiceDependencies, person: Callable[..., Any]) -> APIRouter:
    """What people ask of the whole, and the bundles they upload."""
    router = APIRouter(prefix="/v1", dependencies=[Depends(person)])

    @router.get("/fleet")
    def fleet() -> Response:
        return answer(FleetView, rooms.views.fleet(rooms.clock.now()))

    @router.get("/offers")
    def offers() -> Response:
        return answer(OffersView, rooms.views.offers(rooms.clock.now()))

    @router.get("/costs")
    def costs() -> Response:
        return answer(CostView, rooms.views.costs(rooms.clock.now()))

    @router.get("/costs/days")
    def daily_costs(first: date, last: date) -> Response:
        costs = rooms.views.daily_costs(first, last, rooms.clock.now())
        return answer(tuple[DailyCost, ...], costs)

    @router.post("/people/{name}")
    def invite(name: str, who: str = Depends(person)) -> Response:
        return answer(Invitation, Invitation(name, rooms.authentication.invite(name, who)))

    @router.post("/freeze")
    def freeze(who: str = Depends(person)) -> Response:
        rooms.submissions.freeze(who)
        return Response(status_code=204)

    @router.post("/unfreeze")
    def unfreeze(who: str = Depends(person)) -> Response:
        rooms.submissions.unfreeze(who)
        return Response(status_code=204)

    @router.post("/drain")
    def drain(who: str = Depends(person)) -> Response:
        rooms.submissions.drain(who)
        return Response(status_code=204)

    @router.post("/plans")
    def plan(submission: Submission = Depends(Body(Submission))) -> Response:
        spec = rooms.submissions.submitted(submission.spec)
        return answer(PlanView, plan_view(spec, rooms.what_if(spec)))

    @router.head("/bundles/{sha256}")
    def has_bundle(sha256: str) -> Response:
        rooms.bundles.path(sha256)
        return Response()

    @router.put("/bundles/{sha256}")
    async def put_bundle(sha256: str, request: Request) -> Response:
        await rooms.bundles.receive(sha256, request.stream())
        return Response(status_code=201)

    return router


def _programs(rooms: ServiceDependencies, person: Callable[..., Any]) -> APIRouter:
    """What people ask of the memories of programs."""
    router = APIRouter(prefix="/v1/programs", dependencies=[Depends(person)])

    @router.get("")
    def all_programs() -> Response:
        return answer(tuple[ProgramMemory, ...], rooms.store.programs.all())

    @router.get("/{name}")
    def one_program(name: str) -> Response:
        memory = rooms.store.programs.recall(name)
        if memory is None:
            raise nothing_remembered(name)
        return answer(ProgramMemory, memory)

    @router.delete("/{name}")
    def forget(name: str, who: str = Depends(person)) -> Response:
        rooms.submissions.forget_program(name, who)
        return Response(status_code=204)

    return router


def _nodes(rooms: ServiceDependencies, token: Callable[..., Any]) -> APIRouter:
    """What node agents do."""
    router = APIRouter(prefix="/v1/node")

    def node(presented: str = Depends(token)) -> HeldInstance:
        return rooms.authentication.node(presented)

    def working(presented: str = Depends(token)) -> HeldInstance:
        return rooms.authentication.working_node(presented)

    def writing(presented: str = Depends(token)) -> HeldInstance:
        return rooms.authentication.writing_node(presented)

    @router.post("/join")
    def join(request: JoinRequest = Depends(Body(JoinRequest))) -> Response:
        return answer(JoinReply, rooms.nodes.join(request))

    @router.get("/assignment")
    def assignment(held: HeldInstance = Depends(working)) -> Response:
        return answer(Assignment, rooms.nodes.assignment(held))

    @router.get("/grant")
    def grant(job: str | None = None, held: HeldInstance = Depends(working)) -> Response:
        require_held(held, job)
        return answer(StorageGrant, rooms.nodes.grant(held))

    @router.post("/heartbeat")
    async def heartbeat(
        request: Request,
        wait_seconds: float = Query(default=0.0, ge=0.0, le=_LONGEST_WAIT_SECONDS),
        held: HeldInstance = Depends(node),
    ) -> Response:
        report, refused = read_node_report(await request.body())
        reply = await rooms.nodes.converse(held, report, wait_seconds, refused)
        return answer(NodeReply, reply)

    @router.get("/bundle")
    def bundle(held: HeldInstance = Depends(working)) -> FileResponse:
        job = rooms.store.jobs.get(held.job)
        if job.spec.bundle is None:
            raise NotFound(f"job {job.id} has no working directory")
        return FileResponse(rooms.bundles.path(job.spec.bundle))

    @router.post("/logs")
    async def append_log(
        request: Request,
        offset: int = Query(ge=0, le=_LARGEST_OFFSET),
        job: str | None = None,
        held: HeldInstance = Depends(writing),
    ) -> Response:
        text = await request.body()
        require_held(held, job)
        end = await run_in_threadpool(rooms.logs.append, held.job, held.id, offset, text)
        return answer(int, end)

    router.include_router(trials_router(rooms.studies, working))
    return router


async def _refuse(request: Request, error: Exception) -> Response:
    return _refusal(error)


def _refusal(error: Exception) -> Response:
    """Return the answer that names an error, which the client raises again."""
    status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
    field = error.field if isinstance(error, SpecError) else None
    fault = Fault(type(error).__name__, str(error), field)
    return Response(encode(Fault, fault), status, media_type="application/json")


async def _refuse_malformed(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(printable(str(part)) for part in first["loc"])
    return await _refuse(request, SpecError(first["msg"], place))


async def _refuse_unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = "SpecError" if error.status_code == _TOO_LARGE else "CastorError"
    fault = Fault(kind, f"{request.method} {request.url.path}: {error.detail}")
    return Response(encode(Fault, fault), error.status_code, media_type="application/json")
