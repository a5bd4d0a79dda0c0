"""Limits on the requests of one token, and on unknown tokens."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest
from starlette.types import Message, Receive, Scope, Send

from autoscaler.clock import VirtualClock
from autoscaler.domain.errors import NotAllowed, StoreError, Throttled, Unavailable
from autoscaler.service.access import request_limits
from autoscaler.service.access.request_limits import RequestLimits, RequestRates


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


class Tokens:
    """Check of tokens that counts questions: all are known but those that begin with "made up"."""

    def __init__(self) -> None:
        self.asked = 0
        self.revoked: set[str] = set()
        self.error: Exception | None = None

    async def __call__(self, path: str, token: str) -> None:
        self.asked += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        if token.startswith("made up") or token in self.revoked:
            raise NotAllowed("unknown")


def limits_of(
    inner: Application, clock: VirtualClock, tokens: Tokens | None = None, **rates: float
) -> RequestLimits:
    return RequestLimits(inner, clock, tokens or Tokens(), RequestRates(**rates))  # type: ignore[arg-type]


def scope_of(token: str | None, address: str, path: str = "/v1/jobs") -> Scope:
    authorization = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    return {
        "type": "http",
        "method": "GET",
        "path": path,
        "headers": authorization,
        "client": (address, 40_000),
    }


async def answer(
    app: RequestLimits,
    token: str | None,
    address: str = "10.0.0.1",
    path: str = "/v1/jobs",
) -> list[Message]:
    """Return the messages that answer one request."""
    messages: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message)

    await app(scope_of(token, address, path), receive, send)
    return messages


async def begun(inner: Application, requests: int) -> None:
    """Wait until so many requests have reached the application."""
    while inner.begun < requests:
        await asyncio.sleep(0)


async def status(
    app: RequestLimits,
    token: str | None = "token",
    address: str = "10.0.0.1",
    path: str = "/v1/jobs",
) -> int:
    return int((await answer(app, token, address, path))[0]["status"])


def test_a_burst_is_served_and_then_so_many_a_second() -> None:
    async def run() -> None:
        clock, inner = VirtualClock(100.0), Application()
        inner.release.set()
        app = limits_of(inner, clock, a_second=2.0, burst=3.0)
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
        app = limits_of(inner, VirtualClock(0.0), at_once=2)
        waiting = [asyncio.create_task(status(app)) for _ in range(2)]
        await begun(inner, 2)
        assert await status(app) == 429
        inner.release.set()
        assert await asyncio.gather(*waiting) == [200, 200]
        assert await status(app) == 200

    asyncio.run(run())


def test_a_stranger_holds_up_no_request_without_a_token_from_another_address() -> None:
    async def run() -> None:
        inner = Application()
        app = limits_of(inner, VirtualClock(0.0), at_once=2)
        held = [asyncio.create_task(status(app, None, "10.0.0.66")) for _ in range(2)]
        await begun(inner, 2)
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
        app = limits_of(inner, VirtualClock(0.0))
        await status(app, "x" * 50_000)
        assert all(len(sender) < 100 for sender in (*app._idle, *app._busy))

    asyncio.run(run())


def test_a_refusal_says_when_to_try_again_and_is_unavailable_to_a_client() -> None:
    async def run() -> None:
        app = limits_of(Application(), VirtualClock(0.0), a_second=0.1, burst=0.5)
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
        app = limits_of(inner, VirtualClock(0.0))
        for number in range(request_limits._MOST_SENDERS + 5):
            await status(app, str(number))
        assert len(app._idle) == request_limits._MOST_SENDERS
        assert app._busy == {}

    asyncio.run(run())


def test_a_sender_with_requests_under_way_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_limits, "_MOST_SENDERS", 3)

    async def run() -> None:
        inner = Application()
        app = limits_of(inner, VirtualClock(0.0), at_once=1)
        held = asyncio.create_task(status(app, "held"))
        await begun(inner, 1)
        others = [asyncio.create_task(status(app, f"other {number}")) for number in range(10)]
        await begun(inner, 11)
        assert await status(app, "held") == 429, "its request under way still counts"
        inner.release.set()
        assert await asyncio.gather(held, *others) == [200] * 11
        assert (len(app._idle), app._busy) == (3, {})

    asyncio.run(run())


def test_made_up_tokens_count_by_address_and_are_refused_unread_after_a_burst() -> None:
    async def run() -> None:
        clock, inner, tokens = VirtualClock(0.0), Application(), Tokens()
        inner.release.set()
        app = limits_of(inner, clock, tokens)
        calls = (status(app, f"made up {number}") for number in range(5_000))
        statuses = Counter(await asyncio.gather(*calls))
        assert statuses == {401: 100, 429: 4_900}
        assert (tokens.asked, inner.begun) == (100, 0)
        assert len(app._idle) + len(app._busy) == 0, "no unknown token is kept"
        assert await status(app, "made up", "10.0.0.2") == 401, "another address has its own"
        clock.advance(2.0)
        assert [await status(app, f"made up {number}") for number in range(3)] == [401, 401, 429]

    asyncio.run(run())


def test_known_tokens_are_served_beside_made_up_ones_of_their_address() -> None:
    async def run() -> None:
        inner, tokens = Application(), Tokens()
        inner.release.set()
        app = limits_of(inner, VirtualClock(0.0), tokens, unknown_burst=3.0)
        assert await status(app, "known") == 200
        assert [await status(app, f"made up {number}") for number in range(4)][-1] == 429
        assert await status(app, "known") == 200
        assert tokens.asked == 4, "a token that has proved to be known is not checked here again"
        assert await status(app, "new") == 429
        assert await status(app, "made up", path="/v1/logins") == 200, "which needs no token"

    asyncio.run(run())


def test_many_known_tokens_of_one_address_count_each_for_itself() -> None:
    """Serve all agents behind one address, which return after a start of the controller."""

    async def run() -> None:
        inner, tokens = Application(), Tokens()
        app = limits_of(inner, VirtualClock(0.0), tokens, unknown_burst=5.0)
        polls = []
        for number in range(300):  # each stays under way
            polls.append(asyncio.create_task(status(app, f"agent {number}")))
            await begun(inner, number + 1)
        inner.release.set()
        assert set(await asyncio.gather(*polls)) == {200}

    asyncio.run(run())


def test_a_token_that_is_refused_later_is_checked_again_and_keeps_its_count() -> None:
    async def run() -> None:
        tokens, clock = Tokens(), VirtualClock(0.0)

        async def refusing(scope: Scope, receive: Receive, send: Send) -> None:
            code = 401 if "token" in tokens.revoked else 200
            await send({"type": "http.response.start", "status": code, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        app = RequestLimits(refusing, clock, tokens, RequestRates(burst=4.0, a_second=1e-6))
        assert await status(app) == 200
        tokens.revoked.add("token")
        assert (await status(app), tokens.asked) == (401, 1)
        assert (await status(app), tokens.asked) == (401, 2)
        tokens.revoked.clear()
        assert [await status(app) for _ in range(3)] == [200, 200, 429]

    asyncio.run(run())


def test_a_store_that_does_not_answer_is_no_unknown_token() -> None:
    async def run() -> None:
        inner, tokens = Application(), Tokens()
        inner.release.set()
        tokens.error = StoreError("away")
        app = limits_of(inner, VirtualClock(0.0), tokens, unknown_burst=2.0)
        assert [await status(app, "token") for _ in range(5)] == [200] * 5
        assert not await app.is_known(scope_of("token", "10.0.0.1"))

    asyncio.run(run())


def test_the_health_routes_ask_within_the_limit_on_unknown_tokens() -> None:
    async def run() -> None:
        tokens = Tokens()
        app = limits_of(Application(), VirtualClock(0.0), tokens, unknown_burst=2.0)
        assert await app.is_known(scope_of("token", "10.0.0.1", "/livez"))
        assert not await app.is_known(scope_of(None, "10.0.0.1", "/livez"))
        for number in range(5):
            assert not await app.is_known(scope_of(f"made up {number}", "10.0.0.1", "/livez"))
        assert tokens.asked == 3
        start, body = await answer(app, "new")
        assert dict(start["headers"])[b"retry-after"] == b"1"
        assert json.loads(body["body"])["error"] == Throttled.__name__

    asyncio.run(run())
