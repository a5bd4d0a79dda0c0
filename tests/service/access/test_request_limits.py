"""Limits on the requests of one token."""

from __future__ import annotations

import asyncio
import json

from starlette.types import Message, Receive, Scope, Send

from autoscaler.clock import VirtualClock
from autoscaler.domain.errors import Unavailable
from autoscaler.service.access import request_limits
from autoscaler.service.access.request_limits import RequestLimits


class Application:
    """Application whose requests end when `release` is set."""

    def __init__(self) -> None:
        self.begun = 0
        self.release = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun += 1
        await self.release.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def scope_of(token: str | None, address: str) -> Scope:
    authorization = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    return {
        "type": "http",
        "method": "GET",
        "path": "/v1/jobs",
        "headers": authorization,
        "client": (address, 40_000),
    }


async def answer(
    app: RequestLimits, token: str | None, address: str = "10.0.0.1"
) -> list[Message]:
    """Return the messages that answer one request."""
    messages: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message)

    await app(scope_of(token, address), receive, send)
    return messages


async def status(
    app: RequestLimits, token: str | None = "token", address: str = "10.0.0.1"
) -> int:
    return int((await answer(app, token, address))[0]["status"])


def test_a_burst_is_served_and_then_so_many_a_second() -> None:
    async def run() -> None:
        clock, inner = VirtualClock(100.0), Application()
        inner.release.set()
        app = RequestLimits(inner, clock, requests_per_second=2.0, burst_requests=3.0)
        assert [await status(app) for _ in range(5)] == [200, 200, 200, 429, 429]
        assert await status(app, "another") == 200, "each token has its own"
        assert await status(app, None) == 200
        clock.advance(0.5)
        assert [await status(app) for _ in range(2)] == [200, 429]
        clock.advance(1e6)
        assert [await status(app) for _ in range(4)] == [200, 200, 200, 429]
        assert inner.begun == 9, "what is refused reaches no route"

    asyncio.run(run())


def test_so_many_are_served_at_once_and_others_after_them() -> None:
    async def run() -> None:
        inner = Application()
        app = RequestLimits(inner, VirtualClock(0.0), requests_at_once=2)
        waiting = [asyncio.create_task(status(app)) for _ in range(2)]
        await asyncio.sleep(0)
        assert await status(app) == 429
        inner.release.set()
        assert await asyncio.gather(*waiting) == [200, 200]
        assert await status(app) == 200

    asyncio.run(run())


def test_a_stranger_holds_up_no_request_without_a_token_from_another_address() -> None:
    async def run() -> None:
        inner = Application()
        app = RequestLimits(inner, VirtualClock(0.0), requests_at_once=2)
        held = [asyncio.create_task(status(app, None, "10.0.0.66")) for _ in range(2)]
        await asyncio.sleep(0)
        assert await status(app, None, "10.0.0.66") == 429
        join = asyncio.create_task(status(app, None, "10.0.0.7"))
        await asyncio.sleep(0)
        inner.release.set()
        assert await asyncio.gather(*held, join) == [200, 200, 200]

    asyncio.run(run())


def test_a_long_token_is_not_kept() -> None:
    async def run() -> None:
        inner = Application()
        inner.release.set()
        app = RequestLimits(inner, VirtualClock(0.0))
        await status(app, "x" * 50_000)
        assert all(len(sender) < 100 for sender in app._usages)

    asyncio.run(run())


def test_a_refusal_says_when_to_try_again_and_is_unavailable_to_a_client() -> None:
    async def run() -> None:
        app = RequestLimits(Application(), VirtualClock(0.0), 0.1, burst_requests=0.5)
        start, body = await answer(app, "token")
        assert dict(start["headers"])[b"retry-after"] == b"5"
        fault = json.loads(body["body"])
        assert fault["error"] == Unavailable.__name__
        assert "try again in 5 s" in fault["message"]

    asyncio.run(run())


def test_tokens_that_are_not_used_are_forgotten() -> None:
    async def run() -> None:
        inner = Application()
        inner.release.set()
        app = RequestLimits(inner, VirtualClock(0.0))
        for number in range(request_limits._MOST_SENDERS + 5):
            await status(app, str(number))
        assert len(app._usages) == request_limits._MOST_SENDERS

    asyncio.run(run())
