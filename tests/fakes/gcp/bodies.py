"""What instances are made from: templates and what overrides them, and what can't be made."""

from __future__ import annotations

import re
from typing import Any, Final

from tests.fakes.gcp.errors import Refusal, invalid, not_found, required
from tests.fakes.gcp.geography import (
    ACCELERATORS,
    CHOOSING,
    MACHINE_TYPES,
    UNFIT_DISKS,
    UNSOLD,
    region_of,
)
from tests.fakes.gcp.lifecycle import DISCOUNTED, accelerators
from tests.fakes.gcp.project import Body, Project

_LINK: Final = r"(?:https?://[^/]+/compute/v1/)?(?:projects/(?P<project>[^/]+)/)?"
_TEMPLATE: Final = re.compile(
    _LINK + r"(?:global|regions/[^/]+)/instanceTemplates/(?P<name>[^/]+)"
)
_MACHINE_TYPE: Final = re.compile(_LINK + r"zones/(?P<zone>[^/]+)/machineTypes/(?P<name>[^/]+)")
_POLICY: Final = re.compile(_LINK + r"regions/(?P<region>[^/]+)/resourcePolicies/(?P<name>[^/]+)")
_RUN_SECONDS: Final = (30, 120 * 86_400)
_FLEX_RUN_SECONDS: Final = (30, 7 * 86_400)
_QUEUE_SECONDS: Final = (0, 7200)
_NOTICE_SECONDS: Final = 120
_MOST_LABELS: Final = 64
_MOST_OF_VALUE: Final = 262_144
_PACKED: Final = frozenset({"a2", "a3", "g2"})


def merged(held: Any, change: Any) -> Any:
    """A JSON merge patch (RFC 7396): objects are merged, all else, lists too, is replaced."""
    if not isinstance(change, dict):
        return change
    whole = dict(held) if isinstance(held, dict) else {}
    for name, value in change.items():
        if value is None:
            whole.pop(name, None)
        else:
            whole[name] = merged(whole.get(name), value)
    return whole


def template(project: Project, zone: str, link: str, at: str) -> Body:
    """The properties that a template has, for an instance in a zone.

    Raises:
        Refusal: this is no link to one, or there is none.
    """
    found = _TEMPLATE.fullmatch(link)
    if found is None:
        raise invalid(at, link, "The URL is malformed.")
    kept = project.templates.get(found["name"])
    if kept is None or found["project"] not in (None, project.id):
        owner = found["project"] or project.id
        raise not_found(f"projects/{owner}/global/instanceTemplates/{found['name']}")
    return linked(kept["properties"], zone)


def linked(properties: Body, zone: str) -> Body:
    """Policies, which properties name and instances link to, as instances do."""
    names: list[str] = properties.get("resourcePolicies") or []
    if any("/" in name for name in names):
        raise invalid("resource.properties.resourcePolicies", names, "Names, not URLs.")
    places = [f"regions/{region_of(zone)}/resourcePolicies/{name}" for name in names]
    return {**properties, "resourcePolicies": places} if places else properties


def machine_type(project: Project, zone: str, told: str, at: str, is_bare: bool) -> str:
    """The name of a machine type: bare in properties, a link in an instance.

    Raises:
        Refusal: it is written the other way, or there is none of it in the zone.
    """
    found = _MACHINE_TYPE.fullmatch(told)
    if (found is None) != is_bare or (is_bare and "/" in told):
        raise invalid(at, told, "The URL is malformed.")
    name = found["name"] if found else told
    if found is not None and found["zone"] != zone:
        raise invalid(at, told, f"The machine type is not in zone '{zone}'.")
    if name not in project.offered.get(zone, ()):
        why = f"Machine type with name '{name}' does not exist in zone '{zone}'."
        raise invalid(at, told, why)
    return name


def check(project: Project, zone: str, kind: str, body: Body) -> None:
    """What Compute Engine refuses of a well-formed instance, as far as launches may meet it.

    Raises:
        Refusal: this can't be made.
    """
    _check_disks(kind, body)
    if not body.get("networkInterfaces"):
        raise required("resource.networkInterfaces")
    _check_accelerators(kind, body)
    _check_sold(kind, body)
    _check_scheduling(body.get("scheduling") or {}, bool(accelerators(kind, body)))
    wait = (body.get("params") or {}).get("requestValidForDuration")
    if wait is not None:
        _check_duration(wait, "resource.params.requestValidForDuration", *_QUEUE_SECONDS)
    check_labels(body.get("labels") or {})
    check_metadata(body.get("metadata") or {})
    _check_policies(project, zone, kind, body.get("resourcePolicies") or [])


def purchase(body: Body) -> str:
    """Its provisioning model."""
    scheduling = body.get("scheduling") or {}
    told: str = scheduling.get("provisioningModel") or "STANDARD"
    return "SPOT" if scheduling.get("preemptible") else told


def check_labels(labels: dict[str, str]) -> None:
    if len(labels) > _MOST_LABELS:
        raise invalid("resource.labels", "", f"There can be {_MOST_LABELS} at most.")
    for key, value in labels.items():
        is_key = re.fullmatch(r"[\w-]{1,63}", key) and key == key.lower() and key[0].isalpha()
        if not is_key:
            raise invalid("resource.labels", key, "Label key violates format constraints.")
        if not re.fullmatch(r"[\w-]{0,63}", value) or value != value.lower():
            raise invalid("resource.labels", value, "Label value violates format constraints.")


