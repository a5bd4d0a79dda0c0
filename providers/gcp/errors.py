"""Translation of Google Cloud errors to Castor's errors.

A refusal arrives as an exception, or seconds later in an operation. An unlisted code becomes
`Unavailable`: the outcome is unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import requests
from google.api_core.exceptions import GoogleAPICallError, GoogleAPIError
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError
from google.protobuf.json_format import ParseError

from autoscaler.domain.errors import (
    InsufficientCapacity,
    NotFound,
    PermissionDenied,
    ProviderError,
    QuotaExceeded,
    Throttled,
    Unavailable,
)

# Every exception that Google's clients raise for a call, sent or not.
CALL_ERRORS: Final = (
    *(GoogleAPIError, GoogleAuthError, requests.RequestException),
    *(ParseError, ValueError),
)
ALREADY_EXISTS: Final = frozenset({"alreadyExists", "RESOURCE_ALREADY_EXISTS"})

WAY_TO_CREDENTIALS: Final = (
    "run gcloud auth application-default login, set GOOGLE_APPLICATION_CREDENTIALS, or run castor "
    "on an instance that has a service account"
)
_CAPACITY: Final = frozenset(
    {
        "IP_SPACE_EXHAUSTED",
        "IP_SPACE_EXHAUSTED_WITH_DETAILS",
        "PREEMPTED",
        "RESOURCE_POOL_EXHAUSTED",
        "RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
        "STOCKOUT",
        "UNSUPPORTED_OPERATION",  # a spot instance was preempted while it was created
        "VM_MIN_COUNT_NOT_REACHED",
        "ZONE_RESOURCE_POOL_EXHAUSTED",
        "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
    }
)
# Key of an error's metadata, by which Compute Engine names zones that have capacity.
_ZONES_WITH_CAPACITY: Final = "zonesAvailable"
# Some immediate refusals have this code in their message only.
_STOCKOUT: Final = "ZONE_RESOURCE_POOL_EXHAUSTED"
# Refusals into a reservation are told by their message, as in cluster-autoscaler's table of them.
_RESERVATION_FULL: Final = re.compile(
    "eservation .* does not have sufficient capacity|requires reservation to be in READY state"
)
_QUOTA: Final = frozenset({"QUOTA_EXCEEDED", "QUOTA_LIMIT", "limitExceeded", "quotaExceeded"})
_CONSTRAINT: Final = "conditionNotMet"
_THROTTLED: Final = frozenset(
    {
        "RATE_LIMIT_EXCEEDED",
        "concurrentLimitExceeded",
        "operationInProgress",
        "rateLimitExceeded",
        "resourceNotReady",
        "userRateLimitExceeded",
    }
)
_DENIED: Final = frozenset(
    {
        "PERMISSIONS_ERROR",
        "PERMISSION_DENIED",
        "accessNotConfigured",
        "billingNotEnabled",
        "conditionNotMet",  # an organisation's policy: shielded VMs, images, locations
        "forbidden",
        "insufficientPermissions",
    }
)
_MISSING: Final = frozenset(
    {
        "INVALID_FIELD_VALUE",
        "INVALID_USAGE",
        "RESOURCE_NOT_FOUND",
        "badRequest",
        "invalid",
        "invalidParameter",
        "notFound",
        "required",
    }
)
# Reasons by HTTP status, for errors without a listed reason.
_BY_STATUS: Final = {
    400: "invalid",
    401: "authError",
    403: "forbidden",
    404: "notFound",
    409: "conflict",
    412: "conditionNotMet",
    429: "rateLimitExceeded",
}
# Hints for calls that need more than the controller's role.
_PERMISSION_HINTS: Final = {
    "serviceAccounts.generateAccessToken": (
        "give the controller's service account roles/iam.serviceAccountTokenCreator on "
        "regions.{region}.job_account, and enable iamcredentials.googleapis.com"
    ),
    "sts.token": "enable sts.googleapis.com in the project of regions.{region}.job_account",
    "skus.list": (
        "prices need no role: enable cloudbilling.googleapis.com in the project of the "
        "controller's account; a person needs serviceusage.services.use in {region}"
    ),
}
# Wrong setting by call, whatever the message.
_SETTING_BY_ACTION: Final = {
    "serviceAccounts.generateAccessToken": "regions.{region}.job_account",
    "sts.token": "regions.{region}.jobs",
}
# Wrong setting by a word of the message.
_SETTING_BY_WORD: Final = (
    ("instanceTemplate", "pools.{pool}.templates"),
    ("machineType", "pools.{pool}.machine_types"),
    ("machine type", "pools.{pool}.machine_types"),
    ("reservation", "pools.{pool}.reservation"),
    ("acceleratorType", "pools.{pool}.accelerator"),
    ("subscription", "regions.{region}.subscription"),
    ("bucket", "regions.{region}.user_data"),
    ("zone", "regions.{region}.zones"),
)
_RETRY_SECONDS: Final = 2.0
_MAX_MESSAGE_CHARACTERS: Final = 300
# Prefix that google-api-core adds to Google's message. Its request ids differ in each refusal.
_REQUEST_PREFIX: Final = re.compile(r"^(GET|POST|PUT|PATCH|DELETE) \S+: ")


@dataclass(frozen=True, slots=True)
class Call:
    """API call named in an error: its place, its action, and its pool if it has one.

    `place` is a zone, a region, a project or another location.
    """

    place: str
    action: str
    pool: str | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.action}"


def provider_error(error: Exception, call: Call) -> ProviderError:
    """Return the Castor error for an exception of a call."""
    if isinstance(error, GoogleAPICallError) and error.code is not None:
        return refusal(error_code(error), message_of(error), call)
    if isinstance(error, DefaultCredentialsError | RefreshError):
        short_message = " ".join(str(error).split())[:_MAX_MESSAGE_CHARACTERS]
        return PermissionDenied(f"{call}: no credentials: {short_message}: {WAY_TO_CREDENTIALS}")
    if isinstance(error, ParseError | ValueError):
        return Unavailable(f"{call}: the reply can't be read")
    short_message = " ".join(str(error).split())[:_MAX_MESSAGE_CHARACTERS]
    return Unavailable(f"{call}: {short_message or type(error).__name__}")


def refusal(code: str, message: str, call: Call) -> ProviderError:
    """Return the Castor error for Google Cloud's code and message.

    `code` is a reason, an operation's error code, or ``http`` and a status.
    """
    text = told(code, message, call)
    if code in _CAPACITY or _STOCKOUT in message or _RESERVATION_FULL.search(message):
        return InsufficientCapacity(text)
    if code in _QUOTA:
        return QuotaExceeded(f"{text}: request an increase in IAM & Admin, Quotas")
    if code == "authError":
        return PermissionDenied(f"{text}: these credentials are not valid: {WAY_TO_CREDENTIALS}")
    if code in _DENIED:
        if code == _CONSTRAINT:
            return PermissionDenied(f"{text}: allow it in the organisation's policy")
        return PermissionDenied(f"{text}: {_permission_hint(call)}")
    if code in _THROTTLED:
        return Throttled(text, _RETRY_SECONDS)
    if code in _MISSING:
        return NotFound(f"{text}: {_setting_hint(message, call)}")
    return Unavailable(text)


def failure(operation: Any, call: Call) -> ProviderError | None:
    """Return the Castor error for an operation's first error; None if the operation has none.

    Compute Engine may name zones that have capacity now. The error names them, too.
    """
    errors = operation.error.errors
    if not errors:
        return None
    first = errors[0]
    zones = [
        detail.error_info.metadatas[_ZONES_WITH_CAPACITY]
        for detail in first.error_details
        if detail.error_info.metadatas.get(_ZONES_WITH_CAPACITY)
    ]
    translated = refusal(first.code, first.message, call)
    if isinstance(translated, InsufficientCapacity) and zones:
        open_zones = [zone.strip().rpartition("/")[2] for zone in zones[0].split(",")]
        named = ", ".join(open_zones)[:_MAX_MESSAGE_CHARACTERS]
        text = f"{translated}: Google has capacity in {named}"
        return InsufficientCapacity(text, open_zones)
    return translated


def message_of(error: GoogleAPICallError) -> str:
    """Return Google's message without the request that google-api-core puts before it."""
    return _REQUEST_PREFIX.sub("", str(error.message or ""))


