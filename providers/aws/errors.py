"""What AWS says no with, as Castor's errors.

The same refusal comes as an exception, or as one of `Errors` in a fleet's 200: both end in
`provider_error`. A code that nobody has listed is `Unavailable`: unknown is not 'no'.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Final

import boto3
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    EndpointConnectionError,
    InvalidRegionError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    TokenRetrievalError,
)
from botocore.parsers import ResponseParserError

from autoscaler.domain.errors import (
    InsufficientCapacity,
    NotFound,
    PermissionDenied,
    ProviderError,
    QuotaExceeded,
    Throttled,
    Unavailable,
)

# All that botocore raises for a call, whether or not it was sent.
CALL_ERRORS: Final = (ClientError, BotoCoreError, ResponseParserError)

_WAY_TO_CREDENTIALS: Final = (
    "set AWS_PROFILE or AWS_ACCESS_KEY_ID, or run castor on an instance that has a role"
)
_NO_CREDENTIALS: Final = (
    *(NoCredentialsError, PartialCredentialsError, CredentialRetrievalError),
    *(ProfileNotFound, TokenRetrievalError),
)
_CAPACITY: Final = frozenset(
    {
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientCapacity",
        "InsufficientFreeAddressesInSubnet",
        "InsufficientVolumeCapacity",
        "ReservationCapacityExceeded",
        "SpotMaxPriceTooLow",
        "UnfulfillableCapacity",
    }
)
_QUOTA: Final = frozenset(
    {
        "FleetLimitExceeded",
        "InstanceLimitExceeded",
        "MaxFleetCountExceeded",
        "MaxIOPSLimitExceeded",
        "MaxSpotFleetRequestCountExceeded",
        "MaxSpotInstanceCountExceeded",
        "PendingVerification",
        "VcpuLimitExceeded",
        "VolumeLimitExceeded",
    }
)
_CREDENTIALS: Final = frozenset(
    {
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "MissingAuthenticationToken",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_DENIED: Final = frozenset(
    {
        "403",
        "AccessDenied",
        "AccessDeniedException",
        "OperationNotPermitted",
        "OptInRequired",
        "UnauthorizedOperation",
        "Blocked",
    }
)
# What an account that has never used spot or fleets answers.
_NO_ROLE: Final = frozenset({"AuthFailure.ServiceLinkedRoleCreationNotPermitted"})
_MISSING: Final = frozenset(
    {
        "404",
        "AWS.SimpleQueueService.NonExistentQueue",
        "NoSuchBucket",
        "ParameterNotFound",
        "QueueDoesNotExist",
        "Unsupported",
        "UnsupportedOperation",
    }
)
_THROTTLED: Final = frozenset(
    {
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "PriorRequestNotComplete",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
# The setting that a missing thing stands in: by region, or by pool.
_SETTINGS: Final = {
    "InvalidLaunchTemplateId": "pools.{pool}.launch_template",
    "InvalidLaunchTemplateName": "pools.{pool}.launch_template",
    "InvalidSubnetID": "regions.{region}.subnets",
    "InvalidSubnet": "regions.{region}.subnets",
    "InvalidInstanceType": "pools.{pool}.instance_types",
    "Unsupported": "pools.{pool}.instance_types",
    "UnsupportedOperation": "pools.{pool}.instance_types",
    "InvalidAMIID": "pools.{pool}.launch_template",
    "InvalidGroup": "pools.{pool}.launch_template",
    "QueueDoesNotExist": "regions.{region}.queue_url",
    "AWS.SimpleQueueService.NonExistentQueue": "regions.{region}.queue_url",
    "NoSuchBucket": "regions.{region}.user_data",
    "404": "regions.{region}.user_data",
}
_RETRY_SECONDS: Final = 2.0
_MOST_CHARACTERS: Final = 300
# A refusal of IAM appends thousands of characters, which make it another one each time.
_ENCODED: Final = re.compile(r"\s*Encoded authorization failure message: \S*")


@dataclass(frozen=True, slots=True)
class Call:
    """Which call it was, for whom: what an error has to name."""

    region: str
    action: str
    pool: str | None = None

    def __str__(self) -> str:
        return f"{self.region}: {self.action}"


def provider_error(error: Exception, call: Call) -> ProviderError:
    """What a failed call means."""
    if isinstance(error, ClientError):
        told = error.response.get("Error", {})
        return refusal(str(told.get("Code", "")), str(told.get("Message", "")), call)
    if isinstance(error, _NO_CREDENTIALS):
        return PermissionDenied(f"{call}: no credentials: {error}: {_WAY_TO_CREDENTIALS}")
    if isinstance(error, EndpointConnectionError | InvalidRegionError):
        return Unavailable(f"{call}: {error}{_other_region(call.region)}")
    if isinstance(error, ResponseParserError):
        return Unavailable(f"{call}: the reply can't be read")
    return Unavailable(f"{call}: {' '.join(str(error).split())}")


def refusal(code: str, message: str, call: Call) -> ProviderError:
    """What a code of AWS means."""
    words = " ".join(_ENCODED.sub("", message).split())[:_MOST_CHARACTERS]
    told = f"{call}: {code}: {words}".rstrip(": .")
    if _is_of(code, _CAPACITY):
        return InsufficientCapacity(told)
    if _is_of(code, _QUOTA):
        return QuotaExceeded(f"{told}: ask for more of it in Service Quotas of {call.region}")
    if _is_of(code, _CREDENTIALS):
        return PermissionDenied(f"{told}: these credentials do not hold: {_WAY_TO_CREDENTIALS}")
    if code in _NO_ROLE:
        return PermissionDenied(
            f"{told}: create the service-linked role, which service_linked_roles = true of the "
            "Terraform module does"
        )
    if _is_of(code, _DENIED):
        return PermissionDenied(
            f"{told}: allow {call.action} to the controller's role; its policy is the Terraform "
            "module's"
        )
    if _is_of(code, _THROTTLED):
        return Throttled(told, _RETRY_SECONDS)
    if _is_of(code, _MISSING) or code.startswith("Invalid"):
        return NotFound(f"{told}: {_setting(code, call)}")
    return Unavailable(told)


def _is_of(code: str, codes: frozenset[str]) -> bool:
    """Return whether a code, or the family before its dot, is one of these."""
    return code in codes or code.partition(".")[0] in codes


def is_gone(error: BaseException | None) -> bool:
    """Whether the call named an instance that is no more, or not yet seen."""
    return error_code(error).startswith("InvalidInstanceID")


def error_code(error: BaseException | None) -> str:
    """AWS's own code; empty where it is none of its errors."""
    if not isinstance(error, ClientError):
        return ""
    return str(error.response.get("Error", {}).get("Code", ""))


def _setting(code: str, call: Call) -> str:
    setting = _SETTINGS.get(code) or _SETTINGS.get(code.split(".")[0])
    if setting is None or (call.pool is None and "{pool}" in setting):
        return "correct what it names, or apply Terraform again"
    named = setting.format(region=call.region, pool=call.pool)
    return f"correct {named}, or apply Terraform again"


def _other_region(region: str) -> str:
    known = boto3.session.Session().get_available_regions("ec2")
    if region in known:
        return ": is there a way from here to AWS?"
    meant = difflib.get_close_matches(region, known, n=1)
    instead = f", did you mean {meant[0]}?" if meant else ""
    return f": regions.{region}: botocore knows no such region{instead}"
