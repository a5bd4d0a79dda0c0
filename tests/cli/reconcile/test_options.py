"""`castor reconcile`: the ledger beside what a fake AWS was told to have billed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal

import pytest

pytest.importorskip("boto3", reason="the extra aws is not installed")
pytest.importorskip("moto", reason="moto is not installed")

from click.testing import Result
from rich.console import Console
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.cli.reconcile import run
from autoscaler.clock import SystemClock
from autoscaler.domain.errors import PermissionDenied, ProviderError, SpecError, Unavailable
from autoscaler.wire.cost_messages import BilledDay
from providers.bill import BillSource
from providers.registry import plugin_of
from tests.cli.ledger_stub import LedgerStub
from tests.fakes.aws.account import Account
from tests.fakes.aws.billing import Billed
from tests.fakes.aws.faults import Fault
from tests.fakes.aws.server import FakeAws

KEY = "AKIARECONCILE"
FIRST = date(2025, 3, 1)
DAYS = ("--from", "2025-03-01", "--to", "2025-03-02")
OWN = {"castor:deployment": "prod"}
SPOT = "gpu/g5.xlarge/us-east-1a/spot"
NOON_SECONDS = 1_740_830_400.0  # of FIRST


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeAws]:
    server = FakeAws(SystemClock())
    yield server
    server.close()


@pytest.fixture
def account(fake: FakeAws, monkeypatch: pytest.MonkeyPatch) -> Account:
    """Set the command's environment and return its account."""
    told = {"ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": "secret", "ENDPOINT_URL": fake.url}
    for name, value in told.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setenv("COLUMNS", "160")
    return fake.proxy.renew(KEY, SystemClock())


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> LedgerStub:
    found = LedgerStub(SPOT, FIRST)
    found.connect(monkeypatch)
    return found


def bill(
    account: Account, usd: str, usage: str = "SpotUsage:g5.xlarge", day: date = FIRST
) -> None:
    account.bill.lines.append(Billed(day, usage, usd, tags=OWN))


def reconcile(*words: str) -> Result:
    return CliRunner().invoke(app, ["reconcile", "prod", *words])


def printed(*words: str) -> str:
    result = reconcile(*DAYS, *words)
    assert result.exit_code == 0, result
    return " ".join(result.stdout.split())


def test_days_are_compared_and_what_is_beside_is_shown(
    account: Account, ledger: LedgerStub
) -> None:
    ledger.spend("11.50", extras_usd="1.50")
    ledger.spend("3", offer="local-small")
    ledger.spend("7", offer="gpu/g2-standard-4/us-central1-a/spot")
    bill(account, "10.20")
    bill(account, "1.44", "EBS:VolumeUsage.gp3")
    bill(account, "1.08", "NatGateway-Hours")
    said = printed()
    assert "2025-03-01 10.00 10.20 +2.0% 1.50 1.44 1.08" in said
    assert "settled 10.00 10.20 +2.0% 1.50 1.44 1.08" in said
    assert "Beside: NAT gateways $1.08." in said
    assert "Instances agree within 3 % or $0.01" in said
    assert "Extras are volumes and addresses;" in said
    assert "The query to Cost Explorer cost $0.0200" in said
    assert "Google" not in said and "BigQuery" not in said


def test_a_comparison_is_kept_on_the_controller_only_if_asked_for(
    account: Account, ledger: LedgerStub
) -> None:
    reconcile(*DAYS, "--keep")
    assert ledger.kept == {}, "there is no day"
    ledger.spend("10")
    bill(account, "10.20")
    bill(account, "1.08", "NatGateway-Hours")
    printed()
    assert ledger.kept == {}
    assert "Instances agree" in printed("--keep")
    usd = (Decimal("10"), Decimal("10.20"), Decimal("1.08"))
    kept = ledger.kept["aws"]
    assert (kept.deployment, kept.days) == ("prod", (BilledDay(FIRST, *usd),))


def test_a_leak_is_told_with_what_to_look_for(account: Account, ledger: LedgerStub) -> None:
    ledger.spend("10")
    bill(account, "34.14")
    said = printed()
    assert "The account has more (+$24.14). Look for instances with castor:deployment=prod" in said


