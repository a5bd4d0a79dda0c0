"""Launches: what is sent, what is bought, and what is concluded from what comes back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal

import pytest

from autoscaler.domain.errors import (
    InsufficientCapacity,
    NotFound,
    PermissionDenied,
    ProviderError,
    QuotaExceeded,
    Throttled,
    Unavailable,
    UnknownRefusal,
)
from autoscaler.domain.instance import CONTROLLER_TAG, CloudState, LaunchRequest
from providers.aws import launching
from providers.aws.errors import Call
from tests.conformance.provider import OURS, THEIRS
from tests.fakes.aws.account import KnownFleet
from tests.fakes.aws.faults import Fault, When
from tests.fakes.aws.server import FakeAws
from tests.providers.aws.cloud import QUICK, SMALL, SMALL_SPOT, AwsWorld, error_of

LOST = Fault("CreateFleet", When.LOST_AFTER)


def test_want_of_capacity_is_told_by_a_200_and_is_asked_for_once(world: AwsWorld) -> None:
    world.account.capacity["g4dn.xlarge", "us-east-1a", "spot"] = 0
    error = error_of(lambda: world.connect().launch(world.request("1", SMALL_SPOT)))
    assert isinstance(error, InsufficientCapacity)
    assert world.account.calls["CreateFleet"] == 1


def test_want_of_capacity_as_an_exception_is_not_sent_again(world: AwsWorld) -> None:
    code = "InsufficientInstanceCapacity"
    world.account.faults.add(Fault("CreateFleet", code=code, status=500))
    error = error_of(lambda: world.connect().launch(world.request("1")))
    assert isinstance(error, InsufficientCapacity)
    assert world.account.calls["CreateFleet"] == 1


def test_a_quota_is_not_capacity_and_says_where_to_ask(world: AwsWorld) -> None:
    world.account.faults.add(Fault("CreateFleet", When.IN_REPLY, code="VcpuLimitExceeded"))
    error = error_of(lambda: world.connect().launch(world.request("1")))
    assert isinstance(error, QuotaExceeded)
    assert "Service Quotas of us-east-1" in str(error)


def test_a_rehearsal_is_a_dry_run_and_meets_what_a_launch_would(world: AwsWorld) -> None:
    provider = world.connect()
    assert provider.rehearse(SMALL)
    (sent,) = world.account.of("CreateFleet")
    assert sent["DryRun"] == "true" and not world.account.alive()
    denied = Fault("CreateFleet", code="UnauthorizedOperation", status=403)
    world.account.faults.add(denied)
    error = error_of(lambda: provider.rehearse(SMALL))
    assert isinstance(error, PermissionDenied)
    assert isinstance(error_of(lambda: provider.rehearse("none")), NotFound)


def test_a_new_account_refuses_spot_with_what_to_set_and_sells_on_demand(world: AwsWorld) -> None:
    """EC2 answers with 200; the same credentials are valid for everything else."""
    world.account.has_spot_role = False
    provider = world.connect()
    error = error_of(lambda: provider.launch(world.request("1", SMALL_SPOT)))
    assert isinstance(error, PermissionDenied)
    assert "set service_linked_roles = true" in str(error)
    assert "credentials are not valid" not in str(error)
    provider.launch(world.request("2", SMALL))
    assert len(world.account.alive()) == 1


def test_all_that_is_made_is_tagged_from_its_first_moment(world: AwsWorld) -> None:
    world.document["tags"] = {"team": "vision"}
    world.connect().launch(world.request("1", SMALL_SPOT))
    (sent,) = world.account.of("CreateFleet")
    kinds = {value for key, value in sent.items() if key.endswith("ResourceType")}
    assert kinds == {"fleet", "instance", "volume", "network-interface"}
    for number in (1, 2, 3, 4):
        mark = f"TagSpecifications.{number}" if "TagSpecifications.1.ResourceType" in sent else ""
        mark = mark or f"TagSpecification.{number}"
        tags = {
            sent[key]: sent[key.replace(".Key", ".Value")]
            for key in sent
            if key.startswith(f"{mark}.Tag") and key.endswith(".Key")
        }
        assert tags[CONTROLLER_TAG] == OURS
        assert tags["castor:deployment"] == "test"
        assert tags["team"] == "vision"


def test_the_fake_refuses_to_tag_what_a_fleet_can_not_tag(
    world: AwsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EC2 lists the types of an instant fleet; a spot request is none of them."""
    monkeypatch.setattr(launching, "_TAGGED_KINDS", ("instance", "spot-instances-request"))
    error = error_of(lambda: world.connect().launch(world.request("1", SMALL_SPOT)))
    assert "'spot-instances-request' is not a valid taggable resource type" in str(error)
    assert world.account.alive() == []


