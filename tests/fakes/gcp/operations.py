"""Operations of calls, and their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.fakes.gcp.call import Call, Handler
from tests.fakes.gcp.errors import not_found
from tests.fakes.gcp.geography import ZONES
from tests.fakes.gcp.listing import list_all_scopes, list_page
from tests.fakes.gcp.project import Body, Operation, Project, timestamp

_POLL_SECONDS: Final = 0.25
_STATES: Final = {"zones": "zone", "regions": "region"}
_HTTP: Final = {
    403: "FORBIDDEN",
    409: "CONFLICT",
    500: "INTERNAL SERVER ERROR",
    503: "SERVICE UNAVAILABLE",
}
_HELP: Final = {
    "description": "Troubleshooting documentation",
    "url": "https://cloud.google.com/compute/docs/resource-error",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """Failure of an operation; `status` is the HTTP status that a refused call would have."""

    code: str
    message: str
    status: int
    details: list[Body] = field(default_factory=list)


def begin(
    project: Project, scope: str, kind: str, target: str, target_id: str, user: str = ""
) -> Operation:
    """Begin an operation, which is done when `finish` or `fail` is called."""
    now = project.clock.now()
    name = f"operation-{int(now * 1000)}-{project.next_number():08x}"
    operation = Operation(
        name,
        project.next_id(),
        scope,
        kind,
        target,
        target_id,
        user or f"someone@{project.id}.iam.gserviceaccount.com",
        now,
        now + project.pending_seconds,
    )
    project.operations[name] = operation
    return operation


def finish(operation: Operation, seconds: float) -> None:
    operation.end_seconds = seconds
    operation.start_seconds = min(operation.start_seconds, seconds)


def fail(operation: Operation, seconds: float, failure: Failure) -> None:
    """End an operation with a failure."""
    error: Body = {"code": failure.code, "message": failure.message}
    if failure.details:
        error["errorDetails"] = failure.details
    operation.error = {"errors": [error]}
    operation.others |= {
        "httpErrorStatusCode": failure.status,
        "httpErrorMessage": _HTTP[failure.status],
    }
    finish(operation, seconds)


def stockout(code: str, project: str, zone: str, others: Sequence[str] = ()) -> Failure:
    """Return the failure for lack of capacity.

    `code` is ``ZONE_RESOURCE_POOL_EXHAUSTED`` or the same ``_WITH_DETAILS``. `others` are zones
    with capacity.
    """
    place = f"projects/{project}/zones/{zone}"
    message = (
        f"The zone '{place}' does not have enough resources available to fulfill the request."
    )
    message += (
        "  '(resource type:compute)'."
        if code.endswith("WITH_DETAILS")
        else "  Try a different zone, or try again later."
    )
    details: list[Body] = [{"help": {"links": [_HELP]}}]
    if others:
        info = {
            "domain": "compute.googleapis.com",
            "metadatas": {"zone": zone, "zonesAvailable": ",".join(others)},
            "reason": "resource_availability",
        }
        details.append({"errorInfo": info})
    return Failure(code, message, 503, details)


def small_quota(metric: str, limit: float, region: str) -> Failure:
    """Return the failure for a quota that only the operation found to be too small."""
    message = f"Quota '{metric}' exceeded.  Limit: {limit} in region {region}."
    info = {
        "metricName": f"compute.googleapis.com/{metric.lower()}",
        "limitName": f"{metric.replace('_', '-')}-per-project-region",
        "dimensions": {"region": region},
        "limit": limit,
    }
    return Failure("QUOTA_EXCEEDED", message, 403, [{"quotaInfo": info}])


def injected_failure(code: str, project: str, zone: str) -> Failure:
    """Return the failure that a test has injected into a call's operation."""
    if code.startswith("ZONE_RESOURCE_POOL_EXHAUSTED"):
        return stockout(code, project, zone)
    if code == "QUOTA_EXCEEDED":
        return small_quota("NVIDIA_L4_GPUS", 0.0, zone.rpartition("-")[0])
    return Failure(code, "injected", 500)


def view(project: Project, operation: Operation, base: str) -> Body:
    """Return an operation as the API shows it now."""
    now = project.clock.now()
    end = operation.end_seconds
    root = f"{base}/projects/{project.id}"
    is_begun = now >= operation.start_seconds
    shown: Body = {
        "kind": "compute#operation",
        "id": operation.id,
        "name": operation.name,
        "operationType": operation.kind,
        "targetLink": f"{root}/{operation.target}",
        "targetId": operation.target_id,
        "status": "DONE" if end is not None else "RUNNING" if is_begun else "PENDING",
        "user": operation.user,
        "progress": 100 if end is not None else 0,
        "insertTime": timestamp(operation.insert_seconds),
        "selfLink": f"{root}/{operation.scope}/operations/{operation.name}",
    }
    place, _, _ = operation.scope.partition("/")
    if place in _STATES:
        shown[_STATES[place]] = f"{root}/{operation.scope}"
    if is_begun or end is not None:
        shown["startTime"] = timestamp(operation.start_seconds)
    if end is not None:
        shown["endTime"] = timestamp(end)
        if operation.error is not None:
            shown["error"] = operation.error
    return shown | operation.others


def get(call: Call) -> Body:
    return view(call.project, _named(call), call.base)


def wait(call: Call) -> Body:
    """Return the operation; `await_done` has waited for it."""
    return get(call)


def await_done(call: Call) -> None:
    """Advance the project's time until the operation is done or the wait is over.

    The caller must not hold the project's lock.
    """
    project = call.project
    operation = _named(call)
    until_seconds = project.now() + project.wait_seconds
    while operation.end_seconds is None and project.now() < until_seconds:
        project.clock.sleep(_POLL_SECONDS)


def list_(call: Call) -> Body:
    wanted = _scope(call)
    views = [
        view(call.project, operation, call.base)
        for operation in call.project.operations.values()
        if operation.scope == wanted
    ]
    return {"kind": "compute#operationList", **list_page(call, views)}


def aggregated_list(call: Call) -> Body:
    """List the operations of all scopes."""
    kept = call.project.operations.values()
    scopes: dict[str, list[Body]] = {f"zones/{zone}": [] for zone in ZONES}
    for operation in kept:
        scopes.setdefault(operation.scope, []).append(view(call.project, operation, call.base))
    return {
        "kind": "compute#operationAggregatedList",
        **list_all_scopes(call, "operations", scopes),
    }


def _scope(call: Call) -> str:
    for name in ("zone", "region"):
        if name in call.parameters:
            return f"{name}s/{call.parameters[name]}"
    return "global"


def _named(call: Call) -> Operation:
    wanted, scope = call.parameters["operation"], _scope(call)
    by_id = (
        operation for operation in list(call.project.operations.values()) if operation.id == wanted
    )
    operation = call.project.operations.get(wanted) or next(by_id, None)
    if operation is None or operation.scope != scope:
        raise not_found(f"projects/{call.project.id}/{scope}/operations/{wanted}")
    return operation


HANDLERS: dict[str, Handler] = {
    f"compute.{scope}Operations.{verb}": handler
    for scope in ("zone", "region", "global")
    for verb, handler in (("get", get), ("wait", wait), ("list", list_))
}
HANDLERS["compute.globalOperations.aggregatedList"] = aggregated_list
