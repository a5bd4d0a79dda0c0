"""Offers, their prices and their limits."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

import pytest

from autoscaler.domain.errors import PermissionDenied, Unavailable
from autoscaler.domain.offer import Limit, LimitUnit, Purchase
from autoscaler.market.live_prices import live_price
from autoscaler.market.price_table import parse_price_table
from autoscaler.market.prices import Price
from providers.aws.provider import AwsProvider
from providers.aws.quotas import VcpuQuota
from providers.aws.settings import CallTimeouts
from providers.base import SpotScores
from tests.fakes.aws.faults import Fault
from tests.fakes.aws.server import FakeAws
from tests.providers.aws.cloud import QUICK, SMALL, SMALL_SPOT, AwsWorld, error_of, spot_offers


def offer_of(provider: AwsProvider, offer_id: str) -> object:
    return next((one for one in provider.offers() if one.id == offer_id), None)


def test_every_type_zone_and_purchase_is_an_offer(world: AwsWorld) -> None:
    offers = {one.id: one for one in world.connect().offers()}
    assert len(offers) == 2 * 2 * 2
    spot = offers[SMALL_SPOT]
    assert (spot.instance_type, spot.zone, spot.purchase) == (
        *("g4dn.xlarge", "us-east-1a"),
        Purchase.SPOT,
    )
    assert (spot.devices, spot.device_kind) == (1, "t4")
    assert spot.usd_per_hour == Decimal("0.1631")
    assert spot.priced_seconds == world.clock.now()
    assert offers[SMALL].usd_per_hour == Decimal("0.526")


def test_what_is_told_is_believed_by_the_market(world: AwsWorld) -> None:
    for offer in world.connect().offers():
        assert isinstance(live_price(offer, (), world.clock.now()), Price)


def test_what_is_billed_beside_an_instance_is_in_its_price(fake: FakeAws) -> None:
    """Added to what the market's own price was found to be."""
    world = AwsWorld(fake, extras_usd_per_hour="0.0269", max_usd_per_hour=2)
    place_holder = ("g5.xlarge", "us-east-1a")
    world.account.spot_prices[place_holder] = Decimal("0.1006")
    provider = world.connect()
    offers = {one.id: one for one in provider.offers()}
    assert {one.join_seconds for one in offers.values()} == {1200.0}
    assert {one.extras_usd_per_hour for one in offers.values()} == {Decimal("0.0269")}
    assert offers[SMALL].usd_per_hour == Decimal("0.5529")
    assert offers[SMALL_SPOT].usd_per_hour == Decimal("0.19")
    assert offers["gpu/g5.xlarge/us-east-1a/spot"].usd_per_hour == Decimal("1.0329")
    for offer in offers.values():
        price = live_price(offer, (), world.clock.now())
        assert isinstance(price, Price) and price.usd_per_hour == offer.usd_per_hour
    limits = {limit.name: limit for limit in provider.limits()}
    assert limits["pools.gpu budget at $0.5529/h or more"].maximum == 3


def test_types_that_the_catalogue_lacks_are_known_from_ec2(fake: FakeAws) -> None:
    names = ["gr6.4xlarge", "g5g.xlarge", "g6f.xlarge", "p3.2xlarge", "p99.mega"]
    world = AwsWorld(fake, instance_types=names, purchases="on-demand")
    world.account.list_prices |= dict.fromkeys(names[:-1], "1.5391")
    offers = {one.instance_type: one for one in world.connect().offers()}
    assert sorted(offers) == ["gr6.4xlarge", "p3.2xlarge"]
    found = offers["gr6.4xlarge"]
    assert (found.device_kind, found.devices) == ("l4", 1)
    assert found.network_bytes_per_second == pytest.approx(10e9 / 8)


@pytest.mark.parametrize(("cards", "gigabits"), [(None, 100), (2, 200), (32, 3200), (16, 1600)])
def test_the_bandwidth_is_that_of_the_network_cards_in_use(
    fake: FakeAws, cards: int | None, gigabits: int
) -> None:
    """A p5.48xlarge has 32 cards, and an instance uses those with an interface."""
    chosen = {} if cards is None else {"network_cards": cards}
    world = AwsWorld(fake, instance_types=["p5.48xlarge"], purchases="on-demand", **chosen)
    bandwidths = {one.network_bytes_per_second for one in world.connect().offers()}
    assert bandwidths == {gigabits * 1e9 / 8}


def test_a_type_with_fewer_cards_has_its_whole_bandwidth(fake: FakeAws) -> None:
    world = AwsWorld(fake, instance_types=["g5.12xlarge"], purchases="on-demand", network_cards=4)
    assert {one.network_bytes_per_second for one in world.connect().offers()} == {40e9 / 8}


