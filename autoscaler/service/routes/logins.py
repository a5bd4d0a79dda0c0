"""Routes of logins: requests of terminals, and the pages that people approve them on.

The routes need no token, since they are the way to one. `PendingLogins` limits their use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qs

from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse

from autoscaler.domain.errors import CastorError
from autoscaler.service.access.logins import CALLBACK_PATH, LOGIN_PATH, LoginPage, Logins
from autoscaler.service.access.pending_logins import LOGIN_SECONDS
from autoscaler.service.faults import refusal
from autoscaler.service.routes.bodies import Body, JsonResponse, json_response
from autoscaler.service.routes.login_pages import (
    HEADERS,
    begun_session,
    message_page,
    question_page,
)
from autoscaler.wire.access_messages import (
    BegunLogin,
    LoginReply,
    LoginRequest,
    LoginTokenRequest,
)

_COOKIE: Final = "castor-login"
# A browser takes a cookie of this name only over HTTPS, from this very host.
_ENCRYPTED_COOKIE: Final = "__Host-castor-login"
_FAILED: Final = "This login failed"
_MOST_FIELDS: Final = 10
_SEE_OTHER: Final = 303


def logins_router(logins: Logins) -> APIRouter:
    """Return the routes with which terminals begin logins and get their tokens."""
    router = APIRouter(prefix="/v1/logins")

    @router.post("")
    def begin(
        request: Request, wanted: LoginRequest = Depends(Body(LoginRequest))
    ) -> JsonResponse[BegunLogin]:
        """Begin the login of a person on a terminal."""
        return json_response(BegunLogin, logins.begin(wanted, _address(request)))

    @router.post("/token")
    def token(
        wanted: LoginTokenRequest = Depends(Body(LoginTokenRequest)),
    ) -> JsonResponse[LoginReply]:
        """Return the state of a login, and its token once it is granted."""
        return json_response(LoginReply, logins.token(wanted.device_code))

    return router


def login_pages_router(logins: Logins) -> APIRouter:
    """Return the pages on which people approve logins."""
    router = APIRouter()

    @router.get(LOGIN_PATH)
    def open_page(request: Request, code: str = "") -> Response:
        if not code:
            return message_page("Log a terminal in", "Open the address that castor login prints.")
        return _as_page(lambda: to_provider(logins, logins.open(code, _address(request))))

    @router.get(CALLBACK_PATH)
    def callback(request: Request, state: str = "", code: str = "", error: str = "") -> Response:
        answer = dict(request.query_params)
        return _as_page(lambda: _identified(logins, _cookie(logins, request), answer))

    @router.post(LOGIN_PATH)
    async def decide(request: Request) -> Response:
        form = parse_form(await request.body())
        return await run_in_threadpool(_as_page, lambda: _decided(logins, request, form))

    return router


def parse_form(body: bytes) -> dict[str, str]:
    """Return the fields of a form, the first of each name; empty for a body that is no form."""
    try:
        fields = parse_qs(body.decode(), max_num_fields=_MOST_FIELDS)
    except ValueError:
        return {}
    return {name: values[0] for name, values in fields.items()}


def to_provider(logins: Logins, page: LoginPage) -> Response:
    """Return a redirect to the provider's page, with the cookie that binds the browser."""
    response = RedirectResponse(page.url, _SEE_OTHER, HEADERS)
    response.set_cookie(
        _cookie_name(logins),
        page.cookie,
        max_age=int(LOGIN_SECONDS),
        secure=logins.is_encrypted,
        httponly=True,
        samesite="lax",
    )
    return response


def _identified(logins: Logins, cookie: str | None, answer: dict[str, str]) -> Response:
    """Return the page after the provider's answer: the question, or the first page signed in."""
    question = logins.identify(cookie, answer)
    if not question.is_browser:
        return question_page(question)
    session = logins.session(cookie, question.form_token)
    return begun_session(session, "/", logins.is_encrypted)


def _decided(logins: Logins, request: Request, form: dict[str, str]) -> Response:
    """Return the page after a decision; any other word than `approve` denies."""
    is_approved = form.get("decision") == "approve"
    cookie = _cookie(logins, request)
    terminal = logins.decide(cookie, form.get("form_token", ""), is_approved)
    name = terminal.host or terminal.address
    if is_approved:
        return message_page("Approved", f"{name} is logged in. You can close this page.")
    return message_page("Denied", f"{name} is not logged in. You can close this page.")


def _as_page(page: Callable[[], Response]) -> Response:
    """Return a page, or one that says why there is none."""
    try:
        return page()
    except CastorError as error:
        refused = refusal(error)
        response = message_page(_FAILED, str(error), refused.status_code)
        if "Retry-After" in refused.headers:
            response.headers["Retry-After"] = refused.headers["Retry-After"]
        return response


def _cookie(logins: Logins, request: Request) -> str | None:
    return request.cookies.get(_cookie_name(logins))


def _cookie_name(logins: Logins) -> str:
    return _ENCRYPTED_COOKIE if logins.is_encrypted else _COOKIE


def _address(request: Request) -> str:
    return "no address" if request.client is None else request.client.host
