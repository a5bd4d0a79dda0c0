"""HTTP API of the controller; every request needs a token, on loopback too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response

from autoscaler.clock import Clock
from autoscaler.controller.controller import ControllerStatus
from autoscaler.controller.predict.forecasts import FixedSize
from autoscaler.controller.predict.what_if import WhatIf
from autoscaler.domain.job import JobRecord, JobSpec
from autoscaler.domain.job_names import meant_job
from autoscaler.domain.job_rules import as_submitted
from autoscaler.notifications.outbox import Notifications
from autoscaler.service.access.authentication import Authentication
from autoscaler.service.access.browser_sessions import BrowserSessions
from autoscaler.service.access.gate import AccessGate, Requester
from autoscaler.service.access.logins import Logins
from autoscaler.service.access.permissions import AccessAction, is_permitted
from autoscaler.service.access.request_gate import RequestGate
from autoscaler.service.faults import handle_errors
from autoscaler.service.files.logs import Logs
from autoscaler.service.files.uploads import Bundles
from autoscaler.service.instances.heartbeats import HeartbeatReceiver
from autoscaler.service.instances.nodes import Nodes
from autoscaler.service.jobs.bills import CloudBills
from autoscaler.service.jobs.budgets import SharedBudgets
from autoscaler.service.jobs.focus_export import FocusExport
from autoscaler.service.jobs.histories import Histories
from autoscaler.service.jobs.outlooks import Outlooks
from autoscaler.service.jobs.plans import plan_view
from autoscaler.service.jobs.receipts import Receipts
from autoscaler.service.jobs.results import Results
from autoscaler.service.jobs.submissions import Submissions, job_text
from autoscaler.service.jobs.views import Views, decision_view, forecast_view
from autoscaler.service.openapi import openapi_document
from autoscaler.service.pages.events import Changes
from autoscaler.service.pages.router import PageDependencies, add_pages
from autoscaler.service.routes.bodies import (
    Body,
    JsonResponse,
    NoContent,
    change_text,
    json_response,
)
from autoscaler.service.routes.budgets import budgets_router
from autoscaler.service.routes.bundles import bundles_router
from autoscaler.service.routes.costs import costs_router, receipts_router
from autoscaler.service.routes.heartbeats import HeartbeatAnswers, HeartbeatShortcut
from autoscaler.service.routes.job_lists import job_lists_router
from autoscaler.service.routes.logins import login_pages_router, logins_router
from autoscaler.service.routes.nodes import NodeRoutes, nodes_router
from autoscaler.service.routes.notifications import notifications_router
from autoscaler.service.routes.outlooks import outlooks_router
from autoscaler.service.routes.pages import (
    CursorText,
    PageQuery,
    cursor_of,
    page_query,
    page_response,
)
from autoscaler.service.routes.people import (
    audit_router,
    browser_links_router,
    people_router,
)
from autoscaler.service.routes.permits import Permit, require_permits, routes_of
from autoscaler.service.routes.programs import programs_router
from autoscaler.service.routes.repeats import Repeatable, Repeats, repeatable
from autoscaler.service.routes.results import results_router
from autoscaler.service.routes.studies import (
    Driver,
    drivers_router,
    studies_router,
    study_files_router,
    study_lists_router,
)
from autoscaler.service.studies.studies import Studies
from autoscaler.service.threads import in_stop_thread
from autoscaler.service.versions import Precondition, etag, precondition
from autoscaler.store.store import Store
from autoscaler.wire.messages import (
    Change,
    DecisionView,
    FleetView,
    ForecastView,
    JobView,
    LogPart,
    OffersView,
    Resumption,
    Submission,
)
from autoscaler.wire.outlook_messages import ChangePlan
from autoscaler.wire.plan_messages import PlanView, SubmissionPlan

_FLEET = "fleet"
_DRY_RUN = Query(
    default=False,
    description="Whether to check the request and return what it would do, and change nothing.",
)


@dataclass(frozen=True, slots=True)
class ServiceDependencies:
    """Components that the routes of the API use.

    `metrics` returns the text of all metrics and its type, for an Accept header.
    `optuna_dashboard` is the URL that pages of studies link to.
    """

    store: Store
    authentication: Authentication
    logins: Logins
    sessions: BrowserSessions
    submissions: Submissions
    nodes: Nodes
    heartbeats: HeartbeatReceiver
    studies: Studies
    views: Views
    receipts: Receipts
    focus_export: FocusExport
    bundles: Bundles
    logs: Logs
    results: Results
    budgets: SharedBudgets
    fixed_sizes: Callable[[str], tuple[FixedSize, ...]]
    what_if: Callable[[JobSpec], WhatIf]
    outlooks: Outlooks
    metrics: Callable[[str], tuple[bytes, str]]
    status: ControllerStatus
    changes: Changes
    notifications: Notifications
    clock: Clock
    optuna_dashboard: str | None = None


def create_app(dependencies: ServiceDependencies, version: str) -> FastAPI:
    """Return the API application over these components."""
    app = FastAPI(title="Castor", version=version, docs_url=None, redoc_url=None, openapi_url=None)
    handle_errors(app)
    authentication = dependencies.authentication
    app.state.access = AccessGate(authentication, dependencies.store, dependencies.clock)

    async def require_known(path: str, presented: str | None) -> None:
        await authentication.check(path, presented)

    app.include_router(_jobs(dependencies))
    app.include_router(_job_stops(dependencies))
    app.include_router(_job_facts(dependencies))
    app.include_router(_listed(dependencies))
    histories = Histories(dependencies.store, dependencies.clock)
    app.include_router(outlooks_router(dependencies.outlooks, histories, dependencies.store))
    app.include_router(results_router(dependencies.results))
    bills = CloudBills(dependencies.store, dependencies.clock)
    costs = dependencies.views, bills, dependencies.focus_export
    app.include_router(costs_router(*costs, dependencies.clock))
    app.include_router(receipts_router(dependencies.receipts, dependencies.clock))
    app.include_router(_fleet(dependencies))
    app.include_router(bundles_router(dependencies.bundles, dependencies.store))
    app.include_router(programs_router(dependencies.store, dependencies.submissions))
    app.include_router(budgets_router(dependencies.budgets))
    app.include_router(
        people_router(authentication, Repeats(dependencies.store, dependencies.clock))
    )
    app.include_router(browser_links_router(dependencies.sessions))
    app.include_router(logins_router(dependencies.logins))
    app.include_router(login_pages_router(dependencies.logins))
    app.include_router(_metrics(dependencies))
    app.include_router(audit_router(dependencies.store))
    app.include_router(notifications_router(dependencies.notifications))
    app.include_router(study_lists_router(dependencies.studies))
    app.include_router(studies_router(dependencies.studies))
    app.include_router(drivers_router(dependencies.studies))
    app.include_router(study_files_router(dependencies.studies))
    answer = HeartbeatAnswers(dependencies.heartbeats, dependencies.nodes, authentication)
    nodes = NodeRoutes(dependencies.nodes, authentication, dependencies.bundles, dependencies.logs)
    app.include_router(nodes_router(nodes, dependencies.studies, dependencies.store, answer))
    app.include_router(_about(app))
    errors = add_pages(app, _of_pages(dependencies), version)
    require_permits(app)
    app.add_middleware(HeartbeatShortcut, answer=answer)
    templates = tuple(dict.fromkeys(route.path for route in routes_of(app.routes)))
    app.add_middleware(RequestGate, check=require_known, refuse=errors.refuse, templates=templates)
    return app


def _of_pages(dependencies: ServiceDependencies) -> PageDependencies:
    """Return those components that the pages use."""
    names = (field.name for field in fields(PageDependencies))
    return PageDependencies(**{name: getattr(dependencies, name) for name in names})


def _jobs(dependencies: ServiceDependencies) -> APIRouter:
    """Return the routes for jobs."""
    router = APIRouter(prefix="/v1/jobs")
    submissions, store = dependencies.submissions, dependencies.store
    repeats = Repeats(store, dependencies.clock, lambda: submissions.wake())

    view_of, reply = partial(_view_of, dependencies), partial(_reply, dependencies)

    @router.post("")
    def submit(
        requester: Requester = Depends(Permit(AccessAction.SUBMIT)),
        submission: Submission = Depends(Body(Submission)),
        repeat: Repeatable = Depends(repeatable),
        dry_run: bool = _DRY_RUN,
        driver: Driver = None,
    ) -> JsonResponse[JobView | SubmissionPlan]:
        """Submit a job. Its bundle must have been uploaded before."""
        if dry_run:
            planned = dependencies.submissions.tried(submission.spec, requester.identity)
            plan = plan_view(planned, dependencies.what_if(planned))
            return json_response(SubmissionPlan, SubmissionPlan(planned, plan))

        def create() -> JsonResponse[JobView]:
            job = submissions.submit(submission.spec, requester.identity, driver)
            requester.record(job.id, after=job_text(job.spec))
            return reply(job, requester)

        return repeats.once(repeat, requester.identity, create)

    @router.get("/{name}")
    def one_job(
        name: str, requester: Requester = Depends(Permit(AccessAction.READ))
    ) -> JsonResponse[JobView]:
        """Return a job with its last events."""
        return reply(_meant(store, name, requester), requester, with_events=True)

    @router.patch("/{name}")
    def change(
        requester: Requester = Depends(Permit(AccessAction.CHANGE_JOB)),
        change: Change = Depends(Body(Change)),
        required: Precondition = Depends(precondition),
        dry_run: bool = _DRY_RUN,
    ) -> JsonResponse[JobView | ChangePlan]:
        """Change a job that has not ended; absent keys keep their values."""
        before = requester.job
        required.of_job(before)
        if dry_run:
            job = submissions.changed(before, change)
            plan = dependencies.outlooks.change_plan(before, job, view_of(job, requester))
            return json_response(ChangePlan, plan)
        job = submissions.change(before, change, requester.identity.person, required.of_job)
        requester.record(job.id, *change_text(Change, change, before.spec, job.spec))
        return reply(job, requester)

    @router.post("/{name}/resume")
    def resume(
        requester: Requester = Depends(Permit(AccessAction.RESUME_JOB)),
        resumption: Resumption = Depends(Body(Resumption)),
        required: Precondition = Depends(precondition),
        repeat: Repeatable = Depends(repeatable),
    ) -> JsonResponse[JobView]:
        """Continue a stopped or failed job from its newest checkpoint, as a new job."""
        before = requester.job

        def create() -> JsonResponse[JobView]:
            required.of_job(before)
            job = submissions.resume(before, resumption, requester.identity)
            requester.record(job.id, f"goes on from {before.id}", job_text(job.spec))
            return reply(job, requester)

        return repeats.once(repeat, requester.identity, create)

    return router


def _view_of(
    dependencies: ServiceDependencies,
    job: JobRecord,
    requester: Requester,
    with_events: bool = False,
) -> JobView:
    """Return the view of a job for a requester."""
    view = dependencies.views.job(job, dependencies.clock.now(), with_events)
    return _shown_to(requester, job, view)


def _reply(
    dependencies: ServiceDependencies,
    job: JobRecord,
    requester: Requester,
    with_events: bool = False,
) -> JsonResponse[JobView]:
    """Return the response with the view of a job, and its version."""
    view = _view_of(dependencies, job, requester, with_events)
    response = json_response(JobView, view)
    response.headers["ETag"] = etag(view.version)
    return response


def _job_stops(dependencies: ServiceDependencies) -> APIRouter:
    """Return the route that stops a job, which does not wait for reads."""
    router = APIRouter(prefix="/v1/jobs")

    @router.post("/{name}/stop")
    async def stop(
        requester: Requester = Depends(Permit(AccessAction.STOP_JOB)),
        required: Precondition = Depends(precondition),
        driver: Driver = None,
    ) -> JsonResponse[JobView]:
        """Stop a job, which ends with a checkpoint."""
        before, person = requester.job, requester.identity.person

        def end() -> JsonResponse[JobView]:
            required.of_job(before)
            job = dependencies.submissions.stop(before, person, required.of_job, driver)
            requester.record(job.id, before.phase, job.phase)
            return _reply(dependencies, job, requester)

        return await in_stop_thread(end)

    return router


def _job_facts(dependencies: ServiceDependencies) -> APIRouter:
    """Return the routes for decisions, forecasts, specs and logs of jobs."""
    router, store = APIRouter(prefix="/v1/jobs"), dependencies.store

    @router.get("/{name}/decisions")
    def decisions(
        request: Request,
        name: str,
        cursor: CursorText = None,
        limit: int = Query(default=100, ge=1, le=10_000),
        requester: Requester = Depends(Permit(AccessAction.READ)),
    ) -> JsonResponse[tuple[DecisionView, ...]]:
        """List the decisions for a job with their reasons, the latest first."""
        job = _meant(store, name, requester)
        order = f"decisions {job.id}"  # a name may mean another job by the next page
        place = PageQuery(limit, cursor).place(order, int)
        rows = store.journal.decisions(job.id, limit + 1, None if place is None else place[0])
        entries, is_last = rows[:limit], len(rows) <= limit
        following = None if is_last else cursor_of(order, entries[-1].plan)
        listed = tuple(decision_view(entry) for entry in entries)
        return page_response(tuple[DecisionView, ...], listed, request, following)

    @router.get("/{name}/forecast")
    def forecast(
        name: str, requester: Requester = Depends(Permit(AccessAction.READ))
    ) -> JsonResponse[tuple[ForecastView, ...]]:
        """Return predicted time and cost of a job for every fixed size."""
        sizes = dependencies.fixed_sizes(_meant(store, name, requester).id)
        return json_response(
            tuple[ForecastView, ...], tuple(forecast_view(size) for size in sizes)
        )

    @router.get("/{name}/spec")
    def spec(
        requester: Requester = Depends(Permit(AccessAction.READ_SPEC)),
    ) -> JsonResponse[Submission]:
        """Return what submits a job again: its spec with all defaults, without secrets."""
        return json_response(Submission, Submission(as_submitted(requester.job.spec)))

    @router.post("/{name}/logs")
    def logs(
        requester: Requester = Depends(Permit(AccessAction.READ_LOGS)),
        offsets: dict[str, int] = Depends(Body(dict[str, int])),
    ) -> JsonResponse[tuple[LogPart, ...]]:
        """Return the logs of a job's instances from these offsets on; `*` means all instances."""
        parts = dependencies.logs.read(requester.job.id, offsets)
        return json_response(tuple[LogPart, ...], parts)

    return router