def test_one_instance_of_one_type_in_one_zone_is_ordered(world: AwsWorld) -> None:
    world.connect().launch(world.request("1", SMALL_SPOT))
    (sent,) = world.account.of("CreateFleet")
    zones = world.document["regions"]["us-east-1"]["subnets"]
    assert sent["Type"] == "instant"
    assert sent["TargetCapacitySpecification.TotalTargetCapacity"] == "1"
    assert sent["SpotOptions.AllocationStrategy"] == "price-capacity-optimized"
    assert sent["LaunchTemplateConfigs.1.Overrides.1.SubnetId"] == zones["us-east-1a"]
    assert "LaunchTemplateConfigs.1.Overrides.2.SubnetId" not in sent


def test_what_an_instance_is_to_find_lies_under_its_token(world: AwsWorld) -> None:
    """Let start data differ between tries of one order."""
    provider = world.connect()
    world.account.faults.add(replace(LOST))
    request = world.request("1")
    error_of(lambda: provider.launch(request))
    launched = provider.launch(replace(request, user_data="another join token"))
    bucket = world.document["regions"]["us-east-1"]["user_data"].split("/")[2]
    found = world.s3.get_object(Bucket=bucket, Key=f"user-data/{launched.tags['castor:token']}")
    assert found["Body"].read() == b"another join token"
    assert len(world.account.launched_seconds) == 1


def test_tokens_differ_in_all_that_an_order_may_differ_in(world: AwsWorld) -> None:
    world.account.lag_seconds = 1000.0  # else the first would be found for the others
    offers = (SMALL, SMALL_SPOT, SMALL.replace("g4dn", "g5"), SMALL.replace("-1a", "-1b"))
    for offer in offers:
        world.connect().launch(world.request("1", offer))
    theirs = world.connect(THEIRS)
    theirs.launch(world.request("1", SMALL, THEIRS))
    sent = [one["ClientToken"] for one in world.account.of("CreateFleet")]
    assert all(len(token) == 64 for token in sent)
    assert len(set(sent)) == len(sent) == 5


def test_a_lost_reply_is_found_out_about_by_another_process(world: AwsWorld) -> None:
    world.account.lag_seconds = 10.0
    world.account.faults.add(replace(LOST))
    assert isinstance(error_of(lambda: world.connect().launch(world.request("1"))), Unavailable)
    assert world.connect().launch(world.request("1")).state is CloudState.PENDING
    assert len(world.account.alive()) == 1


def test_an_order_that_has_changed_since_finds_what_was_launched(world: AwsWorld) -> None:
    """EC2 answers IdempotentParameterMismatch, for a tag was added while nobody knew."""
    world.account.lag_seconds = 10.0
    world.account.faults.add(replace(LOST))
    error_of(lambda: world.connect().launch(world.request("1")))
    world.document["tags"] = {"team": "vision"}
    provider = world.connect()
    error = error_of(lambda: provider.launch(world.request("1")))
    assert isinstance(error, Unavailable)
    assert "IdempotentParameterMismatch" in str(error)
    world.pass_time(11.0)
    assert [provider.launch(world.request("1")).id] == world.account.alive()