def check_metadata(metadata: Body) -> None:
    keys = [item.get("key", "") for item in metadata.get("items") or ()]
    for number, item in enumerate(metadata.get("items") or ()):
        at = f"resource.metadata.items[{number}]"
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", item.get("key", "")):
            raise invalid(f"{at}.key", item.get("key"), "Must be a match of [a-zA-Z0-9-_]{1,128}.")
        if keys.count(item["key"]) > 1:
            raise invalid(f"{at}.key", item["key"], "Metadata has duplicate key.")
        size = len(item.get("value", ""))
        if size > _MOST_OF_VALUE:
            why = f"is too large: maximum size {_MOST_OF_VALUE} character(s); actual size {size}."
            raise Refusal(400, "invalid", f"Value for field '{at}.value' {why}")


def _check_disks(kind: str, body: Body) -> None:
    boot = [disk for disk in body.get("disks") or () if disk.get("boot")]
    if len(boot) != 1:
        raise invalid("resource.disks", "", "Exactly one boot disk must be specified.")
    (disk,) = boot
    if not disk.get("source") and not (disk.get("initializeParams") or {}).get("sourceImage"):
        raise required("resource.disks[0].initializeParams.sourceImage")
    disk_type = (disk.get("initializeParams") or {}).get("diskType", "").rpartition("/")[2]
    family = MACHINE_TYPES[kind].family
    if disk_type in UNFIT_DISKS.get(kind, UNFIT_DISKS.get(family, ())):
        why = f"[{disk_type}, {kind}] features are not compatible for creating instance."
        raise Refusal(400, "badRequest", why)


def _check_accelerators(kind: str, body: Body) -> None:
    machine = MACHINE_TYPES[kind]
    for number, asked in enumerate(body.get("guestAccelerators") or ()):
        at = f"resource.guestAccelerators[{number}].acceleratorType"
        link = asked.get("acceleratorType", "")
        name, count = link.rpartition("/")[2], int(asked.get("acceleratorCount", 0))
        if name not in ACCELERATORS or not 0 < count <= ACCELERATORS[name].most:
            raise invalid(at, link, f"There are no {count} accelerators of this type.")
        is_own = (name, count) == (machine.accelerator, machine.accelerators)
        if not is_own and machine.family not in CHOOSING:
            why = f"[{kind}, {name}] features are not compatible for creating instance."
            raise Refusal(400, "badRequest", why)


def _check_sold(kind: str, body: Body) -> None:
    """The words are a guess: nobody reports those of the real one."""
    model = purchase(body)
    if model in UNSOLD.get(kind, ()):
        why = f"Machine type {kind} can't be created with the provisioning model {model}."
        raise Refusal(400, "badRequest", why)


def _check_scheduling(scheduling: Body, has_accelerators: bool) -> None:
    at = "resource.scheduling"
    model = purchase({"scheduling": scheduling})
    limit = scheduling.get("maxRunDuration")
    notice = scheduling.get("preemptionNoticeDuration")
    if model in DISCOUNTED and scheduling.get("automaticRestart"):
        why = "Scheduling must have automaticRestart be false when preemptible is true."
        raise invalid(f"{at}.automaticRestart", True, why)
    default = "TERMINATE" if model in DISCOUNTED else "MIGRATE"
    if has_accelerators and scheduling.get("onHostMaintenance", default) == "MIGRATE":
        why = "Instances with guest accelerators do not support live migration."
        raise Refusal(400, "badRequest", why)
    ends_itself = model in DISCOUNTED or model == "RESERVATION_BOUND" or limit is not None
    if scheduling.get("instanceTerminationAction") and not ends_itself:
        why = "A standard instance has one only with a maximum run duration."
        raise invalid(f"{at}.instanceTerminationAction", model, why)
    if model == "FLEX_START" and limit is None:
        raise required(f"{at}.maxRunDuration")
    if limit is not None:
        bounds = _FLEX_RUN_SECONDS if model == "FLEX_START" else _RUN_SECONDS
        _check_duration(limit, f"{at}.maxRunDuration", *bounds)
    if notice is not None:
        if model != "SPOT":
            raise invalid(f"{at}.preemptionNoticeDuration", notice, "Only spot VMs have one.")
        _check_duration(notice, f"{at}.preemptionNoticeDuration", 0, _NOTICE_SECONDS)


def _check_duration(duration: Body, at: str, least: int, most: int) -> None:
    seconds = int(duration.get("seconds", 0))
    if not least <= seconds <= most:
        raise invalid(f"{at}.seconds", seconds, f"It must be from {least} to {most}.")


def _check_policies(project: Project, zone: str, kind: str, links: list[str]) -> None:
    at = "resource.resourcePolicies"
    for link in links:
        found = _POLICY.fullmatch(link)
        if found is None or found["region"] != region_of(zone):
            raise invalid(at, link, "The URL is malformed, or of another region.")
        if (found["region"], found["name"]) not in project.policies:
            place = f"regions/{found['region']}/resourcePolicies/{found['name']}"
            raise not_found(f"projects/{project.id}/{place}")
        if MACHINE_TYPES[kind].family not in _PACKED:
            raise invalid(at, link, f"{kind} can't have a compact placement policy.")
