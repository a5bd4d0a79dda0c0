"""All pages of the controller, put together for the application."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, FastAPI

from autoscaler.clock import Clock
from autoscaler.controller.controller import ControllerStatus
from autoscaler.service.access.authentication import Authentication
from autoscaler.service.access.browser_sessions import BrowserSessions
from autoscaler.service.access.logins import Logins
from autoscaler.service.files.logs import Logs
from autoscaler.service.files.uploads import Bundles
from autoscaler.service.jobs.bills import CloudBills
from autoscaler.service.jobs.budgets import SharedBudgets
from autoscaler.service.jobs.histories import Histories
from autoscaler.service.jobs.outlooks import Outlooks
from autoscaler.service.jobs.receipts import Receipts
from autoscaler.service.jobs.results import Results
from autoscaler.service.jobs.submissions import Submissions
from autoscaler.service.jobs.views import Views
from autoscaler.service.pages.budgets import BudgetForms, budget_forms_router
from autoscaler.service.pages.costs import CostPages, CostSources, costs_router
from autoscaler.service.pages.errors import PageErrors
from autoscaler.service.pages.events import Changes, events_router
from autoscaler.service.pages.fleet import FleetPage, FleetSources, fleet_router
from autoscaler.service.pages.fleet_actions import fleet_actions_router
from autoscaler.service.pages.forms import require_forms
from autoscaler.service.pages.job import JobPageSources, job_page_router
from autoscaler.service.pages.job_actions import JobForms, job_forms_router
from autoscaler.service.pages.jobs import jobs_router
from autoscaler.service.pages.offers import offers_router
from autoscaler.service.pages.people import (
    PeoplePages,
    audit_page_router,
    people_pages_router,
)
from autoscaler.service.pages.rendering import Pages
from autoscaler.service.pages.sign_in import sign_in_router
from autoscaler.service.pages.static_files import StaticFiles, static_router
from autoscaler.service.pages.studies import studies_pages_router
from autoscaler.service.pages.study_actions import StudyForms, study_forms_router
from autoscaler.service.pages.submit import JobUploads, submit_router
from autoscaler.service.studies.studies import Studies
from autoscaler.store.store import Store


@dataclass(frozen=True, slots=True)
class PageDependencies:
    """Components that the pages use: those of the API, and `changes` for live pages."""

    store: Store
    authentication: Authentication
    logins: Logins
    sessions: BrowserSessions
    submissions: Submissions
    bundles: Bundles
    views: Views
    receipts: Receipts
    budgets: SharedBudgets
    outlooks: Outlooks
    logs: Logs
    results: Results
    studies: Studies
    status: ControllerStatus
    changes: Changes
    clock: Clock
    optuna_dashboard: str | None = None


def add_pages(app: FastAPI, dependencies: PageDependencies, version: str) -> PageErrors:
    """Add all pages to the application; return the maker of their refusals."""
    files = StaticFiles()
    pages = Pages(files, dependencies.clock, version)
    errors = PageErrors(pages, dependencies.authentication)
    errors.handle(app)
    app.state.bundles = dependencies.bundles
    for router in (static_router(files), *_routers(pages, dependencies)):
        app.include_router(router)
    require_forms(app)
    return errors


def _routers(pages: Pages, parts: PageDependencies) -> tuple[APIRouter, ...]:
    """Return the routers of all pages."""
    store, status, views, clock = parts.store, parts.status, parts.views, parts.clock
    histories = Histories(store, clock)
    fleet = FleetSources(
        store, status, views, parts.outlooks, parts.receipts, parts.budgets, clock
    )
    job = JobPageSources(
        *(store, views, parts.outlooks, histories),
        *(parts.logs, parts.results, parts.receipts, clock),
    )
    costs = CostSources(
        store, views, parts.receipts, parts.budgets, CloudBills(store, clock), clock
    )
    uploads = JobUploads(store, parts.bundles, parts.submissions, clock)
    return (
        sign_in_router(pages, parts.sessions, parts.logins),
        events_router(parts.changes, parts.authentication),
        fleet_router(pages, FleetPage(fleet)),
        fleet_actions_router(pages, parts.submissions, store),
        jobs_router(pages, store, views, status, clock),
        job_page_router(pages, job),
        studies_pages_router(pages, parts.studies, clock, parts.optuna_dashboard),
        study_forms_router(StudyForms(pages, parts.studies)),
        job_forms_router(JobForms(pages, parts.submissions, clock)),
        submit_router(pages, uploads),
        offers_router(pages, store, views, status, clock),
        costs_router(pages, CostPages(costs), store),
        budget_forms_router(BudgetForms(pages, parts.budgets)),
        people_pages_router(PeoplePages(pages, parts.authentication, clock)),
        audit_page_router(pages, store, clock),
    )
