"""Routes for bundles, the packed working directories of jobs."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool

from autoscaler.service.access.gate import Requester, has_bundle
from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.access.request_gate import declared_bytes
from autoscaler.service.files.uploads import Bundles, unknown_bundle
from autoscaler.service.routes.bodies import Created
from autoscaler.service.routes.permits import Permit
from autoscaler.store.repositories.owners import OwnedKind
from autoscaler.store.store import Store


def bundles_router(bundles: Bundles, store: Store) -> APIRouter:
    """Return the routes for bundles. A bundle exists for those who may use it."""
    router = APIRouter(prefix="/v1/bundles")

    @router.head("/{sha256}")
    def has(
        sha256: str, requester: Requester = Depends(Permit(AccessAction.ADD_BUNDLE))
    ) -> Response:
        """Check whether the requester may use a bundle."""
        bundles.path(sha256)
        if not has_bundle(store, requester.identity, sha256):
            raise unknown_bundle(sha256)
        return Response()

    @router.put("/{sha256}")
    async def put(
        sha256: str,
        request: Request,
        requester: Requester = Depends(Permit(AccessAction.ADD_BUNDLE)),
    ) -> Created:
        """Upload the packed working directory of a job."""
        size_bytes = declared_bytes(request.scope)
        await bundles.receive(sha256, request.stream(), requester.owner.person, size_bytes)
        await run_in_threadpool(store.owners.share, OwnedKind.BUNDLE, sha256, requester.owner)
        await run_in_threadpool(requester.record, sha256)
        return Created()

    return router
