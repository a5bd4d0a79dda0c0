from __future__ import annotations

import csv
import io
import json
import re
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
ENVIRONMENTS = Path(__file__).parents[2] / "build" / "focus"
# What the validator of FOCUS 1.2 can't know of a provider: which of its features a row may have.
FEATURES = (
    *("ACCOUNT_NAMING", "AVAILABILITY_ZONE", "BILLING_BASED_ON_PROVISIONED_RESOURCES"),
    *("MULTIPLE_PRICING_CATEGORIES", "PUBLIC_PRICE_LIST", "REGION", "RESOURCE_TYPE_ASSIGNMENT"),
    *("SUB_ACCOUNT", "TAGGING", "UNIT_PRICING", "USAGE_MEASUREMENT"),
)


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


def exported() -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows_of(example(), 2 * DAY))
    return text.getvalue()


def output_of_validator(version: str, text: str, file: Path, *options: str) -> str:
    """Return what the foundation's validator prints about an export."""
    environment = ENVIRONMENTS / version
    validator = environment / "bin" / "focus-validator"
    if not validator.exists():
        pytest.skip(f"no validator of FOCUS {version}: make focus installs it")
    file.write_text(text)
    command = [str(validator), "--data-file", str(file), "--validate-version", version, *options]
    # It finds its list of currencies only from where it is installed.
    (packages,) = environment.glob("lib/python3*/site-packages")
    found = subprocess.run(command, cwd=packages, capture_output=True, text=True, check=False)
    return found.stdout + found.stderr


def test_the_validator_of_focus_1_0_finds_nothing(tmp_path: Path) -> None:
    header, _, body = exported().partition("\n")
    names = ",".join(EARLIER_NAMES.get(name, name) for name in header.split(","))
    output = output_of_validator("1.0", f"{names}\n{body}", tmp_path / "focus.csv")
    assert "Validation succeeded" in output, output


def test_the_validator_of_focus_1_2_finds_only_that_there_is_no_invoice(tmp_path: Path) -> None:
    """Check an export; the validator takes each charge for an invoiced one."""
    features = ",".join(f"{name}_SUPPORTED" for name in FEATURES)
    options = ("--block-download", "--applicability-criteria", features)
    output = output_of_validator("1.2", exported(), tmp_path / "focus.csv", *options)
    failed = re.findall(r"(\S+): FAIL ", output)
    assert "Fail: " in output and failed == ["InvoiceId-C-005-C"], output
