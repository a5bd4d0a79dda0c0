"""Instance templates and placement policies, which Terraform creates and launches refer to."""

from __future__ import annotations

from tests.fakes.gcp import bodies, operations
from tests.fakes.gcp.call import Call, Handler
from tests.fakes.gcp.errors import already_exists, invalid, not_found
from tests.fakes.gcp.geography import regions
from tests.fakes.gcp.listing import list_page
from tests.fakes.gcp.project import Body, Operation, timestamp


def insert(call: Call) -> Operation:
    """Insert a template; refuse only errors that do not depend on a zone."""
    name = call.body["name"]
    path = f"global/instanceTemplates/{name}"
    if name in call.project.templates:
        raise already_exists(f"projects/{call.project.id}/{path}")
    properties = call.body.get("properties") or {}
    bodies.check_labels(properties.get("labels") or {})
    bodies.check_metadata(properties.get("metadata") or {})
    operation = _finished_operation(call, "global", path)
    call.project.templates[name] = {
        **call.body,
        "kind": "compute#instanceTemplate",
        "id": operation.target_id,
        "creationTimestamp": timestamp(operation.insert_seconds),
        "selfLink": f"{call.root}/{path}",
    }
    return operation


def get(call: Call) -> Body:
    name = call.parameters["instanceTemplate"]
    if name not in call.project.templates:
        raise not_found(f"projects/{call.project.id}/global/instanceTemplates/{name}")
    return call.project.templates[name]


def list_(call: Call) -> Body:
    return {
        "kind": "compute#instanceTemplateList",
        **list_page(call, call.project.templates.values()),
    }


def delete(call: Call) -> Operation:
    name = get(call)["name"]
    del call.project.templates[name]
    return _finished_operation(call, "global", f"global/instanceTemplates/{name}", "delete")


def insert_policy(call: Call) -> Operation:
    region, name = call.parameters["region"], call.body.get("name", "")
    if region not in regions():
        raise invalid("region", region, "Unknown region.")
    place = f"regions/{region}/resourcePolicies/{name}"
    if (region, name) in call.project.policies:
        raise already_exists(f"projects/{call.project.id}/{place}")
    operation = _finished_operation(call, f"regions/{region}", place)
    call.project.policies[region, name] = {
        **call.body,
        "kind": "compute#resourcePolicy",
        "id": operation.target_id,
        "creationTimestamp": timestamp(operation.insert_seconds),
        "selfLink": f"{call.root}/{place}",
        "region": f"{call.root}/regions/{region}",
        "status": "READY",
    }
    return operation


def get_policy(call: Call) -> Body:
    region, name = call.parameters["region"], call.parameters["resourcePolicy"]
    if (region, name) not in call.project.policies:
        place = f"regions/{region}/resourcePolicies/{name}"
        raise not_found(f"projects/{call.project.id}/{place}")
    return call.project.policies[region, name]


def _finished_operation(call: Call, scope: str, target: str, kind: str = "insert") -> Operation:
    """Return a finished operation; only operations of instances take time here."""
    operation = operations.begin(call.project, scope, kind, target, call.project.next_id())
    operations.finish(operation, operation.insert_seconds)
    return operation


HANDLERS: dict[str, Handler] = {
    "compute.instanceTemplates.insert": insert,
    "compute.instanceTemplates.get": get,
    "compute.instanceTemplates.list": list_,
    "compute.instanceTemplates.delete": delete,
    "compute.resourcePolicies.insert": insert_policy,
    "compute.resourcePolicies.get": get_policy,
}
