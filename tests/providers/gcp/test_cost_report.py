"""Bill of a project by label, from the export of Cloud Billing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

pytest.importorskip("duckdb", reason="duckdb is not installed")
pytest.importorskip("sqlglot", reason="sqlglot is not installed")

from autoscaler.domain.errors import (
    NotFound,
    PermissionDenied,
    ProviderError,
    QuotaExceeded,
    SpecError,
    Throttled,
    Unavailable,
)
from autoscaler.domain.spending import AccountCost, BillPart
from providers.gcp.cost_report import CostReport, open_report, parse_payer, parse_table
from tests.fakes.faults import Fault, When
from tests.fakes.gcp import prices
from tests.fakes.gcp.billing import DETAILED, STANDARD, Billed, Columns, Table
from tests.providers.gcp.cloud import GcpWorld, error_of

FIRST = date(2026, 11, 1)
LAST = FIRST + timedelta(days=2)
HOUR = datetime(2026, 11, 1, 5, tzinfo=UTC)
OWN = {"castor-deployment": "prod", "team": "vision"}
HOST = {"castor-controller-of": "prod"}
NAME = "billing.gcp_billing_export_resource_v1_0123AB_4567CD_89EF01"
GIB = 2**30

NETWORKING = "Networking"
USES = [
    Billed(HOUR, "G2 Instance Core running in Americas", 1.0, OWN),
    Billed(HOUR, "Spot Preemptible G2 Instance Ram running in Iowa", 0.5, OWN),
    Billed(HOUR, "Nvidia L4 GPU attached to Spot Preemptible VMs running in Iowa", 2.0, OWN),
    Billed(HOUR, "DWS Defined Duration A3 Core running in Americas", 0.25, OWN),
    Billed(HOUR, "A4 Nvidia B200 (1 gpu slice) running in Americas", 16.11, OWN),
    Billed(HOUR, "1/8 vGPU no lssd running in Iowa", 0.75, OWN),
    Billed(HOUR, "Balanced PD Capacity in Iowa", 0.10, OWN),
    Billed(HOUR, "Hyperdisk Balanced IOPS in Iowa", 0.01, OWN),
    Billed(HOUR, "External IP Charge on a Spot Preemptible VM", 0.12, OWN),
    Billed(HOUR, "Static Ip Charge", 0.03, OWN),
    Billed(HOUR, "Networking Cloud Nat Gateway Uptime", 0.0014, OWN, NETWORKING),
    Billed(HOUR, "Networking Cloud Nat Data Processing", 0.45, OWN, NETWORKING),
    Billed(HOUR, "Network Inter Zone Data Transfer Out", 0.02, OWN),
    Billed(HOUR, "Network Internet Egress from Americas to Americas", 0.03, OWN),
    Billed(HOUR, "SSD backed Local Storage attached to Spot Preemptible VMs", 0.07, OWN),
    Billed(HOUR, "Commitment v1: G2 Instance Core running in Iowa for 1 Year", 0.09, OWN),
    Billed(HOUR, "Standard Storage US Regional", 0.05, OWN, "Cloud Storage"),
]
FOUND = {
    (BillPart.INSTANCES, "instances"): Decimal("20.61"),
    (BillPart.EXTRAS, "disks"): Decimal("0.11"),
    (BillPart.EXTRAS, "addresses"): Decimal("0.15"),
    (BillPart.EXTRAS, "NAT"): Decimal("0.0014"),
    (BillPart.BESIDE, "NAT"): Decimal("0.45"),
    (BillPart.BESIDE, "transfer"): Decimal("0.05"),
    (BillPart.BESIDE, "local SSDs"): Decimal("0.07"),
    (BillPart.BESIDE, "Compute Engine"): Decimal("0.09"),
    (BillPart.BESIDE, "Cloud Storage"): Decimal("0.05"),
}
CORE = USES[0]
NOT_OURS = [
    replace(CORE, labels={"castor-deployment": "test"}),
    replace(CORE, labels={}),
    replace(CORE, labels={"team": "prod", "deployment": "prod"}),
    replace(CORE, cost_type="tax"),
    replace(CORE, cost_type="adjustment", cost=-3.0),
    replace(CORE, cost_type="rounding_error"),
    replace(CORE, start=HOUR - timedelta(days=1)),
    replace(CORE, start=HOUR + timedelta(days=3)),
]


def table_of(world: GcpWorld, columns: Columns = DETAILED) -> Table:
    """The export's, laid if it is not yet."""
    found = world.project.tables.setdefault(f"{world.name}.{NAME}", Table(columns))
    assert isinstance(found, Table)
    return found


