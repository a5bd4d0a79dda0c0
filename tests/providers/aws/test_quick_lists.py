"""Equality of quick reads and botocore's reads."""

from __future__ import annotations

import functools
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError

from providers.aws.quick_lists import read_lists_quickly
from providers.aws.replies import instances_in, told_instance
from tests.providers.aws.cloud import SMALL_SPOT, AwsWorld


@functools.cache
def client(is_quick: bool) -> Any:
    """Return a shared client, because creation takes longer than most tests here."""
    session = boto3.session.Session("key", "secret", region_name="us-east-1")
    made = session.client("ec2", endpoint_url="http://nowhere.invalid")
    if is_quick:
        read_lists_quickly(made)
    return made


def listed(body: bytes, is_quick: bool, status: int = 200) -> dict[str, Any]:
    """Return such a client's reading of a reply."""

    class Raw:
        """The body, in one piece."""

        @staticmethod
        def stream(**_: Any) -> Any:
            yield body

    def answer(request: Any, **_: Any) -> AWSResponse:
        return AWSResponse(request.url, status, {}, Raw())

    asked = client(is_quick)
    asked.meta.events.register("before-send.ec2.*", answer, unique_id="canned")
    try:
        return dict(asked.describe_instances())
    finally:
        asked.meta.events.unregister("before-send.ec2.*", unique_id="canned")


@pytest.fixture
def body(world: AwsWorld) -> bytes:
    """A list as EC2 writes it: of some that run, one that has ended, and another page."""
    provider = world.connect()
    for token, offer in (("1", SMALL_SPOT), ("2", SMALL_SPOT), ("3", SMALL_SPOT)):
        launched = provider.launch(world.request(token, offer))
    provider.terminate([launched.id])
    world.account.page = 5
    kept: list[bytes] = []
    client = world.client("ec2")
    client.meta.events.register_first(
        "before-parse.ec2.DescribeInstances",
        lambda response_dict, **_: kept.append(response_dict["body"]),
    )
    client.describe_instances(MaxResults=5)
    end = b"</ns0:reservationSet>"
    return kept[0].replace(end, end + b"<ns0:nextToken>2</ns0:nextToken>")


def test_instances_and_the_next_page_are_those_that_botocore_finds(body: bytes) -> None:
    quick, slow = (listed(body, is_quick) for is_quick in (True, False))
    assert [told_instance(one) for one in instances_in(quick)] == [
        told_instance(one) for one in instances_in(slow)
    ]
    assert len(list(instances_in(quick))) == 3
    assert quick["NextToken"] == slow["NextToken"] == "2"


@pytest.mark.parametrize("missing", [b"instanceId", b"launchTime", b"reservationSet", b"key"])
def test_what_is_not_whole_is_left_to_botocore(body: bytes, missing: bytes) -> None:
    broken = body.replace(missing, b"other")
    quick, slow = (listed(broken, is_quick) for is_quick in (True, False))
    del quick["ResponseMetadata"], slow["ResponseMetadata"]
    assert quick == slow


def test_errors_are_botocores() -> None:
    body = b"<Response><Errors><Error><Code>Throttled</Code></Error></Errors></Response>"
    with pytest.raises(ClientError, match="Throttled"):
        listed(body, is_quick=True, status=400)
