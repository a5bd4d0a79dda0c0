"""Meanings of AWS's refusals; each names the setting and the way out."""

from __future__ import annotations

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError

from autoscaler.clock import VirtualClock
from autoscaler.domain.errors import (
    InsufficientCapacity,
    NotFound,
    PermissionDenied,
    ProviderError,
    QuotaExceeded,
    Throttled,
    Unavailable,
)
from providers.aws.errors import Call, provider_error, refusal
from providers.aws.provider import AwsProvider
from providers.aws.settings import CallTimeouts
from providers.cloud.budget import CallRateLimiter, Rate
from tests.fakes.aws.faults import Fault
from tests.fakes.aws.server import FakeAws
from tests.providers.aws.cloud import AwsWorld, error_of

CALL = Call("us-east-1", "CreateFleet", "gpu")
USUAL = Rate(50, 10)


@pytest.mark.parametrize(
    ("end", "zones"),
    [
        ("by not specifying an Availability Zone in your request or choosing us-west-2d.", "d"),
        ("or choosing us-west-2a, us-west-2c, us-west-2d.", "acd"),
        ("by choosing another type. You have used us-west-2a.", ""),
        ("", ""),
    ],
)
def test_the_zones_that_ec2_names_are_read_whatever_the_length_of_the_text(
    end: str, zones: str
) -> None:
    """The text is that of openshift/installer#7088, with its zones changed."""
    text = (
        "We currently do not have sufficient m6a.xlarge capacity in the Availability Zone you "
        f"requested (us-west-2b). {'Our system will be working on it. ' * 10}You can currently "
        f"get m6a.xlarge capacity {end}"
    )
    error = refusal("InsufficientInstanceCapacity", text, CALL)
    assert isinstance(error, InsufficientCapacity)
    assert error.open_zones == {f"us-west-2{zone}" for zone in zones}


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        ("InsufficientInstanceCapacity", InsufficientCapacity),
        ("UnfulfillableCapacity", InsufficientCapacity),
        ("InsufficientFreeAddressesInSubnet", InsufficientCapacity),
        ("InsufficientVolumeCapacity", InsufficientCapacity),
        ("ReservationCapacityExceeded", InsufficientCapacity),
        ("InvalidCapacityReservationState.PendingActivation", InsufficientCapacity),
        ("MaxIOPSLimitExceeded", QuotaExceeded),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", PermissionDenied),
        ("UnauthorizedOperation.Anything", PermissionDenied),
        ("VcpuLimitExceeded", QuotaExceeded),
        ("MaxSpotInstanceCountExceeded", QuotaExceeded),
        ("MaxFleetCountExceeded", QuotaExceeded),
        ("NetworkInterfaceLimitExceeded", QuotaExceeded),
        ("AddressLimitExceeded", QuotaExceeded),
        ("InstanceLimitExceeded", QuotaExceeded),
        ("UnauthorizedOperation", PermissionDenied),
        ("AuthFailure", PermissionDenied),
        ("ExpiredToken", PermissionDenied),
        ("OptInRequired", PermissionDenied),
        ("InvalidLaunchTemplateId.NotFound", NotFound),
        ("InvalidSubnetID.NotFound", NotFound),
        ("Unsupported", NotFound),
        ("RequestLimitExceeded", Throttled),
        ("Throttling", Throttled),
        ("InternalError", Unavailable),
        ("ServiceUnavailable", Unavailable),
        ("IdempotentParameterMismatch", Unavailable),
        ("NobodyHasHeardOfThis", Unavailable),
        ("", Unavailable),
    ],
)
def test_codes_mean_the_same_from_an_exception_and_from_a_fleet(
    code: str, meant: type[ProviderError]
) -> None:
    told = refusal(code, "a\nmessage ", CALL)
    response = {"Error": {"Code": code, "Message": "a\nmessage "}}
    raised = provider_error(ClientError(response, "CreateFleet"), CALL)
    assert type(told) is type(raised) is meant
    assert str(told) == str(raised)
    assert "\n" not in str(told)
    assert str(told).startswith("us-east-1: CreateFleet")