def export(world: GcpWorld, lines: Sequence[Billed]) -> None:
    table_of(world).rows.extend(line.row() for line in lines)


def report_of(world: GcpWorld, payer: str | None = None) -> CostReport:
    table = parse_table(f"{world.name}.{NAME}")
    return CostReport(table, payer or world.name, world.session, world.clock)


def told(world: GcpWorld) -> tuple[AccountCost, ...]:
    return report_of(world).costs("prod", FIRST, LAST)


def usd(world: GcpWorld) -> Decimal:
    return sum((cost.usd for cost in told(world)), Decimal(0))


@pytest.mark.parametrize("columns", [STANDARD, DETAILED], ids=["standard", "detailed"])
def test_uses_are_told_apart_and_what_is_not_ours_left_out(
    world: GcpWorld, columns: Columns
) -> None:
    table_of(world, columns)
    export(world, [*USES, *NOT_OURS])
    found: dict[tuple[BillPart, str], Decimal] = defaultdict(Decimal)
    for cost in told(world):
        assert cost.day == FIRST and not cost.is_estimated
        found[cost.part, cost.name] += cost.usd
    assert found == FOUND


def test_all_that_makes_the_price_of_an_instance_is_an_instance(world: GcpWorld) -> None:
    """Match the names of parts in the catalogue and in the bill."""
    sold = [sku["description"] for sku in prices.skus_of(world.project)]
    parts = [words for words in sold if not words.startswith("Commitment")]
    export(world, [replace(CORE, sku=words) for words in parts])
    assert {cost.part for cost in told(world)} == {BillPart.INSTANCES}
    assert usd(world) == len(parts)


def test_the_controller_s_host_is_no_instance_that_was_bought(world: GcpWorld) -> None:
    export(
        world,
        [
            Billed(HOUR, "E2 Instance Core running in Americas", 1.0, HOST),
            Billed(HOUR, "Balanced PD Capacity", 0.3, HOST),
            Billed(HOUR, "Balanced PD Capacity", 7.0, {"castor-controller-of": "test"}),
        ],
    )
    costs = told(world)
    assert {(cost.part, cost.name) for cost in costs} == {(BillPart.BESIDE, "controller's host")}
    assert usd(world) == Decimal("1.3")


def test_discounts_make_it_cheaper_and_what_pays_for_it_does_not(world: GcpWorld) -> None:
    kinds = {
        "SUSTAINED_USAGE_DISCOUNT": -0.1,
        "COMMITTED_USAGE_DISCOUNT": -0.2,
        "COMMITTED_USAGE_DISCOUNT_DOLLAR_BASE": -0.05,
        "SUBSCRIPTION_BENEFIT": -0.04,
        "DISCOUNT": -0.03,
        "FREE_TIER": -0.02,
        "PROMOTION": -0.5,
        "RESELLER_MARGIN": -0.25,
        "FEE_UTILIZATION_OFFSET": -0.125,
    }
    export(world, [replace(CORE, credits=kinds)])
    assert usd(world) == Decimal("0.56")


def test_another_currency_is_worth_what_its_own_lines_say(world: GcpWorld) -> None:
    euros = replace(CORE, cost=0.9, currency="EUR", rate=0.9)
    weaker = replace(euros, cost=0.8, rate=0.8, credits={"DISCOUNT": -0.4})
    export(world, [euros, weaker, replace(CORE, rate=None)])
    assert usd(world) == Decimal("2.5")


@pytest.mark.parametrize("rate", [None, 0.0])
def test_a_currency_without_a_rate_is_no_dollars(world: GcpWorld, rate: float | None) -> None:
    export(world, [CORE, replace(CORE, currency="EUR", rate=rate)])
    error = error_of(lambda: told(world))
    assert isinstance(error, NotFound)
    assert "lines of 2026-11-01 in EUR have no currency_conversion_rate" in str(error)
    assert "leave that day out with --from and --to" in str(error)
    assert report_of(world).costs("prod", FIRST + timedelta(days=1), LAST) == ()