def told(code: str, message: str, call: Call) -> str:
    """Return a refusal in one line, without a hint."""
    short_message = " ".join(message.split())[:_MAX_MESSAGE_CHARACTERS]
    return f"{call}: {code}: {short_message}".rstrip(": .")


def error_code(error: BaseException | None) -> str:
    """Return Google's reason, or a reason for its status; empty for any other exception."""
    if not isinstance(error, GoogleAPICallError) or error.code is None:
        return ""
    status = int(error.code)
    reason = reason_in(error.errors)
    if reason in _CAPACITY | _QUOTA | _THROTTLED | _DENIED | _MISSING | ALREADY_EXISTS:
        return reason
    return _BY_STATUS.get(status) or reason or f"http {status}"


def reason_in(errors: Any) -> str:
    """Return the first reason in the `errors` of a reply; empty if there is none."""
    for error in errors or ():
        if isinstance(error, dict) and error.get("reason"):
            return str(error["reason"])
    return ""


def is_gone(error: BaseException | None) -> bool:
    """Return whether the call named a resource that is gone or not visible yet."""
    return error_code(error) in ("notFound", "RESOURCE_NOT_FOUND")


def is_taken(error: BaseException | None) -> bool:
    """Return whether the name is already in use."""
    return error_code(error) in ALREADY_EXISTS


def _permission_hint(call: Call) -> str:
    if call.action in _PERMISSION_HINTS:
        return _PERMISSION_HINTS[call.action].format(region=call.place)
    return (
        f"allow {call.action} to these credentials; for the controller's service account the "
        "Terraform module has the role"
    )


def _setting_hint(message: str, call: Call) -> str:
    region = call.place.rpartition("-")[0] if call.place.count("-") > 1 else call.place
    if call.action in _SETTING_BY_ACTION:
        named = _SETTING_BY_ACTION[call.action].format(region=region)
        return f"correct {named}, or apply Terraform again"
    for word, setting in _SETTING_BY_WORD:
        if word.lower() in message.lower() and (call.pool or "{pool}" not in setting):
            named = setting.format(region=region, pool=call.pool)
            return f"correct {named}, or apply Terraform again"
    if call.pool:
        return f"correct pools.{call.pool}, or apply Terraform again"
    return "correct the resource it names, or apply Terraform again"