def test_a_changed_order_of_which_nothing_came_is_sent_anew(world: AwsWorld) -> None:
    provider = world.connect()
    error_of(lambda: provider.launch(world.request("1", "no such offer")))
    world.account.faults.add(Fault("CreateFleet", When.LOST_BEFORE))
    error_of(lambda: provider.launch(world.request("1")))
    token = world.account.of("CreateFleet")[-1]["ClientToken"]
    world.account.fleets[token] = KnownFleet({"other": "parameters"}, b"", ())
    assert isinstance(error_of(lambda: provider.launch(world.request("1"))), Unavailable)
    world.pass_time(QUICK.visible_seconds + 1)
    assert isinstance(error_of(lambda: provider.launch(world.request("1"))), Throttled)
    assert [provider.launch(world.request("1")).id] == world.account.alive()


def test_the_token_of_an_ended_instance_that_ec2_refuses_yields_the_ended_one(
    world: AwsWorld,
) -> None:
    world.account.forgets_ended = True
    late = world.connect()
    assert list(late.instances()) == []
    early = world.connect()
    launched = early.launch(world.request("1"))
    early.terminate([launched.id])
    found = late.launch(world.request("1"))
    assert (found.id, found.state) == (launched.id, CloudState.TERMINATED)
    assert len(world.account.launched_seconds) == 1


def test_the_token_of_one_that_ended_long_ago_launches_nothing(world: AwsWorld) -> None:
    world.account.forgets_ended = True
    late = world.connect()
    late.instances()
    launched = world.connect().launch(world.request("1"))
    world.connect().terminate([launched.id])
    world.account.lag_seconds = 1e6  # so that no list shows it, as after more than an hour
    assert isinstance(error_of(lambda: late.launch(world.request("1"))), NotFound)
    assert world.account.alive() == []


def test_trouble_in_a_200_is_not_answered_again_with_the_same_token(world: AwsWorld) -> None:
    provider = world.connect()
    world.account.faults.add(Fault("CreateFleet", When.IN_REPLY, code="InternalError"))
    assert isinstance(error_of(lambda: provider.launch(world.request("1"))), UnknownRefusal)
    provider.launch(world.request("1"))
    first, second = (one["ClientToken"] for one in world.account.of("CreateFleet"))
    assert first != second


def test_nothing_is_bought_before_it_is_known_what_is_there(world: AwsWorld) -> None:
    world.account.faults.add(Fault("DescribeInstances"))
    provider = world.connect()
    assert isinstance(error_of(lambda: provider.launch(world.request("1"))), Unavailable)
    assert world.account.calls["CreateFleet"] == 0


def test_a_pool_is_never_larger_than_its_bound(fake: FakeAws) -> None:
    """Whatever is in flight counts, from any thread, and what may have been launched too."""
    world = AwsWorld(fake, max_instances=3)
    world.account.lag_seconds = 1000.0
    world.account.faults.add(replace(LOST))
    provider = world.connect()

    def launch(token: str) -> None:
        with suppress(ProviderError):
            provider.launch(world.request(token))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(launch, [f"t{number}" for number in range(8)]))
    assert len(world.account.alive()) == 3
    error = error_of(lambda: provider.launch(world.request("last")))
    assert isinstance(error, QuotaExceeded)
    assert str(error).startswith("pools.gpu.max_instances: 3 of 3")


def test_a_refusal_after_a_lost_reply_frees_no_place(fake: FakeAws) -> None:
    """Count an earlier launch that lists do not show yet."""
    world = AwsWorld(fake, max_instances=1)
    world.account.lag_seconds = 10.0
    denied = Fault("CreateFleet", code="UnauthorizedOperation", status=403)
    world.account.faults.add(replace(LOST), denied)
    provider = world.connect()
    assert isinstance(error_of(lambda: provider.launch(world.request("1"))), Unavailable)
    assert isinstance(error_of(lambda: provider.launch(world.request("1"))), PermissionDenied)
    assert isinstance(error_of(lambda: provider.launch(world.request("2"))), QuotaExceeded)
    world.pass_time(11.0)
    provider.instances()
    assert isinstance(error_of(lambda: provider.launch(world.request("2"))), QuotaExceeded)
    assert world.account.most_alive == 1


