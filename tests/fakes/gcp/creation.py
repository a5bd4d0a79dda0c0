"""Creation of instances: one by `insert`, several by `bulkInsert`."""

from __future__ import annotations

import re
from typing import Final

from tests.fakes.gcp import bodies, lifecycle, operations, reservations
from tests.fakes.gcp.call import Call, Handler
from tests.fakes.gcp.errors import (
    already_exists,
    invalid,
    over_quota,
    required,
    unreachable,
)
from tests.fakes.gcp.geography import ZONES, region_of, regions
from tests.fakes.gcp.lifecycle import Launch, Need
from tests.fakes.gcp.project import Body, Instance, Operation, Project

_NAME: Final = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_MAXIMUM_COUNT: Final = 5000
_NOT_PERSISTED: Final = frozenset({"params", "resourceManagerTags", "name", "machineType", "zone"})


def zone_of(call: Call) -> str:
    """Return the zone of a call.

    Raises:
        Refusal: the zone does not exist or does not answer.
    """
    zone: str = call.parameters["zone"]
    if zone not in ZONES:
        raise invalid("zone", zone, "Unknown zone.")
    if zone in call.project.unreachable:
        raise unreachable(f"zones/{zone}")
    return zone


def insert(call: Call) -> Operation:
    zone, project = zone_of(call), call.project
    body: Body = bodies.apply_patch({}, call.body)
    link = call.parameters.get("sourceInstanceTemplate")
    is_bare = False
    if link:
        properties = bodies.template(project, zone, link, "sourceInstanceTemplate")
        is_bare = "machineType" not in call.body
        body = bodies.apply_patch(properties, call.body)
    name = body["name"]
    kind = _kind(call, zone, body, is_bare)
    _refuse_taken(project, zone, name)
    failure = _failure(call, zone, [_need(kind, body)])
    place = f"zones/{zone}"
    target = f"{place}/instances/{name}"
    operation = operations.begin(project, place, "insert", target, project.next_id())
    instance = _instance(project, zone, name, kind, body, operation)
    wait = (body.get("params") or {}).get("requestValidForDuration") or {}
    launch = Launch((instance,), operation, 1, failure, float(wait.get("seconds", 0)))
    lifecycle.begin(project, launch)
    return operation


def bulk_insert(call: Call) -> Operation:
    """Insert instances in one zone."""
    return _bulk(call, zone_of(call), f"zones/{call.parameters['zone']}")


def region_bulk_insert(call: Call) -> Operation:
    """Insert instances in one zone of a region: the one with the most room."""
    region = call.parameters["region"]
    if region not in regions():
        raise invalid("region", region, "Unknown region.")
    policy = (call.body.get("locationPolicy") or {}).get("locations") or {}
    denied = {
        location
        for location, preference in policy.items()
        if preference.get("preference") == "DENY"
    }
    allowed = {
        location
        for location, preference in policy.items()
        if preference.get("preference") == "ALLOW"
    }
    zones = [
        zone
        for zone in ZONES
        if region_of(zone) == region
        and f"zones/{zone}" not in denied
        and (not allowed or f"zones/{zone}" in allowed)
        and zone not in call.project.unreachable
    ]
    if not zones:
        raise invalid("resource.locationPolicy", sorted(policy), "No zone is left.")
    return _bulk(call, max(zones, key=lambda zone: _room(call, zone)), f"regions/{region}")


def _bulk(call: Call, zone: str, scope: str) -> Operation:
    project, body = call.project, call.body
    instance_body = _bulk_properties(call, zone)
    kind = _kind(call, zone, instance_body, is_bare=True)
    names = _names(project, zone, body)
    for name in names:
        _refuse_taken(project, zone, name)
    least = int(body.get("minCount") or len(names))
    if not 0 < least <= len(names):
        raise invalid("resource.minCount", least, "It must be from 1 to count.")
    failure = _failure(call, zone, [_need(kind, instance_body)] * len(names))
    operation = operations.begin(project, scope, "bulkInsert", scope, project.next_id())
    operation.others["operationGroupId"] = group = f"group-{project.next_number()}"
    created = []
    for name in names:
        target = f"zones/{zone}/instances/{name}"
        insertion = operations.begin(project, f"zones/{zone}", "insert", target, project.next_id())
        insertion.others["operationGroupId"] = group
        created.append(_instance(project, zone, name, kind, instance_body, insertion))
    lifecycle.begin(project, Launch(tuple(created), operation, least, failure))
    return operation


