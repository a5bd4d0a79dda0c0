"""Rendering of pages from templates, with the headers that all pages have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from fastapi import Request, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from autoscaler.clock import Clock
from autoscaler.domain.access import Identity
from autoscaler.domain.job_names import exact_name
from autoscaler.service.access.browser_sessions import form_token
from autoscaler.service.access.gate import Requester
from autoscaler.service.access.permissions import AccessAction, is_permitted
from autoscaler.service.access.request_gate import session_token
from autoscaler.service.faults import refusal
from autoscaler.service.pages import formats
from autoscaler.service.pages.fields import form_error
from autoscaler.service.pages.size_bars import forbidden_names, forbidden_text
from autoscaler.service.pages.static_files import StaticFiles
from autoscaler.wire.messages import JobView

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of all pages: no inline scripts, nothing from elsewhere, no frames, nothing kept."""

THEME_COOKIE: Final = "castor-theme"
THEMES: Final = ("light", "dark")
DONE: Final = {
    "submitted": "The job is submitted.",
    "unchanged": "Nothing is changed: all values are as before.",
    "changed": "The job is changed: the next plan follows it.",
    "budget-set": "The study has this budget: the next plan follows it.",
    "shared-budget-set": "The budget is set: the next plan follows it.",
    "shared-budget-removed": "The budget is removed: the next plan goes without it.",
    "study-stopping": "The study is stopping: its driver obeys within seconds.",
    "stopping": "The job is stopping, with a checkpoint.",
    "resumed": "This is the next run: it continues from the newest checkpoint.",
    "frozen": "Frozen: nothing is launched or released until you unfreeze.",
    "unfrozen": "Instances are launched and released again.",
    "drained": "Every job ends, each with a checkpoint.",
    "revoked": "The token is revoked.",
    "removed": "The person is removed, and all tokens are revoked.",
    "set": "Role and team are changed.",
}
"""What a page says after a form, by the word in its address."""

_TEMPLATES: Final = Path(__file__).parent / "templates"


@dataclass(frozen=True, slots=True)
class SignedIn:
    """Person of a page, with the token of its forms, for templates."""

    identity: Identity
    form_token: str

    def may(self, action: str) -> bool:
        """Return whether the person may take an action, by the role alone."""
        return is_permitted(self.identity, AccessAction(action))


def job_place(job: JobView | str) -> str:
    """Return the path of the page of a job, or of the ended job of an id.

    That of an ended job leads to it, and to no later job of its name.
    """
    if isinstance(job, str):
        return f"/jobs/{exact_name(job)}"
    return f"/jobs/{exact_name(job.id) if job.phase.is_final else job.id}"


class Pages:
    """Templates of all pages. `version` is the release of this controller."""

    def __init__(self, files: StaticFiles, clock: Clock, version: str) -> None:
        self._clock = clock
        self._environment = Environment(
            loader=FileSystemLoader(_TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters["place"] = job_place
        self._environment.globals |= {
            "static": files.url,
            "version": version,
            "f": formats,
            "query": query,
            "forbidden_text": forbidden_text,
            "forbidden_names": forbidden_names,
        }

    def page(
        self,
        request: Request,
        template: str,
        requester: Requester | Identity | None,
        status: int = 200,
        **values: object,
    ) -> Response:
        """Return the page of a template for who sent the request; None: nobody is signed in.

        Templates have `now` (seconds), `person` (`SignedIn` or None), `path`, `theme`, and the
        functions of `formats` as `f`.
        """
        session = session_token(request.scope) or ""
        identity = requester.identity if isinstance(requester, Requester) else requester
        person = None if identity is None else SignedIn(identity, form_token(session))
        theme = request.cookies.get(THEME_COOKIE, "")
        text = self._environment.get_template(template).render(
            now=self._clock.now(),
            person=person,
            path=request.url.path,
            address=_address(request),
            theme=theme if theme in THEMES else "",
            done=DONE.get(request.query_params.get("done", ""), ""),
            **values,
        )
        return Response(text, status, HEADERS, media_type="text/html")

    def form(
        self,
        request: Request,
        template: str,
        requester: Requester,
        error: Exception | None,
        **values: object,
    ) -> Response:
        """Return the page of a form, with the error of the values that were sent; None: no error.

        Its template has the error as `error`, as a form shows it.
        """
        status = 200 if error is None else refusal(error).status_code
        shown = None if error is None else form_error(error)
        return self.page(request, template, requester, status, error=shown, **values)


def query(**values: object) -> str:
    """Return a query of an address with the values that are neither None nor empty."""
    kept = {key: value for key, value in values.items() if value not in (None, "", False)}
    return f"?{urlencode(kept)}" if kept else ""


def _address(request: Request) -> str:
    """Return path and query of a request, to load the same page again."""
    kept = [(key, value) for key, value in request.query_params.multi_items() if key != "done"]
    return request.url.path + (f"?{urlencode(kept)}" if kept else "")
