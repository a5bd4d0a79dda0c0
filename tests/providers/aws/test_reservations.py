"""Pools of reserved capacity: what they cost, how many instances fit, and until when."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from autoscaler.domain.errors import (
    InsufficientCapacity,
    NotFound,
    PermissionDenied,
    ProviderError,
    UnknownRefusal,
)
from autoscaler.domain.offer import LimitUnit, Offer, Purchase
from autoscaler.market.live_prices import live_price
from autoscaler.market.prices import Price
from providers.aws.provider import AwsProvider
from providers.aws.settings import CallTimeouts
from tests.fakes.aws.faults import Fault
from tests.fakes.aws.reservations import BLOCK, FakeReservation
from tests.fakes.aws.server import FakeAws
from tests.providers.aws.cloud import START_SECONDS, AwsWorld, error_of
from tests.providers.cloud.controlled import WANTED, ControlledWorld

ID = "cr-0123456789abcdef0"
OFFER = "own/p5.48xlarge/us-east-1a/reserved"
DAY = 86400.0


class ReservedWorld(AwsWorld):
    """An account with one reservation, and a pool of it."""

    spot_offer = OFFER  # of what a job wants

    def __init__(self, fake: FakeAws, pool: dict[str, Any] | None = None, **facts: Any) -> None:
        super().__init__(fake)
        given = {"kind": "p5.48xlarge", "zone": "us-east-1a", "total": 2, **facts}
        self.reservation = FakeReservation(ID, **given)
        self.account.reservations[ID] = self.reservation
        self.document["pools"]["own"] = {
            **self.document["pools"]["gpu"],
            "launch_template": {"id": self.template(self.reservation.is_block), "version": "1"},
            "instance_types": ["p5.48xlarge"],
            "zones": ["us-east-1a"],
            "purchases": "reserved",
            "reservation": ID,
            "capacity_block": self.reservation.is_block,
            **(pool or {}),
        }

    def template(self, is_block: bool, reservation: str = ID) -> str:
        """Return a template as Terraform would create it."""
        target = {"CapacityReservationTarget": {"CapacityReservationId": reservation}}
        data = {
            "ImageId": "ami-0123456789abcdef0",
            "CapacityReservationSpecification": target,
            **({"InstanceMarketOptions": {"MarketType": BLOCK}} if is_block else {}),
        }
        made = self.ec2.create_launch_template(
            LaunchTemplateName=f"own-{is_block}-{reservation}", LaunchTemplateData=data
        )
        return str(made["LaunchTemplate"]["LaunchTemplateId"])

    def fitting(self, provider: AwsProvider) -> float | None:
        """Return the planner's limit of instances; None without a limit."""
        provider.offers()
        limits = {one.name: one for one in provider.limits()}
        limit = limits.get(f"reservation {ID} in us-east-1a")
        assert limit is None or (limit.unit, limit.offers) == (LimitUnit.INSTANCES, {OFFER})
        return None if limit is None else limit.maximum

    def later(self, provider: AwsProvider) -> float | None:
        """The same once the reservation is asked for again."""
        self.pass_time(CallTimeouts().prices_seconds)
        return self.fitting(provider)


def offer_of(provider: AwsProvider) -> Offer | None:
    return next((one for one in provider.offers() if one.id == OFFER), None)


def reason_of(provider: AwsProvider) -> str:
    assert offer_of(provider) is None
    return provider.condition().left_out[OFFER]


def refused(world: ReservedWorld, provider: AwsProvider, token: str = "1") -> ProviderError:
    return error_of(lambda: provider.launch(world.request(token, OFFER)))


def test_what_is_reserved_is_paid_already_and_has_no_end(fake: FakeAws) -> None:
    world = ReservedWorld(fake)
    offer = offer_of(world.connect())
    assert offer is not None and offer.purchase is Purchase.RESERVED
    assert (offer.usd_per_hour, offer.is_paid, offer.until_seconds) == (0, True, None)
    assert offer.price_source == f"reservation {ID}: paid already"


