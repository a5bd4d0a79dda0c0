"""Routes for uploaded files and checkpoints of trials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Depends, Response
from fastapi.responses import FileResponse

from autoscaler.service.routes.bodies import Body, json_response
from autoscaler.service.studies.studies import Studies


def study_files_router(studies: Studies, person: Callable[..., Any]) -> APIRouter:
    """Return the routes for uploaded files and checkpoints of a study's trials."""
    router = APIRouter(prefix="/v1/studies/{study}", dependencies=[Depends(person)])

    @router.get("/files/{sha256}")
    def file(study: str, sha256: str) -> FileResponse:
        return FileResponse(studies.file(study, sha256))

    @router.delete("/files/{sha256}")
    def remove_file(study: str, sha256: str) -> Response:
        studies.remove_file(study, sha256)
        return Response(status_code=204)

    @router.post("/checkpoints/removal")
    def remove_checkpoints(
        study: str, trials: tuple[str, ...] = Depends(Body(tuple[str, ...]))
    ) -> Response:
        return json_response(int, studies.remove_checkpoints(study, trials))

    return router
