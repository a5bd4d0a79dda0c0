"""Instances are made: one by `insert`, many or none by `bulkInsert`."""

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
_MOST_AT_ONCE: Final = 5000
_NOT_PERSISTED: Final = frozenset({"params", "resourceManagerTags", "name", "machineType", "zone"})


def zone_of(call: Call) -> str:
    """The zone of a call.

    Raises:
        Refusal: there is no such zone, or it does not answer.
    """
    zone: str = call.parameters["zone"]
    if zone not in ZONES:
        raise invalid("zone", zone, "Unknown zone.")
    if zone in call.project.unreachable:
        raise unreachable(f"zones/{zone}")
    return zone


def insert(call: Call) -> Operation:
    zone, project = zone_of(call), call.project
    whole: Body = bodies.merged({}, call.body)
    link = call.parameters.get("sourceInstanceTemplate")
    is_bare = False
    if link:
        properties = bodies.template(project, zone, link, "sourceInstanceTemplate")
        is_bare = "machineType" not in call.body
        whole = bodies.merged(properties, call.body)
    name = whole["name"]
    kind = _kind(call, zone, whole, is_bare)
    _refuse_taken(project, zone, name)
    failure = _failure(call, zone, [_need(kind, whole)])
    place = f"zones/{zone}"
    target = f"{place}/instances/{name}"
    operation = operations.begin(project, place, "insert", target, project.next_id())
    one = _instance(project, zone, name, kind, whole, operation)
    wait = (whole.get("params") or {}).get("requestValidForDuration") or {}
    launch = Launch((one,), operation, 1, failure, float(wait.get("seconds", 0)))
    lifecycle.begin(project, launch)
    return operation


def bulk_insert(call: Call) -> Operation:
    """In one zone."""
    return _bulk(call, zone_of(call), f"zones/{call.parameters['zone']}")


def region_bulk_insert(call: Call) -> Operation:
    """In one zone of the region: in one that has room for all, if there is one."""
    region = call.parameters["region"]
    if region not in regions():
        raise invalid("region", region, "Unknown region.")
    policy = (call.body.get("locationPolicy") or {}).get("locations") or {}
    denied = {place for place, told in policy.items() if told.get("preference") == "DENY"}
    allowed = {place for place, told in policy.items() if told.get("preference") == "ALLOW"}
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
    project, told = call.project, call.body
    whole = _bulk_properties(call, zone)
    kind = _kind(call, zone, whole, is_bare=True)
    names = _names(project, zone, told)
    for name in names:
        _refuse_taken(project, zone, name)
    least = int(told.get("minCount") or len(names))
    if not 0 < least <= len(names):
        raise invalid("resource.minCount", least, "It must be from 1 to count.")
    failure = _failure(call, zone, [_need(kind, whole)] * len(names))
    operation = operations.begin(project, scope, "bulkInsert", scope, project.next_id())
    operation.others["operationGroupId"] = group = f"group-{project.next_number()}"
    made = []
    for name in names:
        target = f"zones/{zone}/instances/{name}"
        one = operations.begin(project, f"zones/{zone}", "insert", target, project.next_id())
        one.others["operationGroupId"] = group
        made.append(_instance(project, zone, name, kind, whole, one))
    lifecycle.begin(project, Launch(tuple(made), operation, least, failure))
    return operation


def _bulk_properties(call: Call, zone: str) -> Body:
    told = call.body
    properties = bodies.linked(told.get("instanceProperties") or {}, zone)
    link = told.get("sourceInstanceTemplate")
    if link:
        held = bodies.template(call.project, zone, link, "resource.sourceInstanceTemplate")
        return dict(bodies.merged(held, properties))
    if not properties:
        raise required("resource.instanceProperties")
    return dict(bodies.merged({}, properties))


def _names(project: Project, zone: str, told: Body) -> list[str]:
    """As they are told, or numbered on from the highest there is."""
    count = int(told.get("count") or 0)
    if not 0 < count <= _MOST_AT_ONCE:
        raise invalid("resource.count", count, f"It must be from 1 to {_MOST_AT_ONCE}.")
    pattern, each = told.get("namePattern"), told.get("perInstanceProperties") or {}
    if bool(pattern) == bool(each):
        why = "Either namePattern or perInstanceProperties must be set."
        raise invalid("resource.namePattern", pattern, why)
    if each:
        if len(each) != count:
            raise invalid("resource.perInstanceProperties", len(each), "There must be count.")
        return [(own or {}).get("name") or name for name, own in each.items()]
    found = re.fullmatch(r"([^#]*)(#{1,18})([^#]*)", pattern or "")
    if found is None:
        raise invalid("resource.namePattern", pattern, "It must have one run of #.")
    before, marks, after = found.groups()
    numbered = re.compile(f"{re.escape(before)}([0-9]{{{len(marks)}}}){re.escape(after)}")
    taken = [numbered.fullmatch(name) for place, name in project.instances if place == zone]
    first = max((int(one[1]) for one in taken if one), default=0) + 1
    return [f"{before}{first + n:0{len(marks)}d}{after}" for n in range(count)]


def _kind(call: Call, zone: str, whole: Body, is_bare: bool) -> str:
    """The machine type, of something that can be made."""
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
    """Why the operation will fail, or the refusal now: of a quota it may be either."""
    project = call.project
    if call.failing:
        return operations.ordered(call.failing, project.id, zone)
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
    """How many of what a call wants there may be in a zone."""
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
