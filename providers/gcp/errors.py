"""What Google Cloud says no with, as Castor's errors.

The same refusal comes as an exception, or seconds later in an operation: both end in `refusal`. A
code that nobody has listed is `Unavailable`: unknown is not 'no'.
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

# All that Google's clients raise for a call, whether or not it was sent.
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
        "RESOURCE_POOL_EXHAUSTED",
        "RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
        "STOCKOUT",
        "VM_MIN_COUNT_NOT_REACHED",
        "ZONE_RESOURCE_POOL_EXHAUSTED",
        "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
    }
)
# Some refusals at once have it in their words alone.
_STOCKOUT: Final = "ZONE_RESOURCE_POOL_EXHAUSTED"
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
        "conditionNotMet",  # a constraint of the organisation: shielded VMs, images, locations
        "forbidden",
        "insufficientPermissions",
    }
)
_MISSING: Final = frozenset(
    {
        "INVALID_FIELD_VALUE",
        "INVALID_USAGE",
        "RESOURCE_NOT_FOUND",
        "UNSUPPORTED_OPERATION",
        "badRequest",
        "invalid",
        "invalidParameter",
        "notFound",
        "required",
    }
)
# Where Compute Engine says the same without a reason that is listed.
_BY_STATUS: Final = {
    400: "invalid",
    401: "authError",
    403: "forbidden",
    404: "notFound",
    409: "conflict",
    412: "conditionNotMet",
    429: "rateLimitExceeded",
}
# What the controller's account must have for a call, where its role is not all.
_ALLOWING: Final = {
    "serviceAccounts.generateAccessToken": (
        "give the controller's service account roles/iam.serviceAccountTokenCreator on "
        "regions.{region}.job_account, and enable iamcredentials.googleapis.com"
    ),
    "sts.token": "enable sts.googleapis.com in the project of regions.{region}.job_account",
}
# The setting that is wrong where a call is, whatever it says.
_SETTING_OF: Final = {
    "serviceAccounts.generateAccessToken": "regions.{region}.job_account",
    "sts.token": "regions.{region}.jobs",
}
# The setting that what a message names stands in.
_SETTINGS: Final = (
    ("instanceTemplate", "pools.{pool}.templates"),
    ("machineType", "pools.{pool}.machine_types"),
    ("machine type", "pools.{pool}.machine_types"),
    ("acceleratorType", "pools.{pool}.accelerator"),
    ("subscription", "regions.{region}.subscription"),
    ("bucket", "regions.{region}.user_data"),
    ("zone", "regions.{region}.zones"),
)
_RETRY_SECONDS: Final = 2.0
_MOST_CHARACTERS: Final = 300
# What google-api-core puts before Google's own words. Its request ids make each refusal another.
_REQUEST: Final = re.compile(r"^(GET|POST|PUT|PATCH|DELETE) \S+: ")


@dataclass(frozen=True, slots=True)
class Call:
    """Which call it was, for whom: what an error has to name. `place` says where."""

    place: str
    action: str
    pool: str | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.action}"


def provider_error(error: Exception, call: Call) -> ProviderError:
    """What a failed call means."""
    if isinstance(error, GoogleAPICallError) and error.code is not None:
        return refusal(error_code(error), message_of(error), call)
    if isinstance(error, DefaultCredentialsError | RefreshError):
        words = " ".join(str(error).split())[:_MOST_CHARACTERS]
        return PermissionDenied(f"{call}: no credentials: {words}: {WAY_TO_CREDENTIALS}")
    if isinstance(error, ParseError | ValueError):
        return Unavailable(f"{call}: the reply can't be read")
    words = " ".join(str(error).split())[:_MOST_CHARACTERS]
    return Unavailable(f"{call}: {words or type(error).__name__}")


def refusal(code: str, message: str, call: Call) -> ProviderError:
    """What a code of Google Cloud means: a reason, an operation's, or ``http`` and the status."""
    words = told(code, message, call)
    if code in _CAPACITY or _STOCKOUT in message:
        return InsufficientCapacity(words)
    if code in _QUOTA:
        return QuotaExceeded(f"{words}: ask for more of it in IAM & Admin, Quotas")
    if code == "authError":
        return PermissionDenied(f"{words}: these credentials do not hold: {WAY_TO_CREDENTIALS}")
    if code in _DENIED:
        if code == _CONSTRAINT:
            return PermissionDenied(f"{words}: have the organisation's policy allow it")
        return PermissionDenied(f"{words}: {_allowing(call)}")
    if code in _THROTTLED:
        return Throttled(words, _RETRY_SECONDS)
    if code in _MISSING:
        return NotFound(f"{words}: {_setting(message, call)}")
    return Unavailable(words)


def message_of(error: GoogleAPICallError) -> str:
    """Google's own words, without the request's."""
    return _REQUEST.sub("", str(error.message or ""))


def told(code: str, message: str, call: Call) -> str:
    """A refusal in one line, without a way out."""
    words = " ".join(message.split())[:_MOST_CHARACTERS]
    return f"{call}: {code}: {words}".rstrip(": .")


def error_code(error: BaseException | None) -> str:
    """Google's own reason, or the like for its status; empty where it is none of its errors."""
    if not isinstance(error, GoogleAPICallError) or error.code is None:
        return ""
    status = int(error.code)
    reason = reason_in(error.errors)
    if reason in _CAPACITY | _QUOTA | _THROTTLED | _DENIED | _MISSING | ALREADY_EXISTS:
        return reason
    return _BY_STATUS.get(status) or reason or f"http {status}"


def reason_in(errors: Any) -> str:
    """The first reason of the `errors` in a reply."""
    for one in errors or ():
        if isinstance(one, dict) and one.get("reason"):
            return str(one["reason"])
    return ""


def is_gone(error: BaseException | None) -> bool:
    """Whether the call named what is no more, or not yet seen."""
    return error_code(error) in ("notFound", "RESOURCE_NOT_FOUND")


def is_taken(error: BaseException | None) -> bool:
    """Whether a name is in use."""
    return error_code(error) in ALREADY_EXISTS


def _allowing(call: Call) -> str:
    if call.action in _ALLOWING:
        return _ALLOWING[call.action].format(region=call.place)
    return (
        f"allow {call.action} to the controller's service account; its role is the Terraform "
        "module's"
    )


def _setting(message: str, call: Call) -> str:
    region = call.place.rpartition("-")[0] if call.place.count("-") > 1 else call.place
    if call.action in _SETTING_OF:
        named = _SETTING_OF[call.action].format(region=region)
        return f"correct {named}, or apply Terraform again"
    for word, setting in _SETTINGS:
        if word.lower() in message.lower() and (call.pool or "{pool}" not in setting):
            named = setting.format(region=region, pool=call.pool)
            return f"correct {named}, or apply Terraform again"
    if call.pool:
        return f"correct pools.{call.pool}, or apply Terraform again"
    return "correct what it names, or apply Terraform again"
