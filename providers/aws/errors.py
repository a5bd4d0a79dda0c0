"""Translation of AWS errors to Castor's errors.

A refusal arrives as an exception, or in `Errors` of a fleet reply with status 200. An unlisted
code becomes `Unavailable`: the outcome is unknown.
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

# Every exception that botocore raises for a call, sent or not.
CALL_ERRORS: Final = (ClientError, BotoCoreError, ResponseParserError)

_CREDENTIALS_HINT: Final = (
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
        "InvalidCapacityReservationState",  # a Capacity Block before its start
        "ReservationCapacityExceeded",
        "SpotMaxPriceTooLow",
        "UnfulfillableCapacity",
    }
)
_QUOTA: Final = frozenset(
    {
        "AddressLimitExceeded",
        "FleetLimitExceeded",
        "InstanceLimitExceeded",
        "MaxFleetCountExceeded",
        "MaxIOPSLimitExceeded",
        "MaxSpotFleetRequestCountExceeded",
        "MaxSpotInstanceCountExceeded",
        "NetworkInterfaceLimitExceeded",
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
# Code for an account that has never used spot or fleets.
_NO_ROLE: Final = frozenset({"AuthFailure.ServiceLinkedRoleCreationNotPermitted"})
# Actions of people, which the controller's role lacks.
_PERSONAL: Final = (
    "DescribeAvailabilityZones",
    "DescribeCapacityBlockOfferings",
    "GetSpotPlacementScores",
    "PurchaseCapacityBlock",
)
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
# Settings that name the missing resource, by error code.
_SETTINGS: Final = {
    "InvalidLaunchTemplateId": "pools.{pool}.launch_template",
    "InvalidLaunchTemplateName": "pools.{pool}.launch_template",
    "InvalidSubnetID": "regions.{region}.subnets",
    "InvalidSubnet": "regions.{region}.subnets",
    "InvalidInstanceType": "pools.{pool}.instance_types",
    "Unsupported": "pools.{pool}.instance_types",
    "UnsupportedOperation": "pools.{pool}.instance_types",
    "InvalidCapacityReservationId": "pools.{pool}.reservation",
    "InvalidAMIID": "pools.{pool}.launch_template",
    "InvalidGroup": "pools.{pool}.launch_template",
    "QueueDoesNotExist": "regions.{region}.queue_url",
    "AWS.SimpleQueueService.NonExistentQueue": "regions.{region}.queue_url",
    "NoSuchBucket": "regions.{region}.user_data",
    "404": "regions.{region}.user_data",
}
_RETRY_SECONDS: Final = 2.0
_MAX_MESSAGE_CHARACTERS: Final = 300
# End of EC2's message for a lack of capacity in one zone, as users report it (openshift/installer
# #7088): "... by not specifying an Availability Zone in your request or choosing ZONE, ZONE."
_ZONE: Final = re.compile(r"[a-z]+(?:-[a-z0-9]+)*-\d+[a-z]\b")
_OPEN_ZONES: Final = re.compile(
    rf"\bchoosing ({_ZONE.pattern}(?:,? (?:(?:and|or) )?{_ZONE.pattern})*)"
)
# IAM appends thousands of characters that differ in each refusal.
_ENCODED: Final = re.compile(r"\s*Encoded authorization failure message: \S*")


@dataclass(frozen=True, slots=True)
class Call:
    """API call named in an error: its region, its action, and its pool if it has one."""

    region: str
    action: str
    pool: str | None = None

    def __str__(self) -> str:
        return f"{self.region}: {self.action}"


def provider_error(error: Exception, call: Call) -> ProviderError:
    """Return the Castor error for an exception of a call."""
    if isinstance(error, ClientError):
        details = error.response.get("Error", {})
        return refusal(str(details.get("Code", "")), str(details.get("Message", "")), call)
    if isinstance(error, _NO_CREDENTIALS):
        return PermissionDenied(f"{call}: no credentials: {error}: {_CREDENTIALS_HINT}")
    if isinstance(error, EndpointConnectionError | InvalidRegionError):
        return Unavailable(f"{call}: {error}{_region_hint(call.region)}")
    if isinstance(error, ResponseParserError):
        return Unavailable(f"{call}: the reply can't be read")
    return Unavailable(f"{call}: {' '.join(str(error).split())}")


def refusal(code: str, message: str, call: Call) -> ProviderError:
    """Return the Castor error for an AWS error code and message."""
    short_message = " ".join(_ENCODED.sub("", message).split())[:_MAX_MESSAGE_CHARACTERS]
    text = f"{call}: {code}: {short_message}".rstrip(": .")
    if _is_code_in(code, _CAPACITY):
        open_zones = _OPEN_ZONES.search(message)
        return InsufficientCapacity(text, _ZONE.findall(open_zones[1]) if open_zones else ())
    if _is_code_in(code, _QUOTA):
        return QuotaExceeded(f"{text}: request an increase in Service Quotas of {call.region}")
    if code in _NO_ROLE:  # the part before its dot is a code of invalid credentials
        return PermissionDenied(
            f"{text}: create the service-linked role, or set service_linked_roles = true in the "
            "Terraform module"
        )
    if _is_code_in(code, _CREDENTIALS):
        return PermissionDenied(f"{text}: these credentials are not valid: {_CREDENTIALS_HINT}")
    if _is_code_in(code, _DENIED) and call.action in _PERSONAL:
        return PermissionDenied(f"{text}: allow ec2:{call.action} to your own credentials")
    if _is_code_in(code, _DENIED):
        return PermissionDenied(
            f"{text}: allow {call.action} to these credentials; for the controller's role the "
            "Terraform module has the policy"
        )
    if _is_code_in(code, _THROTTLED):
        return Throttled(text, _RETRY_SECONDS)
    if _is_code_in(code, _MISSING) or code.startswith("Invalid"):
        return NotFound(f"{text}: {_setting_hint(code, call)}")
    return Unavailable(text)


def _is_code_in(code: str, codes: frozenset[str]) -> bool:
    """Return whether a code, or the part before its dot, is in `codes`."""
    return code in codes or code.partition(".")[0] in codes


def is_gone(error: BaseException | None) -> bool:
    """Return whether the call named an instance that has ended or is not visible yet."""
    return error_code(error).startswith("InvalidInstanceID")


def error_code(error: BaseException | None) -> str:
    """Return AWS's error code; empty for any other exception."""
    if not isinstance(error, ClientError):
        return ""
    return str(error.response.get("Error", {}).get("Code", ""))


def _setting_hint(code: str, call: Call) -> str:
    setting = _SETTINGS.get(code) or _SETTINGS.get(code.split(".")[0])
    if setting is None or (call.pool is None and "{pool}" in setting):
        return "correct the resource it names, or apply Terraform again"
    named = setting.format(region=call.region, pool=call.pool)
    return f"correct {named}, or apply Terraform again"


def _region_hint(region: str) -> str:
    region_names = boto3.session.Session().get_available_regions("ec2")
    if region in region_names:
        return ": check the network path from this host to AWS"
    matches = difflib.get_close_matches(region, region_names, n=1)
    suggestion = f", did you mean {matches[0]}?" if matches else ""
    return f": regions.{region}: botocore has no such region{suggestion}"
