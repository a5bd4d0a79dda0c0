"""Checks of a request before its body is read: token, path and size.

The size limit depends on the path. Bodies of PUT are files, whose receivers have their own limits
and keep nothing in memory.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote

from fastapi import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from autoscaler.domain.errors import CastorError, NotFound
from autoscaler.domain.rules import require_path_name
from autoscaler.domain.text import has_controls, printable
from autoscaler.service.access.body_memory import BodyMemory, LimitedBody

_JSON_BYTES: Final = 1 << 20
_LONG_BYTES: Final = 4 << 20
_OPEN_BYTES: Final = 1 << 16
_LONGEST_PATH: Final = 2_000
# Paths of the API whose names need no check beside that of their object.
_PLAIN_PATH: Final = re.compile(rb"(/(?!\.{1,2}(/|$))[A-Za-z0-9._~@:-]{1,200})+")
_PATHS: Final = "/v1/"
_NODE_PATHS: Final = "/v1/node/"
OPEN_PATHS: Final = frozenset({"/v1/node/join", "/v1/logins", "/v1/logins/token"})
"""Paths of the API that need no token: with them an instance or a person gets one."""

OPEN_PAGES: Final = re.compile(r"/login(/callback)?|/sign-in(/provider)?|/open|/static/[^/]+")
"""Paths of pages that need no session: those that begin one, and what they look like."""

SESSION_COOKIE: Final = "castor-session"
"""Cookie of a browser session: an access token that a script on a page can't read."""

ENCRYPTED_SESSION_COOKIE: Final = "__Host-castor-session"
"""The same over HTTPS. A browser takes a cookie of this name only from this very host."""

_OPEN_SENDER: Final = ""  # of requests without a token, whose bodies are small
_READS: Final = ("GET", "HEAD")
_UPLOAD_PATH: Final = "/submit/upload"
# Logs and heartbeats of instances; calls and answers of trials.
_LONG: Final = re.compile(
    r"/v1/node/(logs|heartbeat|trial/calls)|/v1/studies/[^/]+/(terms|answers)"
)


@dataclass(frozen=True, slots=True)
class RequestGate:
    """ASGI middleware that authenticates requests and limits their size.

    `check` raises an error of the domain if a token, None without one, does not fit a path.
    `refuse` makes the response to such an error. `templates` are the paths of all routes. `memory`
    bounds what bodies take.
    """

    app: ASGIApp
    check: Callable[[str, str | None], Awaitable[None]]
    refuse: Callable[[Scope, CastorError], Response]
    templates: Sequence[str] = ()
    memory: BodyMemory = field(default_factory=BodyMemory)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an acceptable request on to the application."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path, token = str(scope["path"]), presented_token(scope)
        try:
            if _needs_token(path, scope["method"]):
                await self.check(path, token)
            _require_path(scope, self.templates)
        except CastorError as error:
            await self.refuse(scope, error)(scope, receive, send)
            return
        if scope["method"] == "PUT" or path == _UPLOAD_PATH:
            await self.app(scope, receive, send)
            return
        declared, sender = declared_bytes(scope), token or _OPEN_SENDER
        body = LimitedBody(receive, body_limit(path), declared, self.memory, sender)
        try:
            await self.app(scope, body.receive, send)
        finally:
            body.free()


def _require_path(scope: Scope, templates: Sequence[str]) -> None:
    """Check that a path can name something.

    Raises:
        SpecError: a name in a path of the API can't be one; the error has its field.
        NotFound: the path has control characters or is too long.
    """
    raw_path = bytes(scope.get("raw_path") or quote(scope["path"]).encode())
    if _PLAIN_PATH.fullmatch(raw_path) and len(raw_path) <= _LONGEST_PATH:
        return
    path = str(scope["path"])
    if path.startswith(_PATHS):
        parts = [unquote(part) for part in raw_path.decode("latin-1").split("/")]
        for field, name in _names(parts, templates):
            require_path_name(name, field)
    if has_controls(path) or len(path) > _LONGEST_PATH:
        raise NotFound(f"{printable(path[:100])} is no path of the API")


def _names(parts: Sequence[str], templates: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield field and name of each part of a path that a template such as `/v1/jobs/{name}` names.

    A path that no template has yields nothing.
    """
    for template in templates:
        fields = template.split("/")
        pairs = tuple(zip(fields, parts, strict=False))
        is_of_template = all(field.startswith("{") or field == part for field, part in pairs)
        if is_of_template and len(fields) == len(parts):
            yield from ((field.strip("{}"), part) for field, part in pairs if field[:1] == "{")


def body_limit(path: str) -> int:
    """Return the maximum size of a request's body in bytes."""
    if is_open(path):
        return _OPEN_BYTES
    return _LONG_BYTES if _LONG.fullmatch(path) else _JSON_BYTES


def is_open(path: str) -> bool:
    """Return whether a path needs no token."""
    return path in OPEN_PATHS or OPEN_PAGES.fullmatch(path) is not None


def bearer_token(scope: Scope) -> str | None:
    """Return the bearer token of a request; None without one."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, token = value.decode("latin-1").partition(" ")
            return token.strip() if scheme.lower() == "bearer" and token.strip() else None
    return None


def session_token(scope: Scope) -> str | None:
    """Return the token of a request's browser session; None without a session."""
    cookies: dict[str, str] = {}
    for name, value in scope["headers"]:
        if name == b"cookie":
            parts = (part.strip().partition("=") for part in value.decode("latin-1").split(";"))
            cookies |= {cookie: text for cookie, _, text in parts if text}
    if ENCRYPTED_SESSION_COOKIE in cookies or scope.get("scheme") == "https":
        return cookies.get(ENCRYPTED_SESSION_COOKIE)
    return cookies.get(SESSION_COOKIE)


def presented_token(scope: Scope) -> str | None:
    """Return the token of a request: the bearer token, else that of the browser session.

    In the API a session only reads, so that no page of another site changes anything with it.
    Forms of pages have a token of their own.
    """
    token = bearer_token(scope)
    path = str(scope["path"])
    if token is not None or path.startswith(_NODE_PATHS):
        return token
    is_page = not path.startswith(_PATHS)
    return session_token(scope) if is_page or scope["method"] in _READS else None


def wants_page(scope: Scope) -> bool:
    """Return whether a request wants a page as its answer, such as one of a browser's tab."""
    accepted = (value for name, value in scope["headers"] if name == b"accept")
    return not str(scope["path"]).startswith(_PATHS) and b"text/html" in b",".join(accepted)


def _needs_token(path: str, method: str) -> bool:
    """Return whether a token is checked before the body is read.

    Requests of pages without a body are checked by their routes alone.
    """
    if path.startswith(_PATHS):
        return path not in OPEN_PATHS
    return method not in _READS and OPEN_PAGES.fullmatch(path) is None


def declared_bytes(scope: Scope) -> int:
    """Return the size of a request's body as its header declares it; 0 if none does."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0
