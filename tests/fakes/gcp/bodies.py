"""Bodies of new instances: templates, overrides of templates, and checks of the result."""

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
_MAXIMUM_LABELS: Final = 64
_MAXIMUM_VALUE_CHARACTERS: Final = 262_144
_PACKED: Final = frozenset({"a2", "a3", "g2"})


def apply_patch(held: Any, change: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396): objects are merged, other values and lists replaced."""
    if not isinstance(change, dict):
        return change
    patched = dict(held) if isinstance(held, dict) else {}
    for name, value in change.items():
        if value is None:
            patched.pop(name, None)
        else:
            patched[name] = apply_patch(patched.get(name), value)
    return patched


def template(project: Project, zone: str, link: str, at: str) -> Body:
    """Return the properties of a template, for an instance in a zone.

    Raises:
        Refusal: the link is malformed, or the template does not exist.
    """
    match = _TEMPLATE.fullmatch(link)
    if match is None:
        raise invalid(at, link, "The URL is malformed.")
    existing = project.templates.get(match["name"])
    if existing is None or match["project"] not in (None, project.id):
        owner = match["project"] or project.id
        raise not_found(f"projects/{owner}/global/instanceTemplates/{match['name']}")
    return with_policy_links(existing["properties"], zone)


def with_policy_links(properties: Body, zone: str) -> Body:
    """Return properties with links to policies, as instances have, in place of names."""
    names: list[str] = properties.get("resourcePolicies") or []
    if any("/" in name for name in names):
        raise invalid("resource.properties.resourcePolicies", names, "Names, not URLs.")
    links = [f"regions/{region_of(zone)}/resourcePolicies/{name}" for name in names]
    return {**properties, "resourcePolicies": links} if links else properties


def machine_type(project: Project, zone: str, text: str, at: str, is_bare: bool) -> str:
    """Return the name of a machine type, which is bare in properties and a link in an instance.

    Raises:
        Refusal: the text has the wrong form, or the zone has no such type.
    """
    match = _MACHINE_TYPE.fullmatch(text)
    if (match is None) != is_bare or (is_bare and "/" in text):
        raise invalid(at, text, "The URL is malformed.")
    name = match["name"] if match else text
    if match is not None and match["zone"] != zone:
        raise invalid(at, text, f"The machine type is not in zone '{zone}'.")
    if name not in project.offered.get(zone, ()):
        why = f"Machine type with name '{name}' does not exist in zone '{zone}'."
        raise invalid(at, text, why)
    return name


def check(project: Project, zone: str, kind: str, body: Body) -> None:
    """Refuse a well-formed instance that Compute Engine would refuse, as far as launches need.

    Raises:
        Refusal: Compute Engine would not create the instance.
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
    """Return the provisioning model of an instance."""
    scheduling = body.get("scheduling") or {}
    model: str = scheduling.get("provisioningModel") or "STANDARD"
    return "SPOT" if scheduling.get("preemptible") else model


def check_labels(labels: dict[str, str]) -> None:
    if len(labels) > _MAXIMUM_LABELS:
        raise invalid("resource.labels", "", f"There can be {_MAXIMUM_LABELS} at most.")
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
        if size > _MAXIMUM_VALUE_CHARACTERS:
            why = (
                f"is too large: maximum size {_MAXIMUM_VALUE_CHARACTERS} character(s); "
                f"actual size {size}."
            )
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
    """Refuse a provisioning model that a machine type is not sold with.

    The message is a guess: no report quotes the real one.
    """
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
        match = _POLICY.fullmatch(link)
        if match is None or match["region"] != region_of(zone):
            raise invalid(at, link, "The URL is malformed, or of another region.")
        if (match["region"], match["name"]) not in project.policies:
            path = f"regions/{match['region']}/resourcePolicies/{match['name']}"
            raise not_found(f"projects/{project.id}/{path}")
        if MACHINE_TYPES[kind].family not in _PACKED:
            raise invalid(at, link, f"{kind} can't have a compact placement policy.")
