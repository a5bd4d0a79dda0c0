"""Counts of requests, through the application as it is served."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from autoscaler.clock import SystemClock
from autoscaler.service.request_meter import RequestMeter
from tests.service.conftest import TOKEN, Api, application

Counted = Counter[tuple[str, str, int]]
Requests = Callable[[httpx.AsyncClient], Awaitable[object]]


def counted(send: Requests) -> Counted:
    counts: Counted = Counter()

    def answered(method: str, route: str, status: int, seconds: float) -> None:
        assert seconds >= 0
        counts[method, route, status] += 1

    async def run() -> None:
        transport = httpx.ASGITransport(RequestMeter(application(), answered, SystemClock()))
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://castor", headers=headers
        ) as client:
            await send(client)

    asyncio.run(run())
    return counts


def test_requests_count_under_the_template_of_their_path(api: Api) -> None:
    async def send(client: httpx.AsyncClient) -> None:
        for name in ("a", "b"):
            await client.get(f"/v1/jobs/{name}")
        await client.get("/v1/jobs")

    assert counted(send) == {
        ("GET", "/v1/jobs/{name}", 404): 2,
        ("GET", "/v1/jobs", 200): 1,
    }


def test_senders_can_not_add_names_of_their_own(api: Api) -> None:
    async def send(client: httpx.AsyncClient) -> None:
        await client.get("/v1/invented/17")
        await client.request("INVENT", "/v1/fleet")
        await client.get("/v1/fleet", headers={"Authorization": "Bearer wrong"})
        await client.post("/v1/node/heartbeat", content=b"{}")

    assert counted(send) == {
        ("GET", "other", 404): 1,
        ("other", "/v1/fleet", 405): 1,
        ("GET", "other", 401): 1,
        ("POST", "/v1/node/heartbeat", 401): 1,
    }


def test_a_request_whose_client_has_gone_counts_once() -> None:
    counts: Counted = Counter()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise ConnectionError

    async def nothing() -> dict[str, object]:
        return {}

    async def drop(message: object) -> None: ...

    def answered(method: str, route: str, status: int, seconds: float) -> None:
        counts[method, route, status] += 1

    meter = RequestMeter(app, answered, SystemClock())
    scope = {"type": "http", "method": "GET", "path": "/v1/fleet"}
    with pytest.raises(ConnectionError):
        asyncio.run(meter(scope, nothing, drop))
    assert counts == {("GET", "other", 499): 1}