@pytest.mark.parametrize(
    ("code", "setting"),
    [
        ("InvalidLaunchTemplateId.NotFound", "pools.gpu.launch_template"),
        ("InvalidSubnetID.NotFound", "regions.us-east-1.subnets"),
        ("Unsupported", "pools.gpu.instance_types"),
        ("AWS.SimpleQueueService.NonExistentQueue", "regions.us-east-1.queue_url"),
        ("NoSuchBucket", "regions.us-east-1.user_data"),
        ("UnauthorizedOperation", "allow CreateFleet to these credentials"),
        ("VcpuLimitExceeded", "Service Quotas of us-east-1"),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "service_linked_roles = true"),
        ("InvalidClientTokenId", "set AWS_PROFILE"),
    ],
)
def test_an_error_names_what_to_mend(code: str, setting: str) -> None:
    assert setting in str(refusal(code, "", CALL))


def test_what_differs_each_time_is_left_out() -> None:
    """EC2 encodes the circumstances: the same refusal would be another each time."""
    said = "You are not authorized. Encoded authorization failure message: {}"
    first, second = (
        str(refusal("UnauthorizedOperation", said.format(blob), CALL)) for blob in ("kX9", "p-_2")
    )
    assert first == second
    assert "You are not authorized: allow CreateFleet" in first


def test_a_region_that_is_none_is_told_with_what_is_like_it() -> None:
    error = EndpointConnectionError(endpoint_url="https://ec2.us-eas-1.amazonaws.com")
    told = provider_error(error, Call("us-eas-1", "DescribeInstances"))
    assert "regions.us-eas-1: botocore has no such region, did you mean us-east-1?" in str(told)


def test_what_was_not_answered_is_not_known() -> None:
    error = ReadTimeoutError(endpoint_url="https://x")
    assert isinstance(provider_error(error, CALL), Unavailable)


@pytest.mark.aws
def test_no_credentials_are_told_as_such(world: AwsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "nowhere")
    session = boto3.session.Session(region_name="us-east-1")
    provider = AwsProvider(world.settings, "a", world.clock, session)
    error = error_of(provider.instances)
    assert isinstance(error, PermissionDenied)
    assert "set AWS_PROFILE or AWS_ACCESS_KEY_ID" in str(error)


@pytest.mark.aws
def test_an_answer_that_takes_too_long_is_none(fake: FakeAws, world: AwsWorld) -> None:
    patience = CallTimeouts(answer_seconds=0.2, read_attempts=1, read_mode="standard")
    provider = world.connect(patience=patience)
    world.account.faults.add(Fault("DescribeInstances", delay_seconds=0.6))
    assert isinstance(error_of(provider.instances), Unavailable)


@pytest.mark.aws
def test_what_only_reads_is_sent_again(world: AwsWorld) -> None:
    provider = world.connect(patience=CallTimeouts(read_attempts=2, read_mode="standard"))
    world.account.faults.add(Fault("DescribeInstances", code="RequestLimitExceeded", status=503))
    assert list(provider.instances()) == []
    assert world.account.calls["DescribeInstances"] == 2 + 1  # with that of strangers


def test_a_bucket_empties_and_fills() -> None:
    clock = VirtualClock(1000.0)
    budget = CallRateLimiter(clock, {}, USUAL)
    budget.limit("r", "Launch", Rate(2, 0.5))
    budget.take("r", "Launch")
    budget.take("r", "Launch")
    with pytest.raises(Throttled) as caught:
        budget.take("r", "Launch")
    assert caught.value.retry_after_seconds == pytest.approx(2.0)
    budget.take("other region", "Launch")
    clock.advance(2.0)
    budget.take("r", "Launch")


def test_who_may_wait_waits_for_a_while_and_no_longer() -> None:
    clock = VirtualClock(1000.0)
    budget = CallRateLimiter(clock, {}, USUAL, longest_wait_seconds=3.0)
    budget.limit("r", "Look", Rate(1, 1.0))
    for _ in range(3):
        budget.wait("r", "Look")
    assert clock.now() == pytest.approx(1002.0)
    budget.was_throttled("r", "Look")
    budget.limit("r", "Look", Rate(1, 0.1))
    budget.wait("r", "Look")
    with pytest.raises(Throttled):
        budget.wait("r", "Look")


def test_a_throttled_bucket_is_empty(world: AwsWorld) -> None:
    """Others in the account use it, too: asking on would only make it worse."""
    provider = world.connect()
    world.account.faults.add(Fault("CreateFleet", code="RequestLimitExceeded", status=503))
    for _ in range(5):
        assert isinstance(error_of(lambda: provider.launch(world.request("1"))), Throttled)
    assert world.account.calls["CreateFleet"] == 1
    world.pass_time(2.0)
    provider.launch(world.request("1"))
