"""Limits on the requests of one token: how many a second, and how many at once.

A program in a loop then slows its own requests, not those of others. A token's requests are those
that carry it, known or not: an unknown token is refused by the gate behind. Requests without a
token, such as joins, count by the address that they come from.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from fastapi import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from autoscaler.clock import Clock
from autoscaler.service.access.people import digest
from autoscaler.service.access.request_gate import bearer_token, session_token
from autoscaler.service.faults import fault_response
from autoscaler.wire.messages import Fault

REQUESTS_PER_SECOND: Final = 500.0
BURST_REQUESTS: Final = 1_000.0
REQUESTS_AT_ONCE: Final = 64
# The sender that was seen least recently is forgotten; a bucket that is full again holds nothing.
_MOST_SENDERS: Final = 10_000
_TOO_MANY: Final = 429


@dataclass(slots=True)
class _Usage:
    """Requests that a sender may still begin now, and those under way."""

    left: float
    at_seconds: float
    under_way: int = 0


class RequestLimits:
    """ASGI middleware that answers 429 to requests beyond a sender's limits."""

    def __init__(
        self,
        app: ASGIApp,
        clock: Clock,
        requests_per_second: float = REQUESTS_PER_SECOND,
        burst_requests: float = BURST_REQUESTS,
        requests_at_once: int = REQUESTS_AT_ONCE,
    ) -> None:
        self._app = app
        self._clock = clock
        self._requests_per_second = requests_per_second
        self._burst_requests = burst_requests
        self._requests_at_once = requests_at_once
        self._usages: OrderedDict[str, _Usage] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request within the limits on to the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        usage = self._usage(_sender(scope))
        wait_seconds = self._wait_seconds(usage)
        if wait_seconds > 0:
            await _refusal(wait_seconds)(scope, receive, send)
            return
        usage.left -= 1
        usage.under_way += 1
        try:
            await self._app(scope, receive, send)
        finally:
            usage.under_way -= 1

    def _usage(self, sender: str) -> _Usage:
        """Return the usage of a sender now."""
        now_seconds = self._clock.monotonic()
        usage = self._usages.pop(sender, None) or _Usage(self._burst_requests, now_seconds)
        gained = (now_seconds - usage.at_seconds) * self._requests_per_second
        usage.left = min(usage.left + gained, self._burst_requests)
        usage.at_seconds = now_seconds
        self._usages[sender] = usage
        if len(self._usages) > _MOST_SENDERS:
            self._usages.popitem(last=False)
        return usage

    def _wait_seconds(self, usage: _Usage) -> float:
        """Return the seconds after which to try again; 0 if a request may begin now."""
        if usage.under_way >= self._requests_at_once:
            return 1.0
        return 0.0 if usage.left >= 1 else (1 - usage.left) / self._requests_per_second


def _sender(scope: Scope) -> str:
    """Return what a request counts against: the hash of its token, or its address without one."""
    token = bearer_token(scope) or session_token(scope)
    if token is not None:
        return digest(token)
    client = scope.get("client")
    return "no address" if client is None else f"address {client[0]}"


def _refusal(wait_seconds: float) -> Response:
    """Return the response that asks to try again later."""
    seconds = math.ceil(wait_seconds)
    fault = Fault(
        "Unavailable",
        "this token, or without one this address, has too many requests at once or a second: "
        f"try again in {seconds} s",
    )
    return fault_response(fault, _TOO_MANY, {"Retry-After": str(seconds)})
