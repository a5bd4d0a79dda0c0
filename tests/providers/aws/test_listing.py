"""Lists: whole or not at all, of our own only, and wiser than EC2 of what is new or over."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from autoscaler.domain.errors import Unavailable
from autoscaler.domain.instance import CONTROLLER_TAG, CloudInstance, CloudState
from providers.aws.provider import AwsProvider
from providers.aws.settings import CallTimeouts
from providers.cloud.register import Register
from providers.cloud.tags import DEPLOYMENT_TAG
from tests.conformance.provider import OURS, THEIRS
from tests.fakes.aws.faults import Fault, When
from tests.providers.aws.cloud import AwsWorld, error_of

REGION = "us-east-1"


def test_a_thousand_are_one_call_and_more_are_pages(world: AwsWorld) -> None:
    provider = world.connect()
    ids = {provider.launch(world.request(str(number))).id for number in range(8)}
    world.account.calls.clear()
    assert {seen.id for seen in provider.instances()} == ids
    assert world.account.calls["DescribeInstances"] == 1
    assert world.account.of("DescribeInstances")[-1]["MaxResults"] == "1000"
    world.account.page = 3
    assert {seen.id for seen in provider.instances()} == ids
    assert world.account.calls["DescribeInstances"] == 1 + 3


@pytest.mark.aws
def test_a_list_whose_last_page_is_missing_is_none(world: AwsWorld) -> None:
    provider = world.connect()
    for number in range(4):
        provider.launch(world.request(str(number)))
    world.account.page = 3
    world.account.sent.clear()
    provider.instances()
    token = world.account.of("DescribeInstances")[-1]["NextToken"]
    world.account.faults.add(Fault("DescribeInstances", matching={"NextToken": token}))
    assert isinstance(error_of(provider.instances), Unavailable)


def test_an_empty_reply_is_not_an_empty_cloud(world: AwsWorld) -> None:
    provider = world.connect()
    provider.launch(world.request("1"))
    world.account.faults.add(Fault("DescribeInstances", When.EMPTY))
    assert isinstance(error_of(provider.instances), Unavailable)


def test_every_look_is_for_our_own(world: AwsWorld) -> None:
    provider = world.connect()
    launched = provider.launch(world.request("1"))
    provider.instances()
    provider.terminate(["i-0123456789abcdef0", launched.id])
    for sent in world.account.of("DescribeInstances"):
        looked_for = sent.get("Filter.1.Name"), sent.get("Filter.1.Value.1")
        ours = (f"tag:{CONTROLLER_TAG}", OURS), (f"tag:{DEPLOYMENT_TAG}", "test")
        assert looked_for in ours or sent["InstanceId.1"] == launched.id


def count_again(world: AwsWorld, provider: AwsProvider) -> Mapping[str, int]:
    world.pass_time(CallTimeouts().prices_seconds)
    assert list(provider.instances()) == []
    return provider.condition().strangers


def test_instances_of_a_lost_controller_are_told_and_adopted(world: AwsWorld) -> None:
    """Its id was in the state that was lost, and is in their tags."""
    lost, nameless = (world.connect().launch(world.request(token)).id for token in "12")
    world.ec2.delete_tags(Resources=[nameless], Tags=[{"Key": CONTROLLER_TAG}])
    provider = world.connect(THEIRS)
    assert list(provider.instances()) == []
    condition = provider.condition()
    assert (condition.strangers, condition.troubles) == ({"": 1, OURS: 1}, ())
    assert len(condition.stranger_troubles) == 2
    assert world.account.alive() == sorted([lost, nameless])
    assert [found.id for found in world.connect(OURS).instances()] == [lost]
    world.take(lost)
    assert count_again(world, provider) == {"": 1}, "what has ended is no trouble"


def test_instances_of_other_deployments_are_no_strangers(world: AwsWorld) -> None:
    world.connect().launch(world.request("1"))
    world.document["deployment"] = "other"
    provider = world.connect(THEIRS)
    assert list(provider.instances()) == []
    assert provider.condition().strangers == {}


def test_a_list_of_strangers_that_fails_keeps_their_count(world: AwsWorld) -> None:
    world.connect().launch(world.request("1"))
    provider = world.connect(THEIRS)
    provider.instances()
    strangers = {"Filter.2.Name": "instance-state-name"}
    world.account.faults.add(Fault("DescribeInstances", times=None, matching=strangers))
    assert count_again(world, provider) == {OURS: 1}
    assert provider.condition().troubles == ()


def test_a_new_instance_is_listed_before_ec2_does(world: AwsWorld) -> None:
    world.account.lag_seconds = 10.0
    provider = world.connect()
    launched = provider.launch(world.request("1"))
    world.pass_time(5.0)
    assert [seen.id for seen in provider.instances()] == [launched.id]
    world.pass_time(6.0)
    (seen,) = provider.instances()
    assert seen.state is CloudState.RUNNING


def test_one_that_never_comes_is_listed_for_a_stated_time() -> None:
    register = Register(visible_seconds=60.0)
    register.add(REGION, _instance("i-1"), 1000.0)
    register.take_in(REGION, [], 1059.0, 1059.0)
    assert [owned.instance.id for owned in register.all()] == ["i-1"]
    register.take_in(REGION, [], 1061.0, 1061.0)
    assert list(register.all()) == []


def test_one_that_a_list_leaves_out_once_counts_on() -> None:
    register = Register(visible_seconds=60.0)
    register.take_in(REGION, [_instance("i-1")], 5000.0, 5000.0)
    register.take_in(REGION, [], 5030.0, 5030.0)
    assert [owned.instance.state for owned in register.all()] == [CloudState.RUNNING]


def test_one_region_says_nothing_of_another() -> None:
    register = Register(visible_seconds=60.0)
    register.take_in("us-west-2", [_instance("i-2")], 5000.0, 5000.0)
    register.take_in(REGION, [], 9000.0, 9000.0)
    assert [owned.instance.id for owned in register.all()] == ["i-2"]


def test_what_has_ended_stays_for_two_hours_with_the_same_end() -> None:
    register = Register(visible_seconds=60.0)
    ended = _instance("i-1", CloudState.TERMINATED)
    register.take_in(REGION, [ended], 5000.0, 5001.0)
    register.take_in(REGION, [ended], 6000.0, 6001.0)
    register.take_in(REGION, [], 5001.0 + 7199.0, 13000.0)
    assert [owned.instance.ended_seconds for owned in register.all()] == [5001.0]
    register.take_in(REGION, [], 5001.0 + 7201.0, 13000.0)
    assert list(register.all()) == []


def test_a_list_that_was_asked_for_before_a_launch_does_not_hide_it() -> None:
    register = Register(visible_seconds=0.0)
    register.add(REGION, _instance("i-1"), 1001.0)
    register.take_in(REGION, [], 1000.0, 1002.0)
    assert [owned.instance.id for owned in register.all()] == ["i-1"]


def _instance(name: str, state: CloudState = CloudState.RUNNING) -> CloudInstance:
    return CloudInstance(name, f"token of {name}", "offer", state, {}, 900.0)
