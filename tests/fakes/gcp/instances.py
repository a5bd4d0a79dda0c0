"""Existing instances: get, list, change, stop and delete."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from tests.fakes.gcp import bodies, lifecycle, operations
from tests.fakes.gcp.call import Call, Handler
from tests.fakes.gcp.creation import zone_of
from tests.fakes.gcp.errors import Refusal, not_found
from tests.fakes.gcp.geography import ZONES
from tests.fakes.gcp.lifecycle import DISCOUNTED
from tests.fakes.gcp.listing import list_all_scopes, list_page
from tests.fakes.gcp.project import Body, Instance, Operation, timestamp


def get(call: Call) -> Body:
    return view(call, _named(call))


def list_(call: Call) -> Body:
    zone = zone_of(call)
    return {"kind": "compute#instanceList", **list_page(call, _listed_views(call, zone))}


def aggregated_list(call: Call) -> Body:
    scopes = {f"zones/{zone}": _listed_views(call, zone) for zone in ZONES}
    return {
        "kind": "compute#instanceAggregatedList",
        **list_all_scopes(call, "instances", scopes),
    }


def delete(call: Call) -> Operation:
    """Delete an instance, also one that is already ending; each deletion takes its full time."""
    instance = _named(call)
    if instance.body.get("deletionProtection"):
        why = "Resource cannot be deleted if it's protected against deletion."
        raise Refusal(400, "invalidUsage", f"Invalid resource usage: '{why}'")
    operation = _begin_operation(call, instance, "delete")
    lifecycle.delete(call.project, instance, operation)
    return operation


def stop(call: Call) -> Operation:
    instance = _named(call)
    operation = _begin_operation(call, instance, "stop")
    if instance.status == "TERMINATED":
        operations.finish(operation, call.project.clock.now())
    else:
        lifecycle.stop(call.project, instance, operation)
    return operation


def set_labels(call: Call) -> Operation:
    instance = _named(call)
    held = instance.body.get("labels") or {}
    _check_fingerprint(call.body.get("labelFingerprint"), held, "labels")
    bodies.check_labels(call.body.get("labels") or {})
    instance.body["labels"] = call.body.get("labels") or {}
    return _finish_change(call, instance, "setLabels")


def serial_output(call: Call) -> Body:
    instance = _named(call)
    text = f"{instance.name} boots\n"
    return {"kind": "compute#serialPortOutput", "contents": text, "next": str(len(text))}


def set_metadata(call: Call) -> Operation:
    instance = _named(call)
    held = (instance.body.get("metadata") or {}).get("items") or []
    _check_fingerprint(call.body.get("fingerprint"), held, "metadata")
    bodies.check_metadata(call.body)
    instance.body["metadata"] = {"items": call.body.get("items") or []}
    return _finish_change(call, instance, "setMetadata")


def view(call: Call, instance: Instance) -> Body:
    """Return an instance as the API shows it now."""
    link = f"{call.root}/zones/{instance.zone}"
    body = instance.body
    metadata = (body.get("metadata") or {}).get("items") or []
    shown: Body = {
        **body,
        "kind": "compute#instance",
        "id": instance.id,
        "creationTimestamp": timestamp(instance.created_seconds),
        "name": instance.name,
        "zone": link,
        "machineType": f"{link}/machineTypes/{instance.kind}",
        "status": instance.status,
        "cpuPlatform": "Intel Cascade Lake",
        "labelFingerprint": _fingerprint(body.get("labels") or {}),
        "fingerprint": _fingerprint([instance.id, instance.changes]),
        "selfLink": f"{link}/instances/{instance.name}",
        "metadata": {
            "kind": "compute#metadata",
            "fingerprint": _fingerprint(metadata),
            "items": metadata,
        },
        "disks": [
            _disk(instance, link, number, disk) for number, disk in enumerate(body["disks"])
        ],
        "networkInterfaces": [
            {"name": f"nic{number}", "networkIP": instance.address, **interface}
            for number, interface in enumerate(body["networkInterfaces"])
        ],
        "scheduling": _scheduling(instance),
    }
    accelerators = lifecycle.accelerators_of(instance)
    if accelerators:
        shown["guestAccelerators"] = [
            {"acceleratorType": f"{link}/acceleratorTypes/{name}", "acceleratorCount": count}
            for name, count in accelerators.items()
        ]
    return shown | _moments(instance)


def _moments(instance: Instance) -> Body:
    shown: Body = {}
    if instance.running_seconds is not None:
        shown["lastStartTimestamp"] = timestamp(instance.running_seconds)
        limit = (instance.body.get("scheduling") or {}).get("maxRunDuration")
        if limit is not None:
            end = timestamp(instance.running_seconds + float(limit["seconds"]))
            if instance.status == "RUNNING":  # the field is cleared when the instance stops
                shown["resourceStatus"] = {"scheduling": {"terminationTimestamp": end}}
    if instance.stopped_seconds is not None:
        shown["lastStopTimestamp"] = timestamp(instance.stopped_seconds)
    return shown


def _scheduling(instance: Instance) -> Body:
    requested = instance.body.get("scheduling") or {}
    is_spot, is_discounted = instance.purchase == "SPOT", instance.purchase in DISCOUNTED
    default: Body = {
        "onHostMaintenance": "TERMINATE" if is_discounted else "MIGRATE",
        "automaticRestart": not is_discounted,
    }
    fixed: Body = {"preemptible": is_spot, "provisioningModel": instance.purchase}
    if is_spot and "instanceTerminationAction" not in requested:
        default["instanceTerminationAction"] = "STOP"
    return {**default, **requested, **fixed}


def _disk(instance: Instance, link: str, number: int, requested: Body) -> Body:
    """Return an attached disk without its initial parameters, which are not kept."""
    shown = {name: held for name, held in requested.items() if name != "initializeParams"}
    size = (
        (requested.get("initializeParams") or {}).get("diskSizeGb")
        or requested.get("diskSizeGb")
        or "10"
    )
    name = instance.name if requested.get("boot") else f"{instance.name}-{number}"
    return {
        "kind": "compute#attachedDisk",
        "type": "PERSISTENT",
        "mode": "READ_WRITE",
        "interface": "SCSI",
        "source": f"{link}/disks/{name}",
        "deviceName": f"persistent-disk-{number}",
        "index": number,
        "boot": False,
        "autoDelete": False,
        "diskSizeGb": str(size),
        **shown,
    }


def _listed_views(call: Call, zone: str) -> list[Body]:
    return [
        view(call, instance)
        for instance in call.project.instances.values()
        if instance.zone == zone and not call.project.is_hidden(instance)
    ]


def _named(call: Call) -> Instance:
    zone, name = zone_of(call), call.parameters["instance"]
    instance = call.project.instances.get((zone, name)) or next(
        (
            candidate
            for candidate in call.project.instances.values()
            if (candidate.zone, candidate.id) == (zone, name)
        ),
        None,
    )
    if instance is None or call.project.is_hidden(instance):
        raise not_found(f"projects/{call.project.id}/zones/{zone}/instances/{name}")
    return instance


def _begin_operation(call: Call, instance: Instance, kind: str) -> Operation:
    place = f"zones/{instance.zone}"
    target = f"{place}/instances/{instance.name}"
    return operations.begin(call.project, place, kind, target, instance.id)


def _finish_change(call: Call, instance: Instance, kind: str) -> Operation:
    instance.changes += 1
    operation = _begin_operation(call, instance, kind)
    operations.finish(operation, call.project.clock.now())
    return operation


def _check_fingerprint(fingerprint: str | None, held: Any, changed_field: str) -> None:
    if fingerprint != _fingerprint(held):
        message = (
            f"{changed_field} fingerprint either invalid or resource {changed_field} have changed"
        )
        raise Refusal(412, "conditionNotMet", message)


def _fingerprint(held: Any) -> str:
    digest = hashlib.sha256(json.dumps(held, sort_keys=True).encode()).digest()
    return base64.urlsafe_b64encode(digest[:8]).decode()


HANDLERS: dict[str, Handler] = {
    "compute.instances.get": get,
    "compute.instances.getSerialPortOutput": serial_output,
    "compute.instances.list": list_,
    "compute.instances.aggregatedList": aggregated_list,
    "compute.instances.delete": delete,
    "compute.instances.stop": stop,
    "compute.instances.setLabels": set_labels,
    "compute.instances.setMetadata": set_metadata,
}