def test_no_price_no_offer(world: AwsWorld) -> None:
    """Default deny: what it costs is not known, so it can't be bought."""
    world.account.spot_prices = {
        key: usd for key, usd in world.account.spot_prices.items() if key[1] != "us-east-1a"
    }
    provider = world.connect()
    assert spot_offers(provider) == [
        "gpu/g4dn.xlarge/us-east-1b/spot",
        "gpu/g5.xlarge/us-east-1b/spot",
    ]
    assert provider.condition().left_out[SMALL_SPOT] == "EC2 reports no spot price"
    error = error_of(lambda: provider.launch(world.request("1", SMALL_SPOT)))
    assert "EC2 reports no spot price" in str(error)
    assert world.account.calls["CreateFleet"] == 0


def test_spot_placement_scores_are_of_the_pools_zones_by_name(fake: FakeAws) -> None:
    types = ["g4dn.xlarge", "g5.xlarge", "g6.xlarge"]
    world = AwsWorld(fake, instance_types=types)
    scores = world.connect().spot_scores("gpu")
    assert scores == SpotScores(8, {"us-east-1a": 9, "us-east-1b": 3}), "without the third zone"
    (sent,) = world.account.of("GetSpotPlacementScores")
    assert sent["TargetCapacity"] == "8" and sent["RegionName.1"] == "us-east-1"


def test_scores_of_few_types_say_that_they_are_low(world: AwsWorld) -> None:
    scores = world.connect().spot_scores("gpu")
    assert set(scores.by_zone.values()) == {1}
    assert scores.caveat == "of fewer than 3 types EC2's are always low"


def test_a_refusal_to_score_says_why(fake: FakeAws) -> None:
    provider = AwsWorld(fake, max_instances=3_000_000_000).connect()
    assert "TargetCapacity is greater than" in str(error_of(lambda: provider.spot_scores("gpu")))


@pytest.mark.parametrize("action", ["GetSpotPlacementScores", "DescribeAvailabilityZones"])
def test_scores_need_a_permission_of_the_person(world: AwsWorld, action: str) -> None:
    world.account.faults.add(Fault(action, code="UnauthorizedOperation", status=403))
    error = error_of(lambda: world.connect().spot_scores("gpu"))
    assert isinstance(error, PermissionDenied)
    assert f"allow ec2:{action} to your own credentials" in str(error)


def test_where_only_another_regions_price_is_known_nothing_is_sold(fake: FakeAws) -> None:
    world = AwsWorld(fake)
    ground = world.document["regions"].pop("us-east-1")
    ground["subnets"] = {"eu-west-1a": "subnet-0123456789abcdef0"}
    world.document["regions"]["eu-west-1"] = ground
    world.document["pools"]["gpu"] |= {"region": "eu-west-1", "purchases": "on-demand"}
    provider = world.connect()
    assert provider.offers() == []


@pytest.mark.parametrize("share", ["0.1", "1"])
def test_a_price_that_is_no_markets_counts_as_on_demand(world: AwsWorld, share: str) -> None:
    usd = Decimal("0.526") * Decimal(share)
    world.account.spot_prices["g4dn.xlarge", "us-east-1a"] = usd.quantize(Decimal("0.0001"))
    offers = {one.id: one for one in world.connect().offers()}
    assert offers[SMALL_SPOT].usd_per_hour == Decimal("0.526")


@pytest.mark.parametrize("usd", ["0", "0.00001", "nonsense", "NaN"])
def test_a_price_that_can_not_be_one_is_refused(world: AwsWorld, usd: str) -> None:
    place = ("g4dn.xlarge", "us-east-1a")
    world.account.spot_prices[place] = usd  # type: ignore[assignment]
    provider = world.connect()
    if usd == "nonsense":
        assert isinstance(error_of(provider.offers), Unavailable)
    else:
        assert SMALL_SPOT not in spot_offers(provider)


def test_prices_are_asked_for_once_in_a_while(world: AwsWorld) -> None:
    provider = world.connect()
    for _ in range(3):
        provider.offers()
        provider.limits()
        world.pass_time(1.0)
    asked = ("DescribeSpotPriceHistory", "ListServiceQuotas", "DescribeInstanceTypeOfferings")
    assert [world.account.calls[action] for action in asked] == [1, 1, 1]
    world.account.spot_prices["g4dn.xlarge", "us-east-1a"] = Decimal("0.2")
    world.pass_time(CallTimeouts().prices_seconds)
    found = {one.id: one for one in provider.offers()}
    assert found[SMALL_SPOT].usd_per_hour == Decimal("0.2")
    assert world.account.calls["DescribeSpotPriceHistory"] == 2


