"""Refusals as pages, for requests of browsers; others get the JSON of the API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, urlsplit

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException
from starlette.types import Scope

from autoscaler.domain.access import Identity
from autoscaler.domain.errors import CastorError, NotAllowed, SpecError
from autoscaler.domain.text import printable
from autoscaler.service.access.authentication import Authentication
from autoscaler.service.access.request_gate import presented_token, wants_page
from autoscaler.service.faults import refusal
from autoscaler.service.pages.rendering import HEADERS, Pages

_SEE_OTHER: Final = 303
_TITLES: Final = {
    401: "You are not signed in",
    403: "Your role does not permit this",
    404: "There is no such page",
    409: "This is not possible now",
    413: "This is too large",
    422: "A value can't be used",
    429: "Too many requests",
    503: "The controller can't answer now",
}


class PageErrors:
    """Maker of the answers to refused requests of pages, with the navigation of the person."""

    def __init__(self, pages: Pages, authentication: Authentication) -> None:
        self._pages = pages
        self._authentication = authentication

    def refuse(self, scope: Scope, error: CastorError) -> Response:
        """Return the answer to a request that was refused before its route was found."""
        return self.page(Request(scope), error) if wants_page(scope) else refusal(error)

    def page(self, request: Request, error: CastorError) -> Response:
        """Return the page for an error; without a session, the way to sign in."""
        refused = refusal(error)
        if isinstance(error, NotAllowed) and request.method == "GET":
            return RedirectResponse(sign_in_address(request), _SEE_OTHER, HEADERS)
        response = self.message(request, refused.status_code, str(error))
        if "Retry-After" in refused.headers:
            response.headers["Retry-After"] = refused.headers["Retry-After"]
        return response

    def message(self, request: Request, status: int, text: str) -> Response:
        """Return a page with a title for a status, and a text."""
        return self._pages.page(
            request,
            "message.html",
            getattr(request.state, "signed_in", None) or self._known(request),
            status,
            title=_TITLES.get(status, "This request failed"),
            text=text,
            back=_page_before(request),
        )

    def _known(self, request: Request) -> Identity | None:
        """Return who sent a request, if that needs no question to the store."""
        presented = presented_token(request.scope)
        return None if presented is None else self._authentication.people.known(presented)

    def _asked(self, request: Request) -> Identity | None:
        """Return who sent a request; None if it has no usable token."""
        presented = presented_token(request.scope)
        try:
            return None if presented is None else self._authentication.people.identity(presented)
        except CastorError:
            return None

    def handle(self, app: FastAPI) -> None:
        """Answer errors of routes with pages, where a browser asks for one."""
        for kind, as_page in (
            (CastorError, self._castor),
            (RequestValidationError, self._malformed),
            (HTTPException, self._unknown),
        ):
            app.add_exception_handler(kind, self._either(as_page, app.exception_handlers[kind]))

    def _either(self, as_page: Callable[[Request, Exception], Response], as_json: Any) -> Any:
        """Return a handler that answers with a page where a browser asks for one."""

        async def handle(request: Request, error: Exception) -> Any:
            if not wants_page(request.scope):
                return await as_json(request, error)
            known = self._known(request)
            request.state.signed_in = known or await run_in_threadpool(self._asked, request)
            return as_page(request, error)

        return handle

    def _castor(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, CastorError)
        return self.page(request, error)

    def _malformed(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        field = ".".join(printable(str(part)) for part in first["loc"])
        return self.page(request, SpecError(first["msg"], field))

    def _unknown(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return self.message(request, error.status_code, str(error.detail))


def sign_in_address(request: Request) -> str:
    """Return the address of the page to sign in, which leads back to a request's page."""
    query = f"?{request.url.query}" if request.url.query else ""
    here = f"{request.url.path}{query}"
    return "/sign-in" if here == "/" else f"/sign-in?next={quote(here)}"


def _page_before(request: Request) -> str:
    """Return the address of the page whose form was refused, on this host; empty without one."""
    before = urlsplit(request.headers.get("referer", ""))
    is_form = request.method not in ("GET", "HEAD") and before.netloc == request.url.netloc
    if not is_form or not before.path.startswith("/") or before.path.startswith("//"):
        return ""
    return before.path + (f"?{before.query}" if before.query else "")
