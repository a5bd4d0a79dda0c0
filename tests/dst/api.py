"""Requests to the real application in this process, without sockets, threads or an event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, TypeVar

import anyio.to_thread
from fastapi import FastAPI

from autoscaler.service import threads
from autoscaler.service.app import ServiceDependencies, create_app
from autoscaler.service.instances.heartbeats import Answered, Heartbeat, HeartbeatReceiver

Value = TypeVar("Value")
Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Reply:
    """Reply of the application."""

    status: int
    headers: Headers
    content: bytes


async def _in_this_thread(function: Callable[..., Value], *arguments: Any, **_: Any) -> Value:
    return function(*arguments)


async def _handle_alone(heartbeats: HeartbeatReceiver, heartbeat: Heartbeat) -> Answered:
    """Handle a heartbeat as a batch of its own."""
    (result,) = heartbeats.answer([heartbeat])
    if isinstance(result, Answered):
        return result
    raise result


class _Forwarded:
    """Dependency of the controller that uses the application now."""

    def __init__(self, application: Application, name: str) -> None:
        self._application = application
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(getattr(self._application.dependencies, self._name), attribute)

    def __call__(self, *arguments: Any) -> Any:
        return getattr(self._application.dependencies, self._name)(*arguments)


class Application:
    """Application of one controller at a time, because its creation takes long."""

    dependencies: ServiceDependencies

    def __init__(self) -> None:
        forwarded: dict[str, Any] = {
            field.name: _Forwarded(self, field.name) for field in fields(ServiceDependencies)
        }
        self._app: FastAPI = create_app(ServiceDependencies(**forwarded), "dst")

    def request(self, method: str, path: str, token: str | None, body: bytes) -> tuple[int, bytes]:
        """Return the status and the body of the reply."""
        headers = [(b"content-type", b"application/json")]
        if token is not None:
            headers.append((b"authorization", f"Bearer {token}".encode()))
        reply = self.exchange(method, path, headers, body)
        return reply.status, reply.content

    def exchange(self, method: str, path: str, headers: Headers, body: bytes) -> Reply:
        """Return the reply to a request with these headers, whose names are in lower case."""
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8470),
        }
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        _finish(self._app(scope, receive, send))  # type: ignore[arg-type]
        content = b"".join(message.get("body", b"") for message in sent[1:])
        return Reply(int(sent[0]["status"]), list(sent[0].get("headers", ())), content)


def _finish(call: Awaitable[None]) -> None:
    """Run a coroutine that never waits."""
    coroutine: Any = call
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise AssertionError("a request waited, which needs an event loop")


@cache
def application(slot: int) -> Application:
    """Return one of this process's applications; controllers that overlap use different ones."""
    anyio.to_thread.run_sync = _in_this_thread  # type: ignore[assignment]
    threads.run_sync = _in_this_thread  # type: ignore[assignment]
    threads._stop_limiter = lambda: None  # type: ignore[assignment, return-value]
    HeartbeatReceiver.handle = _handle_alone  # type: ignore[method-assign]
    return Application()
