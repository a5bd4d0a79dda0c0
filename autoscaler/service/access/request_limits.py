"""Limits on requests: how many a second, how many at once, and how many with unknown tokens.

A program in a loop then slows its own requests, not those of others. Requests count by their token
once it has proved to be known. Requests without a known token, such as joins, count by the address
that they come from. An address may present only few unknown tokens a second, because each token
costs a question to the store.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from fastapi import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError, NotAllowed, Throttled
from autoscaler.service.access.people import digest
from autoscaler.service.access.request_gate import is_open, presented_token
from autoscaler.service.access.wrong_tries import network
from autoscaler.service.faults import fault_response, refusal
from autoscaler.wire.messages import Fault

# The idle sender that was seen least recently is forgotten.
_MOST_SENDERS: Final = 10_000
_TOO_MANY: Final = 429
_NOT_ALLOWED: Final = 401
_API: Final = "/v1/"


@dataclass(frozen=True, slots=True)
class RequestRates:
    """Bounds on the requests of one token, or of one address without a known token.

    Attributes:
        a_second: requests a second, after a burst.
        burst: requests at one instant.
        at_once: requests under way.
        unknown_a_second: unknown tokens that an address may present a second, after a burst.
        unknown_burst: unknown tokens that an address may present at one instant.
    """

    a_second: float = 500.0
    burst: float = 1_000.0
    at_once: int = 64
    unknown_a_second: float = 1.0
    unknown_burst: float = 100.0


@dataclass(slots=True)
class _Usage:
    """Requests that a sender may still begin at a time, and those under way.

    `is_known` is False once the application has refused the sender's token.
    """

    left: float
    at_seconds: float
    under_way: int = 0
    is_known: bool = True

    def refill(self, now_seconds: float, a_second: float, burst: float) -> None:
        """Add what the time since the last request permits."""
        self.left = min(self.left + (now_seconds - self.at_seconds) * a_second, burst)
        self.at_seconds = now_seconds


class RequestLimits:
    """ASGI middleware that answers 429 to requests beyond a sender's limits.

    `check` raises an error of the domain if a token does not fit a path.
    """

    def __init__(
        self,
        app: ASGIApp,
        clock: Clock,
        check: Callable[[str, str], Awaitable[None]],
        rates: RequestRates = RequestRates(),
    ) -> None:
        self._app = app
        self._clock = clock
        self._check = check
        self._rates = rates
        self._busy: dict[str, _Usage] = {}
        self._idle: OrderedDict[str, _Usage] = OrderedDict()
        self._unknown: OrderedDict[str, _Usage] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request within the limits on to the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        token, sender = presented_token(scope), _address(scope)
        if token is not None and not is_open(scope["path"]):
            try:
                sender = await self._sender(scope, token)
            except Throttled as error:
                await refusal(error)(scope, receive, send)
                return
            except NotAllowed as error:
                if scope["path"].startswith(_API):  # pages have refusals of their own
                    await refusal(error)(scope, receive, send)
                    return
            except CastorError:
                pass  # which the application meets, too
        await self._counted(sender, scope, receive, send)

    async def is_known(self, scope: Scope) -> bool:
        """Return whether a request has a known token, as far as its address may still ask."""
        token = presented_token(scope)
        try:
            if token is not None:
                await self._prove(scope, token)
            return token is not None
        except CastorError:
            return False

    async def _sender(self, scope: Scope, token: str) -> str:
        """Return what a request with a token counts by, once the token has proved to be known.

        Raises:
            Throttled, NotAllowed, CastorError: as `_prove`.
        """
        sender = digest(token)
        usage = self._busy.get(sender) or self._idle.get(sender)
        if usage is None or not usage.is_known:
            await self._prove(scope, token)
            usage = self._busy.get(sender) or self._idle.get(sender)
            if usage is not None:
                usage.is_known = True
        return sender

    async def _prove(self, scope: Scope, token: str) -> None:
        """Check that a token is known.

        Raises:
            Throttled: the address has presented too many unknown tokens.
            NotAllowed: the token does not fit the path.
            CastorError: the store can't tell.
        """
        rates, tries = self._rates, self._tries(_address(scope))
        if tries.left < 1:
            wait_seconds = (1 - tries.left) / rates.unknown_a_second
            raise Throttled(
                "this address has presented too many unknown tokens: try again in "
                f"{math.ceil(wait_seconds)} s",
                wait_seconds,
            )
        tries.left -= 1  # given back unless the token is unknown
        try:
            await self._check(scope["path"], token)
        except NotAllowed:
            raise
        except CastorError:
            tries.left += 1
            raise
        tries.left += 1

    async def _counted(self, sender: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request of a sender, and count it as long as it is under way."""
        usage = self._usage(sender)
        wait_seconds = self._wait_seconds(usage)
        if wait_seconds > 0:
            self._keep(sender, usage)
            await _refusal(wait_seconds)(scope, receive, send)
            return
        usage.left -= 1
        usage.under_way += 1
        self._busy[sender] = usage

        async def watched(message: Message) -> None:
            if message.get("status") == _NOT_ALLOWED:
                usage.is_known = False
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            usage.under_way -= 1
            self._keep(sender, usage)

    def _usage(self, sender: str) -> _Usage:
        """Return the usage of a sender now, which is not idle any more."""
        now_seconds, rates = self._clock.monotonic(), self._rates
        usage = self._busy.get(sender) or self._idle.pop(sender, None)
        if usage is None:
            return _Usage(rates.burst, now_seconds)
        usage.refill(now_seconds, rates.a_second, rates.burst)
        return usage

    def _keep(self, sender: str, usage: _Usage) -> None:
        """Remember a sender; one without requests under way may be forgotten for newer ones."""
        if usage.under_way:
            return
        self._busy.pop(sender, None)
        self._idle[sender] = usage
        if len(self._idle) + len(self._busy) > _MOST_SENDERS:
            self._idle.popitem(last=False)

    def _tries(self, address: str) -> _Usage:
        """Return how many unknown tokens an address may still present."""
        now_seconds, rates = self._clock.monotonic(), self._rates
        tries = self._unknown.pop(address, None) or _Usage(rates.unknown_burst, now_seconds)
        tries.refill(now_seconds, rates.unknown_a_second, rates.unknown_burst)
        self._unknown[address] = tries
        if len(self._unknown) > _MOST_SENDERS:
            self._unknown.popitem(last=False)
        return tries

    def _wait_seconds(self, usage: _Usage) -> float:
        """Return the seconds after which to try again; 0 if a request may begin now."""
        if usage.under_way >= self._rates.at_once:
            return 1.0
        return 0.0 if usage.left >= 1 else (1 - usage.left) / self._rates.a_second


def _address(scope: Scope) -> str:
    """Return the address that a request comes from, or its network."""
    client = scope.get("client")
    return "no address" if client is None else f"address {network(client[0])}"


def _refusal(wait_seconds: float) -> Response:
    """Return the response that asks to try again later."""
    seconds = math.ceil(wait_seconds)
    fault = Fault(
        "Unavailable",
        "this token, or without a known one this address, has too many requests at once or a "
        f"second: try again in {seconds} s",
    )
    return fault_response(fault, _TOO_MANY, {"Retry-After": str(seconds)})