def test_volumes_of_reserved_instances_still_cost(fake: FakeAws) -> None:
    """But no more: they don't count as what an instance is worth."""
    world = ReservedWorld(fake, {"extras_usd_per_hour": "0.0269"})
    offer = offer_of(world.connect())
    assert offer is not None and offer.is_paid
    assert offer.usd_per_hour == offer.extras_usd_per_hour == Decimal("0.0269")
    price = live_price(offer, (), world.clock.now())
    assert isinstance(price, Price) and price.usd_per_hour == Decimal("0.0269")


def test_as_many_fit_as_are_free_and_as_are_held(fake: FakeAws) -> None:
    world = ReservedWorld(fake, total=4, others=1)
    provider = world.connect()
    assert world.fitting(provider) == 3
    provider.launch(world.request("1", OFFER))
    assert world.fitting(provider) == 3
    assert world.later(provider) == 3
    assert world.later(world.connect()) == 3  # another process, which has listed nothing yet
    world.reservation.others = 3
    assert world.later(provider) == 1
    world.reservation.total = 3
    world.reservation.others = 3  # more than fit: what runs is not to be ended for it
    assert world.later(provider) == 1


def test_a_launch_goes_into_the_reservation_and_never_beyond(fake: FakeAws) -> None:
    world = ReservedWorld(fake, total=1)
    provider = world.connect()
    provider.launch(world.request("1", OFFER))
    (sent,) = world.account.of("CreateFleet")
    capacity_type = "TargetCapacitySpecification.DefaultTargetCapacityType"
    assert sent[capacity_type] == "on-demand"
    assert not [name for name in sent if "CapacityReservationOptions" in name]
    assert isinstance(refused(world, provider, "2"), InsufficientCapacity)
    assert world.alive() == sorted(world.reservation.instances) and len(world.alive()) == 1


def test_a_block_is_left_half_an_hour_before_its_end(fake: FakeAws) -> None:
    end_seconds = START_SECONDS + DAY
    world = ReservedWorld(fake, is_block=True, end_seconds=end_seconds)
    provider = world.connect()
    offer = offer_of(provider)
    assert offer is not None and offer.until_seconds == end_seconds - 1800
    provider.launch(world.request("1", OFFER))
    (sent,) = world.account.of("CreateFleet")
    assert sent["TargetCapacitySpecification.DefaultTargetCapacityType"] == BLOCK
    assert not [name for name in sent if name.startswith("OnDemandOptions")]
    world.pass_time(DAY - 1800)
    left = offer_of(provider)
    assert left is not None and left.until_seconds is not None
    assert left.until_seconds <= world.clock.now()
    provider.terminate(world.alive())
    provider.instances()
    assert "ended at" in reason_of(provider)


def test_a_block_is_not_offered_before_it_begins(fake: FakeAws) -> None:
    start_seconds = START_SECONDS + 3600
    world = ReservedWorld(
        fake, is_block=True, start_seconds=start_seconds, end_seconds=start_seconds + DAY
    )
    provider = world.connect()
    assert reason_of(provider) == (
        f"pools.own.reservation: {ID} begins 2026-09-21 15:13 UTC (scheduled)"
    )
    assert provider.condition().begins == {OFFER: start_seconds}
    assert isinstance(refused(world, provider), NotFound)
    assert world.account.calls["CreateFleet"] == 0
    world.pass_time(3600)
    assert offer_of(provider) is not None
    assert provider.condition().begins == {}


