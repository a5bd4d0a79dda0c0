"""Announcements: told until the instance is gone, and deleted no sooner."""

from __future__ import annotations

import json

import pytest

from providers.aws.settings import CallTimeouts
from tests.conformance.provider import THEIRS
from tests.fakes.aws.faults import Fault
from tests.providers.aws.cloud import QUICK, AwsWorld

WARNING = "EC2 Spot Instance Interruption Warning"


@pytest.mark.aws
def test_a_notice_comes_the_way_that_terraform_lays(world: AwsWorld) -> None:
    """Route a notice from EventBridge through a rule to the queue."""
    events = world.client("events")
    queue = world.sqs.get_queue_attributes(QueueUrl=world.queue_url, AttributeNames=["QueueArn"])
    pattern = json.dumps({"source": ["aws.ec2"], "detail-type": [WARNING]})
    events.put_rule(Name="castor", EventPattern=pattern)
    arn = queue["Attributes"]["QueueArn"]
    events.put_targets(Rule="castor", Targets=[{"Id": "queue", "Arn": arn}])
    provider = world.connect()
    launched = provider.launch(world.request("1"))
    detail = json.dumps({"instance-id": launched.id, "instance-action": "terminate"})
    entry = {"Source": "aws.ec2", "DetailType": WARNING, "Detail": detail}
    events.put_events(Entries=[entry])
    (notice,) = provider.interruptions()
    assert notice.instance == launched.id
    assert notice.reclaim_seconds > notice.notice_seconds


def test_a_message_is_deleted_only_after_the_instance_is_gone(world: AwsWorld) -> None:
    provider = world.connect()
    launched = provider.launch(world.request("1"))
    world.reclaim(provider, launched.id)
    for _ in range(2):
        assert len(provider.interruptions()) == 1
    assert world.messages_left() == 1
    assert len(world.connect().interruptions()) == 1
    world.pass_time(125.0)
    provider.instances()
    assert provider.interruptions() == []
    assert world.messages_left() == 0


def test_poison_is_dropped_and_counted(world: AwsWorld) -> None:
    provider = world.connect()
    launched = provider.launch(world.request("1"))
    for body in ("", "{", "[]", "null", '{"detail-type": "x"}', "[" * 100_000):
        world.put_message(body or " ")
    world.announce(WARNING, {"no instance": 1})
    world.announce(WARNING, {"instance-id": launched.id}, time="yesterday")
    world.announce(WARNING, {"instance-id": launched.id})
    assert [notice.instance for notice in provider.interruptions()] == [launched.id]
    assert any(
        trouble.startswith("8 unreadable messages") for trouble in provider.condition().troubles
    )
    assert world.messages_left() == 1


def test_what_concerns_nobody_here_is_deleted(world: AwsWorld) -> None:
    others = world.connect(THEIRS)
    theirs = others.launch(world.request("1", controller=THEIRS))
    provider = world.connect()
    world.announce(WARNING, {"instance-id": theirs.id})
    world.announce(WARNING, {"instance-id": theirs.id}, time="2099-01-01T00:00:00Z")
    world.announce("EC2 Something New", {})
    assert provider.interruptions() == []
    world.pass_time(QUICK.visible_seconds + 1)
    assert provider.interruptions() == []
    assert world.messages_left() == 0


def test_of_one_too_new_to_be_listed_the_notice_waits(world: AwsWorld) -> None:
    world.account.lag_seconds = 10.0
    early = world.connect()
    launched = early.launch(world.request("1"))
    late = world.connect()
    world.announce(WARNING, {"instance-id": launched.id})
    assert late.interruptions() == []
    world.pass_time(11.0)
    late.instances()
    assert [notice.instance for notice in late.interruptions()] == [launched.id]


def test_a_recommendation_is_a_hint_and_no_notice(world: AwsWorld) -> None:
    provider = world.connect()
    launched = provider.launch(world.request("1"))
    world.announce("EC2 Instance Rebalance Recommendation", {"instance-id": launched.id})
    assert provider.interruptions() == []
    assert provider.condition().at_risk == {launched.id}
    provider.terminate([launched.id])
    provider.instances()
    assert provider.condition().at_risk == frozenset()


def test_a_maintenance_takes_an_instance_back_when_it_begins(world: AwsWorld) -> None:
    provider = world.connect()
    launched = provider.launch(world.request("1"))
    detail = {
        "service": "EC2",
        "eventTypeCategory": "scheduledChange",
        "startTime": "Mon, 28 Sep 2026 12:00:00 GMT",
        "affectedEntities": [{"entityValue": launched.id}],
    }
    world.announce("AWS Health Event", detail)
    (notice,) = provider.interruptions()
    assert notice.reclaim_seconds == pytest.approx(1_790_596_800.0)


def test_a_change_of_state_says_when_it_ended(world: AwsWorld) -> None:
    """A reclaim's list entry does not: the first look may be much later."""
    provider = world.connect()
    launched = provider.launch(world.request("1"))
    world.pass_time(40.0)
    world.take(launched.id)
    ended_seconds = world.clock.now()
    kind = "EC2 Instance State-change Notification"
    world.announce(kind, {"instance-id": launched.id, "state": "terminated"})
    provider.interruptions()
    world.pass_time(300.0)
    (seen,) = provider.instances()
    assert seen.ended_seconds == ended_seconds


def test_the_earliest_of_two_notices_counts(world: AwsWorld) -> None:
    provider = world.connect()
    launched = provider.launch(world.request("1"))
    first = world.clock.now()
    world.announce(WARNING, {"instance-id": launched.id})
    world.pass_time(5.0)
    world.announce(WARNING, {"instance-id": launched.id})
    (notice,) = provider.interruptions()
    assert notice.notice_seconds == first
    assert notice.reclaim_seconds == first + 120.0


def test_a_queue_that_is_gone_is_named(world: AwsWorld) -> None:
    world.sqs.delete_queue(QueueUrl=world.queue_url)
    provider = world.connect()
    assert provider.interruptions() == []
    (trouble,) = provider.condition().troubles
    assert "regions.us-east-1.queue_url" in trouble


def test_what_was_told_is_not_lost_when_the_queue_fails(world: AwsWorld) -> None:
    provider = world.connect(patience=CallTimeouts(redelivery_seconds=600, read_attempts=1))
    launched = provider.launch(world.request("1"))
    world.announce(WARNING, {"instance-id": launched.id})
    assert len(provider.interruptions()) == 1
    world.account.faults.add(Fault("ReceiveMessage"))
    assert len(provider.interruptions()) == 1
    (trouble,) = provider.condition().troubles
    assert trouble.startswith("us-east-1: ")
    assert len(provider.interruptions()) == 1
    assert provider.condition().troubles == ()


@pytest.mark.aws
def test_many_notices_are_read_in_one_look(world: AwsWorld) -> None:
    provider = world.connect(patience=CallTimeouts(redelivery_seconds=600, read_attempts=1))
    launched = provider.launch(world.request("1"))
    for _ in range(25):
        world.announce("EC2 Something New", {})
    world.announce(WARNING, {"instance-id": launched.id})
    assert len(provider.interruptions()) == 1
    assert world.messages_left() == 0
    assert provider.condition().troubles == ()
