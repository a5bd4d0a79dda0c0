"""Server-sent events: a page learns that what it shows may have changed.

An event has no content but the number of the change, so a page asks for what it shows with the
rights of its own session. A stream holds no thread. It begins with an event unless the browser
has seen the newest one, so that none is missed between two streams.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from autoscaler.domain.errors import CastorError, Throttled
from autoscaler.service.access.authentication import Authentication
from autoscaler.service.access.gate import Requester
from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.access.request_gate import presented_token
from autoscaler.service.pages.rendering import HEADERS
from autoscaler.service.routes.permits import Permit

KEEP_ALIVE_SECONDS: Final = 15.0
LEAST_SECONDS: Final = 2.0
"""Least time between two events of a stream."""

MOST_STREAMS: Final = 16
"""Streams of one token at once."""

_RETRY_MILLISECONDS: Final = 3_000


class Changes:
    """Number of the newest change, and the streams that await the next one.

    `note` may be called from any thread; all else runs in the event loop.
    """

    def __init__(self) -> None:
        self.number = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[asyncio.Event] = set()
        self._streams: Counter[str] = Counter()
        self.is_closed = False

    def note(self) -> None:
        """Note that something changed, such as at the end of a tick."""
        self.number += 1
        if self._loop is not None and not self.is_closed:
            self._loop.call_soon_threadsafe(self._wake)

    def close(self) -> None:
        """End all streams; call this in the event loop."""
        self.is_closed = True
        self._wake()

    def close_threadsafe(self) -> None:
        """End all streams, from any thread."""
        if self._loop is None:  # no stream has begun
            self.is_closed = True
        else:
            self._loop.call_soon_threadsafe(self.close)

    def begin(self, token: str) -> None:
        """Count a stream of a token.

        Raises:
            Throttled: the token has too many.
        """
        if self._streams[token] >= MOST_STREAMS:
            raise Throttled(
                f"this session has {MOST_STREAMS} pages that follow the controller: close one",
                10.0,
            )
        self._loop = asyncio.get_running_loop()
        self._streams[token] += 1

    def end(self, token: str) -> None:
        """Count a stream of a token that has ended."""
        self._streams[token] -= 1
        if self._streams[token] <= 0:
            del self._streams[token]

    async def next(self, seen: int, wait_seconds: float) -> int:
        """Return the number of the newest change, once it is not `seen` or the time is over."""
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            async with asyncio.timeout(wait_seconds):
                while self.number == seen and not self.is_closed:
                    await event.wait()
                    event.clear()
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(event)
        return self.number

    def _wake(self) -> None:
        for event in self._waiting:
            event.set()


def events_router(changes: Changes, authentication: Authentication) -> APIRouter:
    """Return the route of the stream. It ends when the token of its session does."""
    router = APIRouter(include_in_schema=False)

    @router.get("/events")
    async def events(
        request: Request, requester: Requester = Depends(Permit(AccessAction.READ))
    ) -> StreamingResponse:
        token = f"{requester.identity.person}/{requester.identity.token}"
        changes.begin(token)
        seen = _seen(request.headers.get("last-event-id"))
        stream = _stream(changes, token, seen, request, authentication)
        return StreamingResponse(stream, headers=HEADERS, media_type="text/event-stream")

    return router


async def _stream(
    changes: Changes,
    token: str,
    seen: int | None,
    request: Request,
    authentication: Authentication,
) -> AsyncIterator[bytes]:
    """Yield an event for each change, at most one in `LEAST_SECONDS`, and comments between."""
    try:
        yield f"retry: {_RETRY_MILLISECONDS}\n\n".encode()
        number = changes.number if seen is None else seen
        while not changes.is_closed:
            newest = await changes.next(number, KEEP_ALIVE_SECONDS)
            if changes.is_closed or not await _is_usable(request, authentication):
                return
            if newest == number:
                yield b": nothing has changed\n\n"
                continue
            number = newest
            yield f"id: {number}\nevent: changed\ndata: {number}\n\n".encode()
            await _rest(changes)
    finally:
        changes.end(token)


async def _rest(changes: Changes) -> None:
    """Wait for `LEAST_SECONDS`, or until all streams end."""
    left_seconds = LEAST_SECONDS
    while left_seconds > 0 and not changes.is_closed:
        await asyncio.sleep(0.25)
        left_seconds -= 0.25


async def _is_usable(request: Request, authentication: Authentication) -> bool:
    """Return whether the token of a stream is neither revoked nor expired."""
    presented = presented_token(request.scope) or ""
    if authentication.people.known(presented) is not None:
        return True
    try:
        await run_in_threadpool(authentication.people.identity, presented)
    except CastorError:
        return False
    return True


def _seen(text: str | None) -> int | None:
    """Return the number of the last event that a browser has; None: it has none."""
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) < 20
    return int(text) if text is not None and is_number else None
