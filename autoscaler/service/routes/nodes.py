"""Routes of node agents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter, Depends, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse

from autoscaler.domain.errors import NotAllowed, NotFound
from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.storage import StorageGrant
from autoscaler.service.access.authentication import NO_TOKEN, Authentication
from autoscaler.service.access.request_gate import bearer_token
from autoscaler.service.files.logs import Logs
from autoscaler.service.files.uploads import Bundles
from autoscaler.service.instances.nodes import Nodes
from autoscaler.service.routes.bodies import Body, JsonResponse, json_response
from autoscaler.service.routes.heartbeats import HeartbeatAnswers
from autoscaler.service.routes.studies import JobId, trials_router
from autoscaler.service.studies.studies import Studies, require_held
from autoscaler.store.store import Store
from autoscaler.wire.messages import Assignment, JoinReply, JoinRequest, NodeReply

_LONGEST_WAIT_SECONDS: Final = 25.0
_LARGEST_OFFSET: Final = 1 << 53


@dataclass(frozen=True, slots=True)
class NodeRoutes:
    """Components that the routes of node agents use."""

    nodes: Nodes
    authentication: Authentication
    bundles: Bundles
    logs: Logs


async def _token(request: Request) -> str:
    """Return the bearer token of a request.

    Raises:
        NotAllowed: there is none.
    """
    presented = bearer_token(request.scope)
    if presented is None:
        raise NotAllowed(NO_TOKEN)
    return presented


def nodes_router(
    parts: NodeRoutes, studies: Studies, store: Store, answer: HeartbeatAnswers
) -> APIRouter:
    """Return the routes for node agents."""
    router = APIRouter(prefix="/v1/node")

    def working(presented: str = Depends(_token)) -> HeldInstance:
        return parts.authentication.working_node(presented)

    def writing(presented: str = Depends(_token)) -> HeldInstance:
        return parts.authentication.writing_node(presented)

    @router.post("/join")
    def join(request: JoinRequest = Depends(Body(JoinRequest))) -> JsonResponse[JoinReply]:
        """Exchange the join token of an instance for its own token and its assignment."""
        return json_response(JoinReply, parts.nodes.join(request))

    @router.get("/assignment")
    def assignment(held: HeldInstance = Depends(working)) -> JsonResponse[Assignment]:
        """Return the present assignment of the instance."""
        return json_response(Assignment, parts.nodes.assignment(held))

    @router.get("/grant")
    def grant(
        job: JobId = None, held: HeldInstance = Depends(working)
    ) -> JsonResponse[StorageGrant]:
        """Return a new grant for the storage of the instance's job."""
        require_held(held, job)
        return json_response(StorageGrant, parts.nodes.grant(held))

    @router.post("/heartbeat")
    async def heartbeat(
        request: Request,
        wait_seconds: float = Query(default=0.0, ge=0.0, le=_LONGEST_WAIT_SECONDS),
        presented: str = Depends(_token),
    ) -> JsonResponse[NodeReply]:
        """Report the state of the instance, and return its instructions."""
        return await answer(presented, await request.body(), wait_seconds)

    @router.get("/bundle")
    def bundle(held: HeldInstance = Depends(working)) -> FileResponse:
        """Return the packed working directory of the instance's job."""
        job = store.jobs.get(held.job)
        if job.spec.bundle is None:
            raise NotFound(f"job {job.id} has no working directory")
        return FileResponse(parts.bundles.path(job.spec.bundle))

    @router.post("/logs")
    async def append_log(
        request: Request,
        offset: int = Query(ge=0, le=_LARGEST_OFFSET),
        job: JobId = None,
        held: HeldInstance = Depends(writing),
    ) -> JsonResponse[int]:
        """Append text to the log of the instance; return the length of the stored log in bytes."""
        text = await request.body()
        require_held(held, job)
        end = await run_in_threadpool(parts.logs.append, held.job, held.id, offset, text)
        return json_response(int, end)

    router.include_router(trials_router(studies, working))
    return router
