"""Health routes for service managers and load balancers: `/livez` and `/readyz`.

They answer without a token, from memory alone, so they neither wait nor cost a store anything. A
person's token adds the details.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from fastapi import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from autoscaler.loop_watch import LoopState

FRESH_SECONDS: Final = 30.0
"""A controller is ready while its last tick is younger, and so is its last write to the store."""
_PATHS: Final = ("/livez", "/readyz")


@dataclass(frozen=True, slots=True)
class Health:
    """Facts of a controller's health.

    `role` is "leader" or "follower". `store_error` is the error of the last test write, None if it
    succeeded; `written_age_seconds` is the time since the last success, None before the first.
    """

    role: str
    loop: LoopState
    store_error: str | None
    written_age_seconds: float | None

    @property
    def obstacles(self) -> tuple[str, ...]:
        """Reasons why this controller is not ready to serve all requests; empty if it is."""
        obstacles = []
        if self.role != "leader":
            obstacles.append(f"this controller is a {self.role}")
        tick_seconds = self.loop.tick_age_seconds
        if tick_seconds is None:
            obstacles.append("no tick has succeeded yet")
        elif tick_seconds > FRESH_SECONDS:
            obstacles.append(f"the last tick that succeeded ended {tick_seconds:.0f} s ago")
        if self.store_error is not None:
            obstacles.append(self.store_error)
        elif self.written_age_seconds is None or self.written_age_seconds > FRESH_SECONDS:
            obstacles.append(f"the store has not been written for {FRESH_SECONDS:.0f} s")
        return tuple(obstacles)

    def details(self) -> Mapping[str, object]:
        """Return the facts for an authenticated person."""
        return {
            "role": self.role,
            "tick_age_seconds": self.loop.tick_age_seconds,
            "loop_quiet_seconds": self.loop.quiet_seconds,
            "store_written_age_seconds": self.written_age_seconds,
            "obstacles": self.obstacles,
        }


@dataclass(frozen=True, slots=True)
class HealthGate:
    """ASGI middleware that answers the health routes, and passes on all other requests.

    `is_known` returns whether a request has the token of a person.
    """

    app: ASGIApp
    health: Callable[[], Health]
    is_known: Callable[[Scope], Awaitable[bool]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a health route, or pass the request on."""
        path = scope["path"] if scope["type"] == "http" else ""
        if path not in _PATHS or scope["method"] not in ("GET", "HEAD"):
            await self.app(scope, receive, send)
            return
        health = self.health()
        is_well = health.loop.is_alive if path == "/livez" else not health.obstacles
        content: dict[str, object] = {"status": "ok" if is_well else "failing"}
        if await self.is_known(scope):
            content |= health.details()
        response = Response(
            json.dumps(content), 200 if is_well else 503, media_type="application/json"
        )
        await response(scope, receive, send)