def _bulk_properties(call: Call, zone: str) -> Body:
    body = call.body
    properties = bodies.with_policy_links(body.get("instanceProperties") or {}, zone)
    link = body.get("sourceInstanceTemplate")
    if link:
        held = bodies.template(call.project, zone, link, "resource.sourceInstanceTemplate")
        return dict(bodies.apply_patch(held, properties))
    if not properties:
        raise required("resource.instanceProperties")
    return dict(bodies.apply_patch({}, properties))


def _names(project: Project, zone: str, body: Body) -> list[str]:
    """Return the given names, or numbered names after the highest existing one."""
    count = int(body.get("count") or 0)
    if not 0 < count <= _MAXIMUM_COUNT:
        raise invalid("resource.count", count, f"It must be from 1 to {_MAXIMUM_COUNT}.")
    pattern, by_name = body.get("namePattern"), body.get("perInstanceProperties") or {}
    if bool(pattern) == bool(by_name):
        why = "Either namePattern or perInstanceProperties must be set."
        raise invalid("resource.namePattern", pattern, why)
    if by_name:
        if len(by_name) != count:
            raise invalid("resource.perInstanceProperties", len(by_name), "There must be count.")
        return [(properties or {}).get("name") or name for name, properties in by_name.items()]
    match = re.fullmatch(r"([^#]*)(#{1,18})([^#]*)", pattern or "")
    if match is None:
        raise invalid("resource.namePattern", pattern, "It must have one run of #.")
    before, marks, after = match.groups()
    numbered = re.compile(f"{re.escape(before)}([0-9]{{{len(marks)}}}){re.escape(after)}")
    taken = [numbered.fullmatch(name) for place, name in project.instances if place == zone]
    first = max((int(match_of_name[1]) for match_of_name in taken if match_of_name), default=0) + 1
    return [f"{before}{first + offset:0{len(marks)}d}{after}" for offset in range(count)]


def _kind(call: Call, zone: str, whole: Body, is_bare: bool) -> str:
    """Return the machine type of an instance that can be created."""
    if not whole.get("machineType"):
        raise required("resource.machineType")
    at = "resource.machineType"
    kind = bodies.machine_type(call.project, zone, whole["machineType"], at, is_bare)
    bodies.check(call.project, zone, kind, whole)
    reservations.check(call.project, zone, kind, whole)
    return kind


def _refuse_taken(project: Project, zone: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        why = f"Must be a match of regex '{_NAME.pattern}'"
        raise invalid("resource.name", name, why)
    if (zone, name) in project.instances:
        raise already_exists(f"projects/{project.id}/zones/{zone}/instances/{name}")


def _need(kind: str, whole: Body) -> Need:
    return lifecycle.needs_of(kind, bodies.purchase(whole), whole)


def _failure(call: Call, zone: str, needs: list[Need]) -> operations.Failure | None:
    """Return the failure of the operation, None for none, or refuse now.

    A quota that is too small may lead to either.
    """
    project = call.project
    if call.failing:
        return operations.injected_failure(call.failing, project.id, zone)
    lack = lifecycle.lack(project, zone, needs)
    if lack is None:
        return None
    if project.quota_in_operation:
        return operations.small_quota(lack.metric, lack.limit, lack.region)
    raise over_quota(lack.metric, lack.limit, lack.region)


def _instance(
    project: Project, zone: str, name: str, kind: str, whole: Body, operation: Operation
) -> Instance:
    body = {field: held for field, held in whole.items() if field not in _NOT_PERSISTED}
    number = project.next_number()
    return Instance(
        name=name,
        zone=zone,
        id=operation.target_id,
        kind=kind,
        purchase=bodies.purchase(whole),
        body=body,
        created_seconds=operation.insert_seconds,
        insert=operation,
        address=f"10.128.{number // 250 % 250}.{number % 250 + 2}",
    )


def _room(call: Call, zone: str) -> float:
    """Return how many of the requested instances a zone has capacity for."""
    whole = _bulk_properties(call, zone)
    place = (whole.get("machineType", ""), zone, bodies.purchase(whole))
    if place[0] not in call.project.offered.get(zone, ()):
        return -1.0
    return float(call.project.capacity.get(place, 1_000_000))


HANDLERS: dict[str, Handler] = {
    "compute.instances.insert": insert,
    "compute.instances.bulkInsert": bulk_insert,
    "compute.regionInstances.bulkInsert": region_bulk_insert,
}