@pytest.mark.parametrize(
    ("facts", "template", "said"),
    [
        ({"waiting": "payment-pending"}, ID, "begins 2026-09-21 15:13 UTC (payment-pending)"),
        ({"kind": "p4d.24xlarge"}, ID, "is of p4d.24xlarge in us-east-1a"),
        ({}, "cr-99999999", "is not the target of lt-"),
    ],
)
def test_a_block_that_may_not_begin_or_does_not_fit_is_not_in_order(
    fake: FakeAws, facts: dict[str, str], template: str, said: str
) -> None:
    """Report before the start of the block, as `castor check` must."""
    start_seconds = START_SECONDS + 3600
    times = {"start_seconds": start_seconds, "end_seconds": start_seconds + DAY}
    world = ReservedWorld(fake, is_block=True, **times, **facts)
    launched = world.document["pools"]["own"]["launch_template"]
    launched["id"] = world.template(True, template) if template != ID else launched["id"]
    provider = world.connect()
    assert said in reason_of(provider)
    assert provider.condition().begins == {}


def test_a_job_fills_its_reservation_and_is_charged_for_volumes_only(fake: FakeAws) -> None:
    cloud = ReservedWorld(fake, {"extras_usd_per_hour": "0.0269"}, total=WANTED)
    world = ControlledWorld(cloud)
    world.until(world.is_settled)
    assert sorted(cloud.reservation.instances) == cloud.alive()
    held = world.store.instances.alive()
    assert {one.usd_per_hour for one in held} == {Decimal("0.0269")}
    world.restart()
    world.tick(times=5)
    assert world.is_settled(), "though nothing is free"
    world.give_up()


def test_what_runs_stays_while_nothing_can_be_launched(fake: FakeAws) -> None:
    """Keep instances after a change of the template by hand."""
    world = ReservedWorld(fake)
    provider = world.connect()
    provider.launch(world.request("1", OFFER))
    world.document["pools"]["own"]["launch_template"]["id"] = world.template(False, "cr-99999999")
    provider = world.connect()
    assert world.fitting(provider) == 1
    offer = offer_of(provider)
    assert offer is not None and offer.until_seconds is None
    assert "is not the target of lt-" in offer.price_source


@pytest.mark.parametrize("is_listed", [True, False])
def test_what_runs_in_a_cancelled_reservation_is_left(fake: FakeAws, is_listed: bool) -> None:
    """EC2 lets it run, on demand, and a job stays on an offer that no longer exists."""
    world = ReservedWorld(fake)
    provider = world.connect()
    provider.launch(world.request("1", OFFER))
    world.reservation.is_cancelled = True
    if not is_listed:
        del world.account.reservations[ID]
    assert world.later(provider) == 1
    offer = offer_of(provider)
    assert offer is not None and offer.until_seconds is not None
    assert offer.until_seconds <= world.clock.now()
    assert offer.price_source.startswith(f"reservation {ID}: ")
    assert "paid already" not in offer.price_source


def test_a_reservation_that_ends_is_used_until_then(fake: FakeAws) -> None:
    world = ReservedWorld(fake, end_seconds=START_SECONDS + DAY)
    offer = offer_of(world.connect())
    assert offer is not None and offer.until_seconds == START_SECONDS + DAY


@pytest.mark.parametrize(
    ("facts", "pool", "said"),
    [
        ({"is_cancelled": True}, {}, "is cancelled: remove the pool"),
        ({"is_interruptible": True}, {}, "is interruptible"),
        ({"kind": "p4d.24xlarge"}, {}, "is of p4d.24xlarge in us-east-1a, not p5.48xlarge"),
        ({"zone": "us-east-1b"}, {}, "is of p5.48xlarge in us-east-1b, not p5.48xlarge in"),
        ({}, {"capacity_block": True}, "is no Capacity Block: set capacity_block = false"),
        (
            {"is_block": True, "end_seconds": START_SECONDS + DAY},
            {"capacity_block": False},
            "is a Capacity Block: set capacity_block = true",
        ),
        ({"is_block": True}, {}, "has no end"),
        ({}, {"reservation": "cr-99999999"}, "cr-99999999 does not exist in us-east-1"),
    ],
)
def test_what_can_not_be_used_is_left_out_with_the_reason(
    fake: FakeAws, facts: dict[str, Any], pool: dict[str, Any], said: str
) -> None:
    provider = ReservedWorld(fake, pool, **facts).connect()
    assert said in reason_of(provider)
    assert not [one for one in provider.limits() if one.name.startswith("reservation")]


