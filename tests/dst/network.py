"""Requests of clients to the leading controller, as tasks that faults delay, double and lose."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import httpcore

from tests.dst.api import Reply, application
from tests.dst.line import Life

if TYPE_CHECKING:
    from tests.dst.world import Process, World

URL: Final = "http://controller:8470"
TOKEN: Final = "the owner's token"
_TIMEOUT_SECONDS: Final = 30  # as `autoscaler.wire.http`


class Network(httpcore.ConnectionInterface):
    """Connections of one client, which runs as tasks of the life `client`."""

    def __init__(self, world: World, name: str, client: Life) -> None:
        self._world = world
        self._name = name
        self._client = client

    def handle_request(self, request: httpcore.Request) -> httpcore.Response:
        """Return the reply to a request of a task of the client.

        Raises:
            ConnectError: no controller runs.
            ReadError: the request or its reply is lost.
            Killed: the client has died.
        """
        self._client.mark()
        process = self._world.leader
        if process is None:
            raise httpcore.ConnectError("no controller listens")
        if self._world.loses():
            raise httpcore.ReadError("the connection broke before the request arrived")
        replies = self._replies(process, request)
        self._client.mark()
        if not replies or self._world.loses():
            raise httpcore.ReadError("the connection broke before the reply arrived")
        reply = replies[-1]
        return httpcore.Response(reply.status, headers=reply.headers, content=reply.content)

    def _replies(self, process: Process, request: httpcore.Request) -> list[Reply]:
        """Let the controller answer, perhaps twice; return no reply if it dies meanwhile."""
        world, scheduler = self._world, self._world.scheduler
        caller, replies = scheduler.current, []
        method, path = request.method.decode(), path_of(request)
        app, body = application(process.life.number % 3), _body(request.stream)
        headers = [(name.lower(), value) for name, value in request.headers]
        times, has_ended = world.times_sent(), False

        def exchange() -> None:
            nonlocal has_ended
            try:
                for _ in range(times):
                    app.dependencies = process.deployment.app  # type: ignore[assignment]
                    reply = app.exchange(method, path, headers, body)
                    process.life.mark()
                    replies.append(reply)
                    world.note(f"{self._name} {method} {path} {reply.status}")
            finally:
                has_ended = True
                scheduler.wake(caller)

        scheduler.spawn(f"request of {self._name}", process.life.number, exchange)
        until_seconds = scheduler.now_seconds + _TIMEOUT_SECONDS
        while not has_ended and scheduler.now_seconds < until_seconds:
            scheduler.sleep(until_seconds - scheduler.now_seconds)
        return replies


def path_of(request: httpcore.Request) -> str:
    """Return the path of a request, with its query."""
    parts = urlsplit(request.url.target.decode())
    return parts.path + (f"?{parts.query}" if parts.query else "")


def _body(stream: Iterable[bytes] | AsyncIterable[bytes]) -> bytes:
    assert isinstance(stream, Iterable)
    return b"".join(stream)
