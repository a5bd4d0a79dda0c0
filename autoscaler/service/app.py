"""HTTP API of the controller; every request needs a token, on loopback too."""

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
from autoscaler.service.access.request_gate import RequestGate
from autoscaler.service.files.logs import Logs
from autoscaler.service.files.uploads import Bundles
from autoscaler.service.instances.nodes import Nodes
from autoscaler.service.jobs.plans import plan_view
from autoscaler.service.jobs.results import Results
from autoscaler.service.jobs.submissions import Submissions, unknown_program
from autoscaler.service.jobs.views import Views, decision_view, forecast_view
from autoscaler.service.routes.bodies import Body, json_response
from autoscaler.service.routes.results import results_router
from autoscaler.service.routes.studies import drivers_router, study_files_router, trials_router
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
    """Components that the routes of the API use."""

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


def create_app(dependencies: ServiceDependencies, version: str) -> FastAPI:
    """Return the API application over these components."""
    app = FastAPI(title="Castor", version=version, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(CastorError, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_malformed)
    app.add_exception_handler(HTTPException, _refuse_unknown)
    bearer = HTTPBearer(auto_error=False)

    # Checks that can't block use no thread, since a thread costs latency on a busy machine.
    async def token(credentials: HTTPAuthorizationCredentials | None = Depends(bearer)) -> str:
        if credentials is None:
            raise NotAllowed(NO_TOKEN)
        return credentials.credentials

    async def person(presented: str = Depends(token)) -> str:
        name = dependencies.authentication.known_person(presented)
        if name is not None:
            return name
        return await run_in_threadpool(dependencies.authentication.person, presented)

    async def require_known(path: str, presented: str | None) -> None:
        if not dependencies.authentication.is_recognised(path, presented):
            await run_in_threadpool(dependencies.authentication.require_known, path, presented)

    app.include_router(_jobs(dependencies, person))
    app.include_router(results_router(dependencies.store, dependencies.results, person))
    app.include_router(_fleet(dependencies, person))
    app.include_router(_programs(dependencies, person))
    app.include_router(drivers_router(dependencies.studies, person))
    app.include_router(study_files_router(dependencies.studies, person))
    app.include_router(_nodes(dependencies, token))
    app.add_middleware(RequestGate, check=require_known, refuse=_refusal)
    return app


def _jobs(dependencies: ServiceDependencies, person: Callable[..., Any]) -> APIRouter:
    """Return the routes for jobs."""
    router = APIRouter(prefix="/v1/jobs", dependencies=[Depends(person)])

    def view(job: JobRecord, with_events: bool = False) -> Response:
        return json_response(
            JobView, dependencies.views.job(job, dependencies.clock.now(), with_events)
        )

    @router.post("")
    def submit(
        submission: Submission = Depends(Body(Submission)), requester: str = Depends(person)
    ) -> Response:
        return view(dependencies.submissions.submit(submission.spec, requester))

    @router.get("")
    def all_jobs(include_ended: bool = True) -> Response:
        jobs = dependencies.store.jobs.all() if include_ended else dependencies.store.jobs.alive()
        now_seconds = dependencies.clock.now()
        views = tuple(dependencies.views.job(job, now_seconds) for job in reversed(jobs))
        return json_response(tuple[JobView, ...], views)

    @router.get("/{name}")
    def one_job(name: str) -> Response:
        return view(dependencies.store.jobs.find(name), with_events=True)

    @router.patch("/{name}")
    def change(
        name: str, change: Change = Depends(Body(Change)), requester: str = Depends(person)
    ) -> Response:
        return view(dependencies.submissions.change(name, change, requester))

    @router.post("/{name}/stop")
    def stop(name: str, requester: str = Depends(person)) -> Response:
        return view(dependencies.submissions.stop(name, requester))

    @router.post("/{name}/resume")
    def resume(
        name: str,
        resumption: Resumption = Depends(Body(Resumption)),
        requester: str = Depends(person),
    ) -> Response:
        return view(dependencies.submissions.resume(name, resumption, requester))

    @router.get("/{name}/decisions")
    def decisions(name: str, limit: int = Query(default=100, ge=1, le=10_000)) -> Response:
        job = dependencies.store.jobs.find(name)
        entries = dependencies.store.journal.decisions(job.id, limit)
        return json_response(
            tuple[DecisionView, ...], tuple(decision_view(entry) for entry in entries)
        )

    @router.get("/{name}/forecast")
    def forecast(name: str) -> Response:
        job = dependencies.store.jobs.find(name)
        sizes = dependencies.fixed_sizes(job.id)
        return json_response(
            tuple[ForecastView, ...], tuple(forecast_view(size) for size in sizes)
        )

    @router.post("/{name}/logs")
    def logs(name: str, offsets: dict[str, int] = Depends(Body(dict[str, int]))) -> Response:
        job = dependencies.store.jobs.find(name)
        return json_response(tuple[LogPart, ...], dependencies.logs.read(job.id, offsets))

    return router


def _fleet(dependencies: ServiceDependencies, person: Callable[..., Any]) -> APIRouter:
    """Return the routes for the fleet, users, plans and bundles."""
    router = APIRouter(prefix="/v1", dependencies=[Depends(person)])

    @router.get("/fleet")
    def fleet() -> Response:
        return json_response(FleetView, dependencies.views.fleet(dependencies.clock.now()))

    @router.get("/offers")
    def offers() -> Response:
        return json_response(OffersView, dependencies.views.offers(dependencies.clock.now()))

    @router.get("/costs")
    def costs() -> Response:
        return json_response(CostView, dependencies.views.costs(dependencies.clock.now()))

    @router.get("/costs/days")
    def daily_costs(first: date, last: date) -> Response:
        costs = dependencies.views.daily_costs(first, last, dependencies.clock.now())
        return json_response(tuple[DailyCost, ...], costs)

    @router.post("/people/{name}")
    def invite(name: str, requester: str = Depends(person)) -> Response:
        return json_response(
            Invitation, Invitation(name, dependencies.authentication.invite(name, requester))
        )

    @router.post("/freeze")
    def freeze(requester: str = Depends(person)) -> Response:
        dependencies.submissions.freeze(requester)
        return Response(status_code=204)

    @router.post("/unfreeze")
    def unfreeze(requester: str = Depends(person)) -> Response:
        dependencies.submissions.unfreeze(requester)
        return Response(status_code=204)

    @router.post("/drain")
    def drain(requester: str = Depends(person)) -> Response:
        dependencies.submissions.drain(requester)
        return Response(status_code=204)

    @router.post("/plans")
    def plan(submission: Submission = Depends(Body(Submission))) -> Response:
        spec = dependencies.submissions.prepare(submission.spec)
        return json_response(PlanView, plan_view(spec, dependencies.what_if(spec)))

    @router.head("/bundles/{sha256}")
    def has_bundle(sha256: str) -> Response:
        dependencies.bundles.path(sha256)
        return Response()

    @router.put("/bundles/{sha256}")
    async def put_bundle(sha256: str, request: Request) -> Response:
        await dependencies.bundles.receive(sha256, request.stream())
        return Response(status_code=201)

    return router


def _programs(dependencies: ServiceDependencies, person: Callable[..., Any]) -> APIRouter:
    """Return the routes for stored measurements of programs."""
    router = APIRouter(prefix="/v1/programs", dependencies=[Depends(person)])

    @router.get("")
    def all_programs() -> Response:
        return json_response(tuple[ProgramMemory, ...], dependencies.store.programs.all())

    @router.get("/{name}")
    def one_program(name: str) -> Response:
        memory = dependencies.store.programs.recall(name)
        if memory is None:
            raise unknown_program(name)
        return json_response(ProgramMemory, memory)

    @router.delete("/{name}")
    def forget(name: str, requester: str = Depends(person)) -> Response:
        dependencies.submissions.forget_program(name, requester)
        return Response(status_code=204)

    return router


def _nodes(dependencies: ServiceDependencies, token: Callable[..., Any]) -> APIRouter:
    """Return the routes for node agents."""
    router = APIRouter(prefix="/v1/node")

    def node(presented: str = Depends(token)) -> HeldInstance:
        return dependencies.authentication.node(presented)

    def working(presented: str = Depends(token)) -> HeldInstance:
        return dependencies.authentication.working_node(presented)

    def writing(presented: str = Depends(token)) -> HeldInstance:
        return dependencies.authentication.writing_node(presented)

    @router.post("/join")
    def join(request: JoinRequest = Depends(Body(JoinRequest))) -> Response:
        return json_response(JoinReply, dependencies.nodes.join(request))

    @router.get("/assignment")
    def assignment(held: HeldInstance = Depends(working)) -> Response:
        return json_response(Assignment, dependencies.nodes.assignment(held))

    @router.get("/grant")
    def grant(job: str | None = None, held: HeldInstance = Depends(working)) -> Response:
        require_held(held, job)
        return json_response(StorageGrant, dependencies.nodes.grant(held))

    @router.post("/heartbeat")
    async def heartbeat(
        request: Request,
        wait_seconds: float = Query(default=0.0, ge=0.0, le=_LONGEST_WAIT_SECONDS),
        held: HeldInstance = Depends(node),
    ) -> Response:
        report, refused = read_node_report(await request.body())
        reply = await dependencies.nodes.heartbeat_and_wait(held, report, wait_seconds, refused)
        return json_response(NodeReply, reply)

    @router.get("/bundle")
    def bundle(held: HeldInstance = Depends(working)) -> FileResponse:
        job = dependencies.store.jobs.get(held.job)
        if job.spec.bundle is None:
            raise NotFound(f"job {job.id} has no working directory")
        return FileResponse(dependencies.bundles.path(job.spec.bundle))

    @router.post("/logs")
    async def append_log(
        request: Request,
        offset: int = Query(ge=0, le=_LARGEST_OFFSET),
        job: str | None = None,
        held: HeldInstance = Depends(writing),
    ) -> Response:
        text = await request.body()
        require_held(held, job)
        end = await run_in_threadpool(dependencies.logs.append, held.job, held.id, offset, text)
        return json_response(int, end)

    router.include_router(trials_router(dependencies.studies, working))
    return router


async def _refuse(request: Request, error: Exception) -> Response:
    return _refusal(error)


def _refusal(error: Exception) -> Response:
    """Return the response for an error, which the client raises again."""
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