def test_costs_that_are_missing_are_told_with_why_that_may_be(
    account: Account, ledger: LedgerStub
) -> None:
    ledger.spend("10")
    bill(account, "4")
    assert "The ledger has more (-$6.00)" in printed()
    account.bill.active_tags.clear()
    said = printed()
    assert "has no cost with castor:deployment=prod: activate castor:deployment" in said


def test_the_same_for_scripts(account: Account, ledger: LedgerStub) -> None:
    ledger.spend("10")
    bill(account, "11", day=FIRST + timedelta(days=1))
    account.bill.closed_before = FIRST + timedelta(days=1)
    result = reconcile(*DAYS, "--json")
    found = json.loads(result.stdout)
    assert found["verdict"] == "account has more"
    assert [day["day"] for day in found["days"]] == ["2025-03-01", "2025-03-02"]
    assert [day["is_estimated"] for day in found["days"]] == [False, True]
    assert Decimal(found["instances"]["difference_usd"]) == 1


def test_figures_are_whole_at_eighty_columns(
    account: Account, ledger: LedgerStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ledger.spend("21234.56", extras_usd="1234.56")
    bill(account, "20100.99")
    bill(account, "1240.11", "EBS:VolumeUsage.gp3")
    bill(account, "3210.11", "NatGateway-Hours")
    account.bill.closed_before = FIRST
    said = printed()
    assert "2025-03-01 20,000.00 20,100.99 +0.5% 1,234.56 1,240.11 3,210.11" in said
    assert "AWS calls its figures from 2025-03-01 on estimates" in said


def test_a_day_that_is_not_settled_is_in_no_sum(account: Account, ledger: LedgerStub) -> None:
    ledger.spend("10")
    ledger.spend("10", day=FIRST + timedelta(days=2))
    bill(account, "10")
    period = run.Period(FIRST, FIRST + timedelta(days=2))
    now_seconds = NOON_SECONDS + 3.5 * 86_400
    account = plugin_of("aws", "--cloud").open_account(BillSource(), SystemClock())
    found = run.reconcile_with(account, ledger, "prod", period, now_seconds)  # type: ignore[arg-type]
    assert [day.is_settled for day in found.reconciliation.days] == [True, False]
    assert found.reconciliation.instances.difference_usd == 0
    console = Console(width=80, record=True)
    console.print(run.reconciliation_table(found))
    said = " ".join(console.export_text().split())
    assert "2025-03-03 10.00 0.00 -100.0% 0.00 0.00 0.00 open" in said
    assert "Open days ended less than 48 hours ago, and are in no sum." in said


def test_by_default_two_weeks_to_yesterday() -> None:
    period = run.parse_period(None, None, NOON_SECONDS)
    assert (period.first, period.last) == (date(2025, 2, 15), date(2025, 2, 28))
    short = run.parse_period("2025-02-27", None, NOON_SECONDS)
    assert (short.first, short.last) == (date(2025, 2, 27), date(2025, 2, 28))


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        ("soon", None, "--from: 'soon' is not a date: write it as 2026-11-01"),
        (None, "2025-3-1", "--to: '2025-3-1' is not a date"),
        (None, "2025-03-02", r"--to: 2025-03-02 has not begun: it is 2025-03-01 \(UTC\)"),
        ("2025-02-02", "2025-02-01", "--from: 2025-02-02 is after the last day, 2025-02-01"),
    ],
)
def test_what_is_no_period_is_refused(first: str | None, last: str | None, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        run.parse_period(first, last, NOON_SECONDS)


def test_an_aws_that_is_away_is_not_a_controller_that_is(
    account: Account, ledger: LedgerStub
) -> None:
    """Exit statuses differ, and so does what to do."""
    account.faults.add(Fault("GetCostAndUsage", code="DataUnavailableException", status=400))
    error = reconcile(*DAYS).exception
    assert isinstance(error, ProviderError) and not isinstance(error, Unavailable)
    account.faults.add(Fault("GetCostAndUsage", code="AccessDeniedException", status=400))
    assert isinstance(reconcile(*DAYS).exception, PermissionDenied)
