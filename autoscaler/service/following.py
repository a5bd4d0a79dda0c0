"""Requests to a controller that follows the leader of its store.

A follower answers reads of what is in the store. It sends all other requests to the leader, by a
redirect that keeps method and body. Offers, limits, logs, files, logins and pages are known to the
leader alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from fastapi import Response
from fastapi.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

from autoscaler.clock import Clock
from autoscaler.domain.errors import StoreError
from autoscaler.service.faults import fault_response
from autoscaler.wire.messages import Fault

_PATHS: Final = re.compile(
    r"/|/(v1|login|sign-in|sign-out|open|theme|events|fleet|jobs|submit|costs|offers|studies|people"
    r"|audit)(/.*)?",
    re.DOTALL,
)
_STORED: Final = re.compile(
    r"/v1/(jobs(/[^/]+(/(decisions|receipt))?)?|costs(/days)?|programs(/[^/]+)?|studies/[^/]+(/stays)?)"
)
_KNOWN_SECONDS: Final = 1.0


@dataclass(slots=True)
class LeaderAddress:
    """Address of the leader's API, asked of the store at most once a second."""

    ask: Callable[[], str | None]
    clock: Clock
    _asked_seconds: float = float("-inf")
    _address: str | None = field(default=None)

    def get(self) -> str | None:
        """Return the address; None while no controller leads, or the store does not answer."""
        moment_seconds = self.clock.monotonic()
        if moment_seconds - self._asked_seconds >= _KNOWN_SECONDS:
            self._asked_seconds = moment_seconds
            try:
                self._address = self.ask()
            except StoreError:
                self._address = None
        return self._address


@dataclass(frozen=True, slots=True)
class FollowerGate:
    """ASGI middleware that serves reads of the store, and redirects the rest to the leader.

    `follows` returns whether this controller is a follower now; a leader's requests all pass.
    """

    app: ASGIApp
    follows: Callable[[], bool]
    leader: LeaderAddress

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application, or redirect it."""
        if scope["type"] != "http" or not self.follows() or _is_served(scope):
            await self.app(scope, receive, send)
            return
        address = await run_in_threadpool(self.leader.get)
        await _reply(scope, address)(scope, receive, send)


def _is_served(scope: Scope) -> bool:
    """Return whether a follower answers a request itself."""
    path = str(scope["path"])
    is_read = scope["method"] in ("GET", "HEAD")
    return _PATHS.fullmatch(path) is None or (is_read and _STORED.fullmatch(path) is not None)


def _reply(scope: Scope, address: str | None) -> Response:
    if address is None:
        text = "no controller leads the store now: repeat the request in some seconds"
        headers = {"Retry-After": "2"}
        return _fault(503, text, headers)
    path = scope.get("raw_path") or str(scope["path"]).encode()
    query = scope.get("query_string") or b""
    target = path.decode("latin-1") + (f"?{query.decode('latin-1')}" if query else "")
    text = f"this controller follows the one at {address}, which answers this request"
    return _fault(307, text, {"Location": f"{address.rstrip('/')}{target}"})


def _fault(status: int, text: str, headers: dict[str, str]) -> Response:
    return fault_response(Fault("Unavailable", text), status, headers)
