from __future__ import annotations

import csv
import io
import json
import subprocess
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given

from autoscaler.domain.offer import Offer, Purchase
from autoscaler.domain.spending import EntryKind, LedgerEntry
from autoscaler.domain.time_use import CostCategory, TimeCount, TimeUse
from autoscaler.ledger.focus import COLUMNS, FocusJob, focus_rows
from autoscaler.ledger.ledger import Ledger
from autoscaler.ledger.receipt import TimeRecord, charge_splits
from tests.ledger.test_ledger import DAY, TIMES, bills

JOB = FocusJob("a", "ada@example.org", "nlp", None)
OFFER = Offer("x", "aws", "p4d", "us-east-1a", Purchase.SPOT, 8, "a100", Decimal(9), 60.0, 1e9)
COUNT = TimeCount(0.0, TimeUse(3000.0, 600.0), CostCategory.IDLE)
# The validator 1.0.0 has four columns under the names of version 0.5, not of 1.0.
EARLIER_NAMES = {
    "ProviderName": "Provider",
    "PublisherName": "Publisher",
    "InvoiceIssuerName": "InvoiceIssuer",
    "ResourceId": "ResourceID",
}
ENVIRONMENT = Path(__file__).parents[2] / "build" / "focus"
VALIDATOR = ENVIRONMENT / "bin" / "focus-validator"


def rows_of(lines: list[LedgerEntry], now_seconds: float) -> list[dict[str, str]]:
    records = {"a-0-1": TimeRecord(COUNT)}
    splits = charge_splits("a", Ledger(lines).bills, records, (), now_seconds)
    return list(focus_rows(splits, JOB, {"x": OFFER}, "c0ffee"))


@given(lines=bills(), now_seconds=TIMES)
def test_the_rows_add_up_to_the_cost_and_their_parts_to_each_row(
    lines: list[LedgerEntry], now_seconds: float
) -> None:
    rows = rows_of(lines, now_seconds)
    total = sum((Decimal(row["BilledCost"]) for row in rows), Decimal(0))
    assert total == Ledger(lines).spent("a", now_seconds)
    for row in rows:
        parts = (Decimal(row[f"x_{name.value.title()}Cost"]) for name in CostCategory)
        assert sum(parts, Decimal(0)) == Decimal(row["BilledCost"])
        assert tuple(row) == COLUMNS


def example() -> list[LedgerEntry]:
    common = ("a-0-1", "a", "x")
    return [
        LedgerEntry(EntryKind.OPEN, *common, Decimal(9), DAY - 1800.0),
        LedgerEntry(EntryKind.CLOSE, *common, Decimal(9), DAY + 1800.0),
        LedgerEntry(
            EntryKind.TRANSFER, *common, Decimal(0), DAY, usd=Decimal("0.09"), sent_bytes=10**9
        ),
    ]


def test_a_row_has_a_day_its_hours_and_its_owners() -> None:
    first, second, sent = rows_of(example(), 2 * DAY)
    assert first["ChargePeriodStart"] == "1970-01-01T00:00:00Z"
    assert second["ChargePeriodStart"] == first["ChargePeriodEnd"] == "1970-01-02T00:00:00Z"
    assert first["BillingPeriodEnd"] == "1970-02-01T00:00:00Z"
    assert Decimal(first["ConsumedQuantity"]) == Decimal("0.5")
    assert Decimal(first["ListUnitPrice"]) == 9
    assert first["PricingCategory"] == "Dynamic"
    assert (first["ProviderName"], first["AvailabilityZone"]) == ("aws", "us-east-1a")
    assert json.loads(first["Tags"]) == {"job": "a", "person": "ada@example.org", "team": "nlp"}
    assert (sent["ServiceCategory"], sent["x_TransferCost"]) == ("Networking", "0.090000000000")
    assert sent["ConsumedQuantity"] == ""


def test_an_unknown_offer_is_described_by_its_id() -> None:
    splits = charge_splits("a", Ledger(example()).bills, {}, (), 2 * DAY)
    row = next(focus_rows(splits, JOB, {}, "c0ffee"))
    assert (row["ProviderName"], row["SkuId"], row["AvailabilityZone"]) == ("x", "x", "")


@pytest.mark.skipif(not VALIDATOR.exists(), reason="no validator: make focus installs it")
def test_the_validator_of_the_foundation_finds_nothing(tmp_path: Path) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows_of(example(), 2 * DAY))
    header, _, body = text.getvalue().partition("\n")
    names = (EARLIER_NAMES.get(name, name) for name in header.split(","))
    file = tmp_path / "focus.csv"
    file.write_text(f"{','.join(names)}\n{body}")
    command = [str(VALIDATOR), "--data-file", str(file), "--validate-version", "1.0"]
    # It finds its list of currencies only from where it is installed.
    (packages,) = ENVIRONMENT.glob("lib/python3*/site-packages")
    found = subprocess.run(command, cwd=packages, capture_output=True, text=True, check=False)
    assert "Validation succeeded" in found.stdout, found.stdout + found.stderr
