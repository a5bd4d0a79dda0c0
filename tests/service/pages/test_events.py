"""Server-sent events of pages."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import httpx
import pytest

from autoscaler.domain.errors import Throttled
from autoscaler.service.pages.events import MOST_STREAMS, Changes
from tests.service.conftest import Api
from tests.service.pages.browser import PageVisitor
from tests.service.pages.test_sessions import sessions_of

Result = TypeVar("Result")


def run(coroutine: Coroutine[None, None, Result]) -> Result:
    """Run a coroutine in a thread of its own, since tests in a browser have a loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


@contextmanager
def stream(visitor: PageVisitor, **headers: str) -> Iterator[Iterator[str]]:
    """Yield the lines of a stream that are not empty."""
    with visitor.http.stream("GET", "/events", headers=headers, timeout=20) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream"), reply.read()
        yield (line for line in reply.iter_lines() if line)


def test_a_page_learns_of_a_change_and_not_of_one_that_it_has_seen(api: Api) -> None:
    visitor = PageVisitor(api)
    api.changes.note()
    with stream(visitor, **{"Last-Event-ID": "0"}) as lines:
        assert next(lines).startswith("retry: ")
        assert [next(lines) for _ in range(3)] == ["id: 1", "event: changed", "data: 1"]
    with stream(visitor, **{"Last-Event-ID": "1"}) as lines:
        next(lines)
        threading.Timer(0.05, api.changes.note).start()
        assert next(lines) == "id: 2"


def test_a_new_page_begins_with_the_next_change(api: Api) -> None:
    api.changes.note()
    with stream(PageVisitor(api)) as lines:
        next(lines)
        threading.Timer(0.05, api.changes.note).start()
        assert next(lines) == "id: 2"


def test_a_stream_ends_with_its_session_and_with_the_server(api: Api) -> None:
    visitor = PageVisitor(api)
    with stream(visitor) as lines:
        next(lines)
        api.client.revoke_token(sessions_of(api)[0])
        api.changes.note()
        assert list(lines) == []
    visitor = PageVisitor(api)
    with stream(visitor) as lines:
        next(lines)
        api.changes.close_threadsafe()
        assert list(lines) == []


def test_a_stream_needs_a_session(api: Api) -> None:
    assert httpx.get(f"{api.url}/events").status_code == 401


def test_the_streams_of_a_token_are_limited() -> None:
    async def begin_too_many() -> None:
        changes = Changes()
        for _ in range(MOST_STREAMS):
            changes.begin("ada/browser")
        changes.begin("eve/browser")
        with pytest.raises(Throttled):
            changes.begin("ada/browser")
        changes.end("ada/browser")
        changes.begin("ada/browser")

    run(begin_too_many())


def test_without_a_change_a_wait_ends_with_its_time() -> None:
    async def wait() -> int:
        return await Changes().next(0, 0.01)

    assert run(wait()) == 0
