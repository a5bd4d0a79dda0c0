"""The AWS module's sweep of left-over instances, which needs no controller."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("boto3", reason="the extra aws is not installed")
pytest.importorskip("moto", reason="moto is not installed")
pytest.importorskip("jsonata", reason="jsonata-python is not installed")

from autoscaler.clock import SystemClock
from tests.conformance.provider import THEIRS, launch_running
from tests.fakes.aws.reservations import FakeReservation
from tests.fakes.aws.server import FakeAws
from tests.fakes.faults import Fault
from tests.providers.aws.cloud import REGION, AwsWorld
from tests.terraform.conftest import MODULE
from tests.terraform.state_machines import ExecutionFailed, StateMachine

SOURCE = (MODULE / "files" / "sweep.asl.json").read_text()
DAY_SECONDS = 86_400.0


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeAws]:
    server = FakeAws(SystemClock())
    yield server
    server.close()


@pytest.fixture
def world(fake: FakeAws) -> AwsWorld:
    return AwsWorld(fake)


def launched(world: AwsWorld, *tokens: str) -> list[str]:
    return [launch_running(world, world.connect(), token).id for token in tokens]


def stop(world: AwsWorld, *instances: str) -> None:
    world.ec2.stop_instances(InstanceIds=list(instances))


def sweep(
    world: AwsWorld, deployment: str = "test", max_run_hours: int | None = 168
) -> StateMachine:
    """Run the state machine once, with the calls of its role."""
    ec2 = world.session.client("ec2", region_name=REGION, endpoint_url=world.url)
    machine = StateMachine(SOURCE, ec2, world.clock.now())
    machine.run({"deployment": deployment, "max_run_hours": max_run_hours})
    return machine


def test_stopped_and_old_instances_of_a_lost_controller_end(world: AwsWorld) -> None:
    old = launched(world, *"123456")
    other = world.connect(THEIRS).launch(world.request("7", controller=THEIRS)).id
    world.pass_time(7 * DAY_SECONDS + 60)
    young, stopped = launched(world, "8", "9")
    stop(world, stopped)
    assert sorted(world.alive()) == sorted([*old, other, young, stopped])
    sweep(world)
    assert world.alive() == [young]
    pages = world.account.of("DescribeInstances")[-2:]
    assert {page["MaxResults"] for page in pages} == {"5"} and "NextToken" in pages[-1]
    assert {page["Filter.1.Value.1"] for page in pages} == {"test"}


def test_without_a_maximum_run_only_stopped_instances_end(world: AwsWorld) -> None:
    running, stopped = launched(world, "1", "2")
    stop(world, stopped)
    world.pass_time(365 * DAY_SECONDS)
    sweep(world, max_run_hours=None)
    assert world.alive() == [running]


def test_a_run_ends_at_its_maximum_and_not_before(world: AwsWorld) -> None:
    launched(world, "1")
    world.pass_time(DAY_SECONDS - 60)
    sweep(world, max_run_hours=24)
    assert len(world.alive()) == 1
    world.pass_time(120)
    sweep(world, max_run_hours=24)
    assert world.alive() == []


def test_running_instances_of_a_reservation_stay(world: AwsWorld) -> None:
    """A reservation is billed whether or not an instance runs in it, but a volume is not."""
    _, reserved = launched(world, "1", "2")
    world.pass_time(8 * DAY_SECONDS)
    reservation = FakeReservation("cr-0123456789abcdef0", "g4dn.xlarge", "us-east-1a", 2)
    reservation.instances.add(reserved)
    world.account.reservations[reservation.id] = reservation
    sweep(world)
    assert world.alive() == [reserved]
    stop(world, reserved)
    sweep(world)
    assert world.alive() == []


def test_instances_of_others_and_the_controllers_host_stay(world: AwsWorld) -> None:
    (running,) = launched(world, "1")
    kept = [running]
    for tags in (
        {"castor:controller-of": "test"},  # as the module tags the host
        {"castor:deployment": "test"},
        {"castor:controller": "deployment-a"},
        {"castor:deployment": "other", "castor:controller": "deployment-a"},
    ):
        specification = {
            "ResourceType": "instance",
            "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
        }
        reply = world.ec2.run_instances(
            ImageId="ami-0123456789abcdef0",
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[specification],
        )
        kept.append(reply["Instances"][0]["InstanceId"])
    stop(world, *kept[1:])
    sweep(world)
    sweep(world, deployment="oth")
    assert world.account.of("TerminateInstances") == []


def test_an_instance_that_can_not_be_ended_keeps_no_other(world: AwsWorld) -> None:
    instances = launched(world, *"1234567")
    protected = instances[0]
    world.ec2.modify_instance_attribute(
        InstanceId=protected, DisableApiTermination={"Value": True}
    )
    stop(world, *instances)
    with pytest.raises(ExecutionFailed) as failure:
        sweep(world)
    assert failure.value.error == "NotEnded"
    assert failure.value.cause.startswith(f"{protected}: ")
    assert "disableApiTermination" in failure.value.cause
    assert failure.value.cause.count(";") == 0
    assert world.alive() == [protected]


def test_a_missing_permission_fails_the_execution(world: AwsWorld) -> None:
    (stopped,) = launched(world, "1")
    stop(world, stopped)
    denied = {"code": "UnauthorizedOperation", "status": 403, "times": None}
    world.faults.add(Fault("TerminateInstances", **denied))
    with pytest.raises(ExecutionFailed, match=rf"NotEnded: {stopped}: .*Status Code: 403"):
        sweep(world)
    world.faults.add(Fault("DescribeInstances", **denied))
    with pytest.raises(ExecutionFailed, match=r"Ec2Exception: .*Status Code: 403"):
        sweep(world)
    assert world.alive() == [stopped]


def test_a_page_that_fails_is_asked_for_again(world: AwsWorld) -> None:
    (stopped,) = launched(world, "1")
    stop(world, stopped)
    world.faults.add(Fault("DescribeInstances", code="RequestLimitExceeded", status=503, times=3))
    sweep(world)
    assert world.alive() == []
