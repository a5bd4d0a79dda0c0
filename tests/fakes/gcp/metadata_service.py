"""Metadata servers of the fake Compute Engine's instances, each at its own address.

``/metadata/PROJECT/INSTANCE`` replaces ``http://metadata.google.internal``.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from typing import Any, Final

from tests.fakes.gcp.http_messages import Answer, Request
from tests.fakes.gcp.identity import TokenSigner, service_account, signer
from tests.fakes.gcp.project import Instance, Project

_BELOW: Final = "/metadata/"
_VERSION: Final = "/computeMetadata/v1/"
_POLL_SECONDS: Final = 0.02
_TOKEN_SECONDS: Final = 3599
_FLAVOR: Final = ("Metadata-Flavor", "Google")
_TEXT: Final = ("Content-Type", "application/text")


def path_of(project: str, instance: str) -> str:
    """Return the path of an instance's metadata, below the server's address."""
    return f"{_BELOW}{project}/{instance}"


def answer_metadata_request(
    request: Request, project_of: Callable[[str], Project]
) -> Answer | None:
    """Return the answer to a metadata request; None for another request."""
    place, version, path = request.path.partition(_VERSION)
    if not version or not place.startswith(_BELOW):
        return None
    project_id, _, name = place.removeprefix(_BELOW).partition("/")
    headers = request.headers
    if headers.get("metadata-flavor") != "Google" or "x-forwarded-for" in headers:
        return _text(403, "Missing Metadata-Flavor:Google header.")
    project = project_of(project_id)
    text = _value_or_change(project, name, path, request)
    if text is None:
        return _text(404, "not found")
    return _text(200, text)


def _value_or_change(project: Project, name: str, path: str, request: Request) -> str | None:
    """Return a value at once, or after a change if the request waits for one.

    The wait ends by the project's clock.
    """
    text = _value_at(project, name, path, request)
    if request.first("wait_for_change") != "true":
        return text
    last = request.first("last_etag") or _etag(text)
    begun_seconds = project.clock.now()
    longest_seconds = float(request.first("timeout_sec") or "inf")
    while _etag(text) == last and project.clock.now() < begun_seconds + longest_seconds:
        time.sleep(_POLL_SECONDS)
        text = _value_at(project, name, path, request)
    return text


def _value_at(project: Project, name: str, path: str, request: Request) -> str | None:
    """Return the text at a metadata path; None if there is none."""
    try:
        instance = project.instance(name)
    except KeyError:
        return None
    if path == "instance/service-accounts/default/identity":
        audience = request.first("audience")
        token_signer: TokenSigner = project.signer or signer()
        return token_signer.token(project, instance, audience) if audience else None
    value: Any = _tree(project, instance)
    is_folder = not path or path.endswith("/")
    for part in path.strip("/").split("/") if path.strip("/") else ():
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    if request.first("recursive") == "true":
        return json.dumps(value)
    if isinstance(value, dict):
        lines = (f"{key}/" if isinstance(held, dict) else key for key, held in value.items())
        return "".join(f"{line}\n" for line in lines)
    return None if is_folder else str(value)


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


def _etag(text: str | None) -> str:
    return hashlib.sha256((text or "").encode()).hexdigest()[:16]


def _text(status: int, text: str) -> Answer:
    return Answer(status, text.encode(), (_TEXT, _FLAVOR, ("ETag", _etag(text))))
