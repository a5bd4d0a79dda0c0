"""APIs that are served as their discovery documents describe them.

Each call is checked against the document before it is executed, and each answer before it is sent.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final
from urllib.parse import unquote

from tests.fakes.gcp import (
    accounts,
    bigquery,
    catalogue,
    creation,
    instances,
    operations,
    prices,
    reservations,
    subscriptions,
    templates,
)
from tests.fakes.gcp.call import Call, Handler
from tests.fakes.gcp.discovery import Method, api
from tests.fakes.gcp.errors import Refusal, invalid
from tests.fakes.gcp.http_messages import (
    Answer,
    Prepared,
    Request,
    json_answer,
    json_refusal,
    read_json,
)
from tests.fakes.gcp.project import Body, KnownRequest, Operation, Project

_APIS: Final = (
    *("compute.v1", "pubsub.v1", "cloudbilling.v1"),
    *("iamcredentials.v1", "bigquery.v2"),
)
_HANDLERS: Final[dict[str, Handler]] = {
    **accounts.HANDLERS,
    **bigquery.HANDLERS,
    **catalogue.HANDLERS,
    **instances.HANDLERS,
    **creation.HANDLERS,
    **operations.HANDLERS,
    **prices.HANDLERS,
    **reservations.HANDLERS,
    **subscriptions.HANDLERS,
    **templates.HANDLERS,
}
# Names of subscriptions and service accounts; an account's project is in its address.
_OWNED: Final = re.compile(
    r"projects/(?:-/serviceAccounts/[^@]+@([^.]+)\.iam\..*|([^/]+)/.*)", re.DOTALL
)
# Token of a project's service account.
_ACCOUNT: Final = re.compile(r"Bearer ya29\.[^@]+@([^.]+)\.iam\.gserviceaccount\.com")
_CHARGED: Final = "x-goog-user-project"
_USE: Final = "serviceusage.services.use"
_NO_ID: Final = "00000000-0000-0000-0000-000000000000"


def prepare_json_call(request: Request, project_of: Callable[[str], Project]) -> Prepared | None:
    """Return the call of a request; None if none of these APIs has it."""
    for name in _APIS:
        match = api(name).find(request.verb, request.path)
        if match is None:
            continue
        method, quoted = match
        path = {key: unquote(text) for key, text in quoted.items()}
        project = project_of(_owner(path, request))
        base = f"{request.origin}/compute/v1"
        return _prepare(Call(project, api(name), method, path, {}, base), request)
    return None


def _prepare(call: Call, request: Request) -> Prepared:
    parameters = {**{name: texts[0] for name, texts in request.query.items()}, **call.parameters}
    return Prepared(
        call.method.id,
        call.project,
        parameters,
        _json_object(request.content),
        lambda failing: _serve(replace(call, failing=failing), request),
        json_refusal,
    )


def _owner(path: dict[str, str], request: Request) -> str:
    """Return the id of a call's project; the quota project for a call without one."""
    for name in ("project", "projectId"):
        if name in path:
            return path[name]
    owned = [match[1] or match[2] for text in path.values() if (match := _OWNED.fullmatch(text))]
    if owned:
        return owned[0]
    caller = _ACCOUNT.fullmatch(request.headers.get("authorization", ""))
    return request.headers.get(_CHARGED) or (caller[1] if caller else "nobody")


def _check_charged(project: Project, request: Request) -> None:
    """Check that the caller may use the services of the quota project.

    Raises:
        Refusal: the caller lacks the permission.
    """
    if _CHARGED in request.headers and _USE not in project.permissions:
        raise Refusal(
            403,
            "forbidden",
            f"Caller does not have required permission to use project {project.id}. Grant the "
            f"caller the roles/serviceusage.serviceUsageConsumer role, or a custom role with the "
            f"{_USE} permission.",
            state="PERMISSION_DENIED",
        )


def _serve(call: Call, request: Request) -> Answer:
    method = call.method
    _check_charged(call.project, request)
    if "fields" in request.query:  # ignored fields would hide omissions of the real API
        raise Refusal(501, "notImplemented", "This fake does not do partial responses.")
    parameters = call.api.parameters(method, call.parameters, request.query)
    body = call.api.check_request(method, _body(method, request.content))
    call = replace(call, parameters=parameters, body=body)
    handler = _HANDLERS.get(method.id)
    if handler is None:
        raise Refusal(501, "notImplemented", f"This fake does not do {method.id}.")
    call.project.now()
    if method.id.endswith("Operations.wait"):
        operations.await_done(call)
    with call.project.lock:
        outcome = _once(call, handler)
        if isinstance(outcome, Operation):
            outcome = operations.view(call.project, outcome, call.base)
    call.api.check_response(method, outcome)
    return Answer(204, b"") if outcome is None else json_answer(outcome)


def _once(call: Call, handler: Handler) -> Body | Operation | None:
    """Handle a call; a repeated request id returns the first call's operation."""
    project, request_id = call.project, call.parameters.get("requestId")
    if not request_id:
        return handler(call)
    try:
        is_id = str(uuid.UUID(request_id)) != _NO_ID
    except ValueError:
        is_id = False
    if not is_id:
        raise invalid("requestId", request_id, "It must be a valid UUID, and not zero.")
    now = project.clock.now()
    known = project.requests.get(request_id)
    content = (call.method.id, call.parameters, call.body)
    if known is not None and now < known.seconds + project.request_seconds:
        if known.asked != content:
            raise invalid("requestId", request_id, "It was used for another request before.")
        return known.operation
    outcome = handler(call)
    if isinstance(outcome, Operation):
        project.requests[request_id] = KnownRequest(content, outcome, now)
    return outcome


def _body(method: Method, content: bytes) -> Any:
    if not content:
        return {} if method.request else None
    return read_json(content) if method.request else None


def _json_object(content: bytes) -> Body:
    """Return the body of a call for the record of sent calls, also of an invalid one."""
    try:
        body = json.loads(content or b"{}")
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