def test_a_place_is_not_free_because_time_has_passed(fake: FakeAws) -> None:
    """Only a list that would show what was launched says that nothing was."""
    world = AwsWorld(fake, max_instances=1)
    world.account.lag_seconds = QUICK.visible_seconds + 60.0
    world.account.faults.add(replace(LOST))
    provider = world.connect()
    error_of(lambda: provider.launch(world.request("1")))
    world.pass_time(QUICK.visible_seconds + 1)
    assert isinstance(error_of(lambda: provider.launch(world.request("2"))), QuotaExceeded)
    assert world.account.most_alive == 1


def test_the_hourly_cap_counts_spot_at_what_it_may_come_to_cost(fake: FakeAws) -> None:
    """A g4dn.xlarge is $0.526 on demand and $0.163 on spot: two of it are more than a dollar."""
    world = AwsWorld(fake, max_usd_per_hour="1.00")
    provider = world.connect()
    provider.launch(world.request("1", SMALL_SPOT))
    error = error_of(lambda: provider.launch(world.request("2", SMALL_SPOT)))
    assert isinstance(error, QuotaExceeded)
    assert str(error).startswith("pools.gpu.max_usd_per_hour: $0.526/h of")


def test_the_hourly_cap_counts_what_is_billed_beside_an_instance(fake: FakeAws) -> None:
    world = AwsWorld(fake, max_usd_per_hour="1.06", extras_usd_per_hour="0.01")
    provider = world.connect()
    provider.launch(world.request("1"))
    error = error_of(lambda: provider.launch(world.request("2")))
    assert isinstance(error, QuotaExceeded)
    assert "of $1.06/h are" in str(error) and "may cost $0.536/h" in str(error)


def test_the_cap_of_all_pools_holds_after_a_restart(world: AwsWorld) -> None:
    world.document["max_usd_per_hour"] = "0.60"
    world.connect().launch(world.request("1"))
    error = error_of(lambda: world.connect().launch(world.request("2")))
    assert str(error).startswith("max_usd_per_hour: ")
    assert len(world.account.alive()) == 1


def test_a_place_is_free_again_when_the_instance_has_ended(fake: FakeAws) -> None:
    world = AwsWorld(fake, max_instances=1)
    provider = world.connect()
    first = provider.launch(world.request("1"))
    provider.terminate([first.id])
    error_of(lambda: provider.launch(world.request("2")))
    provider.instances()
    provider.launch(world.request("2"))
    assert world.account.most_alive == 1


def test_so_many_launches_a_minute_and_no_more(world: AwsWorld) -> None:
    world.document["launches_per_minute"] = 2
    provider = world.connect()
    for token in ("1", "2"):
        provider.launch(world.request(token))
    error = error_of(lambda: provider.launch(world.request("3")))
    assert isinstance(error, Throttled)
    assert error.retry_after_seconds == pytest.approx(30.0)
    world.pass_time(31.0)
    provider.launch(world.request("3"))


def test_a_template_that_is_gone_is_named(world: AwsWorld) -> None:
    template = world.document["pools"]["gpu"]["launch_template"]
    world.ec2.delete_launch_template(LaunchTemplateId=template["id"])
    error = error_of(lambda: world.connect().launch(world.request("1")))
    assert isinstance(error, NotFound)
    assert "correct pools.gpu.launch_template" in str(error)


def test_a_bucket_that_is_gone_is_named_and_nothing_is_launched(world: AwsWorld) -> None:
    world.document["regions"]["us-east-1"]["user_data"] = "s3://no-such-bucket/x"
    error = error_of(lambda: world.connect().launch(world.request("1")))
    assert isinstance(error, NotFound)
    assert "regions.us-east-1.user_data" in str(error)
    assert world.account.calls["CreateFleet"] == 0


def test_a_role_that_was_revoked_is_told_as_such(world: AwsWorld) -> None:
    provider = world.connect()
    provider.launch(world.request("1"))
    denied = {"code": "UnauthorizedOperation", "status": 403, "times": None}
    world.account.faults.add(
        *(Fault(action, **denied) for action in ("CreateFleet", "DescribeInstances"))
    )
    for call in (lambda: provider.launch(world.request("2")), provider.instances):
        error = error_of(call)
        assert isinstance(error, PermissionDenied)
        assert "to these credentials; for the controller's role the Terraform module" in str(error)
    assert len(world.account.alive()) == 1


