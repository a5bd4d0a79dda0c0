"""The ledger of a real controller beside the bill of the account that it buys in."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from autoscaler.ledger.ledger import Ledger
from autoscaler.ledger.reconciliation import Reconciliation, ReconciliationResult, reconcile
from providers.aws.cost_report import CostReport, is_of_aws
from tests.conformance.provider import THEIRS
from tests.fakes.aws.billing import Billed
from tests.fakes.aws.server import FakeAws
from tests.providers.aws.cloud import SMALL, AwsWorld
from tests.providers.aws.test_controller import Ec2World

SPOT_USD_PER_HOUR, EXTRAS_USD_PER_HOUR = Decimal("0.1631"), Decimal("0.0269")
WEEK_SECONDS = 7 * 86_400.0


def bill(world: AwsWorld) -> None:
    """Bill the run time of all instances, under their tags."""
    account, tags = world.account, {}
    for reservation in world.ec2.describe_instances()["Reservations"]:
        for told in reservation["Instances"]:
            tags[told["InstanceId"]] = {one["Key"]: one["Value"] for one in told["Tags"]}
    for instance_id, launched_seconds in account.launched_seconds.items():
        hours = Decimal(account.ended_seconds[instance_id] - launched_seconds) / 3600
        day = datetime.fromtimestamp(launched_seconds, UTC).date()
        for usage, usd_per_hour in (
            ("SpotUsage:g4dn.xlarge", SPOT_USD_PER_HOUR),
            ("EBS:VolumeUsage.gp3", EXTRAS_USD_PER_HOUR),
        ):
            usd = str(hours * usd_per_hour)
            account.bill.lines.append(Billed(day, usage, usd, tags=tags[instance_id]))


def reconciled(world: Ec2World) -> Reconciliation:
    bill(world.aws)
    now_seconds = world.clock.now() + WEEK_SECONDS
    days = [datetime.fromtimestamp(one, UTC).date() for one in (world.clock.now(), now_seconds)]
    costs = Ledger(world.store.ledger.entries()).daily(now_seconds)
    assert costs and all(is_of_aws(cost.offer) for cost in costs)
    report = CostReport(world.aws.session, world.aws.url, attempts=1)
    return reconcile(costs, report.costs("test", days[0], days[1]), now_seconds)


def run_an_hour(fake: FakeAws) -> Ec2World:
    world = Ec2World(fake, extras_usd_per_hour=str(EXTRAS_USD_PER_HOUR))
    world.until(world.is_settled)
    world.tick(times=6, seconds=600.0)
    world.give_up()
    return world


def test_what_was_bought_is_what_is_billed(fake: FakeAws) -> None:
    world = run_an_hour(fake)
    found = reconciled(world)
    assert found.verdict is ReconciliationResult.AGREE
    assert found.instances.ledger_usd > 2 * SPOT_USD_PER_HOUR
    for compared in (found.instances, found.extras):
        assert compared.share is not None and abs(compared.share) < Decimal("0.001")


def test_what_this_ledger_does_not_know_is_seen(fake: FakeAws) -> None:
    """An instance of the same deployment that another controller holds, or nobody."""
    world = run_an_hour(fake)
    other = world.aws.connect(THEIRS)
    lost = other.launch(world.aws.request("lost", SMALL, controller=THEIRS))
    world.aws.pass_time(3600.0)
    world.aws.take(lost.id)
    found = reconciled(world)
    assert found.verdict is ReconciliationResult.ACCOUNT_HAS_MORE
    assert abs(found.instances.difference_usd - SPOT_USD_PER_HOUR) < Decimal("0.001")
