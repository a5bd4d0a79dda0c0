"""Pages that begin and end a browser's session."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse

from autoscaler.domain.errors import CastorError
from autoscaler.service.access.browser_sessions import BrowserSessions
from autoscaler.service.access.gate import Requester
from autoscaler.service.access.logins import Logins
from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.faults import refusal
from autoscaler.service.pages.forms import PageForm, local_address, parse_form
from autoscaler.service.pages.rendering import HEADERS, THEME_COOKIE, THEMES, Pages
from autoscaler.service.routes.login_pages import begun_session, session_cookie
from autoscaler.service.routes.logins import to_provider
from autoscaler.service.routes.permits import Permit

_SEE_OTHER: Final = 303
_YEAR_SECONDS: Final = 365 * 86_400


def sign_in_router(pages: Pages, sessions: BrowserSessions, logins: Logins) -> APIRouter:
    """Return the pages to sign in and out, and the switch between dark and light."""
    router = APIRouter(include_in_schema=False)

    def question(
        request: Request, next_address: str, status: int = 200, error: str = ""
    ) -> Response:
        return pages.page(
            request,
            "sign_in.html",
            None,
            status,
            next_address=next_address,
            error=error,
            has_provider=logins.has_provider,
        )

    @router.get("/sign-in")
    def ask(request: Request, next: str = "/") -> Response:
        return question(request, local_address(next))

    @router.post("/sign-in")
    async def sign_in(request: Request) -> Response:
        form = parse_form(await request.body())
        next_address = local_address(form.get("next", "/"))
        try:
            session = await run_in_threadpool(
                sessions.sign_in, form.get("token", ""), client_address(request)
            )
        except CastorError as error:
            response = question(request, next_address, refusal(error).status_code, str(error))
            return _with_retry(response, error)
        return begun_session(session, next_address, sessions.is_encrypted)

    @router.get("/open")
    def open_link(request: Request, code: str = "") -> Response:
        session = sessions.open(code, client_address(request))
        return begun_session(session, "/", sessions.is_encrypted)

    @router.get("/sign-in/provider")
    def provider(request: Request) -> Response:
        return to_provider(logins, logins.open_browser(client_address(request)))

    _add_session_routes(router, sessions)
    return router


def _add_session_routes(router: APIRouter, sessions: BrowserSessions) -> None:
    """Add what the top of each page offers: to sign out, and dark or light."""

    @router.post("/sign-out")
    def sign_out(
        requester: Requester = Depends(Permit(AccessAction.READ)),
        form: dict[str, str] = Depends(PageForm()),
    ) -> Response:
        sessions.sign_out(requester.identity)
        response = RedirectResponse("/sign-in", _SEE_OTHER, HEADERS)
        response.delete_cookie(
            session_cookie(sessions.is_encrypted), secure=sessions.is_encrypted, httponly=True
        )
        return response

    @router.post("/theme", dependencies=[Depends(Permit(AccessAction.READ))])
    def theme(form: dict[str, str] = Depends(PageForm())) -> Response:
        response = RedirectResponse(local_address(form.get("next", "/")), _SEE_OTHER, HEADERS)
        wanted = form.get("theme", "")
        if wanted in THEMES:
            response.set_cookie(
                THEME_COOKIE, wanted, max_age=_YEAR_SECONDS, samesite="lax", httponly=True
            )
        return response


def client_address(request: Request) -> str:
    """Return the address that a request comes from."""
    return "no address" if request.client is None else request.client.host


def _with_retry(response: Response, error: CastorError) -> Response:
    wait = refusal(error).headers.get("Retry-After")
    if wait is not None:
        response.headers["Retry-After"] = wait
    return response