def test_a_failure_is_told_and_not_repeated_at_once(world: AwsWorld) -> None:
    provider = world.connect()
    world.account.faults.add(Fault("DescribeSpotPriceHistory"))
    for _ in range(3):
        assert isinstance(error_of(provider.offers), Unavailable)
    assert world.account.calls["DescribeSpotPriceHistory"] == 1
    world.pass_time(QUICK.retry_seconds)
    assert len(provider.offers()) == 8


def test_without_the_price_list_the_catalogue_holds_where_it_is_of(world: AwsWorld) -> None:
    denied = Fault("GetProducts", code="AccessDeniedException", status=400, times=None)
    world.account.faults.add(denied)
    offers = {one.id: one for one in world.connect().offers()}
    assert offers[SMALL].price_source == "karpenter price list"


def test_every_page_of_the_price_list_is_read(world: AwsWorld) -> None:
    """The dearest product of a type counts, on whichever page it is."""
    world.account.other_prices["g4dn.xlarge"] = ["0.5", "0.52"]
    world.account.page = 1
    offers = {one.id: one for one in world.connect().offers()}
    assert offers[SMALL].usd_per_hour == Decimal("0.526")
    assert offers[SMALL].price_source == "AWS price list"
    assert world.account.calls["GetProducts"] == 3 + 1


def test_a_price_list_whose_pages_repeat_a_token_gives_no_price(world: AwsWorld) -> None:
    world.account.other_prices["g4dn.xlarge"] = ["0.5", "0.52"]
    world.account.page, world.account.repeats_token = 1, True
    offers = {one.id: one for one in world.connect().offers()}
    assert offers[SMALL].price_source == "karpenter price list"
    assert world.account.calls["GetProducts"] == 2


def test_what_the_price_list_said_holds_while_it_is_silent(world: AwsWorld) -> None:
    """Ask an unreachable price list only once in a while, for one type."""
    world.account.list_prices["g4dn.xlarge"] = "0.6"
    provider = world.connect()
    provider.offers()
    world.account.calls.clear()
    world.account.faults.add(Fault("GetProducts", times=None))
    world.pass_time(CallTimeouts().facts_seconds)
    offers = {one.id: one for one in provider.offers()}
    assert offers[SMALL].usd_per_hour == Decimal("0.6")
    assert offers[SMALL].priced_seconds == world.clock.now() - CallTimeouts().facts_seconds
    assert world.account.calls["GetProducts"] == 1
    world.account.faults.clear()
    world.pass_time(CallTimeouts().prices_seconds)
    offers = {one.id: one for one in provider.offers()}
    assert offers[SMALL].priced_seconds == world.clock.now()


def test_an_owners_own_list_comes_first(world: AwsWorld) -> None:
    text = "instance_type,region,ondemand_usd_hr\ng4dn.xlarge,us-east-1,0.4\n"
    table = parse_price_table(text, "ours.csv", None)
    provider = AwsProvider(
        world.settings, "a", world.clock, world.session, patience=QUICK, table=table
    )
    offers = {one.id: one for one in provider.offers()}
    assert offers[SMALL].usd_per_hour == Decimal("0.4")
    assert offers[SMALL].price_source == "ours.csv:2"


def test_published_spot_prices_make_offers(fake: FakeAws) -> None:
    """Offer every type and zone of a list of real prices."""
    folder = os.environ.get("CASTOR_DATA")
    if folder is None:
        pytest.skip("CASTOR_DATA is not set: it names the folder of published measurements")
    world = AwsWorld(fake, instance_types=["g4dn.xlarge", "g5.xlarge", "p5.48xlarge"])
    zones = {"use1-az1": "us-east-1b", "use1-az6": "us-east-1a"}
    world.account.spot_prices = {}
    rows = (Path(folder) / "prices" / "aws_gpu_spot_by_az_skypilot_v8.csv").read_text()
    for line in rows.splitlines()[1:]:
        kind, _, _, _, usd, _, zone = line.split(",")
        if zone in zones and usd:
            world.account.spot_prices[kind, zones[zone]] = Decimal(usd)
    offers = {one.id: one for one in world.connect().offers()}
    assert len([one for one in offers.values() if one.purchase is Purchase.SPOT]) >= 4
    for offer in offers.values():
        assert isinstance(live_price(offer, (), world.clock.now()), Price)


