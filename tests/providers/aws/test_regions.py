"""Several regions: each asked by itself, all told together, none ended for another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoscaler.domain.errors import Unavailable
from autoscaler.domain.instance import CloudState
from providers.base import Provider
from providers.cloud.following import LOOK_SECONDS
from tests.fakes.aws.faults import Fault, When
from tests.providers.aws.cloud import SMALL, AwsWorld, error_of
from tests.providers.aws.test_following import LAG_SECONDS, Followed

WEST = "us-west-2"
SMALL_WEST = "west/g4dn.xlarge/us-west-2a/on-demand"


@pytest.fixture
def world(world: AwsWorld) -> AwsWorld:
    """Return a world with a pool in a second region, which has no queue."""
    ec2 = world.client("ec2", WEST)
    zone = [{"Name": "availability-zone", "Values": ["us-west-2a"]}]
    (subnet,) = ec2.describe_subnets(Filters=zone)["Subnets"]
    template = ec2.create_launch_template(
        LaunchTemplateName="west", LaunchTemplateData={"ImageId": "ami-0123456789abcdef0"}
    )["LaunchTemplate"]
    document = world.document
    document["regions"][WEST] = {
        "subnets": {"us-west-2a": subnet["SubnetId"]},
        "user_data": document["regions"]["us-east-1"]["user_data"],
    }
    document["pools"]["west"] = {
        **document["pools"]["gpu"],
        "region": WEST,
        "launch_template": {"id": template["LaunchTemplateId"], "version": "1"},
        "purchases": "on-demand",
    }
    world.account.priced_regions.add(WEST)
    world.account.zones.append("us-west-2a")
    return world


def test_all_regions_are_one_cloud(world: AwsWorld) -> None:
    provider = world.connect()
    assert {offer.id.partition("/")[0] for offer in provider.offers()} == {"gpu", "west"}
    east = provider.launch(world.request("1"))
    west = provider.launch(world.request("2", SMALL_WEST))
    assert {seen.id for seen in provider.instances()} == {east.id, west.id}
    assert provider.interruptions() == []
    provider.terminate([east.id, west.id])
    assert {seen.state for seen in provider.instances()} == {CloudState.TERMINATED}
    assert world.account.alive() == []


def test_user_data_is_written_in_the_region_of_its_bucket(world: AwsWorld) -> None:
    """S3 answers a write in another region with a redirect."""
    home = world.document["regions"]["us-east-1"]
    home["jobs"] = home["user_data"].replace("user-data", "jobs")
    home["job_role"] = "arn:aws:iam::123456789012:role/job"
    world.account.faults.add(Fault("PutObject", matching={"region": WEST}, times=None))
    launched = world.connect().launch(world.request("1", SMALL_WEST))
    assert world.account.alive() == [launched.id]


def test_after_a_restart_an_end_finds_its_region(world: AwsWorld) -> None:
    provider = world.connect()
    provider.launch(world.request("1"))
    west = provider.launch(world.request("2", SMALL_WEST))
    world.connect().terminate([west.id])
    assert west.id not in world.account.alive()
    assert len(world.account.alive()) == 1


def test_a_region_that_does_not_answer_hides_no_other(world: AwsWorld) -> None:
    """Its instances are as they were last seen, and launches go on."""
    provider = world.connect()
    east = provider.launch(world.request("1", SMALL)).id
    west = provider.launch(world.request("2", SMALL_WEST)).id
    world.wait_until(lambda: running(provider) == {east, west})
    world.account.faults.add(silence("us-east-1"))
    ended = world.client("ec2", WEST), world.client("ec2", "us-east-1")
    for ec2, one in zip(ended, (west, east), strict=True):
        ec2.terminate_instances(InstanceIds=[one])
    world.pass_time(600.0)
    assert running(provider) == {east}
    assert provider.condition().troubles == ()
    (trouble,) = provider.condition().silent_troubles
    assert "instances of us-east-1 are as last seen: us-east-1: DescribeInstances" in trouble
    provider.launch(world.request("3", SMALL_WEST))
    world.account.faults.clear()
    assert east not in running(provider)
    assert provider.condition().silent_troubles == ()


def test_without_an_answer_of_any_region_nothing_is_known(world: AwsWorld) -> None:
    provider = world.connect()
    provider.instances()
    world.account.faults.add(silence("us-east-1"), silence(WEST))
    assert isinstance(error_of(provider.instances), Unavailable)
    world.account.faults.clear()
    assert provider.instances() == []


def test_a_region_that_has_not_answered_yet_is_not_empty(world: AwsWorld) -> None:
    """Buy nothing until all regions have been listed."""
    provider = world.connect()
    world.account.faults.add(silence(WEST))
    assert isinstance(error_of(provider.instances), Unavailable)
    request = world.request("1", SMALL_WEST)
    assert isinstance(error_of(lambda: provider.launch(request)), Unavailable)
    assert world.account.alive() == []


def silence(region: str) -> Fault:
    """Until faults are cleared it tells nobody what it has."""
    own = {"region": region, "Filter.1.Name": "tag:castor:controller"}
    return Fault("DescribeInstances", matching=own, times=None)


def running(provider: Provider) -> set[str]:
    return {seen.id for seen in provider.instances() if seen.state is CloudState.RUNNING}


def without_west(world: AwsWorld) -> str:
    document = json.loads(json.dumps(world.document))
    del document["regions"][WEST], document["pools"]["west"]
    return json.dumps(document)


def test_a_region_does_not_leave_while_an_instance_runs_there(
    world: AwsWorld, tmp_path: Path
) -> None:
    followed = Followed(world, tmp_path / "pools")
    west = followed.provider.launch(world.request("2", SMALL_WEST))
    followed.parameter.told = without_west(world)
    followed.kinds(LAG_SECONDS + LOOK_SECONDS)
    (trouble,) = followed.provider.condition().troubles
    assert f"{west.id} in us-west-2a" in trouble and "end the instances first" in trouble
    followed.provider.terminate([west.id])
    followed.provider.instances()
    followed.kinds(LAG_SECONDS + LOOK_SECONDS)
    assert followed.provider.condition().troubles == ()
    assert world.account.alive() == []


def test_a_silent_region_does_not_leave_since_a_lost_launch_may_run_there(
    world: AwsWorld, tmp_path: Path
) -> None:
    followed = Followed(world, tmp_path / "pools")
    followed.provider.instances()
    world.account.faults.add(Fault("CreateFleet", When.LOST_AFTER), silence(WEST))
    error_of(lambda: followed.provider.launch(world.request("2", SMALL_WEST)))
    followed.parameter.told = without_west(world)
    followed.kinds(LAG_SECONDS + LOOK_SECONDS)
    assert any(
        "the pools stay unchanged for now: us-west-2 does not answer" in trouble
        for trouble in followed.provider.condition().troubles
    )
    world.account.faults.clear()
    followed.kinds(LAG_SECONDS + LOOK_SECONDS)
    (trouble,) = followed.provider.condition().troubles
    assert f"{world.account.alive()[0]} in us-west-2a" in trouble


def test_calls_are_counted_by_region(world: AwsWorld) -> None:
    provider = world.connect()
    provider.instances()
    world.account.faults.add(Fault("CreateFleet", code="RequestLimitExceeded", status=503))
    error_of(lambda: provider.launch(world.request("1")))
    provider.launch(world.request("2", SMALL_WEST))
    assert len(world.account.alive()) == 1
