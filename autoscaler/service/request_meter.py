"""Count, duration and spans of the API's requests, by their route.

Requests that agents send all the time have no span. A heartbeat with news has one of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from autoscaler.clock import Clock
from autoscaler.spans import SpanOpener, no_span

_OTHER: Final = "other"
# Answered by middleware, so that the framework finds no route for them.
_SHORT_WAYS: Final = frozenset({"/v1/node/heartbeat", "/livez", "/readyz"})
_UNTRACED: Final = _SHORT_WAYS | {"/metrics", "/v1/node/logs"}
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_NO_ANSWER: Final = 499  # the client has gone

Answered = Callable[[str, str, int, float], None]


@dataclass(frozen=True, slots=True)
class RequestMeter:
    """ASGI middleware that calls `answered` with method, route, status and seconds of a request.

    The route is the template of its path, such as ``/v1/jobs/{name}``, or ``other``: senders can
    not add names of their own.
    """

    app: ASGIApp
    answered: Answered
    clock: Clock
    span: SpanOpener = no_span

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application, and count it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif scope["path"] in _UNTRACED:
            await self._count(scope, receive, send)
        else:
            with self.span("request") as span:
                await self._count(scope, receive, send)
                span.rename(f"{_method(scope)} {_route(scope)}")

    async def _count(self, scope: Scope, receive: Receive, send: Send) -> None:
        began_seconds = self.clock.monotonic()
        status = _NO_ANSWER

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noted)
        finally:
            seconds = self.clock.monotonic() - began_seconds
            self.answered(_method(scope), _route(scope), status, seconds)


def _method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in _METHODS else _OTHER


def _route(scope: Scope) -> str:
    """Return the template of a request's path, once it has been routed."""
    template = getattr(scope.get("route"), "path", None)
    if template is not None:
        return str(template)
    return scope["path"] if scope["path"] in _SHORT_WAYS else _OTHER
