"""Zones, regions, machine types and accelerators that a project can list."""

from __future__ import annotations

import zlib

from tests.fakes.gcp import lifecycle
from tests.fakes.gcp.call import Call, Handler
from tests.fakes.gcp.creation import zone_of
from tests.fakes.gcp.errors import invalid, not_found
from tests.fakes.gcp.geography import (
    ACCELERATORS,
    GLOBAL,
    MACHINE_TYPES,
    UNNAMED_METRICS,
    ZONES,
    region_of,
    regions,
)
from tests.fakes.gcp.listing import list_all_scopes, list_page
from tests.fakes.gcp.project import Body

_MADE = "1969-12-31T16:00:00.000-08:00"


def get_project(call: Call) -> Body:
    return {
        "kind": "compute#project",
        "id": call.project.number,
        "name": call.project.id,
        "creationTimestamp": _MADE,
        "quotas": _quotas(call, GLOBAL),
        "selfLink": call.root,
        "defaultServiceAccount": f"{call.project.number}-compute@developer.gserviceaccount.com",
    }


def get_zone(call: Call) -> Body:
    name = call.parameters["zone"]
    if name not in ZONES:
        raise not_found(f"projects/{call.project.id}/zones/{name}")
    return _zone(call, name)


def list_zones(call: Call) -> Body:
    return {"kind": "compute#zoneList", **list_page(call, [_zone(call, name) for name in ZONES])}


def get_region(call: Call) -> Body:
    return _region(call, _region_of(call))


def list_regions(call: Call) -> Body:
    return {
        "kind": "compute#regionList",
        **list_page(call, [_region(call, name) for name in regions()]),
    }


def get_machine_type(call: Call) -> Body:
    zone, name = zone_of(call), call.parameters["machineType"]
    if name not in call.project.offered.get(zone, ()):
        raise not_found(f"projects/{call.project.id}/zones/{zone}/machineTypes/{name}")
    return _machine_type(call, zone, name)


def list_machine_types(call: Call) -> Body:
    items = _machine_types(call, zone_of(call))
    return {"kind": "compute#machineTypeList", **list_page(call, items)}


def aggregated_machine_types(call: Call) -> Body:
    scopes = {f"zones/{zone}": _machine_types(call, zone) for zone in ZONES}
    shown = list_all_scopes(call, "machineTypes", scopes)
    return {"kind": "compute#machineTypeAggregatedList", **shown}


def get_accelerator_type(call: Call) -> Body:
    zone, name = zone_of(call), call.parameters["acceleratorType"]
    matches = [
        accelerator
        for accelerator in _accelerator_types(call, zone)
        if accelerator["name"] == name
    ]
    if not matches:
        raise not_found(f"projects/{call.project.id}/zones/{zone}/acceleratorTypes/{name}")
    return matches[0]


def list_accelerator_types(call: Call) -> Body:
    items = _accelerator_types(call, zone_of(call))
    return {"kind": "compute#acceleratorTypeList", **list_page(call, items)}


def aggregated_accelerator_types(call: Call) -> Body:
    scopes = {f"zones/{zone}": _accelerator_types(call, zone) for zone in ZONES}
    shown = list_all_scopes(call, "acceleratorTypes", scopes)
    return {"kind": "compute#acceleratorTypeAggregatedList", **shown}


def _zone(call: Call, name: str) -> Body:
    return {
        "kind": "compute#zone",
        "id": _number(name),
        "creationTimestamp": _MADE,
        "name": name,
        "description": name,
        "status": "DOWN" if name in call.project.unreachable else "UP",
        "region": f"{call.root}/regions/{region_of(name)}",
        "selfLink": f"{call.root}/zones/{name}",
    }


def _region(call: Call, name: str) -> Body:
    return {
        "kind": "compute#region",
        "id": _number(name),
        "creationTimestamp": _MADE,
        "name": name,
        "description": name,
        "status": "UP",
        "zones": [f"{call.root}/zones/{zone}" for zone in ZONES if region_of(zone) == name],
        "quotas": _quotas(call, name),
        "selfLink": f"{call.root}/regions/{name}",
    }


def _quotas(call: Call, region: str) -> list[Body]:
    return [
        {
            "metric": metric,
            "limit": limit,
            "usage": lifecycle.usage(call.project, region, metric),
        }
        for (quota_region, metric), limit in call.project.quotas.items()
        if quota_region == region and metric not in UNNAMED_METRICS
    ]


def _region_of(call: Call) -> str:
    name: str = call.parameters["region"]
    if name not in regions():
        raise invalid("region", name, "Unknown region.")
    return name


def _machine_types(call: Call, zone: str) -> list[Body]:
    return [_machine_type(call, zone, name) for name in sorted(call.project.offered[zone])]


def _machine_type(call: Call, zone: str, name: str) -> Body:
    machine = MACHINE_TYPES[name]
    shown: Body = {
        "kind": "compute#machineType",
        "id": _number(name),
        "creationTimestamp": _MADE,
        "name": name,
        "description": f"{machine.cpus} vCPUs, {machine.memory_mb // 1024} GB RAM",
        "guestCpus": machine.cpus,
        "memoryMb": machine.memory_mb,
        "imageSpaceGb": 0,
        "maximumPersistentDisks": 128,
        "maximumPersistentDisksSizeGb": "263168",
        "zone": zone,
        "selfLink": f"{call.root}/zones/{zone}/machineTypes/{name}",
        "isSharedCpu": False,
        "architecture": "X86_64",
    }
    if machine.accelerator:
        shown["accelerators"] = [
            {
                "guestAcceleratorType": machine.accelerator,
                "guestAcceleratorCount": machine.accelerators,
            }
        ]
    return shown


def _accelerator_types(call: Call, zone: str) -> list[Body]:
    """Return the accelerators of the zone's machine types and the attachable ones."""
    offered = call.project.offered[zone]
    fixed = {accelerator.accelerator for accelerator in MACHINE_TYPES.values()} - {""}
    here = {MACHINE_TYPES[name].accelerator for name in offered} - {""}
    return [
        {
            "kind": "compute#acceleratorType",
            "id": _number(name),
            "creationTimestamp": _MADE,
            "name": name,
            "description": accelerator.title,
            "zone": f"{call.root}/zones/{zone}",
            "maximumCardsPerInstance": accelerator.most,
            "selfLink": f"{call.root}/zones/{zone}/acceleratorTypes/{name}",
        }
        for name, accelerator in sorted(ACCELERATORS.items())
        if name in here or name not in fixed
    ]


def _number(name: str) -> str:
    return str(zlib.crc32(name.encode()))


HANDLERS: dict[str, Handler] = {
    "compute.projects.get": get_project,
    "compute.zones.get": get_zone,
    "compute.zones.list": list_zones,
    "compute.regions.get": get_region,
    "compute.regions.list": list_regions,
    "compute.machineTypes.get": get_machine_type,
    "compute.machineTypes.list": list_machine_types,
    "compute.machineTypes.aggregatedList": aggregated_machine_types,
    "compute.acceleratorTypes.get": get_accelerator_type,
    "compute.acceleratorTypes.list": list_accelerator_types,
    "compute.acceleratorTypes.aggregatedList": aggregated_accelerator_types,
}