def test_another_deployments_tag_is_refused(world: AwsWorld) -> None:
    request = world.request("1", controller=THEIRS)
    assert isinstance(error_of(lambda: world.connect().launch(request)), PermissionDenied)


SMALL_B = SMALL.replace("-1a", "-1b")


def _spanning(world: AwsWorld, token: str, *offers: str) -> LaunchRequest:
    """A request of the first offer with the others as alternatives."""
    return replace(world.request(token, offers[0]), alternatives=offers[1:])


def _overrides(world: AwsWorld) -> list[tuple[str, str | None]]:
    """Subnet and priority of each override of the last fleet."""
    sent = world.account.of("CreateFleet")[-1]
    prefix = "LaunchTemplateConfigs.1.Overrides"
    subnets = [sent.get(f"{prefix}.{number}.SubnetId") for number in (1, 2, 3)]
    return [
        (subnet, sent.get(f"{prefix}.{number}.Priority"))
        for number, subnet in enumerate(subnets, start=1)
        if subnet is not None
    ]


@pytest.mark.parametrize("purchase", ["on-demand", "spot"])
def test_an_order_of_several_zones_is_one_fleet(world: AwsWorld, purchase: str) -> None:
    offers = [offer.replace("on-demand", purchase) for offer in (SMALL, SMALL_B)]
    world.connect().launch(_spanning(world, "1", *offers))
    (sent,) = world.account.of("CreateFleet")
    zones = world.document["regions"]["us-east-1"]["subnets"]
    is_spot = purchase == "spot"
    priorities = (None, None) if is_spot else ("0.0", "1.0")
    assert _overrides(world) == list(
        zip((zones["us-east-1a"], zones["us-east-1b"]), priorities, strict=True)
    )
    option = "SpotOptions" if is_spot else "OnDemandOptions"
    strategy = "price-capacity-optimized" if is_spot else "prioritized"
    assert sent[f"{option}.AllocationStrategy"] == strategy
    assert sent["TargetCapacitySpecification.TotalTargetCapacity"] == "1"
    assert len(world.account.alive()) == 1


@pytest.mark.parametrize("lag_seconds", [0.0, 10.0])
def test_the_zone_that_has_capacity_is_reported_at_once_and_in_lists(
    world: AwsWorld, lag_seconds: float
) -> None:
    """The reply names the subnet; a list has the zone, though the tag names the planned offer."""
    world.account.capacity["g4dn.xlarge", "us-east-1a", "on-demand"] = 0
    world.account.lag_seconds = lag_seconds
    provider = world.connect()
    launched = provider.launch(_spanning(world, "1", SMALL, SMALL_B))
    assert (launched.offer, launched.tags["castor:offer"]) == (SMALL_B, SMALL)
    world.pass_time(11.0)
    for seen in (provider, world.connect()):
        assert [instance.offer for instance in seen.instances()] == [SMALL_B]


def test_of_spot_the_zone_with_most_capacity_is_launched(world: AwsWorld) -> None:
    world.account.capacity["g4dn.xlarge", "us-east-1a", "spot"] = 1
    spot_b = SMALL_SPOT.replace("-1a", "-1b")
    launched = world.connect().launch(_spanning(world, "1", SMALL_SPOT, spot_b))
    assert launched.offer == spot_b


def test_a_refusal_of_all_zones_names_those_that_have_capacity(world: AwsWorld) -> None:
    for zone in ("us-east-1a", "us-east-1b"):
        world.account.capacity["g4dn.xlarge", zone, "on-demand"] = 0
    error = error_of(lambda: world.connect().launch(_spanning(world, "1", SMALL, SMALL_B)))
    assert isinstance(error, InsufficientCapacity)
    assert error.open_zones == {"us-east-1c"}
    assert "requested (us-east-1a)" in str(error)
    assert world.account.alive() == []