def test_days_are_those_of_utc(world: GcpWorld) -> None:
    west = datetime.fromisoformat("2026-10-31T23:30:00-08:00")
    last = datetime(2026, 11, 3, 23, 59, tzinfo=UTC)
    export(world, [replace(CORE, start=west), replace(CORE, start=last)])
    assert [cost.day for cost in told(world)] == [FIRST, LAST]


def test_lines_that_are_late_count_and_the_rest_of_the_table_is_not_read(world: GcpWorld) -> None:
    late = [replace(CORE, exported=HOUR + timedelta(days=days)) for days in (5, 33, 69)]
    export(world, [CORE, *late])
    others = [replace(CORE, start=HOUR + timedelta(days=days)) for days in (-90, -2, 80, 400)]
    export(world, others)
    table_of(world).row_bytes = 2**20 * 4
    report = report_of(world)
    costs = report.costs("prod", FIRST, LAST)
    assert sum(cost.usd for cost in costs) == 4
    tebibytes = Decimal(4 * 4) / 2**20
    assert report.asked_usd == tebibytes * Decimal("6.25")


def test_a_table_without_costs_of_the_deployment_is_an_empty_bill(world: GcpWorld) -> None:
    export(world, NOT_OURS)
    assert told(world) == ()


def test_what_a_query_may_find_is_no_part_of_it(world: GcpWorld) -> None:
    export(world, USES)
    assert report_of(world).costs("' OR TRUE --", FIRST, LAST) == ()
    (sent,) = world.project.of("bigquery.jobs.query")
    assert "OR TRUE" not in sent.body["query"]


def test_pages_are_read_to_the_end(world: GcpWorld) -> None:
    export(world, USES)
    world.project.page = 5
    assert usd(world) == sum(FOUND.values())
    assert world.project.calls["bigquery.jobs.getQueryResults"] == 3


def test_pages_that_do_not_end_are_no_answer(world: GcpWorld) -> None:
    export(world, [replace(CORE, sku=f"SKU {number}") for number in range(201)])
    world.project.page = 1
    error = error_of(lambda: told(world))
    assert isinstance(error, Unavailable) and "the result has more than 200 pages" in str(error)


def test_a_query_that_takes_its_time_is_awaited(world: GcpWorld) -> None:
    export(world, USES)
    world.project.query_polls = 60
    report = report_of(world)
    assert sum(cost.usd for cost in report.costs("prod", FIRST, LAST)) == sum(FOUND.values())
    assert report.asked_usd == Decimal(10 * 2**20) * Decimal("6.25") / 2**40


def test_a_query_that_does_not_end_is_left(world: GcpWorld) -> None:
    export(world, USES)
    world.project.query_polls = 10_000
    error = error_of(lambda: told(world))
    assert isinstance(error, Unavailable) and "the query has not ended in 300 s" in str(error)


def test_asking_is_told_by_what_is_billed(world: GcpWorld) -> None:
    report = report_of(world)
    assert report.asked_usd == 0
    export(world, USES)
    report.costs("prod", FIRST, LAST)
    least_usd = Decimal("6.25") * 10 / 2**20
    assert report.asked_usd == least_usd
    report.costs("prod", FIRST, LAST)
    assert report.asked_usd == 2 * least_usd


def test_another_project_may_pay(world: GcpWorld, tmp_path: Path) -> None:
    export(world, USES)
    other = GcpWorld(world.fake, tmp_path)
    other.project.tables = world.project.tables
    report = report_of(world, payer=other.name)
    assert sum(cost.usd for cost in report.costs("prod", FIRST, LAST)) == sum(FOUND.values())
    assert other.project.calls["bigquery.jobs.query"] == 1
    assert not world.project.calls["bigquery.jobs.query"]


def refused(world: GcpWorld) -> ProviderError:
    """Return the one-line error of a query, which names no controller."""
    error = error_of(lambda: told(world))
    assert "\n" not in str(error)
    for word in ("controller", "Terraform", "regions."):
        assert word not in str(error)
    return error


