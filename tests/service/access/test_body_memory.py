"""Memory that bodies of requests take, through the real gate and over a real application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
from fastapi import FastAPI, Request

from autoscaler.service.access.body_memory import BodyMemory
from autoscaler.service.access.request_gate import RequestGate
from autoscaler.service.faults import handle_errors, refusal

SMALL = 64 << 10


class Service:
    """Application that reads bodies, with room for 100 kB of large ones, 60 kB of one sender."""

    def __init__(self) -> None:
        self.memory = BodyMemory(100_000, 60_000)
        app = FastAPI()
        handle_errors(app)

        async def known(path: str, token: str | None) -> None:
            """Take every token."""

        @app.post("/v1/jobs")
        async def read(request: Request) -> int:
            return len(await request.body())

        app.add_middleware(
            RequestGate,
            check=known,
            refuse=lambda scope, error: refusal(error),
            memory=self.memory,
        )
        transport = httpx.ASGITransport(app)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://castor")
        self.ends = asyncio.Event()

    async def _part_and_wait(self, count: int) -> AsyncIterator[bytes]:
        yield b"x" * count
        await self.ends.wait()

    async def send(self, token: str, count: int) -> httpx.Response:
        return await self.http.post("/v1/jobs", headers=bearer(token), content=b"x" * count)

    async def begin(self, token: str, count: int) -> asyncio.Task[httpx.Response]:
        """Send a body all but its end, and wait until it is received."""
        body = self._part_and_wait(count)
        call = self.http.post("/v1/jobs", headers=bearer(token), content=body)
        sending = asyncio.ensure_future(call)
        for _ in range(100):
            await asyncio.sleep(0)
        return sending


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_large_bodies_of_one_token_leave_room_for_others_and_for_small_ones() -> None:
    async def run() -> None:
        service = Service()
        large = await service.begin("a", SMALL + 50_000)
        refused = await service.send("a", SMALL + 10_001)
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["error"] == "Unavailable"
        assert "try again in 1 s" in refused.json()["detail"]
        assert (await service.send("a", SMALL)).text == str(SMALL)
        other = await service.begin("b", SMALL + 50_000)
        assert (await service.send("c", SMALL + 1)).status_code == 429, "all together"
        service.ends.set()
        assert {(await large).status_code, (await other).status_code} == {200}
        assert (await service.send("a", SMALL + 60_000)).status_code == 200

    asyncio.run(run())


def test_a_body_that_is_refused_or_broken_off_frees_its_memory() -> None:
    async def run() -> None:
        service = Service()
        assert (await service.send("a", SMALL + 60_001)).status_code == 429
        broken_off = await service.begin("a", SMALL + 60_000)
        assert (await service.send("a", SMALL + 1)).status_code == 429
        broken_off.cancel()
        await asyncio.gather(broken_off, return_exceptions=True)
        assert (await service.send("a", SMALL + 60_000)).status_code == 200

    asyncio.run(run())