def test_the_planned_zone_s_own_refusal_is_told() -> None:
    """Capacity and quota need different reactions, and each zone may be refused for its own."""
    call = Call("us-east-1", "CreateFleet", "gpu")
    capacity = "none here: choosing us-east-1d."
    entries = [
        {"ErrorCode": "VcpuLimitExceeded", "ErrorMessage": "64 vCPUs"},
        {"ErrorCode": "InsufficientInstanceCapacity", "ErrorMessage": capacity},
    ]
    for entry, subnet in zip(entries, ("subnet-b", "subnet-a"), strict=True):
        entry["LaunchTemplateAndOverrides"] = {"Overrides": {"SubnetId": subnet}}  # type: ignore[assignment]
    error = launching._fleet_refusal({"Errors": entries}, "subnet-a", call)
    assert isinstance(error, InsufficientCapacity) and error.open_zones == {"us-east-1d"}
    error = launching._fleet_refusal({"Errors": entries}, "subnet-b", call)
    assert isinstance(error, QuotaExceeded)
    error = launching._fleet_refusal({"Errors": entries}, "subnet-c", call)
    assert isinstance(error, QuotaExceeded), "the first, if none is of the planned zone"


def test_a_lost_reply_of_an_order_of_several_zones_is_found_out_about(world: AwsWorld) -> None:
    world.account.capacity["g4dn.xlarge", "us-east-1a", "on-demand"] = 0
    world.account.lag_seconds = 10.0
    world.account.faults.add(replace(LOST))
    request = _spanning(world, "1", SMALL, SMALL_B)
    assert isinstance(error_of(lambda: world.connect().launch(request)), Unavailable)
    world.account.capacity.clear()
    assert world.connect().launch(request).offer == SMALL_B
    assert len(world.account.alive()) == 1


def test_a_repeated_order_of_other_zones_buys_nothing_more(world: AwsWorld) -> None:
    """A zone may have left the settings; the client token is that of the first request."""
    world.account.capacity["g4dn.xlarge", "us-east-1a", "on-demand"] = 0
    world.account.lag_seconds = 10.0
    world.account.faults.add(replace(LOST))
    error_of(lambda: world.connect().launch(_spanning(world, "1", SMALL, SMALL_B)))
    provider = world.connect()
    error = error_of(lambda: provider.launch(world.request("1", SMALL)))
    assert "IdempotentParameterMismatch" in str(error)
    world.pass_time(11.0)
    assert provider.launch(world.request("1", SMALL)).offer == SMALL_B
    assert len(world.account.alive()) == 1


def test_what_can_not_be_in_the_same_order_is_left_out_of_it(world: AwsWorld) -> None:
    others = (SMALL_SPOT, SMALL.replace("g4dn", "g5"), SMALL.replace("gpu/", "other/"), "none")
    world.connect().launch(_spanning(world, "1", SMALL, *others))
    assert len(_overrides(world)) == 1


def test_the_caps_reserve_the_dearest_zone(fake: FakeAws) -> None:
    world = AwsWorld(fake, max_usd_per_hour="0.55")
    world.account.spot_prices["g4dn.xlarge", "us-east-1b"] = Decimal("0.6")
    provider, spot_b = world.connect(), SMALL_SPOT.replace("-1a", "-1b")
    error = error_of(lambda: provider.launch(_spanning(world, "1", SMALL_SPOT, spot_b)))
    assert isinstance(error, QuotaExceeded) and "may cost $0.6" in str(error)
    assert world.account.calls["CreateFleet"] == 0
    provider.launch(world.request("2", SMALL_SPOT))


def test_the_fake_refuses_a_fleet_that_names_a_zone_twice(
    world: AwsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, subnet = world.connect(), world.settings.regions["us-east-1"].subnets["us-east-1a"]
    monkeypatch.setattr(launching.Launching, "_subnet_of", lambda self, sale: subnet)
    error = error_of(lambda: provider.launch(_spanning(world, "1", SMALL, SMALL_B)))
    assert isinstance(error, NotFound) and "duplicate instance pools" in str(error)
