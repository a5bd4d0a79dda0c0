"""Answers to heartbeats, with a short way to them for all that need not wait.

Heartbeats are by far the most requests. The layers of the framework and its search for the route
take more time than the heartbeat itself (docs/scale.md).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from autoscaler.domain.errors import CastorError
from autoscaler.service.access.authentication import Authentication
from autoscaler.service.access.request_gate import bearer_token
from autoscaler.service.faults import http_refusal, refusal
from autoscaler.service.instances.heartbeats import Heartbeat, HeartbeatReceiver
from autoscaler.service.instances.nodes import Nodes
from autoscaler.service.routes.bodies import JsonResponse, json_response
from autoscaler.wire.messages import NodeReply, Wanted

_PATH: Final = "/v1/node/heartbeat"
_NO_WAIT: Final = (b"", b"wait_seconds=0.0")


@dataclass(frozen=True, slots=True)
class HeartbeatAnswers:
    """Answers to heartbeats, after an optional wait for a change."""

    heartbeats: HeartbeatReceiver
    nodes: Nodes
    authentication: Authentication

    async def __call__(
        self, token: str, body: bytes, wait_seconds: float = 0.0
    ) -> JsonResponse[NodeReply]:
        """Return the response to a heartbeat.

        With `wait_seconds` it is delayed while the instance keeps its job and need not drain.

        Raises:
            NotAllowed, SpecError, StoreError: as `HeartbeatReceiver.handle`.
        """
        answered = await self.heartbeats.handle(Heartbeat(token, body))
        held, reply = answered.held, answered.reply
        is_same = reply.job == answered.report.job and reply.wanted is Wanted.RUN
        if wait_seconds and is_same:
            reply = await self.nodes.wait_for_change(held.id, reply, wait_seconds)
        if not self.authentication.is_fresh(token):
            renewed = await run_in_threadpool(self.authentication.renewed, token, held)
            reply = replace(reply, token=renewed)
        return json_response(NodeReply, reply)


@dataclass(frozen=True, slots=True)
class HeartbeatShortcut:
    """ASGI middleware that answers heartbeats without a wait, and passes on all else.

    Its requests have passed the `RequestGate`.
    """

    app: ASGIApp
    answer: Callable[[str, bytes], Awaitable[Response]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a heartbeat, or pass the request on."""
        token = _token_of_heartbeat(scope)
        if token is None:
            await self.app(scope, receive, send)
            return
        try:
            response = await self.answer(token, await Request(scope, receive).body())
        except CastorError as error:
            response = refusal(error)
        except HTTPException as error:
            response = http_refusal(scope["method"], scope["path"], error)
        await response(scope, receive, send)


def _token_of_heartbeat(scope: Scope) -> str | None:
    """Return the token of a heartbeat without a wait; None for other requests."""
    if scope["type"] != "http" or scope["path"] != _PATH or scope["method"] != "POST":
        return None
    return bearer_token(scope) if scope["query_string"] in _NO_WAIT else None
