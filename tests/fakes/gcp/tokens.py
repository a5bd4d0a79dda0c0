"""Downscoped tokens: Security Token Service, and the check of tokens by buckets.

Any other token is valid for all calls of the fake.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote

from tests.fakes.gcp.buckets import Bucket
from tests.fakes.gcp.errors import Refusal
from tests.fakes.gcp.http_messages import (
    Answer,
    Prepared,
    Request,
    json_answer,
    json_refusal,
    read_json,
)
from tests.fakes.gcp.project import Body

_PATH: Final = "/v1/token"
_PREFIX: Final = "Bearer "
_NARROW: Final = "ya29.narrow."
_VALID_SECONDS: Final = 3600
_GRANT: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"
_RESOURCE: Final = re.compile(r"//storage\.googleapis\.com/projects/_/buckets/([^/]+)")
_OBJECTS: Final = re.compile(
    r"resource\.name\.startsWith\(\s*['\"]projects/_/buckets/[^/]+/objects/(.*?)['\"]\s*\)"
)
_LISTS: Final = re.compile(
    r"api\.getAttribute\(\s*['\"]storage\.googleapis\.com/objectListPrefix['\"],\s*(?:''|\"\")\s*\)"
    r"\.startsWith\(\s*['\"](.*?)['\"]\s*\)"
)
_GET, _LIST, _CREATE, _DELETE = (
    *("storage.objects.get", "storage.objects.list"),
    *("storage.objects.create", "storage.objects.delete"),
)
_PARTS, _ABORT = "storage.multipartUploads.create", "storage.multipartUploads.abort"
_MAKES: Final = frozenset({_CREATE, _PARTS, _ABORT})
_ALL: Final = _MAKES | {_GET, _LIST, _DELETE}
# Permissions of an action, after https://cloud.google.com/storage/docs/access-control/iam-xml;
# overwriting an object also needs the permission to delete it.
_NEEDS: Final = {
    "storage.objects.get": (_GET,),
    "storage.objects.list": (_LIST,),
    "storage.objects.delete": (_DELETE,),
    "storage.multipart.abort": (_ABORT,),
    "storage.multipart.complete": (_PARTS, _CREATE),
    "storage.multipart.initiate": (_PARTS, _CREATE),
    "storage.multipart.upload": (_PARTS, _CREATE),
}
_MAKING: Final = ("storage.objects.insert", "storage.objects.copy", "storage.multipart.complete")
_ROLES: Final = {
    "roles/storage.objectViewer": frozenset({_GET, _LIST}),
    "roles/storage.objectCreator": _MAKES,
    "roles/storage.objectUser": _ALL,
    "roles/storage.objectAdmin": _ALL,
}
Find = Callable[[str], Bucket | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """Permissions below some prefixes; None means the whole bucket."""

    permissions: frozenset[str]
    objects: tuple[str, ...] | None
    lists: tuple[str, ...] | None

    def allows(self, permission: str, place: str) -> bool:
        prefixes = self.lists if permission == _LIST else self.objects
        return permission in self.permissions and (prefixes is None or place.startswith(prefixes))


@dataclass(frozen=True, slots=True)
class Boundary:
    """Access boundary of a token in a bucket, and its end."""

    bucket: str
    rules: tuple[Rule, ...]
    end_seconds: float


def prepare_exchange(request: Request, find: Find) -> Prepared | None:
    """Return the exchange of a token; None for another request."""
    if (request.verb, request.path) != ("POST", _PATH):
        return None
    form, options = _form_and_options(request)
    rules = options.get("accessBoundary", {}).get("accessBoundaryRules") or []
    match = _RESOURCE.fullmatch(rules[0].get("availableResource", "")) if rules else None
    bucket = find(match[1]) if match else None
    if bucket is None:
        return None

    def serve(_: str) -> Answer:
        if "authorization" in request.headers:
            raise Refusal(400, "invalid_request", "This call takes no Authorization header.")
        if (form.get("grant_type"), form.get("requested_token_type")) != (_GRANT, _TOKEN):
            raise _invalid("grant_type or requested_token_type")
        now = bucket.project.clock.now()
        name = f"{_NARROW}{bucket.project.next_number()}"
        kept_rules = tuple(_rule(rule, bucket) for rule in rules)
        bucket.project.tokens[name] = Boundary(bucket.name, kept_rules, now + _VALID_SECONDS)
        return json_answer(
            {
                "access_token": name,
                "issued_token_type": _TOKEN,
                "token_type": "Bearer",
                "expires_in": _VALID_SECONDS,
            }
        )

    return Prepared("sts.token", bucket.project, {}, options, serve, _refused)


def check(bucket: Bucket, request: Request, action: str, place: str) -> None:
    """Check that a token permits an action; `place` is an object or a list's prefix.

    Raises:
        Refusal: the token does not permit the action, or has expired.
    """
    token = request.headers.get("authorization", "").removeprefix(_PREFIX)
    if not token.startswith(_NARROW):
        return
    boundary = bucket.project.tokens.get(token)
    if boundary is not None and bucket.project.clock.now() >= boundary.end_seconds:
        raise Refusal(401, "authError", "Invalid Credentials")
    needed = [*_NEEDS.get(action, (_CREATE,))]
    if action in _MAKING and place in bucket.objects:
        needed.append(_DELETE)
    rules = boundary.rules if boundary is not None and boundary.bucket == bucket.name else ()
    for permission in needed:
        if not any(rule.allows(permission, place) for rule in rules):
            raise Refusal(403, "forbidden", f"The caller does not have {permission} access.")


def _refused(refusal: Refusal) -> Answer:
    """Word an invalid exchange as OAuth does."""
    if refusal.status != 400:
        return json_refusal(refusal)
    error = {"error": refusal.reason, "error_description": refusal.message}
    return json_answer(error, refusal.status)


def _form_and_options(request: Request) -> tuple[dict[str, str], Body]:
    """Return the form of a request and its options, which Google's client quotes once more."""
    form = dict(parse_qsl(request.content.decode(errors="replace")))
    try:
        return form, read_json(unquote(form.get("options") or "{}").encode())
    except Refusal:
        return form, {}


def _rule(rule: Body, bucket: Bucket) -> Rule:
    permissions: set[str] = set()
    for role in rule.get("availablePermissions") or ():
        name = role.removeprefix("inRole:")
        known = _ROLES.get(name) or bucket.project.roles.get(name)
        if known is None or name == role:
            raise _invalid(f"the permission {role}")
        permissions |= known
    match = _RESOURCE.fullmatch(rule.get("availableResource", ""))
    if match is None or match[1] != bucket.name:
        raise _invalid("availableResource")
    condition = (rule.get("availabilityCondition") or {}).get("expression", "")
    if not condition:
        return Rule(frozenset(permissions), None, None)
    objects, lists = _OBJECTS.findall(condition), _LISTS.findall(condition)
    if len(objects) + len(lists) != len(condition.split("||")):
        raise _invalid(f"the condition {json.dumps(condition)}")
    return Rule(frozenset(permissions), tuple(objects), tuple(lists))


def _invalid(subject: str) -> Refusal:
    return Refusal(400, "invalid_request", f"This fake does not know {subject}.")
