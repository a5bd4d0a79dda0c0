"""Checks of a request before its body is read: token, path and size.

The size limit depends on the path. Bodies of PUT are files, whose receivers have their own limits
and keep nothing in memory.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from fastapi import Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from autoscaler.domain.errors import CastorError, NotFound
from autoscaler.domain.text import has_controls, printable

_JSON_BYTES: Final = 1 << 20
_LONG_BYTES: Final = 4 << 20
_OPEN_BYTES: Final = 1 << 16
_LONGEST_PATH: Final = 2_000
_PATHS: Final = "/v1/"
OPEN_PATHS: Final = frozenset({"/v1/node/join", "/v1/logins", "/v1/logins/token"})
"""Paths of the API that need no token: with them an instance or a person gets one."""

_LOGIN_PATH: Final = "/login"
# Logs and heartbeats of instances; calls and answers of trials.
_LONG: Final = re.compile(
    r"/v1/node/(logs|heartbeat|trial/calls)|/v1/studies/[^/]+/(terms|answers)"
)


@dataclass(frozen=True, slots=True)
class RequestGate:
    """ASGI middleware that authenticates requests and limits their size.

    `check` raises an error of the domain if a token, None without one, does not fit a path.
    `refuse` makes the response to such an error.
    """

    app: ASGIApp
    check: Callable[[str, str | None], Awaitable[None]]
    refuse: Callable[[CastorError], Response]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an acceptable request on to the application."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = str(scope["path"])
        try:
            if path.startswith(_PATHS) and path not in OPEN_PATHS:
                await self.check(path, bearer_token(scope))
            if has_controls(path) or len(path) > _LONGEST_PATH:
                raise NotFound(f"{printable(path[:100])} is no path of the API")
        except CastorError as error:
            await self.refuse(error)(scope, receive, send)
            return
        limit = None if scope["method"] == "PUT" else body_limit(path)
        await self.app(scope, receive if limit is None else _limited(receive, limit), send)


def body_limit(path: str) -> int:
    """Return the maximum size of a request's body in bytes."""
    if path in OPEN_PATHS or path == _LOGIN_PATH:
        return _OPEN_BYTES
    return _LONG_BYTES if _LONG.fullmatch(path) else _JSON_BYTES


def bearer_token(scope: Scope) -> str | None:
    """Return the bearer token of a request; None without one."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, token = value.decode("latin-1").partition(" ")
            return token.strip() if scheme.lower() == "bearer" and token.strip() else None
    return None


def _limited(receive: Receive, limit: int) -> Receive:
    """Return a `receive` that raises once the body is larger than `limit` bytes.

    Raises:
        HTTPException: from the returned `receive`, with status 413.
    """
    received_bytes = 0

    async def receive_part() -> Message:
        nonlocal received_bytes
        message = await receive()
        received_bytes += len(message.get("body", b""))
        if received_bytes > limit:
            raise HTTPException(413, f"the body is larger than the {limit:,} bytes that are taken")
        return message

    return receive_part
