"""The ledger of a real controller beside the bill of the project that it buys in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

pytest.importorskip("duckdb", reason="duckdb is not installed")
pytest.importorskip("sqlglot", reason="sqlglot is not installed")

from autoscaler.ledger.ledger import Ledger
from autoscaler.ledger.reconciliation import Reconciliation, ReconciliationResult, reconcile
from providers.gcp.cost_report import CostReport, is_of_gcp, parse_table
from tests.conformance.provider import THEIRS
from tests.fakes.gcp.billing import Billed, Table
from tests.fakes.gcp.server import FakeGcp
from tests.providers.gcp.cloud import SMALL, GcpWorld
from tests.providers.gcp.test_controller import GceWorld

EXTRAS_USD_PER_HOUR = Decimal("0.0288")
# Of an hour in us-central1, by what a g2-standard-4 is made of: on demand, and as spot.
PARTS = (
    ("G2 Instance Core running in Americas", 4, 0.024988, 0.014035),
    ("G2 Instance Ram running in Americas", 16, 0.002927, 0.001644),
    ("Nvidia L4 GPU running in Americas", 1, 0.560040, 0.314555),
)
ON_DEMAND_USD_PER_HOUR = Decimal("0.706824")
WEEK_SECONDS = 7 * 86_400.0


def bill(world: GcpWorld) -> str:
    """Bill the run time of all instances by the hour, under their labels; return the table."""
    lines: list[Billed] = []
    for instance in world.project.history:
        labels = instance.body["labels"]
        start, end = instance.created_seconds, instance.ended_seconds
        assert end is not None
        hours = (end - start) / 3600
        begun = datetime.fromtimestamp(start, UTC).replace(minute=0, second=0, microsecond=0)
        is_spot = instance.purchase == "SPOT"
        for sku, count, *usd in PARTS:
            words = f"Spot Preemptible {sku}" if is_spot else sku
            lines.append(Billed(begun, words, hours * count * usd[is_spot], labels))
        disk = float(EXTRAS_USD_PER_HOUR) * hours
        lines.append(Billed(begun, "Balanced PD Capacity", disk, labels))
    name = f"{world.name}.billing.gcp_billing_export_v1_0123AB"
    world.project.tables[name] = Table(rows=[line.row() for line in lines])
    return name


def reconciled(world: GceWorld) -> Reconciliation:
    table = parse_table(bill(world.gcp))
    report = CostReport(table, table.project, world.gcp.session, world.clock)
    now_seconds = world.clock.now() + WEEK_SECONDS
    last = datetime.fromtimestamp(now_seconds, UTC).date()
    costs = Ledger(world.store.ledger.entries()).daily(now_seconds)
    assert costs and all(is_of_gcp(cost.offer) for cost in costs)
    billed = report.costs("test", last - timedelta(days=14), last)
    return reconcile(costs, billed, now_seconds)


def run_an_hour(fake: FakeGcp, kept: Path) -> GceWorld:
    world = GceWorld(fake, kept, extras_usd_per_hour=str(EXTRAS_USD_PER_HOUR))
    world.until(world.is_settled)
    world.tick(times=6, seconds=600.0)
    world.give_up()
    return world


def test_what_was_bought_is_what_is_billed(fake: FakeGcp, tmp_path: Path) -> None:
    world = run_an_hour(fake, tmp_path)
    found = reconciled(world)
    assert found.verdict is ReconciliationResult.AGREE
    assert found.instances.ledger_usd > Decimal("0.5")
    for compared in (found.instances, found.extras):
        assert compared.share is not None and abs(compared.share) < Decimal("0.01")


def test_what_this_ledger_does_not_know_is_seen(fake: FakeGcp, tmp_path: Path) -> None:
    """An instance of the same deployment that another controller holds, or nobody."""
    world = run_an_hour(fake, tmp_path)
    other = world.gcp.connect(THEIRS)
    lost = other.launch(world.gcp.request("lost", SMALL, controller=THEIRS))
    world.gcp.pass_time(3600.0)
    world.gcp.take(lost.id)
    found = reconciled(world)
    assert found.verdict is ReconciliationResult.ACCOUNT_HAS_MORE
    assert abs(found.instances.difference_usd - ON_DEMAND_USD_PER_HOUR) < Decimal("0.02")
