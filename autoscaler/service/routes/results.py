"""Routes for outputs and checkpoints of jobs."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter, Depends
from fastapi.responses import StreamingResponse

from autoscaler.service.access.gate import Requester
from autoscaler.service.access.permissions import AccessAction
from autoscaler.service.jobs.results import Results
from autoscaler.service.routes.bodies import JsonResponse, json_response
from autoscaler.service.routes.permits import Permit
from autoscaler.wire.results import CheckpointView, OutputsView


def results_router(results: Results) -> APIRouter:
    """Return the routes for lists and contents of outputs and checkpoints."""
    router = APIRouter(prefix="/v1/jobs/{name}")
    permit = Permit(AccessAction.FETCH_FILES)

    @router.get("/outputs")
    def outputs(requester: Requester = Depends(permit)) -> JsonResponse[OutputsView]:
        """List the files that a job's script wrote."""
        return json_response(OutputsView, results.outputs(requester.job))

    @router.get("/outputs/{instance}/{sha256}")
    def output(
        instance: str, sha256: str, requester: Requester = Depends(permit)
    ) -> StreamingResponse:
        """Return a file that a job's script wrote."""
        return _stream(*results.output(requester.job, instance, sha256))

    @router.get("/checkpoint")
    def checkpoint(requester: Requester = Depends(permit)) -> JsonResponse[CheckpointView]:
        """Return the newest checkpoint of a job."""
        return json_response(CheckpointView, results.checkpoint(requester.job))

    @router.get("/checkpoints/{checkpoint}/{file}")
    def checkpoint_file(
        checkpoint: str, file: str, requester: Requester = Depends(permit)
    ) -> StreamingResponse:
        """Return a file of a checkpoint."""
        return _stream(*results.checkpoint_file(requester.job, checkpoint, file))

    return router


def _stream(size_bytes: int, chunks: Iterator[bytes]) -> StreamingResponse:
    headers = {"Content-Length": str(size_bytes)}
    return StreamingResponse(chunks, headers=headers, media_type="application/octet-stream")