def test_quotas_are_limits(world: AwsWorld) -> None:
    world.account.quotas["All G and VT Spot Instance Requests", "L-3819A6DF"] = 10.0
    limits = {limit.name: limit for limit in world.connect().limits()}
    name = "us-east-1: All G and VT Spot Instance Requests (L-3819A6DF)"
    assert limits[f"{name} of g4dn.xlarge"].maximum == 2
    assert limits[f"{name} of g4dn.xlarge"].offers == {
        SMALL_SPOT,
        SMALL_SPOT.replace("-1a", "-1b"),
    }
    assert limits[name].unit is LimitUnit.DEVICES


def test_every_page_of_the_quotas_is_read(world: AwsWorld) -> None:
    all_limits = world.connect().limits()
    world.account.page = 2
    world.account.calls.clear()
    assert world.connect().limits() == all_limits
    assert world.account.calls["ListServiceQuotas"] == 3


def test_quotas_whose_pages_repeat_a_token_bound_nothing(world: AwsWorld) -> None:
    world.account.page, world.account.repeats_token = 2, True
    assert all("Spot Instance Requests" not in limit.name for limit in world.connect().limits())
    assert world.account.calls["ListServiceQuotas"] == 2


def test_a_quota_of_nothing_allows_nothing_and_is_told(world: AwsWorld) -> None:
    world.account.quotas["Running On-Demand G and VT instances", "L-DB2E81BA"] = 0.0
    provider = world.connect()
    bounded = [limit for limit in provider.limits() if limit.maximum == 0]
    assert provider.condition().troubles == ()
    told = "\n".join(provider.condition().notes)
    assert "(L-DB2E81BA) of g5.xlarge: the quota is too small for one: request" in told
    assert frozenset().union(*(limit.offers or () for limit in bounded)) == {
        one.id for one in world.connect().offers() if one.purchase is Purchase.ON_DEMAND
    }


def test_quotas_that_may_not_be_read_bound_nothing(world: AwsWorld) -> None:
    denied = Fault("ListServiceQuotas", code="AccessDeniedException", status=400, times=None)
    world.account.faults.add(denied)
    provider = world.connect()
    assert all("Spot Instance Requests" not in limit.name for limit in provider.limits())
    (trouble,) = provider.condition().troubles
    assert trouble.startswith("quotas are unknown, and no limit: us-east-1: ListServiceQuotas: ")
    world.account.faults.clear()
    world.clock.advance(3600.0)
    assert any("Spot Instance Requests" in limit.name for limit in provider.limits())
    assert not provider.condition().troubles


def test_the_bounds_of_the_settings_are_limits(world: AwsWorld) -> None:
    """Spot is bounded by what it may come to cost, as `launch` bounds it."""
    limits: dict[str, Limit] = {limit.name: limit for limit in world.connect().limits()}
    assert limits["pools.gpu"].maximum == 8
    assert limits["pools.gpu budget"].maximum == 20
    assert limits["aws"].maximum == 30
    assert limits["pools.gpu budget at $1.006/h or more"].maximum == 19


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("p5en.48xlarge", "P5"),
        ("p4d.24xlarge", "P4"),
        ("p3.2xlarge", "P4"),
        ("p6-b200.48xlarge", None),
        ("g6e.xlarge", "G"),
        ("gr6.4xlarge", "G"),
        ("inf2.xlarge", "Inf"),
        ("i4i.large", "Standard"),
        ("c5.large", "Standard"),
    ],
)
def test_each_type_is_counted_by_one_quota(kind: str, named: str | None) -> None:
    quotas = {
        "G": ("g", "vt"),
        "P4": ("p4", "p3", "p2"),
        "P5": ("p5",),
        "Inf": ("inf",),
        "Standard": ("a", "c", "d", "h", "i", "m", "r", "t", "z"),
    }
    fits = {
        name: VcpuQuota(name, "L", Purchase.SPOT, families, 1.0).fit(kind)
        for name, families in quotas.items()
    }
    best = max(fits, key=lambda name: fits[name])
    assert (best if fits[best] else None) == named


def test_a_role_without_the_right_to_look_is_told(world: AwsWorld) -> None:
    denied = Fault("DescribeInstanceTypeOfferings", code="UnauthorizedOperation", status=403)
    world.account.faults.add(denied)
    assert isinstance(error_of(world.connect().offers), PermissionDenied)


def test_without_internet_nothing_is_asked_that_has_no_endpoint(world: AwsWorld) -> None:
    """Each question would wait for a minute, in which nothing else is done."""
    world.document["has_internet"] = False
    provider = world.connect()
    assert {one.purchase for one in provider.offers()} == {Purchase.SPOT, Purchase.ON_DEMAND}
    assert "quota" not in str(provider.limits()).lower()
    assert not {"GetProducts", "ListServiceQuotas"} & world.account.calls.keys()