def test_too_much_is_not_read(world: GcpWorld) -> None:
    export(world, USES)
    table_of(world).row_bytes = 6 * GIB
    error = refused(world)
    assert isinstance(error, QuotaExceeded)
    assert "request fewer days with --from and --to" in str(error)


def test_a_table_that_is_not_there_is_told_with_what_it_is_called(world: GcpWorld) -> None:
    error = refused(world)
    assert isinstance(error, NotFound)
    assert f"Not found: Table {world.name}:{NAME}" in str(error)
    assert "--table: name the export's table, such as my-project.billing.gcp_billing" in str(error)


@pytest.mark.parametrize(
    "table",
    [
        Table({name: kind for name, kind in STANDARD.items() if name != "cost_type"}),
        Table(is_partitioned=False),
    ],
    ids=["a column is missing", "a view"],
)
def test_what_is_no_export_is_refused(world: GcpWorld, table: Table) -> None:
    world.project.tables[f"{world.name}.{NAME}"] = table
    error = refused(world)
    assert isinstance(error, NotFound)
    assert "--table: name the standard or detailed export itself, not a view" in str(error)


@pytest.mark.parametrize(
    ("code", "status", "kind", "way"),
    [
        ("accessDenied", 403, PermissionDenied, "need bigquery.jobs.create in"),
        ("forbidden", 403, PermissionDenied, "need bigquery.jobs.create in"),
        ("accessNotConfigured", 403, PermissionDenied, "enable bigquery.googleapis.com in"),
        ("authError", 401, PermissionDenied, "gcloud auth application-default login"),
        ("bytesBilledLimitExceeded", 500, QuotaExceeded, "request fewer days"),
        ("quotaExceeded", 403, QuotaExceeded, "request an increase"),
        ("rateLimitExceeded", 403, Throttled, "injected"),
        ("backendError", 503, Unavailable, "injected"),
    ],
)
@pytest.mark.parametrize("action", ["query", "getQueryResults"])
def test_a_refusal_names_the_way_out(
    world: GcpWorld, action: str, code: str, status: int, kind: type[Exception], way: str
) -> None:
    export(world, USES)
    world.project.page = 5
    world.faults.add(Fault(f"bigquery.jobs.{action}", code=code, status=status, times=None))
    error = refused(world)
    assert type(error) is kind
    assert way in str(error) and f"{world.name}: jobs.query: " in str(error)


@pytest.mark.parametrize("action", ["query", "getQueryResults"])
@pytest.mark.parametrize("when", [When.EMPTY, When.MALFORMED, When.LOST_BEFORE, When.LOST_AFTER])
def test_a_failure_is_no_empty_bill(world: GcpWorld, action: str, when: When) -> None:
    export(world, USES)
    world.project.page = 5
    world.faults.add(Fault(f"bigquery.jobs.{action}", when, times=None))
    assert isinstance(refused(world), Unavailable)


def test_who_has_no_credentials_is_told_how_to_get_some(
    world: GcpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "nowhere.json")
    monkeypatch.delenv("BIGQUERY_EMULATOR_HOST", raising=False)
    table = parse_table(f"{world.name}.{NAME}")
    error = error_of(lambda: open_report(table, world.name, world.clock))
    assert isinstance(error, PermissionDenied)
    assert "gcloud auth application-default login" in str(error)


@pytest.mark.parametrize(
    "text",
    [
        *("", "prod", "billing.export", "my-project.billing.export.more", "my-project..export"),
        *("my-project:billing.export", "My-Project.billing.export", "my-project.bill-ing.export"),
        *(
            "my-project.billing.ex`port",
            "my-project.billing.export\n",
            "my-project.billing.ex port",
        ),
    ],
)
def test_what_is_no_table_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"--table: .* is not a table: write it like my-project\."):
        parse_table(text)


def test_who_pays_is_a_project() -> None:
    table = parse_table("my-project.billing.export-1")
    assert parse_payer(None, table) == "my-project"
    assert parse_payer("other-project", table) == "other-project"
    with pytest.raises(SpecError, match="--project: 'Other' is not a project id"):
        parse_payer("Other", table)
