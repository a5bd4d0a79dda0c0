"""The metadata server of instances of the fake Compute Engine, an address of its own for each.

It stands below ``/metadata/PROJECT/INSTANCE`` in place of ``http://metadata.google.internal``.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from typing import Any, Final

from tests.fakes.gcp.exchange import Answer, Request
from tests.fakes.gcp.identity import TokenSigner, service_account, signer
from tests.fakes.gcp.project import Instance, Project

_BELOW: Final = "/metadata/"
_VERSION: Final = "/computeMetadata/v1/"
_LOOK_SECONDS: Final = 0.02
_TOKEN_SECONDS: Final = 3599
_FLAVOR: Final = ("Metadata-Flavor", "Google")
_TEXT: Final = ("Content-Type", "application/text")


def path_of(project: str, instance: str) -> str:
    """Below the server's address."""
    return f"{_BELOW}{project}/{instance}"


def answered(request: Request, project_of: Callable[[str], Project]) -> Answer | None:
    """What an instance is told; None of a request that is not for its metadata."""
    place, version, path = request.path.partition(_VERSION)
    if not version or not place.startswith(_BELOW):
        return None
    name_of_project, _, name = place.removeprefix(_BELOW).partition("/")
    headers = request.headers
    if headers.get("metadata-flavor") != "Google" or "x-forwarded-for" in headers:
        return _text(403, "Missing Metadata-Flavor:Google header.")
    project = project_of(name_of_project)
    told = _waited(project, name, path, request)
    if told is None:
        return _text(404, "not found")
    return _text(200, told)


def _waited(project: Project, name: str, path: str, request: Request) -> str | None:
    """At once, or when it has changed, if that is asked for: by the project's clock."""
    told = _told(project, name, path, request)
    if request.first("wait_for_change") != "true":
        return told
    last = request.first("last_etag") or _etag(told)
    begun_seconds = project.clock.now()
    longest_seconds = float(request.first("timeout_sec") or "inf")
    while _etag(told) == last and project.clock.now() < begun_seconds + longest_seconds:
        time.sleep(_LOOK_SECONDS)
        told = _told(project, name, path, request)
    return told


def _told(project: Project, name: str, path: str, request: Request) -> str | None:
    try:
        instance = project.instance(name)
    except KeyError:
        return None
    if path == "instance/service-accounts/default/identity":
        audience = request.first("audience")
        whose: TokenSigner = project.signer or signer()
        return whose.token(project, instance, audience) if audience else None
    found: Any = _tree(project, instance)
    is_folder = not path or path.endswith("/")
    for part in path.strip("/").split("/") if path.strip("/") else ():
        if not isinstance(found, dict) or part not in found:
            return None
        found = found[part]
    if request.first("recursive") == "true":
        return json.dumps(found)
    if isinstance(found, dict):
        lines = (f"{key}/" if isinstance(held, dict) else key for key, held in found.items())
        return "".join(f"{line}\n" for line in lines)
    return None if is_folder else str(found)


def _tree(project: Project, instance: Instance) -> dict[str, Any]:
    items = (instance.body.get("metadata") or {}).get("items") or ()
    email = service_account(project, instance)
    token = {
        "access_token": f"ya29.{project.id}.{instance.name}",
        "expires_in": _TOKEN_SECONDS,
        "token_type": "Bearer",
    }
    account = {"email": email, "scopes": "https://www.googleapis.com/auth/cloud-platform\n"}
    return {
        "instance": {
            "id": instance.id,
            "name": instance.name,
            "hostname": f"{instance.name}.{instance.zone}.c.{project.id}.internal",
            "zone": f"projects/{project.number}/zones/{instance.zone}",
            "machine-type": f"projects/{project.number}/machineTypes/{instance.kind}",
            "preempted": "FALSE" if instance.preempted_seconds is None else "TRUE",
            "maintenance-event": "NONE",
            "attributes": {item["key"]: item.get("value", "") for item in items},
            "network-interfaces": {"0": {"ip": instance.address}},
            "scheduling": {"preemptible": "TRUE" if instance.purchase == "SPOT" else "FALSE"},
            "service-accounts": {"default": {**account, "token": json.dumps(token)}},
        },
        "project": {"project-id": project.id, "numeric-project-id": project.number},
    }


def _etag(told: str | None) -> str:
    return hashlib.sha256((told or "").encode()).hexdigest()[:16]


def _text(status: int, told: str) -> Answer:
    return Answer(status, told.encode(), (_TEXT, _FLAVOR, ("ETag", _etag(told))))
