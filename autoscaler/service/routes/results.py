"""Routes for outputs and checkpoints of jobs."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter, Depends, Response
from fastapi.responses import StreamingResponse

from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.jobs.results import Results
from autoscaler.service.routes.bodies import json_response
from autoscaler.service.routes.permits import Permit
from autoscaler.store.store import Store
from autoscaler.wire.results import CheckpointView, OutputsView


def results_router(store: Store, results: Results) -> APIRouter:
    """Return the routes for lists and contents of outputs and checkpoints."""
    router = APIRouter(
        prefix="/v1/jobs/{name}", dependencies=[Depends(Permit(AccessAction.FETCH_FILES))]
    )

    @router.get("/outputs")
    def outputs(name: str) -> Response:
        return json_response(OutputsView, results.outputs(store.jobs.find(name)))

    @router.get("/outputs/{instance}/{sha256}")
    def output(name: str, instance: str, sha256: str) -> Response:
        return _stream(*results.output(store.jobs.find(name), instance, sha256))

    @router.get("/checkpoint")
    def checkpoint(name: str) -> Response:
        return json_response(CheckpointView, results.checkpoint(store.jobs.find(name)))

    @router.get("/checkpoints/{checkpoint}/{file}")
    def checkpoint_file(name: str, checkpoint: str, file: str) -> Response:
        return _stream(*results.checkpoint_file(store.jobs.find(name), checkpoint, file))

    return router


def _stream(size_bytes: int, chunks: Iterator[bytes]) -> Response:
    headers = {"Content-Length": str(size_bytes)}
    return StreamingResponse(chunks, headers=headers, media_type="application/octet-stream")