def _listed(dependencies: ServiceDependencies) -> APIRouter:
    """Return the route for lists of jobs."""
    views, clock = dependencies.views, dependencies.clock

    def shown(jobs: tuple[JobRecord, ...], requester: Requester) -> tuple[JobView, ...]:
        pairs = zip(jobs, views.jobs(jobs, clock.now()), strict=True)
        return tuple(_shown_to(requester, job, view) for job, view in pairs)

    return job_lists_router(dependencies.store, shown)


def _shown_to(requester: Requester, job: JobRecord, view: JobView) -> JobView:
    """Return a view without the end of the log for those who may not read it."""
    may_read_log = is_permitted(requester.identity, AccessAction.READ_LOGS, (job.spec.owner,))
    return view if may_read_log else replace(view, last_lines=())


def _meant(store: Store, name: str, requester: Requester) -> JobRecord:
    """Return the job that a requester who only reads means by a name or an id.

    Raises:
        UnknownJob: there is no such job.
    """
    return meant_job(store.jobs.named(name), requester.identity)


def _fleet(dependencies: ServiceDependencies) -> APIRouter:
    """Return the routes for the fleet and plans."""
    router = APIRouter(prefix="/v1")
    submissions, views, clock = dependencies.submissions, dependencies.views, dependencies.clock

    @router.get("/fleet", dependencies=[Depends(Permit(AccessAction.READ))])
    def fleet() -> JsonResponse[FleetView]:
        """Return offers, limits, instances and the state of the controller."""
        return json_response(FleetView, views.fleet(clock.now()))

    @router.get("/offers", dependencies=[Depends(Permit(AccessAction.READ))])
    def offers(
        request: Request, page: PageQuery = Depends(page_query)
    ) -> JsonResponse[OffersView]:
        """List all offers with source and age of their prices; in pages, by id."""
        view = views.offers(clock.now())
        if page.limit is None and page.cursor is None:
            return json_response(OffersView, view)
        rows = sorted(view.offers, key=lambda row: row.offer.id)
        part, cursor = page.part(rows, "offers", lambda row: row.offer.id)
        return page_response(OffersView, replace(view, offers=part), request, cursor)

    async def switch(requester: Requester, change: Callable[[str], None]) -> NoContent:
        def carry_out() -> NoContent:
            change(requester.identity.person)
            requester.record(_FLEET)
            return NoContent()

        return await in_stop_thread(carry_out)

    @router.post("/freeze")
    async def freeze(requester: Requester = Depends(Permit(AccessAction.FREEZE))) -> NoContent:
        """Stop all launches and releases until the fleet is unfrozen."""
        return await switch(requester, submissions.freeze)

    @router.post("/unfreeze")
    async def unfreeze(requester: Requester = Depends(Permit(AccessAction.UNFREEZE))) -> NoContent:
        """Let the controller carry out its decisions again."""
        return await switch(requester, submissions.unfreeze)

    @router.post("/drain")
    async def drain(requester: Requester = Depends(Permit(AccessAction.DRAIN))) -> NoContent:
        """Stop every job with a checkpoint, and release its instances."""
        return await switch(requester, submissions.drain)

    @router.post("/plans")
    def plan(
        requester: Requester = Depends(Permit(AccessAction.PLAN)),
        submission: Submission = Depends(Body(Submission)),
    ) -> JsonResponse[PlanView]:
        """Return predicted time and cost of a job that is not submitted."""
        spec = submissions.planned(submission.spec, requester.identity)
        return json_response(PlanView, plan_view(spec, dependencies.what_if(spec)))

    return router


def _metrics(dependencies: ServiceDependencies) -> APIRouter:
    """Return the route of the metrics of this controller, leader or follower."""
    router = APIRouter()

    @router.get("/metrics", dependencies=[Depends(Permit(AccessAction.READ))])
    def metrics(request: Request) -> Response:
        """Return the metrics of the controller for Prometheus."""
        text, text_type = dependencies.metrics(request.headers.get("accept", ""))
        return Response(text, headers={"Content-Type": text_type})

    return router


def _about(app: FastAPI) -> APIRouter:
    """Return the route for the description of the API. It is made at the first request."""
    router = APIRouter(prefix="/v1")
    described = cache(lambda: openapi_document(app))

    @router.get("/openapi.json", dependencies=[Depends(Permit(AccessAction.READ))])
    def openapi() -> JsonResponse[dict[str, Any]]:
        """Return this document."""
        return json_response(dict[str, Any], described())

    return router
