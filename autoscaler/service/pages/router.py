"""All pages of the controller, put together for the application."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import FastAPI

from autoscaler.clock import Clock
from autoscaler.service.access.authentication import Authentication
from autoscaler.service.access.browser_sessions import BrowserSessions
from autoscaler.service.access.logins import Logins
from autoscaler.service.files.logs import Logs
from autoscaler.service.jobs.histories import Histories
from autoscaler.service.jobs.outlooks import Outlooks
from autoscaler.service.jobs.results import Results
from autoscaler.service.jobs.submissions import Submissions
from autoscaler.service.jobs.views import Views
from autoscaler.service.pages.errors import PageErrors
from autoscaler.service.pages.events import Changes, events_router
from autoscaler.service.pages.fleet import fleet_router
from autoscaler.service.pages.forms import require_forms
from autoscaler.service.pages.job import JobPageSources, job_page_router
from autoscaler.service.pages.rendering import Pages
from autoscaler.service.pages.sign_in import sign_in_router
from autoscaler.service.pages.static_files import StaticFiles, static_router
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
    views: Views
    outlooks: Outlooks
    logs: Logs
    results: Results
    studies: Studies
    changes: Changes
    clock: Clock


def add_pages(app: FastAPI, dependencies: PageDependencies, version: str) -> PageErrors:
    """Add all pages to the application; return the maker of their refusals."""
    files = StaticFiles()
    pages = Pages(files, dependencies.clock, version)
    errors = PageErrors(pages)
    errors.handle(app)
    app.include_router(static_router(files))
    app.include_router(sign_in_router(pages, dependencies.sessions, dependencies.logins))
    app.include_router(events_router(dependencies.changes, dependencies.authentication))
    app.include_router(fleet_router(pages, dependencies.store, dependencies.views))
    store, clock = dependencies.store, dependencies.clock
    job_sources = JobPageSources(
        *(store, dependencies.views, dependencies.outlooks, Histories(store, clock)),
        *(dependencies.logs, dependencies.results, clock),
    )
    app.include_router(job_page_router(pages, job_sources))
    require_forms(app)
    return errors
