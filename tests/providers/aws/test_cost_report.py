"""Bill of an account by tag, from Cost Explorer."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal

import pytest

from autoscaler.domain.errors import PermissionDenied, Throttled, Unavailable
from autoscaler.domain.spending import AccountCost, BillPart
from providers.aws.cost_report import CostReport
from tests.fakes.aws.billing import Billed
from tests.fakes.aws.faults import Fault, When
from tests.providers.aws.cloud import AwsWorld, error_of

FIRST = date(2026, 11, 1)
OWN = {"castor:deployment": "prod"}
OTHER = "EC2 - Other"
VPC = "Amazon Virtual Private Cloud"

USES = [
    Billed(FIRST, "BoxUsage:g5.xlarge", "1.00", tags=OWN),
    Billed(FIRST, "USW2-SpotUsage:g5.xlarge", "2.00", tags=OWN),
    Billed(FIRST, "EBS:VolumeUsage.gp3", "0.10", OTHER, OWN),
    Billed(FIRST, "EUW1-EBS:VolumeP-Throughput.gp3", "0.01", OTHER, OWN),
    Billed(FIRST, "USE1-PublicIPv4:InUseAddress", "0.12", VPC, OWN),
    Billed(FIRST, "NatGateway-Hours", "1.08", OTHER, OWN),
    Billed(FIRST, "USW2-NatGateway-Bytes", "0.45", OTHER, OWN),
    Billed(FIRST, "USE1-VpcEndpoint-Hours", "0.24", VPC, OWN),
    Billed(FIRST, "DataTransfer-Regional-Bytes", "0.02", OTHER, OWN),
    Billed(FIRST, "USE1-USW2-AWS-Out-Bytes", "0.03", OTHER, OWN),
    Billed(FIRST, "TimedStorage-ByteHrs", "0.05", "Amazon Simple Storage Service", OWN),
]
NOT_OURS = [
    Billed(FIRST, "BoxUsage:g5.xlarge", "7", tags={"castor:deployment": "test"}),
    Billed(FIRST, "BoxUsage:m5.large", "7"),
    Billed(FIRST, "BoxUsage:g5.xlarge", "-3", tags=OWN, record="Credit"),
    Billed(FIRST - timedelta(days=1), "BoxUsage:g5.xlarge", "7", tags=OWN),
    Billed(FIRST + timedelta(days=3), "BoxUsage:g5.xlarge", "7", tags=OWN),
]


def told(world: AwsWorld) -> tuple[AccountCost, ...]:
    report = CostReport(world.session, world.url, attempts=1)
    return report.costs("prod", FIRST, FIRST + timedelta(days=2))


def test_uses_are_told_apart_and_what_is_not_ours_left_out(world: AwsWorld) -> None:
    world.account.bill.lines = [*USES, *NOT_OURS]
    found: dict[tuple[BillPart, str], Decimal] = defaultdict(Decimal)
    for cost in told(world):
        found[cost.part, cost.name] += cost.usd
    assert found == {
        (BillPart.INSTANCES, "instances"): Decimal("3.00"),
        (BillPart.EXTRAS, "volumes"): Decimal("0.11"),
        (BillPart.EXTRAS, "addresses"): Decimal("0.12"),
        (BillPart.BESIDE, "NAT gateways"): Decimal("1.53"),
        (BillPart.BESIDE, "VPC endpoints"): Decimal("0.24"),
        (BillPart.BESIDE, "transfer"): Decimal("0.05"),
        (BillPart.BESIDE, "Amazon Simple Storage Service"): Decimal("0.05"),
    }


def test_the_controller_s_host_is_no_instance_that_was_bought(world: AwsWorld) -> None:
    tags = {"castor:controller-of": "prod"}
    world.account.bill.lines = [
        Billed(FIRST, "BoxUsage:t3.medium", "1", tags=tags),
        Billed(FIRST, "EBS:VolumeUsage.gp3", "0.3", OTHER, tags),
    ]
    costs = told(world)
    assert {(cost.part, cost.name) for cost in costs} == {(BillPart.BESIDE, "controller's host")}
    assert sum(cost.usd for cost in costs) == Decimal("1.3")


def test_pages_are_read_to_the_end_and_each_is_counted(world: AwsWorld) -> None:
    days = [FIRST + timedelta(days=number) for number in range(3)]
    world.account.bill.lines = [replace(USES[0], day=day) for day in days]
    world.account.bill.days_a_page = 1
    report = CostReport(world.session, world.url, attempts=1)
    assert [cost.day for cost in report.costs("prod", FIRST, days[-1])] == days
    assert world.account.calls["GetCostAndUsage"] == 6
    assert report.asked_usd == Decimal("0.06")


def test_what_is_not_final_is_called_so(world: AwsWorld) -> None:
    world.account.bill.lines = [USES[0], replace(USES[0], day=FIRST + timedelta(days=1))]
    world.account.bill.closed_before = FIRST + timedelta(days=1)
    assert [cost.is_estimated for cost in told(world)] == [False, True]


def test_a_tag_that_is_not_active_has_no_costs(world: AwsWorld) -> None:
    world.account.bill.lines = list(USES)
    world.account.bill.active_tags.clear()
    assert told(world) == ()


def test_who_may_not_ask_is_told_what_is_wanting(world: AwsWorld) -> None:
    denied = Fault("GetCostAndUsage", code="AccessDeniedException", status=400)
    world.account.faults.add(denied)
    error = error_of(lambda: told(world))
    assert isinstance(error, PermissionDenied)
    assert "allow ce:GetCostAndUsage to your own credentials" in str(error)
    assert "controller" not in str(error) and "\n" not in str(error)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault("GetCostAndUsage", code="DataUnavailableException", status=400), Unavailable),
        (Fault("GetCostAndUsage", code="ThrottlingException", status=400, times=None), Throttled),
        (Fault("GetCostAndUsage", When.MALFORMED, times=None), Unavailable),
        (Fault("GetCostAndUsage", When.EMPTY, times=None), Unavailable),
    ],
)
def test_a_failure_is_no_empty_bill(world: AwsWorld, fault: Fault, kind: type[Exception]) -> None:
    world.account.bill.lines = list(USES)
    world.account.faults.add(fault)
    assert isinstance(error_of(lambda: told(world)), kind)


@pytest.mark.parametrize(("unit", "usd"), [("CNY", "1"), ("USD", "NaN")])
def test_an_amount_that_is_no_dollars_is_none(world: AwsWorld, unit: str, usd: str) -> None:
    world.account.bill.unit = unit
    world.account.bill.lines = [replace(USES[0], usd=usd)]
    assert isinstance(error_of(lambda: told(world)), Unavailable)
