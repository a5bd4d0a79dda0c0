"""List of jobs, in pages, by filters that the store applies."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Depends, Request, Response

from autoscaler.clock import Clock
from autoscaler.controller.controller import ControllerStatus
from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import JobPhase
from autoscaler.domain.text import quoted
from autoscaler.service.access.gate import Requester
from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.jobs.views import Views
from autoscaler.service.pages.fleet_summary import block_groups
from autoscaler.service.pages.job_rows import ShownJob
from autoscaler.service.pages.rendering import Pages
from autoscaler.service.routes.job_lists import JobListQuery, listed_jobs
from autoscaler.service.routes.pages import PageQuery
from autoscaler.service.routes.permits import Permit
from autoscaler.store.repositories.jobs import FINAL_PHASES, JobFilter, JobOrder
from autoscaler.store.store import Store

ROWS: Final = 50
_ALIVE: Final = "alive"
_LONGEST: Final = 200
PHASES: Final = (
    ("", "all"),
    (_ALIVE, "not ended"),
    *((phase.value, phase.value) for phase in JobPhase),
)


def jobs_router(
    pages: Pages, store: Store, views: Views, status: ControllerStatus, clock: Clock
) -> APIRouter:
    """Return the page of the list. Its filters and its place stand in its address."""
    router = APIRouter(include_in_schema=False)

    @router.get("/jobs")
    def jobs(
        request: Request,
        q: str = "",
        phase: str = "",
        person: str = "",
        team: str = "",
        sort: str = JobOrder.NEWEST,
        cursor: str = "",
        requester: Requester = Depends(Permit(AccessAction.READ)),
    ) -> Response:
        filters = {"q": q, "phase": phase, "person": person, "team": team, "sort": sort}
        query = list_query(filters)
        listed, following = listed_jobs(store, query, PageQuery(ROWS, cursor or None))
        known = {offer.id: offer for offer in status.offers}
        return pages.page(
            request,
            "jobs.html",
            requester,
            rows=[
                ShownJob(view, block_groups(store.instances.of_job(view.id), known), None)
                for view in views.jobs(listed, clock.now())
            ],
            filters=filters,
            phases=PHASES,
            orders=[order.value for order in JobOrder],
            counts=store.jobs.phase_counts(query.wanted),
            is_later=bool(cursor),
            following=following,
        )

    return router


def list_query(filters: dict[str, str]) -> JobListQuery:
    """Return the filters and the order of the list.

    Raises:
        SpecError: a value is none of those that the form offers.
    """
    for name, text in filters.items():
        if len(text) > _LONGEST or not text.isprintable():
            raise SpecError("is too long, or has letters that can't be printed", name)
    phase = filters["phase"]
    if phase not in dict(PHASES):
        raise SpecError(f"{quoted(phase)} is no phase: choose one of the list", "phase")
    phases: tuple[JobPhase, ...] | None = None
    if phase == _ALIVE:
        phases = tuple(known for known in JobPhase if known not in FINAL_PHASES)
    elif phase:
        phases = (JobPhase(phase),)
    if filters["sort"] not in list(JobOrder):
        raise SpecError(f"{quoted(filters['sort'])} is no order: choose one of the list", "sort")
    wanted = JobFilter(
        phases,
        filters["person"] or None,
        filters["team"] or None,
        None,
        filters["q"].lower() or None,
    )
    return JobListQuery(wanted, JobOrder(filters["sort"]))
