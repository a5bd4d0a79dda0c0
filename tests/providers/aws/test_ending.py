"""Ends: only of what is ours, each told once, and one's trouble is not the others'."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import providers.aws
from autoscaler.domain.errors import PermissionDenied, Throttled, Unavailable
from autoscaler.domain.instance import CloudState
from providers.aws.ending import TerminateCalls
from providers.cloud.register import Owned
from tests.conformance.provider import OURS, THEIRS
from tests.fakes.aws.faults import Fault
from tests.providers.aws.cloud import AwsWorld, error_of


def test_there_is_one_place_that_ends_instances() -> None:
    folder = Path(next(iter(providers.aws.__path__)))
    texts = {path.name: path.read_text() for path in folder.glob("*.py")}
    assert [name for name, text in texts.items() if "terminate_instances" in text] == ["calls.py"]
    callers = [name for name, text in texts.items() if re.search(r"\]\.terminate\(", text)]
    assert callers == ["ending.py"]
    others = ("delete_fleets", "cancel_spot", "stop_instances", "delete_volume")
    assert not [name for name, text in texts.items() if any(one in text for one in others)]


def test_what_is_tagged_as_anothers_is_refused_whoever_says_it_is_ours(world: AwsWorld) -> None:
    others = world.connect(THEIRS)
    theirs = others.launch(world.request("1", controller=THEIRS))
    provider = world.connect()
    ending = TerminateCalls(
        OURS,
        provider._calls,
        provider._register,
        lambda region, ids: [Owned(theirs, region)],
        30.0,
        world.clock,
    )
    assert isinstance(error_of(lambda: ending.end([theirs.id])), PermissionDenied)
    assert world.account.alive() == [theirs.id]


def test_one_that_ec2_refuses_does_not_keep_the_others(world: AwsWorld) -> None:
    provider = world.connect()
    ids = [provider.launch(world.request(str(number))).id for number in range(3)]
    world.ec2.modify_instance_attribute(InstanceId=ids[1], DisableApiTermination={"Value": True})
    assert isinstance(error_of(lambda: provider.terminate(ids)), PermissionDenied)
    assert world.account.alive() == [ids[1]]


def test_a_throttled_call_is_not_made_many(world: AwsWorld) -> None:
    provider = world.connect()
    ids = [provider.launch(world.request(str(number))).id for number in range(3)]
    throttled = Fault("TerminateInstances", code="RequestLimitExceeded", status=503)
    world.account.faults.add(throttled)
    assert isinstance(error_of(lambda: provider.terminate(ids)), Throttled)
    assert world.account.calls["TerminateInstances"] == 1


def test_one_that_is_gone_does_not_keep_the_others(world: AwsWorld) -> None:
    provider = world.connect()
    ids = [provider.launch(world.request(str(number))).id for number in range(2)]
    world.pass_time(60.0)
    world.account.faults.add(
        Fault(
            "TerminateInstances",
            code="InvalidInstanceID.NotFound",
            status=400,
            times=None,
            matching={"InstanceId.1": ids[0]},
        )
    )
    provider.terminate(ids)
    assert world.account.alive() == [ids[0]]


def test_one_too_new_to_be_known_is_not_taken_for_gone(world: AwsWorld) -> None:
    """Told to end at once, it would run on, if a 404 meant that it has ended."""
    world.account.lag_seconds = 10.0
    provider = world.connect()
    launched = provider.launch(world.request("1"))
    assert isinstance(error_of(lambda: provider.terminate([launched.id])), Unavailable)
    world.pass_time(11.0)
    provider.terminate([launched.id])
    assert world.account.alive() == []


def test_nothing_has_ended_before_ec2_says_so(world: AwsWorld) -> None:
    provider = world.connect()
    launched = provider.launch(world.request("1"))
    world.account.faults.add(Fault("TerminateInstances", code="InternalError", times=None))
    for _ in range(5):
        error_of(lambda: provider.terminate([launched.id]))
        world.pass_time(600.0)
        (seen,) = provider.instances()
        assert seen.state is CloudState.RUNNING


def test_what_has_ended_is_not_told_again(world: AwsWorld) -> None:
    provider = world.connect()
    launched = provider.launch(world.request("1"))
    provider.terminate([launched.id])
    provider.instances()
    provider.terminate([launched.id])
    assert world.account.calls["TerminateInstances"] == 1


def test_many_are_ended_with_one_call(world: AwsWorld) -> None:
    provider = world.connect()
    ids = [provider.launch(world.request(str(number))).id for number in range(4)]
    provider.terminate(ids)
    assert world.account.calls["TerminateInstances"] == 1
    assert world.account.alive() == []


def test_calls_that_come_together_become_fewer(world: AwsWorld) -> None:
    provider = world.connect()
    ids = [provider.launch(world.request(str(number))).id for number in range(6)]
    world.account.faults.add(
        Fault("TerminateInstances", code="RequestLimitExceeded", status=503, delay_seconds=0.2)
    )
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda one: _quietly(provider.terminate, [one]), ids))
    assert world.account.calls["TerminateInstances"] < 6


def _quietly(call: object, ids: list[str]) -> None:
    try:
        call(ids)  # type: ignore[operator]
    except Exception:
        return
