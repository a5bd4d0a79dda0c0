"""Responses of the API to requests that it refuses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from autoscaler.domain import errors
from autoscaler.domain.errors import CastorError, SpecError
from autoscaler.domain.text import printable
from autoscaler.wire.codec import encode
from autoscaler.wire.messages import PROBLEM_TYPE, Fault

_KIND_BY_STATUS: Final = {413: "SpecError", 429: "Unavailable"}
STATUS_BY_ERROR: Final[Mapping[type[CastorError], int]] = {
    errors.NotAllowed: 401,
    errors.Forbidden: 403,
    errors.UnknownJob: 404,
    errors.UnknownInstance: 404,
    errors.NotFound: 404,
    errors.Outdated: 412,
    errors.Conflict: 409,
    errors.OverQuota: 413,  # before its base
    errors.SpecError: 422,
    errors.Unavailable: 503,
    errors.StoreError: 503,
    errors.Throttled: 429,
    errors.ProviderError: 503,
}


def fault_response(
    fault: Fault, status: int, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a response with a fault as its body, a problem of RFC 9457."""
    problem = replace(
        fault,
        type=f"urn:castor:error:{fault.error}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=fault.message,
    )
    return Response(encode(Fault, problem), status, headers, media_type=PROBLEM_TYPE)


def refusal(error: Exception) -> Response:
    """Return the response for an error, which the client raises again."""
    status = next((code for kind, code in STATUS_BY_ERROR.items() if isinstance(error, kind)), 500)
    field = error.field if isinstance(error, SpecError) else None
    headers = None
    if isinstance(error, errors.Throttled):
        headers = {"Retry-After": str(math.ceil(error.retry_after_seconds))}
    return fault_response(Fault(type(error).__name__, str(error), field), status, headers)


def http_refusal(method: str, path: str, error: HTTPException) -> Response:
    """Return the response for an error of the framework, such as a body that is too large."""
    kind = _KIND_BY_STATUS.get(error.status_code, "CastorError")
    fault = Fault(kind, f"{method} {path}: {error.detail}")
    return fault_response(fault, error.status_code, error.headers)


def handle_errors(app: FastAPI) -> None:
    """Respond with a fault to errors of the application's routes."""
    app.add_exception_handler(CastorError, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_malformed)
    app.add_exception_handler(HTTPException, _refuse_unknown)


async def _refuse(request: Request, error: Exception) -> Response:
    return refusal(error)


async def _refuse_malformed(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(printable(str(part)) for part in first["loc"])
    return refusal(SpecError(first["msg"], place))


async def _refuse_unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return http_refusal(request.method, request.url.path, error)
