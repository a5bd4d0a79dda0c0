"""Route for lists of jobs, in pages and by filters that the store applies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from autoscaler.domain.job import JobPhase, JobRecord
from autoscaler.service.access.gate import Requester
from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.routes.bodies import JsonResponse
from autoscaler.service.routes.pages import PageQuery, cursor_of, page_query, page_response
from autoscaler.service.routes.permits import Permit
from autoscaler.store.repositories.jobs import FINAL_PHASES, JobFilter, JobOrder, JobPlace
from autoscaler.store.store import Store
from autoscaler.wire.messages import JobView

_MOST_PHASES = 100
_Name = Annotated[str | None, Query(max_length=200, pattern=r"^[^\x00]*$")]


@dataclass(frozen=True, slots=True)
class JobListQuery:
    """Filters and order of a list of jobs, as they stand in the query of a request."""

    wanted: JobFilter
    order: JobOrder


def job_list_query(
    phase: Annotated[
        list[JobPhase] | None,
        Query(max_length=_MOST_PHASES, description="Phases of the jobs; may be repeated."),
    ] = None,
    person: Annotated[_Name, Query(description="Owner of the jobs.")] = None,
    team: Annotated[_Name, Query(description="Team of the jobs.")] = None,
    study: Annotated[_Name, Query(description="Study whose trials are listed.")] = None,
    q: Annotated[_Name, Query(description="Part of the names, in lower or upper case.")] = None,
    sort: Annotated[JobOrder, Query(description="Order of the list.")] = JobOrder.NEWEST,
    include_ended: Annotated[
        bool, Query(description="Whether jobs that have ended are listed, too.")
    ] = True,
) -> JobListQuery:
    """Return the filters and the order that a request asks for, as a dependency of its route."""
    phases = tuple(phase) if phase else None
    if not include_ended:
        phases = tuple(listed for listed in phases or JobPhase if listed not in FINAL_PHASES)
    text = None if q is None else q.lower()
    return JobListQuery(JobFilter(phases, person, team, study, text), sort)


def job_lists_router(
    store: Store, shown: Callable[[tuple[JobRecord, ...], Requester], tuple[JobView, ...]]
) -> APIRouter:
    """Return the route for lists of jobs; `shown` returns the views of a page."""
    router = APIRouter(prefix="/v1/jobs")

    @router.get("")
    def jobs(
        request: Request,
        query: JobListQuery = Depends(job_list_query),
        page: PageQuery = Depends(page_query),
        requester: Requester = Depends(Permit(AccessAction.READ)),
    ) -> JsonResponse[tuple[JobView, ...]]:
        """List jobs by filters, in pages."""
        listed, cursor = listed_jobs(store, query, page)
        return page_response(tuple[JobView, ...], shown(listed, requester), request, cursor)

    return router


def listed_jobs(
    store: Store, query: JobListQuery, page: PageQuery
) -> tuple[tuple[JobRecord, ...], str | None]:
    """Return a page of a list of jobs, and the cursor of the next one; None after the last.

    Raises:
        SpecError: the cursor is not one of this list.
    """
    name = f"jobs {query.order}"
    place = page.place(name, int, str)
    after = None if place is None else JobPlace(*place)
    limit = None if page.limit is None else page.limit + 1
    jobs = store.jobs.page(query.wanted, query.order, limit, after)
    if page.limit is None or len(jobs) <= page.limit:
        return jobs, None
    last = jobs[page.limit - 1]
    return jobs[: page.limit], cursor_of(name, last.number, last.spec.name)