@pytest.mark.parametrize(
    ("is_block", "reservation", "said"),
    [
        (False, "cr-99999999", "is not the target of lt-"),
        (False, ID, "has another market in lt-"),
        (True, None, "is not the target of lt-"),
    ],
)
def test_a_template_that_launches_elsewhere_would_buy_on_demand(
    fake: FakeAws, is_block: bool, reservation: str | None, said: str
) -> None:
    world = ReservedWorld(fake, is_block=True, end_seconds=START_SECONDS + DAY)
    own = world.document["pools"]["own"]
    if reservation is None:
        own["launch_template"] = world.document["pools"]["gpu"]["launch_template"]
    else:
        own["launch_template"]["id"] = world.template(is_block, reservation)
    assert said in reason_of(world.connect())


def test_what_another_account_pays_while_unused_is_not_paid_already(fake: FakeAws) -> None:
    world = ReservedWorld(fake, owner="222222222222")
    world.document["account"] = "111111111111"
    assert "is billed to account 222222222222 while unused" in reason_of(world.connect())


def test_a_reservation_that_can_not_be_read_is_not_used(fake: FakeAws) -> None:
    """One that was read before stays known, as quotas do."""
    world = ReservedWorld(fake)
    fault = Fault("DescribeCapacityReservations", code="UnauthorizedOperation", status=403)
    world.account.faults.add(fault)
    provider = world.connect()
    assert "allow DescribeCapacityReservations to these credentials" in reason_of(provider)
    world.pass_time(60)
    assert offer_of(provider) is not None
    world.account.faults.add(fault)
    assert world.later(provider) == 2


def test_without_a_reserved_pool_nothing_is_asked(world: AwsWorld) -> None:
    """Its permission came later than others, and earlier policies lack it."""
    provider = world.connect()
    provider.offers()
    provider.limits()
    assert world.account.calls["DescribeCapacityReservations"] == 0


class TestWhatEc2Refuses:
    """Whatever the settings say: a template that does not fit, or a changed reservation."""

    def test_a_block_before_its_start(self, fake: FakeAws) -> None:
        world = ReservedWorld(fake, is_block=True, end_seconds=START_SECONDS + DAY)
        provider = world.connect()
        provider.offers()
        world.reservation.start_seconds = START_SECONDS + 60
        error = refused(world, provider)
        assert isinstance(error, InsufficientCapacity) and "is not active yet" in str(error)

    def test_an_ended_one(self, fake: FakeAws) -> None:
        world = ReservedWorld(fake)
        provider = world.connect()
        provider.offers()
        world.reservation.is_cancelled = True
        assert isinstance(refused(world, provider), InsufficientCapacity)

    @pytest.mark.parametrize("change", [{"zone": "us-east-1b"}, {"kind": "p4d.24xlarge"}])
    def test_another_zone_or_type(self, fake: FakeAws, change: dict[str, str]) -> None:
        world = ReservedWorld(fake)
        provider = world.connect()
        provider.offers()
        for name, value in change.items():
            setattr(world.reservation, name, value)
        assert isinstance(refused(world, provider), InsufficientCapacity)

    def test_a_block_without_its_market_type(self, fake: FakeAws) -> None:
        world = ReservedWorld(fake, is_block=True, end_seconds=START_SECONDS + DAY)
        provider = world.connect()
        provider.offers()
        world.reservation.is_block = False
        error = refused(world, provider)
        assert not isinstance(error, InsufficientCapacity | PermissionDenied | UnknownRefusal)
        assert "InvalidParameterCombination" in str(error) and not world.alive()

    def test_an_unknown_one(self, fake: FakeAws) -> None:
        world = ReservedWorld(fake)
        provider = world.connect()
        provider.offers()
        del world.account.reservations[ID]
        error = refused(world, provider)
        assert isinstance(error, NotFound) and "correct pools.own.reservation" in str(error)
